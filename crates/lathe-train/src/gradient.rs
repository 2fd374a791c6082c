//! The gradient of one batch, computed in as many parts as the run has states.

use crate::Result;
use crate::data::{Batch, mix};
use crate::settings::Settings;
use lathe_model::{Grads, MoeStats, State, Training};
use std::ops::Range;

/// A part of a batch.
pub(crate) struct Part {
    /// Which.
    pub index: usize,
    /// Its sequences.
    pub rows: usize,
    /// Where its tokens stand among all of the batch.
    pub places: Range<usize>,
    /// The step, counted from 1.
    pub step: u32,
}

/// Gradients of a batch, part by part: `pass` adds those of a part and returns the sum of its losses and what experts did,
/// given the part, its state, and how to train. Returns the mean loss, and what experts did.
pub(crate) fn gradient(
    states: &mut [State],
    batch: &Batch,
    settings: &Settings,
    step: u32,
    grads: &mut Grads,
    mut pass: impl FnMut(&Part, &mut State, &Training, &mut Grads) -> Result<(f64, Vec<MoeStats>)>,
) -> Result<(f32, Vec<MoeStats>)> {
    grads.clear();
    let parts = states.len();
    let (rows, len) = (batch.rows, batch.ids.len() / batch.rows.max(1));
    let mut sum = 0.0;
    let mut experts: Vec<MoeStats> = Vec::new();
    let counted = batch.counted().max(1);
    for (index, state) in states.iter_mut().enumerate() {
        let training = Training {
            dropout_key: Some(mix(mix(u64::from(settings.seed)) ^ (u64::from(step) << 20 | index as u64))),
            balance: (settings.balance / parts as f64) as f32,
            scale: 1.0 / counted as f32,
        };
        // The last batch of an epoch of examples may have fewer rows.
        let (first, end) = (rows * index / parts, rows * (index + 1) / parts);
        if first == end {
            continue;
        }
        let part = Part { index, rows: end - first, places: first * len..end * len, step };
        let (losses, stats) = pass(&part, state, &training, grads)?;
        sum += losses;
        for (i, stats) in stats.into_iter().enumerate() {
            let share = stats.balance / parts as f32;
            match experts.get_mut(i) {
                None => experts.push(MoeStats { balance: share, ..stats }),
                Some(all) => {
                    all.loads.iter_mut().zip(stats.loads).for_each(|(all, load)| *all += load);
                    all.balance += share;
                }
            }
        }
    }
    Ok(((sum / counted as f64) as f32, experts))
}
