//! GGUF, the container of llama.cpp: a file that says what a model is and how it reads text, and holds its tensors, most of
//! them in few bits.
//!
//! ```text
//! "GGUF", version, tensors, keys    how many of each follow
//! key, type, value                  for each key
//! name, shape, type, offset         for each tensor
//! values                            each at its offset from here, aligned
//! ```
//!
//! This crate knows the container and what the bytes of a tensor mean. What the keys say of a model is for its backbone to
//! know, and what they say of a tokenizer for whoever makes tokenizers.
//!
//! A file may be damaged, cut off or made to do harm: every count and length is held against the bytes that are left
//! before anything is allocated for it, and every tensor against the length of the file.

mod cursor;
mod encode;
mod file;
mod groups;
mod types;
mod value;
mod write;

pub use file::{Gguf, TensorInfo, is_gguf};
pub use groups::{Groups, MAX_BLOCK, MAX_GROUPS, Unpacked};
pub use types::{Form, TYPES, TensorType};
pub use value::{Array, Value};
pub use write::{TensorData, TensorHeader, write, write_with};

use std::path::PathBuf;

/// What can be wrong with a GGUF file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("{}: {error}", file.display())]
    Io {
        /// Which.
        file: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// It is no GGUF file, not all of one, or one that is not read here.
    #[error("{}, {place}: found {found}; expected {expected}", file.display())]
    Malformed {
        /// Which.
        file: PathBuf,
        /// Where in it.
        place: String,
        /// What is there.
        found: String,
        /// What would be accepted.
        expected: String,
    },
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A name from outside, on one line that is not too long.
fn readable(name: &str) -> String {
    name.chars().take(80).flat_map(char::escape_debug).collect()
}
