//! The search itself: what moves, and its two kinds of steps.
//!
//! Weight steps see all the data in its order. Architecture steps see a random stretch of it in each round, in streams
//! of their own and with a memory of their own, and leave the weights alone, so that their gradients are not computed.
//! Everything random is a function of seed and tick, so that a search needs no generator's state to go on.

use super::adam::Adam;
use super::gumbel::{self, Sample, Sampling};
use super::latency::CostTable;
use super::plan::{Step, StepPlan};
use super::settings::SearchSettings;
use crate::Result;
use lathe_model::{Grads, Mixture, State, SuperNet, Training};
use lathe_ops::dropout::Dropout;
use lathe_train::data::{Batch, mix};
use lathe_train::optimizer::Optimizer;
use lathe_train::schedule::Schedule;
use lathe_train::settings::Settings;
use lathe_train::tasks::{Batches, Sequences, Task};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// What does not move.
pub struct Fixed {
    /// What is trained for.
    pub task: &'static dyn Task,
    /// Of the weights' training.
    pub training: Settings,
    /// Of the search.
    pub settings: SearchSettings,
    /// When what is trained.
    pub plan: StepPlan,
    /// What blocks cost.
    pub table: CostTable,
    /// Batches for the weights.
    pub weights: Box<dyn Batches>,
    /// Batches for the architecture.
    pub architecture: Box<dyn Batches>,
    /// Learning rates of the weights.
    pub schedule: Schedule,
}

/// What moves.
pub struct SearchState {
    /// All weights.
    pub net: SuperNet,
    /// The weights' optimiser.
    pub optimizer: Optimizer,
    /// How often each weight was stepped.
    pub steps: Vec<u32>,
    /// The memory of weight steps, and that of architecture steps.
    pub states: [State; 2],
    /// How far it has come.
    pub progress: SearchProgress,
}

/// How far a search has come: all that moves but for weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchProgress {
    /// Steps of either kind that are done.
    pub tick: u32,
    /// For each slot a number per option.
    pub alphas: Vec<Vec<f64>>,
    /// Their optimiser.
    pub adam: Adam,
    /// Architecture steps done.
    pub arch_steps: u32,
    /// The architecture step after which the most probable options were other ones than before.
    pub last_change: u32,
    /// Loss of the first step.
    pub first_loss: f32,
    /// Mean losses of the last weight steps and of the last architecture steps.
    pub recent: [Vec<f32>; 2],
    /// Seconds of the whole search so far, of weight steps and of architecture steps.
    pub seconds: [f64; 3],
}

/// How many losses make a mean.
const RECENT: usize = 100;

/// What a step found.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Found {
    /// A weight step.
    Weights {
        /// Counted from 1.
        step: u32,
        /// Nats per token.
        loss: f32,
        /// Learning rate.
        lr: f64,
        /// Length of the gradient before clipping.
        grad_norm: f64,
    },
    /// An architecture step.
    Architecture {
        /// Counted from 1.
        arch_step: u32,
        /// Round, counted from 0.
        round: u32,
        /// Temperature.
        temperature: f64,
        /// Cross-entropy, nats per token.
        loss: f32,
        /// The latency loss, 0 while the target is met.
        latency_loss: f64,
        /// Estimate of the sampled mixture, relative to the baseline.
        sampled_latency: f64,
        /// The expectation under softmax(alpha).
        expected_latency: f64,
        /// Estimate of the most probable option of each slot.
        argmax_latency: f64,
    },
}

impl SearchProgress {
    /// softmax(alpha) of each slot.
    pub fn probabilities(&self) -> Vec<Vec<f64>> {
        self.alphas.iter().map(|alpha| gumbel::softmax(alpha, 1.0)).collect()
    }

    /// The most probable option of each slot.
    pub fn argmax(&self) -> Vec<usize> {
        self.alphas.iter().map(|alpha| gumbel::argmax(alpha)).collect()
    }

    fn remember(&mut self, kind: usize, loss: f32) {
        let recent = &mut self.recent[kind];
        recent.push(loss);
        recent.drain(..recent.len().saturating_sub(RECENT));
    }
}

/// A generator for one step: different seeds, steps and uses have nothing to do with each other.
fn generator(seed: u32, tick: u32) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(mix(u64::from(seed) ^ 0x6469_6666)); // not that of weights or data
    rng.set_stream(tick.into());
    rng
}

impl SearchState {
    /// What a step computes with in each slot, and the samples behind it.
    fn mixtures(&self, fixed: &Fixed, sampling: Sampling, tau: f64) -> (Vec<Mixture>, Vec<Sample>) {
        let mut rng = generator(fixed.training.seed, self.progress.tick);
        let mut of_slot = |alpha: &Vec<f64>| {
            let floats = |p: &[f64]| Mixture::Soft(p.iter().map(|&p| p as f32).collect());
            if sampling == Sampling::Hard {
                let option = gumbel::draw_option(alpha, &mut rng);
                return (Mixture::Hard(option), Sample::new(alpha, &vec![0.0; alpha.len()], tau));
            }
            let sample = Sample::draw(alpha, tau, fixed.settings.relaxation, &mut rng);
            let mixture = match sampling {
                Sampling::StraightThrough => floats(&sample.one_hot()),
                _ => floats(&sample.soft),
            };
            (mixture, sample)
        };
        self.progress.alphas.iter().map(&mut of_slot).unzip()
    }

    /// One option of each slot, each as probable as any other.
    fn uniform(&self, fixed: &Fixed) -> Vec<Mixture> {
        let mut rng = generator(fixed.training.seed, self.progress.tick);
        let of_slot = |alpha: &Vec<f64>| Mixture::Hard(gumbel::draw_option(&vec![0.0; alpha.len()], &mut rng));
        self.progress.alphas.iter().map(of_slot).collect()
    }

    fn training(&self, fixed: &Fixed, batch: &Batch) -> Training {
        let key = mix(mix(u64::from(fixed.training.seed)) ^ (u64::from(self.progress.tick) << 20));
        let scale = 1.0 / batch.counted().max(1) as f32;
        Training { dropout_key: Some(key), balance: fixed.training.balance as f32, scale }
    }

    /// One pass with gradients over a batch. Returns the mean loss and the gradients of mixtures.
    fn pass(
        &mut self,
        fixed: &Fixed,
        batch: &Batch,
        (which, fresh): (usize, bool),
        mixtures: &[Mixture],
        grads: &mut Grads,
    ) -> (f32, Vec<Vec<f64>>) {
        let rows = batch.rows;
        if fresh || !self.net.frame.has_memory() {
            self.states[which] = self.net.init_memory(rows);
        }
        let training = self.training(fixed, batch);
        let state = &mut self.states[which];
        let input = batch.input(rows);
        let key = training.dropout_key.unwrap_or_default();
        let dropout = Dropout { probability: self.net.frame.dropout as f32, key };
        let objective = fixed.task.objective(Sequences { input, targets: &batch.targets, dropout });
        let outcome = self.net.train(&input, &*objective, state, mixtures, &training, grads);
        let sum: f64 = outcome.losses.iter().copied().map(f64::from).sum();
        ((sum / batch.counted().max(1) as f64) as f32, outcome.dp)
    }

    /// The next step. `grads` are to be used again and again; an infinite loss or gradient is an error, and then nothing
    /// was changed but memories.
    pub fn step(&mut self, fixed: &Fixed, grads: &mut [Grads; 2]) -> Result<Found> {
        let [wanted, unwanted] = grads;
        let round = fixed.plan.round(self.progress.tick);
        let found = match fixed.plan.at(self.progress.tick) {
            Step::Weights { step } => self.weight_step(fixed, step, round, wanted)?,
            Step::Architecture { step } => self.architecture_step(fixed, step, round, unwanted)?,
        };
        self.progress.tick += 1;
        Ok(found)
    }

    fn weight_step(&mut self, fixed: &Fixed, step: u32, round: u32, grads: &mut Grads) -> Result<Found> {
        let batch = fixed.weights.batch(step.into())?;
        let mixtures = match fixed.settings.uniform_warm_up && fixed.plan.is_off(round) {
            true => self.uniform(fixed),
            false => self.mixtures(fixed, fixed.settings.weight_samples, fixed.plan.temperature(round)).0,
        };
        grads.clear();
        let (loss, _) = self.pass(fixed, &batch, (0, batch.fresh), &mixtures, grads);
        if step == 0 {
            self.progress.first_loss = loss;
        }
        let lr = fixed.schedule.rate(step + 1);
        let highest = 4.0 * self.progress.first_loss.max(fixed.task.chance(&self.net.frame));
        let norm = match loss <= highest {
            true => self.optimizer.step_reached(self.net.params_mut(), grads, &mut self.steps, lr),
            false => f64::NAN,
        };
        if !norm.is_finite() {
            let error = lathe_train::Error::Diverged { step: step + 1, loss, highest, checkpoint: None };
            return Err(error.into());
        }
        self.progress.remember(0, loss);
        Ok(Found::Weights { step: step + 1, loss, lr, grad_norm: norm })
    }

    fn architecture_step(&mut self, fixed: &Fixed, step: u32, round: u32, grads: &mut Grads) -> Result<Found> {
        let settings = &fixed.settings;
        // A stretch of the data that begins anywhere, another in each round.
        let start = mix(mix(fixed.training.seed.into()) ^ u64::from(round) ^ 0x6172_6368) >> 1;
        let start = start % fixed.architecture.steps_per_epoch();
        let batch = fixed.architecture.batch(start + u64::from(step))?;
        let temperature = fixed.plan.temperature(round);
        let (mixtures, samples) = self.mixtures(fixed, settings.arch_samples, temperature);
        let (loss, dp) = self.pass(fixed, &batch, (1, batch.fresh || step == 0), &mixtures, grads);
        let used: Vec<Vec<f64>> = samples
            .iter()
            .map(|sample| match settings.arch_samples {
                Sampling::StraightThrough => sample.one_hot(),
                _ => sample.soft.clone(),
            })
            .collect();
        let latency = settings.target.map(|target| fixed.table.loss(&used, target));
        let weight = settings.latency_weight;
        let gradient = samples.iter().zip(&dp).enumerate().flat_map(|(s, (sample, dp))| {
            let of_latency = |i: usize| latency.as_ref().map_or(0.0, |latency| weight * latency.dp[s][i]);
            let dp: Vec<f64> = dp.iter().enumerate().map(|(i, dp)| dp + of_latency(i)).collect();
            sample.backward(&dp)
        });
        let gradient: Vec<f64> = gradient.collect();
        if !loss.is_finite() || gradient.iter().any(|g| !g.is_finite()) {
            let (step, highest) = (self.progress.arch_steps + 1, f32::MAX);
            return Err(lathe_train::Error::Diverged { step, loss, highest, checkpoint: None }.into());
        }
        let before = self.progress.argmax();
        let progress = &mut self.progress;
        progress.adam.step(progress.alphas.iter_mut().flatten(), gradient.into_iter());
        progress.arch_steps += 1;
        let after = progress.argmax();
        if after != before {
            progress.last_change = progress.arch_steps;
        }
        progress.remember(1, loss);
        let relative = |cost: f64| cost / fixed.table.baseline;
        Ok(Found::Architecture {
            arch_step: progress.arch_steps,
            round,
            temperature,
            loss,
            latency_loss: latency.as_ref().map_or(0.0, |latency| weight * latency.value),
            sampled_latency: relative(fixed.table.estimate(&used)),
            expected_latency: relative(fixed.table.estimate(&progress.probabilities())),
            argmax_latency: relative(fixed.table.of(&after)),
        })
    }
}
