//! What a run learns from: its texts as tokens, and whether its model can read them.

use crate::data::{self, Data, DataSpec, Tokenizer, TokenizerSpec, Tokens};
use crate::examples::open;
use crate::language::Language;
use crate::run::{Event, Watch};
use crate::settings::Settings;
use crate::tasks::{self, Task};
use crate::{Error, Result};
use lathe_core::Model;
use std::path::Path;
use std::sync::Arc;

/// What a run learns from.
pub struct Texts {
    /// How text becomes tokens.
    pub tokenizer: Tokenizer,
    /// What it trains on.
    pub train: Data,
    /// What it validates on, if there is anything.
    pub valid: Option<Data>,
}

impl Texts {
    /// Reads the text; once all tokens are in the folder, they count, whatever has become of the text. Where the data is a
    /// folder of tokens already, those do.
    pub fn open(folder: &Path, settings: &Settings, watch: Watch<'_>) -> Result<Self> {
        if !settings.task.is_empty() && tasks::named(&settings.task)?.of_examples().is_some() {
            return Self::examples(settings, watch);
        }
        let documents = !settings.task.is_empty() && tasks::named(&settings.task)?.of_documents();
        if let Ok(known) = Self::known(folder).or_else(|_| Self::known(Path::new(&settings.data))) {
            if documents && known.train.tokens()?.header().documents == 0 {
                let found = "tokens that do not know their documents";
                return Err(Error::data(
                    known.train.path().display(),
                    found,
                    "those of a text read document by document",
                ));
            }
            return Ok(known);
        }
        let spec = DataSpec {
            data: settings.data.clone(),
            valid: Some(settings.valid.clone()).filter(|valid| !valid.is_empty()),
            tokenizer: tokenizer_of(settings)?,
            documents,
        };
        let watch = std::cell::RefCell::new(watch);
        let progress = |what: &str, done: u64, total: u64| (watch.borrow_mut())(Event::Preparing(what, done, total));
        let prepared = data::prepare(&spec, folder, &progress)?;
        let (train, valid) = (prepared.train.into(), prepared.valid.map(Data::from));
        Ok(Self { tokenizer: prepared.tokenizer, train, valid })
    }

    /// Reads examples. They are read again when a run goes on: their files are small, and belong to whoever made them.
    fn examples(settings: &Settings, watch: Watch<'_>) -> Result<Self> {
        let tokenizer = match tokenizer_of(settings)? {
            TokenizerSpec::Bytes => Tokenizer::Bytes,
            TokenizerSpec::File(path) => Tokenizer::open(&path)?,
            spec => {
                let found = format!("`{spec}`");
                return Err(Error::setting("tokenizer", found, "init's, bytes or a file, where there are examples"));
            }
        };
        let (train, valid) = open::training(settings, true, &mut |warning| watch(Event::Warning(warning)))?;
        let data = |examples| Data::Examples(Arc::new(examples));
        Ok(Self { tokenizer, train: data(train), valid: valid.map(data) })
    }

    /// The tokens that a folder holds.
    fn known(folder: &Path) -> Result<Self> {
        let valid = Tokens::open(&folder.join("valid.tokens"))?; // the last file to be written
        let train = Tokens::open(&folder.join("train.tokens"))?;
        let valid = Some(valid).filter(|valid| valid.len() > 1).map(Data::from);
        Ok(Self { tokenizer: Tokenizer::load(folder)?, train: train.into(), valid })
    }
}

/// The language that a text is of, if its bytes can be told apart by kind.
pub fn language_of(data: &str, tokenizer: &Tokenizer) -> Option<Language> {
    let builtin = data == "builtin" || data.starts_with("builtin:");
    (builtin && tokenizer.keeps_bytes()).then(Language::default)
}

/// The tokenizer that settings name: that of the teacher, or of the weights to begin with, where there is no other word.
fn tokenizer_of(settings: &Settings) -> lathe_text::Result<TokenizerSpec> {
    let folder = settings.distill.as_ref().map_or(&settings.init, |distill| &distill.teacher);
    let of_folder = match folder.as_str() {
        "" => None,
        folder => Tokenizer::file_of(Path::new(folder))?,
    };
    match (settings.tokenizer.as_str(), of_folder) {
        ("", Some(file)) => file.display().to_string().parse(),
        ("", None) => "bytes".parse(),
        (name, _) => name.parse(),
    }
}

/// An error where a model cannot read what the tokenizer writes.
pub fn check_vocab(model: &Model, texts: &Texts, task: &dyn Task, watch: Watch<'_>) -> Result<()> {
    let vocab = model.frame.vocab;
    let tokenizer = texts.tokenizer.vocab() + task.extra_tokens(texts.tokenizer.specials());
    // An encoder of bytes has a mask token more, which most tasks have no use for.
    let mask = u32::from(!model.frame.backbone.causal());
    let bytes = matches!(texts.tokenizer, Tokenizer::Bytes) && vocab != texts.tokenizer.vocab() + mask;
    if tokenizer > vocab || bytes && vocab != tokenizer {
        let expected = format!("{tokenizer}, the size of the tokenizer's vocabulary");
        return Err(Error::setting("vocab", vocab, expected));
    }
    if tokenizer < vocab && !(matches!(texts.tokenizer, Tokenizer::Bytes) && mask == 1) {
        let unused = vocab - tokenizer;
        watch(Event::Warning(format!("{unused} of the model's {vocab} tokens do not exist in the tokenizer")));
    }
    Ok(())
}
