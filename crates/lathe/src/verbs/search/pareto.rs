//! `lathe search pareto`: the frontier of quality, latency and memory, as LTS searches for it.

use super::super::Action;
use crate::output::{self, BOLD, DIM, Table};
use crate::screen;
use crate::workload::{TableArgs, WorkloadArgs};
use anyhow::Result;
use clap::Parser;
use lathe_job::pareto::{self, Baseline, MeanSaving, Outcome, Request};
use std::path::PathBuf;

/// Find the architectures that nothing beats in quality, latency and memory, without training any
#[derive(Parser)]
#[command(after_help = "\
Quality is estimated by a proxy, latency and memory by what the blocks were measured to cost on this machine; the frontier
is then measured whole, and so are the baseline's layer-scaled models, with what the frontier saves against each.

A search that was killed goes on with the same command and ends with the same frontier.

Examples:
  lathe search pareto lts_gpt2 --seq 192 --out frontier
  lathe search pareto lts_gpt2 --max-latency-ms 20 --max-memory-mb 400 --out small
  lathe search pareto my_space.toml --objectives decoder_params,latency --searcher nsga2 --out two")]
pub struct Pareto {
    /// Space file (TOML) or shipped name
    space: String,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    table: TableArgs,
    /// Folder of the search
    #[arg(long, value_name = "DIR", default_value = "search")]
    out: PathBuf,
    /// What is wanted, quality first: decoder_params or bottleneck_params; latency, memory, params, flops
    #[arg(long, value_delimiter = ',', default_value = "decoder_params,latency,memory")]
    objectives: Vec<String>,
    /// Most milliseconds of a pass
    #[arg(long, value_name = "MS")]
    max_latency_ms: Option<f64>,
    /// Most memory
    #[arg(long, value_name = "MB")]
    max_memory_mb: Option<f64>,
    /// Rounds after the first, random one
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    iterations: u32,
    /// Architectures to begin with; each round proposes four fifths as many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    population: u32,
    /// Who proposes: nsga2, lts (the published search) or random
    #[arg(long, default_value = "nsga2")]
    searcher: String,
    /// Measure every candidate whole instead of predicting it
    #[arg(long)]
    measure_all: bool,
    /// Keep only what of the frontier is on the lower convex hull, as the paper's text says; lts takes its parents from there, too
    #[arg(long)]
    hull: bool,
    /// Whole models to fit the correction of the blocks' sum to, where --table has none
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    models: u32,
    /// The most points of the frontier to measure whole, those that dominate most; 0 for all
    #[arg(long, default_value_t = 80, value_name = "N")]
    most_measured: usize,
    /// Take predictions for the frontier, too, and measure nothing whole
    #[arg(long)]
    no_measure: bool,
    /// Seed of all that is random
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Action for Pareto {
    fn run(self, json: bool) -> Result<()> {
        let request = Request {
            space: self.space,
            workload: self.workload.workload(),
            table: self.table.source(),
            out: self.out,
            objectives: self.objectives,
            max_latency_ms: self.max_latency_ms,
            max_memory_mb: self.max_memory_mb,
            iterations: self.iterations,
            population: self.population,
            searcher: self.searcher,
            measure_all: self.measure_all,
            hull: self.hull,
            models: self.models,
            most_measured: self.most_measured,
            no_measure: self.no_measure,
            seed: self.seed,
        };
        let found = screen::job(|context, watch| pareto::run(context, &request, watch))?;
        if json { output::json(&found) } else { output::text(&Shown(&found).to_string()) }
    }
}

/// A frontier for people.
struct Shown<'a>(&'a Outcome);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const MOST: usize = 24;
        let mut rows = Table::new(&["decoder", "width", "ms", "MB", "layers"], 0);
        let step = self.0.frontier.len().div_ceil(MOST).max(1);
        let megabytes = |bytes: u64| format!("{:.0}", bytes as f64 / (1 << 20) as f64);
        for point in self.0.frontier.iter().step_by(step) {
            let short: String = point.layers.chars().take(60).collect();
            let layers = if short.len() < point.layers.len() { format!("{short}...") } else { short };
            rows.row([
                output::short(point.params.decoder.into()),
                point.d_model.to_string(),
                format!("{:.2}", point.latency_ms),
                megabytes(point.peak_bytes),
                format!("{layers:<63}"),
            ]);
        }
        write!(f, "{rows}")?;
        if step > 1 {
            writeln!(f, "{DIM}one in {step} of {} points{DIM:#}", self.0.frontier.len())?;
        }
        writeln!(f, "\nAgainst the baseline with fewer layers, at equal proxy quality or better:")?;
        let mut rows = Table::new(&["layers", "decoder", "ms", "MB", "latency saved", "memory saved"], 1);
        let percent = |share: Option<f64>| share.map_or("-".to_string(), |share| format!("{:.1} %", 100.0 * share));
        for Baseline { point, latency_saving, memory_saving } in &self.0.baselines {
            rows.row([
                point.layers.clone(),
                output::short(point.params.decoder.into()),
                format!("{:.2}", point.latency_ms),
                megabytes(point.peak_bytes),
                percent(*latency_saving),
                percent(*memory_saving),
            ]);
        }
        write!(f, "{rows}")?;
        if let Some(MeanSaving { latency, memory }) = self.0.mean_saving {
            writeln!(f, "mean: {} of latency, {} of memory", percent(Some(latency)), percent(Some(memory)))?;
        }
        writeln!(
            f,
            "\n{BOLD}{} evaluated, {} on the frontier{BOLD:#}, {:.0} s. {}/report.html shows them",
            self.0.evaluated,
            self.0.frontier.len(),
            self.0.seconds,
            self.0.out
        )
    }
}
