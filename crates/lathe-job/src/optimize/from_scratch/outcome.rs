//! All stages in turn, and what they return.

use super::race::{Chosen, Runner};
use super::repeat::Repeated;
use super::request::Request;
use super::rivals::Compared;
use super::stages::{BASELINE, COMPARED, FOUND, OptimizeJob};
use crate::input::{read_json, write_json};
use crate::pages::from_scratch::Page;
use crate::{Context, Event, Result, Watch, evaluate};
use lathe_train::evaluate::Evaluation;
use lathe_train::run;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// What an optimisation returns.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The model to make faster.
    pub baseline: Side,
    /// The faster one.
    pub found: Side,
    /// Both on a text that nothing was chosen by, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<Test>,
    /// How many times as fast it is, measured side by side.
    pub speedup: f64,
    /// 95 % interval.
    pub speedup_interval: [f64; 2],
    /// The target as a share of the baseline's latency.
    pub target: f64,
    /// Whether the trained model meets it.
    pub target_met: bool,
    /// By the table, as a share of the baseline's.
    pub estimated_latency: f64,
    /// Where the architecture comes from: the search, or a plain way that did better in the race.
    pub from: String,
    /// Who was tried.
    pub race: Vec<Runner>,
    /// Other ways, where they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<Rival>,
    /// Both models with further seeds, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<Repeated>,
    /// Steps of each training.
    pub steps: u32,
    /// Whether what was found began with the weights of the search.
    pub inherited: bool,
    /// Of this process.
    pub seconds: f64,
    /// The file of the report.
    pub report: String,
}

/// Both models on a text.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Test {
    pub data: String,
    pub baseline: Evaluation,
    pub found: Evaluation,
}

impl OptimizeJob {
    /// Judges both models on a text that nothing was chosen by.
    fn test(&self, data: &str, watch: Watch<'_>) -> Result<Test> {
        let path = self.out.join("test.json");
        if path.exists() {
            let known: Test = read_json(&path)?;
            if known.data == data {
                return Ok(known);
            }
        }
        let mut judge = |name: &str| -> Result<Evaluation> {
            let request =
                evaluate::Request { folder: self.out.join(name), data: data.into(), ..evaluate::Request::default() };
            Ok(evaluate::run(&self.registry, &request, watch)?.evaluation)
        };
        let test = Test { data: data.into(), baseline: judge(BASELINE)?, found: judge(FOUND)? };
        write_json(&path, &test)?;
        Ok(test)
    }
}

/// A model, trained and measured.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Side {
    pub layers: String,
    pub latency_ms: f64,
    pub valid: Option<Evaluation>,
}

/// Another way to a faster model.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Rival {
    pub name: String,
    pub layers: String,
    pub latency_ms: f64,
    pub speedup: f64,
    pub valid: Option<Evaluation>,
}

impl Rival {
    fn new((compared, outcome): (Compared, run::Outcome)) -> Self {
        let Compared { name, layers, pair } = compared;
        Self { name, layers, latency_ms: pair.second_ms.median, speedup: pair.speedup, valid: outcome.valid }
    }
}

/// Stages of a job.
const STAGES: u32 = 5;

/// Does a job, or goes on with it: what its folder holds is not done again.
pub fn run(context: &Context<'_>, request: &Request, watch: Watch<'_>) -> Result<Outcome> {
    let began = Instant::now();
    let job = OptimizeJob::new(&request.out, request.plan(context, watch)?, context.registry)?;
    job.check()?;
    request.baseline.as_ref().map_or(Ok(()), |trained| job.check_baseline(trained))?;
    let stage = |number: u32, what: String| Event::Stage { number, of: STAGES, what };

    watch(stage(1, format!("profile: {} in {}", job.baseline.layers(), job.plan.workload)));
    let table = job.profile(context, watch)?;
    let target = job.plan.target.ratio(job.latency_ms(&table)?);
    job.begin(&table, target)?;

    watch(stage(2, format!("train the baseline, {} steps", job.plan.steps)));
    if let Some(trained) = &request.baseline {
        job.adopt(trained, BASELINE)?;
    }
    let baseline = job.train(BASELINE, &job.baseline.layers(), watch)?;
    watch(Event::Done);

    watch(stage(3, format!("search for a latency of {target:.2} of the baseline's, and try what is found")));
    let found = job.search(&table, target, watch)?;
    watch(Event::Done);
    let searched = job.choose(&table, &found, target, watch)?;
    let race = job.race(&table, &searched, watch)?;

    watch(stage(4, "train what came out best, and what came close to it".into()));
    let (chosen, trained) = job.finals(&searched, &race, watch)?;
    let rivals = if request.compare || job.has_compared() { job.rivals(&table, &chosen)? } else { Vec::new() };
    let mut of_rivals = Vec::new();
    for (name, layers) in &rivals {
        watch(Event::Part(format!("train {name}, {layers}")));
        of_rivals.push(job.train(&format!("{COMPARED}/{name}"), layers, watch)?);
    }
    let repeated = job.repeat(&chosen, [&baseline, &trained], request.repeat, watch)?;
    watch(Event::Done);

    watch(stage(5, "measure both side by side, and report".into()));
    let measured = job.measure(watch)?;
    let compared = job.compare(&rivals, watch)?;
    let test = request.test().map(|data| job.test(data, watch)).transpose()?;
    let report = request.out.join("report.html");
    Page {
        job: &job,
        table: &table,
        chosen: &chosen,
        measured: &measured,
        compared: &compared,
        outcomes: [&baseline, &trained],
        rivals: &of_rivals,
        repeated: repeated.as_ref(),
        command: &request.command,
    }
    .write(&report)?;

    let pair = &measured.pair;
    let estimated_latency = job.estimate(&table, &chosen.layers)?;
    let Chosen { layers, name, target, race, .. } = chosen;
    Ok(Outcome {
        baseline: Side { layers: job.baseline.layers(), latency_ms: pair.first_ms.median, valid: baseline.valid },
        found: Side { layers, latency_ms: pair.second_ms.median, valid: trained.valid },
        test,
        speedup: pair.speedup,
        speedup_interval: pair.interval,
        target,
        target_met: pair.second_ms.median <= job.plan.target.ratio(pair.first_ms.median) * pair.first_ms.median,
        estimated_latency,
        from: name,
        race,
        compared: compared.into_iter().zip(of_rivals).map(Rival::new).collect(),
        repeated,
        steps: job.plan.steps,
        inherited: job.plan.inherit,
        seconds: began.elapsed().as_secs_f64(),
        report: report.display().to_string(),
    })
}
