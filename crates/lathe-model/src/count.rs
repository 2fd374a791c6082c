//! The exact cost of a model, in total and by kind of block.

use crate::blocks::BLOCKS;
use crate::build;
use lathe_core::{Block, Cost, Frame, Model, Setting};
use std::borrow::Cow;

/// What a model costs, counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// The sum over the blocks of each kind, in the order of [`BLOCKS`], then those from outside.
    pub kinds: Vec<(&'static str, Cost)>,
    /// The sum over all blocks.
    pub blocks: Cost,
    /// Parameters of all norms, the final one included.
    pub norm_params: u64,
    /// Parameters outside the decoder: embedding, output, learned positions.
    pub embedding_params: u64,
    /// Learned positions among them.
    pub position_params: u64,
    /// FLOPs of the output layer.
    pub output_flops: u128,
    /// FLOPs of the output layer with every cluster evaluated.
    pub output_full_flops: u128,
    /// f32 bytes of all activations of one forward pass.
    pub activation_bytes: u128,
}

impl Counts {
    /// Parameters of the blocks and norms: LTS's proxy for quality.
    pub fn decoder_params(&self) -> u64 {
        self.blocks.params + self.norm_params
    }

    /// All parameters.
    pub fn total_params(&self) -> u64 {
        self.decoder_params() + self.embedding_params
    }

    /// FLOPs of blocks and output.
    pub fn total_flops(&self) -> u128 {
        self.blocks.flops + self.output_flops
    }

    /// f32 bytes of all parameters.
    pub fn weight_bytes(&self) -> u128 {
        4 * u128::from(self.total_params())
    }
}

/// What each block costs where it stands. Parameters that layers share are those of the first.
pub fn of_blocks(model: &Model, setting: &Setting) -> Vec<Cost> {
    let repeats = build::repeats(model).unwrap_or_else(|_| vec![false; model.blocks.len()]);
    let cost = |((block, frame, setting), repeated): ((&Block, Cow<'_, Frame>, Setting), bool)| {
        let cost = block.kind.cost(block, &frame, &setting);
        if repeated { Cost { params: 0, norm_params: 0, ..cost } } else { cost }
    };
    model.placed(*setting).zip(repeats).map(cost).collect()
}

/// Counts a model in a setting.
pub fn count(model: &Model, setting: &Setting) -> Counts {
    let frame = &model.frame;
    let mut kinds: Vec<(&'static str, Cost)> = BLOCKS.iter().map(|kind| (kind.key(), Cost::default())).collect();
    let mut blocks = Cost::default();
    for (block, cost) in model.blocks.iter().zip(of_blocks(model, setting)) {
        blocks += cost;
        let key = block.kind.key();
        match kinds.iter_mut().find(|(known, _)| *known == key) {
            Some((_, sum)) => *sum += cost,
            None => kinds.push((key, cost)),
        }
    }
    let around = build::of_backbone(frame.backbone).frame_cost(frame, setting);
    Counts {
        norm_params: blocks.norm_params + around.norm,
        embedding_params: around.params,
        position_params: around.position,
        output_flops: around.output_flops,
        output_full_flops: around.output_full_flops,
        activation_bytes: blocks.activation_bytes + around.activation_bytes,
        kinds,
        blocks,
    }
}
