//! One file per kind of block: its knobs, its cost, and the layer that computes it.
//!
//! To add a block, write its file and add it to [`BLOCKS`]; the notation, spaces, counting, profiling, searches and the
//! contract tests then know it. A block may also live outside of this crate: `examples/` has one.

mod attention;
mod bottleneck;
mod ffn;
mod low_rank;
mod moe;
mod skip;

pub use attention::{AttentionStyle, Buckets, Distances, Rotary, Scores};
pub use bottleneck::Sizes as BottleneckSizes;
pub use moe::MoeStats;

use crate::build;
use crate::norm;
use lathe_core::{BlockKind, Frame};

/// Every kind of block, in the order in which lists and tables show them.
pub const BLOCKS: &[&dyn BlockKind] =
    &[&attention::Attention, &ffn::Ffn, &moe::Moe, &low_rank::LowRank, &skip::Skip, &bottleneck::Bottleneck];

/// f32.
const BYTES: u128 = 4;

/// Parameters of a block's norm.
pub fn norm_params(frame: &Frame) -> u64 {
    norm::params_of(build::of_backbone(frame.backbone).style(frame, 1).norm, frame.d_model.into())
}

/// Decode-state bytes of a block whose backbone has a memory: the hidden states that enter it. 0 for all others.
pub fn memory_bytes(frame: &Frame, mem_len: u64) -> u128 {
    if frame.has_memory() { u128::from(mem_len) * u128::from(frame.d_model) * BYTES } else { 0 }
}
