//! Tests of the crate, in one binary.

mod contract;
mod distill;
mod generate;
mod sampler;
mod sparsity;
mod trained;
