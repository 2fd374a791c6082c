//! `lathe optimize`: the main job, from a model and a text to a faster model and a report.

use super::Action;
use crate::output::{self, BOLD, DIM, Table};
use crate::screen;
use crate::workload::WorkloadArgs;
use anyhow::Result;
use clap::Parser;
use lathe_job::optimize::{self, Asked, Outcome, Request};
use lathe_model::Precision;
use lathe_train::evaluate::Evaluation;
use std::path::PathBuf;

/// Make a Transformer faster on this machine: measure, search, train, measure again, report
#[derive(Parser)]
#[command(
    name = "optimize",
    after_help = "\
Measures what each kind of block costs here, searches for the best architecture within the target, measures it
whole beside the model it came from, trains both with equal steps, and writes a report. With nothing given it
makes a small Transformer-XL twice as fast on a built-in language, in about ten minutes.

A job that was killed goes on with the same command, and one that has ended goes on with --compare or --repeat.

Examples:
  lathe optimize
  lathe optimize --data my.txt --target-latency 0.5 --out faster
  lathe optimize --model gpt2.toml --data my.txt --mode decode --batch 8 --seq 64 --compare"
)]
pub struct Optimize {
    /// Model file, model folder or shipped name
    #[arg(long, default_value = "deep_transformer_xl")]
    model: String,
    /// Text to learn: a file, a folder, either with .gz, or builtin
    #[arg(long, default_value = "builtin")]
    data: String,
    /// Text to validate on [default: the last tenth of the data]
    #[arg(long)]
    valid: Option<String>,
    /// bytes, bpe:N, word:N or a tokenizer.json [default: the model folder's, else bytes]
    #[arg(long)]
    tokenizer: Option<String>,
    /// Latency wanted, as a share of the model's [default: 0.5]
    #[arg(long, value_name = "R", conflicts_with = "target_latency_ms")]
    target_latency: Option<f64>,
    /// Latency wanted, in milliseconds
    #[arg(long, value_name = "MS")]
    target_latency_ms: Option<f64>,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Steps of each training [default: as many as the budget has room for]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    steps: Option<u32>,
    /// Minutes that all of it may take, about
    #[arg(long, default_value_t = 10.0, value_name = "MINUTES")]
    budget: f64,
    /// Folder of the model, trained already just as here: by another job, or by `lathe train`
    #[arg(long, value_name = "DIR")]
    baseline: Option<PathBuf>,
    /// Sequences of a training step
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    train_batch: u32,
    /// Highest learning rate [default: 0.003, less for wide models]
    #[arg(long)]
    lr: Option<f64>,
    /// Precision of products in training: f32 or bf16 [default: bf16 where the CPU has tiles for it, else f32]
    #[arg(long, value_name = "P")]
    train_precision: Option<Precision>,
    /// Most tokens of an evaluation before the last, 0 for all
    #[arg(long, default_value_t = 1 << 14)]
    eval_tokens: u32,
    /// Offer a wide feed-forward with as many parameters in place of the mixture of experts
    #[arg(long)]
    iso_parameter: bool,
    /// Train what was found from the weights that the search ended with, and not from scratch as the papers do
    #[arg(long)]
    inherit: bool,
    /// Train other ways too: the PAR rule and Sandwich at their own latencies, fewer layers, narrower ones and random
    /// architectures at the latency of what was found
    #[arg(long)]
    compare: bool,
    /// Train the baseline and what was found with so many seeds, and tell mean and deviation
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Seed of all that is random
    #[arg(long, default_value_t = 0)]
    seed: u32,
    /// Folder of the job
    #[arg(long, value_name = "DIR", default_value = "optimized")]
    out: PathBuf,
}

impl Action for Optimize {
    fn run(self, json: bool) -> Result<()> {
        let asked = Asked {
            threads: rayon::current_num_threads(),
            model: self.model,
            data: self.data,
            valid: self.valid,
            tokenizer: self.tokenizer,
            target_latency: self.target_latency,
            target_latency_ms: self.target_latency_ms,
            workload: self.workload.workload(),
            steps: self.steps,
            budget: self.budget,
            train_batch: self.train_batch,
            lr: self.lr,
            train_precision: self.train_precision.map(|precision| precision.to_string()),
            eval_tokens: self.eval_tokens,
            iso_parameter: self.iso_parameter,
            inherit: self.inherit,
            seed: self.seed,
        };
        let (baseline, compare, repeat, out) = (self.baseline, self.compare, self.repeat, self.out);
        let request = Request { asked, baseline, compare, repeat, out, command: command() };
        let found = screen::job(|context, watch| optimize::run(context, &request, watch))?;
        if json { output::json(&found) } else { output::text(&Shown(&found).to_string()) }
    }
}

/// The command that returns this again.
fn command() -> String {
    let quote = |arg: String| match arg.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:".contains(c)) {
        true => arg,
        false => format!("'{}'", arg.replace('\'', "'\\''")),
    };
    std::iter::once("lathe".to_string()).chain(std::env::args().skip(1).map(quote)).collect::<Vec<_>>().join(" ")
}

/// What was found, for people.
struct Shown<'a>(&'a Outcome);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rows = Table::new(&["", "ms", "faster", "bits/byte", "layers"], 1);
        let bits =
            |valid: &Option<Evaluation>| valid.as_ref().map_or("-".to_string(), |v| format!("{:.4}", v.bits_per_byte));
        let ms = |ms: f64| format!("{ms:.3}");
        let mut row = |name: &str, latency: f64, speedup: f64, valid: &Option<Evaluation>, layers: &str| {
            rows.row([name.into(), ms(latency), format!("{speedup:.2} x"), bits(valid), format!("{layers:<40}")]);
        };
        row("baseline", self.0.baseline.latency_ms, 1.0, &self.0.baseline.valid, &self.0.baseline.layers);
        row("found", self.0.found.latency_ms, self.0.speedup, &self.0.found.valid, &self.0.found.layers);
        for rival in &self.0.compared {
            row(&rival.name, rival.latency_ms, rival.speedup, &rival.valid, &rival.layers);
        }
        write!(f, "{rows}")?;
        let [low, high] = self.0.speedup_interval;
        writeln!(
            f,
            "\n{BOLD}{:.2} times as fast{BOLD:#} [{low:.2}, {high:.2}], measured side by side{}",
            self.0.speedup,
            if self.0.target_met { "" } else { "; the target was missed" }
        )?;
        if let (Some(baseline), Some(found)) = (&self.0.baseline.valid, &self.0.found.valid) {
            let change = 100.0 * (found.bits_per_byte / baseline.bits_per_byte - 1.0);
            writeln!(
                f,
                "{change:+.2} % bits per byte on text that neither was trained on, after {} steps each, {}",
                self.0.steps,
                if self.0.inherited {
                    "the found one on from the weights of the search, which began as the baseline's"
                } else {
                    "both from scratch"
                }
            )?;
        }
        if let Some(repeated) = &self.0.repeated {
            writeln!(f, "{repeated}")?;
        }
        writeln!(f, "{DIM}{:.0} s; the report is {}{DIM:#}", self.0.seconds, self.0.report)
    }
}
