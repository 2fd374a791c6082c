//! From text to a trained model: data and tokenizers, a built-in language, training that survives being killed,
//! evaluation and generation.

pub mod data;
pub mod error;
pub mod language;

pub use error::{Error, Result};
