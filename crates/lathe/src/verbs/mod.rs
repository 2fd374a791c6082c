//! The verbs, one file each.

mod bench;
mod compare;
mod completions;
mod count;
mod data;
mod design;
mod distill;
mod doctor;
mod eval;
mod export;
mod forward;
mod generate;
mod man;
mod models;
mod optimize;
mod predict;
mod profile;
mod proxies;
mod prune;
mod quantize;
mod search;
mod serve;
mod space;
mod train;

use anyhow::Result;
use clap::{ArgMatches, Command, Parser};

/// A verb: its part of the command line, and what it does.
pub struct Verb {
    pub command: fn() -> Command,
    pub run: fn(&ArgMatches) -> Result<()>,
}

/// Every verb, in the order of the help.
pub const VERBS: &[Verb] = &[
    verb::<optimize::Optimize>(),
    verb::<count::Count>(),
    verb::<design::Design>(),
    verb::<space::Space>(),
    verb::<models::Models>(),
    verb::<data::Data>(),
    verb::<train::Train>(),
    verb::<distill::Distill>(),
    verb::<eval::Eval>(),
    verb::<predict::Predict>(),
    verb::<generate::Generate>(),
    verb::<serve::Serve>(),
    verb::<forward::Forward>(),
    verb::<bench::Bench>(),
    verb::<quantize::Quantize>(),
    verb::<compare::Compare>(),
    verb::<prune::Prune>(),
    verb::<export::Export>(),
    verb::<profile::Profile>(),
    verb::<proxies::Proxies>(),
    verb::<search::Search>(),
    verb::<doctor::Doctor>(),
    verb::<completions::Completions>(),
    verb::<man::Man>(),
];

/// What a verb's file implements on its arguments.
trait Action: Parser {
    fn run(self, json: bool) -> Result<()>;
}

const fn verb<A: Action>() -> Verb {
    let run = |matches: &ArgMatches| {
        let action = A::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
        action.run(matches.get_flag("json"))
    };
    Verb { command: A::command, run }
}
