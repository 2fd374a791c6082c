//! From text to token files: the whole way, which uses again what is there.

use crate::{
    Error, Result, Source, TextProgress, Tokenizer, TokenizerSpec, Tokens, source, specials, tokenizer, tokens,
    vocabulary,
};
use fnv::FnvHasher;
use serde::{Deserialize, Serialize};
use std::hash::Hasher;
use std::ops::Range;
use std::path::Path;

/// Which text, and how it becomes tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    /// A file, a folder or `builtin`.
    pub data: String,
    /// The same, to validate on; without it the last tenth of `data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid: Option<String>,
    /// How text becomes tokens.
    #[serde(default)]
    pub tokenizer: TokenizerSpec,
    /// Whether it is read document by document, so that the tokens know where each begins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub documents: bool,
}

/// Data ready to train on.
#[derive(Debug)]
pub struct Prepared {
    /// As trained on the training text, or loaded.
    pub tokenizer: Tokenizer,
    /// What to train on.
    pub train: Tokens,
    /// What to validate on; nothing where there are not two tokens.
    pub valid: Option<Tokens>,
    /// What was read.
    pub summary: Summary,
}

/// What was read.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The files of the training text, or those that both parts are in.
    pub files: Vec<FileSummary>,
    /// The files of the validation text, where it is one of its own.
    pub valid_files: Vec<FileSummary>,
    /// The first 400 bytes of the text, or a little less.
    pub beginning: String,
    /// Bytes of the training text.
    pub train_bytes: u64,
    /// Bytes of the validation text.
    pub valid_bytes: u64,
    /// Which tokenizer.
    pub tokenizer: String,
    /// V
    pub vocab: u32,
    /// Bytes of the training text that the tokenizer was trained on; 0 where it was not, or not now.
    pub trained_on_bytes: u64,
    /// Whether tokens were there from an earlier run.
    pub reused: bool,
}

/// A file that was read.
#[derive(Debug, Clone, Serialize)]
pub struct FileSummary {
    /// Its path.
    pub name: String,
    /// Bytes of text in it, after unpacking.
    pub bytes: u64,
}

/// Reads text, trains the tokenizer where that is asked for, and writes `tokenizer.json` (and what lay beside it),
/// `train.tokens` and `valid.tokens` into a folder. What is there already from the same text and tokenizer is used as it is.
pub fn prepare(spec: &DataSpec, dir: &Path, progress: &TextProgress<'_>) -> Result<Prepared> {
    std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
    progress("reading", 0, 0);
    let source = Source::open(&spec.data)?;
    let own_valid = spec.valid.as_deref().map(Source::open).transpose()?;
    let total = source.bytes();
    let split = if own_valid.is_some() { total } else { source.split()? };
    if split == 0 {
        let expected = "a text of at least two bytes, nine tenths to train on and one to validate on";
        return Err(Error::data(&spec.data, format_args!("{total} bytes of text"), expected));
    }
    let (valid, valid_range) = match &own_valid {
        Some(valid) => (valid, 0..valid.bytes()),
        None => (&source, split..total),
    };
    let files = |source: &Source| source.files().map(|(name, bytes)| FileSummary { name, bytes }).collect();
    let mut summary = Summary {
        files: files(&source),
        valid_files: own_valid.as_ref().map(files).unwrap_or_default(),
        beginning: source.beginning(400)?,
        train_bytes: split,
        valid_bytes: valid_range.end - valid_range.start,
        tokenizer: spec.tokenizer.to_string(),
        vocab: 0,
        trained_on_bytes: 0,
        reused: false,
    };
    let mut spec_key = spec_key(&spec.tokenizer, &source, split)?;
    if spec.documents {
        spec_key += " documents";
    }
    let encode = if spec.documents { tokens::encode_documents } else { tokens::encode };
    let paths = (dir.join("train.tokens"), dir.join("valid.tokens"));
    let train_key = |tokenizer: &Tokenizer| key(&[&spec_key, &tokenizer.json().unwrap_or_default(), "train"]);

    let known = |path: &Path, key: &str| Tokens::open(path).ok().filter(|tokens| tokens.header().key == key);
    let before = Tokenizer::load(dir).ok().and_then(|tokenizer| {
        let train = known(&paths.0, &train_key(&tokenizer))?;
        Some((tokenizer, train))
    });
    let (tokenizer, train) = match before {
        Some(before) => {
            summary.reused = true;
            before
        }
        None => {
            let (tokenizer, bytes) = vocabulary::make(&spec.tokenizer, &source, 0..split, progress)?;
            summary.trained_on_bytes = bytes;
            // A tokenizer of an earlier run would be taken for this one's.
            if matches!(tokenizer, Tokenizer::Bytes) {
                remove(&dir.join(tokenizer::FILE))?;
            }
            for name in specials::FILES.into_iter().filter(|name| !tokenizer.has_beside(name)) {
                remove(&dir.join(name))?;
            }
            tokenizer.save(dir)?;
            let key = train_key(&tokenizer);
            let job = tokens::EncodeJob { source: &source, range: 0..split, tokenizer: &tokenizer, key };
            let train = encode(job, &paths.0, progress)?;
            (tokenizer, train)
        }
    };
    summary.vocab = tokenizer.vocab();
    let key = key(&[&train.header().key, &valid.fingerprint()?, &format!("{valid_range:?}")]);
    let valid = match known(&paths.1, &key) {
        Some(known) => known,
        None => {
            let job = tokens::EncodeJob { source: valid, range: valid_range.clone(), tokenizer: &tokenizer, key };
            encode(job, &paths.1, progress)?
        }
    };
    let valid = (valid.len() > 1).then_some(valid);
    Ok(Prepared { tokenizer, train, valid, summary })
}

/// Encodes a whole text into a token file, unless it is there from before.
pub fn encode_source(source: &str, tokenizer: &Tokenizer, out: &Path, progress: &TextProgress<'_>) -> Result<Tokens> {
    let source = Source::open(source)?;
    let key = key(&[&source.fingerprint()?, &tokenizer.json().unwrap_or_default()]);
    if let Ok(tokens) = Tokens::open(out)
        && tokens.header().key == key
    {
        return Ok(tokens);
    }
    let job = tokens::EncodeJob { source: &source, range: 0..source.bytes(), tokenizer, key };
    tokens::encode(job, out, progress)
}

/// Encodes a range of a text into a token file.
pub fn encode_range(
    source: &Source,
    range: Range<u64>,
    tokenizer: &Tokenizer,
    out: &Path,
    progress: &TextProgress<'_>,
) -> Result<Tokens> {
    let key = key(&[&source.fingerprint()?, &format!("{range:?}"), &tokenizer.json().unwrap_or_default()]);
    tokens::encode(tokens::EncodeJob { source, range, tokenizer, key }, out, progress)
}

/// Encodes the documents of a range of a text into a token file, each after BOS where the tokenizer has one.
pub fn encode_documents(
    source: &Source,
    range: Range<u64>,
    tokenizer: &Tokenizer,
    out: &Path,
    progress: &TextProgress<'_>,
) -> Result<Tokens> {
    let key = key(&[&source.fingerprint()?, &format!("{range:?} documents"), &tokenizer.json().unwrap_or_default()]);
    tokens::encode_documents(tokens::EncodeJob { source, range, tokenizer, key }, out, progress)
}

/// What the tokens of the training text depend on, but for what was learnt from it.
fn spec_key(spec: &TokenizerSpec, source: &Source, split: u64) -> Result<String> {
    let file = match spec {
        TokenizerSpec::File(path) => {
            let beside = specials::FILES.map(|name| path.with_file_name(name));
            let there = beside.iter().filter(|path| path.exists());
            [path].into_iter().chain(there).map(|path| source::fingerprint(path)).collect::<Result<_>>()?
        }
        _ => String::new(),
    };
    Ok(format!("{spec}\n{file}{}{split}", source.fingerprint()?))
}

/// FNV-1a of texts, each with its end.
fn key(texts: &[&str]) -> String {
    let mut hash = FnvHasher::default();
    for text in texts {
        hash.write(text.as_bytes());
        hash.write(&[0xff]); // is in no text
    }
    format!("{:016x}", hash.finish())
}

/// Removes a file, if there is one.
fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path)(error)),
        _ => Ok(()),
    }
}
