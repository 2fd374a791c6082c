//! A model at work: embedding, layers, output; forward, backward, memory and decoding.

use crate::blocks::{self, Names};
use crate::embedding::Embedding;
use crate::head::Head;
use crate::layer::{Layer, LayerState, MoeStats, NormParams, Pass, Saved};
use crate::params::{Builder, Grads, Init, ParamId, Params};
use lathe_core::{Block, Error, Frame, Model, Positions, Result};
use lathe_ops::Precision;
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use lathe_ops::embedding as ops;
use std::sync::Mutex;

/// A model with weights.
pub struct Network {
    /// What it is.
    pub model: Model,
    params: Params,
    pub(crate) embedding: Embedding,
    pub(crate) positions: Option<ParamId>,
    pub(crate) layers: Vec<Layer>,
    /// The reference's layer that each layer is part of.
    names: Vec<usize>,
    pub(crate) final_norm: Option<NormParams>,
    pub(crate) head: Head,
    precision: Precision,
    frozen: bool,
}

/// What a network carries from segment to segment, or from token to token.
#[derive(Clone)]
pub struct State {
    layers: Vec<LayerState>,
    /// Tokens before, for learned positions.
    position: usize,
}

impl State {
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

/// What the layers of a pass kept.
struct Trace {
    saved: Vec<Saved>,
    last: Option<(Buf, Buf)>,
    distances: Option<Buf>,
    dropout: [Dropout; 3],
    /// Tokens before.
    position: usize,
}

impl Network {
    /// A model with fresh weights, drawn as the reference implementations draw them.
    pub fn new(model: Model, seed: u64) -> Result<Self> {
        Self::build(model, Builder::new(seed))
    }

    /// A model whose parameters have shapes but no values yet; whoever calls this fills them.
    pub(crate) fn unfilled(model: Model) -> Result<Self> {
        Self::build(model, Builder::unfilled())
    }

    fn build(model: Model, mut builder: Builder) -> Result<Self> {
        let frame = &model.frame;
        let relative = frame.backbone.positions == Positions::Relative;
        let d = frame.d_model as usize;
        if relative && !d.is_multiple_of(2) {
            return Err(Error::value("d_model", d, "an even width for relative positions"));
        }
        let embedding = Embedding::new(frame, &mut builder);
        let positions = (!relative).then(|| {
            builder.param("transformer.wpe.weight", &[frame.max_len as usize, d], Init::Normal(0.0, blocks::DEVIATION))
        });
        let prefix = if relative { "transformer.layers" } else { "transformer.h" };
        let numbers = layer_numbers(&model.blocks);
        let mut layers = Vec::new();
        let mut names = Vec::new();
        for (index, (block, number)) in model.blocks.iter().zip(numbers).enumerate() {
            let name = Names { layer: format!("{prefix}.{number}"), index, blocks: model.blocks.len() };
            if let Some((sublayer, norm)) = blocks::build(block, frame, &name, &mut builder) {
                layers.push(Layer::new(sublayer, norm, frame, name.salt(0)));
                names.push(number);
            }
        }
        let final_norm = frame.backbone.final_norm.then(|| NormParams::new(&mut builder, "transformer.ln_f", d, 0.0));
        let head = Head::new(frame, &embedding, &mut builder);
        let params = builder.finish();
        Ok(Self {
            model,
            params,
            embedding,
            positions,
            layers,
            names,
            final_norm,
            head,
            precision: Precision::F32,
            frozen: false,
        })
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
        self.embedding.set_precision(self.precision);
        self.layers.iter_mut().for_each(|layer| layer.set_precision(self.precision));
        self.head.set_precision(self.precision);
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
        let shared: Vec<ParamId> =
            self.embedding.tables().iter().flat_map(|table| [Some(table.weight), table.projection]).flatten().collect();
        for id in self.head.pack(&self.params) {
            if !shared.contains(&id) {
                self.params.forget(id);
            }
        }
    }

    /// Whether outputs are log-probabilities (of an adaptive softmax or a transformer_xl) rather than logits.
    pub fn log_probabilities(&self) -> bool {
        self.head.log_probabilities()
    }

    /// The state to begin with: a memory of zeros in a transformer_xl, as in the reference; nothing in a gpt2.
    pub fn memory(&self, batch: usize) -> State {
        State { layers: self.layers.iter().map(|layer| layer.memory(batch)).collect(), position: 0 }
    }

    /// The state to decode with, or to run segments after a projected memory: keys and values are kept. Goes on after
    /// a state of [`Self::memory`].
    pub fn cache(&self, batch: usize, len: usize, after: &State) -> State {
        let stats = Mutex::new(Vec::new());
        let pass = self.pass(batch, len, false, [Dropout::NONE; 3], None, &stats, 0.0);
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

    #[allow(clippy::too_many_arguments)]
    fn pass<'a>(
        &'a self,
        batch: usize,
        len: usize,
        keep: bool,
        dropout: [Dropout; 3],
        distances: Option<&'a [f32]>,
        stats: &'a Mutex<Vec<MoeStats>>,
        balance: f32,
    ) -> Pass<'a> {
        Pass { params: &self.params, batch, len, keep, dropout, balance, distances, stats }
    }

    /// The hidden states after the last layer, [B * T, D].
    fn hidden(
        &self,
        ids: &[u32],
        batch: usize,
        state: &mut State,
        training: Option<&Training>,
        stats: &Mutex<Vec<MoeStats>>,
    ) -> (Buf, Trace) {
        let frame = &self.model.frame;
        let len = ids.len() / batch;
        assert_eq!(ids.len(), batch * len, "as many tokens in each sequence");
        let key = training.and_then(|training| training.dropout_key);
        let of = |probability: f64| key.map_or(Dropout::NONE, |key| Dropout { probability: probability as f32, key });
        let dropout = [of(frame.dropout), of(frame.attn_dropout), of(frame.moe_dropout)];
        let distances = (frame.backbone.positions == Positions::Relative).then(|| {
            let mut distances = distances(frame, frame.mem_len as usize + len);
            dropout[0].with(u64::MAX).apply(&mut distances);
            distances
        });
        let balance = training.map_or(0.0, |training| training.balance);
        let pass = self.pass(batch, len, training.is_some(), dropout, distances.as_deref(), stats, balance);
        let mut x = self.embedding.forward(&self.params, ids);
        if let Some(positions) = self.positions {
            ops::add_positions(self.params.get(positions), frame.d_model as usize, len, state.position, &mut x);
        }
        dropout[0].with(u64::MAX - 1).apply(&mut x);
        let mut saved = Vec::new();
        for (layer, state) in self.layers.iter().zip(&mut state.layers) {
            let (y, kept) = layer.forward(&pass, x, state);
            x = y;
            saved.push(kept);
        }
        let position = state.position;
        state.position += len;
        let mut last = None;
        if let Some(norm) = self.final_norm {
            let (y, stats) = norm.forward(&self.params, &x);
            last = training.is_some().then_some((x, stats));
            x = y;
        } else {
            // The reference drops the last hidden states of a transformer_xl.
            dropout[0].with(u64::MAX - 2).apply(&mut x);
        }
        (x, Trace { saved, last, distances, dropout, position })
    }

    /// Logits of every token, [B * T, V], or [`Self::log_probabilities`].
    pub fn logits(&self, ids: &[u32], batch: usize, state: &mut State) -> Buf {
        let stats = Mutex::new(Vec::new());
        let (hidden, _) = self.hidden(ids, batch, state, None, &stats);
        let mut out = Buf::any(ids.len() * self.model.frame.vocab as usize);
        self.head.logits(&self.params, &hidden, &mut out);
        out
    }

    /// -log p of each target, 0 where it is [`lathe_ops::loss::IGNORE`].
    pub fn loss(&self, ids: &[u32], targets: &[u32], batch: usize, state: &mut State) -> Vec<f32> {
        let stats = Mutex::new(Vec::new());
        let (hidden, _) = self.hidden(ids, batch, state, None, &stats);
        self.head.loss(&self.params, &hidden, targets, None).0
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
        let (hidden, trace) = self.hidden(ids, batch, state, Some(training), &stats);
        let (losses, dhidden) = self.head.loss(&self.params, &hidden, targets, Some((training.scale, grads)));
        drop(hidden);
        self.backward(ids, batch, trace, dhidden.expect("gradients were asked for"), training, grads);
        Outcome { losses, experts: stats.into_inner().expect("nothing panics while it holds the list") }
    }

    fn backward(&self, ids: &[u32], batch: usize, trace: Trace, mut dx: Buf, training: &Training, grads: &mut Grads) {
        let Trace { saved, last, distances, dropout, position } = trace;
        let len = ids.len() / batch;
        let stats = Mutex::new(Vec::new());
        let pass = self.pass(batch, len, true, dropout, distances.as_deref(), &stats, training.balance);
        match (self.final_norm, last) {
            (Some(norm), Some((x, stats))) => {
                let mut d = Buf::zeros(dx.len());
                norm.backward(&self.params, &x, &stats, &dx, &mut d, grads);
                dx = d;
            }
            _ => dropout[0].with(u64::MAX - 2).apply(&mut dx),
        }
        for (layer, saved) in self.layers.iter().zip(saved).rev() {
            dx = layer.backward(&pass, saved, dx, grads);
        }
        dropout[0].with(u64::MAX - 1).apply(&mut dx);
        if let Some(positions) = self.positions {
            ops::positions_backward(&dx, self.model.frame.d_model as usize, len, position, grads.add(positions));
        }
        self.embedding.backward(&self.params, ids, &dx, grads);
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

/// Sinusoids of distances, farthest first: row p stands for distance S - 1 - p, at most `clamp_len`.
pub(crate) fn distances(frame: &Frame, keys: usize) -> Buf {
    let d = frame.d_model as usize;
    let mut out = Buf::any(keys * d);
    let frequencies: Vec<f32> = (0..d / 2).map(|i| 1.0 / 10_000f32.powf(2.0 * i as f32 / d as f32)).collect();
    for (p, row) in out.chunks_exact_mut(d).enumerate() {
        let distance = frame.clamp_len.map_or(keys - 1 - p, |clamp| (keys - 1 - p).min(clamp as usize)) as f32;
        for (i, frequency) in frequencies.iter().enumerate() {
            row[i] = (distance * frequency).sin();
            row[d / 2 + i] = (distance * frequency).cos();
        }
    }
    out
}
