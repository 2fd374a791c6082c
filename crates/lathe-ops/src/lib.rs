//! The operators of the hot path on the CPU.
//!
//! Every `unsafe` of lathe lives here, each with the reason why it is sound.

pub mod activation;
pub mod attention;
pub mod buffer;
pub mod cpu;
pub mod dropout;
pub mod embedding;
pub mod gemm;
pub mod linear;
pub mod loss;
pub mod moe;
pub mod norm;
pub mod optim;
mod parallel;
mod simd;
