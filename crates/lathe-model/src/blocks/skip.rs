//! Skip (identity), `-`: the output is the input. It costs nothing; where blocks have a memory its place still counts one,
//! as every block's does.

use super::memory_bytes;
use crate::build::{BuildBlock, LayerBuilder, Site};
use crate::layer::Layer;
use crate::params::Builder;
use lathe_core::{Block, BlockKind, Cost, Frame, Knob, Result, Role, Setting};
use std::any::Any;

pub(super) struct Skip;

impl BlockKind for Skip {
    fn key(&self) -> &'static str {
        "skip"
    }

    fn letter(&self) -> Option<char> {
        Some('-')
    }

    fn knobs(&self) -> &'static [Knob] {
        &[]
    }

    fn resolve(&self, block: &Block, _: &Frame) -> Block {
        *block
    }

    fn check(&self, _: &Block, _: &Frame) -> Result<()> {
        Ok(())
    }

    fn cost(&self, _: &Block, frame: &Frame, setting: &Setting) -> Cost {
        Cost { state_bytes: memory_bytes(frame, setting.mem_len), ..Cost::default() }
    }

    fn role(&self) -> Role {
        Role::Identity
    }

    fn variants(&self, _: &Frame) -> Vec<Block> {
        vec![Block::new(&Self)]
    }

    /// Anything can be left out.
    fn derived(&self, from: &Block, _: &Frame) -> Vec<Block> {
        if from.kind.role() == Role::Identity { Vec::new() } else { vec![Block::new(&Self)] }
    }

    fn builder(&self) -> &'static dyn Any {
        &LayerBuilder(&Self)
    }
}

impl BuildBlock for Skip {
    fn build(&self, _: &Block, _: &Frame, _: &Site<'_>, _: &mut Builder) -> Option<Box<dyn Layer>> {
        None
    }
}
