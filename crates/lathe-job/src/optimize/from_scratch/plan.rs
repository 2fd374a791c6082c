//! What an optimisation does, decided once and written down, so that whoever goes on does the same.

use crate::{Error, Result};
use lathe_search::workload::Workload;
use serde::{Deserialize, Serialize};

/// The decisions of an optimisation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OptimizePlan {
    /// What was asked for, without what only says where.
    pub asked: Asked,
    /// The model file of the baseline.
    pub model: String,
    /// Text to learn.
    pub data: String,
    /// Text to validate on; empty for a part of the data.
    pub valid: String,
    /// How text becomes tokens.
    pub tokenizer: String,
    /// The latency wanted, as a share of the baseline's, or in milliseconds.
    pub target: Target,
    /// The setting to be fast in.
    pub workload: Workload,
    /// Steps of each training, and weight steps of the search.
    pub steps: u32,
    /// Sequences of a step.
    pub batch: u32,
    /// Highest learning rate.
    pub lr: f64,
    /// Of all that is random.
    pub seed: u32,
    /// Precision of products in training.
    pub precision: String,
    /// Most tokens of an evaluation before the last.
    pub eval_tokens: u32,
    /// Whether a wide feed-forward takes the place of the mixture among the options.
    pub iso_parameter: bool,
    /// Whether trainings after the search begin with its weights.
    #[serde(default)]
    pub inherit: bool,
}

/// What makes a job what it is: one with another of these values is another job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Threads that compute.
    pub threads: usize,
    /// A model, by file, model folder or shipped name.
    pub model: String,
    /// Text to learn.
    pub data: String,
    /// Text to validate on.
    pub valid: Option<String>,
    /// How text becomes tokens; `None` as the model folder says, else bytes.
    pub tokenizer: Option<String>,
    /// The latency wanted, as a share of the model's.
    pub target_latency: Option<f64>,
    /// The latency wanted, in milliseconds.
    pub target_latency_ms: Option<f64>,
    /// The setting to be fast in.
    pub workload: Workload,
    /// Steps of each training; `None` for as many as the budget has room for.
    pub steps: Option<u32>,
    /// Minutes that all of it may take, about.
    pub budget: f64,
    /// Sequences of a training step.
    pub train_batch: u32,
    /// Highest learning rate; `None` for one that fits the width.
    pub lr: Option<f64>,
    /// Precision of products in training; `None` for the fastest.
    pub train_precision: Option<String>,
    /// Most tokens of an evaluation before the last.
    pub eval_tokens: u32,
    /// Whether a wide feed-forward takes the place of the mixture among the options.
    pub iso_parameter: bool,
    /// Whether trainings after the search begin with its weights.
    pub inherit: bool,
    /// Of all that is random.
    pub seed: u32,
}

impl Asked {
    /// The latency wanted: half of the model's where nothing is said.
    pub fn target(&self) -> Result<Target> {
        let wrong = |setting: &str, value: f64| Error::setting(setting, value, "a number above 0");
        match (self.target_latency, self.target_latency_ms) {
            (_, Some(ms)) if ms > 0.0 => Ok(Target::Ms(ms)),
            (_, Some(ms)) => Err(wrong("target_latency_ms", ms)),
            (Some(ratio), _) if ratio > 0.0 => Ok(Target::Ratio(ratio)),
            (Some(ratio), _) => Err(wrong("target_latency", ratio)),
            _ => Ok(Target::Ratio(0.5)),
        }
    }
}

/// The latency wanted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A share of the baseline's.
    Ratio(f64),
    /// Milliseconds.
    Ms(f64),
}

impl Target {
    /// As a share of what the baseline takes.
    pub fn ratio(self, baseline_ms: f64) -> f64 {
        match self {
            Self::Ratio(ratio) => ratio,
            Self::Ms(ms) => ms / baseline_ms,
        }
    }
}

/// What trainings cost, relative to the baseline's: the search; then, of models that take the target's share of its time, three
/// short ones and two whole ones; and those compared with, of which the papers' rules are as slow as the baseline.
const SEARCH_COST: f64 = 0.7;
const RACE_COST: f64 = 3.0 * 0.25 + 2.0;
const COMPARED_COST: f64 = 2.0;
/// Evaluations, and what is slower than it was measured to be.
const MARGIN: f64 = 1.3;

/// As many steps as fit into a budget, given what one step of the baseline takes.
pub fn steps_within(budget_minutes: f64, step_seconds: f64, target: Target, compare: bool) -> u32 {
    let seconds = 60.0 * budget_minutes;
    let measuring = (0.25 * seconds).min(75.0);
    let found = match target {
        Target::Ratio(ratio) => ratio.clamp(0.3, 1.0), // a training is never as much faster as a model can be
        Target::Ms(_) => 1.0,                          // not known before anything is measured
    };
    let mut costs = 1.0 + SEARCH_COST + RACE_COST * found;
    if compare {
        costs += COMPARED_COST * (1.0 + found);
    }
    let steps = (seconds - measuring) / (MARGIN * costs * step_seconds);
    (steps as u32).clamp(20, 100_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_time_is_more_steps() {
        let within = |minutes, ratio, compare| steps_within(minutes, 0.05, Target::Ratio(ratio), compare);
        let ten = within(10.0, 0.5, false);
        assert!(within(1.0, 0.5, false) < ten && within(10.0, 0.5, true) < ten && within(10.0, 0.9, false) < ten);
        assert_eq!(steps_within(0.001, 10.0, Target::Ms(1.0), false), 20);
        assert_eq!((Target::Ratio(0.5).ratio(80.0), Target::Ms(20.0).ratio(80.0)), (0.5, 0.25));
    }
}
