//! `lathe optimize`: the main job, from a trained model and a text to a faster model and a report.

use super::Action;
use crate::output::{self, BOLD, DIM, Table};
use crate::screen;
use crate::workload::WorkloadArgs;
use anyhow::Result;
use clap::Parser;
use lathe_job::optimize::{self, Asked, Outcome, Request, from_scratch};
use lathe_model::Precision;
use lathe_train::evaluate::Evaluation;
use std::path::PathBuf;

/// Make a trained Transformer faster on this machine and as good, with proof
#[derive(Parser)]
#[command(
    name = "optimize",
    after_help = "\
Takes a model folder with its weights and a text that the model is for, and gives back models that are faster here:
measures what every block costs in every storage, derives options from the trained blocks (fewer heads, narrower,
experts, low rank, nothing, fewer bits), lets them learn from the blocks they replace, scores each, solves for the
best architecture within the target, recovers the best proposals by distillation, and measures and judges the result
on text that was used for nothing else. The report stands beside the models.

A job that was killed goes on with the same command.

Levers: blocks, width, experts, rank, bits, vocab.

Examples:
  lathe optimize
  lathe optimize --model my_model --data my.txt --target-latency 0.5 --out faster
  lathe optimize --model my_model --data my.txt --max-loss 1 --mode decode --seq 64
  lathe optimize --model my_model --data my.txt --levers blocks,width --target-latency 0.6 --frontier 0.8,0.4
  lathe optimize --model my_mrpc --task glue:MRPC --data GLUE --seq 64
  lathe optimize --from-scratch --model deep_transformer_xl --data my.txt --steps 2000 --compare"
)]
pub struct Optimize {
    /// Model folder or GGUF file with weights; with --from-scratch also a model file or a shipped name
    #[arg(long)]
    model: Option<String>,
    /// The text that the model is for: a file, a folder, either with .gz, or builtin
    #[arg(long, default_value = "builtin")]
    data: String,
    /// Text to choose by and to report on [default: the last fifth of the data]
    #[arg(long)]
    valid: Option<String>,
    /// The data are examples of this task or benchmark, for which the model was fine-tuned: classify, glue:MRPC, ...
    #[arg(long, default_value = "", hide_default_value = true)]
    task: String,
    /// Of examples: the columns of texts and label, the label last [default: the usual names]
    #[arg(long, value_name = "NAMES", default_value = "", hide_default_value = true)]
    columns: String,
    /// A text of another kind, to report what was lost there
    #[arg(long, value_name = "FILE")]
    outside: Option<String>,
    /// Latency wanted, as a share of the model's [default: 0.5]
    #[arg(long, value_name = "R", conflicts_with = "target_latency_ms")]
    target_latency: Option<f64>,
    /// Latency wanted, in milliseconds
    #[arg(long, value_name = "MS")]
    target_latency_ms: Option<f64>,
    /// Most memory of a process that runs the model, in MB
    #[arg(long, value_name = "MB")]
    target_memory_mb: Option<f64>,
    /// Most loss, in per cent more than the model's: the fastest model within it is found
    #[arg(long, value_name = "PERCENT", conflicts_with_all = ["target_latency", "target_latency_ms"])]
    max_loss: Option<f64>,
    /// Further latencies to make models for, as shares of the model's
    #[arg(long, value_name = "R,R", value_delimiter = ',')]
    frontier: Vec<f64>,
    /// What may be changed: a list of blocks, width, experts, rank, bits, vocab [default: all]
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true)]
    levers: String,
    /// Who proposes architectures, all at equal cost: a list [default: all]
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true)]
    proposers: String,
    /// Audit the scores of single blocks with so many random architectures, assembled and recovered a little
    #[arg(long, value_name = "N", default_value_t = 0)]
    audit: usize,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Steps of the last recovery, or of each training from scratch [default: as many as the budget has room for]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    steps: Option<u32>,
    /// Minutes that all of it may take, about
    #[arg(long, default_value_t = 10.0, value_name = "MINUTES")]
    budget: f64,
    /// Sequences of a training step
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    train_batch: u32,
    /// Highest learning rate [default: one that fits the width]
    #[arg(long)]
    lr: Option<f64>,
    /// Precision of products in training: f32 or bf16 [default: bf16 where the CPU has tiles for it, else f32]
    #[arg(long, value_name = "P")]
    train_precision: Option<Precision>,
    /// Seed of all that is random
    #[arg(long, default_value_t = 0)]
    seed: u32,
    /// Folder of the job
    #[arg(long, value_name = "DIR", default_value = "optimized")]
    out: PathBuf,
    #[command(flatten)]
    from_scratch: FromScratch,
}

/// The papers' protocol.
#[derive(clap::Args)]
#[command(next_help_heading = "From scratch, as the papers do")]
struct FromScratch {
    /// Ignore weights: train the model, search from fresh weights (PLANER), train what is found, compare
    #[arg(long)]
    from_scratch: bool,
    /// bytes, bpe:N, word:N or a tokenizer.json [default: the model's, else bytes]
    #[arg(long, requires = "from_scratch")]
    tokenizer: Option<String>,
    /// A text that nothing is chosen by, to judge both models on [default: other stories of the built-in language]
    #[arg(long, value_name = "FILE", requires = "from_scratch")]
    test: Option<String>,
    /// Folder of the model, trained already just as here: by another job, or by `lathe train`
    #[arg(long, value_name = "DIR", requires = "from_scratch")]
    baseline: Option<PathBuf>,
    /// Most tokens of an evaluation before the last, 0 for all
    #[arg(long, default_value_t = 1 << 14, requires = "from_scratch")]
    eval_tokens: u32,
    /// Offer a wide feed-forward with as many parameters in place of the mixture of experts
    #[arg(long, requires = "from_scratch")]
    iso_parameter: bool,
    /// Train what was found from the weights that the search ended with, and not from scratch
    #[arg(long, requires = "from_scratch")]
    inherit: bool,
    /// Train other ways too: the PAR rule and Sandwich at their own latencies, fewer layers, narrower ones and random
    /// architectures at the latency of what was found
    #[arg(long, requires = "from_scratch")]
    compare: bool,
    /// Train the baseline and what was found with so many seeds, and tell mean and deviation
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        requires = "from_scratch",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    repeat: u32,
}

/// What is trained from scratch where no model is named.
const FROM_SCRATCH: &str = "deep_transformer_xl";

impl Action for Optimize {
    fn run(self, json: bool) -> Result<()> {
        if self.from_scratch.from_scratch {
            let found = self.scratch()?;
            return if json { output::json(&found) } else { output::text(&Scratch(&found).to_string()) };
        }
        let list =
            |text: &str| text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect();
        let asked = Asked {
            threads: rayon::current_num_threads(),
            model: self.model.unwrap_or_else(|| optimize::DEFAULT.into()),
            data: self.data,
            valid: self.valid,
            task: self.task,
            columns: self.columns,
            target_latency: self.target_latency,
            target_latency_ms: self.target_latency_ms,
            target_memory_mb: self.target_memory_mb,
            max_loss: self.max_loss,
            frontier: self.frontier,
            levers: optimize::levers(&self.levers)?,
            proposers: list(&self.proposers),
            workload: self.workload.workload(),
            budget: self.budget,
            steps: self.steps,
            train_batch: self.train_batch,
            lr: self.lr,
            train_precision: self.train_precision.map(|precision| precision.to_string()),
            seed: self.seed,
        };
        let request = Request { asked, outside: self.outside, audit: self.audit, out: self.out, command: command() };
        let found = screen::job(|context, watch| optimize::run(context, &request, watch))?;
        if json { output::json(&found) } else { output::text(&Shown(&found).to_string()) }
    }
}

impl Optimize {
    /// The papers' protocol.
    fn scratch(self) -> Result<from_scratch::Outcome> {
        let of = self.from_scratch;
        let asked = from_scratch::Asked {
            threads: rayon::current_num_threads(),
            model: self.model.unwrap_or_else(|| FROM_SCRATCH.into()),
            data: self.data,
            valid: self.valid,
            tokenizer: of.tokenizer,
            target_latency: self.target_latency,
            target_latency_ms: self.target_latency_ms,
            workload: self.workload.workload(),
            steps: self.steps,
            budget: self.budget,
            train_batch: self.train_batch,
            lr: self.lr,
            train_precision: self.train_precision.map(|precision| precision.to_string()),
            eval_tokens: of.eval_tokens,
            iso_parameter: of.iso_parameter,
            inherit: of.inherit,
            seed: self.seed,
        };
        let (baseline, test, compare, repeat) = (of.baseline, of.test, of.compare, of.repeat);
        let request =
            from_scratch::Request { asked, baseline, test, compare, repeat, out: self.out, command: command() };
        screen::job(|context, watch| from_scratch::run(context, &request, watch))
    }
}

/// The command that returns this again.
pub(super) fn command() -> String {
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
        let Outcome { baseline, test, .. } = self.0;
        // Examples have a metric beside the bits of each.
        let metric = |test: &Evaluation| test.metric().map_or_else(String::new, |(_, value)| format!("{value:.4}"));
        let (unit, name) = match test.baseline.metric() {
            Some((name, _)) => ("bits/example", name),
            None => ("bits/byte", ""),
        };
        let mut rows = Table::new(&["", "ms", "faster", unit, "", name, "MB", "layers"], 1);
        // An embedder is judged by itself, where it has no loss at all.
        let change = |bits: f64| match test.baseline.bits() {
            base if base < 1e-9 => String::new(),
            base => format!("{:+.1} %", 100.0 * (bits / base - 1.0)),
        };
        let mb =
            |bytes: Option<u64>| bytes.map_or("-".into(), |bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)));
        let mut row = |name: &str, (ms, speedup): (f64, f64), test: &Evaluation, bytes: Option<u64>, layers: &str| {
            let bits = test.bits();
            let cells =
                [name.into(), format!("{ms:.3}"), format!("{speedup:.2} x"), format!("{bits:.4}"), change(bits)];
            rows.row(cells.into_iter().chain([metric(test), mb(bytes), format!("{layers:<40}")]));
        };
        row("original", (baseline.latency_ms, 1.0), &test.baseline, baseline.bytes, &baseline.layers);
        for point in &self.0.frontier {
            row(&point.name, (point.latency_ms, point.speedup), &point.test, point.bytes, &point.layers);
        }
        if let Some(continued) = &test.continued {
            // It has the tokens that models were made with.
            let fewer = self.0.frontier.iter().find(|point| point.name == "vocab");
            let (ms, speedup, bytes) = fewer.map_or((baseline.latency_ms, 1.0, baseline.bytes), |vocab| {
                (vocab.latency_ms, vocab.speedup, vocab.bytes)
            });
            row("control", (ms, speedup), continued, bytes, "the original, trained on");
        }
        write!(f, "{rows}")?;
        let [low, high] = self.0.speedup_interval;
        writeln!(f, "\n{BOLD}{}{BOLD:#}", optimize::verdict(self.0))?;
        writeln!(
            f,
            "speed-up {:.2} [{low:.2}, {high:.2}], side by side; judged on text used for nothing else; found by {}",
            self.0.speedup,
            self.0.from.join(", ")
        )?;
        if let (Some(kl), Some(same)) = (&self.0.kl, self.0.same_top) {
            let what = if name.is_empty() { "most probable token at" } else { "prediction for" };
            let where_ = if name.is_empty() { "places" } else { "examples" };
            writeln!(f, "the same {what} {:.1} % of the {where_}; KL {:.4} nats", 100.0 * same, kl.mean)?;
        }
        writeln!(f, "{DIM}{:.0} s; the report is {}{DIM:#}", self.0.seconds, self.0.report)
    }
}

/// What was found from scratch, for people.
struct Scratch<'a>(&'a from_scratch::Outcome);

impl std::fmt::Display for Scratch<'_> {
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
        if let Some(test) = &self.0.test {
            let change = 100.0 * (test.found.bits_per_byte / test.baseline.bits_per_byte - 1.0);
            writeln!(f, "{change:+.2} % on {}, which nothing was chosen by", test.data)?;
        }
        if let Some(repeated) = &self.0.repeated {
            writeln!(f, "{repeated}")?;
        }
        writeln!(f, "{DIM}{:.0} s; the report is {}{DIM:#}", self.0.seconds, self.0.report)
    }
}
