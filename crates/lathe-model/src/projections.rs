//! Learnt projections from a student's hidden states to the width of its teacher's (Romero et al., 2015; TinyBERT). They
//! are trained beside the student and are no part of it.

use crate::linear::{Layout, Linear};
use crate::params::{Builder, Grads, Init, Param, Params};
use lathe_ops::buffer::Buf;

/// A matrix for each pair of widths that differ.
pub struct Projections {
    params: Params,
    linears: Vec<Option<Linear>>,
}

impl Projections {
    /// For pairs of a student's width and its teacher's, from a seed.
    pub fn new(widths: impl IntoIterator<Item = (usize, usize)>, seed: u64) -> Self {
        let mut builder = Builder::new(seed);
        let linear = |(i, (from, to)): (usize, (usize, usize))| {
            (from != to).then(|| {
                let init = Init::Normal(0.0, 1.0 / (from as f32).sqrt());
                let weight = builder.param(format!("projection.{i}.weight"), &[to, from], init);
                Linear::new(weight, None, Layout::OutIn, from, to)
            })
        };
        let linears = widths.into_iter().enumerate().map(linear).collect();
        Self { params: builder.finish(), linears }
    }

    /// The matrices.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The matrices, to be changed.
    pub fn params_mut(&mut self) -> impl Iterator<Item = &mut Param> {
        self.params.iter_mut()
    }

    /// Where the matrix of a pair stands among all, if it has one.
    pub fn place(&self, pair: usize) -> Option<usize> {
        self.linears[pair].as_ref().map(|linear| self.params.position(linear.matrix.weight()))
    }

    /// Hidden states in the teacher's width; `None` where they have it already.
    pub fn forward(&self, pair: usize, x: &[f32]) -> Option<Buf> {
        self.linears[pair].as_ref().map(|linear| {
            let mut y = Buf::any(x.len() / linear.inputs() * linear.outputs());
            linear.forward(&self.params, x, &mut y);
            y
        })
    }

    /// The gradient of hidden states from that of [`Self::forward`], or itself; adds those of the matrix.
    pub fn backward(&self, pair: usize, x: &[f32], dy: Buf, grads: &mut Grads) -> Buf {
        let Some(linear) = &self.linears[pair] else { return dy };
        linear.backward_params(x, &dy, grads);
        let mut dx = Buf::any(x.len());
        linear.backward_input(&self.params, &dy, &mut dx, false);
        dx
    }
}
