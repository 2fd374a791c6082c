//! From text to numbers and back: bytes, or a tokenizer of Hugging Face's library, kept as `tokenizer.json`.
//!
//! - `bytes`: a token is a byte; nothing is kept.
//! - `bpe:N`: byte-level BPE with GPT-2's pattern (Radford et al. 2019), trained on the training text. Any text comes back
//!   as it was.
//! - `word:N`: the N most frequent words, as Transformer-XL reads WikiText-103 (Dai et al. 2019): split at white space,
//!   `<eos>` for the end of a line, `<unk>` for the rest; frequent words come first, as an adaptive softmax needs them.
//! - a file: any `tokenizer.json`, GPT-2's `vocab.json` with `merges.txt` beside it, or a GGUF file. What lies beside it
//!   and names its special tokens is read with it and kept; a GGUF file has all of that inside.

use crate::gguf_tokenizer;
use crate::guard::guarded;
use crate::quick::Quick;
use crate::specials::{Beside, Specials, TOKENIZER_CONFIG};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, DecoderWrapper, ModelWrapper};

/// The file of a tokenizer in a folder.
pub const FILE: &str = "tokenizer.json";
/// What ends a document in GPT-2's vocabulary.
const END_OF_TEXT: &str = "<|endoftext|>";
/// The largest vocabulary that is trained.
const MAX_VOCAB: u32 = 1 << 20;
/// The largest vocabulary that is read: a larger one is a slip, and the library counts up to it when it writes.
const MAX_READ: u32 = 1 << 24;

/// Which tokenizer to use: `bytes`, `bpe:N`, `word:N` or a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TokenizerSpec {
    /// A token is a byte.
    #[default]
    Bytes,
    /// BPE with so many tokens, trained on the training text.
    Bpe(u32),
    /// So many words, the most frequent of the training text.
    Word(u32),
    /// A `tokenizer.json`, a `vocab.json` with a `merges.txt` beside it, or a GGUF file.
    File(PathBuf),
}

impl FromStr for TokenizerSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let size = |text: &str, least: u32| {
            let size = text.parse().ok().filter(|size| (least..=MAX_VOCAB).contains(size));
            let expected = format!("bytes, bpe:N (N from 256), word:N (N from 3), N up to {MAX_VOCAB}, or a file");
            size.ok_or_else(|| Error::setting("tokenizer", format_args!("`{text}`"), expected))
        };
        Ok(match text.split_once(':') {
            Some(("bpe", vocab)) => Self::Bpe(size(vocab, 256)?),
            Some(("word", vocab)) => Self::Word(size(vocab, 3)?),
            _ if text == "bytes" => Self::Bytes,
            // Words that are likelier a slip than a file.
            _ if ["", "bpe", "word"].contains(&text) => Self::Bpe(size(text, 256)?),
            _ => Self::File(text.into()),
        })
    }
}

impl TryFrom<String> for TokenizerSpec {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<TokenizerSpec> for String {
    fn from(spec: TokenizerSpec) -> Self {
        spec.to_string()
    }
}

impl fmt::Display for TokenizerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => f.write_str("bytes"),
            Self::Bpe(vocab) => write!(f, "bpe:{vocab}"),
            Self::Word(vocab) => write!(f, "word:{vocab}"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// A tokenizer at work.
#[derive(Debug)]
pub enum Tokenizer {
    /// A token is a byte.
    Bytes,
    /// One of Hugging Face's library.
    Hf(Box<Hf>),
}

/// A tokenizer of Hugging Face's library.
#[derive(Debug)]
pub struct Hf {
    pub(crate) inner: tokenizers::Tokenizer,
    /// The same tokens sooner, where we know how.
    quick: Option<Quick>,
    vocab: u32,
    pub(super) unknown: Option<u32>,
    pub(super) specials: Specials,
    pub(super) beside: Beside,
}

impl Tokenizer {
    /// The tokenizer of a model folder: its `tokenizer.json`, else bytes; that of a GGUF file. Whether the vocabulary fits
    /// is for the caller.
    pub fn load(dir: &Path) -> Result<Self> {
        match Self::file_of(dir)? {
            Some(path) => Self::open(&path),
            None => Ok(Self::Bytes),
        }
    }

    /// Where the tokenizer of a model is: in the `tokenizer.json` of its folder, if there is one, or in its GGUF file.
    pub fn file_of(model: &Path) -> Result<Option<PathBuf>> {
        if lathe_gguf::is_gguf(model) {
            return Ok(Some(model.into()));
        }
        if model.is_file() {
            return Ok(None); // a model file, which has none
        }
        let path = model.join(FILE);
        Ok(path.try_exists().map_err(Error::io(&path))?.then_some(path))
    }

    /// A `tokenizer.json`, a `vocab.json` with a `merges.txt` beside it, or a GGUF file.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let beside = || Beside::read(path.parent().unwrap_or(Path::new("")));
        let parse = |json: Vec<u8>| {
            guarded(|| Self::of(tokenizers::Tokenizer::from_bytes(json)?)).map_err(|error| wrong(path, error))
        };
        let (mut tokenizer, beside) = match name.strip_suffix("vocab.json") {
            _ if lathe_gguf::is_gguf(path) => {
                let (json, files) = gguf_tokenizer::read(path)?;
                (parse(json)?, Beside::of(files)?)
            }
            Some(prefix) => (Self::gpt2(path, &path.with_file_name(format!("{prefix}merges.txt")))?, beside()?),
            None => (parse(std::fs::read(path).map_err(Error::io(path))?)?, beside()?),
        };
        if let Self::Hf(hf) = &mut tokenizer {
            hf.beside = beside;
            hf.specials =
                guarded(|| Ok(Specials::of(&hf.inner, hf.unknown, &hf.beside))).map_err(|error| wrong(path, error))?;
        }
        Ok(tokenizer)
    }

    fn gpt2(vocab: &Path, merges: &Path) -> Result<Self> {
        for path in [vocab, merges] {
            std::fs::File::open(path).map_err(Error::io(path))?; // the library's errors name no file
        }
        let files = (vocab.to_string_lossy(), merges.to_string_lossy());
        guarded(|| Self::byte_level(BPE::from_file(&files.0, &files.1).build()?)).map_err(|error| wrong(vocab, error))
    }

    /// GPT-2's pattern around a model of merges.
    pub(crate) fn byte_level(model: BPE) -> tokenizers::Result<Self> {
        let has_end = model.get_vocab().contains_key(END_OF_TEXT);
        let mut inner = tokenizers::Tokenizer::new(model);
        let bytes = ByteLevel::new(false, true, true);
        inner.with_pre_tokenizer(Some(bytes)).with_decoder(Some(bytes));
        if has_end {
            inner.add_special_tokens([AddedToken::from(END_OF_TEXT, true)])?;
        }
        Self::of(inner)
    }

    /// Whatever the library can load, made to give the tokens of the text and nothing else.
    pub(crate) fn of(mut inner: tokenizers::Tokenizer) -> tokenizers::Result<Self> {
        inner.with_truncation(None)?;
        inner.with_padding(None);
        let vocab = inner.get_vocab(true);
        let last = *vocab.values().max().ok_or("an empty vocabulary")?;
        if last >= MAX_READ {
            return Err(format!("a token with the id {last}, above {}", MAX_READ - 1).into());
        }
        let unknown = match inner.get_model() {
            ModelWrapper::BPE(model) => model.unk_token.clone(),
            ModelWrapper::WordLevel(model) => Some(model.unk_token.clone()),
            ModelWrapper::WordPiece(model) => Some(model.unk_token.clone()),
            ModelWrapper::Unigram(_) => Some("<unk>".into()), // the library does not tell; the usual name
        };
        // Random merges are for those who train with them; here the same text has the same tokens.
        if let ModelWrapper::BPE(model) = inner.get_model()
            && model.dropout.is_some()
        {
            let mut model = model.clone();
            model.dropout = None;
            inner.with_model(model);
        }
        let unknown = unknown.and_then(|token| vocab.get(&token).copied());
        let beside = Beside::default();
        Ok(Self::Hf(Box::new(Hf {
            vocab: last + 1,
            unknown,
            quick: Quick::of(&inner),
            specials: Specials::of(&inner, unknown, &beside),
            beside,
            inner,
        })))
    }

    /// V: every token is below it.
    pub fn vocab(&self) -> u32 {
        match self {
            Self::Bytes => 256,
            Self::Hf(hf) => hf.vocab,
        }
    }

    /// The token that stands for what the vocabulary does not have.
    pub fn unknown(&self) -> Option<u32> {
        match self {
            Self::Bytes => None,
            Self::Hf(hf) => hf.unknown,
        }
    }

    /// Its special tokens, as its folder names them; bytes have none.
    pub fn specials(&self) -> &Specials {
        static NONE: Specials = Specials::NONE;
        match self {
            Self::Bytes => &NONE,
            Self::Hf(hf) => &hf.specials,
        }
    }

    /// Whether it takes UTF-8 alone, not any bytes.
    pub fn needs_text(&self) -> bool {
        !matches!(self, Self::Bytes)
    }

    /// Whether the texts of tokens, one after another, are the text.
    pub fn keeps_bytes(&self) -> bool {
        match self {
            Self::Bytes => true,
            Self::Hf(hf) => matches!(hf.inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_))),
        }
    }

    /// The tokens of a text.
    pub fn encode(&self, text: impl AsRef<[u8]>) -> Result<Vec<u32>> {
        let bytes = text.as_ref();
        let Self::Hf(hf) = self else {
            return Ok(bytes.iter().map(|&byte| byte.into()).collect());
        };
        let text = utf8(bytes)?;
        let ids = guarded(|| match &hf.quick {
            Some(quick) if quick.can(text) => quick.encode(text, &hf.inner),
            _ => Ok(hf.inner.encode_fast(text, false)?.get_ids().to_vec()),
        });
        ids.map_err(cannot_encode)
    }

    /// The first tokens of a text, and where in it each ends. Tokens that share a character end with it.
    pub(crate) fn tokens_with_ends(&self, text: &[u8], tokens: usize) -> Result<Vec<(u32, usize)>> {
        let Self::Hf(hf) = self else {
            return Ok(text.iter().map(|&byte| byte.into()).zip(1..).take(tokens).collect());
        };
        let text = utf8(text)?;
        let encoding = guarded(|| hf.inner.encode(text, false)).map_err(cannot_encode)?;
        let ends = encoding.get_offsets().iter().map(|&(_, end)| end);
        Ok(encoding.get_ids().iter().copied().zip(ends).take(tokens).collect())
    }

    /// The text of tokens. What is no UTF-8 becomes U+FFFD; what is no token is left out. Where the tokenizer fails,
    /// there is no text; [`Tokenizer::try_decode`] tells why.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.try_decode(ids).unwrap_or_default()
    }

    /// The text of tokens, as [`Tokenizer::decode`], or the error of the tokenizer.
    pub fn try_decode(&self, ids: &[u32]) -> Result<String> {
        match self {
            Self::Bytes => {
                let bytes: Vec<u8> = ids.iter().filter_map(|&id| id.try_into().ok()).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Self::Hf(hf) => guarded(|| hf.inner.decode(ids, false)).map_err(|error| {
                let found = format!("an error of the tokenizer: {error}");
                Error::data(format_args!("{} tokens", ids.len()), found, "tokens it can decode")
            }),
        }
    }

    /// A token as it stands in the vocabulary, for people to look at.
    pub fn token(&self, id: u32) -> Option<String> {
        match self {
            Self::Bytes => u8::try_from(id).ok().map(|byte| byte.escape_ascii().to_string()),
            Self::Hf(hf) => guarded(|| Ok(hf.inner.id_to_token(id))).ok()?,
        }
    }

    /// Writes `tokenizer.json` into a folder, and beside it what was read beside it; nothing for bytes.
    ///
    /// Special tokens that only the model's `config.json` named go into `generation_config.json`.
    pub fn save(&self, dir: &Path) -> Result<()> {
        let Self::Hf(hf) = self else { return Ok(()) };
        let failed = |error: String| {
            let found = format!("an error of the tokenizer: {error}");
            Error::data(dir.join(FILE).display(), found, "a tokenizer that can be written")
        };
        let json = guarded(|| hf.inner.to_string(true)).map_err(failed)?;
        let beside = guarded(|| Ok(hf.beside.to_write(&hf.inner, hf.unknown, &hf.specials))).map_err(failed)??;
        for (name, bytes) in beside.into_iter().chain([(FILE, json.into_bytes())]) {
            let (path, aside) = (dir.join(name), dir.join(format!("{name}.part")));
            std::fs::write(&aside, bytes).map_err(Error::io(&aside))?;
            std::fs::rename(&aside, &path).map_err(Error::io(&path))?;
        }
        Ok(())
    }

    /// Whether a file beside `tokenizer.json` was read with it.
    pub(crate) fn has_beside(&self, name: &str) -> bool {
        matches!(self, Self::Hf(hf) if hf.beside.has(name))
    }

    /// The template of conversations, in Jinja: `chat_template` of `tokenizer_config.json` or of a GGUF file, where
    /// there are several the one called `default`.
    pub fn chat_template(&self) -> Option<String> {
        let Self::Hf(hf) = self else { return None };
        let config: serde_json::Value = serde_json::from_slice(hf.beside.file(TOKENIZER_CONFIG)?).ok()?;
        let template = match &config["chat_template"] {
            serde_json::Value::Array(named) => &named.iter().find(|one| one["name"] == "default")?["template"],
            one => one,
        };
        template.as_str().map(String::from)
    }

    /// Whether it puts a token before a text, and one behind it, where it is asked for whole texts.
    pub(crate) fn around(&self) -> Result<[bool; 2]> {
        let Self::Hf(hf) = self else { return Ok([false; 2]) };
        let encode = |special: bool| hf.inner.encode_fast("a", special).map(|found| found.get_ids().to_vec());
        let (plain, whole) = guarded(|| Ok((encode(false)?, encode(true)?))).map_err(cannot_encode)?;
        let before = whole.windows(plain.len().max(1)).position(|ids| ids == plain).unwrap_or_default();
        Ok([before > 0, whole.len() > plain.len() + before])
    }

    /// It as the keys of a GGUF file of a model with so many tokens; an error where llama.cpp has no such tokenizer.
    pub fn gguf_keys(&self, vocab: u32) -> Result<Vec<(String, lathe_gguf::Value)>> {
        gguf_tokenizer::keys(self, vocab)
    }

    /// The content of `tokenizer.json`.
    pub fn json(&self) -> Option<String> {
        match self {
            Self::Bytes => None,
            Self::Hf(hf) => guarded(|| hf.inner.to_string(true)).ok(),
        }
    }

    /// Without the quick way: what the library itself returns.
    #[doc(hidden)]
    pub fn without_quick(mut self) -> Self {
        if let Self::Hf(hf) = &mut self {
            hf.quick = None;
        }
        self
    }
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|error| {
        let place = format!("text, byte {}", error.valid_up_to());
        Error::data(place, "bytes that are not UTF-8", "UTF-8; the tokenizer `bytes` takes any bytes")
    })
}

/// An error of the tokenizer with a text.
pub(crate) fn cannot_encode(error: String) -> Error {
    Error::data("text", format_args!("an error of the tokenizer: {error}"), "text it can encode")
}

fn wrong(path: &Path, error: impl fmt::Display) -> Error {
    Error::data(path.display(), error, "a tokenizer.json, a vocab.json with a merges.txt beside it, or a GGUF file")
}
