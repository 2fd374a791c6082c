//! Another residual connection (Bachlechner et al., 2020, "ReZero is All You Need"): no norm, and a scale that begins
//! with 0: y = x + a relu(x W1 + b1) W2, `rezero{inner=64}`.
//!
//! | parameters | FLOPs of one sequence |
//! |---|---|
//! | 2 D F + F + 1 | 4 T D F |

use candle_core::Tensor;
use lathe_core::{Block, BlockKind, Cost, Domain, Frame, Knob, Result, Role, Setting};
use lathe_model::build::{BuildBlock, LayerBuilder, Site};
use lathe_model::layer::{Layer, LayerState, Pass, Saved, Stream};
use lathe_model::linear::{Linear, Matrix};
use lathe_model::params::{Builder, Grads, Init, ParamId};
use lathe_model::{Graph, GraphStream, Precision};
use lathe_ops::buffer::Buf;
use std::any::Any;
use std::sync::Arc;

/// The kind of block.
pub struct ReZero;

const INNER: usize = 0;
const ROLE: Role = Role::PerToken;

fn inner(block: &Block, frame: &Frame) -> u32 {
    block.get(INNER).unwrap_or(frame.inner)
}

impl BlockKind for ReZero {
    fn key(&self) -> &'static str {
        "rezero"
    }

    fn letter(&self) -> Option<char> {
        None
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob { name: "inner", mark: None, domain: Domain::Int { min: 1, max: 1 << 20 } }]
    }

    fn resolve(&self, block: &Block, frame: &Frame) -> Block {
        let mut block = *block;
        block.set(INNER, inner(&block, frame));
        block
    }

    fn check(&self, _: &Block, _: &Frame) -> Result<()> {
        Ok(())
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        let (d, f) = (u64::from(frame.d_model), u64::from(inner(block, frame)));
        Cost {
            params: 2 * d * f + f + 1,
            flops: 4 * setting.tokens() * u128::from(d) * u128::from(f),
            activation_bytes: 4 * setting.tokens() * u128::from(f + 2 * d),
            ..Cost::default()
        }
    }

    fn role(&self) -> Role {
        ROLE
    }

    fn variants(&self, frame: &Frame) -> Vec<Block> {
        vec![self.resolve(&Block::new(&Self), frame)]
    }

    fn builder(&self) -> &'static dyn Any {
        &LayerBuilder(&Self)
    }
}

impl BuildBlock for ReZero {
    fn build(&self, block: &Block, frame: &Frame, site: &Site<'_>, builder: &mut Builder) -> Option<Box<dyn Layer>> {
        let (d, f) = (frame.d_model as usize, inner(block, frame) as usize);
        let deviation = site.style.deviation;
        let up = site.linear(builder, &site.name(ROLE, "rezero.up"), [d, f], deviation, true);
        let down = site.linear(builder, &site.name(ROLE, "rezero.down"), [f, d], deviation, false);
        let scale = builder.param(site.name(ROLE, "rezero.scale"), &[1], Init::Constant(0.0));
        Some(Box::new(ReZeroLayer { up, down, scale }))
    }
}

struct ReZeroLayer {
    up: Linear,
    down: Linear,
    scale: ParamId,
}

/// Input, inner activations after the non-linearity, and what the block would add with a scale of 1.
type Kept = (Arc<Buf>, Buf, Buf);

impl Layer for ReZeroLayer {
    fn forward(&self, pass: &Pass<'_>, x: &Stream, _: Option<&Arc<Buf>>, _: &mut LayerState) -> (Stream, Saved) {
        let scale = pass.params.get(self.scale)[0];
        let mut h = Buf::any(pass.rows() * self.up.outputs());
        self.up.forward(pass.params, &x.hidden, &mut h);
        h.iter_mut().for_each(|h| *h = h.max(0.0));
        let mut added = Buf::any(x.hidden.len());
        self.down.forward(pass.params, &h, &mut added);
        let mut y = Buf::copy(&x.hidden);
        y.iter_mut().zip(added.iter()).for_each(|(y, added)| *y += scale * added);
        let kept: Kept = (x.hidden.clone(), h, added);
        (x.with(y), Box::new(kept))
    }

    fn backward(&self, pass: &Pass<'_>, saved: Saved, mut dy: Buf, grads: &mut Grads) -> Buf {
        let (x, h, added): Kept = *saved.downcast().expect("what this layer saved");
        let scale = pass.params.get(self.scale)[0];
        grads.add(self.scale)[0] += dy.iter().zip(added.iter()).map(|(dy, added)| dy * added).sum::<f32>();
        let mut dadded = Buf::copy(&dy);
        dadded.iter_mut().for_each(|d| *d *= scale);
        let mut dh = Buf::any(h.len());
        self.down.backward_input(pass.params, &dadded, &mut dh, false);
        self.down.backward_params(&h, &dadded, grads);
        dh.iter_mut().zip(h.iter()).filter(|(_, h)| **h <= 0.0).for_each(|(dh, _)| *dh = 0.0);
        self.up.backward_input(pass.params, &dh, &mut dy, true);
        self.up.backward_params(&x, &dh, grads);
        dy
    }

    fn composed(&self, graph: &Graph<'_>, x: &GraphStream, _: &mut Option<Tensor>) -> candle_core::Result<GraphStream> {
        let h = self.up.composed(graph, &x.hidden)?.relu()?;
        let added = self.down.composed(graph, &h)?.broadcast_mul(graph.var(self.scale))?;
        Ok(x.with((&x.hidden + graph.probe(added)?)?))
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        vec![&mut self.up.matrix, &mut self.down.matrix]
    }

    fn set_precision(&mut self, precision: Precision) {
        self.matrices().into_iter().for_each(|matrix| matrix.set_precision(precision));
    }
}
