//! Tests of the crate, in one binary.

mod damaged;
mod data;
mod documents;
mod gguf;
mod language;
mod pruned;
mod specials;
