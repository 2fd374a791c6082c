//! The hypervolumes of finished searches, over one and the same scale.

use crate::pareto::point_file;
use crate::profiler::{Pace, Rounds, measure_models};
use crate::{Context, Error, Result, Watch, input};
use lathe_core::Model;
use lathe_search::objective;
use lathe_search::pareto::{REFERENCE, frontier, hypervolume, most_dominant, range, scale};
use lathe_search::profile::Prediction;
use lathe_search::workload::Workload;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What a search leaves for comparisons.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ended {
    /// Names of the objectives.
    pub objectives: Vec<String>,
    /// The setting.
    pub workload: Workload,
    /// The values of the objectives of each point of the frontier.
    pub frontier: Vec<Vec<f64>>,
}

/// Searches, compared.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// In the order of their folders.
    pub searches: Vec<Compared>,
}

/// A search beside others.
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// Its folder.
    pub folder: String,
    /// Points of its frontier.
    pub points: usize,
    /// What they dominate, each objective scaled to the range of all points.
    pub hypervolume: f64,
}

/// Points to be measured together before they are compared.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    /// The most points of each search, those that dominate most.
    pub most: usize,
    /// How often each is measured.
    pub rounds: usize,
}

/// Compares the searches of folders.
pub fn run(
    context: &Context<'_>,
    folders: &[PathBuf],
    measured: Option<Measure>,
    watch: Watch<'_>,
) -> Result<Comparison> {
    let mut searches: Vec<Ended> = Vec::new();
    for folder in folders {
        let ended = ended(folder)?;
        let same = |first: &Ended| first.objectives == ended.objectives && first.workload == ended.workload;
        if let Some(first) = searches.first().filter(|first| !same(first)) {
            let [found, expected] =
                [&ended, first].map(|one| format!("{} ({})", one.objectives.join(", "), one.workload));
            return Err(Error::setting(folder.display(), found, format!("{expected}, as the first")));
        }
        searches.push(ended);
    }
    if let Some(measured) = measured {
        measure(context, folders, &mut searches, measured, watch)?;
    }
    let costs: Vec<Vec<Vec<f64>>> = searches.iter().map(costs).collect();
    let all: Vec<&Vec<f64>> = costs.iter().flatten().collect();
    let none = || Error::data("searches", "frontiers without a point", "at least one point");
    let (low, high) = range(&all).ok_or_else(none)?;
    let reference = vec![REFERENCE; low.len()];
    let volume = |points: &Vec<Vec<f64>>| {
        let scaled: Vec<Vec<f64>> = points.iter().map(|point| scale(point, &low, &high)).collect();
        hypervolume(&scaled, &reference)
    };
    let compared = folders.iter().zip(&costs).map(|(folder, points)| Compared {
        folder: folder.display().to_string(),
        points: frontier(points).len(),
        hypervolume: volume(points),
    });
    Ok(Comparison { searches: compared.collect() })
}

/// What a search left.
fn ended(folder: &Path) -> Result<Ended> {
    let path = folder.join("frontier.json");
    if !path.exists() {
        return Err(Error::setting(path.display(), "nothing", "a search that has ended"));
    }
    input::read_json(&path)
}

/// Measures the points that dominate most in each search, all together, and leaves only them, as measured.
fn measure(
    context: &Context<'_>,
    folders: &[PathBuf],
    searches: &mut [Ended],
    Measure { most, rounds }: Measure,
    watch: Watch<'_>,
) -> Result<()> {
    let workload = searches[0].workload.clone();
    let objectives: Vec<_> = searches[0].objectives.iter().filter_map(|name| objective::find(name)).collect();
    let mut models: Vec<Model> = Vec::new();
    let mut counts = Vec::new();
    for (folder, search) in folders.iter().zip(&*searches) {
        let chosen = most_dominant(&costs(search), most);
        counts.push(chosen.len());
        for i in chosen {
            let model = input::model_file(&point_file(folder, i), context.registry)?;
            models.push(workload.model(&model)?);
        }
    }
    let rounds = Rounds { rounds, what: "measuring the frontiers" };
    let measured = measure_models(context, models, &workload, rounds, &mut Pace::default(), watch)?;
    let mut values = measured.into_iter().map(|(model, measured)| {
        let cost = Prediction { latency_ms: measured.latency_ms.median, peak_bytes: measured.peak_bytes as f64 };
        objectives.iter().map(|objective| objective.value(&model, workload.batch, &cost)).collect()
    });
    for (search, count) in searches.iter_mut().zip(counts) {
        search.frontier = values.by_ref().take(count).collect();
    }
    Ok(())
}

/// The points of a frontier, each value as something to be made small.
fn costs(ended: &Ended) -> Vec<Vec<f64>> {
    let cost = |(name, &value): (&String, &f64)| objective::find(name).map_or(value, |objective| objective.cost(value));
    ended.frontier.iter().map(|point| ended.objectives.iter().zip(point).map(cost).collect()).collect()
}
