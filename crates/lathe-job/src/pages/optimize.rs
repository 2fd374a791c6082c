//! The report of an optimisation.

use super::page;
use crate::Result;
use crate::compare::quality::WINDOW;
use crate::input::write_text;
use crate::optimize::architecture::{Architecture, Choices};
use crate::optimize::{Job, Made, Outcome, Plan, Scores, proposers, verdict};
use lathe_core::{Block, Model, Role, Setting};
use lathe_model::{count, of_blocks};
use lathe_search::profile::Machine;
use serde::Serialize;
use std::path::Path;

const TEMPLATE: &str = include_str!("optimize.html");
/// More points than this a curve does not need.
const MOST_POINTS: usize = 200;
/// What a busy core of a server takes, about; the machine does not tell.
const WATTS_PER_CORE: f64 = 10.0;
/// What a kWh of the world's mean electricity emits, about.
const GRAMS_CO2E_PER_KWH: f64 = 480.0;
/// What a kWh costs, about, in US dollars.
const USD_PER_KWH: f64 = 0.15;

#[derive(Serialize)]
struct Data<'a> {
    verdict: String,
    /// What models of examples are compared by.
    metric: Option<String>,
    outcome: &'a Outcome,
    plan: &'a Plan,
    scores: &'a Scores,
    /// The options of each slot, the trained block first.
    options: Vec<Vec<Offer>>,
    /// What single storages are called.
    storages: Vec<String>,
    /// Embedding and output.
    frame: Around,
    /// What each model of the frontier is made of.
    chosen: Vec<&'a Architecture>,
    /// Milliseconds of the original while architectures were proposed.
    original_ms: f64,
    /// Who may propose, and how.
    abouts: Vec<[&'static str; 2]>,
    /// Losses while candidates and the control were trained.
    curves: Vec<Curve>,
    costs: Assumed,
    machine: Machine,
    version: &'static str,
    setting: String,
    command: &'a str,
    /// Flags that a folder is judged with again, and on what in the job's folder.
    judging: String,
    report: &'static str,
}

/// An option of a slot.
#[derive(Serialize)]
struct Offer {
    name: String,
    /// The letter that its colour goes by.
    kind: &'static str,
    knobs: Vec<(&'static str, u32)>,
    params: u64,
    /// Microseconds in each storage.
    us: Vec<f64>,
}

/// What stands around the slots.
#[derive(Serialize)]
struct Around {
    /// Parameters, and tokens: of the original, and of what options were derived from.
    params: [u64; 2],
    vocab: [u32; 2],
    /// Microseconds in each storage.
    us: Vec<f64>,
}

/// Losses of a training.
#[derive(Serialize)]
struct Curve {
    name: String,
    /// Steps over all rounds, and the loss that was trained with.
    points: Vec<[f64; 2]>,
}

/// What costs are reckoned with.
#[derive(Serialize)]
struct Assumed {
    watts_per_core: f64,
    grams_co2e_per_kwh: f64,
    usd_per_kwh: f64,
}

/// Writes the report.
pub fn write(job: &Job<'_>, made: &Made<'_>, outcome: &Outcome) -> Result<()> {
    let (menu, choices) = (made.menu, &made.menu.choices);
    let original = job.original();
    let offers = |slot: usize| {
        let blocks = choices.blocks[slot].iter().zip(&menu.us.slots[slot]);
        blocks.map(|(block, us)| offer(block, choices, us)).collect()
    };
    let base = choices.model(&Architecture::own(choices.blocks.len()));
    let data = Data {
        verdict: verdict(outcome),
        metric: outcome.test.baseline.metric().map(|(name, _)| name.into()),
        outcome,
        plan: job.plan(),
        scores: made.scores,
        options: (0..choices.blocks.len()).map(offers).collect(),
        storages: choices.storages.iter().map(ToString::to_string).collect(),
        frame: Around {
            params: [original, &base].map(around),
            vocab: [original.frame.vocab, base.frame.vocab],
            us: menu.us.frame.clone(),
        },
        chosen: made.decided.points.iter().map(|point| &point.candidate.architecture).collect(),
        original_ms: made.decided.original_ms,
        abouts: proposers::PROPOSERS.iter().map(|one| [one.key(), one.about()]).collect(),
        curves: curves(job, made),
        costs: Assumed {
            watts_per_core: WATTS_PER_CORE,
            grams_co2e_per_kwh: GRAMS_CO2E_PER_KWH,
            usd_per_kwh: USD_PER_KWH,
        },
        machine: Machine::here(),
        version: env!("CARGO_PKG_VERSION"),
        setting: job.plan().asked.workload.to_string(),
        command: &made.request.command,
        judging: judging(job),
        report: job.report_name(),
    };
    write_text(Path::new(&outcome.report), &page(TEMPLATE, &name(&job.plan().asked.model), &data))
}

/// The flags of `lathe eval` that judge as the job did.
fn judging(job: &Job<'_>) -> String {
    let (frame, asked) = (&job.original().frame, &job.plan().asked);
    let mut flags = String::new();
    if !asked.task.is_empty() {
        return format!(" --task {}", asked.task);
    }
    if !frame.has_memory() {
        if job.plan().parts.documents {
            flags.push_str(" --documents");
        }
        if frame.max_len > WINDOW {
            flags.push_str(&format!(" --window {WINDOW}"));
        }
    }
    flags
}

/// The last part of a path.
fn name(model: &str) -> String {
    Path::new(model).file_name().map_or(model.into(), |name| name.to_string_lossy().into_owned())
}

fn offer(block: &Block, choices: &Choices, us: &[f64]) -> Offer {
    let full = block.kind.resolve(block, &choices.frame);
    let model = Model { frame: choices.frame.clone(), blocks: vec![full] };
    Offer {
        name: format!("{block:?}"),
        // What computes conditionally has a dense block of as many parameters.
        kind: match (block.kind.role(), block.kind.dense(block, &choices.frame)) {
            (Role::Identity, _) => "x",
            (_, Some(_)) => "m",
            (Role::MixesTokens, None) => "s",
            (Role::PerToken, None) => "f",
        },
        knobs: full.knobs().filter_map(|(_, knob, value)| Some((knob.name, value?))).collect(),
        params: of_blocks(&model, &Setting::of(&model))[0].params,
        us: us.to_vec(),
    }
}

/// Parameters that are not of blocks.
fn around(model: &Model) -> u64 {
    count(model, &Setting::of(model)).embedding_params
}

/// The trainings of the candidates for the main target, and of the control.
fn curves(job: &Job<'_>, made: &Made<'_>) -> Vec<Curve> {
    let mut curves = Vec::new();
    for candidate in &made.decided.candidates {
        let (mut points, mut before) = (Vec::new(), 0);
        for (round, judged) in candidate.rounds.iter().enumerate() {
            let label = format!("{round}-{}", made.decided.recipe.name());
            points.extend(losses(&job.path("recover").join(&candidate.name).join(label), before));
            before += judged.steps;
        }
        curves.push(Curve { name: candidate.name.clone(), points: thinned(points) });
    }
    curves.push(Curve { name: "control".into(), points: thinned(losses(made.continued, 0)) });
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

/// The losses that a training recorded; none where its records are gone. What a run that was killed recorded beyond its
/// last checkpoint stands there twice; the last time counts.
fn losses(folder: &Path, before: u32) -> Vec<[f64; 2]> {
    let text = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap_or_default();
    let mut points: Vec<[f64; 2]> = Vec::new();
    for record in text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()) {
        if let (Some(step), Some(loss)) = (record["step"].as_f64(), record["loss"].as_f64()) {
            let step = f64::from(before) + step;
            points.retain(|point| point[0] < step);
            points.push([step, loss]);
        }
    }
    points
}

fn thinned(points: Vec<[f64; 2]>) -> Vec<[f64; 2]> {
    let every = points.len().div_ceil(MOST_POINTS).max(1);
    points.into_iter().step_by(every).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_twice_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        let records = ["[10, 3.0]", "[20, 2.0]", "[20, 1.9]", "[30, 1.5]"];
        let line = |record: &&str| {
            let [step, loss]: [f64; 2] = serde_json::from_str(record).unwrap();
            format!("{{\"step\":{step},\"loss\":{loss}}}\n")
        };
        let text: String = records.iter().map(line).collect();
        std::fs::write(folder.path().join("metrics.jsonl"), text + "{\"step\":40,\"lo").unwrap();
        assert_eq!(losses(folder.path(), 100), [[110.0, 3.0], [120.0, 1.9], [130.0, 1.5]]);
        assert!(losses(&folder.path().join("gone"), 0).is_empty());
    }

    #[test]
    fn curves_are_thinned() {
        let many = (0..1000).map(|i| [f64::from(i), 1.0]).collect();
        assert_eq!(thinned(many).len(), MOST_POINTS);
    }

    #[test]
    fn titles_name_no_folders() {
        assert_eq!(name("/models/tiny/"), "tiny");
        assert_eq!(name("storyteller"), "storyteller");
    }
}
