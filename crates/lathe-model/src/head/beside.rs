//! An output layer that shares an embedding which is narrower than the model: the first columns of a hidden state meet the embedding's
//! rows, the others weights of their own (Sun et al., 2020, "MobileBERT").

use super::{Head, LogitLoss, PIECE, gather};
use crate::composed::Graph;
use crate::linear::{Linear, Matrix};
use crate::onnx::OnnxPass;
use crate::params::{Grads, Params};
use candle_core::{Result, Tensor};
use lathe_onnx::Value;
use lathe_ops::buffer::Buf;
use lathe_ops::gemm::{Mat, MatMut};
use lathe_ops::loss;

/// logits = x[..E] W + b + x[E..] W'.
pub struct BesideHead {
    /// W and b.
    pub rows: Linear,
    /// W', where the model is wider than the embedding.
    pub beside: Option<Linear>,
}

impl BesideHead {
    /// D
    fn width(&self) -> usize {
        self.rows.inputs() + self.beside.as_ref().map_or(0, Linear::inputs)
    }

    /// Its matrices, each with its first column of x.
    fn parts(&self) -> impl Iterator<Item = (usize, &Linear)> {
        let beside = self.beside.as_ref().map(|beside| (self.rows.inputs(), beside));
        std::iter::once((0, &self.rows)).chain(beside)
    }

    /// The gradient of some rows x from that of their logits; adds those of the weights.
    fn backward(&self, params: &Params, x: &[f32], dlogits: &[f32], grads: &mut Grads) -> Buf {
        let (width, vocab) = (self.width(), self.rows.outputs());
        let rows = x.len() / width;
        let (x, dy) = (Mat::new(x, rows, width), Mat::new(dlogits, rows, vocab));
        let mut dx = Buf::any(rows * width);
        for (first, linear) in self.parts() {
            let inputs = linear.inputs();
            linear.backward_params_from(x.cols_from(first, inputs), dy, grads);
            let mut part = Buf::any(rows * inputs);
            linear.backward_input_from(params, dy, &mut part, false);
            for (to, from) in dx.chunks_exact_mut(width).zip(part.chunks_exact(inputs)) {
                to[first..first + inputs].copy_from_slice(from);
            }
        }
        dx
    }

    /// Losses that `of_piece` makes of the logits of some rows, with the gradient of the logits in their place.
    fn losses(
        &self,
        params: &Params,
        hidden: &[f32],
        rows: &[usize],
        mut gradients: Option<&mut Grads>,
        of_piece: impl Fn(&[usize], &mut [f32], &mut [f32]),
    ) -> (Vec<f32>, Option<Buf>) {
        let width = self.width();
        let mut losses = vec![0.0; hidden.len() / width];
        let mut dhidden = gradients.is_some().then(|| Buf::zeros(hidden.len()));
        for rows in rows.chunks(PIECE) {
            let x = gather(hidden, width, rows);
            let mut logits = Buf::any(rows.len() * self.rows.outputs());
            self.logits(params, &x, &mut logits);
            let mut own = vec![0.0; rows.len()];
            of_piece(rows, &mut logits, &mut own);
            rows.iter().zip(own).for_each(|(&row, own)| losses[row] = own);
            if let (Some(grads), Some(dhidden)) = (&mut gradients, &mut dhidden) {
                let dx = self.backward(params, &x, &logits, grads);
                for (from, &row) in dx.chunks_exact(width).zip(rows) {
                    dhidden[row * width..][..width].copy_from_slice(from);
                }
            }
        }
        (losses, dhidden)
    }
}

impl Head for BesideHead {
    fn is_plain(&self) -> bool {
        true
    }

    fn logits(&self, params: &Params, hidden: &[f32], out: &mut [f32]) {
        let (width, vocab) = (self.width(), self.rows.outputs());
        let rows = hidden.len() / width;
        let x = Mat::new(hidden, rows, width);
        for (first, linear) in self.parts() {
            let part = x.cols_from(first, linear.inputs());
            linear.forward_onto(params, part, MatMut::new(out, rows, vocab), first > 0);
        }
    }

    fn loss(
        &self,
        params: &Params,
        hidden: &[f32],
        targets: &[u32],
        gradients: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>) {
        let (all, vocab): (Vec<usize>, _) = ((0..targets.len()).collect(), self.rows.outputs());
        let (scale, grads) = gradients.map_or((None, None), |(scale, grads)| (Some(scale), Some(grads)));
        self.losses(params, hidden, &all, grads, |rows, logits, losses| {
            let targets: Vec<u32> = rows.iter().map(|&row| targets[row]).collect();
            match scale {
                Some(scale) => loss::cross_entropy(logits, vocab, &targets, scale, losses),
                None => loss::negative_log_likelihood(logits, vocab, &targets, losses),
            }
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
        let (scale, grads) = gradients.map_or((0.0, None), |(scale, grads)| (scale, Some(grads)));
        Some(self.losses(params, hidden, rows, grads, |rows, logits, losses| loss.rows(rows, logits, scale, losses)))
    }

    fn composed(&self, graph: &Graph<'_>, hidden: &Tensor) -> Result<Tensor> {
        let part = |(first, linear): (usize, &Linear)| {
            linear.composed(graph, &hidden.narrow(1, first, linear.inputs())?.contiguous()?)
        };
        let mut parts = self.parts().map(part);
        let rows = parts.next().expect("the embedding's rows")?;
        match parts.next() {
            Some(beside) => rows + beside?,
            None => Ok(rows),
        }
    }

    fn onnx(&self, pass: &mut OnnxPass<'_>, hidden: &Value) -> std::result::Result<Value, String> {
        let Some(beside) = &self.beside else { return Ok(self.rows.onnx(pass, hidden)) };
        let [first, others] = pass.parts(hidden, [self.rows.inputs(), beside.inputs()]);
        let (rows, beside) = (self.rows.onnx(pass, &first), beside.onnx(pass, &others));
        Ok(pass.graph.node("Add", &[&rows, &beside], &[]))
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        std::iter::once(&mut self.rows).chain(&mut self.beside).map(|linear| &mut linear.matrix).collect()
    }
}
