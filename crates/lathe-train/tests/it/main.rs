//! Tests of the crate, in one binary.

mod contract;
mod generate;
mod sampler;
mod sparsity;
