//! `lathe train`: from text to a model folder.

use super::Action;
use crate::input::{self, Usage};
use crate::output::{self, BOLD, DIM, Table, grouped};
use crate::screen::{self, short};
use anyhow::Result;
use clap::{Arg, ArgMatches, Command, Parser};
use lathe_core::model::Key;
use lathe_job::train::{self, DEFAULT_MODEL, Request, Seeds};
use lathe_train::evaluate::Evaluation;
use lathe_train::run::{FusedOutcome, Outcome};
use lathe_train::settings;
use std::path::{Path, PathBuf};

/// Train a model on text, safe against a kill at any moment
#[derive(Parser)]
#[command(
    name = "train",
    after_help = "\
RUN is a TOML file with the keys of the flags (`-` becomes `_`) and the model as a name or a table [model]; flags go over
it. DIR gets run.toml (all settings), metrics.jsonl (the record), checkpoints/ and, in the end, the model. A run that was
stopped goes on with --resume, to the same bits.

Recipes: planer_wt103, planer_enwik8, par_base, par_large, par_24b, lts_transformer_xl_wt103, lts_transformer_xl_lm1b,
lts_gpt2_wt103, lts_gpt2_lm1b, lts_gpt2_pile, bert_phase1, bert_phase2, par_bert_phase1, par_bert_phase2, each of which
needs --data, --valid and patience, BERT's also --tokenizer or, in its second phase, --init; storyteller, which is how
the model of that name was made that ships with its weights.

Examples:
  lathe train --out first                                   # the built-in language, a small model
  lathe train --data my.txt --tokenizer bpe:4096 --model gpt2_small --vocab 4096 --max-len 128 --steps 500 --out mine
  lathe train --init minilm --task glue:MRPC --data GLUE --seeds 3 --out my_mrpc
  lathe train --init minilm --task classify --data train.csv --columns title,topic --out topics
  lathe train --fuse frontier/frontier/003.toml+frontier/frontier/007.toml --out both    # two models at the cost of one
  lathe train --resume mine"
)]
pub struct Train {
    /// Run file (TOML), or the name of a recipe
    run: Option<String>,
    /// Go on with the run in a folder
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// As many runs, each with the next seed, in folders seed-N of --out; median and deviation of what they give
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    #[command(flatten)]
    flags: Flags,
}

/// The flags that stand for the keys of run files and model files.
struct Flags {
    model: Option<String>,
    settings: Vec<(&'static Key, String)>,
    keys: input::ModelKeys,
}

impl Flags {
    /// An error if anything was given beside a run to go on with, whose settings are its own.
    fn none_given(&self, run: bool) -> Result<()> {
        if run || self.model.is_some() || !self.settings.is_empty() || !self.keys.is_empty() {
            let usage = "--resume: found other settings beside it; expected none, for the run goes on with its own";
            return Err(Usage(usage.into()).into());
        }
        Ok(())
    }
}

impl Flags {
    fn read(matches: &ArgMatches) -> Self {
        Self {
            model: matches.get_one("model").cloned(),
            settings: input::flags_given(settings::KEYS, matches),
            keys: input::ModelKeys::read(matches),
        }
    }

    fn args(command: Command) -> Command {
        let model = Arg::new("model")
            .long("model")
            .value_name("MODEL")
            .help(format!("model file, model folder, GGUF file or shipped name [{DEFAULT_MODEL}, or init's]"))
            .help_heading("Run (over the run file's)");
        let flags = input::key_flags(settings::KEYS, "Run (over the run file's)");
        input::ModelKeys::args(command.arg(model).args(flags))
    }
}

input::derived_flags!(Flags);

impl Action for Train {
    fn run(self, json: bool) -> Result<()> {
        let outcome = match &self.resume {
            Some(folder) => {
                self.flags.none_given(self.run.is_some())?;
                screen::job(|context, watch| train::resume(folder, context.registry, watch))?
            }
            None => {
                let Flags { model, settings, keys } = self.flags;
                let (settings, keys) = (input::given(&settings)?, keys.given()?);
                let request = Request { run: self.run, settings, model, keys };
                if self.seeds > 1 {
                    let found =
                        screen::job(|context, watch| train::seeds(&request, self.seeds, context.registry, watch))?;
                    return if json { output::json(&found) } else { output::text(&of_seeds(&found)) };
                }
                screen::job(|context, watch| train::begin(&request, context.registry, watch))?
            }
        };
        if json {
            return output::json(&outcome);
        }
        output::text(&summary(&outcome))
    }
}

/// What runs with several seeds gave.
fn of_seeds(found: &Seeds) -> String {
    let mut table = Table::new(&["", "median", "deviation", "runs"], 1);
    for (name, median) in found.median.iter().filter(|(name, _)| !["tokens", "examples"].contains(&name.as_str())) {
        let of_run = |run: &Outcome| {
            let valid = serde_json::to_value(&run.valid).unwrap_or_default();
            valid[name].as_f64().map_or_else(|| "-".into(), |value| format!("{value:.4}"))
        };
        let runs: Vec<String> = found.seeds.iter().map(of_run).collect();
        table.row([name.clone(), format!("{median:.4}"), format!("{:.4}", found.deviation[name]), runs.join(" ")]);
    }
    format!("{table}")
}

/// The kinds of the built-in language as a table; nothing on other text.
pub fn kinds(valid: &Evaluation) -> String {
    if valid.kinds.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["kind", "share", "bits/byte", "entropy", "above it"], 1);
    for row in &valid.kinds {
        let number = |x: f64| format!("{x:.4}");
        let (bits, entropy) = (row.bits_per_byte, row.entropy);
        table.row([
            row.kind.clone(),
            format!("{:.1} %", 100.0 * row.share),
            number(bits),
            number(entropy),
            number(bits - entropy),
        ]);
    }
    format!("{table}")
}

pub(super) fn summary(outcome: &Outcome) -> String {
    let valid = outcome.valid.as_ref().map_or_else(String::new, |valid| format!("{}\n{}", short(valid), kinds(valid)));
    let of_model = |one: &FusedOutcome| {
        let valid = one.valid.as_ref().map_or_else(String::new, |valid| format!(": {}", short(valid)));
        format!("{} {}{valid}\n", one.folder, one.layers)
    };
    let fused: String = outcome.fused.iter().map(of_model).collect();
    let early = if outcome.stopped_early { ", stopped for want of progress" } else { "" };
    format!(
        "{}{valid}{fused}{}train loss {:.4} over the last steps\n{}{} steps{early}, {} tokens in {:.1} s, {:.0} tokens/s{}\nmodel in {}",
        BOLD.render(),
        BOLD.render_reset(),
        outcome.loss,
        DIM.render(),
        outcome.steps,
        grouped(outcome.tokens),
        outcome.seconds,
        outcome.tokens_per_s,
        DIM.render_reset(),
        Path::new(&outcome.out).display(),
    )
}
