//! What a model is trained on: what [`lathe_text`] makes of a text, and batches.

pub use crate::sampler::{Batch, Sampler, mix, permute};
pub use lathe_text::{
    BUILTIN_MB, CHUNK, Chunks, DataSpec, Decoder, Document, DocumentTokens, Documents, Encoding, FileSummary, Header,
    Hf, Padded, Prepared, Pruned, SAMPLE, Sequence, Source, Specials, Summary, TextProgress, Tokenizer, TokenizerSpec,
    Tokens, encode_documents, encode_range, encode_source, fingerprint, prepare, renumber_ids,
};
