//! A block alone, at work on hidden states: what a profiler measures.

use crate::blocks::Names;
use crate::ends::distances;
use crate::layer::{Layer, LayerState, Pass};
use crate::params::{Builder, Grads, Param, ParamId, Params};
use lathe_core::{Block, Frame, Positions, Result};
use lathe_ops::Precision;
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use std::sync::Mutex;

/// A block with weights of its own and nothing around it.
pub struct Alone {
    params: Params,
    /// `None` for a block that computes nothing.
    layer: Option<Layer>,
    frame: Frame,
}

/// What a block alone carries from pass to pass.
pub struct AloneState {
    layer: LayerState,
    /// transformer_xl: the embedded distances.
    distances: Option<Buf>,
}

impl Alone {
    /// The block as it would be in a model of this frame, with fresh weights that repeat after a while.
    pub fn new(block: &Block, frame: &Frame, seed: u64) -> Result<Self> {
        block.kind.check(block, frame)?;
        let mut builder = Builder::rough(seed);
        let names = Names { layer: "block".into(), index: 0, blocks: 1 };
        let layer = Layer::build(block, frame, &names, &mut builder);
        Ok(Self { params: builder.finish(), layer, frame: frame.clone() })
    }

    /// What products are computed in.
    pub fn set_precision(&mut self, precision: Precision) {
        if let Some(layer) = &mut self.layer {
            layer.set_precision(precision.available());
        }
    }

    /// Packs the weights for inference.
    pub fn freeze(&mut self) {
        let packed: Vec<ParamId> = self.layer.as_mut().map_or_else(Vec::new, |layer| layer.pack(&self.params));
        packed.into_iter().for_each(|id| self.params.forget(id));
    }

    /// Its weights.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Its weights, to be changed.
    pub fn params_mut(&mut self) -> impl Iterator<Item = &mut Param> {
        self.params.iter_mut()
    }

    /// The state to begin with for passes of `len` tokens: a memory of zeros, or its projections (an empty cache
    /// in a gpt2) where it is `cached`.
    pub fn state(&self, batch: usize, len: usize, cached: bool) -> AloneState {
        let relative = self.frame.backbone.positions == Positions::Relative;
        let distances = relative.then(|| distances(&self.frame, self.frame.mem_len as usize + len));
        let memory = self.layer.as_ref().map_or(LayerState::None, |layer| layer.memory(batch));
        let mut state = AloneState { layer: memory, distances };
        if cached && let Some(layer) = &self.layer {
            let stats = Mutex::new(Vec::new());
            let cache = layer.cache(&self.pass(batch, len, false, &state, &stats), &state.layer);
            state.layer = cache;
        }
        state
    }

    fn pass<'a>(
        &'a self,
        batch: usize,
        len: usize,
        keep: bool,
        state: &'a AloneState,
        stats: &'a Mutex<Vec<crate::MoeStats>>,
    ) -> Pass<'a> {
        let distances = state.distances.as_deref();
        Pass { params: &self.params, batch, len, keep, dropout: [Dropout::NONE; 3], balance: 0.0, distances, stats }
    }

    /// The output for hidden states [B * T, D].
    pub fn forward(&self, x: Buf, batch: usize, state: &mut AloneState) -> Buf {
        let Some(layer) = &self.layer else { return x };
        let mut memory = std::mem::take(&mut state.layer);
        let stats = Mutex::new(Vec::new());
        let len = x.len() / batch / self.frame.d_model as usize;
        let (y, _) = layer.forward(&self.pass(batch, len, false, state, &stats), x, &mut memory);
        state.layer = memory;
        y
    }

    /// Forward, and backward from a gradient that is the output itself; adds the gradients of its weights.
    pub fn train(&self, x: Buf, batch: usize, state: &mut AloneState, grads: &mut Grads) -> Buf {
        let Some(layer) = &self.layer else { return x };
        let mut memory = std::mem::take(&mut state.layer);
        let stats = Mutex::new(Vec::new());
        let len = x.len() / batch / self.frame.d_model as usize;
        let pass = self.pass(batch, len, true, state, &stats);
        let (y, saved) = layer.forward(&pass, x, &mut memory);
        let dx = layer.backward(&pass, saved, y, grads);
        state.layer = memory;
        dx
    }
}
