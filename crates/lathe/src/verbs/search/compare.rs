//! `lathe search compare`: the hypervolumes of finished searches, over one and the same scale.

use super::super::Action;
use crate::output::{self, Table};
use crate::screen;
use anyhow::Result;
use clap::Parser;
use lathe_job::compare::searches::{self, Measure};
use std::path::PathBuf;

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

impl Action for Compare {
    fn run(self, json: bool) -> Result<()> {
        let measure = self.measure.map(|most| Measure { most: most as usize, rounds: self.rounds as usize });
        let found = screen::job(|context, watch| searches::run(context, &self.folders, measure, watch))?;
        if json {
            return output::json(&found);
        }
        let mut rows = Table::new(&["search", "points", "hypervolume"], 1);
        for one in &found.searches {
            rows.row([one.folder.clone(), one.points.to_string(), format!("{:.4}", one.hypervolume)]);
        }
        output::text(&rows.to_string())
    }
}
