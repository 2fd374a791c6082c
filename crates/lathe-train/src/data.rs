//! What a model is trained on: what [`lathe_text`] makes of a text, examples, and batches.

use crate::examples::Examples;
use crate::{Error, Result};
use std::path::Path;
use std::sync::Arc;

pub use crate::sampler::{Batch, Sampler, mix, permute};
pub use lathe_text::{
    BUILTIN_MB, CHUNK, Chunks, DataSpec, Decoder, Document, DocumentTokens, Documents, Encoding, FileSummary, Header,
    Hf, Padded, Prepared, Pruned, SAMPLE, Sequence, Source, Specials, Summary, TextProgress, Tokenizer, TokenizerSpec,
    Tokens, encode_documents, encode_range, encode_source, fingerprint, prepare, renumber_ids,
};

/// What a task learns from, or is judged by.
#[derive(Debug, Clone)]
pub enum Data {
    /// A text.
    Tokens(Tokens),
    /// Examples.
    Examples(Arc<Examples>),
}

impl From<Tokens> for Data {
    fn from(tokens: Tokens) -> Self {
        Self::Tokens(tokens)
    }
}

impl Data {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Tokens(tokens) => tokens.path(),
            Self::Examples(examples) => &examples.path,
        }
    }

    /// The text, for a task that learns from one.
    pub fn tokens(&self) -> Result<&Tokens> {
        match self {
            Self::Tokens(tokens) => Ok(tokens),
            Self::Examples(examples) => Err(Error::data(examples.path.display(), "examples", "a text")),
        }
    }

    /// The examples, for a task that learns from some.
    pub fn examples(&self) -> Result<&Arc<Examples>> {
        match self {
            Self::Examples(examples) => Ok(examples),
            Self::Tokens(tokens) => Err(Error::data(tokens.path().display(), "a text", "examples of a task")),
        }
    }
}
