//! What a search makes small: counted costs, costs of the machine, and, negated, quality by a proxy.

use crate::profile::Prediction;
use crate::proxies;
use lathe_core::{Model, Setting};
use lathe_model::count;

/// Something to be made small, or large.
pub struct Objective {
    /// Its name.
    pub name: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// What the values of pictures and tables are called, and how many of its units one of those is.
    pub label: (&'static str, f64),
    /// Whether more is better: quality is.
    pub more_is_better: bool,
    /// Whether it needs the machine.
    pub measured: bool,
    value: fn(&Model, &Setting, &Prediction) -> f64,
}

/// Every objective.
pub const OBJECTIVES: &[Objective] = &[
    Objective {
        name: "decoder_params",
        about: "quality by the number of decoder parameters (LTS)",
        label: ("decoder parameters, M", 1e6),
        more_is_better: true,
        measured: false,
        value: |model, setting, _| count(model, setting).decoder_params() as f64,
    },
    Objective {
        name: "bottleneck_params",
        about: "quality by decoder parameters, discounted where the embedding is narrower than the model",
        label: ("discounted decoder parameters, M", 1e6),
        more_is_better: true,
        measured: false,
        value: |model, _, _| bottleneck_params(model),
    },
    Objective {
        name: "latency",
        about: "milliseconds of a pass on this machine",
        label: ("latency, ms", 1.0),
        more_is_better: false,
        measured: true,
        value: |_, _, measured| measured.latency_ms,
    },
    Objective {
        name: "memory",
        about: "peak memory of a pass on this machine",
        label: ("peak memory, MB", 1024.0 * 1024.0),
        more_is_better: false,
        measured: true,
        value: |_, _, measured| measured.peak_bytes,
    },
    Objective {
        name: "params",
        about: "all parameters",
        label: ("parameters, M", 1e6),
        more_is_better: false,
        measured: false,
        value: |model, setting, _| count(model, setting).total_params() as f64,
    },
    Objective {
        name: "flops",
        about: "floating-point operations of a forward pass",
        label: ("GFLOP", 1e9),
        more_is_better: false,
        measured: false,
        value: |model, setting, _| count(model, setting).total_flops() as f64,
    },
];

/// The score as the number of parameters that it stands for.
fn bottleneck_params(model: &Model) -> f64 {
    match (proxies::bottleneck_params::PROXY.score)(&proxies::Candidate::new(model)) {
        Ok(proxies::Scored::Score { value, .. }) => value.exp(),
        _ => 0.0,
    }
}

/// The objective of a name.
pub fn find(name: &str) -> Option<&'static Objective> {
    OBJECTIVES.iter().find(|objective| objective.name == name)
}

impl Objective {
    /// Its value for a model that costs so much on this machine.
    pub fn value(&self, model: &Model, batch: u32, measured: &Prediction) -> f64 {
        let setting = Setting { batch: batch.into(), ..Setting::of(model) };
        (self.value)(model, &setting, measured)
    }

    /// The value as something to be made small.
    pub fn cost(&self, value: f64) -> f64 {
        if self.more_is_better { -value } else { value }
    }
}
