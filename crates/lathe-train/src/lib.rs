//! From text to a trained model: data and tokenizers, a built-in language, training that survives being killed,
//! evaluation and generation.
//!
//! [`settings`] says what a run is, [`run`] does it; [`evaluate`] and [`generate`] use what it gave.

pub mod checkpoint;
pub mod data;
pub mod distill;
mod error;
pub mod evaluate;
pub mod generate;
mod gradient;
pub mod language;
pub mod metrics;
pub mod optimizer;
pub mod recipes;
pub mod resumable;
pub mod run;
pub mod schedule;
pub mod settings;
pub mod tasks;
mod tensorboard;
pub mod texts;

pub use error::{Error, Result};
