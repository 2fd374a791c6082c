//! One file per kind of block: its knobs, its cost, and the layer that computes it.
//!
//! To add a block, write its file and add it to [`BLOCKS`]; the notation, spaces, counting and the
//! contract tests then know it.

mod attention;
mod ffn;
mod moe;
mod skip;

use crate::layer::{NormParams, Sublayer};
use crate::params::Builder;
use lathe_core::{Block, BlockKind, Frame, Positions};

/// How a kind of block becomes a layer.
pub(crate) trait Build: BlockKind {
    /// Makes the parameters and the sublayer, under names of its own below `names`; `None` where there is nothing
    /// to compute.
    fn build(
        &self,
        block: &Block,
        frame: &Frame,
        names: &Names,
        builder: &mut Builder,
    ) -> Option<(Box<dyn Sublayer>, NormParams)>;
}

macro_rules! registry {
    ($($kind:expr),* $(,)?) => {
        /// Every kind of block, in the order in which lists and tables show them.
        pub const BLOCKS: &[&dyn BlockKind] = &[$(&$kind),*];
        const BUILD: &[&dyn Build] = &[$(&$kind),*];
    };
}

registry!(attention::Attention, ffn::Ffn, moe::Moe, skip::Skip);

/// The layer of a block.
pub(crate) fn build(
    block: &Block,
    frame: &Frame,
    names: &Names,
    builder: &mut Builder,
) -> Option<(Box<dyn Sublayer>, NormParams)> {
    let kind = BUILD.iter().find(|kind| kind.key() == block.kind.key());
    kind.expect("every block of the registry can be built").build(block, frame, names, builder)
}

/// What the names of all layers begin with.
pub(crate) fn prefix(frame: &Frame) -> &'static str {
    match frame.backbone.positions {
        Positions::Relative => "transformer.layers",
        Positions::Learned => "transformer.h",
    }
}

/// Where the parameters of a block stand: the reference's layer, of which a block is a part, and how deep the stack is.
pub(crate) struct Names {
    /// `transformer.h.3` or `transformer.layers.3`.
    pub layer: String,
    /// Which block of the stack it is, and how many there are.
    pub index: usize,
    pub blocks: usize,
}

impl Names {
    /// A salt for a use of dropout in this block.
    pub fn salt(&self, use_of_block: u64) -> u64 {
        8 * self.index as u64 + use_of_block
    }
}

/// The deviation that the reference implementations draw weights with.
pub(crate) const DEVIATION: f32 = 0.02;

/// Norms of a transformer_xl begin around 1, those of a gpt2 at 1.
pub(crate) fn norm_deviation(frame: &Frame) -> f32 {
    match frame.backbone.positions {
        Positions::Relative => DEVIATION,
        Positions::Learned => 0.0,
    }
}

/// Output projections of a gpt2 begin narrower the deeper it is.
pub(crate) fn output_deviation(frame: &Frame, names: &Names) -> f32 {
    match frame.backbone.positions {
        Positions::Relative => DEVIATION,
        Positions::Learned => DEVIATION / (names.blocks as f32).sqrt(),
    }
}

/// f32.
const BYTES: u128 = 4;

/// Decode-state bytes of a block of a transformer_xl: the memory of the hidden states that enter it.
/// 0 for backbones without memory.
fn memory_bytes(frame: &Frame, mem_len: u64) -> u128 {
    match frame.backbone.positions {
        Positions::Relative => u128::from(mem_len) * u128::from(frame.d_model) * BYTES,
        Positions::Learned => 0,
    }
}
