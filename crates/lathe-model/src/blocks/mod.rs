//! One file per kind of block: its knobs and its cost.
//!
//! To add a block, write its file and add it to [`BLOCKS`]; the notation, spaces, counting and the
//! contract tests then know it.

mod attention;
mod ffn;
mod moe;
mod skip;

use lathe_core::{BlockKind, Frame};

/// Every kind of block, in the order in which lists and tables show them.
pub const BLOCKS: &[&dyn BlockKind] = &[&attention::Attention, &ffn::Ffn, &moe::Moe, &skip::Skip];

/// f32.
const BYTES: u128 = 4;

/// Decode-state bytes of a block of a transformer_xl: the memory of the hidden states that enter it.
/// 0 for backbones without memory.
fn memory_bytes(frame: &Frame, mem_len: u64) -> u128 {
    match frame.backbone.positions {
        lathe_core::Positions::Relative => u128::from(mem_len) * u128::from(frame.d_model) * BYTES,
        lathe_core::Positions::Learned => 0,
    }
}
