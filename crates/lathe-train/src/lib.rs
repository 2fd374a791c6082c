//! From tokens to a trained model: batches, tasks, training that survives being killed, evaluation and generation.
//!
//! [`settings`] says what a run is, [`run`] does it; [`evaluate`] and [`generate`] use what it gave.

pub mod against;
pub mod checkpoint;
pub mod choices;
pub mod data;
pub mod distill;
pub mod divergence;
mod error;
pub mod evaluate;
pub mod examples;
pub mod fused;
pub mod generate;
mod gradient;
pub mod metrics;
pub mod optimizer;
pub mod recipes;
pub mod resumable;
pub mod rounding;
pub mod run;
mod sampler;
pub mod samples;
pub mod schedule;
pub mod settings;
mod sparsity;
pub mod tasks;
mod tensorboard;
pub mod texts;

pub use error::{Error, Result};
pub use lathe_text::language;
