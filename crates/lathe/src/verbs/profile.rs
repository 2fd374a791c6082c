//! `lathe profile`: what each block of a space costs on this machine, and how well their sum predicts whole models.

use super::Action;
use crate::output::{self, BOLD, DIM, Table, bytes};
use crate::screen;
use crate::workload::{TableArgs, WorkloadArgs};
use anyhow::Result;
use clap::Parser;
use lathe_job::profile::{self, Profile as Found, Request};
use lathe_job::profiler::short_name;
use lathe_model::REGISTRY;
use lathe_search::profile::{Entry, FRAME};
use std::path::PathBuf;

/// Measure what each block of a space costs on this machine
#[derive(Parser)]
#[command(
    name = "profile",
    after_help = "\
Each block is measured by itself in the setting in which it will run: warmed up, interleaved in random order with all
others, until its interval is tight. What was measured is kept per machine and setting and reused only there
(in LATHE_CACHE, else in lathe's folder among the caches of the user).

With --models, so many random architectures are measured whole, a correction of the blocks' sum is fitted to them, and
with --check its error is measured on others. The correction is part of the table that --out writes.

Examples:
  lathe profile cpu
  lathe profile lts_gpt2 --seq 192 --models 16 --check 50
  lathe profile my_space.toml --mode decode --batch 8 --models 16 --out table.json"
)]
pub struct Profile {
    /// Space file (TOML) or shipped name
    #[arg(default_value = "cpu")]
    space: String,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    table: TableArgs,
    /// Whole models to fit the correction of sums to
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    models: u32,
    /// Further whole models, to measure the error of predictions with
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    check: u32,
    /// Write the table to a file, for --table
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Seed of the random models
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Action for Profile {
    fn run(self, json: bool) -> Result<()> {
        let request = Request {
            space: self.space,
            workload: self.workload.workload(),
            table: self.table.source(),
            models: self.models,
            check: self.check,
            out: self.out,
            seed: self.seed,
        };
        let found = screen::job(|context, watch| profile::run(context, &request, watch))?;
        if json { output::json(&found) } else { output::text(&Shown(&found).to_string()) }
    }
}

/// A profile for people.
struct Shown<'a>(&'a Found);

/// More blocks than this are summed up by width.
const MOST_ROWS: usize = 40;

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let machine = &self.0.machine;
        writeln!(f, "{BOLD}{}{BOLD:#}, {} threads, {}", machine.cpu, machine.threads, self.0.workload)?;
        if self.0.blocks.len() <= MOST_ROWS {
            self.every_block(f)?;
        } else {
            self.by_width(f)?;
        }
        if let Some(calibration) = &self.0.calibration {
            writeln!(
                f,
                "\n{} whole models: their latency is predicted to {:.1} %, their peak memory to {:.1} % (medians, each model \
                 from the others)",
                calibration.models,
                100.0 * calibration.latency_error,
                100.0 * calibration.memory_error
            )?;
        }
        if let Some(check) = &self.0.check {
            writeln!(f, "\n{} other models, predicted against measured:", check.models.len())?;
            let mut rows = Table::new(&["", "Spearman", "median error", "error of measuring again"], 1);
            for (name, agreement) in [("latency", &check.latency), ("peak memory", &check.memory)] {
                let percent = |share: f64| format!("{:.1} %", 100.0 * share);
                let spearman = format!("{:.4}", agreement.spearman);
                rows.row([name.into(), spearman, percent(agreement.median_error), percent(agreement.repeat_error)]);
            }
            write!(f, "{rows}")?;
        }
        Ok(())
    }
}

impl Shown<'_> {
    fn every_block(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slowest = self.0.blocks.iter().map(|entry| entry.latency_us.median).fold(0.0, f64::max);
        let mut rows = Table::new(&["block", "width", "µs", "95 % interval", "runs", "outliers", "peak memory", ""], 1);
        for entry in &self.0.blocks {
            let latency = entry.latency_us;
            let bar = "█".repeat((20.0 * latency.median / slowest).round() as usize);
            rows.row([
                short_name(&entry.name.block, &REGISTRY),
                entry.d_model.to_string(),
                format!("{:.1}", latency.median),
                format!("[{:.1}, {:.1}]", latency.low, latency.high),
                entry.raw_us.len().to_string(),
                entry.outliers.to_string(),
                bytes(entry.peak_bytes.into()),
                format!("{bar:<20}"),
            ]);
        }
        write!(f, "{rows}")
    }

    fn by_width(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = |entry: &Entry| match entry.name.block.as_str() {
            FRAME => FRAME.to_string(),
            block => block.chars().take_while(|c| c.is_alphabetic() || *c == '-').take(1).collect(),
        };
        let mut groups: std::collections::BTreeMap<(String, u32), Vec<&Entry>> = Default::default();
        for entry in &self.0.blocks {
            groups.entry((kind(entry), entry.d_model)).or_default().push(entry);
        }
        let mut rows = Table::new(&["kind", "width", "blocks", "fastest, µs", "slowest, µs", "widest interval"], 1);
        for ((kind, width), entries) in groups {
            let latencies = || entries.iter().map(|entry| entry.latency_us.median);
            let spread = entries.iter().map(|entry| entry.latency_us.spread()).fold(0.0, f64::max);
            rows.row([
                kind,
                width.to_string(),
                entries.len().to_string(),
                format!("{:.1}", latencies().fold(f64::INFINITY, f64::min)),
                format!("{:.1}", latencies().fold(0.0, f64::max)),
                format!("{:.0} %", 100.0 * spread),
            ]);
        }
        write!(f, "{rows}")?;
        writeln!(f, "{DIM}{} blocks; --json has each with all its times{DIM:#}", self.0.blocks.len())
    }
}
