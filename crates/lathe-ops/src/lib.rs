//! The operators of the hot path on the CPU, fused and with a backward of their own, each beside a `composed`
//! version of candle's differentiable operators.
//!
//! The composed versions are what the fused ones are tested against. They run on every device of candle, in f32 and
//! f64, and their graph gives what the fused ones do not: gradients of activations, and derivatives of gradients.
//! They know no dropout.
//!
//! Every `unsafe` of lathe lives here, each with the reason why it is sound.

pub mod activation;
pub mod allocator;
pub mod attention;
pub mod buffer;
pub mod cpu;
pub mod dropout;
pub mod embedding;
pub mod flops;
pub mod gemm;
pub mod integers;
pub mod linear;
pub mod loss;
pub mod mixture;
pub mod moe;
pub mod norm;
pub mod optim;
mod parallel;
mod precision;
pub mod rope;
mod simd;
pub mod storage;
mod team;
mod wide;

pub use precision::{PRECISIONS, Precision};

/// Which kernels these are: to be raised whenever their speed changes, so that old measurements are not believed.
pub const KERNELS: u32 = 7;
