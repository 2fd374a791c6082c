//! What a pass is trained for: from hidden states to losses and back. A task makes one for each batch.

use crate::head::Top;
use crate::params::{Grads, Params};
use crate::taps::{Seen, TapGradients, Taps};
use lathe_ops::buffer::Buf;

/// From the hidden states of a batch to its losses.
pub trait Objective {
    /// The losses for hidden states [B * T, D]. With gradients, also adds those of `scale` times their sum to the
    /// parameters and returns that of the hidden states.
    fn loss(
        &self,
        top: &Top,
        params: &Params,
        hidden: &[f32],
        gradients: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>);

    /// What it looks at in training beside the last hidden states.
    fn taps(&self) -> Taps {
        Taps::NONE
    }

    /// Adds what it makes of that to the losses, which are 0 where taps end the pass below the top, and returns the
    /// gradients of `scale` times the sum of what it added.
    fn inside(&self, _seen: Seen, _losses: &mut [f32], _scale: f32) -> TapGradients {
        TapGradients::default()
    }
}

/// Each token's target, [B, T]: -log p of it, 0 where it is [`lathe_ops::loss::IGNORE`].
pub struct Targets<'a>(pub &'a [u32]);

impl Objective for Targets<'_> {
    fn loss(
        &self,
        top: &Top,
        params: &Params,
        hidden: &[f32],
        gradients: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>) {
        let head = top.head.as_ref().expect("a model with an output layer");
        head.loss(params, hidden, self.0, gradients)
    }
}
