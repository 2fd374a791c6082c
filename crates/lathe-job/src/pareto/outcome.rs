//! What a search for a frontier returns, and the model files that it leaves.

use super::frontier::Points;
use crate::input::write_text;
use crate::{Error, Result};
use lathe_core::Setting;
use lathe_model::count;
use lathe_search::profile::Prediction;
use lathe_search::search::{Evaluated, SearchPlan, saving};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A frontier, and what it saves.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The fewest decoder parameters first.
    pub frontier: Vec<Point>,
    /// The baseline with fewer layers and with more.
    pub baselines: Vec<Baseline>,
    /// Means over the baselines that the frontier reaches.
    pub mean_saving: Option<MeanSaving>,
    /// Names of the objectives.
    pub objectives: Vec<&'static str>,
    /// How many architectures within the bounds were evaluated.
    pub evaluated: usize,
    /// All its time.
    pub seconds: f64,
    /// The folder.
    pub out: String,
}

/// A point of the frontier, or a baseline.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Point {
    pub layers: String,
    pub d_model: u32,
    pub params: Params,
    pub latency_ms: f64,
    pub peak_bytes: u64,
    /// Where the search saw it.
    pub predicted_latency_ms: f64,
    /// The values of the objectives.
    pub values: Vec<f64>,
}

/// Counted parameters.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Params {
    pub decoder: u64,
    pub total: u64,
}

/// A baseline, and shares that the frontier saves at equal proxy quality.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Baseline {
    #[serde(flatten)]
    pub point: Point,
    pub latency_saving: Option<f64>,
    pub memory_saving: Option<f64>,
}

/// Shares that are saved.
#[derive(Debug, Clone, Copy, Serialize)]
#[allow(missing_docs)]
pub struct MeanSaving {
    pub latency: f64,
    pub memory: f64,
}

impl Outcome {
    pub(super) fn new(
        frontier: &Points,
        scaled: &[Evaluated],
        plan: &SearchPlan,
        evaluated: usize,
        out: &Path,
        began: Instant,
    ) -> Self {
        let points: Vec<&Evaluated> = frontier.iter().map(|(point, _)| point).collect();
        let baselines: Vec<Baseline> = scaled
            .iter()
            .map(|one| {
                let saving = saving(&points, one, plan);
                let (latency_saving, memory_saving) = (saving.map(|s| s.latency), saving.map(|s| s.memory));
                Baseline { point: point(one, one.cost), latency_saving, memory_saving }
            })
            .collect();
        let reached: Vec<(f64, f64)> =
            baselines.iter().filter_map(|one| Some((one.latency_saving?, one.memory_saving?))).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| reached.iter().map(of).sum::<f64>() / reached.len() as f64;
        Self {
            frontier: frontier.iter().map(|(one, predicted)| point(one, *predicted)).collect(),
            mean_saving: (!reached.is_empty())
                .then(|| MeanSaving { latency: mean(|saving| saving.0), memory: mean(|saving| saving.1) }),
            baselines,
            objectives: plan.objectives.iter().map(|objective| objective.name).collect(),
            evaluated,
            seconds: began.elapsed().as_secs_f64(),
            out: out.display().to_string(),
        }
    }
}

fn point(one: &Evaluated, predicted: Prediction) -> Point {
    let counts = count(&one.model, &Setting::of(&one.model));
    Point {
        layers: one.model.layers(),
        d_model: one.model.frame.d_model,
        params: Params { decoder: counts.decoder_params(), total: counts.total_params() },
        latency_ms: one.cost.latency_ms,
        peak_bytes: one.cost.peak_bytes as u64,
        predicted_latency_ms: predicted.latency_ms,
        values: one.values.clone(),
    }
}

/// The model file of a point of the frontier, counted from 0.
pub fn point_file(out: &Path, i: usize) -> PathBuf {
    out.join("frontier").join(format!("{:03}.toml", i + 1))
}

/// A model file per point, in their order.
pub(super) fn write_models(out: &Path, frontier: &Points) -> Result<()> {
    let folder = out.join("frontier");
    let _ = std::fs::remove_dir_all(&folder); // of an earlier end of the same search
    std::fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
    for (i, (one, _)) in frontier.iter().enumerate() {
        write_text(&point_file(out, i), &one.model.to_toml())?;
    }
    Ok(())
}
