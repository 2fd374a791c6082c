//! `lathe proxies`: which scores foretell the quality of a model, and how well.

mod plots;

use super::Action;
use crate::input::{self, Usage};
use crate::output::{self, Table, grouped};
use crate::progress::Progress;
use anyhow::{Context, Result};
use clap::{ArgMatches, Command, FromArgMatches, Parser, Subcommand};
use lathe_core::model::Key;
use lathe_search::audit::{self, ProxyReport, Scores, Subject, TableReport, Tokens, table, trained};
use lathe_search::proxies::{Choice, Needs, PROXIES};
use lathe_train::run::Event;
use lathe_train::settings::{self, Settings};
use serde::Serialize;
use std::path::PathBuf;

/// Judge scores that foretell how good a model will be
#[derive(Parser)]
#[command(
    name = "proxies",
    after_help = "\
Examples:
  lathe proxies list
  lathe proxies audit --table lts_trained_models.csv --plots plots
  lathe proxies audit --space proxies_small --train-k 40 --steps 600 --out audit"
)]
pub struct Proxies {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the proxies
    List,
    /// Rank trained models by each proxy, and compare with their quality after training
    #[command(after_help = "\
Columns: Spearman's correlation with minus the validation perplexity over all models, its 95 % interval, Kendall's tau-b,
Spearman's among the best 10 and 20 % by quality, the share of these that are among the proxy's best (CR), the mean of
Spearman's within each d_model of at least five models, Spearman's within each quarter by decoder parameters, and what a
score costs. With --json also every tenth up to 100 %, and each width and quarter.

NAME:output takes the output layer into a pruning score; partial_training:12.5 looks at 12.5 % of the steps. A training
that was stopped goes on if the same command is given again.")]
    Audit(Audit),
}

#[derive(clap::Args)]
struct Audit {
    /// Table of trained models (CSV, columns as in the tables of LTS)
    #[arg(long, value_name = "CSV", conflicts_with_all = ["space", "train_k"], required_unless_present = "space")]
    table: Option<PathBuf>,
    /// Space to draw models from, which are then trained on the data
    #[arg(long, value_name = "SPACE", requires = "train_k")]
    space: Option<String>,
    /// How many models to draw and train
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(2..=10_000), requires = "space")]
    train_k: Option<u32>,
    /// Which proxies: names with commas between, or all. For a table, all are those that need no data
    #[arg(long, value_name = "NAMES", default_value = "all")]
    proxies: String,
    /// Sequences that proxies which need data see
    #[arg(long, value_name = "B", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    probe_batch: u32,
    /// Write plots like Figures 4, 5 and 6 of LTS as SVG files into a folder
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    #[command(flatten)]
    run: RunFlags,
}

/// The flags of a training run.
struct RunFlags(Vec<(&'static Key, String)>);

impl FromArgMatches for RunFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flag = |key: &'static Key| Some((key, matches.get_one::<String>(key.name)?.clone()));
        Ok(Self(settings::KEYS.iter().filter_map(flag).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for RunFlags {
    fn augment_args(command: Command) -> Command {
        command.args(input::key_flags(settings::KEYS, "Training (with --space; seed with --table too)"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[derive(Serialize)]
struct Document {
    tables: Vec<TableReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    models: Vec<Trained>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    plots: Vec<PathBuf>,
}

/// A model that was trained for the audit.
#[derive(Serialize)]
struct Trained {
    name: String,
    layers: String,
    d_model: u32,
    decoder_params: u64,
    perplexity: f64,
}

/// Why `all` is not all of them.
const NOTE: &str = "proxies that need data are not part of `all` for a table: name them in --proxies to run each model";

impl Action for Proxies {
    fn run(self, json: bool) -> Result<()> {
        match self.verb {
            Verb::List => list(json),
            Verb::Audit(audit) => audit.run(json),
        }
    }
}

impl Audit {
    fn run(self, json: bool) -> Result<()> {
        let mut settings = Settings::default();
        for (key, text) in &self.run.0 {
            settings.set(key, key.parse(text).context("flags")?);
        }
        settings.check().context("flags")?;
        let mut bar = Progress::default();
        let (groups, choices) = match &self.table {
            Some(path) => {
                self.only_seed()?;
                (table::read(path)?, self.choices(&[])?)
            }
            None => {
                let subjects = self.train(&mut settings, &mut bar)?;
                let choices = self.choices(&subjects)?;
                let name = self.space.clone().unwrap_or_default();
                (vec![table::Table { name, subjects }], choices)
            }
        };
        let batch = self.probe_batch as usize;
        let needs_data = choices.iter().any(|choice| choice.proxy.needs == Needs::Data);
        let tokens = match self.table.is_none() && needs_data {
            true => Tokens::Text(trained::Text::open(&settings, batch)?),
            false => Tokens::Random { batch, seed: settings.seed.into() },
        };
        let mut document = Document { tables: Vec::new(), models: Vec::new(), note: None, plots: Vec::new() };
        for group in &groups {
            let mut scored: Vec<Scores> = Vec::new();
            for choice in &choices {
                let what = format!("{} of {}", choice.name(), group.name);
                let all = group.subjects.len() as u64;
                let mut watch = |done: usize| bar.steps(&what, "", done as u64, all);
                scored.push(audit::score(choice, &group.subjects, &tokens, &mut watch)?);
            }
            let judge = |scores| ProxyReport::new(scores, &group.subjects, settings.seed.into());
            let report = TableReport {
                table: group.name.clone(),
                models: group.subjects.len(),
                proxies: scored.iter().map(judge).collect(),
            };
            if let Some(folder) = &self.plots {
                document.plots.extend(plots::write(folder, &report, &group.subjects)?);
            }
            document.tables.push(report);
        }
        bar.finish();
        if self.table.is_some() && self.proxies == "all" {
            document.note = Some(NOTE);
        } else if self.table.is_none() {
            document.models = groups.iter().flat_map(|group| &group.subjects).map(trained_model).collect();
        }
        if json {
            return output::json(&document);
        }
        output::texts(document.tables.iter().map(describe))?;
        if let Some(note) = document.note {
            output::tell(format_args!("note: {note}"));
        }
        Ok(())
    }

    /// A table brings its own models and needs no settings of training.
    fn only_seed(&self) -> Result<()> {
        match self.run.0.iter().find(|(key, _)| key.name != "seed") {
            None => Ok(()),
            Some((key, _)) => {
                let flag = key.name.replace('_', "-");
                Err(Usage(format!("--{flag}: found it beside --table; expected --space, for a table trains nothing"))
                    .into())
            }
        }
    }

    /// The proxies asked for.
    fn choices(&self, trained: &[Subject]) -> Result<Vec<Choice>> {
        let mut choices = Vec::new();
        if self.proxies == "all" {
            for proxy in PROXIES.iter().filter(|proxy| proxy.needs == Needs::Nothing || self.table.is_none()) {
                choices.push(Choice::plain(proxy));
                if proxy.output {
                    choices.push(Choice { output: true, ..Choice::plain(proxy) });
                }
            }
        } else {
            for name in self.proxies.split(',') {
                choices.push(Choice::parse(name.trim())?);
            }
        }
        // Without a share, every share that there is an evaluation of.
        let record = trained.first().and_then(|subject| subject.record.as_ref());
        let every = |choice: Choice| -> Vec<Choice> {
            match record {
                Some(record) if choice.proxy.needs == Needs::Training && choice.share.is_none() => {
                    record.shares().map(|share| Choice { share: Some(share), ..choice.clone() }).collect()
                }
                _ => vec![choice],
            }
        };
        Ok(choices.into_iter().flat_map(every).collect())
    }

    /// Draws models from the space and trains each.
    fn train(&self, settings: &mut Settings, bar: &mut Progress) -> Result<Vec<Subject>> {
        if settings.out.is_empty() {
            return Err(
                Usage("--out is missing: the folder of the audit, one folder per training inside".into()).into()
            );
        }
        if settings.eval_every == 0 {
            settings.eval_every = (settings.steps / 20).max(1);
        }
        let space = input::space(self.space.as_deref().unwrap_or_default())?;
        let count = self.train_k.unwrap_or_default() as usize;
        let models = trained::sample(&space, count, settings.seed.into())?;
        let mut watch = |i: usize, event: Event<'_>| match event {
            Event::Step(step) => {
                let note = format!("{} of {count}  loss {:.4}", i + 1, step.loss);
                bar.steps("training", &note, step.step.into(), step.steps.into());
            }
            Event::Warning(warning) => bar.say(&format!("warning: {warning}")),
            _ => {}
        };
        Ok(trained::train(&models, settings, &mut watch)?)
    }
}

fn trained_model(subject: &Subject) -> Trained {
    Trained {
        name: subject.name.clone(),
        layers: subject.model.layers(),
        d_model: subject.model.frame.d_model,
        decoder_params: subject.decoder_params,
        perplexity: -subject.quality,
    }
}

/// A table for people.
fn describe(report: &TableReport) -> String {
    let mut table = Table::new(
        &[
            "proxy", "spearman", "95 %", "kendall", "top 10", "top 20", "CR 10", "CR 20", "in width", "by size", "s",
            "FLOP",
        ],
        1,
    );
    let number = |x: Option<f64>| x.map_or_else(|| "-".into(), |x| format!("{x:.3}"));
    let mut notes = String::new();
    for proxy in &report.proxies {
        let interval = proxy.spearman_interval.map_or_else(|| "-".into(), |[low, high]| format!("{low:.3} {high:.3}"));
        let bins: Vec<String> = proxy.size_bins.iter().map(|bin| number(bin.spearman)).collect();
        table.row([
            proxy.name.clone(),
            number(proxy.spearman),
            interval,
            number(proxy.kendall),
            number(proxy.spearman_top[&10]),
            number(proxy.spearman_top[&20]),
            number(proxy.common_ratio[&10]),
            number(proxy.common_ratio[&20]),
            number(proxy.within_width),
            bins.join(" "),
            format!("{:.2e}", proxy.cost_s),
            if proxy.cost_flops == 0 { "0".into() } else { output::short(proxy.cost_flops) },
        ]);
        if let Some(note) = &proxy.note {
            notes += &format!("{} has no numbers: {note}\n", proxy.name);
        }
    }
    format!("{}, {} models\n{table}{notes}\n", report.table, grouped(report.models as u64))
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    about: &'static str,
    needs: &'static str,
}

#[derive(Serialize)]
struct List {
    proxies: Vec<Listed>,
}

fn list(json: bool) -> Result<()> {
    let needs = |needs| match needs {
        Needs::Nothing => "nothing",
        Needs::Data => "data",
        Needs::Training => "training",
    };
    let listed = PROXIES.iter().map(|proxy| Listed { name: proxy.name, about: proxy.about, needs: needs(proxy.needs) });
    let proxies: Vec<Listed> = listed.collect();
    if json {
        return output::json(&List { proxies });
    }
    let mut table = Table::new(&["proxy", "needs", "what it is"], 3);
    for proxy in proxies {
        table.row([proxy.name, proxy.needs, proxy.about].map(String::from));
    }
    output::text(&table.to_string())
}
