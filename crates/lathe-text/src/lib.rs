//! What a model is trained on: text files, a built-in language, tokenizers, documents and token files.
//!
//! ```text
//! source -> chunks    -> tokenizer -> tokens (a file)
//!        -> documents -> tokenizer -> a sequence for each
//! ```
//!
//! No text is ever held whole.

mod chunks;
mod decoder;
mod documents;
mod encoding;
mod gguf_tokenizer;
mod guard;
pub mod language;
mod prepare;
mod pruned;
mod quick;
mod source;
mod specials;
mod tokenizer;
mod tokens;
mod vocabulary;
mod words;

pub use chunks::{CHUNK, Chunks};
pub use decoder::Decoder;
pub use documents::{Document, DocumentTokens, Documents, Sequence};
pub use encoding::{Encoding, Padded};
pub use lathe_core::Fault as Error;
pub use prepare::{DataSpec, FileSummary, Prepared, Summary, encode_documents, encode_range, encode_source, prepare};
pub use pruned::{Pruned, renumber_ids};
pub use source::{BUILTIN_MB, Source, fingerprint};
pub use specials::Specials;
pub use tokenizer::{Hf, Tokenizer, TokenizerSpec};
pub use tokens::{Header, Tokens};
pub use vocabulary::SAMPLE;
pub use words::Words;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is told while work goes on: what it is, how much is done, and how much there is, 0 where nobody knows.
pub type TextProgress<'a> = dyn Fn(&str, u64, u64) + 'a;
