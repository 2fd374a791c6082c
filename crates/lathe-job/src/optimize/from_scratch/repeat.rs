//! Both models trained again with other seeds: how much of a difference is chance.

use super::race::Chosen;
use super::stages::{BASELINE, FOUND, OptimizeJob};
use crate::{Event, Result, Watch};
use lathe_train::run::{self, Outcome};
use lathe_train::settings::Settings;
use serde::Serialize;

/// What several trainings of both models gave.
#[derive(Debug, Clone, Serialize)]
pub struct Repeated {
    /// The seeds, the first of them that of the job.
    pub seeds: Vec<u32>,
    /// Bits per byte of the baseline.
    pub baseline: Spread,
    /// Bits per byte of what was found.
    pub found: Spread,
    /// Of each seed's two models, how many more bits the found one needs, relative to the baseline.
    pub change: Spread,
    /// What the further trainings took.
    pub seconds: f64,
}

/// Values, one of each seed, with their mean and standard deviation.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Spread {
    pub values: Vec<f64>,
    pub mean: f64,
    pub deviation: f64,
}

impl Spread {
    fn new(values: Vec<f64>) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self { values, mean, deviation: (squares / (n - 1.0).max(1.0)).sqrt() }
    }
}

impl OptimizeJob {
    /// Trains both models with so many seeds in all, given those of the first; nothing where that is all.
    pub fn repeat(
        &self,
        chosen: &Chosen,
        first: [&Outcome; 2],
        times: u32,
        watch: Watch<'_>,
    ) -> Result<Option<Repeated>> {
        let bits = |outcome: &Outcome| outcome.valid.as_ref().map_or(f64::NAN, |valid| valid.bits_per_byte);
        let seeds: Vec<u32> = (0..times).map(|i| self.plan.seed.wrapping_add(i)).collect();
        let mut sides = first.map(|outcome| vec![bits(outcome)]);
        let mut seconds = 0.0;
        for &seed in seeds.iter().skip(1) {
            let models = [(BASELINE, self.baseline.layers()), (FOUND, chosen.layers.clone())];
            for (side, (name, layers)) in sides.iter_mut().zip(models) {
                watch(Event::Part(format!("train {name} with seed {seed}, {layers}")));
                let place = format!("repeat/{name}-{seed}");
                let settings = Settings { seed, ..self.training(&self.out.join(&place)) };
                let inherit = name == FOUND;
                let mut told = |event: run::Event<'_>| watch(Event::Training(event));
                let outcome = self.train_as(&place, settings, &layers, inherit, &mut told)?;
                side.push(bits(&outcome));
                seconds += outcome.seconds;
            }
        }
        if times < 2 {
            return Ok(None);
        }
        let change = sides[0].iter().zip(&sides[1]).map(|(baseline, found)| found / baseline - 1.0).collect();
        let [baseline, found, change] = [sides[0].clone(), sides[1].clone(), change].map(Spread::new);
        Ok(Some(Repeated { seeds, baseline, found, change, seconds }))
    }
}

impl std::fmt::Display for Repeated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { baseline, found, change, .. } = self;
        write!(
            f,
            "{:+.2} ± {:.2} % over {} seeds: {:.4} ± {:.4} against {:.4} ± {:.4} bits per byte, mean and deviation",
            100.0 * change.mean,
            100.0 * change.deviation,
            self.seeds.len(),
            found.mean,
            found.deviation,
            baseline.mean,
            baseline.deviation
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation() {
        let spread = Spread::new(vec![1.0, 2.0, 4.0, 5.0]);
        assert_eq!((spread.mean, spread.deviation), (3.0, (10.0f64 / 3.0).sqrt()));
    }
}
