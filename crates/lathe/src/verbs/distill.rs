//! `lathe distill`: a student learns from a teacher.

use super::Action;
use super::train::summary;
use crate::input::{self, Usage};
use crate::output;
use crate::screen::{self, short};
use anyhow::Result;
use clap::{Arg, ArgMatches, Command, FromArgMatches, Parser};
use lathe_core::model::Key;
use lathe_job::distill::{self, Request};
use lathe_job::train;
use lathe_train::distill::KEYS;
use lathe_train::settings;
use std::path::PathBuf;

/// Train a student to do what a teacher does, safe against a kill at any moment
#[derive(Parser)]
#[command(
    name = "distill",
    after_help = "\
The student may be a model folder (it begins with its weights), a model file or a shipped name (fresh weights, or with
--inherit true the teacher's wherever they fit), or nothing but keys that differ from the teacher's, such as --layers. It
reads what the teacher reads: the tokenizer is the teacher's. DIR gets what `lathe train` writes; a run that was stopped goes
on with --resume, to the same bits.

What is learnt is a sum of terms, each with its weight: --kl (by default the only one), --mse and --ce of predicted tokens,
--hidden of hidden states, --attention-maps of attention maps. Layers learn from layers that are evenly spaced unless --layer-map says
otherwise, and through learnt projections where widths differ. --transfer progressive teaches layer by layer, then the
logits; --transfer blocks teaches each block alone to give the teacher's output for the teacher's input, all in one pass,
and leaves embedding and output as they are.

Examples:
  lathe distill --teacher big --layers '(sf)x4' --inherit true --data my.txt --steps 1000 --out half
  lathe distill --teacher big --student small.toml --data my.txt --kl 0.5 --ce 0.5 --temperature 2 --out small
  lathe distill --teacher big --student pruned --data my.txt --hidden 1 --layer-map 1:3,2:6 --out recovered
  lathe distill --teacher big --student pruned --data my.txt --transfer blocks --lr 0.0003 --out local
  lathe distill --teacher big --student pruned --data my.txt --cache-logits 32 --steps 5000 --out longer
  lathe distill --resume longer"
)]
pub struct Distill {
    /// Go on with the run in a folder
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

/// The flags that stand for the keys of a run, of its table `[distill]`, and of the student's model.
struct Flags {
    student: Option<String>,
    settings: Vec<(&'static Key, String)>,
    distill: Vec<(&'static Key, String)>,
    keys: input::ModelKeys,
}

/// The keys of a run. Which weights it begins with, the student says.
fn run_keys() -> impl Iterator<Item = &'static Key> {
    settings::KEYS.iter().filter(|key| key.name != "init")
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flag = |key: &'static Key| Some((key, matches.get_one::<String>(key.name)?.clone()));
        Ok(Self {
            student: matches.get_one("student").cloned(),
            settings: run_keys().filter_map(flag).collect(),
            distill: KEYS.iter().filter_map(flag).collect(),
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
        const HEADING: &str = "Distillation";
        let student = Arg::new("student")
            .long("student")
            .value_name("STUDENT")
            .help("model folder, model file or shipped name [the teacher's model with the keys given]")
            .help_heading(HEADING);
        let command = command.arg(student).args(input::key_flags(KEYS, HEADING));
        input::ModelKeys::augment_args(command.args(input::key_flags(run_keys(), "Run")))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl Action for Distill {
    fn run(self, json: bool) -> Result<()> {
        let Flags { student, settings, distill, keys } = self.flags;
        let outcome = match &self.resume {
            Some(folder) => {
                if student.is_some() || !settings.is_empty() || !distill.is_empty() || !keys.is_empty() {
                    let usage =
                        "--resume: found other settings beside it; expected none, for the run goes on with its own";
                    return Err(Usage(usage.into()).into());
                }
                screen::job(|context, watch| train::resume(folder, context.registry, watch))?
            }
            None => {
                let (settings, distill) = (input::given(&settings)?, input::given(&distill)?);
                let request = Request { student, settings, distill, keys: keys.given()? };
                screen::job(|context, watch| distill::begin(&request, context.registry, watch))?
            }
        };
        if json {
            return output::json(&outcome);
        }
        let teacher =
            outcome.teacher.as_ref().map_or_else(String::new, |teacher| format!("teacher: {}\n", short(teacher)));
        output::text(&(teacher + &summary(&outcome)))
    }
}
