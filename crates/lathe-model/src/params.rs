//! Parameters by name, their gradients, and how they are made.

use crate::composed::Graph;
use crate::packed::PackedOnce;
use candle_core::{Result, Tensor};
use lathe_ops::Precision;
use lathe_ops::activation::Act;
use lathe_ops::gemm::{Mat, MatMut, Packed, Rhs, gemm, gemm_finish};
use lathe_ops::linear;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use std::collections::HashMap;

/// A parameter: a named array of f32.
#[derive(Debug, Clone)]
pub struct Param {
    /// Name in checkpoints, which is the reference implementation's.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its values, row-major.
    pub data: Vec<f32>,
}

/// Which parameter of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ParamId(pub(crate) usize);

/// All parameters of a network, in the order in which they were made.
#[derive(Debug, Default)]
pub struct Params {
    list: Vec<Param>,
    /// Grows whenever values may have changed.
    version: u64,
}

impl Params {
    /// The values of a parameter.
    pub fn get(&self, id: ParamId) -> &[f32] {
        &self.list[id.0].data
    }

    /// Gives the memory of a parameter back; its values are gone.
    pub(crate) fn forget(&mut self, id: ParamId) {
        self.list[id.0].data = Vec::new();
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Param> {
        self.list.iter()
    }

    /// All of them, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Param> {
        self.version += 1;
        self.list.iter_mut()
    }

    /// Which values these are: different ones have different versions.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// How many numbers there are.
    pub fn count(&self) -> usize {
        self.list.iter().map(|param| param.data.len()).sum()
    }
}

/// A gradient per parameter.
#[derive(Debug)]
pub struct Grads {
    list: Vec<Vec<f32>>,
    /// Whether the gradient holds anything yet; what does not is overwritten.
    started: Vec<bool>,
    /// Lengths of the parameters, where nobody wants their gradients.
    unwanted: Option<Vec<usize>>,
}

impl Grads {
    /// Gradients for these parameters, all 0.
    pub fn new(params: &Params) -> Self {
        Self {
            list: params.iter().map(|param| vec![0.0; param.data.len()]).collect(),
            started: vec![true; params.list.len()],
            unwanted: None,
        }
    }

    /// Gradients that nobody wants: a backward pass with these gives gradients of activations, and those of matrices,
    /// which would cost as much again, are not computed.
    pub fn unwanted(params: &Params) -> Self {
        Self {
            list: vec![Vec::new(); params.list.len()],
            started: vec![true; params.list.len()],
            unwanted: Some(params.iter().map(|param| param.data.len()).collect()),
        }
    }

    /// Whether anybody wants them.
    pub fn wanted(&self) -> bool {
        self.unwanted.is_none()
    }

    /// Which parameters a backward pass has reached since [`Self::clear`].
    pub fn reached(&self) -> &[bool] {
        &self.started
    }

    /// The gradients as they are; those that nothing reached hold anything.
    pub fn as_reached(&mut self) -> &mut [Vec<f32>] {
        &mut self.list
    }

    /// Forgets all gradients; they count as 0.
    pub fn clear(&mut self) {
        self.started.fill(false);
    }

    /// The gradients in the order of the parameters. Those that nothing reached are 0.
    pub fn finish(&mut self) -> &mut [Vec<f32>] {
        for (grad, started) in self.list.iter_mut().zip(&mut self.started) {
            if !std::mem::replace(started, true) {
                grad.fill(0.0);
            }
        }
        &mut self.list
    }

    /// The gradient of a parameter, to be added to.
    pub(crate) fn add(&mut self, id: ParamId) -> &mut [f32] {
        // A place for the small gradients that operators give in any case.
        if let (Some(lens), true) = (&self.unwanted, self.list[id.0].is_empty()) {
            self.list[id.0] = vec![0.0; lens[id.0]];
        }
        if !std::mem::replace(&mut self.started[id.0], true) {
            self.list[id.0].fill(0.0);
        }
        &mut self.list[id.0]
    }

    /// Two gradients at once, to be added to.
    pub(crate) fn add_two(&mut self, a: ParamId, b: ParamId) -> [&mut [f32]; 2] {
        self.add(a);
        self.add(b);
        let [a, b] = self.list.get_disjoint_mut([a.0, b.0]).expect("two parameters");
        [a, b]
    }

    /// The gradient of a parameter, and whether to add to what is there or to overwrite it.
    pub(crate) fn start(&mut self, id: ParamId) -> (&mut [f32], bool) {
        let started = std::mem::replace(&mut self.started[id.0], true);
        (&mut self.list[id.0], started)
    }
}

/// How the values of a parameter begin.
#[derive(Debug, Clone, Copy)]
pub enum Init {
    /// All the same.
    Constant(f32),
    /// Normal with mean and deviation.
    Normal(f32, f32),
}

/// Makes parameters under a prefix of names.
pub struct Builder {
    params: Params,
    ids: HashMap<String, ParamId>,
    /// `None`: parameters have shapes but no values.
    seed: Option<u64>,
    /// Values repeat after a while, which is all that a measurement needs and much sooner done.
    rough: bool,
}

impl Builder {
    /// Begins with no parameters.
    pub fn new(seed: u64) -> Self {
        Self { params: Params::default(), ids: HashMap::new(), seed: Some(seed), rough: false }
    }

    /// Makes parameters whose values repeat after a while: for measurements.
    pub fn rough(seed: u64) -> Self {
        Self { rough: true, ..Self::new(seed) }
    }

    /// Makes parameters without values, which come from a file.
    pub fn unfilled() -> Self {
        Self { params: Params::default(), ids: HashMap::new(), seed: None, rough: false }
    }

    /// A parameter. Its values depend on the seed and its name alone.
    pub fn param(&mut self, name: impl Into<String>, shape: &[usize], init: Init) -> ParamId {
        let name = name.into();
        let len = shape.iter().product();
        let data = match (self.seed, init) {
            (None, _) => Vec::new(),
            (_, Init::Constant(value)) => vec![value; len],
            (Some(seed), Init::Normal(mean, deviation)) if self.rough => {
                let some = normal(seed, &name, len.min(ROUGH), mean, deviation);
                let mut data = Vec::with_capacity(len);
                while data.len() < len {
                    data.extend_from_slice(&some[..some.len().min(len - data.len())]);
                }
                data
            }
            (Some(seed), Init::Normal(mean, deviation)) => normal(seed, &name, len, mean, deviation),
        };
        let id = ParamId(self.params.list.len());
        assert!(self.ids.insert(name.clone(), id).is_none(), "two parameters of the name {name}");
        self.params.list.push(Param { name, shape: shape.to_vec(), data });
        id
    }

    /// How many were made so far.
    pub fn count(&self) -> usize {
        self.params.list.len()
    }

    /// All that were made.
    pub fn finish(self) -> Params {
        self.params
    }
}

/// Values of a rough parameter before they repeat; odd, so that no two rows are the same.
const ROUGH: usize = (1 << 16) - 1;

/// Normal numbers from a generator of their own (Box and Muller), in pieces that threads share.
fn normal(seed: u64, name: &str, len: usize, mean: f32, deviation: f32) -> Vec<f32> {
    const PIECE: usize = 1 << 14;
    /// 32-bit words that a piece takes from the generator: two 64-bit numbers for two normal ones.
    const WORDS: u128 = 2 * PIECE as u128;
    // FNV-1a over the name, so that each parameter has its own stream.
    let stream = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut out = vec![0.0; len];
    out.par_chunks_mut(PIECE).enumerate().for_each(|(piece, out)| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        rng.set_word_pos(piece as u128 * WORDS);
        for pair in out.chunks_mut(2) {
            let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
            let (radius, angle) = ((-2.0 * u.ln()).sqrt(), std::f64::consts::TAU * v);
            let both = [radius * angle.cos(), radius * angle.sin()];
            pair.iter_mut().zip(both).for_each(|(x, normal)| *x = mean + deviation * normal as f32);
        }
    });
    out
}

/// How a weight matrix is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// [in, out], as GPT-2's.
    InOut,
    /// [out, in], as Transformer-XL's.
    OutIn,
}

/// A linear layer, or some of the outputs of one: y = x W + b.
pub struct Linear {
    weight: ParamId,
    bias: Option<ParamId>,
    layout: Layout,
    inputs: usize,
    /// First output, and how many of how many.
    first: usize,
    outputs: usize,
    total: usize,
    precision: Precision,
    packed: Option<Packed>,
    /// W and its transpose, where products are in bf16.
    step: [PackedOnce; 2],
}

impl Linear {
    /// All outputs of a weight, with an optional bias.
    pub fn new(weight: ParamId, bias: Option<ParamId>, layout: Layout, inputs: usize, outputs: usize) -> Self {
        Self {
            weight,
            bias,
            layout,
            inputs,
            first: 0,
            outputs,
            total: outputs,
            precision: Precision::F32,
            packed: None,
            step: Default::default(),
        }
    }

    /// Some of the outputs.
    pub fn part(&self, first: usize, outputs: usize) -> Self {
        assert!(self.first + first + outputs <= self.total);
        Self { first: self.first + first, outputs, packed: None, step: Default::default(), ..*self }
    }

    /// The same, with products in a precision.
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.set_precision(precision);
        self
    }

    /// What its products are computed in.
    pub fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
    }

    /// Width of its output.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Packs the weights for many products with few rows each. Gives the parameter, which is needed no more.
    pub fn pack(&mut self, params: &Params) -> ParamId {
        self.packed = Some(Packed::with_precision(self.mat(params), self.precision));
        self.weight
    }

    /// W as [in, out].
    fn mat<'a>(&self, params: &'a Params) -> Mat<'a> {
        let w = params.get(self.weight);
        match self.layout {
            Layout::InOut => Mat::new(w, self.inputs, self.total).cols_from(self.first, self.outputs),
            Layout::OutIn => Mat::new(w, self.total, self.inputs).rows_from(self.first, self.outputs).t(),
        }
    }

    /// Calls `product` with W, or with its transpose.
    fn with_weights(&self, params: &Params, transposed: bool, product: impl FnOnce(Rhs<'_>)) {
        let mat = || if transposed { self.mat(params).t() } else { self.mat(params) };
        match (&self.packed, self.precision) {
            (Some(packed), _) if !transposed => product(packed.into()),
            (_, Precision::F32) => product(mat().into()),
            (_, Precision::Bf16) => {
                let step = &self.step[usize::from(transposed)];
                let packed = step.get(params.version(), self.precision, std::iter::once_with(mat));
                product((&packed[0]).into());
            }
        }
    }

    fn bias<'a>(&self, params: &'a Params) -> Option<&'a [f32]> {
        self.bias.map(|bias| &params.get(bias)[self.first..self.first + self.outputs])
    }

    fn rows<'a>(&self, x: &'a [f32], width: usize) -> Mat<'a> {
        Mat::new(x, x.len() / width, width)
    }

    /// y = x W + b.
    pub fn forward(&self, params: &Params, x: &[f32], y: &mut [f32]) {
        let rows = x.len() / self.inputs;
        self.forward_into(params, self.rows(x, self.inputs), MatMut::new(y, rows, self.outputs));
    }

    /// As [`Self::forward`], into a part of a matrix.
    pub fn forward_into(&self, params: &Params, x: Mat<'_>, y: MatMut<'_>) {
        self.with_weights(params, false, |w| linear::forward(x, w, self.bias(params), y, false));
    }

    /// As [`Self::forward`], with `finish` applied to the results while they are in the cache.
    pub fn forward_finish(&self, params: &Params, x: &[f32], y: &mut [f32], finish: impl Fn(&mut [f32]) + Sync) {
        let rows = x.len() / self.inputs;
        let bias = self.bias(params);
        let y = MatMut::new(y, rows, self.outputs);
        let finish = |_: usize, col: usize, y: &mut [f32]| {
            if let Some(bias) = bias {
                linear::add_row(y, &bias[col..]);
            }
            finish(y);
        };
        self.with_weights(params, false, |w| gemm_finish(y, self.rows(x, self.inputs), w, false, &finish));
    }

    /// h = x W + b and y = act(h).
    pub fn forward_act(&self, params: &Params, x: &[f32], act: Act, h: &mut [f32], y: &mut [f32]) {
        let (x, bias) = (self.rows(x, self.inputs), self.bias(params));
        self.with_weights(params, false, |w| linear::forward_act(x, w, bias, act, h, y));
    }

    /// The gradient of h where x = act(h), and h becomes x.
    pub fn backward_act(&self, params: &Params, dy: &[f32], act: Act, h: &mut [f32], dh: &mut [f32]) {
        let dy = self.rows(dy, self.outputs);
        self.with_weights(params, true, |w| linear::backward_act(dy, w, act, h, dh));
    }

    /// [`Self::forward`] as a graph.
    pub fn composed(&self, graph: &Graph<'_>, x: &Tensor) -> Result<Tensor> {
        let w = graph.var(self.weight);
        let w = match self.layout {
            Layout::InOut => w.narrow(1, self.first, self.outputs)?.contiguous()?,
            Layout::OutIn => w.narrow(0, self.first, self.outputs)?.t()?,
        };
        let bias = self.bias.map(|bias| graph.var(bias).narrow(0, self.first, self.outputs)).transpose()?;
        linear::composed(x, &w, bias.as_ref())
    }

    /// dx = dy W^T, or added to it.
    pub fn backward_input(&self, params: &Params, dy: &[f32], dx: &mut [f32], accumulate: bool) {
        self.backward_input_from(params, self.rows(dy, self.outputs), dx, accumulate);
    }

    /// As [`Self::backward_input`], from a part of a matrix.
    pub fn backward_input_from(&self, params: &Params, dy: Mat<'_>, dx: &mut [f32], accumulate: bool) {
        let dx = MatMut::new(dx, dy.rows(), self.inputs);
        self.with_weights(params, true, |w| gemm(dx, dy, w, accumulate));
    }

    /// Adds the gradients of weight and bias.
    pub fn backward_params(&self, x: &[f32], dy: &[f32], grads: &mut Grads) {
        self.backward_params_from(self.rows(x, self.inputs), self.rows(dy, self.outputs), grads);
    }

    /// As [`Self::backward_params`], from a part of a matrix.
    pub fn backward_params_from(&self, x: Mat<'_>, dy: Mat<'_>, grads: &mut Grads) {
        if !grads.wanted() {
            return;
        }
        let whole = self.outputs == self.total;
        let (dw, accumulate) = if whole { grads.start(self.weight) } else { (grads.add(self.weight), true) };
        match self.layout {
            Layout::InOut => {
                let dw = MatMut::with_stride(&mut dw[self.first..], self.inputs, self.outputs, self.total);
                gemm(dw, x.t(), Rhs::new(dy, self.precision), accumulate);
            }
            Layout::OutIn => {
                let dw = &mut dw[self.first * self.inputs..][..self.outputs * self.inputs];
                let dw = MatMut::new(dw, self.outputs, self.inputs);
                gemm(dw, dy.t(), Rhs::new(x, self.precision), accumulate);
            }
        }
        if let Some(bias) = self.bias {
            linear::bias_backward(dy, &mut grads.add(bias)[self.first..self.first + self.outputs]);
        }
    }
}
