//! The hypervolumes of finished searches, over one and the same scale, their frontiers recalibrated by the lower convex hull, as
//! LTS's text says, and how far each is from that of all together.

use crate::pareto::point_file;
use crate::profiler::{Pace, Rounds, measure_models};
use crate::{Context, Error, Result, Watch, input};
use lathe_core::Model;
use lathe_search::objective;
use lathe_search::pareto::{REFERENCE, frontier, hypervolume, lower_hull, mean_distance, most_dominant, range, scale};
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
    /// The values of the objectives of each point on the lower convex hull, the most quality last; for two or three objectives.
    pub recalibrated: Option<Vec<Vec<f64>>>,
    /// LTS's d_avg in quality, which is the first objective: the mean relative difference of its frontier from the lower convex
    /// hull of quality and latency of all searches together, nearest in latency. None without an objective latency.
    pub d_avg: Option<f64>,
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
    let truth = truth(&searches, &costs);
    let compared = folders.iter().zip(&searches).zip(&costs).map(|((folder, search), points)| Compared {
        folder: folder.display().to_string(),
        points: frontier(points).len(),
        hypervolume: volume(points),
        recalibrated: recalibrated(search, points),
        d_avg: truth.as_ref().and_then(|truth| {
            let own: Vec<&Vec<f64>> = frontier(points).into_iter().map(|i| &search.frontier[i]).collect();
            mean_distance(&pairs(&own, latency(search)?), truth)
        }),
    });
    Ok(Comparison { searches: compared.collect() })
}

/// Where latency stands among the objectives, the first of which is quality.
fn latency(search: &Ended) -> Option<usize> {
    search.objectives.iter().position(|name| name == "latency").filter(|&at| at > 0)
}

/// Latency and quality of points.
fn pairs(points: &[&Vec<f64>], latency: usize) -> Vec<(f64, f64)> {
    points.iter().map(|values| (values[latency], values[0])).collect()
}

/// Latency and quality of the points on the lower convex hull of the two, of all searches together.
fn truth(searches: &[Ended], costs: &[Vec<Vec<f64>>]) -> Option<Vec<(f64, f64)>> {
    let at = latency(searches.first()?)?;
    let costs: Vec<[f64; 2]> = costs.iter().flatten().map(|costs| [costs[0], costs[at]]).collect();
    let values: Vec<&Vec<f64>> = searches.iter().flat_map(|search| &search.frontier).collect();
    let hull: Vec<&Vec<f64>> = lower_hull(&costs).into_iter().map(|i| values[i]).collect();
    Some(pairs(&hull, at))
}

/// What of a frontier is on its lower convex hull.
fn recalibrated(search: &Ended, costs: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    if !(2..=3).contains(&search.objectives.len()) {
        return None;
    }
    let mut hull = lower_hull(costs);
    hull.sort_by(|&i, &j| costs[j][0].total_cmp(&costs[i][0]));
    Some(hull.into_iter().map(|i| search.frontier[i].clone()).collect())
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
