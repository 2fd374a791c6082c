//! `lathe profile`: what each block of a space costs on this machine, and how well their sum predicts whole models.

use super::Action;
use crate::input;
use crate::output::{self, BOLD, DIM, Table as Rows, bytes};
use crate::picture::short_name;
use crate::profiler::{self, Pace, Profiled, ROUNDS, TableArgs, measure_models};
use crate::progress::Progress;
use crate::workload::WorkloadArgs;
use anyhow::Result;
use clap::Parser;
use lathe_core::Model;
use lathe_search::profile::{Calibration, Entry, FRAME, Machine, Measured, Table, median};
use lathe_search::workload::Workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
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

#[derive(Serialize)]
struct Document<'a> {
    machine: &'a Machine,
    workload: &'a Workload,
    blocks: &'a [Entry],
    #[serde(skip_serializing_if = "Option::is_none")]
    others_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calibration: Option<&'a Calibration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<Check>,
}

/// Predicted against measured, over models that the correction has not seen.
#[derive(Serialize)]
struct Check {
    latency: Agreement,
    memory: Agreement,
    models: Vec<Checked>,
}

#[derive(Serialize)]
struct Agreement {
    spearman: f64,
    median_error: f64,
    /// Of measuring the same model again.
    repeat_error: f64,
}

#[derive(Serialize)]
struct Checked {
    layers: String,
    d_model: u32,
    predicted_ms: f64,
    measured_ms: f64,
    again_ms: f64,
    predicted_bytes: f64,
    measured_bytes: u64,
    again_bytes: u64,
}

impl Action for Profile {
    fn run(self, json: bool) -> Result<()> {
        let space = input::space(&self.space)?;
        let workload = self.workload.workload();
        let mut progress = Progress::default();
        if let Some(warning) = workload.precision.warning() {
            output::tell(format_args!("warning: {warning}"));
        }
        let baseline = std::slice::from_ref(&space.baseline);
        let Profiled { mut table, noise } = self.table.table(&space, baseline, &workload, &mut progress)?;
        let mut pace = Pace::default();
        if self.models > 0 {
            profiler::calibrate(&mut table, &space, self.models as usize, self.seed, &mut pace, &mut progress)?;
        }
        if let Some(path) = &self.out {
            profiler::export(&table, path)?;
        }
        let check = match self.check {
            0 => None,
            n => {
                // Another stream of the generator than that of the calibration.
                let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
                rng.set_stream(1);
                let models = profiler::random_models(&space, &workload, n as usize, &mut rng)?;
                Some(check(&models, &table.clone().smoothed(), &mut pace, &mut progress)?)
            }
        };
        // The cache may know more blocks than this space has.
        let parts = lathe_search::profile::Part::of_space(&space, &workload)?;
        let entries: Vec<Entry> = parts.iter().filter_map(|part| table.get(&part.name).cloned()).collect();
        let document = Document {
            machine: &table.machine,
            workload: &workload,
            blocks: &entries,
            others_share: noise.and_then(|noise| noise.others),
            calibration: table.calibration.as_ref(),
            check,
        };
        if json { output::json(&document) } else { output::text(&document.to_string()) }
    }
}

/// Measures models twice and compares with what was predicted.
fn check(models: &[Model], table: &Table, pace: &mut Pace, progress: &mut Progress) -> Result<Check> {
    let mut measure = |what| measure_models(models.to_vec(), &table.workload, ROUNDS, what, pace, progress);
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
        let spearman = lathe_search::ranking::spearman(&column(0), &column(1)).unwrap_or(1.0);
        Agreement { spearman, median_error: error(0), repeat_error: error(2) }
    };
    Ok(Check {
        latency: of(|one| [one.predicted_ms, one.measured_ms, one.again_ms]),
        memory: of(|one| [one.predicted_bytes, one.measured_bytes as f64, one.again_bytes as f64]),
        models: checked,
    })
}

/// More blocks than this are summed up by width.
const MOST_ROWS: usize = 40;

impl std::fmt::Display for Document<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let machine = self.machine;
        writeln!(
            f,
            "{}{}{}, {} threads, {}",
            BOLD.render(),
            machine.cpu,
            BOLD.render_reset(),
            machine.threads,
            self.workload
        )?;
        if self.blocks.len() <= MOST_ROWS {
            self.every_block(f)?;
        } else {
            self.by_width(f)?;
        }
        if let Some(calibration) = self.calibration {
            writeln!(
                f,
                "\n{} whole models: their latency is predicted to {:.1} %, their peak memory to {:.1} % (medians, each model \
                 from the others)",
                calibration.models,
                100.0 * calibration.latency_error,
                100.0 * calibration.memory_error
            )?;
        }
        if let Some(check) = &self.check {
            writeln!(f, "\n{} other models, predicted against measured:", check.models.len())?;
            let mut rows = Rows::new(&["", "Spearman", "median error", "error of measuring again"], 1);
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

impl Document<'_> {
    fn every_block(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slowest = self.blocks.iter().map(|entry| entry.latency_us.median).fold(0.0, f64::max);
        let mut rows = Rows::new(&["block", "width", "µs", "95 % interval", "runs", "outliers", "peak memory", ""], 1);
        for entry in self.blocks {
            let latency = entry.latency_us;
            let bar = "█".repeat((20.0 * latency.median / slowest).round() as usize);
            rows.row([
                short_name(&entry.name.block),
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
        for entry in self.blocks {
            groups.entry((kind(entry), entry.d_model)).or_default().push(entry);
        }
        let mut rows = Rows::new(&["kind", "width", "blocks", "fastest, µs", "slowest, µs", "widest interval"], 1);
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
        writeln!(
            f,
            "{}{} blocks; --json has each with all its times{}",
            DIM.render(),
            self.blocks.len(),
            DIM.render_reset()
        )
    }
}
