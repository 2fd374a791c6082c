//! Skip (identity), `-`: the output is the input. It costs nothing; in a transformer_xl its place still
//! counts a memory, as every block's does.

use super::{Build, Names, memory_bytes};
use crate::layer::{NormParams, Sublayer};
use crate::params::Builder;
use lathe_core::{Block, BlockKind, Cost, Frame, Knob, Result, Setting};

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
}

impl Build for Skip {
    fn build(&self, _: &Block, _: &Frame, _: &Names, _: &mut Builder) -> Option<(Box<dyn Sublayer>, NormParams)> {
        None
    }
}
