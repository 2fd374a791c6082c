//! Low-rank feed-forward, `low_rank`: a feed-forward of which each matrix is a product of two thin ones, x A B + b with A
//! [in, R] and B [R, out].
//!
//! | | parameters | FLOPs of one sequence |
//! |---|---|---|
//! | plain | 2 R (D + F) + F + D; 2 R (D + F) where the backbone has no biases | 4 T R (D + F) |
//! | gated | 3 R (D + F) | 6 T R (D + F) |
//!
//! It is made out of a trained feed-forward by truncated singular value decompositions ([`factor`]).

mod factor;

use super::{BYTES, ffn, memory_bytes, norm_params};
use crate::build::{self, BuildBlock, LayerBuilder, Site, Trained};
use crate::composed::Graph;
use crate::layer::{Layer, LayerState, Pass, Saved, Slice, Sublayer, Units};
use crate::linear::{Layout, Linear, Matrix};
use crate::onnx::OnnxPass;
use crate::params::{Builder, Grads};
use candle_core::Tensor;
use lathe_core::{Block, BlockKind, Cost, Domain, Frame, Knob, MAX_INNER, Result, Role, Setting};
use lathe_onnx::Value;
use lathe_ops::activation::{self, Act};
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use lathe_ops::gemm::{Mat, MatMut};
use std::any::Any;

pub(super) struct LowRank;

const INNER: usize = 0;
const RANK: usize = 1;
/// Lower ranks than this are not made out of feed-forwards, and those that are are multiples of it.
const LOWEST: u32 = 8;
const ROLE: Role = Role::PerToken;

/// F and R; a rank that is left open is a quarter of the width.
fn sizes(block: &Block, frame: &Frame) -> (u32, u32) {
    (block.get(INNER).unwrap_or(frame.inner), block.get(RANK).unwrap_or((frame.d_model / 4).max(1)))
}

impl BlockKind for LowRank {
    fn key(&self) -> &'static str {
        "low_rank"
    }

    fn letter(&self) -> Option<char> {
        None
    }

    fn knobs(&self) -> &'static [Knob] {
        const DOMAIN: Domain = Domain::Int { min: 1, max: MAX_INNER };
        &[Knob { name: "inner", mark: None, domain: DOMAIN }, Knob { name: "rank", mark: None, domain: DOMAIN }]
    }

    fn resolve(&self, block: &Block, frame: &Frame) -> Block {
        let (inner, rank) = sizes(block, frame);
        let mut block = *block;
        block.set(INNER, inner);
        block.set(RANK, rank);
        block
    }

    fn check(&self, _: &Block, _: &Frame) -> Result<()> {
        Ok(())
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        let (inner, rank) = sizes(block, frame);
        let (d, f, r) = (u64::from(frame.d_model), u64::from(inner), u64::from(rank));
        let gated = frame.activation.gated();
        let matrices = if gated { 3 } else { 2 };
        let bias = !gated && build::of_backbone(frame.backbone).style(frame, 1).bias;
        // norm and output, inner, and what is between the thin matrices
        let floats_per_token =
            2 * u128::from(d) + ffn::inner_floats(frame.activation, f) + u128::from(matrices) * u128::from(r);
        Cost {
            params: matrices * r * (d + f) + if bias { f + d } else { 0 },
            norm_params: norm_params(frame),
            flops: setting.tokens() * 2 * u128::from(matrices) * u128::from(r) * u128::from(d + f),
            activation_bytes: setting.tokens() * BYTES * floats_per_token,
            state_bytes: memory_bytes(frame, setting.mem_len),
        }
    }

    fn role(&self) -> Role {
        ROLE
    }

    /// None: it is for what is trained already.
    fn variants(&self, _: &Frame) -> Vec<Block> {
        Vec::new()
    }

    /// Ranks at which it costs a quarter and half of a feed-forward.
    fn derived(&self, from: &Block, frame: &Frame) -> Vec<Block> {
        let Some(inner) = ffn::Ffn::inner_of(from, frame) else { return Vec::new() };
        let (d, f) = (u64::from(frame.d_model), u64::from(inner));
        let rank = |parts: u64| (d * f / (d + f) / parts) as u32 / LOWEST * LOWEST;
        let of = |rank: u32| {
            let mut block = Block::new(&Self);
            block.set(INNER, inner);
            block.set(RANK, rank);
            block
        };
        [4, 2].into_iter().map(rank).filter(|&rank| rank >= LOWEST).map(of).collect()
    }

    fn telling_knobs(&self) -> usize {
        2
    }

    fn builder(&self) -> &'static dyn Any {
        &LayerBuilder(&Self)
    }
}

impl BuildBlock for LowRank {
    fn build(&self, block: &Block, frame: &Frame, site: &Site<'_>, builder: &mut Builder) -> Option<Box<dyn Layer>> {
        let (inner, rank) = sizes(block, frame);
        let (d, inner, rank) = (frame.d_model as usize, inner as usize, rank as usize);
        let gated = frame.activation.gated();
        let norm = site.norm(builder, ROLE, "low_rank.norm");
        let bias = site.style.bias && !gated;
        let mut thin = |part: &str, [inputs, outputs]: [usize; 2], deviation: f32| {
            let name = |side: &str| site.name(ROLE, &format!("low_rank.{part}.{side}"));
            // Each half is drawn so that their product deviates as one matrix would.
            let deviation = (deviation / (rank as f32).sqrt()).sqrt();
            Thin {
                a: site.linear(builder, &name("a"), [inputs, rank], deviation, false),
                b: site.linear(builder, &name("b"), [rank, outputs], deviation, bias),
            }
        };
        let up: &[&str] = if gated { &["gate", "up"] } else { &["up"] };
        let up = up.iter().map(|part| thin(part, [d, inner], site.style.deviation)).collect();
        let down = thin("down", [inner, d], site.style.output_deviation);
        let (act, inner_dropout, salt) = (ffn::act(frame.activation), site.style.inner_dropout, site.salt(1));
        site.residual(LowRankLayer { up, down, act, inner, inner_dropout, salt }, norm)
    }

    fn derive(&self, to: &Block, from: &Trained<'_>, frame: &Frame) -> Option<Vec<Vec<f32>>> {
        let dense = ffn::Dense::read(from, frame)?;
        let (inner, rank) = sizes(to, frame);
        let (d, f, rank) = (dense.width, dense.inner, rank as usize);
        if inner as usize != f {
            return None;
        }
        let flow = from.hidden.and_then(|hidden| dense.flow(hidden, frame));
        let layout = build::of_backbone(frame.backbone).style(frame, 1).layout;
        let turn = |values: Vec<f32>, cols: usize| match layout {
            Layout::InOut => values,
            Layout::OutIn => ffn::transposed(&values, cols),
        };
        let thin = |w: &[f32], [inputs, outputs]: [usize; 2], seen: Option<&[f32]>| -> Option<[Vec<f32>; 2]> {
            let [a, b] = factor::factor(w, [inputs, outputs], rank, seen).ok()?;
            Some([turn(a, rank), turn(b, outputs)])
        };
        let mut made = dense.norm.clone();
        for up in &dense.up {
            let up = ffn::transposed(up, d); // [D, F]
            made.extend(thin(&up, [d, f], flow.as_ref().map(|flow| &*flow.x))?);
            made.extend(Some(dense.up_bias.clone()).filter(|bias| !bias.is_empty()));
        }
        made.extend(thin(&dense.down, [f, d], flow.as_ref().map(|flow| &*flow.a))?);
        made.extend(Some(dense.down_bias.clone()).filter(|bias| !bias.is_empty()));
        Some(made)
    }
}

/// x A B + b.
struct Thin {
    a: Linear,
    b: Linear,
}

impl Thin {
    /// What is between the two: x A, [N, R].
    fn reduce(&self, pass: &Pass<'_>, x: &[f32]) -> Buf {
        let mut t = Buf::any(x.len() / self.a.inputs() * self.a.outputs());
        self.a.forward(pass.params, x, &mut t);
        t
    }

    /// The gradient of x A for that of the output; adds those of B and b.
    fn reduce_backward(&self, pass: &Pass<'_>, t: &[f32], dy: Mat<'_>, grads: &mut Grads) -> Buf {
        let mut dt = Buf::any(t.len());
        self.b.backward_input_from(pass.params, dy, &mut dt, false);
        self.b.backward_params_from(Mat::new(t, dy.rows(), self.b.inputs()), dy, grads);
        dt
    }

    fn composed(&self, graph: &Graph<'_>, x: &Tensor) -> candle_core::Result<Tensor> {
        self.b.composed(graph, &self.a.composed(graph, x)?)
    }

    fn onnx(&self, pass: &mut OnnxPass<'_>, x: &Value) -> Value {
        let t = self.a.onnx(pass, x);
        self.b.onnx(pass, &t)
    }
}

struct LowRankLayer {
    /// One, or one for the gate and one for what it gates.
    up: Vec<Thin>,
    down: Thin,
    act: Act,
    inner: usize,
    /// Whether inner activations are dropped too.
    inner_dropout: bool,
    salt: u64,
}

/// What is between the thin matrices, and the inner activations before the non-linearity, side by side.
struct LowRankSaved {
    ups: Vec<Buf>,
    h: Buf,
    down: Buf,
}

impl LowRankLayer {
    /// Width of h.
    fn wide(&self) -> usize {
        self.up.len() * self.inner
    }

    fn gated(&self) -> bool {
        self.up.len() > 1
    }

    fn dropout(&self, pass: &Pass<'_>) -> Dropout {
        if self.inner_dropout { pass.dropout[0].with(self.salt) } else { Dropout::NONE }
    }
}

impl Sublayer for LowRankLayer {
    fn forward(&self, pass: &Pass<'_>, input: &[f32], _: &mut LayerState) -> (Buf, Saved) {
        let rows = pass.rows();
        let ups: Vec<Buf> = self.up.iter().map(|up| up.reduce(pass, input)).collect();
        let (mut h, mut a) = (Buf::any(rows * self.wide()), Buf::any(rows * self.inner));
        let ends: Vec<usize> = (1..=self.up.len()).map(|i| i * self.inner).collect();
        let columns = MatMut::new(&mut h, rows, self.wide()).split(&[rows], &ends);
        for ((up, t), (_, _, y)) in self.up.iter().zip(&ups).zip(columns) {
            up.b.forward_into(pass.params, Mat::new(t, rows, up.b.inputs()), y);
        }
        activation::forward(self.act, self.gated(), &h, &mut a, self.inner);
        self.dropout(pass).apply(&mut a);
        pass.show(&self.down.a, &a);
        let down = self.down.reduce(pass, &a);
        let mut out = Buf::any(input.len());
        self.down.b.forward(pass.params, &down, &mut out);
        (out, Box::new(LowRankSaved { ups, h, down }))
    }

    fn backward(&self, pass: &Pass<'_>, input: &[f32], saved: Saved, dout: &[f32], grads: &mut Grads) -> Buf {
        let LowRankSaved { ups, h, down } = *saved.downcast().expect("what this layer saved");
        let (rows, dropout) = (pass.rows(), self.dropout(pass));
        let d = input.len() / rows;
        let dt = self.down.reduce_backward(pass, &down, Mat::new(dout, rows, d), grads);
        let mut a = Buf::any(rows * self.inner); // dA, then A again
        self.down.a.backward_input(pass.params, &dt, &mut a, false);
        dropout.apply(&mut a);
        let mut dh = Buf::any(h.len());
        activation::backward(self.act, self.gated(), &h, &mut a, &mut dh, self.inner);
        dropout.apply(&mut a);
        self.down.a.backward_params(&a, &dt, grads);
        let mut dinput = Buf::any(input.len());
        let all = Mat::new(&dh, rows, self.wide());
        for (i, (up, t)) in self.up.iter().zip(&ups).enumerate() {
            let dt = up.reduce_backward(pass, t, all.cols_from(i * self.inner, self.inner), grads);
            up.a.backward_input(pass.params, &dt, &mut dinput, i > 0);
            up.a.backward_params(input, &dt, grads);
        }
        dinput
    }

    fn composed(&self, graph: &Graph<'_>, input: &Tensor) -> candle_core::Result<Tensor> {
        let h = self.up.iter().map(|up| up.composed(graph, input)).collect::<candle_core::Result<Vec<_>>>()?;
        let h = Tensor::cat(&h, 1)?;
        graph.add_inner(&h);
        self.down.composed(graph, &activation::composed(self.act, self.gated(), &h)?)
    }

    fn onnx(&self, pass: &mut OnnxPass<'_>, input: &Value) -> std::result::Result<Value, String> {
        let h: Vec<Value> = self.up.iter().map(|up| up.onnx(pass, input)).collect();
        let a = pass.activation(self.act, &h[0], h.get(1));
        Ok(self.down.onnx(pass, &a))
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        self.up.iter_mut().chain([&mut self.down]).flat_map(|thin| [&mut thin.a.matrix, &mut thin.b.matrix]).collect()
    }

    fn units(&self) -> Vec<Units> {
        let up = self.up.iter().flat_map(|up| Slice::outputs(&up.b, 1, 1));
        let slices = up.chain([Slice::inputs(&self.down.a, 1, 1)]).collect();
        vec![Units { knobs: vec![("inner", 1)], count: self.inner, slices }]
    }
}
