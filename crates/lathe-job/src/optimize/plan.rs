//! What a job does, decided once and written down, so that whoever goes on does the same.

use super::levers::Lever;
use super::text::Parts;
use crate::{Error, Result};
use lathe_search::workload::Workload;
use serde::{Deserialize, Serialize};

/// What makes a job what it is: one with another of these values is another job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Threads that compute.
    pub threads: usize,
    /// A model, by folder, GGUF file, model file or shipped name.
    pub model: String,
    /// The text that the model is for.
    pub data: String,
    /// Text to choose by and to report on; a part of the data without it.
    pub valid: Option<String>,
    /// The task, or the benchmark, that the data are examples of; empty for a text.
    #[serde(default)]
    pub task: String,
    /// Of examples: the columns of texts and label, where they are not the usual ones.
    #[serde(default)]
    pub columns: String,
    /// The latency wanted, as a share of the model's.
    pub target_latency: Option<f64>,
    /// The latency wanted, in milliseconds.
    pub target_latency_ms: Option<f64>,
    /// The most memory, in MB.
    pub target_memory_mb: Option<f64>,
    /// The most loss, in per cent of the model's: the fastest model within it is wanted.
    pub max_loss: Option<f64>,
    /// Further latencies to make models for, as shares of the model's.
    pub frontier: Vec<f64>,
    /// What may be changed.
    pub levers: Vec<Lever>,
    /// Who proposes, by name.
    pub proposers: Vec<String>,
    /// The setting to be fast in.
    pub workload: Workload,
    /// Minutes that all of it may take, about.
    pub budget: f64,
    /// Steps of the last recovery; `None` for as many as the budget has room for.
    pub steps: Option<u32>,
    /// Sequences of a training step.
    pub train_batch: u32,
    /// Highest learning rate; `None` for one that fits the width.
    pub lr: Option<f64>,
    /// Precision of products in training; `None` for the fastest.
    pub train_precision: Option<String>,
    /// Of all that is random.
    pub seed: u32,
}

impl Asked {
    /// The latency wanted: half of the model's where nothing is said.
    pub fn target(&self) -> Result<Target> {
        let above_zero = |setting: &str, value: Option<f64>| match value {
            Some(value) if !(value > 0.0 && value.is_finite()) => {
                Err(Error::setting(setting, value, "a number above 0"))
            }
            value => Ok(value),
        };
        let ratio = above_zero("target_latency", self.target_latency)?;
        let ms = above_zero("target_latency_ms", self.target_latency_ms)?;
        let memory = above_zero("target_memory_mb", self.target_memory_mb)?;
        for &further in &self.frontier {
            above_zero("frontier", Some(further))?;
        }
        above_zero("budget", Some(self.budget))?;
        if let Some(most) = self.max_loss.filter(|most| !(*most >= 0.0 && most.is_finite())) {
            return Err(Error::setting("max_loss", most, "per cent, at least 0"));
        }
        Ok(match (ratio, ms, memory, self.max_loss) {
            (_, Some(ms), ..) => Target::Ms(ms),
            (Some(ratio), ..) => Target::Ratio(ratio),
            (None, None, None, None) => Target::Ratio(0.5),
            _ => Target::None,
        })
    }
}

/// The latency wanted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A share of the original's.
    Ratio(f64),
    /// Milliseconds.
    Ms(f64),
    /// Another bound counts.
    None,
}

impl Target {
    /// Milliseconds, given what the original takes.
    pub fn ms(self, original_ms: f64) -> f64 {
        match self {
            Self::Ratio(ratio) => ratio * original_ms,
            Self::Ms(ms) => ms,
            Self::None => f64::INFINITY,
        }
    }
}

/// The decisions of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What was asked for.
    pub asked: Asked,
    /// Where the parts of the text are, if it is one.
    pub parts: Parts,
    /// Tokens of a training sequence.
    pub seq: u32,
    /// Highest learning rate.
    pub lr: f64,
    /// Precision of products in training.
    pub precision: String,
    /// Seconds that a training step of the original took when this was decided.
    pub step_seconds: f64,
    /// How much is done of everything.
    pub amounts: Amounts,
}

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    /// Steps in which options learn.
    pub option_steps: u32,
    /// Tokens that single replacements are scored by, and whole architectures while they are proposed.
    pub score_tokens: u64,
    /// Evaluations of whole architectures by a proposer.
    pub evaluations: usize,
    /// Steps of the first round of recovery; each further round has twice as many.
    pub first_steps: u32,
    /// Tokens that rounds are judged by.
    pub judge_tokens: u64,
}

/// What amounts are decided by.
#[derive(Debug, Clone, Copy)]
pub struct Measures {
    /// Seconds of a training step of the original.
    pub step: f64,
    /// Tokens of a step.
    pub tokens: u64,
    /// Parameters of all options over those of the trained blocks.
    pub options: f64,
    /// Options of all slots.
    pub count: usize,
    /// Proposers, and targets.
    pub proposers: usize,
    /// Models that are made.
    pub targets: usize,
}

/// Rounds of recovery in which candidates become fewer, after which the best is trained on.
pub const ROUNDS: u32 = 3;
/// Ways to recover that are tried.
pub const RECIPES: usize = 3;
/// What is left of the budget after what is slower than it was measured to be.
const MARGIN: f64 = 0.8;
/// Shares of the budget: options, scores, proposers, recovery with the control. The rest is measuring and evaluating.
const OPTIONS: f64 = 0.18;
const SCORES: f64 = 0.08;
const PROPOSING: f64 = 0.08;
const RECOVERY: f64 = 0.50;

impl Amounts {
    /// As much as a budget has room for.
    pub fn within(minutes: f64, steps: Option<u32>, of: Measures) -> Self {
        let seconds = MARGIN * 60.0 * minutes;
        // Forward is a third of a step.
        let forward = of.step / 3.0;
        let token = forward / of.tokens as f64;
        let option_step = forward + of.step * of.options;
        let whole = |amount: f64, least: f64, most: f64| amount.clamp(least, most) as u32;
        let total: u32 = (0..=ROUNDS).map(|round| 1 << round).sum();
        // In units of the first round: recipes, rounds of halving, the last training, other targets, the control.
        let halving: f64 = (0..ROUNDS).map(|round| f64::from(candidates(of.proposers, round) << round)).sum();
        let last = f64::from(1u32 << ROUNDS);
        let units = RECIPES as f64
            + halving
            + last
            + f64::from(total) * (of.targets.saturating_sub(1) as f64)
            + f64::from(total);
        let first = RECOVERY * seconds / (units * (of.step + forward));
        let score_tokens = whole(SCORES * seconds / (token * of.count.max(1) as f64), 1024.0, 16384.0);
        Self {
            option_steps: whole(OPTIONS * seconds / option_step, 10.0, 3000.0),
            score_tokens: u64::from(score_tokens),
            evaluations: whole(PROPOSING * seconds / (token * f64::from(score_tokens)), 8.0, 400.0) as usize,
            first_steps: match steps {
                Some(steps) => (steps >> ROUNDS).max(1),
                None => whole(first, 2.0, 4000.0),
            },
            judge_tokens: u64::from(whole(0.02 * seconds / (token * 12.0), 2048.0, 65536.0)),
        }
    }
}

/// Candidates that a round of halving has.
pub fn candidates(proposers: usize, round: u32) -> u32 {
    ((proposers as u32) >> round).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_time_is_more_of_everything() {
        let of = Measures { step: 0.4, tokens: 2048, options: 2.0, count: 60, proposers: 6, targets: 1 };
        let (short, long) = (Amounts::within(2.0, None, of), Amounts::within(60.0, None, of));
        assert!(short.option_steps < long.option_steps && short.first_steps < long.first_steps);
        assert!(short.score_tokens <= long.score_tokens && short.evaluations < long.evaluations);
        assert_eq!(Amounts::within(2.0, Some(80), of).first_steps, 10);
        assert_eq!((0..3).map(|round| candidates(6, round)).collect::<Vec<_>>(), [6, 3, 1]);
    }
}
