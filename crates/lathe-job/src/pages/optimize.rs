//! The report of an optimisation.

use super::page;
use crate::Result;
use crate::input::write_text;
use crate::optimize::{Job, Made, Outcome, Plan, Scores};
use lathe_search::profile::Machine;
use serde::Serialize;

const TEMPLATE: &str = include_str!("optimize.html");
/// What a busy core of a server takes, about; the machine does not tell.
const WATTS_PER_CORE: f64 = 10.0;

#[derive(Serialize)]
struct Data<'a> {
    outcome: &'a Outcome,
    plan: &'a Plan,
    scores: &'a Scores,
    /// The options of each slot, the trained block first.
    options: Vec<Vec<String>>,
    /// What single storages are called.
    storages: Vec<String>,
    machine: Machine,
    version: &'static str,
    setting: String,
    watts_per_core: f64,
    command: &'a str,
}

/// Writes the report.
pub fn write(job: &Job<'_>, made: &Made<'_>, outcome: &Outcome) -> Result<()> {
    let choices = &made.menu.choices;
    let data = Data {
        outcome,
        plan: job.plan(),
        scores: made.scores,
        options: choices.blocks.iter().map(|slot| slot.iter().map(|block| format!("{block:?}")).collect()).collect(),
        storages: choices.storages.iter().map(ToString::to_string).collect(),
        machine: Machine::here(),
        version: env!("CARGO_PKG_VERSION"),
        setting: job.plan().asked.workload.to_string(),
        watts_per_core: WATTS_PER_CORE,
        command: &made.request.command,
    };
    write_text(std::path::Path::new(&outcome.report), &page(TEMPLATE, "lathe optimize", &data))
}
