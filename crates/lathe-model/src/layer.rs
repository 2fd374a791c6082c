//! A block at work: a sublayer inside its residual connection and norm.
//!
//! - pre-norm: y = x + dropout(f(norm(x)))
//! - post-norm: y = norm(x + dropout(f(x)))
//!
//! The fused path is written by hand, forward and backward: each layer keeps what its backward needs in a
//! [`Saved`] and gives the gradient of its input for the gradient of its output.

use crate::blocks::{self, Names};
use crate::composed::Graph;
use crate::params::{Builder, Grads, Init, Linear, ParamId, Params};
use candle_core::{Result, Tensor};
use lathe_core::{Block, Frame, Norm};
use lathe_ops::Precision;
use lathe_ops::attention::Rows;
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use lathe_ops::linear;
use lathe_ops::norm::NormKind;
use std::any::Any;
use std::sync::{Arc, Mutex};

/// What a pass over a batch of sequences has in common for all layers.
pub struct Pass<'a> {
    /// The weights.
    pub params: &'a Params,
    /// B
    pub batch: usize,
    /// T
    pub len: usize,
    /// Whether layers keep what a backward pass needs.
    pub keep: bool,
    /// Dropout of hidden states, of attention probabilities, and inside experts; none in evaluation.
    pub dropout: [Dropout; 3],
    /// Weight of the balance loss of experts.
    pub balance: f32,
    /// transformer_xl: the embedded distances [M + T, D], farthest first.
    pub distances: Option<&'a [f32]>,
    /// What experts report of this pass, one entry per mixture.
    pub stats: &'a Mutex<Vec<MoeStats>>,
}

/// How a mixture of experts spread its tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct MoeStats {
    /// Assignments of each expert.
    pub loads: Vec<usize>,
    /// The balance loss, 1 when uniform.
    pub balance: f32,
}

impl Pass<'_> {
    /// B * T
    pub fn rows(&self) -> usize {
        self.batch * self.len
    }

    /// Notes what a mixture of experts did.
    pub(crate) fn record(&self, stats: MoeStats) {
        self.stats.lock().expect("nothing panics while it holds the list").push(stats);
    }
}

/// What a layer's backward needs of its forward.
pub type Saved = Box<dyn Any + Send>;

/// What a layer carries from segment to segment, or from token to token.
#[derive(Debug, Clone, Default)]
pub enum LayerState {
    /// Nothing.
    #[default]
    None,
    /// Hidden states of the tokens before, [B, M, D].
    Memory(Buf),
    /// Projected keys and values of the tokens before.
    Cache(Cache),
}

/// Projected keys and values, [B, capacity, 2 A] (keys, then values), of which the last `len` places before `end` count.
#[derive(Debug, Clone)]
pub struct Cache {
    pub(crate) rows: Vec<f32>,
    pub(crate) capacity: usize,
    pub(crate) end: usize,
    /// How many places count.
    pub len: usize,
    /// At most so many are kept; older ones are forgotten.
    pub limit: usize,
    /// transformer_xl: projected distances, for a number of keys.
    pub(crate) positions: Option<(usize, Buf)>,
}

impl Cache {
    /// An empty cache for rows of `width`.
    pub(crate) fn new(batch: usize, width: usize, limit: usize, capacity: usize) -> Self {
        Self { rows: vec![0.0; batch * capacity * width], capacity, end: 0, len: 0, limit, positions: None }
    }

    /// Adds [B, T] new rows, the columns of `new` from `first_col` on. Gives the place of the first row that counts.
    pub(crate) fn append(&mut self, batch: usize, width: usize, new: &[f32], stride: usize, first_col: usize) -> usize {
        let len = new.len() / stride / batch;
        if self.end + len > self.capacity {
            let kept = self.end - self.len..self.end;
            assert!(self.len + len <= self.capacity, "a cache of {} places has no room for {len} more", self.capacity);
            for rows in self.rows.chunks_exact_mut(self.capacity * width) {
                rows.copy_within(kept.start * width..kept.end * width, 0);
            }
            self.end = self.len;
        }
        for (b, rows) in self.rows.chunks_exact_mut(self.capacity * width).enumerate() {
            for t in 0..len {
                let from = &new[(b * len + t) * stride + first_col..][..width];
                rows[(self.end + t) * width..][..width].copy_from_slice(from);
            }
        }
        self.end += len;
        self.len += len;
        self.end - self.len
    }

    /// Lets go of rows beyond the limit.
    pub(crate) fn forget(&mut self) {
        self.len = self.len.min(self.limit);
    }

    /// Keys and values from a place on, each `a` wide.
    pub(crate) fn keys_and_values(&self, first: usize, a: usize) -> (Rows<'_>, Rows<'_>) {
        let rows = |col: usize| Rows {
            data: &self.rows[first * 2 * a + col..],
            stride: 2 * a,
            batch_stride: self.capacity * 2 * a,
        };
        (rows(0), rows(a))
    }
}

/// The inside of a layer.
pub trait Sublayer: Send + Sync {
    /// The output [B * T, D] for an input [B * T, D], or [B * (M + T), D] after a memory.
    fn forward(&self, pass: &Pass<'_>, input: &[f32], state: &mut LayerState) -> (Buf, Saved);
    /// The gradient of the input; adds those of the parameters. What was saved may be consumed.
    fn backward(&self, pass: &Pass<'_>, input: &[f32], saved: Saved, dout: &[f32], grads: &mut Grads) -> Buf;
    /// [`Self::forward`] as a graph, without a cache.
    fn composed(&self, graph: &Graph<'_>, input: &Tensor) -> Result<Tensor>;
    /// Its linear layers, to be packed.
    fn linears(&mut self) -> Vec<&mut Linear>;
    /// What its products are computed in.
    fn set_precision(&mut self, precision: Precision) {
        self.linears().into_iter().for_each(|linear| linear.set_precision(precision));
    }
    /// Packs whatever is no [`Linear`]. Gives the parameters that are needed no more.
    fn pack(&mut self, _params: &Params) -> Vec<ParamId> {
        Vec::new()
    }
    /// The memory it begins with: zeros, as in the reference.
    fn memory(&self, _batch: usize) -> LayerState {
        LayerState::None
    }
    /// The cache that continues a memory [B, M, D], normed where the norm comes first; an empty one without memory.
    fn cache(&self, _pass: &Pass<'_>, _memory: &[f32]) -> LayerState {
        LayerState::None
    }
}

/// A norm's parameters.
#[derive(Clone, Copy)]
pub struct NormParams {
    gamma: ParamId,
    beta: ParamId,
}

impl NormParams {
    /// `name.weight` and `name.bias`.
    pub fn new(builder: &mut Builder, name: &str, width: usize, deviation: f32) -> Self {
        let init = if deviation > 0.0 { Init::Normal(1.0, deviation) } else { Init::Constant(1.0) };
        let gamma = builder.param(format!("{name}.weight"), &[width], init);
        Self { gamma, beta: builder.param(format!("{name}.bias"), &[width], Init::Constant(0.0)) }
    }

    /// norm(x), and what its backward needs.
    pub fn forward(&self, params: &Params, x: &[f32]) -> (Buf, Buf) {
        let gamma = params.get(self.gamma);
        let mut y = Buf::any(x.len());
        let mut stats = Buf::any(2 * x.len() / gamma.len());
        NormKind::LAYER.forward(x, gamma, params.get(self.beta), &mut y, &mut stats);
        (y, stats)
    }

    /// norm(x) again.
    pub fn again(&self, params: &Params, x: &[f32], stats: &[f32]) -> Buf {
        let mut y = Buf::any(x.len());
        NormKind::LAYER.again(x, params.get(self.gamma), params.get(self.beta), stats, &mut y);
        y
    }

    /// [`Self::forward`] as a graph.
    pub fn composed(&self, graph: &Graph<'_>, x: &Tensor) -> Result<Tensor> {
        NormKind::LAYER.composed(x, graph.var(self.gamma), Some(graph.var(self.beta)))
    }

    /// Adds the gradient of x to `dx`, and those of the parameters.
    pub fn backward(&self, params: &Params, x: &[f32], stats: &[f32], dy: &[f32], dx: &mut [f32], grads: &mut Grads) {
        let [dgamma, dbeta] = grads.add_two(self.gamma, self.beta);
        NormKind::LAYER.backward(x, params.get(self.gamma), stats, dy, dx, dgamma, dbeta);
    }
}

/// A block at work.
pub struct Layer {
    sublayer: Box<dyn Sublayer>,
    norm: NormParams,
    place: Norm,
    width: usize,
    /// Salt of its dropout.
    salt: u64,
}

/// What a layer keeps: its input (behind a memory, where it has one), with post-norm the sum before the norm, the norm's
/// statistics, and what the sublayer keeps. The normed input of pre-norm is computed again rather
/// than kept: one pass over it in place of one array of the input's size per block.
struct LayerSaved {
    input: Arc<Buf>,
    sum: Buf,
    stats: Buf,
    inner: Saved,
}

impl Layer {
    /// The layer of a block: its sublayer in its residual connection; `None` where there is nothing to compute.
    pub(crate) fn build(block: &Block, frame: &Frame, names: &Names, builder: &mut Builder) -> Option<Self> {
        let (sublayer, norm) = blocks::build(block, frame, names, builder)?;
        Some(Self { sublayer, norm, place: frame.norm, width: frame.d_model as usize, salt: names.salt(0) })
    }

    /// The state that training and plain evaluation begin with.
    pub fn memory(&self, batch: usize) -> LayerState {
        self.sublayer.memory(batch)
    }

    /// The state that decoding goes on with after a memory, or begins with.
    pub fn cache(&self, pass: &Pass<'_>, state: &LayerState) -> LayerState {
        match state {
            LayerState::Memory(memory) if self.place == Norm::Pre => {
                self.sublayer.cache(pass, &self.norm.forward(pass.params, memory).0)
            }
            LayerState::Memory(memory) => self.sublayer.cache(pass, memory),
            _ => self.sublayer.cache(pass, &[]),
        }
    }

    /// What its products are computed in.
    pub fn set_precision(&mut self, precision: Precision) {
        self.sublayer.set_precision(precision);
    }

    /// Packs its weights. Gives the parameters that are needed no more.
    pub fn pack(&mut self, params: &Params) -> Vec<ParamId> {
        let mut packed: Vec<ParamId> = self.sublayer.linears().into_iter().map(|linear| linear.pack(params)).collect();
        packed.extend(self.sublayer.pack(params));
        packed
    }

    /// The output for an input [B * T, D].
    pub fn forward(&self, pass: &Pass<'_>, x: Buf, state: &mut LayerState) -> (Buf, Saved) {
        let x = Arc::new(x);
        let input = match state {
            LayerState::Memory(memory) => Arc::new(remember(pass, memory, &x)),
            _ => x.clone(),
        };
        self.forward_from(pass, x, input, state)
    }

    /// As [`Self::forward`], with the input behind its memory given where the layer has one: layers may share both.
    pub fn forward_from(&self, pass: &Pass<'_>, x: Arc<Buf>, input: Arc<Buf>, state: &mut LayerState) -> (Buf, Saved) {
        let dropout = pass.dropout[0].with(self.salt);
        let (y, sum, stats, inner) = match self.place {
            Norm::Pre => {
                let (normed, stats) = self.norm.forward(pass.params, &input);
                let (mut y, inner) = self.sublayer.forward(pass, &normed, state);
                dropout.apply(&mut y);
                linear::add(&mut y, &x);
                (y, Buf::default(), stats, inner)
            }
            Norm::Post => {
                let (mut sum, inner) = self.sublayer.forward(pass, &input, state);
                dropout.apply(&mut sum);
                linear::add(&mut sum, &x);
                let (y, stats) = self.norm.forward(pass.params, &sum);
                (y, sum, stats, inner)
            }
        };
        if !pass.keep {
            return (y, Box::new(()));
        }
        (y, Box::new(LayerSaved { input, sum, stats, inner }))
    }

    /// [`Self::forward`] as a graph. The memory, if there is one, is [B, M, D].
    pub fn composed(&self, graph: &Graph<'_>, x: &Tensor, memory: &mut Option<Tensor>) -> Result<Tensor> {
        let mut input = x.clone();
        if let Some(memory) = memory {
            let all = Tensor::cat(&[&*memory, &x.reshape((graph.batch, graph.len, self.width))?], 1)?;
            *memory = all.narrow(1, graph.len, memory.dim(1)?)?.detach();
            input = all.reshape(((), self.width))?; // (B, M + T, D) -> (B * (M + T), D)
        }
        match self.place {
            Norm::Pre => {
                let normed = self.norm.composed(graph, &input)?;
                x + graph.probe(self.sublayer.composed(graph, &normed)?)?
            }
            Norm::Post => {
                let sum = (x + graph.probe(self.sublayer.composed(graph, &input)?)?)?;
                self.norm.composed(graph, &sum)
            }
        }
    }

    /// The gradient of the input; adds those of the parameters.
    pub fn backward(&self, pass: &Pass<'_>, saved: Saved, mut dy: Buf, grads: &mut Grads) -> Buf {
        let LayerSaved { input, sum, stats, inner } = *saved.downcast().expect("what this layer saved");
        let dropout = pass.dropout[0].with(self.salt);
        let dropped = |d: &Buf| {
            let mut d = d.clone();
            dropout.apply(&mut d);
            d
        };
        let has_memory = input.len() > dy.len();
        match self.place {
            Norm::Pre => {
                let normed = self.norm.again(pass.params, &input, &stats);
                let dout = if dropout.is_none() { None } else { Some(dropped(&dy)) };
                let dnormed = self.sublayer.backward(pass, &normed, inner, dout.as_ref().unwrap_or(&dy), grads);
                drop(normed);
                if has_memory {
                    let mut dinput = Buf::zeros(input.len());
                    self.norm.backward(pass.params, &input, &stats, &dnormed, &mut dinput, grads);
                    self.add_present(pass, &dinput, &mut dy);
                } else {
                    self.norm.backward(pass.params, &input, &stats, &dnormed, &mut dy, grads);
                }
                dy
            }
            Norm::Post => {
                let mut dsum = Buf::zeros(dy.len());
                self.norm.backward(pass.params, &sum, &stats, &dy, &mut dsum, grads);
                drop(dy);
                let dout = if dropout.is_none() { None } else { Some(dropped(&dsum)) };
                let dinput = self.sublayer.backward(pass, &input, inner, dout.as_ref().unwrap_or(&dsum), grads);
                if has_memory {
                    self.add_present(pass, &dinput, &mut dsum);
                } else {
                    linear::add(&mut dsum, &dinput);
                }
                dsum
            }
        }
    }

    /// dx += the rows of [B, M + T, D] that are not memory.
    fn add_present(&self, pass: &Pass<'_>, all: &[f32], dx: &mut [f32]) {
        let (all_len, len) = (all.len() / pass.batch, pass.len * self.width);
        for (all, dx) in all.chunks_exact(all_len).zip(dx.chunks_exact_mut(len)) {
            dx.iter_mut().zip(&all[all_len - len..]).for_each(|(dx, all)| *dx += all);
        }
    }
}

/// An input behind its memory, [B, M + T, D]; the memory moves on to the last M of these.
pub(crate) fn remember(pass: &Pass<'_>, memory: &mut Buf, x: &[f32]) -> Buf {
    let (old, new) = (memory.len() / pass.batch, x.len() / pass.batch);
    let mut all = Buf::any(memory.len() + x.len());
    for (b, all) in all.chunks_exact_mut(old + new).enumerate() {
        all[..old].copy_from_slice(&memory[b * old..(b + 1) * old]);
        all[old..].copy_from_slice(&x[b * new..(b + 1) * new]);
        memory[b * old..(b + 1) * old].copy_from_slice(&all[new..]);
    }
    all
}
