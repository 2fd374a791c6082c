//! `lathe search compare`: the hypervolumes of finished searches, over one and the same scale.

use super::super::Action;
use super::pareto::point_file;
use crate::input::{self, Usage};
use crate::output::{self, Table as Rows};
use crate::profiler::{Pace, measure_models};
use crate::progress::Progress;
use anyhow::{Context, Result};
use clap::Parser;
use lathe_core::Model;
use lathe_model::REGISTRY;
use lathe_search::objective;
use lathe_search::pareto::{REFERENCE, frontier, hypervolume, most_dominant, range, scale};
use lathe_search::profile::Prediction;
use lathe_search::workload::Workload;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Compare the frontiers of searches by the volume that they dominate
#[derive(Parser)]
#[command(after_help = "\
Each objective is scaled to the range of all points of all frontiers; the reference is 1.1 in each.

Searches that ran one after the other met the machine in different moods. With --measure, points of all frontiers are
measured again together, in rounds and in a random order, and the comparison is fair.

Examples:
  lathe search compare lts random nsga2
  lathe search compare lts random --measure 40")]
pub struct Compare {
    /// Folders of searches that have ended
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Measure so many points of each frontier, those that dominate most, side by side
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    measure: Option<u32>,
    /// Rounds in which they are measured; many points make up for few rounds
    #[arg(long, requires = "measure", default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// What a search leaves for comparisons.
#[derive(Serialize, Deserialize)]
pub struct Ended {
    pub objectives: Vec<String>,
    pub workload: Workload,
    /// The values of the objectives of each point of the frontier.
    pub frontier: Vec<Vec<f64>>,
}

#[derive(Serialize)]
struct Document {
    searches: Vec<Compared>,
}

#[derive(Serialize)]
struct Compared {
    folder: String,
    points: usize,
    hypervolume: f64,
}

impl Action for Compare {
    fn run(self, json: bool) -> Result<()> {
        let mut searches: Vec<Ended> = Vec::new();
        for folder in &self.folders {
            let ended = ended(folder)?;
            let same = |first: &Ended| first.objectives == ended.objectives && first.workload == ended.workload;
            if let Some(first) = searches.first().filter(|first| !same(first)) {
                let [found, expected] =
                    [&ended, first].map(|one| format!("{} ({})", one.objectives.join(", "), one.workload));
                return Err(
                    Usage(format!("{}: found {found}; expected {expected}, as the first", folder.display())).into()
                );
            }
            searches.push(ended);
        }
        if let Some(most) = self.measure {
            measure(&self.folders, &mut searches, most as usize, self.rounds as usize)?;
        }
        let costs: Vec<Vec<Vec<f64>>> = searches.iter().map(costs).collect();
        let all: Vec<&Vec<f64>> = costs.iter().flatten().collect();
        let (low, high) = range(&all).context("frontiers without a point")?;
        let reference = vec![REFERENCE; low.len()];
        let volume = |points: &Vec<Vec<f64>>| {
            let scaled: Vec<Vec<f64>> = points.iter().map(|point| scale(point, &low, &high)).collect();
            hypervolume(&scaled, &reference)
        };
        let compared = self.folders.iter().zip(&costs).map(|(folder, points)| Compared {
            folder: folder.display().to_string(),
            points: frontier(points).len(),
            hypervolume: volume(points),
        });
        let document = Document { searches: compared.collect() };
        if json {
            return output::json(&document);
        }
        let mut rows = Rows::new(&["search", "points", "hypervolume"], 1);
        for one in &document.searches {
            rows.row([one.folder.clone(), one.points.to_string(), format!("{:.4}", one.hypervolume)]);
        }
        output::text(&rows.to_string())
    }
}

/// What a search left.
fn ended(folder: &Path) -> Result<Ended> {
    let path = folder.join("frontier.json");
    if !path.exists() {
        return Err(Usage(format!("{}: found nothing; expected a search that has ended", path.display())).into());
    }
    input::read_json(&path)
}

/// Measures the points that dominate most in each search, all together, and leaves only them, as measured.
fn measure(folders: &[PathBuf], searches: &mut [Ended], most: usize, rounds: usize) -> Result<()> {
    let workload = searches[0].workload.clone();
    let objectives: Vec<_> = searches[0].objectives.iter().filter_map(|name| objective::find(name)).collect();
    let mut models: Vec<Model> = Vec::new();
    let mut counts = Vec::new();
    for (folder, search) in folders.iter().zip(&*searches) {
        let chosen = most_dominant(&costs(search), most);
        counts.push(chosen.len());
        for i in chosen {
            let path = point_file(folder, i).display().to_string();
            let model = input::spec_of(&path)?.model(&REGISTRY).with_context(|| path.clone())?;
            models.push(workload.model(&model)?);
        }
    }
    let (mut pace, mut progress) = (Pace::default(), Progress::default());
    let measured = measure_models(models, &workload, rounds, "measuring the frontiers", &mut pace, &mut progress)?;
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
