//! The gradient of one batch, computed in as many parts as the run has states.

use crate::data::{Batch, mix};
use crate::settings::Settings;
use crate::tasks::Task;
use lathe_model::{Grads, Input, MoeStats, Network, State, Training};

/// Gradients of a batch, part by part. Returns the mean loss, and what experts did.
pub(crate) fn gradient(
    network: &Network,
    task: &dyn Task,
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
    let counted = batch.counted().max(1);
    let carried = network.model.frame.has_memory();
    for (part, state) in states.iter_mut().enumerate() {
        if batch.fresh || !carried {
            *state = network.init_memory(rows);
        }
        let training = Training {
            dropout_key: Some(mix(mix(u64::from(settings.seed)) ^ (u64::from(step) << 20 | part as u64))),
            balance: (settings.balance / parts as f64) as f32,
            scale: 1.0 / counted as f32,
        };
        let places = part * size..(part + 1) * size;
        let objective = task.objective(&batch.targets[places.clone()]);
        let outcome = network.train(&Input::tokens(&batch.ids[places], rows), &*objective, state, &training, grads);
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
    ((sum / counted as f64) as f32, experts)
}
