//! `lathe search differentiable`: a super net and its architecture, trained in turn.

use crate::input::{self, Usage};
use crate::output::{self, BOLD, DIM, Table};
use crate::screen;
use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Command, Parser, ValueEnum};
use lathe_core::model::Key;
use lathe_job::differentiable::{self, Request};
use lathe_job::train;
use lathe_search::differentiable::gumbel::{Relaxation, Sampling};
use lathe_search::differentiable::latency::Target;
use lathe_search::differentiable::run::Outcome;
use lathe_search::differentiable::settings::{Cost, Preset, SearchSettings};
use lathe_train::settings::{KEYS, Settings};
use std::path::{Path, PathBuf};

/// Train a super net and its architecture in turn (PAR, PLANER)
#[derive(Parser)]
#[command(after_help = "\
SPACE has a frame of its own and choices of one block per place, as par, planer_wt103, planer_enwik8 and cpu have.
The target is a share of the baseline's estimate, which is a sum over a table of measured blocks: --table names one,
without it this machine's profile is taken, or made. DIR gets the record, checkpoints, found.toml (a model file to train) and
result.json; a search that was stopped goes on with --resume, to the same bits.

Examples:
  lathe search differentiable cpu --data my.txt --target-latency 0.5 --steps 2000 --batch 8 --out found
  lathe search differentiable par --preset par --data wiki.txt --tokenizer word:267735 --out found
  lathe search differentiable --resume found")]
pub struct Differentiable {
    /// Space file (TOML) or shipped name
    space: Option<String>,
    /// Go on with the search in a folder
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Most latency of the architecture, as a share of the baseline's
    #[arg(long, value_name = "R")]
    target_latency: Option<f64>,
    /// The same in microseconds of the table
    #[arg(long, value_name = "US", conflicts_with = "target_latency")]
    target_latency_us: Option<f64>,
    /// Most peak memory of the architecture, as a share of the baseline's, in place of latency
    #[arg(long, value_name = "R", conflicts_with_all = ["target_latency", "target_latency_us"])]
    target_memory: Option<f64>,
    /// Whose protocol: planer or planer-enwik8 (latency loss, hard samples for weights), par (cross-entropy only, mixtures)
    #[arg(long, value_enum, default_value = "planer")]
    preset: PresetName,
    /// Latencies of blocks, as `lathe profile --out` writes them [default: this machine's profile]
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Leave embedding and output out of estimates, as the papers do
    #[arg(long)]
    blocks_only: bool,
    /// Sequences of a measured pass
    #[arg(long, default_value_t = 1, value_name = "B", value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    measure_batch: u32,
    /// Tokens of a measured pass [default: tgt_len]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    measure_seq: Option<u32>,
    /// Turns of weights and architecture [default: planer 20, planer-enwik8 44, par 10]
    #[arg(long, help_heading = PROTOCOL)]
    rounds: Option<u32>,
    /// Architecture steps as a share of weight steps [default: 0.2]
    #[arg(long, help_heading = PROTOCOL)]
    arch_share: Option<f64>,
    /// Share of the search in which the architecture is left alone [default: planer 0.1, par 0.25]
    #[arg(long, help_heading = PROTOCOL)]
    arch_off: Option<f64>,
    /// Learning rate of the architecture [default: 0.01]
    #[arg(long, help_heading = PROTOCOL)]
    arch_lr: Option<f64>,
    /// Weight decay of the architecture [default: planer 0, par 0.0005]
    #[arg(long, help_heading = PROTOCOL)]
    arch_weight_decay: Option<f64>,
    /// Gumbel noise or none (DARTS) [default: gumbel]
    #[arg(long, value_enum, help_heading = PROTOCOL)]
    relaxation: Option<RelaxationName>,
    /// What weight steps compute with [default: planer hard, par soft]
    #[arg(long, value_enum, help_heading = PROTOCOL)]
    weight_samples: Option<SamplingName>,
    /// What architecture steps compute with: soft or straight-through [default: soft]
    #[arg(long, value_enum, help_heading = PROTOCOL)]
    arch_samples: Option<SamplingName>,
    /// Temperature to begin with [default: planer 5, par 1]
    #[arg(long, help_heading = PROTOCOL)]
    temperature: Option<f64>,
    /// Factor of the temperature per round [default: planer 0.6, planer-enwik8 0.7, par 1]
    #[arg(long, help_heading = PROTOCOL)]
    annealing: Option<f64>,
    /// Least temperature [default: 0.5]
    #[arg(long, help_heading = PROTOCOL)]
    temperature_floor: Option<f64>,
    /// Weight of the latency loss [default: planer 1, par 0]
    #[arg(long, help_heading = PROTOCOL)]
    latency_weight: Option<f64>,
    /// Probability that each slot begins with for the baseline's own block [default: all options equal]
    #[arg(long, help_heading = PROTOCOL)]
    baseline_share: Option<f64>,
    /// Take the most probable options even where together they break the target
    #[arg(long, help_heading = PROTOCOL)]
    no_projection: bool,
    #[command(flatten)]
    flags: TrainingFlags,
}

const PROTOCOL: &str = "Protocol (over the preset's)";

#[derive(Clone, Copy, ValueEnum)]
enum PresetName {
    Planer,
    /// PLANER's on enwik8: 44 rounds, annealing 0.7
    PlanerEnwik8,
    Par,
    /// Ours: PLANER's with what goes wrong from trained weights mended
    Mended,
}

#[derive(Clone, Copy, ValueEnum)]
enum RelaxationName {
    Gumbel,
    Softmax,
}

#[derive(Clone, Copy, ValueEnum)]
enum SamplingName {
    Soft,
    Hard,
    StraightThrough,
}

impl From<SamplingName> for Sampling {
    fn from(name: SamplingName) -> Self {
        match name {
            SamplingName::Soft => Self::Soft,
            SamplingName::Hard => Self::Hard,
            SamplingName::StraightThrough => Self::StraightThrough,
        }
    }
}

/// The flags of a training run that mean something to a super net.
struct TrainingFlags {
    settings: Vec<(&'static Key, String)>,
}

/// Settings of runs that have no meaning here: a search does not evaluate.
const WITHOUT_MEANING: &[&str] = &[
    "valid",
    "accumulate",
    "eval_every",
    "eval_tokens",
    "patience",
    "tensorboard",
    "sparsity",
    "sparsity_evenly",
    "keep_zeros",
];

fn keys() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(|key| !WITHOUT_MEANING.contains(&key.name))
}

impl TrainingFlags {
    fn read(matches: &ArgMatches) -> Self {
        Self { settings: input::flags_given(keys(), matches) }
    }

    fn args(command: Command) -> Command {
        let flags = input::key_flags(KEYS, "Training of the weights");
        let known = |arg: &Arg| keys().any(|key| key.name == arg.get_id().as_str());
        // The papers use the balance loss only when they train what was found.
        let flags = flags.filter(known).map(|arg| match arg.get_id().as_str() {
            "out" => arg.help("folder of the search [one that is gone in the end]"),
            "balance" => arg.help("weight of the balance loss of experts [0]"),
            _ => arg,
        });
        command.args(flags)
    }
}

input::derived_flags!(TrainingFlags);

impl Differentiable {
    pub fn run(self, json: bool) -> Result<()> {
        let outcome = self.search()?;
        if json {
            return output::json(&outcome);
        }
        output::text(&summary(&outcome))
    }

    fn search(&self) -> Result<Outcome> {
        if let Some(folder) = &self.resume {
            let targets = [self.target_latency, self.target_latency_us, self.target_memory];
            if self.space.is_some() || !self.flags.settings.is_empty() || targets.iter().any(Option::is_some) {
                let usage =
                    "--resume: found other settings beside it; expected none, for the search goes on with its own";
                return Err(Usage(usage.into()).into());
            }
            return screen::job(|context, watch| differentiable::resume(folder, context.registry, watch));
        }
        let Some(space) = &self.space else {
            return Err(
                Usage("no space: give a file or a shipped name (`lathe space --list` lists them)".into()).into()
            );
        };
        let training = Settings { balance: 0.0, ..Settings::default() };
        let request = Request {
            space: space.clone(),
            settings: self.settings(),
            training: train::with(training, &input::given(&self.flags.settings)?).context("flags")?,
            table: self.table.clone(),
            blocks_only: self.blocks_only,
            measure_batch: self.measure_batch,
            measure_seq: self.measure_seq,
        };
        screen::job(|context, watch| differentiable::begin(context, &request, watch))
    }

    fn settings(&self) -> SearchSettings {
        let preset = match self.preset {
            PresetName::Planer => Preset::Planer,
            PresetName::PlanerEnwik8 => Preset::PlanerEnwik8,
            PresetName::Par => Preset::Par,
            PresetName::Mended => Preset::Mended,
        };
        let ratio = self.target_latency.or(self.target_memory).map(Target::Ratio);
        let mut settings = SearchSettings::preset(preset, ratio.or(self.target_latency_us.map(Target::Absolute)));
        settings.cost = if self.target_memory.is_some() { Cost::Memory } else { Cost::Latency };
        let number = |to: &mut f64, from: Option<f64>| *to = from.unwrap_or(*to);
        settings.rounds = self.rounds.unwrap_or(settings.rounds);
        number(&mut settings.arch_share, self.arch_share);
        number(&mut settings.arch_off, self.arch_off);
        number(&mut settings.arch_lr, self.arch_lr);
        number(&mut settings.arch_weight_decay, self.arch_weight_decay);
        number(&mut settings.temperature, self.temperature);
        number(&mut settings.annealing, self.annealing);
        number(&mut settings.temperature_floor, self.temperature_floor);
        number(&mut settings.latency_weight, self.latency_weight);
        number(&mut settings.baseline_share, self.baseline_share);
        settings.relaxation = match self.relaxation {
            Some(RelaxationName::Gumbel) => Relaxation::Gumbel,
            Some(RelaxationName::Softmax) => Relaxation::Softmax,
            None => settings.relaxation,
        };
        settings.weight_samples = self.weight_samples.map_or(settings.weight_samples, Sampling::from);
        settings.arch_samples = self.arch_samples.map_or(settings.arch_samples, Sampling::from);
        settings.project = !self.no_projection;
        settings
    }
}

fn summary(outcome: &Outcome) -> String {
    let mut out = format!("{}{}{}\n", BOLD.render(), outcome.layers, BOLD.render_reset());
    let target = outcome.target.map_or_else(String::new, |target| format!(", target {target:.3}"));
    let cost = match outcome.cost {
        Cost::Latency => "latency",
        Cost::Memory => "peak memory",
    };
    out += &format!("estimated {cost} {:.3} of the baseline's{target}\n", outcome.estimate);
    if !outcome.argmax.meets_target {
        let argmax = &outcome.argmax;
        let instead =
            if outcome.projected.is_some() { "; the above is the most probable one that meets it" } else { "" };
        out += &format!(
            "the most probable options, {}, break the target with {:.3}{instead}\n",
            argmax.layers, argmax.estimate
        );
    }
    let converged = if outcome.converged { "converged" } else { "not converged" };
    out += &format!(
        "{converged}: last changed in architecture step {} of {}\n\n",
        outcome.last_change, outcome.arch_steps
    );
    let mut table = Table::new(&["slot", "probabilities"], 2);
    for (slot, options) in outcome.probabilities.iter().enumerate() {
        let options: Vec<String> = options.iter().map(|(block, p)| format!("{block} {p:.2}")).collect();
        table.row([(slot + 1).to_string(), options.join("  ")]);
    }
    out += &table.to_string();
    out += &format!(
        "\n{}{} weight steps in {:.1} s, {} architecture steps in {:.1} s, {:.1} s in all{}\n",
        DIM.render(),
        outcome.steps,
        outcome.weight_seconds,
        outcome.arch_steps,
        outcome.arch_seconds,
        outcome.seconds,
        DIM.render_reset()
    );
    if !outcome.out.is_empty() {
        out += &format!("model file {}\n", Path::new(&outcome.out).join("found.toml").display());
    }
    out
}
