//! What an architecture costs on this machine, how good it will be, and which ones to choose.

pub mod differentiable;
mod error;

pub use error::{Error, Result};
