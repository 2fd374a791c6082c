//! The output layer of an encoder that was fine-tuned: W x + b of the vector of each text (the pooler's, or its first
//! token's), or of each token. What the numbers mean is for a task: scores of labels, a value, how well a text continues another, or where
//! an answer begins and ends.

use super::{Top, add_to_first, first_tokens};
use crate::linear::Linear;
use crate::params::{Grads, Params};
use lathe_core::Frame;
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;

/// Salt of the dropout of texts' vectors.
const SALT: u64 = u64::MAX - 3;

/// How much of the vectors before the output layer of a task is dropped in training.
pub fn classifier_dropout(frame: &Frame) -> f32 {
    frame.real("classifier_dropout").unwrap_or(frame.dropout) as f32
}

/// The output layer of a task.
pub struct TaskHead {
    /// W and b.
    pub dense: Linear,
    /// Whether it has numbers for each token rather than for each text.
    pub of_tokens: bool,
}

/// The numbers of a task, and what the way back from them needs.
pub struct Outputs {
    /// [B, N], or [B * T, N] of each token.
    pub values: Buf,
    /// Of texts: their vectors, [B, D], and the same after dropout.
    pooled: Option<(Buf, Buf)>,
}

impl Top {
    /// The numbers of a task for hidden states [B * T, D]; none where the model has no layer for one.
    pub fn outputs(&self, params: &Params, hidden: &[f32], batch: usize, dropout: Dropout) -> Option<Outputs> {
        let task = self.task.as_ref()?;
        let pooled = (!task.of_tokens).then(|| {
            let pooled = match &self.pooler {
                Some(pooler) => pooler.forward(params, hidden, batch, dropout),
                None => first_tokens(hidden, task.dense.inputs(), batch),
            };
            let mut dropped = pooled.clone();
            dropout.with(SALT).apply(&mut dropped);
            (pooled, dropped)
        });
        let x: &[f32] = pooled.as_ref().map_or(hidden, |(_, dropped)| dropped);
        let mut values = Buf::any(x.len() / task.dense.inputs() * task.dense.outputs());
        task.dense.forward(params, x, &mut values);
        Some(Outputs { values, pooled })
    }

    /// The gradient of the hidden states from that of [`Outputs::values`]; adds those of the parameters.
    pub fn outputs_backward(
        &self,
        params: &Params,
        hidden: &[f32],
        outputs: &Outputs,
        dvalues: &[f32],
        dropout: Dropout,
        grads: &mut Grads,
    ) -> Buf {
        let mut dhidden = Buf::zeros(hidden.len());
        let Some(task) = &self.task else { return dhidden };
        let Some((pooled, dropped)) = &outputs.pooled else {
            task.dense.backward_params(hidden, dvalues, grads);
            task.dense.backward_input(params, dvalues, &mut dhidden, false);
            return dhidden;
        };
        task.dense.backward_params(dropped, dvalues, grads);
        let mut dpooled = Buf::any(pooled.len());
        task.dense.backward_input(params, dvalues, &mut dpooled, false);
        dropout.with(SALT).apply(&mut dpooled);
        match &self.pooler {
            Some(pooler) => pooler.backward(params, hidden, (pooled, &dpooled), dropout, &mut dhidden, grads),
            None => add_to_first(&dpooled, task.dense.inputs(), &mut dhidden),
        }
        dhidden
    }
}
