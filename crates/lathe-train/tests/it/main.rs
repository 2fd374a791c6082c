//! Tests of the crate, in one binary.

mod choices;
mod contract;
mod distill;
mod generate;
mod sampler;
mod sparsity;
mod trained;
