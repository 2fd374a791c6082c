//! Another width, `project{width=64}`: y = x W + b, from D to `width`. Blocks above stand in that width until the next
//! one, as in a bottleneck (Sun et al., 2020, "MobileBERT"): `project{width=64} s f project{width=512}`.
//!
//! | parameters | FLOPs of one sequence |
//! |---|---|
//! | D width + width | 2 T D width |

use candle_core::Tensor;
use lathe_core::{Block, BlockKind, Cost, Domain, Frame, Knob, Result, Role, Setting, Shape};
use lathe_model::build::{BuildBlock, LayerBuilder, Site};
use lathe_model::layer::{Layer, LayerState, Pass, Saved, Stream};
use lathe_model::linear::{Linear, Matrix};
use lathe_model::params::{Builder, Grads};
use lathe_model::{Graph, GraphStream, Precision};
use lathe_ops::buffer::Buf;
use std::any::Any;
use std::sync::Arc;

/// The kind of block.
pub struct Project;

const WIDTH: usize = 0;
const ROLE: Role = Role::PerToken;

/// The width that it has by itself is the width that it stands in.
fn width(block: &Block, frame: &Frame) -> u32 {
    block.get(WIDTH).unwrap_or(frame.d_model)
}

impl BlockKind for Project {
    fn key(&self) -> &'static str {
        "project"
    }

    fn letter(&self) -> Option<char> {
        None
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob { name: "width", mark: None, domain: Domain::Int { min: 1, max: 1 << 16 } }]
    }

    fn resolve(&self, block: &Block, frame: &Frame) -> Block {
        let mut block = *block;
        block.set(WIDTH, width(&block, frame));
        block
    }

    fn check(&self, _: &Block, _: &Frame) -> Result<()> {
        Ok(())
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        let (from, to) = (u64::from(frame.d_model), u64::from(width(block, frame)));
        Cost {
            params: from * to + to,
            flops: 2 * setting.tokens() * u128::from(from) * u128::from(to),
            activation_bytes: 4 * setting.tokens() * u128::from(to),
            ..Cost::default()
        }
    }

    fn role(&self) -> Role {
        ROLE
    }

    fn variants(&self, _: &Frame) -> Vec<Block> {
        Vec::new() // it makes no sense without another that restores the width
    }

    fn reshape(&self, block: &Block, shape: Shape) -> Result<Shape> {
        Ok(Shape { width: block.get(WIDTH).unwrap_or(shape.width), ..shape })
    }

    fn builder(&self) -> &'static dyn Any {
        &LayerBuilder(&Self)
    }
}

impl BuildBlock for Project {
    fn build(&self, block: &Block, frame: &Frame, site: &Site<'_>, builder: &mut Builder) -> Option<Box<dyn Layer>> {
        let sizes = [frame.d_model, width(block, frame)].map(|size| size as usize);
        let deviation = 1.0 / (sizes[0] as f32).sqrt();
        let linear = site.linear(builder, &site.name(ROLE, "project"), sizes, deviation, true);
        Some(Box::new(ProjectLayer(linear)))
    }
}

struct ProjectLayer(Linear);

impl Layer for ProjectLayer {
    fn forward(&self, pass: &Pass<'_>, x: &Stream, _: Option<&Arc<Buf>>, _: &mut LayerState) -> (Stream, Saved) {
        let mut y = Buf::any(pass.rows() * self.0.outputs());
        self.0.forward(pass.params, &x.hidden, &mut y);
        (x.with(y), Box::new(x.hidden.clone()))
    }

    fn backward(&self, pass: &Pass<'_>, saved: Saved, dy: Buf, grads: &mut Grads) -> Buf {
        let x: Arc<Buf> = *saved.downcast().expect("what this layer saved");
        let mut dx = Buf::any(x.len());
        self.0.backward_input(pass.params, &dy, &mut dx, false);
        self.0.backward_params(&x, &dy, grads);
        dx
    }

    fn composed(&self, graph: &Graph<'_>, x: &GraphStream, _: &mut Option<Tensor>) -> candle_core::Result<GraphStream> {
        Ok(x.with(self.0.composed(graph, &x.hidden)?))
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        vec![&mut self.0.matrix]
    }

    fn set_precision(&mut self, precision: Precision) {
        self.0.matrix.set_precision(precision);
    }
}
