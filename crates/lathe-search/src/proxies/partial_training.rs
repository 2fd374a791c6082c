//! partial_training: the validation loss after a share of the steps of a training run, with its sign turned (LTS, section
//! 4.2, which stops after 1.25 % to 87.5 %). The learning rate follows the schedule of the whole run, as there.

use super::{Candidate, Needs, Proxy, Scored};
use crate::{Error, Result};
use lathe_core::{Model, Setting};
use lathe_model::count;
use serde::Deserialize;
use std::path::Path;

pub(super) const PROXY: Proxy = Proxy {
    name: "partial_training",
    about: "minus the validation loss after a share of the steps",
    needs: Needs::Training,
    output: false,
    score,
};

/// What a training run recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// All steps.
    pub steps: u32,
    /// Tokens of a step, and of a sequence.
    pub tokens_per_step: u64,
    /// Seconds of all steps, without evaluations.
    pub seconds: f64,
    /// Step and validation loss of each evaluation before the last step, increasing.
    pub evaluations: Vec<(u32, f64)>,
}

#[derive(Deserialize)]
struct Line {
    step: Option<u32>,
    valid: Option<Valid>,
}

#[derive(Deserialize)]
struct Valid {
    loss: f64,
}

impl Record {
    /// Reads the evaluations in `metrics.jsonl` of a run's folder.
    pub fn read(folder: &Path, steps: u32, tokens_per_step: u64, seconds: f64) -> Result<Self> {
        let path = folder.join("metrics.jsonl");
        let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
        let mut evaluations = std::collections::BTreeMap::new(); // a resumed run records steps twice
        for (number, line) in text.lines().enumerate() {
            let line: Line = serde_json::from_str(line).map_err(|error| {
                Error::data(format!("{}: line {}", path.display(), number + 1), error, "a record of a run")
            })?;
            if let (Some(step), Some(valid)) = (line.step, line.valid)
                && step < steps
            {
                evaluations.insert(step, valid.loss);
            }
        }
        Ok(Self { steps, tokens_per_step, seconds, evaluations: evaluations.into_iter().collect() })
    }

    /// The shares of the steps after which there was an evaluation.
    pub fn shares(&self) -> impl Iterator<Item = f64> + '_ {
        self.evaluations.iter().map(|&(step, _)| f64::from(step) / f64::from(self.steps))
    }

    /// The last evaluation up to a share of the steps.
    fn at(&self, share: f64) -> Option<(u32, f64)> {
        let last = (share * f64::from(self.steps)).round() as u32;
        self.evaluations.iter().copied().rev().find(|&(step, _)| step <= last)
    }

    /// Seconds of training up to a share of the steps.
    pub fn seconds_until(&self, share: f64) -> f64 {
        self.at(share).map_or(0.0, |(step, _)| self.seconds * f64::from(step) / f64::from(self.steps))
    }
}

fn score(candidate: &Candidate<'_>) -> Result<Scored> {
    let record =
        candidate.record.ok_or_else(|| Error::setting(PROXY.name, "no training", "the record of a training run"))?;
    let Some((step, loss)) = record.at(candidate.share) else {
        return Ok(Scored::NotApplicable("no evaluation so early in its training"));
    };
    let flops = u128::from(step) * step_flops(candidate.model, record.tokens_per_step);
    Ok(Scored::Score { value: -loss, flops })
}

/// FLOPs of a step: forward, and backward twice as much.
fn step_flops(model: &Model, tokens: u64) -> u128 {
    let one = Setting::of(model);
    3 * count(model, &one).total_flops() * u128::from(tokens) / one.tokens()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_up_to_a_share() {
        let folder = tempfile::tempdir().unwrap();
        let lines = "{\"step\":10,\"loss\":5.0}\n{\"step\":10,\"valid\":{\"loss\":3.0,\"perplexity\":1.0}}\n\
                     {\"resumed\":5}\n{\"step\":10,\"valid\":{\"loss\":3.0}}\n{\"step\":20,\"valid\":{\"loss\":2.5}}\n\
                     {\"step\":40,\"valid\":{\"loss\":2.0}}\n";
        std::fs::write(folder.path().join("metrics.jsonl"), lines).unwrap();
        let record = Record::read(folder.path(), 40, 64, 8.0).unwrap();
        assert_eq!(record.evaluations, [(10, 3.0), (20, 2.5)], "the last is the quality itself");
        assert_eq!(record.shares().collect::<Vec<_>>(), [0.25, 0.5]);
        assert_eq!((record.at(0.2), record.at(0.3), record.at(0.9)), (None, Some((10, 3.0)), Some((20, 2.5))));
        assert_eq!(record.seconds_until(0.5), 4.0);
        std::fs::write(folder.path().join("metrics.jsonl"), "{}\nx\n").unwrap();
        let error = Record::read(folder.path(), 40, 64, 8.0).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
