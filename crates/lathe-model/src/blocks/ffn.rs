//! Feed-forward, `f`: act(x W1 + b1) W2 + b2 with inner width F.
//!
//! Gated activations (Shazeer, 2020) multiply act(x W1) by a second product x V before W2; that makes
//! three matrices of two, all without bias.
//!
//! | | parameters | FLOPs of one sequence |
//! |---|---|---|
//! | plain | 2 D F + F + D | 4 T D F |
//! | gated | 3 D F | 6 T D F |

use super::{BYTES, Build, DEVIATION, Names, memory_bytes, norm_deviation, output_deviation};
use crate::composed::Graph;
use crate::layer::{LayerState, NormParams, Pass, Saved, Sublayer};
use crate::params::{Builder, Grads, Init, Layout, Linear};
use candle_core::Tensor;
use lathe_core::{Activation, Block, BlockKind, Cost, Domain, Frame, Knob, MAX_INNER, Positions, Result, Setting};
use lathe_ops::activation::{self, Act};
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;

pub(super) struct Ffn;

const INNER: usize = 0;

/// Parameters of one feed-forward net, which an expert is too.
pub(super) fn params(activation: Activation, d: u64, f: u64) -> u64 {
    if activation.gated() { 3 * d * f } else { 2 * d * f + f + d }
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
            params: params(frame.activation, d, f),
            norm_params: 2 * d,
            flops: setting.tokens() * flops_per_token(frame.activation, d, f),
            activation_bytes: setting.tokens() * BYTES * floats_per_token,
            state_bytes: memory_bytes(frame, setting.mem_len),
        }
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

impl Build for Ffn {
    fn build(
        &self,
        block: &Block,
        frame: &Frame,
        names: &Names,
        builder: &mut Builder,
    ) -> Option<(Box<dyn Sublayer>, NormParams)> {
        let d = frame.d_model as usize;
        let inner = block.get(INNER).unwrap_or(frame.inner) as usize;
        let gated = frame.activation.gated();
        let wide = if gated { 2 * inner } else { inner };
        let layer = &names.layer;
        let (up, down, norm, layout) = match frame.backbone.positions {
            Positions::Learned => {
                (format!("{layer}.mlp.c_fc"), format!("{layer}.mlp.c_proj"), format!("{layer}.ln_2"), Layout::InOut)
            }
            Positions::Relative => (
                format!("{layer}.pos_ff.CoreNet.0"),
                format!("{layer}.pos_ff.CoreNet.3"),
                format!("{layer}.pos_ff.layer_norm"),
                Layout::OutIn,
            ),
        };
        let norm = NormParams::new(builder, &norm, d, norm_deviation(frame));
        let mut linear = |name: &str, inputs: usize, outputs: usize, deviation: f32| {
            let shape = if layout == Layout::InOut { [inputs, outputs] } else { [outputs, inputs] };
            let weight = builder.param(format!("{name}.weight"), &shape, Init::Normal(0.0, deviation));
            let bias = (!gated).then(|| builder.param(format!("{name}.bias"), &[outputs], Init::Constant(0.0)));
            Linear::new(weight, bias, layout, inputs, outputs)
        };
        let up = linear(&up, d, wide, DEVIATION);
        let down = linear(&down, inner, d, output_deviation(frame, names));
        let inner_dropout = frame.backbone.positions == Positions::Relative;
        Some((
            Box::new(FfnLayer {
                up,
                down,
                act: act(frame.activation),
                gated,
                inner,
                inner_dropout,
                salt: names.salt(1),
            }),
            norm,
        ))
    }
}

struct FfnLayer {
    up: Linear,
    down: Linear,
    act: Act,
    gated: bool,
    inner: usize,
    /// transformer_xl drops inner activations too.
    inner_dropout: bool,
    salt: u64,
}

/// h, the inner activations before the non-linearity.
struct FfnSaved {
    h: Buf,
}

impl FfnLayer {
    fn dropout(&self, pass: &Pass<'_>) -> Dropout {
        if self.inner_dropout { pass.dropout[0].with(self.salt) } else { Dropout::NONE }
    }
}

impl Sublayer for FfnLayer {
    fn forward(&self, pass: &Pass<'_>, input: &[f32], _: &mut LayerState) -> (Buf, Saved) {
        let rows = pass.rows();
        let mut out = Buf::any(input.len());
        let mut h = Buf::any(rows * self.up.outputs());
        if !pass.keep && !self.gated {
            let act = self.act;
            self.up.forward_finish(pass.params, input, &mut h, |h| activation::row(act, h));
            self.down.forward(pass.params, &h, &mut out);
            return (out, Box::new(()));
        }
        let mut a = Buf::any(rows * self.inner);
        if self.gated {
            self.up.forward(pass.params, input, &mut h);
            activation::forward(self.act, true, &h, &mut a, self.inner);
        } else {
            self.up.forward_act(pass.params, input, self.act, &mut h, &mut a);
        }
        self.dropout(pass).apply(&mut a);
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
        self.up.backward_input(pass.params, &dh, &mut dinput, false);
        self.up.backward_params(input, &dh, grads);
        dinput
    }

    fn composed(&self, graph: &Graph<'_>, input: &Tensor) -> candle_core::Result<Tensor> {
        let h = self.up.composed(graph, input)?;
        graph.add_inner(&h);
        self.down.composed(graph, &activation::composed(self.act, self.gated, &h)?)
    }

    fn linears(&mut self) -> Vec<&mut Linear> {
        vec![&mut self.up, &mut self.down]
    }
}
