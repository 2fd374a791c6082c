//! `lathe optimize`: the main job, from a model and a text to a faster model and a report.

use super::Action;
use super::train::Screen;
use crate::input::{self, Usage, read_json};
use crate::optimize::{
    BASELINE, COMPARED, Chosen, Compared, Job, Measured, PLAN, Plan, Repeated, Runner, Target, steps_within,
    with_head_width,
};
use crate::output::{self, BOLD, DIM, Table as Rows};
use crate::pages::optimize::Page;
use crate::progress::Progress;
use crate::workload::WorkloadArgs;
use anyhow::{Context, Result};
use clap::Parser;
use lathe_core::Model;
use lathe_core::model::{Value, key};
use lathe_model::folder::is_free;
use lathe_model::{Precision, REGISTRY};
use lathe_search::workload::{Mode, Workload};
use lathe_train::data::{Tokenizer, TokenizerSpec};
use lathe_train::evaluate::Evaluation;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

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

#[derive(Serialize)]
struct Document {
    baseline: Side,
    found: Side,
    speedup: f64,
    speedup_interval: [f64; 2],
    target: f64,
    target_met: bool,
    estimated_latency: f64,
    /// Where the architecture comes from: the search, or a plain way that did better in the race.
    from: String,
    race: Vec<Runner>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    compared: Vec<Rival>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<Repeated>,
    steps: u32,
    /// Whether what was found began with the weights of the search.
    inherited: bool,
    seconds: f64,
    report: String,
}

/// A model, trained and measured.
#[derive(Serialize)]
struct Side {
    layers: String,
    latency_ms: f64,
    valid: Option<Evaluation>,
}

#[derive(Serialize)]
struct Rival {
    name: String,
    layers: String,
    latency_ms: f64,
    speedup: f64,
    valid: Option<Evaluation>,
}

impl Rival {
    fn new(compared: Compared, valid: Option<Evaluation>) -> Self {
        let Compared { name, layers, pair } = compared;
        Self { name, layers, latency_ms: pair.second_ms.median, speedup: pair.speedup, valid }
    }
}

impl Optimize {
    fn target(&self) -> Result<Target> {
        let wrong = |flag: &str, value: f64| Usage(format!("--{flag}: found {value}; expected a number above 0"));
        match (self.target_latency, self.target_latency_ms) {
            (_, Some(ms)) if ms > 0.0 => Ok(Target::Ms(ms)),
            (_, Some(ms)) => Err(wrong("target-latency-ms", ms).into()),
            (Some(ratio), _) if ratio > 0.0 => Ok(Target::Ratio(ratio)),
            (Some(ratio), _) => Err(wrong("target-latency", ratio).into()),
            _ => Ok(Target::Ratio(0.5)),
        }
    }

    /// The model as it is to be, and how it reads text.
    fn model(&self) -> Result<(Model, String)> {
        let mut spec = input::spec_of(&self.model)?;
        let folder = Path::new(&self.model).join("tokenizer.json");
        let tokenizer = match &self.tokenizer {
            Some(tokenizer) => tokenizer.clone(),
            None if folder.exists() => folder.display().to_string(),
            None => "bytes".into(),
        };
        // What is trained from scratch has the vocabulary of the tokenizer that is asked for.
        if self.tokenizer.is_some() || spec.get("vocab").is_none() {
            let vocab = match tokenizer.parse::<TokenizerSpec>()? {
                TokenizerSpec::Bytes => Tokenizer::Bytes.vocab(),
                TokenizerSpec::Bpe(vocab) | TokenizerSpec::Word(vocab) => vocab,
                TokenizerSpec::File(path) => Tokenizer::open(&path)?.vocab(),
            };
            spec.set(key("vocab").expect("a key of the model file"), Value::Int(vocab));
        }
        let model = spec.model(&REGISTRY).with_context(|| self.model.clone())?;
        Ok((with_head_width(&model)?, tokenizer))
    }

    /// The plan of the folder, or a new one.
    fn plan(&self, progress: &mut Progress) -> Result<Plan> {
        let path = self.out.join(PLAN);
        let asked = self.asked();
        if path.exists() {
            let plan: Plan = read_json(&path)?;
            if plan.asked != asked {
                let message =
                    "found a job with other settings; expected a new folder, or the settings that it began with";
                return Err(Usage(format!("--out {}: {message}", self.out.display())).into());
            }
            return Ok(plan);
        }
        if !is_free(&self.out)? {
            let message = "found other files; expected a new or empty folder";
            return Err(Usage(format!("--out {}: {message}", self.out.display())).into());
        }
        if !(self.budget > 0.0 && self.budget.is_finite()) {
            return Err(Usage(format!("--budget: found {}; expected minutes above 0", self.budget)).into());
        }
        let target = self.target()?;
        let (model, tokenizer) = self.model()?;
        let workload = self.workload.workload();
        workload.model(&model)?; // its lengths are checked before anything is done
        let steps = match self.steps {
            Some(steps) => steps,
            None => {
                progress.say("measuring a training step");
                steps_within(self.budget, self.step_seconds(&model)?, target, self.compare)
            }
        };
        let lr = self.lr.unwrap_or_else(|| 0.003 * (128.0 / f64::from(model.frame.d_model)).sqrt().min(1.0));
        Ok(Plan {
            asked,
            model: model.to_toml(),
            data: self.data.clone(),
            valid: self.valid.clone().unwrap_or_default(),
            tokenizer,
            target,
            workload,
            steps,
            batch: self.train_batch,
            lr,
            seed: self.seed,
            precision: self.precision().to_string(),
            eval_tokens: self.eval_tokens,
            iso_parameter: self.iso_parameter,
            inherit: self.inherit,
        })
    }

    fn precision(&self) -> Precision {
        self.train_precision.unwrap_or_else(Precision::fastest)
    }

    /// The flags that make the job what it is.
    fn asked(&self) -> String {
        let workload = serde_json::to_string(&self.workload.workload()).unwrap_or_default();
        let threads = rayon::current_num_threads();
        format!(
            "{threads} threads {} {} {:?} {:?} {:?} {:?} {workload} {:?} {} {} {:?} {:?} {} {} {} {}",
            self.model,
            self.data,
            self.valid,
            self.tokenizer,
            self.target_latency,
            self.target_latency_ms,
            self.steps,
            self.budget,
            self.train_batch,
            self.lr,
            self.train_precision,
            self.eval_tokens,
            self.iso_parameter,
            self.inherit,
            self.seed
        )
    }

    /// What one step of the baseline takes.
    fn step_seconds(&self, model: &Model) -> Result<f64> {
        let precision = self.precision();
        let workload = Workload { mode: Mode::Train, batch: self.train_batch, precision, ..Workload::default() };
        let mut step = workload.whole(model.clone(), 0)?;
        (0..3).for_each(|_| step());
        let mut times = Vec::new();
        for _ in 0..9 {
            let start = Instant::now();
            step();
            times.push(start.elapsed().as_secs_f64());
        }
        Ok(lathe_search::profile::median(times))
    }
}

impl Action for Optimize {
    fn run(self, json: bool) -> Result<()> {
        let began = Instant::now();
        let mut progress = Progress::default();
        let plan = self.plan(&mut progress)?;
        let job = Job::new(&self.out, plan)?;
        job.check()?;
        self.baseline.as_ref().map_or(Ok(()), |trained| job.check_baseline(trained))?;
        let stage = |number: u32, what: &str| {
            output::tell(format_args!("{}[{number}/5]{} {what}", BOLD.render(), BOLD.render_reset()));
        };
        stage(1, &format!("profile: {} in {}", job.baseline.layers(), job.plan.workload));
        let table = job.profile(&mut progress)?;
        let target = job.plan.target.ratio(job.latency_ms(&table)?);
        job.begin(&table, target)?;
        stage(2, &format!("train the baseline, {} steps", job.plan.steps));
        if let Some(trained) = &self.baseline {
            job.adopt(trained, BASELINE)?;
        }
        let mut screen = Screen::default();
        let baseline = job.train(BASELINE, &job.baseline.layers(), &mut screen)?;
        screen.finish();
        stage(3, &format!("search for a latency of {target:.2} of the baseline's, and try what is found"));
        let found = job.search(&table, target, &mut progress)?;
        progress.finish();
        let searched = job.choose(&table, &found, target, &mut progress)?;
        let race = job.race(&table, &searched, &mut progress)?;
        stage(4, "train what came out best, and what came close to it");
        let (chosen, trained) = job.finals(&searched, &race, &mut screen)?;
        let rivals = if self.compare || job.has_compared() { job.rivals(&table, &chosen)? } else { Vec::new() };
        let mut of_rivals = Vec::new();
        for (name, layers) in &rivals {
            output::tell(format_args!("      train {name}, {layers}"));
            of_rivals.push(job.train(&format!("{COMPARED}/{name}"), layers, &mut screen)?);
        }
        let repeated = job.repeat(&chosen, [&baseline, &trained], self.repeat, &mut screen)?;
        screen.finish();
        stage(5, "measure both side by side, and report");
        let measured = job.measure(&mut progress)?;
        let compared = job.compare(&rivals, &mut progress)?;
        let report = self.out.join("report.html");
        let page = Page {
            job: &job,
            table: &table,
            chosen: &chosen,
            measured: &measured,
            compared: &compared,
            outcomes: [&baseline, &trained],
            rivals: &of_rivals,
            repeated: repeated.as_ref(),
        };
        page.write(&report)?;
        let estimate = job.estimate(&table, &chosen.layers)?;
        let sides = [baseline.valid, trained.valid];
        let rivals = compared.into_iter().zip(of_rivals).map(|(compared, outcome)| Rival::new(compared, outcome.valid));
        let document = document(&job, &chosen, estimate, &measured, sides, rivals.collect(), repeated, began, &report);
        if json { output::json(&document) } else { output::text(&document.to_string()) }
    }
}

#[allow(clippy::too_many_arguments)] // all that there is to say
fn document(
    job: &Job,
    chosen: &Chosen,
    estimated_latency: f64,
    measured: &Measured,
    valid: [Option<Evaluation>; 2],
    compared: Vec<Rival>,
    repeated: Option<Repeated>,
    began: Instant,
    report: &Path,
) -> Document {
    let pair = &measured.pair;
    let [of_baseline, of_found] = valid;
    Document {
        baseline: Side { layers: job.baseline.layers(), latency_ms: pair.first_ms.median, valid: of_baseline },
        found: Side { layers: chosen.layers.clone(), latency_ms: pair.second_ms.median, valid: of_found },
        speedup: pair.speedup,
        speedup_interval: pair.interval,
        target: chosen.target,
        target_met: pair.second_ms.median <= job.plan.target.ratio(pair.first_ms.median) * pair.first_ms.median,
        estimated_latency,
        from: chosen.name.clone(),
        race: chosen.race.clone(),
        compared,
        repeated,
        steps: job.plan.steps,
        inherited: job.plan.inherit,
        seconds: began.elapsed().as_secs_f64(),
        report: report.display().to_string(),
    }
}

impl std::fmt::Display for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rows = Rows::new(&["", "ms", "faster", "bits/byte", "layers"], 1);
        let bits =
            |valid: &Option<Evaluation>| valid.as_ref().map_or("-".to_string(), |v| format!("{:.4}", v.bits_per_byte));
        let ms = |ms: f64| format!("{ms:.3}");
        let mut row = |name: &str, latency: f64, speedup: f64, valid: &Option<Evaluation>, layers: &str| {
            rows.row([name.into(), ms(latency), format!("{speedup:.2} x"), bits(valid), format!("{layers:<40}")]);
        };
        row("baseline", self.baseline.latency_ms, 1.0, &self.baseline.valid, &self.baseline.layers);
        row("found", self.found.latency_ms, self.speedup, &self.found.valid, &self.found.layers);
        for rival in &self.compared {
            row(&rival.name, rival.latency_ms, rival.speedup, &rival.valid, &rival.layers);
        }
        write!(f, "{rows}")?;
        let [low, high] = self.speedup_interval;
        writeln!(
            f,
            "\n{}{:.2} times as fast{} [{low:.2}, {high:.2}], measured side by side{}",
            BOLD.render(),
            self.speedup,
            BOLD.render_reset(),
            if self.target_met { "" } else { "; the target was missed" }
        )?;
        if let (Some(baseline), Some(found)) = (&self.baseline.valid, &self.found.valid) {
            let change = 100.0 * (found.bits_per_byte / baseline.bits_per_byte - 1.0);
            writeln!(
                f,
                "{change:+.2} % bits per byte on text that neither was trained on, after {} steps each, {}",
                self.steps,
                if self.inherited {
                    "the found one on from the weights of the search, which began as the baseline's"
                } else {
                    "both from scratch"
                }
            )?;
        }
        if let Some(repeated) = &self.repeated {
            writeln!(f, "{repeated}")?;
        }
        writeln!(f, "{}{:.0} s; the report is {}{}", DIM.render(), self.seconds, self.report, DIM.render_reset())
    }
}
