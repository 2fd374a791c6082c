//! A block alone, at work on hidden states: what a profiler measures. A stack of one slot with nothing around it.

use crate::build::Site;
use crate::context::{Context, Contexts, Reports};
use crate::layer::{AsideGrads, LayerState, Pass, Stream};
use crate::params::{Builder, Grads, Param, Params};
use crate::stack::{Choice, Mixture, Stack};
use crate::taps::{Map, TapGradients, Taps};
use crate::weight_storage::WeightStorage;
use lathe_core::{Block, Frame, Result};
use lathe_ops::Precision;
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// A block with weights of its own and nothing around it.
pub struct BlockBench {
    params: Params,
    stack: Stack,
    frame: Frame,
}

/// What a block alone carries from pass to pass.
pub struct BenchState {
    layers: Vec<LayerState>,
    position: usize,
    contexts: Contexts<'static>,
    context: Arc<Context>,
    aside_grads: AsideGrads,
}

const ONLY: fn(usize) -> Mixture = |_| Mixture::Hard(0);

impl BlockBench {
    /// The block as it would be in a model of this frame, with fresh weights that repeat after a while.
    pub fn new(block: &Block, frame: &Frame, seed: u64) -> Result<Self> {
        block.kind.check(block, frame)?;
        let mut builder = Builder::repeating(seed);
        let site = Site::new(frame, "block".into(), 0, 1);
        let mut stack = Stack { slots: vec![vec![Choice::build(block, frame, &site, &mut builder)]] };
        let mut params = builder.finish();
        for layer in stack.layers_mut() {
            params.set_matrices(layer.matrices().iter().map(|matrix| (matrix.weight(), matrix.place())));
        }
        Ok(Self { params, stack, frame: frame.clone() })
    }

    /// Stores its matrices.
    pub fn set_storage(&mut self, storage: WeightStorage) {
        self.params.iter_mut().for_each(|param| storage.apply(param));
    }

    /// What products are computed in.
    pub fn set_precision(&mut self, precision: Precision) {
        self.stack.set_precision(precision.available());
    }

    /// Packs the weights for inference.
    pub fn freeze(&mut self) {
        let mut users = HashMap::new();
        for layer in self.stack.layers_mut() {
            layer.matrices().iter().for_each(|matrix| *users.entry(matrix.weight()).or_default() += 1);
        }
        self.stack.pack(&mut self.params, &mut users);
    }

    /// Its weights.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Its weights, to be changed.
    pub fn params_mut(&mut self) -> impl Iterator<Item = &mut Param> {
        self.params.iter_mut()
    }

    /// The state to begin with for passes of `len` tokens: a memory of zeros, or its projections (an empty cache where
    /// there is no memory) where it is `cached`.
    pub fn state(&self, batch: usize, len: usize, cached: bool) -> BenchState {
        let contexts = Contexts::new(Cow::Owned(self.frame.clone()), Dropout::NONE, None);
        let context = contexts.of(len, self.frame.d_model as usize, None);
        let (layers, aside_grads) = (self.stack.init_memory(batch), AsideGrads::default());
        let mut state = BenchState { layers, position: 0, contexts, context, aside_grads };
        if cached {
            let reports = Reports::default();
            let layers = self.stack.init_cache(&self.pass(batch, len, false, &state, &reports), &state.layers);
            state.layers = layers;
        }
        state
    }

    fn pass<'a>(
        &'a self,
        batch: usize,
        len: usize,
        keep: bool,
        state: &'a BenchState,
        reports: &'a Reports,
    ) -> Pass<'a> {
        Pass {
            params: &self.params,
            batch,
            len,
            position: state.position,
            mask: None,
            unpadded: None,
            keep,
            dropout: [Dropout::NONE; 3],
            balance: 0.0,
            context: &state.context,
            contexts: &state.contexts,
            reports,
            aside: &[],
            aside_grads: &state.aside_grads,
            map: Map::Unwanted,
        }
    }

    fn stream(&self, x: Buf, batch: usize, state: &BenchState) -> Stream {
        let d = self.frame.d_model as usize;
        let mut stream = Stream::new(x, 0, state.position, None);
        stream.len = stream.hidden.len() / batch / d;
        let len = self.frame.source_len().map_or(stream.len, |len| len as usize);
        for name in self.stack.slots[0][0].block.kind.reads() {
            stream.aside.push((name, Stream::new(Buf::zeros(batch * len * d), len, 0, None)));
        }
        stream
    }

    /// The output for hidden states [B * T, D].
    pub fn forward(&self, x: Buf, batch: usize, state: &mut BenchState) -> Arc<Buf> {
        let x = self.stream(x, batch, state);
        let (mut layers, reports, len) = (std::mem::take(&mut state.layers), Reports::default(), x.len);
        let pass = self.pass(batch, len, false, state, &reports);
        let (y, ..) = self.stack.forward(&pass, x, &mut layers, ONLY, &Taps::NONE);
        state.layers = layers;
        state.position += len;
        y.hidden
    }

    /// Forward, and backward from a gradient that is the output itself; adds the gradients of its weights.
    pub fn train(&self, x: Buf, batch: usize, state: &mut BenchState, grads: &mut Grads) -> Buf {
        let x = self.stream(x, batch, state);
        let (mut layers, reports) = (std::mem::take(&mut state.layers), Reports::default());
        let pass = self.pass(batch, x.len, true, state, &reports);
        let (y, saved, _) = self.stack.forward(&pass, x, &mut layers, ONLY, &Taps::NONE);
        let dy = Arc::try_unwrap(y.hidden).unwrap_or_else(|y| (*y).clone());
        let (dx, _) = self.stack.backward(&pass, saved, dy, ONLY, (&Taps::NONE, &TapGradients::default()), grads);
        state.layers = layers;
        dx
    }
}
