//! What each block of a space costs on this machine, and how well their sum predicts whole models.

use crate::profiler::{self, Pace, Profiled, ROUNDS, Rounds, TableSource, measure_models};
use crate::{Context, Event, Result, Watch, input};
use lathe_core::Model;
use lathe_search::profile::{Calibration, Entry, Machine, Measured, Part, ProfileTable, median};
use lathe_search::ranking::spearman;
use lathe_search::workload::Workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use std::path::PathBuf;

/// What to profile.
#[derive(Debug, Clone)]
pub struct Request {
    /// A space, by file or shipped name.
    pub space: String,
    /// The setting.
    pub workload: Workload,
    /// Where the table comes from.
    pub table: TableSource,
    /// Whole models to fit the correction of sums to.
    pub models: u32,
    /// Further whole models, to measure the error of predictions with.
    pub check: u32,
    /// Where the table is written to, if anywhere.
    pub out: Option<PathBuf>,
    /// Seed of the random models.
    pub seed: u64,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Profile {
    /// Where.
    pub machine: Machine,
    /// In which setting.
    pub workload: Workload,
    /// The blocks of the space, and its frames.
    pub blocks: Vec<Entry>,
    /// The share of all cores that other processes took, where anything was measured and the system tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others_share: Option<f64>,
    /// The correction of sums.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// The error of predictions, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
}

/// Predicted against measured, over models that the correction has not seen.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Check {
    pub latency: Agreement,
    pub memory: Agreement,
    pub models: Vec<Checked>,
}

/// How well predictions agree with measurements.
#[derive(Debug, Clone, Serialize)]
pub struct Agreement {
    /// Of the rankings.
    pub spearman: f64,
    /// Of predictions, relative.
    pub median_error: f64,
    /// Of measuring the same model again.
    pub repeat_error: f64,
}

/// A model, predicted and measured twice.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Checked {
    pub layers: String,
    pub d_model: u32,
    pub predicted_ms: f64,
    pub measured_ms: f64,
    pub again_ms: f64,
    pub predicted_bytes: f64,
    pub measured_bytes: u64,
    pub again_bytes: u64,
}

/// Profiles a space.
pub fn run(context: &Context<'_>, request: &Request, watch: Watch<'_>) -> Result<Profile> {
    let space = input::space(&request.space, context.registry)?;
    let workload = &request.workload;
    if let Some(warning) = workload.precision.warning() {
        watch(Event::Warning(warning));
    }
    let baseline = std::slice::from_ref(&space.baseline);
    let Profiled { mut table, noise } = request.table.table(context, &space, baseline, workload, watch)?;
    let mut pace = Pace::default();
    if request.models > 0 {
        let models = (request.models as usize, request.seed);
        profiler::calibrate(context, &mut table, &space, models, &mut pace, watch)?;
    }
    if let Some(path) = &request.out {
        table.write(path)?;
        watch(Event::Wrote(path));
    }
    let check = match request.check {
        0 => None,
        n => {
            // Another stream of the generator than that of the calibration.
            let mut rng = ChaCha8Rng::seed_from_u64(request.seed);
            rng.set_stream(1);
            let models = profiler::random_models(&space, workload, n as usize, &mut rng)?;
            Some(check(context, &models, &table.clone().smoothed(context.registry), &mut pace, watch)?)
        }
    };
    // The cache may know more blocks than this space has.
    let parts = Part::of_space(&space, workload)?;
    Ok(Profile {
        blocks: parts.iter().filter_map(|part| table.get(&part.name).cloned()).collect(),
        machine: table.machine,
        workload: workload.clone(),
        others_share: noise.and_then(|noise| noise.others),
        calibration: table.calibration,
        check,
    })
}

/// Measures models twice and compares with what was predicted.
fn check(
    context: &Context<'_>,
    models: &[Model],
    table: &ProfileTable,
    pace: &mut Pace,
    watch: Watch<'_>,
) -> Result<Check> {
    let mut measure =
        |what| measure_models(context, models.to_vec(), &table.workload, Rounds { rounds: ROUNDS, what }, pace, watch);
    let (first, again) = (measure("measuring other models")?, measure("measuring them again")?);
    let mut checked = Vec::new();
    for ((model, Measured { latency_ms, peak_bytes }), (_, again)) in first.into_iter().zip(again) {
        let predicted = table.predict(&model)?;
        checked.push(Checked {
            layers: model.layers(),
            d_model: model.frame.d_model,
            predicted_ms: predicted.latency_ms,
            measured_ms: latency_ms.median,
            again_ms: again.latency_ms.median,
            predicted_bytes: predicted.peak_bytes,
            measured_bytes: peak_bytes,
            again_bytes: again.peak_bytes,
        });
    }
    let of = |values: fn(&Checked) -> [f64; 3]| {
        let values: Vec<[f64; 3]> = checked.iter().map(values).collect();
        let column = |i: usize| values.iter().map(|row| row[i]).collect::<Vec<f64>>();
        let error = |i: usize| median(values.iter().map(|row| (row[i] / row[1] - 1.0).abs()).collect());
        let spearman = spearman(&column(0), &column(1)).unwrap_or(1.0);
        Agreement { spearman, median_error: error(0), repeat_error: error(2) }
    };
    Ok(Check {
        latency: of(|one| [one.predicted_ms, one.measured_ms, one.again_ms]),
        memory: of(|one| [one.predicted_bytes, one.measured_bytes as f64, one.again_bytes as f64]),
        models: checked,
    })
}
