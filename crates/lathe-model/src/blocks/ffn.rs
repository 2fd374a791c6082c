//! Feed-forward, `f`: act(x W1 + b1) W2 + b2 with inner width F.
//!
//! Gated activations (Shazeer, 2020) multiply act(x W1) by a second product x V before W2; that makes
//! three matrices of two, all without bias.
//!
//! | | parameters | FLOPs of one sequence |
//! |---|---|---|
//! | plain | 2 D F + F + D; 2 D F where the backbone has no biases | 4 T D F |
//! | gated | 3 D F | 6 T D F |

use super::{BYTES, memory_bytes, norm_params};
use crate::build::{self, BuildBlock, LayerBuilder, Site, Trained};
use crate::composed::Graph;
use crate::layer::{Layer, LayerState, Pass, Saved, Slice, Sublayer, Units};
use crate::linear::{Layout, Linear, Matrix};
use crate::onnx::OnnxPass;
use crate::params::{Builder, Grads};
use candle_core::Tensor;
use lathe_core::{
    Activation, Block, BlockKind, Cost, Domain, Frame, Knob, MAX_INNER, NormPlace, Result, Role, Setting,
};
use lathe_onnx::Value;
use lathe_ops::activation::{self, Act};
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use lathe_ops::gemm::{Mat, MatMut};
use lathe_ops::linear;
use std::any::Any;

pub(super) struct Ffn;

const INNER: usize = 0;
/// Narrower ones than this are not on offer in searches.
const NARROWEST: u32 = 16;
const ROLE: Role = Role::PerToken;

impl Ffn {
    /// A feed-forward of an inner width.
    pub(super) fn of(inner: u32) -> Block {
        let mut block = Block::new(&Self);
        block.set(INNER, inner);
        block
    }

    /// The inner width of a block, if it is a feed-forward.
    pub(super) fn inner_of(block: &Block, frame: &Frame) -> Option<u32> {
        (block.kind.key() == Self.key()).then(|| block.get(INNER).unwrap_or(frame.inner))
    }
}

/// Parameters of one feed-forward net, which an expert is too, with biases or without; gated ones never have any.
pub(super) fn params(activation: Activation, d: u64, f: u64, bias: bool) -> u64 {
    match activation.gated() {
        true => 3 * d * f,
        false => 2 * d * f + if bias { f + d } else { 0 },
    }
}

/// FLOPs for one token.
pub(super) fn flops_per_token(activation: Activation, d: u64, f: u64) -> u128 {
    let matrices = if activation.gated() { 3 } else { 2 };
    2 * matrices * u128::from(d) * u128::from(f)
}

/// Floats that one token writes inside: the inner activations, before and after the gate.
pub(super) fn inner_floats(activation: Activation, f: u64) -> u128 {
    if activation.gated() { 3 * u128::from(f) } else { u128::from(f) }
}

impl BlockKind for Ffn {
    fn key(&self) -> &'static str {
        "ffn"
    }

    fn letter(&self) -> Option<char> {
        Some('f')
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob { name: "inner", mark: Some(""), domain: Domain::Int { min: 1, max: MAX_INNER } }]
    }

    fn resolve(&self, block: &Block, frame: &Frame) -> Block {
        let mut block = *block;
        block.set(INNER, block.get(INNER).unwrap_or(frame.inner));
        block
    }

    fn check(&self, _: &Block, _: &Frame) -> Result<()> {
        Ok(())
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        let d = u64::from(frame.d_model);
        let f = u64::from(block.get(INNER).unwrap_or(frame.inner));
        let floats_per_token = 2 * u128::from(d) + inner_floats(frame.activation, f); // norm, inner, output
        Cost {
            params: params(frame.activation, d, f, build::of_backbone(frame.backbone).style(frame, 1).bias),
            norm_params: norm_params(frame),
            flops: setting.tokens() * flops_per_token(frame.activation, d, f),
            activation_bytes: setting.tokens() * BYTES * floats_per_token,
            state_bytes: memory_bytes(frame, setting.mem_len),
        }
    }

    fn role(&self) -> Role {
        ROLE
    }

    fn in_references(&self) -> bool {
        true
    }

    /// A quarter, half and all of the frame's inner width.
    fn variants(&self, frame: &Frame) -> Vec<Block> {
        let narrower = [frame.inner / 4, frame.inner / 2].into_iter().filter(|&inner| inner >= NARROWEST);
        narrower.chain([frame.inner]).map(Self::of).collect()
    }

    fn builder(&self) -> &'static dyn Any {
        &LayerBuilder(&Self)
    }
}

/// The plain non-linearity of an activation.
pub(super) fn act(activation: Activation) -> Act {
    match activation {
        Activation::Relu | Activation::Reglu => Act::Relu,
        Activation::Gelu | Activation::Geglu => Act::Gelu,
        Activation::GeluTanh => Act::GeluTanh,
        Activation::Silu | Activation::Swiglu => Act::Silu,
    }
}

impl BuildBlock for Ffn {
    fn build(&self, block: &Block, frame: &Frame, site: &Site<'_>, builder: &mut Builder) -> Option<Box<dyn Layer>> {
        let d = frame.d_model as usize;
        let inner = block.get(INNER).unwrap_or(frame.inner) as usize;
        let gated = frame.activation.gated();
        let norm = site.norm(builder, ROLE, "mlp.norm");
        let bias = site.style.bias && !gated;
        let mut linear = |part: &str, inputs: usize, outputs: usize, deviation: f32| {
            site.linear(builder, &site.name(ROLE, part), [inputs, outputs], deviation, bias)
        };
        let deviation = site.style.deviation;
        let up = match gated {
            true if site.style.split_gate => {
                ["mlp.gate", "mlp.up"].map(|part| linear(part, d, inner, deviation)).into()
            }
            true => vec![linear("mlp.up", d, 2 * inner, deviation)],
            false => vec![linear("mlp.up", d, inner, deviation)],
        };
        let down = linear("mlp.down", inner, d, site.style.output_deviation);
        let (act, inner_dropout, salt) = (act(frame.activation), site.style.inner_dropout, site.salt(1));
        site.residual(FfnLayer { up, down, act, gated, inner, inner_dropout, salt }, norm)
    }
}

/// A trained feed-forward neuron by neuron, for blocks that are made out of one.
pub(super) struct Dense {
    /// D
    pub width: usize,
    /// F
    pub inner: usize,
    /// The norm's parameters, in their order.
    pub norm: Vec<Vec<f32>>,
    /// What enters the neurons, [F, D]: one matrix, or gate and value.
    pub up: Vec<Vec<f32>>,
    /// F long, or empty.
    pub up_bias: Vec<f32>,
    /// What they write, [F, D].
    pub down: Vec<f32>,
    /// D long, or empty.
    pub down_bias: Vec<f32>,
}

/// What flows through a feed-forward in use.
pub(super) struct Flow {
    /// What enters it, [N, D].
    pub x: Vec<f32>,
    /// What its neurons give, [N, F].
    pub a: Vec<f32>,
}

impl Dense {
    /// Of a trained block, if it is a feed-forward in this frame.
    pub fn read(from: &Trained<'_>, frame: &Frame) -> Option<Self> {
        let style = build::of_backbone(frame.backbone).style(frame, 1);
        let (width, gated) = (frame.d_model as usize, frame.activation.gated());
        let bias = style.bias && !gated;
        let (norm, weights) = from.weights.split_at_checked(norm_params(frame) as usize / width)?;
        let mut weights = weights.iter().filter(|_| Ffn::inner_of(from.block, frame).is_some());
        // A matrix as [F, D], and its bias.
        let mut matrix = |layout: Layout| {
            let param = weights.next()?;
            let &[rows, cols] = &param.shape[..] else { return None };
            let bias = if bias { weights.next()?.read().into_owned() } else { Vec::new() };
            Some(match style.layout == layout {
                true => (param.read().into_owned(), cols, bias),
                false => (transposed(&param.read(), cols), rows, bias),
            })
        };
        let mut up = vec![matrix(Layout::OutIn)?];
        if gated && style.split_gate {
            up.push(matrix(Layout::OutIn)?);
        }
        let (down, found, down_bias) = matrix(Layout::InOut)?;
        if weights.next().is_some() || found != width || up.iter().any(|(_, found, _)| *found != width) {
            return None;
        }
        let (up_bias, inner) = (up[0].2.clone(), down.len() / width);
        let up: Vec<f32> = up.into_iter().flat_map(|(values, ..)| values).collect();
        let up: Vec<Vec<f32>> = up.chunks_exact((inner * width).max(1)).map(<[f32]>::to_vec).collect();
        let norm = norm.iter().map(|param| param.read().into_owned()).collect();
        (up.len() == if gated { 2 } else { 1 }).then_some(Self { width, inner, norm, up, up_bias, down, down_bias })
    }

    /// What flows through it where these hidden states [N, D] enter the block.
    pub fn flow(&self, hidden: &[f32], frame: &Frame) -> Option<Flow> {
        let (d, f) = (self.width, self.inner);
        let rows = hidden.len() / d;
        if rows == 0 || hidden.len() != rows * d {
            return None;
        }
        let mut x = hidden.to_vec();
        if frame.norm == NormPlace::Pre {
            let kind = build::of_backbone(frame.backbone).style(frame, 1).norm;
            let beta = self.norm.get(1).map_or(&[][..], |beta| beta);
            kind.forward(hidden, &self.norm[0], beta, &mut x, &mut vec![0.0; 2 * rows]);
        }
        let wide = self.up.len() * f;
        let (mut h, mut a) = (vec![0.0; rows * wide], vec![0.0; rows * f]);
        let bias = Some(&*self.up_bias).filter(|bias| !bias.is_empty());
        let ends: Vec<usize> = (1..=self.up.len()).map(|i| i * f).collect();
        let columns = MatMut::new(&mut h, rows, wide).split(&[rows], &ends);
        for (up, (_, _, y)) in self.up.iter().zip(columns) {
            linear::forward(Mat::new(&x, rows, d), Mat::new(up, f, d).t(), bias, y, false);
        }
        activation::forward(act(frame.activation), self.up.len() > 1, &h, &mut a, f);
        Some(Flow { x, a })
    }

    /// What the outputs of its neurons [N, F] write, [N, D], without the bias.
    pub fn write(&self, a: &[f32]) -> Vec<f32> {
        let rows = a.len() / self.inner;
        let mut y = vec![0.0; rows * self.width];
        let down = Mat::new(&self.down, self.inner, self.width);
        linear::forward(Mat::new(a, rows, self.inner), down, None, MatMut::new(&mut y, rows, self.width), false);
        y
    }
}

/// A matrix with rows and columns exchanged.
pub(super) fn transposed(values: &[f32], cols: usize) -> Vec<f32> {
    (0..cols).flat_map(|col| values[col..].iter().step_by(cols).copied()).collect()
}

struct FfnLayer {
    /// One matrix, or one for the gate and one for what it gates.
    up: Vec<Linear>,
    down: Linear,
    act: Act,
    gated: bool,
    inner: usize,
    /// Whether inner activations are dropped too.
    inner_dropout: bool,
    salt: u64,
}

/// h, the inner activations before the non-linearity.
struct FfnSaved {
    h: Buf,
}

impl FfnLayer {
    /// Width of h.
    fn wide(&self) -> usize {
        if self.gated { 2 * self.inner } else { self.inner }
    }

    /// h = x W1 + b1, side by side where it is gated.
    fn project(&self, pass: &Pass<'_>, input: &[f32], h: &mut [f32]) {
        match &self.up[..] {
            [all] => all.forward(pass.params, input, h),
            parts => {
                let rows = pass.rows();
                let x = Mat::new(input, rows, input.len() / rows);
                let columns = MatMut::new(h, rows, self.wide()).split(&[rows], &[self.inner, 2 * self.inner]);
                Linear::forward_parts(parts, pass.params, x, columns.into_iter().map(|(_, _, y)| y).collect());
            }
        }
    }

    fn dropout(&self, pass: &Pass<'_>) -> Dropout {
        if self.inner_dropout { pass.dropout[0].with(self.salt) } else { Dropout::NONE }
    }
}

impl Sublayer for FfnLayer {
    fn forward(&self, pass: &Pass<'_>, input: &[f32], _: &mut LayerState) -> (Buf, Saved) {
        let rows = pass.rows();
        let mut out = Buf::any(input.len());
        let mut h = Buf::any(rows * self.wide());
        if !pass.keep && !self.gated {
            let act = self.act;
            self.up[0].forward_finish(pass.params, input, &mut h, |h| activation::row(act, h));
            pass.show(&self.down, &h);
            self.down.forward(pass.params, &h, &mut out);
            return (out, Box::new(()));
        }
        let mut a = Buf::any(rows * self.inner);
        if self.gated {
            self.project(pass, input, &mut h);
            activation::forward(self.act, true, &h, &mut a, self.inner);
        } else {
            self.up[0].forward_act(pass.params, input, self.act, &mut h, &mut a);
        }
        self.dropout(pass).apply(&mut a);
        pass.show(&self.down, &a);
        self.down.forward(pass.params, &a, &mut out);
        (out, Box::new(FfnSaved { h }))
    }

    fn backward(&self, pass: &Pass<'_>, input: &[f32], saved: Saved, dout: &[f32], grads: &mut Grads) -> Buf {
        let FfnSaved { mut h } = *saved.downcast().expect("what this layer saved");
        let dropout = self.dropout(pass);
        let mut dh = Buf::any(h.len());
        let a = if !self.gated && dropout.is_none() {
            self.down.backward_act(pass.params, dout, self.act, &mut h, &mut dh);
            h
        } else {
            let mut a = Buf::any(pass.rows() * self.inner); // dA, then A again
            self.down.backward_input(pass.params, dout, &mut a, false);
            dropout.apply(&mut a);
            activation::backward(self.act, self.gated, &h, &mut a, &mut dh, self.inner);
            dropout.apply(&mut a);
            a
        };
        self.down.backward_params(&a, dout, grads);
        drop(a);
        let mut dinput = Buf::any(input.len());
        match &self.up[..] {
            [all] => {
                all.backward_input(pass.params, &dh, &mut dinput, false);
                all.backward_params(input, &dh, grads);
            }
            parts => {
                let rows = pass.rows();
                let (x, all) = (Mat::new(input, rows, input.len() / rows), Mat::new(&dh, rows, self.wide()));
                for (i, linear) in parts.iter().enumerate() {
                    let dy = all.cols_from(i * self.inner, self.inner);
                    linear.backward_input_from(pass.params, dy, &mut dinput, i > 0);
                    linear.backward_params_from(x, dy, grads);
                }
            }
        }
        dinput
    }

    fn composed(&self, graph: &Graph<'_>, input: &Tensor) -> candle_core::Result<Tensor> {
        let h = self.up.iter().map(|linear| linear.composed(graph, input)).collect::<candle_core::Result<Vec<_>>>()?;
        let h = Tensor::cat(&h, 1)?;
        graph.add_inner(&h);
        self.down.composed(graph, &activation::composed(self.act, self.gated, &h)?)
    }

    fn onnx(&self, pass: &mut OnnxPass<'_>, input: &Value) -> std::result::Result<Value, String> {
        let mut h = Linear::onnx_parts(&self.up, pass, input);
        if self.gated && h.len() == 1 {
            h = pass.parts(&h[0], [self.inner; 2]).into();
        }
        let a = pass.activation(self.act, &h[0], h.get(1));
        Ok(self.down.onnx(pass, &a))
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        self.up.iter_mut().chain([&mut self.down]).map(|linear| &mut linear.matrix).collect()
    }

    fn units(&self) -> Vec<Units> {
        let repeats = if self.gated && self.up.len() == 1 { 2 } else { 1 };
        let up = self.up.iter().flat_map(|linear| Slice::outputs(linear, repeats, 1));
        let slices = up.chain([Slice::inputs(&self.down, 1, 1)]).collect();
        vec![Units { knobs: vec![("inner", 1)], count: self.inner, slices }]
    }
}
