//! How well a model folder predicts a text.

use crate::{Error, Event, Result, Watch};
use lathe_core::model::{MAX_LEN, key};
use lathe_core::{Model, Registry};
use lathe_model::{Network, Precision, folder};
use lathe_train::data::{self, Documents, Source, Tokenizer};
use lathe_train::evaluate::{Evaluation, Options, evaluate_documents};
use lathe_train::tasks;
use lathe_train::texts::language_of;
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// What to evaluate, and on what.
#[derive(Debug, Clone)]
pub struct Request {
    /// A model folder.
    pub folder: PathBuf,
    /// A text: a file, a folder, or the built-in language.
    pub data: String,
    /// Tokens that a window shares with the one before, where there is no memory.
    pub context: u32,
    /// Tokens of a window over a memory.
    pub tgt_len: Option<u32>,
    /// Tokens remembered before a window.
    pub mem_len: Option<u32>,
    /// Distances beyond it count as it.
    pub clamp_len: Option<u32>,
    /// Precision of products.
    pub precision: Precision,
    /// What to evaluate for; empty for what the model is for.
    pub task: String,
    /// Whether documents are scored one by one, each from its own beginning.
    pub documents: bool,
}

/// Evaluates a model folder.
pub fn run(registry: &Registry, request: &Request, watch: Watch<'_>) -> Result<Evaluation> {
    let model = request.model(registry)?;
    let tokenizer = Tokenizer::load(&request.folder)?;
    check_tokenizer(&tokenizer, &model, &request.folder)?;
    let task = tasks::find(&request.task, &model)?;
    let mut network = folder::load_as(&request.folder, model)?;
    network.set_precision(request.precision);
    if let Some(warning) = request.precision.warning() {
        watch(Event::Warning(warning));
    }
    network.freeze();
    if request.documents {
        return documents(request, &network, &tokenizer, watch);
    }
    let watch = RefCell::new(watch);
    let aside = tempfile::tempdir().map_err(Error::io(Path::new("a folder for tokens")))?;
    let progress = |what: &str, done, total| watch.borrow_mut()(Event::Bytes { what, done, total });
    let tokens = data::encode_source(&request.data, &tokenizer, &aside.path().join("tokens"), &progress)?;
    if tokens.len() < 2 {
        let found = format!("{} tokens", tokens.len());
        return Err(Error::data(&request.data, found, "at least 2, for the first is not scored"));
    }
    let language = language_of(&request.data, &tokenizer);
    let context = request.context as usize;
    let options = Options { context, language: language.as_ref(), ..Options::new(&tokenizer) };
    let evaluation = task.evaluate(&network, &tokens, &options, &mut |done, total| {
        watch.borrow_mut()(Event::Steps { what: "evaluating", note: "", done, total });
    })?;
    watch.borrow_mut()(Event::Done);
    Ok(evaluation)
}

/// Scores documents one by one.
fn documents(request: &Request, network: &Network, tokenizer: &Tokenizer, watch: Watch<'_>) -> Result<Evaluation> {
    let frame = &network.model.frame;
    if !frame.backbone.causal() {
        let found = format!("documents for a {}", frame.backbone.key());
        return Err(Error::setting("documents", found, "a model that predicts the next token"));
    }
    let longest = if frame.has_memory() { MAX_LEN } else { frame.max_len };
    let source = Source::open(&request.data)?;
    let mut sequences = Documents::new(&source)?.tokens(tokenizer, longest as usize)?;
    let mut heard = |done| watch(Event::Steps { what: "evaluating", note: "documents", done, total: 0 });
    let evaluation = evaluate_documents(network, &mut sequences, &mut heard)?;
    watch(Event::Done);
    if evaluation.tokens == 0 {
        return Err(Error::data(&request.data, "no token to score", "documents of at least two tokens"));
    }
    Ok(evaluation)
}

impl Request {
    /// The model with the lengths of the evaluation.
    fn model(&self, registry: &Registry) -> Result<Model> {
        let mut spec = folder::load_model(&self.folder, registry)?.spec();
        let lengths = [("tgt_len", self.tgt_len), ("mem_len", self.mem_len), ("clamp_len", self.clamp_len)];
        for (name, value) in lengths {
            let key = key(name).expect("a key of the model file");
            if let Some(value) = value {
                spec.set(key, key.parse(&value.to_string())?);
            }
        }
        let model = spec.model(registry)?;
        let carried = model.frame.has_memory();
        if carried && self.context > 0 {
            let found = format!("{} for a {}, whose memory is its context", self.context, model.frame.backbone.key());
            return Err(Error::setting("context", found, "`mem_len`"));
        }
        if !carried && self.context >= model.frame.max_len {
            let expected = format!("less than max_len, which is {}", model.frame.max_len);
            return Err(Error::setting("context", self.context, expected));
        }
        Ok(model)
    }
}

/// An error where the tokenizer of a folder cannot be that of its model.
pub(crate) fn check_tokenizer(tokenizer: &Tokenizer, model: &Model, folder: &Path) -> Result<()> {
    let (found, vocab) = (tokenizer.vocab(), model.frame.vocab);
    match tokenizer {
        // An encoder of bytes has a mask token more.
        Tokenizer::Bytes if vocab != 256 + u32::from(!model.frame.backbone.causal()) => {
            let expected = format!("one, for the vocabulary of {vocab} is not that of bytes");
            Err(Error::data(folder.display(), "no tokenizer.json", expected))
        }
        _ if found > vocab => {
            let expected = format!("at most {vocab}, the model's vocabulary");
            let file = Tokenizer::file_of(folder)?.unwrap_or_else(|| folder.into());
            Err(Error::data(file.display(), format!("{found} tokens"), expected))
        }
        _ => Ok(()),
    }
}
