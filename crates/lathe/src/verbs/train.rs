//! `lathe train`: from text to a model folder.

use super::Action;
use crate::input::{self, Usage};
use crate::output::{self, BOLD, DIM, Table, grouped};
use crate::progress::Progress;
use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Command, FromArgMatches, Parser};
use lathe_core::model::Key;
use lathe_core::{Spec, notation};
use lathe_train::evaluate::Evaluation;
use lathe_train::recipes::RECIPES;
use lathe_train::run::{self, Event, Outcome};
use lathe_train::settings::{self, ModelEntry, Settings};
use std::path::{Path, PathBuf};

/// The model that is trained where none is named.
const DEFAULT_MODEL: &str = "small_transformer_xl";

/// Train a model on text, safe against a kill at any moment
#[derive(Parser)]
#[command(
    name = "train",
    after_help = "\
RUN is a TOML file with the keys of the flags (`-` becomes `_`) and the model as a name or a table [model]; flags go over
it. DIR gets run.toml (all settings), metrics.jsonl (the record), checkpoints/ and, in the end, the model. A run that was
stopped goes on with --resume, to the same bits.

Recipes: planer_wt103, planer_enwik8, par_base, par_large, par_24b, lts_transformer_xl_wt103, lts_transformer_xl_lm1b,
lts_gpt2_wt103, lts_gpt2_lm1b, lts_gpt2_pile; each needs --data, --valid and patience.

Examples:
  lathe train --out first                                   # the built-in language, a small model
  lathe train --data my.txt --tokenizer bpe:4096 --model gpt2_small --vocab 4096 --max-len 128 --steps 500 --out mine
  lathe train --resume mine"
)]
pub struct Train {
    /// Run file (TOML), or the name of a paper's recipe
    run: Option<String>,
    /// Go on with the run in a folder
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
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

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flag = |key: &'static Key| Some((key, matches.get_one::<String>(key.name)?.clone()));
        Ok(Self {
            model: matches.get_one("model").cloned(),
            settings: settings::KEYS.iter().filter_map(flag).collect(),
            keys: input::ModelKeys::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let model = Arg::new("model")
            .long("model")
            .value_name("MODEL")
            .help(format!("model file, model folder or shipped name [{DEFAULT_MODEL}, or init's]"))
            .help_heading("Run (over the run file's)");
        let flags = input::key_flags(settings::KEYS, "Run (over the run file's)");
        input::ModelKeys::augment_args(command.arg(model).args(flags))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl Action for Train {
    fn run(self, json: bool) -> Result<()> {
        let mut screen = Screen::default();
        let outcome = match &self.resume {
            Some(folder) => {
                self.flags.none_given(self.run.is_some())?;
                run::resume(folder, &mut |event| screen.show(event))
            }
            None => {
                let (settings, model) = self.read()?;
                run::begin(&settings, &model, &mut |event| screen.show(event))
            }
        };
        screen.finish();
        let outcome = outcome?;
        if json {
            return output::json(&outcome);
        }
        output::text(&summary(&outcome))
    }
}

impl Train {
    /// The run file with the flags over it.
    fn read(&self) -> Result<(Settings, Spec)> {
        let (mut settings, mut model) = match &self.run {
            Some(name) => {
                let recipe = RECIPES.iter().find(|recipe| recipe.name == name && !Path::new(name).exists());
                let text = match recipe {
                    Some(recipe) => recipe.text.to_string(),
                    None => input::read_text(Path::new(name))?,
                };
                settings::read(&text).with_context(|| name.clone())?
            }
            None => (Settings::default(), ModelEntry::None),
        };
        for (key, text) in &self.flags.settings {
            settings.set(key, key.parse(text).context("flags")?);
        }
        settings.check().context("flags")?;
        if settings.out.is_empty() {
            return Err(
                Usage("--out is missing: the folder of the run, which becomes the model's folder".into()).into()
            );
        }
        if settings.data.is_empty() {
            return Err(Usage("--data is missing: the text to learn, which a recipe does not bring".into()).into());
        }
        if let Some(name) = &self.flags.model {
            model = ModelEntry::Name(name.clone());
        }
        let mut spec = match model {
            ModelEntry::Inline(spec) => spec,
            ModelEntry::Name(name) => input::spec_of(&name)?,
            ModelEntry::None if !settings.init.is_empty() => input::spec_of(&settings.init)?,
            // Flags that say what a model is stand for all of it.
            ModelEntry::None if self.flags.keys.has("backbone") => Spec::default(),
            ModelEntry::None => input::spec_of(DEFAULT_MODEL)?,
        };
        self.flags.keys.apply(&mut spec)?;
        Ok((settings, spec))
    }
}

/// What is seen of a run.
#[derive(Default)]
pub struct Screen {
    bar: Progress,
}

impl Screen {
    /// Takes the bar away.
    pub fn finish(&mut self) {
        self.bar.finish();
    }

    /// Shows an event.
    pub fn show(&mut self, event: Event<'_>) {
        match event {
            Event::Preparing(what, done, total) => self.bar.bytes(what, done, total),
            Event::Training(model, data, step) => {
                let blocks = notation::print(&model.blocks);
                let (train, valid) = (data.train.len(), data.valid.as_ref().map_or(0, |valid| valid.len()));
                self.bar.say(&format!(
                    "{} {blocks}, d_model {}; {} tokens to train on, {} to validate on, vocabulary {}",
                    model.frame.backbone.key,
                    model.frame.d_model,
                    grouped(train),
                    grouped(valid),
                    grouped(data.tokenizer.vocab()),
                ));
                if step > 0 {
                    self.bar.say(&format!("goes on after step {step}"));
                }
            }
            Event::Step(step) => {
                let text = format!("loss {:.4}  {:.0} tokens/s", step.loss, step.tokens_per_s);
                self.bar.steps("training", &text, step.step.into(), step.steps.into());
            }
            Event::Evaluating(done, total) => self.bar.note(&format!("evaluating, {} %", 100 * done / total.max(1))),
            Event::Evaluated(step, valid) => self.bar.say(&format!("step {step}: {}", short(valid))),
            Event::Warning(warning) => self.bar.say(&format!("warning: {warning}")),
        }
    }
}

fn short(valid: &Evaluation) -> String {
    format!("valid loss {:.4}, perplexity {:.2}, {:.4} bits/byte", valid.loss, valid.perplexity, valid.bits_per_byte)
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

fn summary(outcome: &Outcome) -> String {
    let valid = outcome.valid.as_ref().map_or_else(String::new, |valid| format!("{}\n{}", short(valid), kinds(valid)));
    let early = if outcome.stopped_early { ", stopped for want of progress" } else { "" };
    format!(
        "{}{valid}{}train loss {:.4} over the last steps\n{}{} steps{early}, {} tokens in {:.1} s, {:.0} tokens/s{}\nmodel in {}",
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
