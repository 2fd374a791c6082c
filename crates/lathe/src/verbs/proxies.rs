//! `lathe proxies`: which scores foretell the quality of a model, and how well.

use super::Action;
use crate::input::{self, Usage};
use crate::output::{self, Table, grouped};
use crate::screen;
use anyhow::{Context, Result};
use clap::{ArgMatches, Command, Parser, Subcommand};
use lathe_core::model::Key;
use lathe_job::audit::{self, Models, Request};
use lathe_job::train;
use lathe_search::audit::TableReport;
use lathe_search::proxies::{Needs, PROXIES};
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

impl RunFlags {
    fn read(matches: &ArgMatches) -> Self {
        Self(input::flags_given(settings::KEYS, matches))
    }

    fn args(command: Command) -> Command {
        command.args(input::key_flags(settings::KEYS, "Training (with --space; seed with --table too)"))
    }
}

input::derived_flags!(RunFlags);

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
        let settings = train::with(Settings::default(), &input::given(&self.run.0)?).context("flags")?;
        let models = match (self.table, self.space) {
            (Some(table), _) => {
                only_seed(&self.run.0)?;
                Models::Table(table)
            }
            (None, space) => Models::Space(space.unwrap_or_default(), self.train_k.unwrap_or_default()),
        };
        let (proxies, probe_batch, plots) = (self.proxies, self.probe_batch, self.plots);
        let request = Request { models, proxies, probe_batch, plots, settings };
        let mut found = screen::job(|context, watch| audit::run(context, &request, watch))?;
        found.note = found.without_data.then(|| NOTE.into());
        if json {
            return output::json(&found);
        }
        output::texts(found.tables.iter().map(describe))?;
        if let Some(note) = found.note {
            output::tell(format_args!("note: {note}"));
        }
        Ok(())
    }
}

/// A table brings its own models and needs no settings of training.
fn only_seed(flags: &[(&'static Key, String)]) -> Result<()> {
    match flags.iter().find(|(key, _)| key.name != "seed") {
        None => Ok(()),
        Some((key, _)) => {
            let flag = key.name.replace('_', "-");
            Err(Usage(format!("--{flag}: found it beside --table; expected --space, for a table trains nothing"))
                .into())
        }
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
