//! The two ends of a network: embedding and positions below its layers, final norm and output above them. What runs
//! between them is a stack of layers ([`crate::Network`]) or a stack of mixtures of layers ([`crate::SuperNet`]).

use crate::blocks;
use crate::embedding::Embedding;
use crate::head::Head;
use crate::layer::{MoeStats, NormParams, Pass};
use crate::network::Training;
use crate::params::{Builder, Grads, Init, ParamId, Params};
use lathe_core::{Error, Frame, Positions, Result};
use lathe_ops::Precision;
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use lathe_ops::embedding as ops;
use std::sync::Mutex;

/// What stands below and above the layers.
pub(crate) struct Ends {
    pub embedding: Embedding,
    pub positions: Option<ParamId>,
    pub final_norm: Option<NormParams>,
    pub head: Head,
}

/// What a pass over tokens has beside the hidden states.
pub(crate) struct Tokens<'a> {
    pub ids: &'a [u32],
    /// B
    pub batch: usize,
    /// Tokens before, for learned positions.
    pub position: usize,
    /// Whether layers keep what a backward pass needs.
    keep: bool,
    /// Dropout of hidden states, of attention probabilities, and inside experts.
    dropout: [Dropout; 3],
    /// transformer_xl: the embedded distances.
    distances: Option<Buf>,
    balance: f32,
}

/// What the upper end keeps for its backward: input and statistics of the final norm.
pub(crate) type Kept = Option<(Buf, Buf)>;

impl<'a> Tokens<'a> {
    /// A pass over tokens; without `training` nothing is dropped and nothing kept.
    pub fn new(frame: &Frame, ids: &'a [u32], batch: usize, position: usize, training: Option<&Training>) -> Self {
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
        Self { ids, batch, position, keep: training.is_some(), dropout, distances, balance }
    }

    /// What layers see of it.
    pub fn pass<'p>(&'p self, params: &'p Params, stats: &'p Mutex<Vec<MoeStats>>) -> Pass<'p> {
        Pass {
            params,
            batch: self.batch,
            len: self.len(),
            keep: self.keep,
            dropout: self.dropout,
            balance: self.balance,
            distances: self.distances.as_deref(),
            stats,
        }
    }

    /// T
    pub fn len(&self) -> usize {
        self.ids.len() / self.batch
    }
}

impl Ends {
    /// Makes both ends, and by `layers` what stands between them: parameters stand in the order of the computation.
    pub fn around<L>(
        frame: &Frame,
        builder: &mut Builder,
        layers: impl FnOnce(&mut Builder) -> L,
    ) -> Result<(Self, L)> {
        let relative = frame.backbone.positions == Positions::Relative;
        let d = frame.d_model as usize;
        if relative && !d.is_multiple_of(2) {
            return Err(Error::value("d_model", d, "an even width for relative positions"));
        }
        let embedding = Embedding::new(frame, builder);
        let positions = (!relative).then(|| {
            builder.param("transformer.wpe.weight", &[frame.max_len as usize, d], Init::Normal(0.0, blocks::DEVIATION))
        });
        let layers = layers(builder);
        let final_norm = frame.backbone.final_norm.then(|| NormParams::new(builder, "transformer.ln_f", d, 0.0));
        let head = Head::new(frame, &embedding, builder);
        Ok((Self { embedding, positions, final_norm, head }, layers))
    }

    /// What products are computed in.
    pub fn set_precision(&mut self, precision: Precision) {
        self.embedding.set_precision(precision);
        self.head.set_precision(precision);
    }

    /// The hidden states that enter the first layer, [B * T, D].
    pub fn enter(&self, params: &Params, tokens: &Tokens<'_>) -> Buf {
        let mut x = self.embedding.forward(params, tokens.ids);
        if let Some(positions) = self.positions {
            let width = x.len() / tokens.ids.len().max(1);
            ops::add_positions(params.get(positions), width, tokens.len(), tokens.position, &mut x);
        }
        tokens.dropout[0].with(u64::MAX - 1).apply(&mut x);
        x
    }

    /// What the output layer gets of the hidden states after the last layer.
    pub fn leave(&self, params: &Params, tokens: &Tokens<'_>, mut x: Buf) -> (Buf, Kept) {
        if let Some(norm) = self.final_norm {
            let (y, stats) = norm.forward(params, &x);
            return (y, tokens.keep.then_some((x, stats)));
        }
        // The reference drops the last hidden states of a transformer_xl.
        tokens.dropout[0].with(u64::MAX - 2).apply(&mut x);
        (x, None)
    }

    /// The gradient of the hidden states after the last layer.
    pub fn leave_backward(
        &self,
        params: &Params,
        tokens: &Tokens<'_>,
        kept: Kept,
        mut dx: Buf,
        grads: &mut Grads,
    ) -> Buf {
        match (self.final_norm, kept) {
            (Some(norm), Some((x, stats))) => {
                let mut d = Buf::zeros(dx.len());
                norm.backward(params, &x, &stats, &dx, &mut d, grads);
                d
            }
            _ => {
                tokens.dropout[0].with(u64::MAX - 2).apply(&mut dx);
                dx
            }
        }
    }

    /// Adds the gradients of embedding and positions, from those of what enters the first layer.
    pub fn enter_backward(&self, params: &Params, tokens: &Tokens<'_>, mut dx: Buf, grads: &mut Grads) {
        if !grads.wanted() {
            return;
        }
        tokens.dropout[0].with(u64::MAX - 1).apply(&mut dx);
        if let Some(positions) = self.positions {
            let width = dx.len() / tokens.ids.len().max(1);
            ops::positions_backward(&dx, width, tokens.len(), tokens.position, grads.add(positions));
        }
        self.embedding.backward(params, tokens.ids, &dx, grads);
    }
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
