//! The report of an optimisation.

use super::{page, sample, write};
use crate::input::read_json;
use crate::optimize::from_scratch::{Chosen, Compared, Measured, OptimizeJob, OptimizePlan, Repeated};
use crate::profiler::short_name;
use crate::{Error, Result};
use lathe_core::Setting;
use lathe_model::count;
use lathe_search::profile::{FRAME, Machine, ProfileTable};
use lathe_train::evaluate::Evaluation;
use lathe_train::run::Outcome;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

const TEMPLATE: &str = include_str!("from_scratch.html");
/// More points than this a curve does not need.
const MOST_POINTS: usize = 300;
/// What a busy core of a server takes, about; the machine does not tell.
const WATTS_PER_CORE: f64 = 10.0;

/// What the report tells.
pub struct Page<'a> {
    pub job: &'a OptimizeJob,
    pub table: &'a ProfileTable,
    pub chosen: &'a Chosen,
    pub measured: &'a Measured,
    pub compared: &'a [Compared],
    /// Of the baseline and of what was found.
    pub outcomes: [&'a Outcome; 2],
    /// Of the models compared with, in their order.
    pub rivals: &'a [Outcome],
    pub repeated: Option<&'a Repeated>,
    /// The command that returns this again.
    pub command: &'a str,
}

#[derive(Serialize)]
struct Data<'a> {
    plan: &'a OptimizePlan,
    machine: Machine,
    version: &'static str,
    setting: String,
    chosen: &'a Chosen,
    measured: &'a Measured,
    compared: &'a [Compared],
    sides: [Side; 2],
    rivals: Vec<Option<Evaluation>>,
    repeated: Option<&'a Repeated>,
    blocks: Vec<BlockCost>,
    options: Vec<String>,
    probabilities: Vec<Value>,
    architecture: Vec<Value>,
    search: Value,
    seconds: Seconds,
    watt_hours: f64,
    watts_per_core: f64,
    command: &'a str,
}

/// A model, trained.
#[derive(Serialize)]
struct Side {
    layers: String,
    params: u64,
    decoder_params: u64,
    flops: f64,
    valid: Option<Evaluation>,
    /// Steps and losses.
    curve: Vec<[f64; 2]>,
    /// Steps and losses on the text to validate on.
    valid_curve: Vec<[f64; 2]>,
    /// The loads of each mixture's experts, at the last record.
    experts: Value,
    sample: String,
}

#[derive(Serialize)]
struct BlockCost {
    block: String,
    us: f64,
    low: f64,
    high: f64,
    peak_bytes: u64,
}

#[derive(Serialize)]
struct Seconds {
    search: f64,
    race: f64,
    baseline: f64,
    finals: f64,
    rivals: f64,
    repeats: f64,
}

impl Page<'_> {
    /// Writes it.
    pub fn write(&self, path: &Path) -> Result<()> {
        let (job, plan) = (self.job, &self.job.plan);
        let out = &job.out;
        let search: Value = read_json(&out.join("search/result.json"))?;
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let seconds = Seconds {
            search: number(&search["seconds"]),
            race: self.chosen.race.iter().map(|one| one.seconds).sum(),
            rivals: self.rivals_seconds(),
            repeats: self.repeated.map_or(0.0, |repeated| repeated.seconds),
            baseline: self.outcomes[0].seconds,
            finals: self.chosen.race.iter().filter_map(|one| Some(one.whole.as_ref()?.seconds)).sum(),
        };
        let machine = Machine::here();
        let Seconds { search: searching, race, baseline, finals, rivals, repeats } = seconds;
        let busy = searching + race + baseline + finals + rivals + repeats;
        let data = Data {
            plan,
            version: env!("CARGO_PKG_VERSION"),
            setting: plan.workload.to_string(),
            chosen: self.chosen,
            measured: self.measured,
            compared: self.compared,
            sides: [
                self.side("baseline", &job.baseline.layers(), self.outcomes[0])?,
                self.side("found", &self.chosen.layers, self.outcomes[1])?,
            ],
            rivals: self.rivals.iter().map(|outcome| outcome.valid.clone()).collect(),
            repeated: self.repeated,
            blocks: self.blocks(),
            options: search["probabilities"][0]
                .as_array()
                .map(|slot| slot.iter().filter_map(|option| Some(option[0].as_str()?.to_string())).collect())
                .unwrap_or_default(),
            probabilities: lines(&out.join("search/probabilities.jsonl"))?,
            architecture: lines(&out.join("search/architecture.jsonl"))?,
            watt_hours: busy * WATTS_PER_CORE * machine.threads as f64 / 3600.0,
            watts_per_core: WATTS_PER_CORE,
            seconds,
            search,
            command: self.command,
            machine,
        };
        write(path, &page(TEMPLATE, &job.baseline.layers(), &data))
    }

    /// What the trainings of the rivals took, but for those that were trained in any case.
    fn rivals_seconds(&self) -> f64 {
        let finals = |name: &str| self.chosen.race.iter().any(|one| one.name == name && one.whole.is_some());
        let trained = self.compared.iter().zip(self.rivals).filter(|(compared, _)| !finals(&compared.name));
        trained.map(|(_, outcome)| outcome.seconds).sum()
    }

    fn side(&self, name: &str, layers: &str, outcome: &Outcome) -> Result<Side> {
        let folder = self.job.out.join(name);
        let model = self.job.model(layers)?;
        let counts = count(&model, &Setting::of(&model));
        let records = lines(&folder.join("metrics.jsonl"))?;
        let point = |record: &Value, loss: &Value| Some([record["step"].as_f64()?, loss.as_f64()?]);
        let experts = records.iter().rev().find(|record| !record["experts"].is_null());
        Ok(Side {
            layers: layers.into(),
            params: counts.total_params(),
            decoder_params: counts.decoder_params(),
            flops: counts.total_flops() as f64,
            valid: outcome.valid.clone(),
            curve: records.iter().filter_map(|record| point(record, &record["loss"])).collect(),
            valid_curve: records.iter().filter_map(|record| point(record, &record["valid"]["loss"])).collect(),
            experts: experts.map_or(Value::Null, |record| record["experts"].clone()),
            sample: sample(&folder, &self.job.registry)?,
        })
    }

    /// The blocks of the table, dearest first, frames last.
    fn blocks(&self) -> Vec<BlockCost> {
        let mut blocks: Vec<BlockCost> = self
            .table
            .blocks
            .iter()
            .map(|entry| BlockCost {
                block: short_name(&entry.name.block, &self.job.registry),
                us: entry.latency_us.median,
                low: entry.latency_us.low,
                high: entry.latency_us.high,
                peak_bytes: entry.peak_bytes,
            })
            .collect();
        blocks.sort_by(|a, b| (a.block == FRAME).cmp(&(b.block == FRAME)).then(b.us.total_cmp(&a.us)));
        blocks
    }
}

/// The records of a file, thinned out where there are many. What a run that was killed recorded beyond its last checkpoint
/// stands there twice; the last time counts.
fn lines(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
    let mut records: Vec<Value> = Vec::new();
    for record in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let step = |record: &Value| ["step", "arch_step", "arch_steps"].iter().find_map(|key| record[*key].as_u64());
        let of_last = records.last().and_then(step);
        if let Some(step_of) = step(&record).filter(|&step| of_last.is_some_and(|last| last >= step)) {
            let later = |old: &Value| step(old).is_some_and(|old| old >= step_of);
            // An evaluation and a loss may be of the same step.
            records.retain(|old| {
                !later(old) || step(old) == Some(step_of) && old["valid"].is_null() != record["valid"].is_null()
            });
        }
        records.push(record);
    }
    // Evaluations are few and all of them count.
    let (rare, mut many): (Vec<Value>, Vec<Value>) = records.into_iter().partition(|record| !record["valid"].is_null());
    let step = many.len().div_ceil(MOST_POINTS).max(1);
    many = many.into_iter().step_by(step).collect();
    Ok(many.into_iter().chain(rare).collect())
}
