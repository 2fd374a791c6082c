//! The page of two models side by side.

use super::{page, write};
use crate::Result;
use crate::compare::models::{Outcome, Request, Side};
use crate::compare::quality::{Quality, Told};
use lathe_search::workload::Workload;
use serde::Serialize;
use std::path::Path;

const TEMPLATE: &str = include_str!("compare.html");
/// Passes of each model that are drawn, at most.
const MOST_POINTS: usize = 300;

/// What the page tells.
pub(crate) struct Page<'a> {
    pub outcome: &'a Outcome,
    pub sides: &'a [Side; 2],
    pub workload: &'a Workload,
    pub quality: Option<&'a Quality>,
    pub request: &'a Request,
}

#[derive(Serialize)]
struct Data<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    /// Model files.
    files: [String; 2],
    setting: String,
    data: Option<&'a str>,
    /// Milliseconds of passes, thinned out where there are many.
    times: [Vec<f64>; 2],
    /// Share of the places, and nats.
    curve: &'a [[f64; 2]],
    places: u64,
    passages: &'a [Told],
    version: &'static str,
    command: &'a str,
}

impl Page<'_> {
    /// Writes it.
    pub fn write(&self, path: &Path) -> Result<()> {
        let divergence = self.quality.and_then(|quality| quality.divergence.as_ref());
        let thinned = |times: &[f64]| -> Vec<f64> {
            times.iter().copied().step_by(times.len().div_ceil(MOST_POINTS).max(1)).collect()
        };
        let raw = &self.outcome.raw_ms;
        let data = Data {
            files: [0, 1].map(|i| self.sides[i].model.to_toml()),
            setting: self.workload.to_string(),
            data: self.request.data.as_deref(),
            times: [thinned(&raw.a), thinned(&raw.b)],
            curve: divergence.map_or(&[], |found| &found.curve),
            places: divergence.map_or(0, |found| found.places),
            passages: self.quality.map_or(&[], |quality| &quality.passages),
            version: env!("CARGO_PKG_VERSION"),
            command: &self.request.command,
            outcome: self.outcome,
        };
        write(path, &page(TEMPLATE, &self.outcome.models.b, &data))
    }
}
