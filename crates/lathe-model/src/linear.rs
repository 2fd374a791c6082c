//! Weight matrices at work: [`Matrix`] gives products their right-hand side, whatever it is packed as; [`Linear`] adds a
//! bias, [`Experts`] are several linear layers of one shape.

mod onnx;

pub(crate) use onnx::token_rows;

use crate::composed::Graph;
use crate::packed::PackedOnce;
use crate::params::{Grads, ParamId, Params, Place};
use candle_core::{Result, Tensor};
use lathe_ops::Precision;
use lathe_ops::activation::Act;
use lathe_ops::gemm::{Mat, MatMut, Packed, Product, Rhs, gemm, gemm_finish, gemm_grouped};
use lathe_ops::integers::{self, Format, Integers, Part};
use lathe_ops::linear;
use lathe_ops::moe::Routing;
use lathe_ops::storage::{Bf16, Storage};
use rayon::prelude::*;

/// How a weight matrix lies in its parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// [in, out], as GPT-2's.
    InOut,
    /// [out, in], as PyTorch's linear layers.
    OutIn,
}

/// The shape of a parameter with this matrix.
pub fn shape(layout: Layout, inputs: usize, outputs: usize) -> [usize; 2] {
    match layout {
        Layout::InOut => [inputs, outputs],
        Layout::OutIn => [outputs, inputs],
    }
}

/// The weights W of y = x W: some of the outputs of a parameter's matrix, or of each of its matrices.
pub struct Matrix {
    weight: ParamId,
    layout: Layout,
    inputs: usize,
    /// First output, and how many of how many.
    first: usize,
    outputs: usize,
    total: usize,
    /// Matrices side by side in the parameter.
    count: usize,
    precision: Precision,
    /// Whether it is never rounded to integers.
    exact: bool,
    /// While training for integers: what its inputs are rounded as.
    rounds: Option<Format>,
    packed: Vec<Packed>,
    /// W and its transpose, packed until the parameters change.
    step: [PackedOnce; 2],
}

impl Matrix {
    fn new(weight: ParamId, layout: Layout, inputs: usize, outputs: usize, count: usize) -> Self {
        Self {
            weight,
            layout,
            inputs,
            first: 0,
            outputs,
            total: outputs,
            count,
            precision: Precision::F32,
            exact: false,
            rounds: None,
            packed: Vec::new(),
            step: Default::default(),
        }
    }

    /// The parameter.
    pub fn weight(&self) -> ParamId {
        self.weight
    }

    /// How it lies in its parameter.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// How its matrices lie in their parameter.
    pub fn place(&self) -> Place {
        let Self { count, inputs, total, layout, exact, .. } = *self;
        Place { count, inputs, outputs: total, layout, exact }
    }

    /// What its products are computed in.
    pub fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
    }

    /// Says that it is never rounded to integers.
    pub fn set_exact(&mut self) {
        self.exact = true;
    }

    /// Rounds what enters it as products with integers of a format do, in f32. Gradients go through as if it were not
    /// rounded.
    pub fn set_rounded_inputs(&mut self, format: Option<Format>) {
        self.rounds = format.filter(|_| !self.exact);
    }

    /// What enters it, rounded if that is wanted.
    fn entering<'a>(&self, x: Mat<'a>, rounded: &'a mut Vec<f32>) -> Mat<'a> {
        let Some(format) = self.rounds else { return x };
        *rounded = round_activations(x, format);
        Mat::new(rounded, x.rows(), x.cols())
    }

    /// As [`Self::entering`], of rows side by side.
    fn entering_all<'a>(&self, x: &'a [f32], rounded: &'a mut Vec<f32>) -> &'a [f32] {
        if let Some(format) = self.rounds {
            *rounded = round_activations(Mat::new(x, x.len() / self.inputs, self.inputs), format);
            return rounded;
        }
        x
    }

    /// Packs the weights for many products with few rows each. Returns the parameter, which is then needed no more.
    /// Integers are packed already.
    pub fn pack(&mut self, params: &Params) -> ParamId {
        if !params.param(self.weight).integers().is_empty() {
            return self.weight;
        }
        let values = params.read(self.weight);
        // Weights that are stored as bf16 stay so: half of the bytes to read, and nothing is lost.
        let halves = params.param(self.weight).storage().key() == Bf16.key() && self.precision == Precision::F32;
        let pack = |mat: Mat<'_>| match halves {
            true => Packed::bf16_weights(mat),
            false => Packed::with_precision(mat, self.precision),
        };
        self.packed = (0..self.count).map(|i| pack(self.mat(&values, i))).collect();
        self.weight
    }

    /// W as [in, out].
    fn mat<'a>(&self, values: &'a [f32], i: usize) -> Mat<'a> {
        let size = self.inputs * self.total;
        let w = &values[i * size..][..size];
        match self.layout {
            Layout::InOut => Mat::new(w, self.inputs, self.total).cols_from(self.first, self.outputs),
            Layout::OutIn => Mat::new(w, self.total, self.inputs).rows_from(self.first, self.outputs).t(),
        }
    }

    fn mats<'a>(&self, values: &'a [f32], transposed: bool) -> Vec<Mat<'a>> {
        (0..self.count).map(|i| self.mat(values, i)).map(|mat| if transposed { mat.t() } else { mat }).collect()
    }

    /// Calls `products` with W of every matrix, or with its transpose.
    fn with_all<R>(&self, params: &Params, transposed: bool, products: impl FnOnce(Vec<Rhs<'_>>) -> R) -> R {
        if !self.packed.is_empty() && !transposed {
            return products(self.packed.iter().map(Rhs::from).collect());
        }
        let integers = params.param(self.weight).integers();
        if !integers.is_empty() && !transposed {
            return products(integers.iter().map(|w| self.integers(params, w)).collect());
        }
        match (params.floats(self.weight), self.precision) {
            (Some(values), Precision::F32) => {
                products(self.mats(values, transposed).into_iter().map(Rhs::from).collect())
            }
            _ => {
                let packed = self.packed_step(params, transposed);
                products(packed.iter().map(Rhs::from).collect())
            }
        }
    }

    /// Calls `product` with W, or with its transpose.
    fn with<R>(&self, params: &Params, transposed: bool, product: impl FnOnce(Rhs<'_>) -> R) -> R {
        if let ([packed], false) = (&self.packed[..], transposed) {
            return product(packed.into());
        }
        if let ([w], false) = (params.param(self.weight).integers(), transposed) {
            return product(self.integers(params, w));
        }
        match (params.floats(self.weight), self.precision) {
            (Some(values), Precision::F32) => {
                let mat = self.mat(values, 0);
                product(if transposed { mat.t() } else { mat }.into())
            }
            _ => product((&self.packed_step(params, transposed)[0]).into()),
        }
    }

    fn integers<'a>(&self, params: &Params, w: &'a Integers) -> Rhs<'a> {
        let activations = params.param(self.weight).activations();
        Rhs::Integers { w, first: self.first, outputs: self.outputs, activations }
    }

    fn packed_step(&self, params: &Params, transposed: bool) -> std::sync::Arc<Vec<Packed>> {
        let step = &self.step[usize::from(transposed)];
        step.get(params.version(), self.precision, || params.read(self.weight), |values| self.mats(values, transposed))
    }

    /// Shows an observer what enters the first outputs: the others get the same.
    fn observe(&self, params: &Params, i: usize, x: Mat<'_>) {
        if self.first == 0 {
            params.observe(self.weight, i, x);
        }
    }

    /// Where the gradient of matrix i goes.
    fn gradient<'a>(&self, values: &'a mut [f32], i: usize) -> MatMut<'a> {
        let size = self.inputs * self.total;
        let w = &mut values[i * size..][..size];
        match self.layout {
            Layout::InOut => MatMut::with_stride(&mut w[self.first..], self.inputs, self.outputs, self.total),
            Layout::OutIn => {
                let w = &mut w[self.first * self.inputs..][..self.outputs * self.inputs];
                MatMut::new(w, self.outputs, self.inputs)
            }
        }
    }
}

/// A linear layer, or some of the outputs of one: y = x W + b.
pub struct Linear {
    /// W
    pub matrix: Matrix,
    bias: Option<ParamId>,
}

impl Linear {
    /// All outputs of a weight, with an optional bias.
    pub fn new(weight: ParamId, bias: Option<ParamId>, layout: Layout, inputs: usize, outputs: usize) -> Self {
        Self { matrix: Matrix::new(weight, layout, inputs, outputs, 1), bias }
    }

    /// Some of the outputs.
    pub fn part(&self, first: usize, outputs: usize) -> Self {
        let Matrix { weight, layout, inputs, total, precision, exact, .. } = self.matrix;
        let first = self.matrix.first + first;
        assert!(first + outputs <= total);
        let matrix = Matrix { first, outputs, precision, exact, ..Matrix::new(weight, layout, inputs, total, 1) };
        Self { matrix, bias: self.bias }
    }

    /// The same, with products in a precision.
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.matrix.precision = precision;
        self
    }

    /// Width of its input.
    pub fn inputs(&self) -> usize {
        self.matrix.inputs
    }

    /// Width of its output.
    pub fn outputs(&self) -> usize {
        self.matrix.outputs
    }

    /// Its bias.
    pub fn bias_param(&self) -> Option<ParamId> {
        self.bias
    }

    fn bias<'a>(&self, params: &'a Params) -> Option<&'a [f32]> {
        self.bias.map(|bias| &params.get(bias)[self.matrix.first..][..self.matrix.outputs])
    }

    fn rows<'a>(&self, x: &'a [f32], width: usize) -> Mat<'a> {
        Mat::new(x, x.len() / width, width)
    }

    /// y = x W + b.
    pub fn forward(&self, params: &Params, x: &[f32], y: &mut [f32]) {
        let rows = x.len() / self.inputs();
        self.forward_into(params, self.rows(x, self.inputs()), MatMut::new(y, rows, self.outputs()));
    }

    /// As [`Self::forward`], into a part of a matrix.
    pub fn forward_into(&self, params: &Params, x: Mat<'_>, y: MatMut<'_>) {
        self.forward_onto(params, x, y, false);
    }

    /// As [`Self::forward_into`], or added to what is there.
    pub fn forward_onto(&self, params: &Params, x: Mat<'_>, y: MatMut<'_>, accumulate: bool) {
        self.matrix.observe(params, 0, x);
        let mut rounded = Vec::new();
        let x = self.matrix.entering(x, &mut rounded);
        self.matrix.with(params, false, |w| linear::forward(x, w, self.bias(params), y, accumulate));
    }

    /// y = x W + b of several layers with the same input. Where all are integers of one format, x is rounded once and
    /// they are one piece of work.
    pub fn forward_parts(linears: &[Self], params: &Params, x: Mat<'_>, ys: Vec<MatMut<'_>>) {
        let kind = |linear: &Self| {
            let param = params.param(linear.matrix.weight);
            let packed = !linear.matrix.packed.is_empty() || linear.matrix.rounds.is_some();
            let [w] = param.integers() else { return None };
            (!packed).then(|| (w.format(), param.activations()))
        };
        let first = linears.first().and_then(kind);
        let Some((_, activations)) = first.filter(|_| linears.iter().all(|linear| kind(linear) == first)) else {
            return linears.iter().zip(ys).for_each(|(linear, y)| linear.forward_into(params, x, y));
        };
        linears.iter().for_each(|linear| linear.matrix.observe(params, 0, x));
        let part = |(linear, c): (&'_ Self, _)| {
            let first = linear.matrix.first;
            Part { c, w: &params.param(linear.matrix.weight).integers()[0], first }
        };
        let add = |i: usize, _: usize, col: usize, y: &mut [f32]| {
            if let Some(bias) = linears[i].bias(params) {
                linear::add_row(y, &bias[col..]);
            }
        };
        let biased = linears.iter().any(|linear| linear.bias.is_some());
        integers::products(
            linears.iter().zip(ys).map(part).collect(),
            x,
            activations,
            if biased { Some(&add) } else { None },
        );
    }

    /// As [`Self::forward`], with `finish` applied to the results while they are in the cache.
    pub fn forward_finish(&self, params: &Params, x: &[f32], y: &mut [f32], finish: impl Fn(&mut [f32]) + Sync) {
        let rows = x.len() / self.inputs();
        let bias = self.bias(params);
        let x = self.rows(x, self.inputs());
        self.matrix.observe(params, 0, x);
        let mut rounded = Vec::new();
        let x = self.matrix.entering(x, &mut rounded);
        let y = MatMut::new(y, rows, self.outputs());
        let finish = |_: usize, col: usize, y: &mut [f32]| {
            if let Some(bias) = bias {
                linear::add_row(y, &bias[col..]);
            }
            finish(y);
        };
        self.matrix.with(params, false, |w| gemm_finish(y, x, w, false, &finish));
    }

    /// h = x W + b and y = act(h).
    pub fn forward_act(&self, params: &Params, x: &[f32], act: Act, h: &mut [f32], y: &mut [f32]) {
        let (x, bias) = (self.rows(x, self.inputs()), self.bias(params));
        self.matrix.observe(params, 0, x);
        let mut rounded = Vec::new();
        let x = self.matrix.entering(x, &mut rounded);
        self.matrix.with(params, false, |w| linear::forward_act(x, w, bias, act, h, y));
    }

    /// The gradient of h where x = act(h), and h becomes x.
    pub fn backward_act(&self, params: &Params, dy: &[f32], act: Act, h: &mut [f32], dh: &mut [f32]) {
        let dy = self.rows(dy, self.outputs());
        self.matrix.with(params, true, |w| linear::backward_act(dy, w, act, h, dh));
    }

    /// [`Self::forward`] as a graph.
    pub fn composed(&self, graph: &Graph<'_>, x: &Tensor) -> Result<Tensor> {
        let (first, outputs) = (self.matrix.first, self.matrix.outputs);
        let w = graph.var(self.matrix.weight);
        let w = match self.matrix.layout {
            Layout::InOut => w.narrow(1, first, outputs)?.contiguous()?,
            Layout::OutIn => w.narrow(0, first, outputs)?.t()?,
        };
        let bias = self.bias.map(|bias| graph.var(bias).narrow(0, first, outputs)).transpose()?;
        let [_, stored_width] = shape(self.matrix.layout, self.matrix.inputs, self.matrix.total);
        graph.linear(self.matrix.weight, stored_width, x.dim(0)?, linear::composed(x, &w, bias.as_ref())?)
    }

    /// dx = dy W^T, or added to it.
    pub fn backward_input(&self, params: &Params, dy: &[f32], dx: &mut [f32], accumulate: bool) {
        self.backward_input_from(params, self.rows(dy, self.outputs()), dx, accumulate);
    }

    /// As [`Self::backward_input`], from a part of a matrix.
    pub fn backward_input_from(&self, params: &Params, dy: Mat<'_>, dx: &mut [f32], accumulate: bool) {
        let dx = MatMut::new(dx, dy.rows(), self.inputs());
        self.matrix.with(params, true, |w| gemm(dx, dy, w, accumulate));
    }

    /// Adds the gradients of weight and bias.
    pub fn backward_params(&self, x: &[f32], dy: &[f32], grads: &mut Grads) {
        self.backward_params_from(self.rows(x, self.inputs()), self.rows(dy, self.outputs()), grads);
    }

    /// As [`Self::backward_params`], from a part of a matrix.
    pub fn backward_params_from(&self, x: Mat<'_>, dy: Mat<'_>, grads: &mut Grads) {
        if !grads.wanted() {
            return;
        }
        let Matrix { weight, layout, first, outputs, total, precision, .. } = self.matrix;
        let mut rounded = Vec::new();
        let x = self.matrix.entering(x, &mut rounded);
        let (dw, accumulate) = if outputs == total { grads.start(weight) } else { (grads.add(weight), true) };
        let dw = self.matrix.gradient(dw, 0);
        match layout {
            Layout::InOut => gemm(dw, x.t(), Rhs::new(dy, precision), accumulate),
            Layout::OutIn => gemm(dw, dy.t(), Rhs::new(x, precision), accumulate),
        }
        if let Some(bias) = self.bias {
            linear::bias_backward(dy, &mut grads.add(bias)[first..first + outputs]);
        }
    }
}

/// Rows rounded to 8 bits as they are in products with integers: a scale for each row and group.
fn round_activations(x: Mat<'_>, format: Format) -> Vec<f32> {
    let (rows, cols) = (x.rows(), x.cols());
    let mut out = vec![0.0; rows * cols];
    let group = format.group().unwrap_or(cols).max(1);
    out.par_chunks_mut(cols.max(1)).enumerate().for_each(|(r, out)| {
        out.iter_mut().enumerate().for_each(|(c, out)| *out = x.at(r, c));
        for group in out.chunks_mut(group) {
            let scale = group.iter().fold(0.0f32, |most, x| most.max(x.abs())) / 127.0;
            if scale > 0.0 {
                group.iter_mut().for_each(|x| *x = (*x / scale).round_ties_even() * scale);
            }
        }
    });
    out
}

/// What happens to a part of a row of results.
pub type Finish<'a> = &'a (dyn Fn(&mut [f32]) + Sync);

/// The same linear layer of every expert: weights [E, in, out], biases [E, out]. Rows are those of a [`Routing`].
pub struct Experts {
    /// W of each.
    pub matrix: Matrix,
    bias: Option<ParamId>,
}

impl Experts {
    /// All experts of a weight [E, in, out] and an optional bias [E, out].
    pub fn new(weight: ParamId, bias: Option<ParamId>, experts: usize, inputs: usize, outputs: usize) -> Self {
        Self { matrix: Matrix::new(weight, Layout::InOut, inputs, outputs, experts), bias }
    }

    /// Width of the output.
    pub fn outputs(&self) -> usize {
        self.matrix.outputs
    }

    /// The biases.
    pub fn bias_param(&self) -> Option<ParamId> {
        self.bias
    }

    /// y = x W + b for the rows of each expert.
    pub fn forward(&self, params: &Params, routing: &Routing, x: &[f32], y: &mut [f32]) {
        self.forward_finish(params, routing, x, y, &|_| {});
    }

    /// As [`Self::forward`], with `finish` applied to the results while they are in the cache.
    pub fn forward_finish(&self, params: &Params, routing: &Routing, x: &[f32], y: &mut [f32], finish: Finish<'_>) {
        let (inputs, outputs) = (self.matrix.inputs, self.matrix.outputs);
        let bias = self.bias.map(|bias| params.get(bias));
        (0..self.matrix.count).for_each(|e| self.matrix.observe(params, e, rows(x, routing, e, inputs)));
        let mut rounded = Vec::new();
        let x = self.matrix.entering_all(x, &mut rounded);
        self.matrix.with_all(params, false, |weights| {
            let products = cut(y, routing, outputs).into_iter().zip(weights).enumerate();
            let products =
                products.map(|(e, (c, b))| Product { c, a: rows(x, routing, e, inputs), b, accumulate: false });
            gemm_grouped(
                products.collect(),
                Some(&|e, _, col, y| {
                    if let Some(bias) = bias {
                        linear::add_row(y, &bias[e * outputs + col..]);
                    }
                    finish(y);
                }),
            );
        });
    }

    /// y = x W + b of one expert, as a graph.
    pub fn composed(&self, graph: &Graph<'_>, expert: usize, x: &Tensor) -> Result<Tensor> {
        let bias = self.bias.map(|bias| graph.var(bias).get(expert)).transpose()?;
        let y = linear::composed(x, &graph.var(self.matrix.weight).get(expert)?, bias.as_ref())?;
        graph.linear(self.matrix.weight, self.matrix.inputs, graph.batch * graph.len, y)
    }

    /// dx = dy W^T.
    pub fn backward_input(&self, params: &Params, routing: &Routing, dy: &[f32], dx: &mut [f32]) {
        let (inputs, outputs) = (self.matrix.inputs, self.matrix.outputs);
        self.matrix.with_all(params, true, |weights| {
            let products = cut(dx, routing, inputs).into_iter().zip(weights).enumerate();
            let products =
                products.map(|(e, (c, b))| Product { c, a: rows(dy, routing, e, outputs), b, accumulate: false });
            gemm_grouped(products.collect(), None);
        });
    }

    /// Adds the gradients of weights and biases.
    pub fn backward_params(&self, routing: &Routing, x: &[f32], dy: &[f32], grads: &mut Grads) {
        if !grads.wanted() {
            return;
        }
        let Matrix { weight, inputs, outputs, precision, .. } = self.matrix;
        let mut rounded = Vec::new();
        let x = self.matrix.entering_all(x, &mut rounded);
        let (dw, accumulate) = grads.start(weight);
        let products = dw.chunks_exact_mut(inputs * outputs).enumerate().map(|(e, dw)| {
            let (x, dy) = (rows(x, routing, e, inputs), rows(dy, routing, e, outputs));
            Product { c: MatMut::new(dw, inputs, outputs), a: x.t(), b: Rhs::new(dy, precision), accumulate }
        });
        gemm_grouped(products.collect(), None);
        if let Some(bias) = self.bias {
            for (e, dbias) in grads.add(bias).chunks_exact_mut(outputs).enumerate() {
                linear::bias_backward(rows(dy, routing, e, outputs), dbias);
            }
        }
    }
}

/// The rows of an expert's assignments.
fn rows<'a>(x: &'a [f32], routing: &Routing, expert: usize, width: usize) -> Mat<'a> {
    let (start, end) = (routing.starts[expert], routing.starts[expert + 1]);
    Mat::new(&x[start * width..end * width], end - start, width)
}

/// Cuts rows of assignments into those of each expert.
fn cut<'a>(x: &'a mut [f32], routing: &Routing, width: usize) -> Vec<MatMut<'a>> {
    let all = MatMut::new(x, routing.tokens.len(), width);
    all.split(&routing.starts[1..], &[width]).into_iter().map(|(_, _, part)| part).collect()
}
