//! The output layer of an encoder that was trained on masked tokens.

use super::{Head, LogitLoss, gather};
use crate::composed::Graph;
use crate::linear::{Linear, Matrix};
use crate::norm::NormParams;
use crate::onnx::OnnxPass;
use crate::params::{Grads, Params};
use candle_core::{Result, Tensor};
use lathe_onnx::Value;
use lathe_ops::activation::{self, Act};
use lathe_ops::buffer::Buf;
use lathe_ops::loss::IGNORE;

/// The output layer of an encoder that was trained on masked tokens: tokens = norm(act(W x + b)),
/// which may be narrower than x. Losses are computed of
/// those rows alone that have a target.
pub struct MaskedHead {
    /// W and b.
    pub dense: Linear,
    /// The non-linearity.
    pub act: Act,
    /// After it.
    pub norm: NormParams,
    /// From there to tokens.
    pub tokens: Box<dyn Head>,
}

/// What the way back through the transform needs.
struct Transformed {
    h: Buf,
    activated: Buf,
    stats: Buf,
    out: Buf,
}

impl MaskedHead {
    /// The losses of some rows by `below`, which is given the transformed rows and returns what it makes of each and the
    /// gradient of what it was given; and the gradient of the hidden states.
    fn through(
        &self,
        params: &Params,
        hidden: &[f32],
        rows: &[usize],
        gradients: Option<(f32, &mut Grads)>,
        below: impl FnOnce(&[f32], Option<(f32, &mut Grads)>) -> (Vec<f32>, Option<Buf>),
    ) -> (Vec<f32>, Option<Buf>) {
        let width = self.dense.inputs();
        let mut x = gather(hidden, width, rows);
        let Transformed { h, activated, stats, out } = self.transform(params, &x);
        let mut losses = vec![0.0; hidden.len() / width];
        let Some((scale, grads)) = gradients else {
            let (of_rows, _) = below(&out, None);
            rows.iter().zip(&of_rows).for_each(|(&row, &loss)| losses[row] = loss);
            return (losses, None);
        };
        let (of_rows, dout) = below(&out, Some((scale, &mut *grads)));
        rows.iter().zip(&of_rows).for_each(|(&row, &loss)| losses[row] = loss);
        let dout = dout.expect("gradients were asked for");
        let mut dactivated = Buf::zeros(activated.len());
        self.norm.backward(params, &activated, &stats, &dout, &mut dactivated, grads);
        let mut dh = Buf::any(h.len());
        activation::backward(self.act, false, &h, &mut dactivated, &mut dh, self.dense.outputs());
        self.dense.backward_params(&x, &dh, grads);
        self.dense.backward_input(params, &dh, &mut x, false);
        (losses, Some(scatter(&x, width, rows, hidden.len())))
    }

    fn transform(&self, params: &Params, x: &[f32]) -> Transformed {
        let len = x.len() / self.dense.inputs() * self.dense.outputs();
        let (mut h, mut activated) = (Buf::any(len), Buf::any(len));
        self.dense.forward_act(params, x, self.act, &mut h, &mut activated);
        let (out, stats) = self.norm.forward(params, &activated);
        Transformed { h, activated, stats, out }
    }
}

impl Head for MaskedHead {
    fn is_plain(&self) -> bool {
        self.tokens.is_plain()
    }

    fn logits(&self, params: &Params, hidden: &[f32], out: &mut [f32]) {
        self.tokens.logits(params, &self.transform(params, hidden).out, out);
    }

    fn loss(
        &self,
        params: &Params,
        hidden: &[f32],
        targets: &[u32],
        gradients: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>) {
        let rows: Vec<usize> = (0..targets.len()).filter(|&row| targets[row] != IGNORE).collect();
        if rows.is_empty() {
            return (vec![0.0; targets.len()], gradients.map(|_| Buf::zeros(hidden.len())));
        }
        let wanted: Vec<u32> = rows.iter().map(|&row| targets[row]).collect();
        self.through(params, hidden, &rows, gradients, |out, gradients| {
            self.tokens.loss(params, out, &wanted, gradients)
        })
    }

    fn logit_loss(
        &self,
        params: &Params,
        hidden: &[f32],
        rows: &[usize],
        loss: &dyn LogitLoss,
        gradients: Option<(f32, &mut Grads)>,
    ) -> Option<(Vec<f32>, Option<Buf>)> {
        /// The rows of the transform by the rows of the hidden states that they are of.
        struct Renamed<'a>(&'a [usize], &'a dyn LogitLoss);
        impl LogitLoss for Renamed<'_> {
            fn rows(&self, rows: &[usize], logits: &mut [f32], scale: f32, losses: &mut [f32]) {
                let of_hidden: Vec<usize> = rows.iter().map(|&row| self.0[row]).collect();
                self.1.rows(&of_hidden, logits, scale, losses);
            }
        }
        if !self.is_plain() {
            return None;
        }
        Some(self.through(params, hidden, rows, gradients, |out, gradients| {
            let all: Vec<usize> = (0..rows.len()).collect();
            let of_rows = self.tokens.logit_loss(params, out, &all, &Renamed(rows, loss), gradients);
            of_rows.expect("a plain softmax")
        }))
    }

    fn composed(&self, graph: &Graph<'_>, hidden: &Tensor) -> Result<Tensor> {
        let h = activation::composed(self.act, false, &self.dense.composed(graph, hidden)?)?;
        self.tokens.composed(graph, &self.norm.composed(graph, &h)?)
    }

    fn onnx(&self, pass: &mut OnnxPass<'_>, hidden: &Value) -> std::result::Result<Value, String> {
        let h = self.dense.onnx(pass, hidden);
        let h = pass.activation(self.act, &h, None);
        let h = self.norm.onnx(pass, &h);
        self.tokens.onnx(pass, &h)
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        std::iter::once(&mut self.dense.matrix).chain(self.tokens.matrices()).collect()
    }
}

/// A matrix of so many numbers with these rows, and zeros in all others.
fn scatter(x: &[f32], width: usize, rows: &[usize], len: usize) -> Buf {
    let mut out = Buf::zeros(len);
    for (from, &row) in x.chunks_exact(width).zip(rows) {
        out[row * width..][..width].copy_from_slice(from);
    }
    out
}
