//! What a whole model takes on this machine. Who measures is a [`Measurer`]; every one there is stands in
//! [`MEASURERS`] and passes [`conformance()`].

mod child_process;
mod conformance;
mod in_process;

pub use child_process::{CHILD, ChildProcess, serve_child};
pub use conformance::conformance;
pub use in_process::InProcess;

use crate::Result;
use lathe_core::{Model, Registry, Spec};
use lathe_model::shipped::REFERENCE;
use lathe_search::profile::{Interval, Measured};
use lathe_search::workload::{Pass, Workload};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The model, with the lengths of the workload ([`Workload::model`]).
    pub model: &'a Model,
    /// The setting.
    pub workload: &'a Workload,
    /// The longest time to measure for.
    pub seconds: f64,
    /// Seed of weights and tokens.
    pub seed: u64,
    /// Whether to measure beside [`reference`](reference()).
    pub beside: bool,
    /// The model folder whose weights it has; random ones without it.
    pub weights: Option<&'a Path>,
}

impl<'a> Request<'a> {
    /// A model by itself, for so long.
    pub fn new(model: &'a Model, workload: &'a Workload, seconds: f64) -> Self {
        Self { model, workload, seconds, seed: 0, beside: false, weights: None }
    }

    /// The same beside the reference.
    pub fn beside(self) -> Self {
        Self { beside: true, ..self }
    }
}

/// What was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measurement {
    /// Median and interval of a pass.
    pub latency_ms: Interval,
    /// The most memory, if that is known.
    pub peak_bytes: Option<u64>,
    /// Every pass, in the order taken.
    pub raw_ms: Vec<f64>,
    /// Where it was measured beside the reference.
    pub beside: Option<Beside>,
}

/// A model beside the reference.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Beside {
    /// How many times as long it takes.
    pub ratio: f64,
    /// What the reference took.
    pub reference_ms: f64,
}

impl Measurement {
    /// What calibrations are fitted to.
    pub fn measured(&self) -> Measured {
        Measured { latency_ms: self.latency_ms, peak_bytes: self.peak_bytes.unwrap_or(0) }
    }
}

/// Measures models.
pub trait Measurer: Send + Sync {
    /// Measures a model in a workload.
    fn measure(&self, request: &Request<'_>) -> Result<Measurement>;
}

/// A measurer that can be named.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// Makes one for models of a registry.
    pub new: fn(&Registry) -> Result<Box<dyn Measurer>>,
}

/// Every measurer.
pub const MEASURERS: &[Entry] = &[
    Entry {
        name: "child_process",
        about: "a process for each measurement, whose peak of memory is the model's alone",
        new: |_| Ok(Box::new(ChildProcess::of_this_program()?)),
    },
    Entry {
        name: "in_process",
        about: "this process; peak memory is what its allocator counts",
        new: |registry| Ok(Box::new(InProcess::new(registry))),
    },
];

/// The measurer of a name.
pub fn find(name: &str) -> Option<&'static Entry> {
    MEASURERS.iter().find(|entry| entry.name == name)
}

/// What models are measured beside, so that the moods of the machine can be divided out: large enough to meet the same
/// ones, small enough to take little time, whatever the workload.
pub fn reference(workload: &Workload, registry: &Registry) -> Result<Pass> {
    let model = Spec::from_toml(REFERENCE.text, registry)?.model(registry)?;
    Ok(Workload { precision: workload.precision, ..Workload::default() }.whole(model, 0)?)
}
