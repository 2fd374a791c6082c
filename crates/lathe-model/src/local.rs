//! Block-local training: slots learn by themselves, each from hidden states that are given to those that are wanted
//! (Puzzle; Bercovich et al., 2024). Nothing flows from one to another, so that all slots, and all options of a slot,
//! learn in one pass, and a slot's activations are gone before the next one runs.

use crate::body::{Body, Run, State, Training};
use crate::context::Reports;
use crate::layer::Stream;
use crate::params::{Grads, Params};
use crate::stack::Mixture;
use crate::stem::Input;
use crate::taps::{TapGradients, Taps};
use lathe_core::Frame;
use lathe_ops::buffer::Buf;
use lathe_ops::loss::states::{self, Measure};
use std::ops::Range;
use std::sync::Arc;

/// Consecutive slots that learn by themselves.
#[derive(Clone)]
pub struct Local {
    /// Which. Where it is one, all of its options learn.
    pub slots: Range<usize>,
    /// What enters the first, [B * T, D].
    pub input: Arc<Buf>,
    /// What the last is to give, [B * T, D].
    pub wanted: Arc<Buf>,
}

/// How slots learn by themselves.
#[derive(Debug, Clone, Copy)]
pub struct LocalTraining {
    /// As of any pass; `scale` is what the loss of a token counts.
    pub training: Training,
    /// How far hidden states are from those that are wanted.
    pub measure: Measure,
    /// The first option of a slot that learns: those before it are left as they are, and their losses are 0.
    pub first: usize,
}

impl Body {
    /// For each of `locals` and each of its options the sum of the losses of all tokens that are no padding. Adds the
    /// gradients of `scale` times it to `grads`. `input` has the tokens, of which only number and padding count.
    #[allow(clippy::too_many_arguments)] // each is one thing
    pub(crate) fn train_local(
        &self,
        frame: &Frame,
        params: &Params,
        input: &Input<'_>,
        locals: &[Local],
        state: &mut State,
        how: &LocalTraining,
        reports: &Reports,
        grads: &mut Grads,
    ) -> Vec<Vec<f64>> {
        let run = Run::new(frame, params, input, state.position, Some(&how.training));
        let (pass, unheard) = (run.pass(reports), Reports::default());
        let back = run.pass(&unheard);
        let (width, mask) = (frame.d_model as usize, input.mask.map(|mask| Arc::new(mask.to_vec())));
        let mut each = |local: &Local| -> Vec<f64> {
            let slots = local.slots.clone();
            let options = if slots.len() == 1 { self.stack.slots[slots.start].len() } else { 1 };
            let before = state.layers[slots.clone()].to_vec();
            let mut of_option = |option: usize| {
                // Whatever is remembered of what went before is the same for every option.
                state.layers[slots.clone()].clone_from_slice(&before);
                let (hidden, len, mask) = (local.input.clone(), input.len(), mask.clone());
                let x = Stream { hidden, len, position: pass.position, mask, aside: Vec::new(), stack: None };
                let mixture = |_: usize| Mixture::Hard(option);
                let walk = (slots.clone(), &Taps::NONE);
                let (y, saved, _) = self.stack.walk(&pass, walk, x, &mut state.layers[slots.clone()], mixture);
                let mut losses = vec![0.0; input.ids.len()];
                let mut dy = Buf::any(y.hidden.len());
                let kind = (how.measure, input.mask);
                let scale = how.training.scale;
                states::squared_error(&y.hidden, &local.wanted, width, kind, scale, &mut losses, &mut dy);
                self.stack.walk_back(
                    &back,
                    (slots.start, &Taps::NONE),
                    saved,
                    dy,
                    mixture,
                    &TapGradients::default(),
                    grads,
                );
                losses.iter().copied().map(f64::from).sum()
            };
            (0..options).map(|option| if option < how.first { 0.0 } else { of_option(option) }).collect()
        };
        let losses = locals.iter().map(&mut each).collect();
        state.position += input.len();
        losses
    }
}
