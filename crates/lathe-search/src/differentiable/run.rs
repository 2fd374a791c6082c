//! A search in a folder, from its first step to its architecture.
//!
//! ```text
//! search.json          what was asked for
//! data/                tokens; removed in the end
//! weights.jsonl        the losses of weight steps
//! architecture.jsonl   of every architecture step the losses, the estimate of its sample, the expectation under
//!                      softmax(alpha) and the estimate of the most probable options
//! probabilities.jsonl  softmax(alpha) of every slot after each round
//! checkpoints/         step-000001000/ ...
//! found.toml, result.json    when it has ended
//! ```

use super::adam::Adam;
use super::plan::StepPlan;
use super::projection::project;
use super::search::{Fixed, Found, SearchProgress, SearchState};
use super::settings::Cost;
use super::snapshot;
use super::task::{self, Task};
use crate::{Error, Result};
use lathe_core::{Block, Registry, notation};
use lathe_model::folder::write_aside;
use lathe_model::{Grads, Network, SuperNet};
use lathe_train::data::Data;
use lathe_train::metrics::Lines;
use lathe_train::optimizer::Optimizer;
use lathe_train::resumable::{self, Next, Resumable};
use lathe_train::tasks::{self, Batches, Cut};
use lathe_train::texts::{Texts, check_vocab};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;

const FOUND: &str = "found.toml";

/// What a search tells while it goes.
pub enum Event<'a> {
    /// Text is read and turned into tokens: what, how much, of how much.
    Preparing(&'a str, u64, u64),
    /// A step was done: how many of how many, and what it found.
    Step(u32, u32, &'a Found),
    /// A round was done: its number, the most probable options, and how they and softmax(alpha) are estimated.
    Round(u32, &'a Architecture, f64),
    /// Something that the user should know.
    Warning(String),
}

/// The callback that receives events.
pub type Watch<'a> = &'a mut dyn FnMut(Event<'_>);

/// An architecture and its estimate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Architecture {
    /// In the notation.
    pub layers: String,
    /// Its estimated latency or memory, relative to the baseline's.
    #[serde(rename = "estimated_latency")]
    pub estimate: f64,
    /// Whether it meets the target; true without one.
    pub meets_target: bool,
}

/// What a search found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The architecture: the most probable options, or where those break the target and it was to be projected, the
    /// most probable architecture that meets it.
    pub layers: String,
    /// Its estimated latency or memory, relative to the baseline's.
    #[serde(rename = "estimated_latency")]
    pub estimate: f64,
    /// The target relative to the baseline.
    pub target: Option<f64>,
    /// What target and estimates are about.
    #[serde(default)]
    pub cost: Cost,
    /// Weight steps.
    pub steps: u32,
    /// All its time.
    pub seconds: f64,
    /// The most probable option of each slot.
    pub argmax: Architecture,
    /// The most probable architecture that meets the target, where that was asked for.
    pub projected: Option<Architecture>,
    /// Whether the projection tried everything that might be better.
    pub projection_exact: bool,
    /// The expectation under softmax(alpha), relative to the baseline.
    pub expected_latency: f64,
    /// softmax(alpha) of each slot, by option.
    pub probabilities: Vec<Vec<(String, f64)>>,
    /// Architecture steps.
    pub arch_steps: u32,
    /// The architecture step after which the most probable options did not change any more.
    pub last_change: u32,
    /// Whether they did not change over the last 75 % of the architecture steps, which PAR calls converged.
    pub converged: bool,
    /// Mean loss of the last 100 weight steps, nats per token.
    pub loss: f64,
    /// Mean loss of the last 100 architecture steps.
    pub arch_loss: f64,
    /// Seconds of weight steps.
    pub weight_seconds: f64,
    /// Seconds of architecture steps.
    pub arch_seconds: f64,
    /// The baseline and its estimate in microseconds.
    pub baseline: Baseline,
    /// The folder.
    pub out: String,
}

/// What estimates are relative to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// In the notation.
    pub layers: String,
    /// The sum of the table.
    pub latency_us: f64,
}

/// Begins a search in a folder that is new or empty.
pub fn begin(task: &Task, folder: &Path, registry: &Registry, watch: Watch<'_>) -> Result<Outcome> {
    task::write(task, folder)?;
    resume(folder, registry, watch)
}

/// Goes on with the search in a folder, from its last good checkpoint. One that has ended returns its outcome again.
pub fn resume(folder: &Path, registry: &Registry, watch: Watch<'_>) -> Result<Outcome> {
    if let Some(outcome) = resumable::outcome::<Outcome>(folder)? {
        return Ok(Outcome { out: folder.display().to_string(), ..outcome });
    }
    let mut search = Search::open(folder, registry, watch)?;
    resumable::to_end(&mut search, folder, |search| search.next(watch))?;
    search.finish()
}

/// One option per slot as a plain network, with the weights that the search in a folder ended with.
pub fn network(folder: &Path, choice: &[usize], registry: &Registry) -> Result<Network> {
    let task = task::read(folder, registry)?;
    let mut net = SuperNet::new(task.frame.clone(), &task.slots, task.training.seed.into())?;
    snapshot::restore_weights(&folder.join("checkpoints"), &mut net)?;
    Ok(net.network(choice)?)
}

/// A search at work.
pub struct Search {
    folder: PathBuf,
    task: Task,
    fixed: Fixed,
    state: SearchState,
    grads: [Grads; 2],
    /// Of weights, architecture and probabilities.
    lines: [Lines; 3],
    /// Since this process works on it, and the seconds before.
    began: (Instant, f64),
    /// Other processes keep out while it is held.
    _lock: std::fs::File,
}

impl Search {
    /// Opens the search in a folder, at its last good checkpoint.
    pub fn open(folder: &Path, registry: &Registry, watch: Watch<'_>) -> Result<Self> {
        let began = Instant::now();
        let task = task::read(folder, registry)?;
        let lock = resumable::lock(folder)?;
        let training = &task.training;
        let mut told = |event: lathe_train::run::Event<'_>| match event {
            lathe_train::run::Event::Preparing(what, done, total) => watch(Event::Preparing(what, done, total)),
            lathe_train::run::Event::Warning(warning) => watch(Event::Warning(warning)),
            _ => {}
        };
        let texts = Texts::open(&folder.join("data"), training, &mut told)?;
        let mut net = SuperNet::new(task.frame.clone(), &task.slots, training.seed.into())?;
        task.take_first_weights(&mut net)?;
        let first = net.model(&vec![0; task.slots.len()]);
        let of = tasks::find(&training.task, &first)?;
        check_vocab(&first, &texts, of, &mut told)?;
        let precision = training.precision()?;
        if let Some(warning) = precision.warning() {
            watch(Event::Warning(warning));
        }
        net.set_precision(precision);
        let [weights, architecture] = batches(&task, of, &texts)?;
        let optimizer = Optimizer::new(training.rule()?, training, net.params());
        let alphas = task.first_alphas();
        let search = &task.settings;
        let numbers = alphas.iter().map(Vec::len).sum();
        let progress = SearchProgress {
            tick: 0,
            alphas,
            adam: Adam::new(search.arch_lr, (0.9, 0.999), search.arch_weight_decay, numbers).plain(search.plain_steps),
            arch_steps: 0,
            last_change: 0,
            first_loss: 0.0,
            recent: Default::default(),
            seconds: [0.0; 3],
        };
        let rows = training.batch as usize;
        let states = [net.init_memory(rows), net.init_memory(rows)];
        let steps = vec![0; net.params().iter().len()];
        let state = SearchState { net, optimizer, steps, states, progress };
        let open = |name: &str| Lines::open(folder.join(name));
        let lines = [open("weights.jsonl")?, open("architecture.jsonl")?, open("probabilities.jsonl")?];
        let schedule = training.schedule()?;
        let fixed = Fixed {
            task: of,
            training: training.clone(),
            settings: search.clone(),
            plan: StepPlan::new(search, training.steps),
            table: task.table.clone(),
            weights,
            architecture,
            schedule,
        };
        let mut search = Self {
            folder: folder.into(),
            grads: [Grads::new(state.net.params()), Grads::unwanted(state.net.params())],
            began: (began, 0.0),
            task,
            fixed,
            state,
            lines,
            _lock: lock,
        };
        resumable::take_up(&mut search, folder, &mut |warning| watch(Event::Warning(warning)))?;
        search.began.1 = search.state.progress.seconds[0];
        let tick = search.state.progress.tick;
        if tick > 0 {
            for lines in &mut search.lines {
                lines.resumed(tick)?;
            }
        }
        Ok(search)
    }

    /// The next step, with its record, and its checkpoint where one is due. Returns whether there was one to do.
    pub fn advance(&mut self, watch: Watch<'_>) -> Result<bool> {
        let next = self.next(watch)?;
        if next == (Next::Step { checkpoint: true }) {
            let folder = self.folder.clone();
            resumable::save(self, &folder)?;
        }
        Ok(next != Next::Ended)
    }

    /// The next step, with its record.
    fn next(&mut self, watch: Watch<'_>) -> Result<Next> {
        let (tick, ticks) = (self.state.progress.tick, self.fixed.plan.ticks());
        if tick >= ticks {
            return Ok(Next::Ended);
        }
        let start = Instant::now();
        let found = self.state.step(&self.fixed, &mut self.grads)?;
        let kind = usize::from(matches!(found, Found::Architecture { .. }));
        self.state.progress.seconds[1 + kind] += start.elapsed().as_secs_f64();
        let every = self.task.training.log_every;
        match &found {
            Found::Weights { step, .. } if !step.is_multiple_of(every) && *step > 1 => {}
            _ => self.lines[kind].line(&found)?,
        }
        watch(Event::Step(tick + 1, ticks, &found));
        let round = self.fixed.plan.round(tick);
        if tick + 1 == self.fixed.plan.end(round) {
            self.end_round(round, watch)?;
        }
        let checkpoint = (tick + 1).is_multiple_of(self.task.training.checkpoint_every()) || tick + 1 == ticks;
        Ok(Next::Step { checkpoint })
    }

    /// What moves, to be looked at.
    pub fn state(&self) -> &SearchState {
        &self.state
    }

    fn end_round(&mut self, round: u32, watch: Watch<'_>) -> Result<()> {
        let argmax = self.architecture(&self.state.progress.argmax());
        let probabilities = self.state.progress.probabilities();
        let expected = self.fixed.table.estimate(&probabilities) / self.fixed.table.baseline;
        let line = serde_json::json!({
            "round": round,
            "arch_steps": self.state.progress.arch_steps,
            "expected_latency": expected,
            "argmax": argmax,
            "probabilities": probabilities,
        });
        self.lines[2].line(&line)?;
        watch(Event::Round(round, &argmax, expected));
        Ok(())
    }

    fn architecture(&self, choice: &[usize]) -> Architecture {
        let cost = self.fixed.table.of(choice);
        let limit = self.task.settings.target.map_or(f64::INFINITY, |target| self.fixed.table.limit(target));
        Architecture {
            layers: self.state.net.model(choice).layers(),
            estimate: cost / self.fixed.table.baseline,
            meets_target: cost <= limit * (1.0 + 1e-9),
        }
    }

    fn seconds(&self) -> f64 {
        self.began.1 + self.began.0.elapsed().as_secs_f64()
    }

    /// The architecture, once all steps are done.
    fn finish(self) -> Result<Outcome> {
        let progress = &self.state.progress;
        let table = &self.fixed.table;
        let most_probable = progress.argmax();
        let argmax = self.architecture(&most_probable);
        let probabilities = progress.probabilities();
        let target = self.task.settings.target;
        let limit = target.filter(|_| self.task.settings.project).map(|target| table.limit(target));
        let log_p: Vec<Vec<f64>> = probabilities.iter().map(|p| p.iter().map(|p| p.ln()).collect()).collect();
        let projection = limit.and_then(|limit| project(&log_p, table, limit));
        let choice = match &projection {
            Some(projection) if !argmax.meets_target => &projection.choice,
            _ => &most_probable,
        };
        let chosen = self.architecture(choice);
        let named = |(slot, p): (&Vec<Block>, &Vec<f64>)| {
            slot.iter().zip(p).map(|(block, &p)| (format!("{block:?}"), p)).collect()
        };
        let mean = |losses: &[f32]| losses.iter().copied().map(f64::from).sum::<f64>() / losses.len().max(1) as f64;
        let outcome = Outcome {
            layers: chosen.layers,
            estimate: chosen.estimate,
            target: target.map(|target| table.limit(target) / table.baseline),
            cost: self.task.settings.cost,
            steps: self.task.training.steps,
            seconds: self.seconds(),
            projected: projection.as_ref().map(|projection| self.architecture(&projection.choice)),
            projection_exact: projection.as_ref().is_none_or(|projection| projection.exact),
            expected_latency: table.estimate(&probabilities) / table.baseline,
            probabilities: self.task.slots.iter().zip(&probabilities).map(named).collect(),
            arch_steps: progress.arch_steps,
            last_change: progress.last_change,
            converged: 4 * u64::from(progress.last_change) <= u64::from(progress.arch_steps),
            loss: mean(&progress.recent[0]),
            arch_loss: mean(&progress.recent[1]),
            weight_seconds: progress.seconds[1],
            arch_seconds: progress.seconds[2],
            baseline: Baseline { layers: notation::print(&self.task.baseline), latency_us: table.baseline },
            argmax,
            out: self.folder.display().to_string(),
        };
        let toml = self.state.net.model(choice).to_toml();
        let path = self.folder.join(FOUND);
        write_aside(&path, |out| out.write_all(toml.as_bytes())).map_err(lathe_train::Error::from)?;
        resumable::end(&self.folder, &outcome)?;
        Ok(outcome)
    }
}

impl Resumable for Search {
    type Error = Error;

    fn step(&self) -> u32 {
        self.state.progress.tick
    }

    fn write(&mut self, checkpoint: &Path) -> lathe_train::Result<()> {
        self.state.progress.seconds[0] = self.seconds();
        snapshot::write(checkpoint, &self.state)
    }

    fn restore(&mut self, checkpoint: &Path) -> Result<()> {
        snapshot::restore(checkpoint, &mut self.state)
    }

    fn keep(&self) -> (u32, Option<u32>) {
        (self.task.training.keep, None)
    }
}

/// Batches for weights and for the architecture: of the same text, from places of their own.
fn batches(task: &Task, of: &dyn tasks::Task, texts: &Texts) -> Result<[Box<dyn Batches>; 2]> {
    let training = &task.training;
    let frame = &task.frame;
    let longest = frame.window();
    let len = if training.seq == 0 { longest } else { training.seq };
    if !frame.has_memory() && len > longest {
        return Err(Error::setting("seq", len, format!("at most max_len, which is {longest}")));
    }
    let batches = |seed: u64, data: &Data| {
        let cut = Cut { batch: training.batch as usize, len: len as usize, seed, tokenizer: &texts.tokenizer };
        of.batches(frame, data, &cut)
    };
    let held_out = match (task.settings.held_out, &texts.valid) {
        (false, _) => &texts.train,
        (true, Some(valid)) => valid,
        (true, None) => {
            return Err(Error::setting("valid", "nothing", "held-out text, which the architecture learns from"));
        }
    };
    let seed = u64::from(training.seed);
    Ok([batches(seed, &texts.train)?, batches(seed ^ (1 << 40), held_out)?])
}
