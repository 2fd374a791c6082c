//! What to prune, and how.

use crate::{Error, Result};
use lathe_search::workload::Workload;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A pruning to be done, or to be gone on with.
#[derive(Debug, Clone)]
pub struct Request {
    /// What makes it what it is.
    pub asked: Asked,
    /// Folder of the smaller model.
    pub out: PathBuf,
}

/// What is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// A share of all heads.
    Heads(f64),
    /// A share of all inner neurons of feed-forwards.
    Inner(f64),
    /// So many blocks.
    Blocks(u32),
    /// A share of the weights of the blocks' matrices, which become 0.
    Magnitude(f64),
    /// Tokens that the text never uses.
    Vocab,
}

/// What says how important a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The gradient of the loss for a gate on it.
    Gradient,
    /// How much it writes.
    Activations,
    /// Nothing: a draw, to compare with.
    Random,
}

/// What makes a pruning what it is: one with another of these values is another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// A model folder; where tickets are looked for, also a model file or a shipped name, whose weights are drawn.
    pub model: String,
    /// A text.
    pub data: String,
    /// A text to measure losses on; `None` for the last tenth of the data.
    pub valid: Option<String>,
    /// What goes.
    pub what: What,
    /// How units are chosen; `None` for the usual way.
    pub importance: Option<By>,
    /// Whether every block, or matrix, loses the same share.
    pub evenly: bool,
    /// Whether blocks go one by one, each after another look.
    pub iterative: bool,
    /// Sequences to look at.
    pub samples: u32,
    /// Unused tokens stay that the model expects, until those that go have at most this share of its predictions together;
    /// `None` lets all of them go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<f64>,
    /// Whether the text is read document by document.
    pub documents: bool,
    /// Bytes of text that losses are measured on, at most; 0 for all.
    pub eval_bytes: u64,
    /// The setting of the latencies.
    pub workload: Workload,
    /// How long both are measured side by side.
    pub seconds: f64,
    /// Steps of training, in each of which weights may go.
    pub steps: Option<u32>,
    /// Rounds of training, pruning and rewinding.
    pub lottery: Option<u32>,
    /// Whether to train what the result is to be compared with, too.
    pub control: bool,
    /// Highest learning rate.
    pub lr: Option<f64>,
    /// Sequences of a step.
    pub train_batch: u32,
    /// Of all that is random.
    pub seed: u32,
}

impl Asked {
    /// What can be found wrong without a look at any file.
    pub(super) fn check(&self) -> Result<()> {
        let share = match self.what {
            What::Heads(share) => Some(("heads", share)),
            What::Inner(share) => Some(("inner", share)),
            What::Magnitude(share) => Some(("magnitude", share)),
            What::Blocks(_) | What::Vocab => None,
        };
        if let Some((name, share)) = share.filter(|(_, share)| !(*share > 0.0 && *share < 1.0)) {
            return Err(Error::setting(name, share, "a share to remove, above 0 and below 1"));
        }
        let units = matches!(self.what, What::Heads(_) | What::Inner(_));
        let weights = matches!(self.what, What::Magnitude(_));
        let training = self.steps.is_some();
        let only = |given: bool, fits: bool, name: &str, expected: &str| match given && !fits {
            true => Err(Error::setting(name, "what has no meaning here", expected)),
            false => Ok(()),
        };
        only(self.importance.is_some(), units, "importance", "heads or inner, of which it chooses")?;
        only(self.evenly, units || weights, "evenly", "heads, inner or magnitude, which it spreads")?;
        only(self.iterative, matches!(self.what, What::Blocks(_)), "iterative", "blocks, which go one by one")?;
        only(self.expected.is_some(), matches!(self.what, What::Vocab), "expected", "vocab, whose tokens it keeps")?;
        if let Some(share) = self.expected.filter(|share| !(0.0..1.0).contains(share)) {
            return Err(Error::setting("expected", share, "a share of the predictions, from 0 to below 1"));
        }
        only(training, weights, "steps", "magnitude, between whose prunings they train")?;
        only(self.lottery.is_some(), weights, "lottery", "magnitude, by which tickets are found")?;
        only(self.control, training, "control", "steps, without which nothing is trained")?;
        if self.lottery.is_some() && !training {
            return Err(Error::missing("steps", "those of each round of a lottery"));
        }
        for (name, number) in [("samples", Some(self.samples)), ("lottery", self.lottery), ("steps", self.steps)] {
            if number == Some(0) {
                return Err(Error::setting(name, 0, "at least 1"));
            }
        }
        if !(self.seconds >= 0.0 && self.seconds <= 3600.0) {
            return Err(Error::setting("seconds", self.seconds, "0 to 3600"));
        }
        Ok(())
    }
}
