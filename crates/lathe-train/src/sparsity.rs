//! Weights that become 0 during a run and stay so: gradual magnitude pruning (Zhu and Gupta, 2017, "To prune, or not to
//! prune").
//!
//! After t of n steps of pruning the share of zeros is s (1 - (1 - t / n)^3): many weights go while many are left, few
//! in the end. Pruning ends at three quarters of the run; the rest trains what is left. What is 0 gets no gradient and
//! no moment, so that no rule moves it: the weights themselves say what is gone, and a checkpoint needs nothing more.

use crate::optimizer::Optimizer;
use crate::settings::Settings;
use lathe_model::prune::magnitude::Mask;
use lathe_model::{Grads, Network};

/// Prunings on the way.
const TIMES: u32 = 100;

/// The zeros of a run.
pub(crate) struct Sparsity {
    share: f64,
    evenly: bool,
    steps: u32,
    mask: Mask,
}

impl Sparsity {
    /// Of a run's settings, for the weights that it has now; nothing where none are to be 0.
    pub fn new(settings: &Settings, network: &Network) -> Option<Self> {
        let Settings { sparsity: share, sparsity_evenly: evenly, steps, keep_zeros, .. } = *settings;
        let wanted = share > 0.0 || keep_zeros;
        wanted.then(|| Self { share, evenly, steps, mask: Mask::of_zeros(network) })
    }

    /// The share of zeros that is due after a step, if any is.
    fn due(&self, step: u32) -> Option<f64> {
        let end = (self.steps * 3 / 4).max(1);
        let due = self.share > 0.0 && step <= end && (step == end || step.is_multiple_of((end / TIMES).max(1)));
        due.then(|| self.share * (1.0 - (1.0 - f64::from(step) / f64::from(end)).powi(3)))
    }

    /// What is 0 gets no gradient.
    pub fn of_gradients(&self, grads: &mut Grads) {
        self.mask.apply(grads.finish().iter_mut().map(Vec::as_mut_slice));
    }

    /// More zeros after a step, where they are due; never fewer.
    pub fn after(&mut self, step: u32, network: &mut Network, optimizer: &mut Optimizer) {
        let Some(share) = self.due(step) else { return };
        self.mask = Mask::of_smallest(network, share.max(self.mask.sparsity()), self.evenly);
        self.mask.apply_to(network);
        for moments in optimizer.moments_mut() {
            self.mask.apply(moments.iter_mut().map(Vec::as_mut_slice));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_core::Spec;
    use lathe_model::REGISTRY;

    #[test]
    fn the_schedule_is_cubic() {
        let spec = "backbone = 'gpt2'\nlayers = 'sf'\nd_model = 8\nvocab = 9\nmax_len = 4";
        let model = Spec::from_toml(spec, &REGISTRY).unwrap().model(&REGISTRY).unwrap();
        let network = Network::new(model, 0).unwrap();
        let settings = Settings { sparsity: 0.8, steps: 1000, ..Settings::default() };
        let sparsity = Sparsity::new(&settings, &network).unwrap();
        let due: Vec<(u32, f64)> = (1..=1000).filter_map(|step| Some((step, sparsity.due(step)?))).collect();
        assert_eq!((due[0].0, due.len()), (7, 108)); // 107 of seven steps each, and the last
        assert_eq!(due.last(), Some(&(750, 0.8)));
        for (step, share) in due {
            let left = 1.0 - f64::from(step) / 750.0;
            assert!((share - 0.8 * (1.0 - left * left * left)).abs() < 1e-12, "{step}");
        }
        assert!(Sparsity::new(&Settings::default(), &network).is_none());
        let kept = Sparsity::new(&Settings { keep_zeros: true, ..Settings::default() }, &network).unwrap();
        assert!((1..=1000).all(|step| kept.due(step).is_none()));
    }
}
