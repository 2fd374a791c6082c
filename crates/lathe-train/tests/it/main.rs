//! Tests of the crate, in one binary.

mod contract;
mod damaged;
mod data;
mod documents;
mod language;
mod pruned;
mod sparsity;
mod specials;
