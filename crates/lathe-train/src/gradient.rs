//! The gradient of one batch, computed in as many parts as the run has states.

use crate::data::{Batch, mix};
use crate::settings::Settings;
use lathe_core::Positions;
use lathe_model::{Grads, MoeStats, Network, State, Training};

/// Gradients of a batch, part by part. Gives the mean loss, and what experts did.
pub(crate) fn gradient(
    network: &Network,
    states: &mut [State],
    batch: &Batch,
    settings: &Settings,
    step: u32,
    grads: &mut Grads,
) -> (f32, Vec<MoeStats>) {
    grads.clear();
    let parts = states.len();
    let (rows, size) = (settings.batch as usize / parts, batch.ids.len() / parts);
    let mut sum = 0.0;
    let mut experts: Vec<MoeStats> = Vec::new();
    let relative = network.model.frame.backbone.positions == Positions::Relative;
    for (part, state) in states.iter_mut().enumerate() {
        if batch.fresh || !relative {
            *state = network.memory(rows);
        }
        let training = Training {
            dropout_key: Some(mix(mix(u64::from(settings.seed)) ^ (u64::from(step) << 20 | part as u64))),
            balance: (settings.balance / parts as f64) as f32,
            scale: 1.0 / batch.ids.len() as f32,
        };
        let places = part * size..(part + 1) * size;
        let outcome = network.train(&batch.ids[places.clone()], &batch.targets[places], rows, state, &training, grads);
        sum += outcome.losses.iter().copied().map(f64::from).sum::<f64>();
        for (i, stats) in outcome.experts.into_iter().enumerate() {
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
    ((sum / batch.ids.len() as f64) as f32, experts)
}
