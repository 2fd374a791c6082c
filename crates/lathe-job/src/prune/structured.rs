//! Heads, inner neurons and blocks: what a text shows of them, and the model without the least of them.

use super::Job;
use super::outcome::{Found, Removed, Share};
use super::request::By;
use crate::event::steps;
use crate::{Error, Event, Result, Watch};
use lathe_model::Network;
use lathe_model::prune::blocks::{self, Influence};
use lathe_model::prune::units::{self, Importance, Spread};
use lathe_train::data::Batch;
use lathe_train::samples;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

impl Job<'_> {
    pub(super) fn samples(&self, watch: Watch<'_>) -> Result<Vec<Batch>> {
        let settings = (self.asked.samples, self.asked.seed);
        let found = self.text.samples(&self.network.model.frame, self.task, &self.tokenizer, settings, &mut *watch)?;
        watch(Event::Done);
        match found.is_empty() {
            true => Err(Error::data(&self.asked.data, "no sequence of two tokens", "a longer text to choose by")),
            false => Ok(found),
        }
    }

    /// Without the least important of the units that a knob counts.
    pub(super) fn units(&self, (knob, of, least): (&str, &str, usize), share: f64, watch: Watch<'_>) -> Result<Found> {
        // Heads by gradients, as their paper has it; neurons by activations.
        let usual = if knob == super::HEADS.0 { By::Gradient } else { By::Activations };
        let by = self.asked.importance.unwrap_or(usual);
        let scores = self.scores(knob, by, watch)?;
        let kept = units::choose(&scores, &Spread { share, evenly: self.asked.evenly, least });
        let smaller = units::keep(&self.network, knob, &kept)?;
        let mut removed = Vec::new();
        for (slot, (scores, kept)) in scores.iter().zip(&kept).enumerate().filter(|(_, (_, kept))| !kept.is_empty()) {
            // Where neurons stood tells nobody anything.
            let told = if knob == super::HEADS.0 { scores.len() } else { 0 };
            let units = (0..told).filter(|unit| !kept.contains(unit)).collect();
            removed.push(Removed {
                block: slot + 1,
                what: knob.into(),
                before: scores.len(),
                after: kept.len(),
                units,
            });
        }
        let count = |of: &dyn Fn(&Removed) -> usize| removed.iter().map(of).sum::<usize>() as f64;
        let reached = 1.0 - count(&|one| one.after) / count(&|one| one.before);
        self.save(&smaller, &self.tokenizer)?;
        Ok(Found { removed, ..Found::new(&self.before, Share::new(of, share, reached)) })
    }

    /// How important units are.
    fn scores(&self, knob: &str, by: By, watch: Watch<'_>) -> Result<Vec<Vec<f64>>> {
        let mut importance = Importance::new(&self.network, knob)?;
        if by == By::Random {
            let mut rng = ChaCha8Rng::seed_from_u64(self.asked.seed.into());
            let scores = importance.scores();
            return Ok(scores.iter().map(|slot| slot.iter().map(|_| rng.random()).collect()).collect());
        }
        let samples = self.samples(&mut *watch)?;
        let mut done = 0;
        let mut heard = || {
            done += 1;
            watch(steps("looking at the text", done, samples.len()));
        };
        match (by, self.task) {
            (By::Gradient, None) => {
                let found = "gradient for a model without an output layer, which has no loss";
                return Err(Error::setting("importance", found, "activations or random"));
            }
            (By::Gradient, Some(task)) => {
                let network = self.floats()?;
                samples::gradients(&network, task, &samples, |grads| {
                    importance.add_gradients(&network, grads);
                    heard();
                });
            }
            _ => samples::observe(&self.network, &samples, |shown| {
                importance.add_activations(shown);
                heard();
            }),
        }
        watch(Event::Done);
        Ok(importance.scores())
    }

    /// Without the blocks that turn the hidden states least.
    pub(super) fn blocks(&self, count: usize, watch: Watch<'_>) -> Result<Found> {
        let all = self.network.model.blocks.len();
        blocks::least(&self.network, &vec![0.0; all], count)?; // that many can go
        let samples = self.samples(&mut *watch)?;
        let rounds = if self.asked.iterative { count } else { 1 };
        let mut shorter: Option<Network> = None;
        // Where the blocks that are left stood.
        let mut places: Vec<usize> = (0..all).collect();
        let mut gone = Vec::new();
        for round in 0..rounds {
            let network = shorter.as_ref().unwrap_or(&self.network);
            let mut influence = Influence::default();
            let mut done = round * samples.len();
            samples::observe(network, &samples, |shown| {
                influence.add(shown);
                done += 1;
                watch(steps("looking at the text", done, rounds * samples.len()));
            });
            let least = blocks::least(network, &influence.scores(), count / rounds)?;
            let next = blocks::without(network, &least)?;
            gone.extend(least.iter().map(|&slot| places[slot]));
            places = (0..places.len()).filter(|slot| !least.contains(slot)).map(|slot| places[slot]).collect();
            shorter = Some(next);
        }
        watch(Event::Done);
        let shorter = shorter.expect("one round at least");
        self.save(&shorter, &self.tokenizer)?;
        let block = |&slot: &usize| {
            let what = format!("{:?}", self.network.model.blocks[slot]);
            Removed { block: slot + 1, what, before: 1, after: 0, units: Vec::new() }
        };
        let share = count as f64 / all as f64;
        let removed = gone.iter().map(block).collect();
        Ok(Found { removed, ..Found::new(&self.before, Share::new("blocks", share, share)) })
    }
}
