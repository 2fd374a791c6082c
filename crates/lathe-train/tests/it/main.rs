//! Tests of the crate, in one binary.

mod benchmarks;
mod choices;
mod contract;
mod distill;
mod encoders;
mod generate;
mod sampler;
mod scores;
mod sparsity;
mod trained;
