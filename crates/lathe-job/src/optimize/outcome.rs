//! What a job returns.

use super::audit::Audit;
use super::job::Judged;
use super::recover::Recipe;
use lathe_train::divergence::Spread;
use lathe_train::evaluate::Evaluation;
use serde::{Deserialize, Serialize};

/// What an optimisation returns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The model as it was given.
    pub baseline: Side,
    /// The asked-for one.
    pub found: Side,
    /// How many times as fast it is, measured side by side.
    pub speedup: f64,
    /// 95 % interval.
    pub speedup_interval: [f64; 2],
    /// The latency asked for, as a share of the original's.
    pub target: Option<f64>,
    /// Whether all that was asked for was reached, as measured.
    pub target_met: bool,
    /// By the table, as a share of the original's.
    pub estimated_latency: f64,
    /// Who proposed it.
    pub from: Vec<String>,
    /// On text used for nothing else.
    pub test: Tested,
    /// On a text of another kind, where one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<Tested>,
    /// KL of the original's predictions from those of the asked-for model, over the tokens that both have.
    pub kl: Option<Spread>,
    /// Share of places where both have the same most probable token.
    pub same_top: Option<f64>,
    /// Mean cosine of the asked-for model's vectors with the original's, where it is for vectors of texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cosine: Option<f64>,
    /// What each lever gave, one after the other.
    pub levers: Vec<Lever>,
    /// All models that were made.
    pub frontier: Vec<FrontierPoint>,
    /// Who proposed what, and what became of it.
    pub proposers: Vec<Proposed>,
    /// What models learnt from.
    pub recipe: Recipe,
    /// The ways that were tried, each with its loss.
    pub recipes: Vec<(Recipe, f64)>,
    /// How well scores tell the loss of whole architectures, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<Audit>,
    /// The original, trained on.
    pub control: Control,
    /// What the original and the asked-for one write.
    pub samples: Vec<String>,
    /// All processes together.
    pub seconds: f64,
    /// The file of the report.
    pub report: String,
}

/// A model, measured and judged.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Side {
    pub layers: String,
    pub latency_ms: f64,
    pub peak_bytes: Option<u64>,
    /// Of its weights on disk.
    pub bytes: Option<u64>,
    pub valid: Option<Evaluation>,
}

/// The original, the asked-for model and the control on a text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Tested {
    pub baseline: Evaluation,
    pub found: Evaluation,
    /// The original, trained on for as many steps.
    pub continued: Option<Evaluation>,
}

/// How far predictions are from the original's.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Quality {
    pub kl: Spread,
    pub same_top: f64,
}

/// A model with the levers up to one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Lever {
    pub name: String,
    pub latency_ms: f64,
    /// On the text to choose by.
    pub bits_per_byte: f64,
}

/// A model of the frontier.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FrontierPoint {
    /// `found` is the asked-for one.
    pub name: String,
    /// Who proposed it.
    pub from: Vec<String>,
    /// Its blocks.
    pub layers: String,
    /// What each of them is stored as, and last what stands around them.
    pub storages: Vec<String>,
    /// The latency asked for, as a share of the original's.
    pub target: Option<f64>,
    /// By the table, as a share of the original's.
    pub estimated: f64,
    /// Measured beside the original.
    pub latency_ms: f64,
    /// The original's latency over its own.
    pub speedup: f64,
    /// 95 % interval.
    pub speedup_interval: [f64; 2],
    /// Of a process that does nothing else, where it is known.
    pub peak_bytes: Option<u64>,
    /// Of its weights on disk.
    pub bytes: Option<u64>,
    /// Nats per token, by its own tokens, on text used for nothing else.
    pub loss: f64,
    /// Comparable whatever the tokens are.
    pub bits_per_byte: f64,
    /// All of that.
    pub test: Evaluation,
    /// How far predictions are from the original's.
    pub quality: Option<Quality>,
    /// Where it is.
    pub folder: String,
}

/// What a proposer proposed, and what became of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proposed {
    /// Who.
    pub name: String,
    /// The architecture.
    pub layers: String,
    /// Nats per token on the text to choose by, after its best round.
    pub loss: f64,
    /// The same as it was assembled.
    pub assembled: f64,
    /// As measured before recovery, at the original's speed then.
    pub latency_ms: f64,
    /// Rounds of recovery.
    pub rounds: Vec<Judged>,
}

/// The original, trained on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Control {
    pub steps: u32,
    pub folder: String,
}
