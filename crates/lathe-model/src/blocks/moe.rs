//! Mixture of experts, `m` (Shazeer et al., 2017; Fedus et al., 2021; as in PLANER): a gate without bias
//! gives each token a distribution over the experts; the `top_k` most probable feed-forward nets process
//! it, weighted by their probabilities, which `renormalise` makes sum to 1. No token is dropped.
//!
//! | parameters | FLOPs of one sequence |
//! |---|---|
//! | experts * (2 D F + F + D) + D * experts | 2 T D experts + top_k * 4 T D F |

use super::{BYTES, Build, DEVIATION, Names, ffn, memory_bytes, norm_deviation, output_deviation};
use crate::composed::Graph;
use crate::layer::{LayerState, MoeStats, NormParams, Pass, Saved, Sublayer};
use crate::packed::PackedOnce;
use crate::params::{Builder, Grads, Init, Layout, Linear, ParamId, Params};
use candle_core::Tensor;
use lathe_core::{Block, BlockKind, Cost, Domain, Error, Frame, Knob, MAX_INNER, Positions, Result, Setting};
use lathe_ops::Precision;
use lathe_ops::activation::{self, Act};
use lathe_ops::buffer::Buf;
use lathe_ops::gemm::{Mat, MatMut, Packed, Product, Rhs, gemm_grouped};
use lathe_ops::linear;
use lathe_ops::moe::{self, Routing};

pub(super) struct Moe;

const EXPERTS: usize = 0;
const TOP_K: usize = 1;
const INNER: usize = 2;
const RENORMALISE: usize = 3;
const MAX_EXPERTS: u32 = 1 << 12;

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
            params: experts * ffn::params(frame.activation, d, f) + d * experts,
            norm_params: 2 * d,
            flops: setting.tokens() * (gate_flops + top_k * ffn::flops_per_token(frame.activation, d, f)),
            activation_bytes: setting.tokens() * BYTES * floats_per_token,
            state_bytes: memory_bytes(frame, setting.mem_len),
        }
    }
}

impl Build for Moe {
    fn build(
        &self,
        block: &Block,
        frame: &Frame,
        names: &Names,
        builder: &mut Builder,
    ) -> Option<(Box<dyn Sublayer>, NormParams)> {
        let (experts, top_k) = shape(block);
        let (experts, top_k, d) = (experts as usize, top_k as usize, frame.d_model as usize);
        let inner = block.get(INNER).unwrap_or(frame.inner) as usize;
        let gated = frame.activation.gated();
        let layer = format!("{}.moe", names.layer);
        let norm_name = match frame.backbone.positions {
            Positions::Learned => format!("{}.ln_2", names.layer),
            Positions::Relative => format!("{layer}.layer_norm"),
        };
        let norm = NormParams::new(builder, &norm_name, d, norm_deviation(frame));
        let gate = builder.param(format!("{layer}.gate.weight"), &[d, experts], Init::Normal(0.0, DEVIATION));
        let mut experts_of = |name: &str, inputs: usize, outputs: usize, deviation: f32| {
            let weight = builder.param(
                format!("{layer}.{name}.weight"),
                &[experts, inputs, outputs],
                Init::Normal(0.0, deviation),
            );
            let bias = (!gated)
                .then(|| builder.param(format!("{layer}.{name}.bias"), &[experts, outputs], Init::Constant(0.0)));
            Experts {
                weight,
                bias,
                inputs,
                outputs,
                precision: Precision::F32,
                packed: Vec::new(),
                step: Default::default(),
            }
        };
        let up = experts_of("c_fc", d, if gated { 2 * inner } else { inner }, DEVIATION);
        let down = experts_of("c_proj", inner, d, output_deviation(frame, names));
        let gate = Linear::new(gate, None, Layout::InOut, d, experts);
        let renormalise = block.get(RENORMALISE) == Some(1);
        let salt = names.salt(3);
        Some((
            Box::new(MoeLayer {
                gate,
                up,
                down,
                experts,
                top_k,
                inner,
                act: ffn::act(frame.activation),
                gated,
                renormalise,
                salt,
            }),
            norm,
        ))
    }
}

/// What happens to a part of a row of results.
type Finish<'a> = &'a (dyn Fn(&mut [f32]) + Sync);

/// The same linear layer of every expert: weights [E, in, out], biases [E, out].
struct Experts {
    weight: ParamId,
    bias: Option<ParamId>,
    inputs: usize,
    outputs: usize,
    precision: Precision,
    packed: Vec<Packed>,
    /// Weights and their transposes, where products are in bf16.
    step: [PackedOnce; 2],
}

impl Experts {
    fn mat<'a>(&self, params: &'a Params, expert: usize) -> Mat<'a> {
        let size = self.inputs * self.outputs;
        Mat::new(&params.get(self.weight)[expert * size..][..size], self.inputs, self.outputs)
    }

    /// Calls `products` with the weights of all experts, or with their transposes.
    fn with_weights(&self, params: &Params, experts: usize, transposed: bool, products: impl FnOnce(Vec<Rhs<'_>>)) {
        let mats = (0..experts).map(|e| self.mat(params, e)).map(|mat| if transposed { mat.t() } else { mat });
        match self.precision {
            _ if !self.packed.is_empty() && !transposed => products(self.packed.iter().map(Rhs::from).collect()),
            Precision::F32 => products(mats.map(Rhs::from).collect()),
            Precision::Bf16 => {
                let packed = self.step[usize::from(transposed)].get(params.version(), self.precision, mats);
                products(packed.iter().map(Rhs::from).collect());
            }
        }
    }

    /// y = x W + b for the rows of each expert.
    fn forward(&self, params: &Params, routing: &Routing, x: &[f32], y: &mut [f32]) {
        self.forward_finish(params, routing, x, y, &|_| {});
    }

    /// As [`Self::forward`], with `finish` applied to the results while they are in the cache.
    fn forward_finish(&self, params: &Params, routing: &Routing, x: &[f32], y: &mut [f32], finish: Finish<'_>) {
        self.with_weights(params, routing.experts(), false, |weights| {
            self.forward_with(weights, params, routing, x, y, finish);
        });
    }

    fn forward_with(
        &self,
        weights: Vec<Rhs<'_>>,
        params: &Params,
        routing: &Routing,
        x: &[f32],
        y: &mut [f32],
        finish: Finish<'_>,
    ) {
        let products = cut(y, routing, self.outputs).into_iter().zip(weights).enumerate().map(|(e, (c, b))| Product {
            c,
            a: rows(x, routing, e, self.inputs),
            b,
            accumulate: false,
        });
        let products = products.collect();
        let bias = self.bias.map(|bias| params.get(bias));
        gemm_grouped(
            products,
            Some(&|e, _, col, y| {
                if let Some(bias) = bias {
                    linear::add_row(y, &bias[e * self.outputs + col..]);
                }
                finish(y);
            }),
        );
    }

    /// y = x W + b of one expert, as a graph.
    fn composed(&self, graph: &Graph<'_>, expert: usize, x: &Tensor) -> candle_core::Result<Tensor> {
        let bias = self.bias.map(|bias| graph.var(bias).get(expert)).transpose()?;
        linear::composed(x, &graph.var(self.weight).get(expert)?, bias.as_ref())
    }

    /// dx = dy W^T.
    fn backward_input(&self, params: &Params, routing: &Routing, dy: &[f32], dx: &mut [f32]) {
        self.with_weights(params, routing.experts(), true, |weights| {
            let products = cut(dx, routing, self.inputs).into_iter().zip(weights).enumerate();
            let products =
                products.map(|(e, (c, b))| Product { c, a: rows(dy, routing, e, self.outputs), b, accumulate: false });
            gemm_grouped(products.collect(), None);
        });
    }

    /// Adds the gradients of weights and biases.
    fn backward_params(&self, routing: &Routing, x: &[f32], dy: &[f32], grads: &mut Grads) {
        if !grads.wanted() {
            return;
        }
        let (dw, accumulate) = grads.start(self.weight);
        let products = dw.chunks_exact_mut(self.inputs * self.outputs).enumerate().map(|(e, dw)| {
            let (x, dy) = (rows(x, routing, e, self.inputs), rows(dy, routing, e, self.outputs));
            Product {
                c: MatMut::new(dw, self.inputs, self.outputs),
                a: x.t(),
                b: Rhs::new(dy, self.precision),
                accumulate,
            }
        });
        gemm_grouped(products.collect(), None);
        if let Some(bias) = self.bias {
            for (e, dbias) in grads.add(bias).chunks_exact_mut(self.outputs).enumerate() {
                linear::bias_backward(rows(dy, routing, e, self.outputs), dbias);
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
        let (mut x, mut h) = (Buf::any(assignments * d), Buf::any(assignments * self.up.outputs));
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
        pass.record(MoeStats { loads: routing.loads(), balance: routing.balance() });
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

    fn linears(&mut self) -> Vec<&mut Linear> {
        vec![&mut self.gate]
    }

    /// The gate stays in f32: who goes where hangs on small differences.
    fn set_precision(&mut self, precision: Precision) {
        self.up.precision = precision;
        self.down.precision = precision;
    }

    fn pack(&mut self, params: &Params) -> Vec<ParamId> {
        let pack = |experts: &mut Experts| {
            let pack = |e: usize| Packed::with_precision(experts.mat(params, e), experts.precision);
            experts.packed = (0..self.experts).map(pack).collect();
            experts.weight
        };
        [&mut self.up, &mut self.down].map(pack).into()
    }
}
