//! A model at work: embedding, layers, output; forward, backward, memory and decoding.

use crate::blocks::{self, Names};
use crate::ends::{Ends, Kept, Tokens};
use crate::layer::{Layer, LayerState, MoeStats, Saved};
use crate::params::{Builder, Grads, ParamId, Params};
use lathe_core::{Block, Model, Result};
use lathe_ops::Precision;
use lathe_ops::buffer::Buf;
use std::sync::Mutex;

/// A model with weights.
pub struct Network {
    /// What it is.
    pub model: Model,
    params: Params,
    pub(crate) ends: Ends,
    pub(crate) layers: Vec<Layer>,
    /// The reference's layer that each layer is part of.
    names: Vec<usize>,
    precision: Precision,
    frozen: bool,
}

/// What a network carries from segment to segment, or from token to token.
#[derive(Clone)]
pub struct State {
    /// One of each layer, or of each slot of a super net.
    pub(crate) layers: Vec<LayerState>,
    /// Tokens before, for learned positions.
    pub(crate) position: usize,
}

impl State {
    /// The memories, [B, M, D] each, from the bottom.
    pub fn memories(&self) -> impl Iterator<Item = &[f32]> {
        self.layers.iter().filter_map(|state| match state {
            LayerState::Memory(memory) => Some(&**memory),
            _ => None,
        })
    }

    /// The memories, [B, M, D] each, from the bottom: to be read from a checkpoint.
    pub fn memories_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.layers.iter_mut().filter_map(|state| match state {
            LayerState::Memory(memory) => Some(&mut **memory),
            _ => None,
        })
    }
}

/// How to run a training pass.
#[derive(Debug, Clone, Copy)]
pub struct Training {
    /// Key of this step's dropout; `None` turns dropout off.
    pub dropout_key: Option<u64>,
    /// Weight of the balance loss of experts.
    pub balance: f32,
    /// What each token's loss counts, usually 1 / number of tokens.
    pub scale: f32,
}

/// What a training pass found.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// -log p of each token.
    pub losses: Vec<f32>,
    /// What each mixture of experts did, from the bottom.
    pub experts: Vec<MoeStats>,
}

impl Network {
    /// A model with fresh weights, drawn as the reference implementations draw them.
    pub fn new(model: Model, seed: u64) -> Result<Self> {
        Self::build(model, Builder::new(seed))
    }

    /// A model whose weights repeat after a while: made sooner, and as fast as any, for measurements.
    pub fn rough(model: Model, seed: u64) -> Result<Self> {
        Self::build(model, Builder::rough(seed))
    }

    /// A model whose parameters have shapes but no values yet; whoever calls this fills them.
    pub(crate) fn unfilled(model: Model) -> Result<Self> {
        Self::build(model, Builder::unfilled())
    }

    fn build(model: Model, mut builder: Builder) -> Result<Self> {
        let frame = &model.frame;
        let prefix = blocks::prefix(frame);
        let numbers = layer_numbers(&model.blocks);
        let (ends, (layers, names)) = Ends::around(frame, &mut builder, |builder| {
            let layer = |(index, (block, number)): (usize, (&Block, usize))| {
                let name = Names { layer: format!("{prefix}.{number}"), index, blocks: model.blocks.len() };
                Some((Layer::build(block, frame, &name, builder)?, number))
            };
            model.blocks.iter().zip(numbers).enumerate().filter_map(layer).unzip()
        })?;
        let params = builder.finish();
        Ok(Self { model, params, ends, layers, names, precision: Precision::F32, frozen: false })
    }

    /// The weights. A frozen network has none to show.
    pub fn params(&self) -> &Params {
        assert!(!self.frozen, "a frozen network cannot show its weights");
        &self.params
    }

    /// The weights, to be changed.
    pub fn params_mut(&mut self) -> impl Iterator<Item = &mut crate::params::Param> {
        assert!(!self.frozen, "a frozen network cannot change its weights");
        self.params.iter_mut()
    }

    /// What products are computed in, from here on: as asked for, or f32 where this CPU has nothing for it, of which
    /// [`Precision::warning`] tells.
    pub fn set_precision(&mut self, precision: Precision) {
        assert!(!self.frozen, "a frozen network has packed its weights");
        self.precision = precision.available();
        self.ends.set_precision(self.precision);
        self.layers.iter_mut().for_each(|layer| layer.set_precision(self.precision));
    }

    /// What products are computed in.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Packs all weights for inference and gives the memory of the originals back: from here on the network only computes.
    pub fn freeze(&mut self) {
        self.frozen = true;
        for layer in &mut self.layers {
            for id in layer.pack(&self.params) {
                self.params.forget(id);
            }
        }
        let tables = self.ends.embedding.tables();
        let shared: Vec<ParamId> =
            tables.iter().flat_map(|table| [Some(table.weight), table.projection]).flatten().collect();
        for id in self.ends.head.pack(&self.params) {
            if !shared.contains(&id) {
                self.params.forget(id);
            }
        }
    }

    /// Whether outputs are log-probabilities (of an adaptive softmax or a transformer_xl) rather than logits.
    pub fn log_probabilities(&self) -> bool {
        self.ends.head.log_probabilities()
    }

    /// The state to begin with: a memory of zeros in a transformer_xl, as in the reference; nothing in a gpt2.
    pub fn memory(&self, batch: usize) -> State {
        State { layers: self.layers.iter().map(|layer| layer.memory(batch)).collect(), position: 0 }
    }

    /// The state to decode with, or to run segments after a projected memory: keys and values are kept. Goes on after
    /// a state of [`Self::memory`].
    pub fn cache(&self, batch: usize, len: usize, after: &State) -> State {
        let stats = Mutex::new(Vec::new());
        let ids = vec![0; batch * len]; // only their number counts
        let tokens = Tokens::new(&self.model.frame, &ids, batch, after.position, None);
        let pass = tokens.pass(&self.params, &stats);
        let layers = self.layers.iter().zip(&after.layers).map(|(layer, state)| layer.cache(&pass, state)).collect();
        State { layers, position: after.position }
    }

    /// The memories of a state, with the number of the reference's layer: [B, M, D].
    pub fn memories<'a>(&'a self, state: &'a State) -> impl Iterator<Item = (usize, &'a [f32])> {
        self.names.iter().zip(&state.layers).filter_map(|(&name, state)| match state {
            LayerState::Memory(memory) => Some((name, &**memory)),
            _ => None,
        })
    }

    /// The hidden states for the output layer, [B * T, D], and what a backward pass needs.
    fn hidden(&self, tokens: &Tokens<'_>, state: &mut State, stats: &Mutex<Vec<MoeStats>>) -> (Buf, Vec<Saved>, Kept) {
        let pass = tokens.pass(&self.params, stats);
        let mut x = self.ends.enter(&self.params, tokens);
        let mut saved = Vec::new();
        for (layer, state) in self.layers.iter().zip(&mut state.layers) {
            let (y, kept) = layer.forward(&pass, x, state);
            x = y;
            saved.push(kept);
        }
        state.position += tokens.len();
        let (x, kept) = self.ends.leave(&self.params, tokens, x);
        (x, saved, kept)
    }

    /// The hidden states for the output layer, without a backward pass to come.
    fn output(&self, ids: &[u32], batch: usize, state: &mut State) -> Buf {
        let stats = Mutex::new(Vec::new());
        self.hidden(&Tokens::new(&self.model.frame, ids, batch, state.position, None), state, &stats).0
    }

    /// Logits of every token, [B * T, V], or [`Self::log_probabilities`].
    pub fn logits(&self, ids: &[u32], batch: usize, state: &mut State) -> Buf {
        let hidden = self.output(ids, batch, state);
        let mut out = Buf::any(ids.len() * self.model.frame.vocab as usize);
        self.ends.head.logits(&self.params, &hidden, &mut out);
        out
    }

    /// -log p of each target, 0 where it is [`lathe_ops::loss::IGNORE`].
    pub fn loss(&self, ids: &[u32], targets: &[u32], batch: usize, state: &mut State) -> Vec<f32> {
        let hidden = self.output(ids, batch, state);
        self.ends.head.loss(&self.params, &hidden, targets, None).0
    }

    /// The loss of each target, and the gradients of `scale` times their sum (and of the balance loss) added to `grads`.
    pub fn train(
        &self,
        ids: &[u32],
        targets: &[u32],
        batch: usize,
        state: &mut State,
        training: &Training,
        grads: &mut Grads,
    ) -> Outcome {
        assert!(!self.frozen, "a frozen network cannot be trained");
        let stats = Mutex::new(Vec::new());
        let tokens = Tokens::new(&self.model.frame, ids, batch, state.position, Some(training));
        let (hidden, saved, kept) = self.hidden(&tokens, state, &stats);
        let (losses, dhidden) = self.ends.head.loss(&self.params, &hidden, targets, Some((training.scale, grads)));
        drop(hidden);
        let dhidden = dhidden.expect("gradients were asked for");
        let mut dx = self.ends.leave_backward(&self.params, &tokens, kept, dhidden, grads);
        let unused = Mutex::new(Vec::new());
        let pass = tokens.pass(&self.params, &unused);
        for (layer, saved) in self.layers.iter().zip(saved).rev() {
            dx = layer.backward(&pass, saved, dx, grads);
        }
        self.ends.enter_backward(&self.params, &tokens, dx, grads);
        Outcome { losses, experts: stats.into_inner().expect("nothing panics while it holds the list") }
    }
}

/// The number of the reference's layer for each block. A layer of the reference is an attention and a feed-forward
/// block; an attention block begins one, and any other block joins one that has only attention so far.
fn layer_numbers(blocks: &[Block]) -> Vec<usize> {
    let mut number: Option<usize> = None;
    let mut open = false; // the layer has only attention
    let assign = |block: &Block| {
        let attention = block.kind.key() == "attention";
        if block.kind.key() == "skip" {
            return number.unwrap_or(0);
        }
        if attention || !open {
            number = Some(number.map_or(0, |n| n + 1));
        }
        open = attention;
        number.expect("just set")
    };
    blocks.iter().map(assign).collect()
}
