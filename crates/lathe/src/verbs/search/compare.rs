//! `lathe search compare`: finished searches side by side, or the devices of tables of trained models.

use super::super::Action;
use crate::output::{self, Table};
use crate::screen;
use anyhow::Result;
use clap::Parser;
use lathe_job::compare::devices;
use lathe_job::compare::searches::{self, Measure};
use lathe_model::REGISTRY;
use std::path::PathBuf;

/// Compare the frontiers of searches, or of devices
#[derive(Parser)]
#[command(after_help = "\
Each objective is scaled to the range of all points of all frontiers; the reference is 1.1 in each. \"hull\" counts the points that
stay when a frontier is recalibrated by its lower convex hull (--json lists them); d_avg is the mean relative difference in quality
from the hull of all searches together at the nearest latency.

Searches that ran one after the other met the machine in different moods. With --measure, points of all frontiers are
measured again together, in rounds and in a random order, and the comparison is fair.

Examples:
  lathe search compare lts random nsga2
  lathe search compare lts random --measure 40

With --tables, rows of trained models with the columns device and latency (as the tables of LTS's authors, with one row per model
and device) say how far the frontier by decoder parameters is from that of the trained models (d_avg), and the price of the wrong
device: how much more time the frontier found on one takes on another, at the same perplexity.

  lathe search compare --tables arm.csv --tables corei7.csv")]
pub struct Compare {
    /// Folders of searches that have ended
    #[arg(required_unless_present = "tables", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Tables of models that were trained and measured (CSV), instead of searches
    #[arg(long, value_name = "FILE", conflicts_with_all = ["folders", "measure"])]
    tables: Vec<PathBuf>,
    /// Measure so many points of each frontier, those that dominate most, side by side
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    measure: Option<u32>,
    /// Rounds in which they are measured; many points make up for few rounds
    #[arg(long, requires = "measure", default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

impl Action for Compare {
    fn run(self, json: bool) -> Result<()> {
        if !self.tables.is_empty() {
            let found = devices::run(&self.tables, &REGISTRY)?;
            return if json { output::json(&found) } else { output::text(&of_devices(&found)) };
        }
        let measure = self.measure.map(|most| Measure { most: most as usize, rounds: self.rounds as usize });
        let found = screen::job(|context, watch| searches::run(context, &self.folders, measure, watch))?;
        if json {
            return output::json(&found);
        }
        let mut rows = Table::new(&["search", "points", "hull", "hypervolume", "d_avg"], 1);
        for one in &found.searches {
            rows.row([
                one.folder.clone(),
                one.points.to_string(),
                one.recalibrated.as_ref().map_or("-".into(), |points| points.len().to_string()),
                format!("{:.4}", one.hypervolume),
                percent(one.d_avg),
            ]);
        }
        output::text(&rows.to_string())
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".into(), |share| format!("{:.1} %", 100.0 * share))
}

/// Devices for people.
fn of_devices(found: &devices::Report) -> String {
    let mut rows = Table::new(&["device", "backbone", "models", "frontier", "hull", "d_avg"], 2);
    for one in &found.devices {
        rows.row([
            one.device.clone(),
            one.backbone.clone(),
            one.models.to_string(),
            one.frontier.to_string(),
            one.recalibrated.len().to_string(),
            percent(one.d_avg),
        ]);
    }
    let mut out = rows.to_string();
    if found.prices.is_empty() {
        return out;
    }
    out += "\nThe price of the wrong device: latency of the best of the one's frontier on the other, at equal perplexity or better\n";
    let head = ["found on", "run on", "backbone", "more", "95 %", "gaps alone", "points", "measured", "error"];
    let mut rows = Table::new(&head, 3);
    for one in &found.prices {
        let [low, high] = one.interval.map(|share| format!("{:.1}", 100.0 * share));
        rows.row([
            one.from.clone(),
            one.to.clone(),
            one.backbone.clone(),
            percent(Some(one.more)),
            format!("{low} to {high}"),
            percent(one.spacing),
            format!("{} of {}", one.points, one.points + one.unreached),
            one.measured.to_string(),
            percent(one.error),
        ]);
    }
    out + &rows.to_string()
}
