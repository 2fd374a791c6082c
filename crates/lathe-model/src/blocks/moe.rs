//! Mixture of experts, `m` (Shazeer et al., 2017; Fedus et al., 2021; as in PLANER): a gate without bias
//! gives each token a distribution over the experts; the `top_k` most probable feed-forward nets process
//! it, weighted by their probabilities, which `renormalise` makes sum to 1. No token is dropped.
//!
//! | parameters | FLOPs of one sequence |
//! |---|---|
//! | experts * (2 D F + F + D) + D * experts | 2 T D experts + top_k * 4 T D F |

mod split;

use super::{BYTES, ffn, memory_bytes, norm_params};
use crate::build::{BuildBlock, LayerBuilder, Site, Trained};
use crate::composed::Graph;
use crate::layer::{Layer, LayerState, Pass, Saved, Slice, Sublayer, Units};
use crate::linear::{Experts, Layout, Linear, Matrix};
use crate::onnx::OnnxPass;
use crate::params::{Builder, Grads, Init};
use candle_core::Tensor;
use lathe_core::{Block, BlockKind, Cost, Domain, Error, Frame, Knob, MAX_INNER, Result, Role, Setting};
use lathe_onnx::Value;
use lathe_ops::Precision;
use lathe_ops::activation::{self, Act};
use lathe_ops::buffer::Buf;
use lathe_ops::moe::{self, Routing};
use std::any::Any;

/// How a mixture of experts spread its tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct MoeStats {
    /// Assignments of each expert.
    pub loads: Vec<usize>,
    /// The balance loss, 1 when uniform.
    pub balance: f32,
}

pub(super) struct Moe;

const EXPERTS: usize = 0;
const TOP_K: usize = 1;
const INNER: usize = 2;
const RENORMALISE: usize = 3;
const MAX_EXPERTS: u32 = 1 << 12;
/// Experts of the mixtures on offer in searches, as in PLANER.
const OFFERED: u32 = 8;
/// Narrower experts than this are not made out of feed-forwards.
const NARROWEST: u32 = 16;
const ROLE: Role = Role::PerToken;

/// Experts, and how many of them process a token. A bare `m` is PLANER's: 8 experts, 2 active.
fn shape(block: &Block) -> (u32, u32) {
    let experts = block.get(EXPERTS).unwrap_or(8);
    (experts, block.get(TOP_K).unwrap_or(2.min(experts)))
}

impl BlockKind for Moe {
    fn key(&self) -> &'static str {
        "moe"
    }

    fn letter(&self) -> Option<char> {
        Some('m')
    }

    fn knobs(&self) -> &'static [Knob] {
        const DOMAIN: Domain = Domain::Int { min: 1, max: MAX_EXPERTS };
        &[
            Knob { name: "experts", mark: Some(""), domain: DOMAIN },
            Knob { name: "top_k", mark: Some("k"), domain: DOMAIN },
            Knob { name: "inner", mark: Some("i"), domain: Domain::Int { min: 1, max: MAX_INNER } },
            Knob { name: "renormalise", mark: None, domain: Domain::Flag },
        ]
    }

    fn resolve(&self, block: &Block, frame: &Frame) -> Block {
        let (experts, top_k) = shape(block);
        let mut block = *block;
        block.set(EXPERTS, experts);
        block.set(TOP_K, top_k);
        block.set(INNER, block.get(INNER).unwrap_or(frame.inner));
        block.set(RENORMALISE, block.get(RENORMALISE).unwrap_or(0));
        block
    }

    fn check(&self, block: &Block, _: &Frame) -> Result<()> {
        let (experts, top_k) = shape(block);
        if top_k > experts {
            let expected = format!("at most the number of experts, which is {experts}");
            return Err(Error::value("top_k", top_k, expected));
        }
        Ok(())
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        let (experts, top_k) = shape(block);
        let (experts, top_k) = (u64::from(experts), u128::from(top_k));
        let d = u64::from(frame.d_model);
        let f = u64::from(block.get(INNER).unwrap_or(frame.inner));
        let gate_flops = 2 * u128::from(d) * u128::from(experts);
        let (wide_d, wide_experts) = (u128::from(d), u128::from(experts));
        // norm, gate, for each active expert its inner and its output, and the sum
        let inner_and_output = ffn::inner_floats(frame.activation, f) + wide_d;
        let floats_per_token = wide_d + wide_experts + top_k * inner_and_output + wide_d;
        Cost {
            params: experts * ffn::params(frame.activation, d, f, true) + d * experts,
            norm_params: norm_params(frame),
            flops: setting.tokens() * (gate_flops + top_k * ffn::flops_per_token(frame.activation, d, f)),
            activation_bytes: setting.tokens() * BYTES * floats_per_token,
            state_bytes: memory_bytes(frame, setting.mem_len),
        }
    }

    fn role(&self) -> Role {
        ROLE
    }

    /// Experts of half the frame's inner width, of which one is active.
    fn variants(&self, frame: &Frame) -> Vec<Block> {
        let mut block = Block::new(&Self);
        block.set(EXPERTS, OFFERED);
        block.set(TOP_K, 1);
        block.set(INNER, (frame.inner / 2).max(1));
        vec![block]
    }

    /// The neurons of a feed-forward in groups, of which a quarter or half is active.
    fn derived(&self, from: &Block, frame: &Frame) -> Vec<Block> {
        let Some(inner) = ffn::Ffn::inner_of(from, frame) else { return Vec::new() };
        let fits = |(experts, _): &(u32, u32)| inner % experts == 0 && inner / experts >= NARROWEST;
        let of = |(experts, top_k): (u32, u32)| {
            let mut block = Block::new(&Self);
            block.set(EXPERTS, experts);
            block.set(TOP_K, top_k);
            block.set(INNER, inner / experts);
            block
        };
        [(4, 1), (8, 2), (8, 4)].into_iter().filter(fits).map(of).collect()
    }

    /// A feed-forward as wide as all experts together (PLANER's iso-parameter comparison).
    fn dense(&self, block: &Block, frame: &Frame) -> Option<Block> {
        let (experts, _) = shape(block);
        Some(ffn::Ffn::of(experts * block.get(INNER).unwrap_or(frame.inner)))
    }

    fn telling_knobs(&self) -> usize {
        3
    }

    fn builder(&self) -> &'static dyn Any {
        &LayerBuilder(&Self)
    }
}

impl BuildBlock for Moe {
    fn build(&self, block: &Block, frame: &Frame, site: &Site<'_>, builder: &mut Builder) -> Option<Box<dyn Layer>> {
        let (experts, top_k) = shape(block);
        let (experts, top_k, d) = (experts as usize, top_k as usize, frame.d_model as usize);
        let inner = block.get(INNER).unwrap_or(frame.inner) as usize;
        let gated = frame.activation.gated();
        let norm = site.norm(builder, ROLE, "moe.norm");
        let deviation = site.style.deviation;
        let name = |part: &str, what: &str| format!("{}.{what}", site.name(ROLE, part));
        let gate = builder.param(name("moe.gate", "weight"), &[d, experts], Init::Normal(0.0, deviation));
        let mut experts_of = |part: &str, inputs: usize, outputs: usize, deviation: f32| {
            let shape = [experts, inputs, outputs];
            let weight = builder.param(name(part, "weight"), &shape, Init::Normal(0.0, deviation));
            let bias = (!gated).then(|| builder.param(name(part, "bias"), &[experts, outputs], Init::Constant(0.0)));
            Experts::new(weight, bias, experts, inputs, outputs)
        };
        let up = experts_of("moe.c_fc", d, if gated { 2 * inner } else { inner }, deviation);
        let down = experts_of("moe.c_proj", inner, d, site.style.output_deviation);
        let mut gate = Linear::new(gate, None, Layout::InOut, d, experts);
        gate.matrix.set_exact(); // a rounded gate would choose other experts
        let (renormalise, act, salt) = (block.get(RENORMALISE) == Some(1), ffn::act(frame.activation), site.salt(3));
        site.residual(MoeLayer { gate, up, down, experts, top_k, inner, act, gated, renormalise, salt }, norm)
    }

    fn derive(&self, to: &Block, from: &Trained<'_>, frame: &Frame) -> Option<Vec<Vec<f32>>> {
        let dense = ffn::Dense::read(from, frame)?;
        let flow = from.hidden.and_then(|hidden| dense.flow(hidden, frame));
        let (experts, top_k) = shape(to);
        let shape = split::Shape {
            experts: experts as usize,
            top_k: top_k as usize,
            inner: to.get(INNER).unwrap_or(frame.inner) as usize,
            renormalise: to.get(RENORMALISE) == Some(1),
        };
        let experts = split::split(&dense, shape, flow.as_ref())?;
        Some(dense.norm.into_iter().chain(experts).collect())
    }
}

struct MoeLayer {
    gate: Linear,
    up: Experts,
    down: Experts,
    experts: usize,
    top_k: usize,
    inner: usize,
    act: Act,
    gated: bool,
    renormalise: bool,
    salt: u64,
}

struct MoeSaved {
    routing: Routing,
    /// Inputs, inner activations before the non-linearity and outputs, row by assignment.
    x: Buf,
    h: Buf,
    y: Buf,
}

impl Sublayer for MoeLayer {
    fn forward(&self, pass: &Pass<'_>, input: &[f32], _: &mut LayerState) -> (Buf, Saved) {
        let d = input.len() / pass.rows();
        let mut logits = vec![0.0; pass.rows() * self.experts];
        self.gate.forward(pass.params, input, &mut logits);
        let routing = Routing::new(logits, self.experts, self.top_k, self.renormalise);
        let assignments = routing.tokens.len();
        let (mut x, mut h) = (Buf::any(assignments * d), Buf::any(assignments * self.up.outputs()));
        routing.gather(input, d, &mut x);
        let mut y = Buf::any(assignments * d);
        if !pass.keep && !self.gated {
            self.up.forward_finish(pass.params, &routing, &x, &mut h, &|h| activation::row(self.act, h));
            self.down.forward(pass.params, &routing, &h, &mut y);
        } else {
            self.up.forward(pass.params, &routing, &x, &mut h);
            let mut a = Buf::any(assignments * self.inner);
            activation::forward(self.act, self.gated, &h, &mut a, self.inner);
            pass.dropout[2].with(self.salt).apply(&mut a);
            self.down.forward(pass.params, &routing, &a, &mut y);
        }
        let mut out = Buf::any(input.len());
        routing.combine(&y, d, &mut out);
        pass.reports.add(MoeStats { loads: routing.loads(), balance: routing.balance() });
        (out, Box::new(MoeSaved { routing, x, h, y }))
    }

    fn backward(&self, pass: &Pass<'_>, input: &[f32], saved: Saved, dout: &[f32], grads: &mut Grads) -> Buf {
        let MoeSaved { routing, x, h, y } = *saved.downcast().expect("what this layer saved");
        let d = input.len() / pass.rows();
        let dlogits = routing.logits_backward(dout, &y, d, pass.balance);
        let mut dy = y;
        routing.combine_backward(dout, d, &mut dy);
        let mut a = Buf::any(routing.tokens.len() * self.inner); // dA, then A again
        self.down.backward_input(pass.params, &routing, &dy, &mut a);
        let dropout = pass.dropout[2].with(self.salt);
        dropout.apply(&mut a);
        let mut dh = Buf::any(h.len());
        activation::backward(self.act, self.gated, &h, &mut a, &mut dh, self.inner);
        dropout.apply(&mut a);
        self.down.backward_params(&routing, &a, &dy, grads);
        self.up.backward_params(&routing, &x, &dh, grads);
        let mut dx = x;
        self.up.backward_input(pass.params, &routing, &dh, &mut dx);
        let mut dinput = Buf::any(input.len());
        routing.gather_backward(&dx, d, &mut dinput);
        self.gate.backward_params(input, &dlogits, grads);
        self.gate.backward_input(pass.params, &dlogits, &mut dinput, true);
        dinput
    }

    fn composed(&self, graph: &Graph<'_>, input: &Tensor) -> candle_core::Result<Tensor> {
        let logits = self.gate.composed(graph, input)?;
        let (out, balance) = moe::composed(input, &logits, self.top_k, self.renormalise, |expert, x| {
            let h = self.up.composed(graph, expert, x)?;
            self.down.composed(graph, expert, &activation::composed(self.act, self.gated, &h)?)
        })?;
        graph.add_balance(balance);
        Ok(out)
    }

    /// Each expert gets the tokens that are its own, and no others.
    fn onnx(&self, pass: &mut OnnxPass<'_>, input: &Value) -> std::result::Result<Value, String> {
        let (one, last, first) = (pass.graph.ints(&[1]), pass.graph.ints(&[-1]), pass.graph.ints(&[0]));
        let logits = self.gate.onnx(pass, input);
        let all = pass.graph.node("Softmax", &[&logits], &[("axis", (-1).into())]);
        let count = pass.graph.ints(&[self.top_k as i64]);
        let mut best = pass.graph.several("TopK", &[&all, &count], 2, &[("axis", (-1).into())]).into_iter();
        let (Some(mut weights), Some(chosen)) = (best.next(), best.next()) else { unreachable!("two outputs") };
        if self.renormalise {
            let sum = pass.graph.node("ReduceSum", &[&weights, &last], &[("keepdims", 1.into())]);
            weights = pass.graph.node("Div", &[&weights, &sum], &[]);
        }
        // (B, T, D) -> (N, D), (B, T, k) -> (N, k)
        let x = pass.reshape(input, &[-1, self.down.outputs() as i64]);
        let [weights, chosen] = [weights, chosen].map(|value| pass.reshape(&value, &[-1, self.top_k as i64]));
        let shape = pass.graph.node("Shape", &[&x], &[]);
        let zero = pass.graph.float(0.0);
        let mut out = pass.graph.node("Expand", &[&zero, &shape], &[]);
        for expert in 0..self.experts {
            let number = pass.graph.int(expert as i64);
            let is_chosen = pass.graph.node("Equal", &[&chosen, &number], &[]);
            let places = pass.graph.node("NonZero", &[&is_chosen], &[]); // tokens, and which of their choices it is
            let rows = pass.graph.node("Gather", &[&places, &first], &[("axis", 0.into())]);
            let rows = pass.graph.node("Squeeze", &[&rows, &first], &[]);
            let own = pass.graph.node("Gather", &[&x, &rows], &[("axis", 0.into())]);
            let own = pass.graph.node("Unsqueeze", &[&own, &first], &[]); // [1, rows, D], of which there may be none
            let mut h = vec![self.up.onnx(pass, expert, &own)];
            if self.gated {
                h = pass.parts(&h[0], [self.inner; 2]).into();
            }
            let a = pass.activation(self.act, &h[0], h.get(1));
            let y = self.down.onnx(pass, expert, &a);
            let y = pass.graph.node("Squeeze", &[&y, &first], &[]);
            let share = pass.graph.node("Where", &[&is_chosen, &weights, &zero], &[]);
            let share = pass.graph.node("ReduceSum", &[&share, &last], &[("keepdims", 1.into())]);
            let share = pass.graph.node("Gather", &[&share, &rows], &[("axis", 0.into())]);
            let y = pass.graph.node("Mul", &[&y, &share], &[]);
            let rows = pass.graph.node("Unsqueeze", &[&rows, &one], &[]);
            out = pass.graph.node("ScatterND", &[&out, &rows, &y], &[("reduction", "add".into())]);
        }
        let shape = pass.graph.node("Shape", &[input], &[]);
        Ok(pass.graph.node("Reshape", &[&out, &shape], &[]))
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        vec![&mut self.gate.matrix, &mut self.up.matrix, &mut self.down.matrix]
    }

    /// The gate stays in f32: who goes where hangs on small differences.
    fn set_precision(&mut self, precision: Precision) {
        self.up.matrix.set_precision(precision);
        self.down.matrix.set_precision(precision);
    }

    fn units(&self) -> Vec<Units> {
        let writes = |param| param == self.down.matrix.weight();
        let whole = |param, axis| Slice { param, axis, repeats: 1, width: 1, writes: writes(param) };
        let biases = [&self.up, &self.down].into_iter().filter_map(Experts::bias_param);
        let weights = [self.up.matrix.weight(), self.down.matrix.weight()];
        let slices = weights.into_iter().chain(biases).map(|param| whole(param, 0));
        let slices = slices.chain([whole(self.gate.matrix.weight(), 1)]).collect();
        vec![Units { knobs: vec![("experts", 1)], count: self.experts, slices }]
    }
}
