//! What a differentiable search does, beside the training of its weights: two papers' protocols, every number of which
//! can be set.

use super::gumbel::{Relaxation, Sampling};
use super::latency::Target;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// The settings of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchSettings {
    /// Where the protocol comes from.
    pub preset: Preset,
    /// The most that the architecture may cost; `None` for as much as it likes.
    pub target: Option<Target>,
    /// What it costs.
    #[serde(default)]
    pub cost: Cost,
    /// How often weights and architecture take turns: the papers' epochs.
    pub rounds: u32,
    /// Architecture steps of a round, as a share of its weight steps.
    pub arch_share: f64,
    /// Share of the rounds at the beginning in which the architecture is left alone.
    pub arch_off: f64,
    /// Learning rate of the architecture.
    pub arch_lr: f64,
    /// Weight decay of the architecture.
    pub arch_weight_decay: f64,
    /// What probabilities are drawn with.
    pub relaxation: Relaxation,
    /// What weight steps compute with.
    pub weight_samples: Sampling,
    /// What architecture steps compute with.
    pub arch_samples: Sampling,
    /// Temperature to begin with.
    pub temperature: f64,
    /// Factor of the temperature per round in which the architecture is trained.
    pub annealing: f64,
    /// The least temperature.
    pub temperature_floor: f64,
    /// Weight of the latency loss.
    pub latency_weight: f64,
    /// The probability that each slot begins with for the baseline's own block; 0 for options that begin equal, as in the
    /// papers.
    pub baseline_share: f64,
    /// Whether architecture steps see the text to validate on, which no weight has learnt, instead of a stretch of the text to
    /// learn.
    #[serde(default)]
    pub held_out: bool,
    /// Whether weight steps draw every option as often as any other while the architecture is left alone.
    #[serde(default)]
    pub uniform_warm_up: bool,
    /// Whether the architecture follows its gradient itself, however large it is; else by Adam, which keeps little but its sign.
    #[serde(default)]
    pub plain_steps: bool,
    /// Whether the architecture, where it breaks the target, gives way to the most probable one that meets it.
    pub project: bool,
}

/// What the table of a search is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// Microseconds of a pass.
    #[default]
    Latency,
    /// Bytes at the peak.
    Memory,
}

/// A paper's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Cross-entropy and a latency loss; hard samples for the weights, soft ones for the architecture. Annealing and rounds of
    /// WikiText-103.
    Planer,
    /// The same with those of enwik8.
    PlanerEnwik8,
    /// Cross-entropy only; mixtures in both stages.
    Par,
    /// No paper's: PLANER's with what goes wrong where a search begins with trained weights mended. The architecture is trained
    /// on held-out text, at a temperature that leaves a trained block alive in a mixture, after a warm-up that draws all options
    /// alike, by steps that keep the size of the evidence.
    Mended,
}

/// Every preset by its name.
pub const PRESETS: &[(&str, Preset)] = &[
    ("planer", Preset::Planer),
    ("planer_enwik8", Preset::PlanerEnwik8),
    ("par", Preset::Par),
    ("mended", Preset::Mended),
];

impl SearchSettings {
    /// The protocol of a paper. Rounds are not printed but follow from iterations, batch and length, at one round per epoch:
    /// PLANER's 40,000 iterations of 256 * 192 tokens are 19.1 epochs of WikiText-103 (20), its 120,000 of 64 * 512 are 43.7
    /// of enwik8 (44), and PAR's 40,000 of 128 * 192 are 9.5 (10). All have a floor of the temperature, without which it would
    /// end near zero.
    pub fn preset(preset: Preset, target: Option<Target>) -> Self {
        let planer = Self {
            preset,
            target,
            cost: Cost::Latency,
            rounds: 20,
            arch_share: 0.2,
            arch_off: 0.1,
            arch_lr: 0.01,
            arch_weight_decay: 0.0,
            relaxation: Relaxation::Gumbel,
            weight_samples: Sampling::Hard,
            arch_samples: Sampling::Soft,
            temperature: 5.0,
            annealing: 0.6,
            temperature_floor: 0.5,
            latency_weight: 1.0,
            baseline_share: 0.0,
            held_out: false,
            uniform_warm_up: false,
            plain_steps: false,
            project: true,
        };
        match preset {
            Preset::Planer => planer,
            Preset::PlanerEnwik8 => Self { rounds: 44, annealing: 0.7, ..planer },
            Preset::Mended => Self {
                arch_off: 0.2,
                arch_share: 1.0,
                arch_lr: 5.0,
                temperature: 0.5,
                annealing: 1.0,
                baseline_share: 0.5,
                held_out: true,
                uniform_warm_up: true,
                plain_steps: true,
                ..planer
            },
            Preset::Par => Self {
                rounds: 10,
                arch_off: 0.25,
                arch_weight_decay: 5e-4,
                weight_samples: Sampling::Soft,
                // PAR prints no temperature: that of plain Gumbel-softmax.
                temperature: 1.0,
                annealing: 1.0,
                latency_weight: 0.0,
                ..planer
            },
        }
    }

    /// Checks every number.
    pub fn check(&self) -> Result<()> {
        let within = |place: &str, value: f64, low: f64, high: f64| match value >= low && value <= high {
            true => Ok(()),
            false => Err(Error::setting(place, value, format_args!("a number from {low} to {high}"))),
        };
        if self.rounds == 0 {
            return Err(Error::setting("rounds", 0, "at least 1"));
        }
        within("arch-share", self.arch_share, 0.0, 100.0)?;
        within("arch-off", self.arch_off, 0.0, 1.0)?;
        within("arch-lr", self.arch_lr, 0.0, 1e3)?;
        within("arch-weight-decay", self.arch_weight_decay, 0.0, 1e3)?;
        within("temperature", self.temperature, 1e-3, 1e6)?;
        within("annealing", self.annealing, 1e-3, 1.0)?;
        within("temperature-floor", self.temperature_floor, 1e-3, 1e6)?;
        within("latency-weight", self.latency_weight, 0.0, 1e6)?;
        within("baseline-share", self.baseline_share, 0.0, 0.999)?;
        if self.arch_samples == Sampling::Hard {
            return Err(Error::setting("arch-samples", "hard", "soft or straight_through, which have a gradient"));
        }
        match self.target {
            Some(Target::Ratio(ratio)) => within("target-latency", ratio, 1e-6, 1e6),
            Some(Target::Absolute(cost)) => within("target-latency-us", cost, 1e-6, 1e15),
            None if self.latency_weight > 0.0 => {
                Err(Error::setting("target-latency", "nothing", "a target, which the latency loss needs"))
            }
            None => Ok(()),
        }
    }
}
