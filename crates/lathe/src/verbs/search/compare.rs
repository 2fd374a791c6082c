//! `lathe search compare`: the hypervolumes of finished searches, over one and the same scale.

use super::super::Action;
use crate::output::{self, Table as Rows};
use anyhow::{Context, Result};
use clap::Parser;
use lathe_search::objective;
use lathe_search::pareto::{hypervolume, range, scale};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Compare the frontiers of searches by the volume that they dominate
#[derive(Parser)]
#[command(after_help = "\
Each objective is scaled to the range of all points of all frontiers; the reference is 1.1 in each.

Example: lathe search compare lts random nsga2")]
pub struct Compare {
    /// Folders of searches that have ended
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
}

/// How far beyond the worst of all points the reference lies.
const REFERENCE: f64 = 1.1;

/// What a search leaves for comparisons.
#[derive(Serialize, Deserialize)]
pub struct Ended {
    pub objectives: Vec<String>,
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
            let path = folder.join("frontier.json");
            let text = std::fs::read(&path).with_context(|| format!("{}: a search that has ended", path.display()))?;
            let ended: Ended = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
            if let Some(first) = searches.first()
                && first.objectives != ended.objectives
            {
                let (a, b) = (first.objectives.join(", "), ended.objectives.join(", "));
                anyhow::bail!("{}: found the objectives {b}; expected {a}, as the first", folder.display());
            }
            searches.push(ended);
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
            points: points.len(),
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

/// The points of a frontier, each value as something to be made small.
fn costs(ended: &Ended) -> Vec<Vec<f64>> {
    let cost = |(name, &value): (&String, &f64)| objective::find(name).map_or(value, |objective| objective.cost(value));
    ended.frontier.iter().map(|point| ended.objectives.iter().zip(point).map(cost).collect()).collect()
}
