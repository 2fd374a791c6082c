//! `lathe space`: what a search space holds, and samples of it.

use super::Action;
use crate::output::{self, Table, grouped};
use crate::picture;
use anyhow::Result;
use clap::Parser;
use lathe_core::space::Sampling;
use lathe_core::{Model, Setting, notation};
use lathe_model::shipped::SPACES;
use lathe_model::{REGISTRY, count};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use std::collections::BTreeMap;

/// Show a search space: its exact size, its options, samples of it
#[derive(Parser)]
#[command(
    name = "space",
    after_help = "\
Sampling is choice by choice, as the authors of LTS draw: first the global choices, then the number of
repetitions, then each slot. --uniform draws uniformly over architectures instead, which in a space of varying
depth gives nearly always the deepest.

Examples:
  lathe space --list
  lathe space planer_enwik8
  lathe space lts_gpt2 --sample 5 --seed 1"
)]
pub struct Space {
    /// Space file (TOML) or shipped name
    #[arg(value_name = "SPACE", required_unless_present = "list")]
    space: Option<String>,
    /// List the shipped spaces
    #[arg(long, conflicts_with = "space")]
    list: bool,
    /// Draw this many architectures
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    sample: u32,
    /// Draw uniformly over architectures, not choice by choice
    #[arg(long)]
    uniform: bool,
    /// Seed of the draws
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Serialize)]
struct SpaceReport<'a> {
    size: String,
    log10_size: f64,
    blocks: [usize; 2],
    options: Vec<String>,
    baseline: Sample,
    samples: Samples<'a>,
}

/// Samples that are drawn while they are printed, however many.
struct Samples<'a> {
    space: &'a lathe_core::Space,
    args: &'a Space,
}

impl Samples<'_> {
    fn models(&self) -> impl Iterator<Item = Model> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.args.seed);
        let sampling = if self.args.uniform { Sampling::Architectures } else { Sampling::Choices };
        (0..self.args.sample).map(move |_| self.space.model(&self.space.sample(sampling, &mut rng)))
    }
}

impl Serialize for Samples<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.models().map(|model| sample(self.space, &model)))
    }
}

#[derive(Serialize)]
struct Sample {
    layers: String,
    /// d_model, and whatever else the space varies.
    #[serde(flatten)]
    keys: BTreeMap<&'static str, u32>,
    params: Params,
}

#[derive(Serialize)]
struct Params {
    decoder: u64,
    total: u64,
}

#[derive(Serialize)]
struct List {
    spaces: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    about: &'static str,
    size: String,
    log10_size: f64,
}

impl Action for Space {
    fn run(self, json: bool) -> Result<()> {
        let Some(name) = &self.space else { return list(json) };
        let space = lathe_job::input::space(name, &REGISTRY)?;
        let samples = Samples { space: &space, args: &self };
        let size = space.size().to_string();
        let options: Vec<String> =
            space.options().iter().map(|block| notation::print(std::slice::from_ref(block))).collect();
        let (fewest, most) = space.blocks();
        if json {
            return output::json(&SpaceReport {
                log10_size: log10(&size),
                size,
                blocks: [fewest, most],
                options,
                baseline: sample(&space, &space.baseline),
                samples,
            });
        }
        let mut out = format!("{} architectures of {} blocks\n", approximate(&size), range(fewest, most));
        let shown = options.len().min(24);
        let more = if options.len() > shown { format!(" and {} more", options.len() - shown) } else { String::new() };
        out += &format!("options   {}{more}\n", options[..shown].join(" "));
        let globals: Vec<&str> = space.global_keys().collect();
        if !globals.is_empty() {
            out += &format!("choices   {}\n", globals.join(", "));
        }
        out += &format!("baseline  {}\n", space.baseline.layers());
        let describe = |model: Model| {
            let sample = sample(&space, &model);
            let keys: Vec<String> = sample.keys.iter().map(|(key, value)| format!("{key} {value}")).collect();
            let line = picture::line(&model, &Setting::of(&model));
            let decoder = grouped(sample.params.decoder);
            format!("\n{line}\n{}\n{}; {decoder} decoder parameters\n", sample.layers, keys.join(", "))
        };
        output::texts(std::iter::once(out).chain(samples.models().map(describe)))
    }
}

fn sample(space: &lathe_core::Space, model: &Model) -> Sample {
    let keys = space.global_keys().chain(["d_model"]);
    let keys = keys.filter_map(|key| Some((key, model.frame.int(key)?)));
    let counts = count(model, &Setting::of(model));
    Sample {
        layers: model.layers(),
        keys: keys.collect(),
        params: Params { decoder: counts.decoder_params(), total: counts.total_params() },
    }
}

fn list(json: bool) -> Result<()> {
    let mut spaces = Vec::new();
    for shipped in SPACES {
        let size = shipped.space()?.size().to_string();
        spaces.push(Listed { name: shipped.name, about: shipped.about(), log10_size: log10(&size), size });
    }
    if json {
        return output::json(&List { spaces });
    }
    let mut table = Table::new(&["space", "what it is", "architectures"], 2);
    for space in &spaces {
        table.row([space.name.to_string(), space.about.to_string(), approximate(&space.size)]);
    }
    output::text(&table.to_string())
}

/// Decimal logarithm of a number written out.
fn log10(digits: &str) -> f64 {
    let lead = &digits[..digits.len().min(17)];
    lead.parse::<f64>().map_or(0.0, f64::log10) + (digits.len() - lead.len()) as f64
}

/// The number itself while it can be read, else its power of ten.
fn approximate(digits: &str) -> String {
    match digits.parse::<u64>() {
        Ok(number) if digits.len() <= 12 => grouped(number),
        _ => format!("10^{:.1}", log10(digits)),
    }
}

fn range(low: usize, high: usize) -> String {
    if low == high { low.to_string() } else { format!("{low} to {high}") }
}
