//! Two models side by side: how fast, how much memory, how well they predict a text, and how far apart their
//! predictions are. Latencies are those of one pass of each in turn; peaks of memory are those of a process for each.

use super::quality::{self, Quality};
use crate::event::steps;
use crate::measurer::Request as Asked;
use crate::optimize::pair::{self, Pair};
use crate::pages::compare::Page;
use crate::{At, Context, Error, Event, Result, Watch, input};
use lathe_core::{Model, Setting};
use lathe_model::{count, folder};
use lathe_search::profile::cpu;
use lathe_search::workload::{Mode, Pass, Workload};
use lathe_train::divergence::Spread;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Intervals of the speed-up may be so wide, relative to it, before the machine counts as noisy.
const NOISY: f64 = 0.1;

/// What to compare, and in what.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Two models by folder, file or shipped name; those without weights get random ones.
    pub models: [String; 2],
    /// A text to predict, for models with weights.
    pub data: Option<String>,
    /// Whether its documents are scored one by one.
    pub documents: bool,
    /// Tokens of a window of the text, for models without a memory.
    pub window: Option<u32>,
    /// The setting of the measurement; without a length, the shorter of the models' own.
    pub workload: Workload,
    /// How long to measure.
    pub seconds: f64,
    /// Seed of tokens, and of weights where there are none.
    pub seed: u64,
    /// A page to write.
    pub page: Option<PathBuf>,
    /// The command that returns this again.
    pub command: String,
}

/// Something of each model.
#[derive(Debug, Clone, Default, Serialize)]
#[allow(missing_docs)]
pub struct Two<T> {
    pub a: T,
    pub b: T,
}

impl<T> From<[T; 2]> for Two<T> {
    fn from([a, b]: [T; 2]) -> Self {
        Self { a, b }
    }
}

/// Two models, compared. Ratios are A's over B's: above 1, B is the faster or the smaller.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// By what name they were given.
    pub models: Two<String>,
    /// Their blocks.
    pub layers: Two<String>,
    /// Their parameters.
    pub params: Two<u64>,
    /// A's median latency over B's.
    pub speedup: f64,
    /// Its 95 % interval.
    pub speedup_interval: [f64; 2],
    /// Passes of each.
    pub passes: usize,
    /// Medians of a pass.
    pub latency_ms: Two<f64>,
    /// Their 95 % intervals.
    pub latency_interval_ms: Two<[f64; 2]>,
    /// Of a process that does nothing else, where it is known.
    pub peak_bytes: Two<Option<u64>>,
    /// A's peak over B's.
    pub memory_ratio: Option<f64>,
    /// Of the files that hold the weights.
    pub bytes: Two<Option<u64>>,
    /// Nats per token, each by its own tokens.
    pub loss: Two<Option<f64>>,
    /// Comparable whatever the tokens are.
    pub bits_per_byte: Two<Option<f64>>,
    /// Tokens that were scored.
    pub tokens: Two<Option<u64>>,
    /// KL(p || q) in nats per token, p of A and q of B, over the tokens that both have.
    pub kl: Option<Spread>,
    /// Share of places where both have the same most probable token.
    pub same_top: Option<f64>,
    /// What a pass does.
    pub mode: Mode,
    /// B
    pub batch: u32,
    /// T
    pub seq: u32,
    /// What products were computed in.
    pub precision: String,
    /// Threads that computed.
    pub threads: usize,
    /// Name of the CPU.
    pub cpu: String,
    /// Instructions of the kernels.
    pub instructions: &'static str,
    /// What a reader should know.
    pub notes: Vec<String>,
    /// Every pass of each, in the order taken.
    pub raw_ms: Two<Vec<f64>>,
}

/// A model to compare.
pub(crate) struct Side {
    pub name: String,
    pub model: Model,
    /// The folder of its weights.
    pub folder: Option<PathBuf>,
}

impl Side {
    pub(crate) fn open(name: &str, context: &Context<'_>) -> Result<Self> {
        let model = input::spec(name, context.registry)?.model(context.registry).at(name)?;
        let folder = Some(input::model_folder(name)?).filter(|path| folder::has_weights(path));
        Ok(Self { name: name.into(), model, folder })
    }

    /// The weights that a measurement needs: training takes fresh ones, whatever the folder's are stored as.
    fn weights(&self, workload: &Workload) -> Option<&Path> {
        self.folder.as_deref().filter(|_| workload.mode != Mode::Train)
    }

    fn job(&self, workload: &Workload, seed: u64) -> Result<Pass> {
        let model = workload.model(&self.model).map_err(Error::from).at(&self.name)?;
        Ok(match self.weights(workload) {
            Some(folder) => workload.passes(folder::load_as(folder, model)?, seed),
            None => workload.whole(model, seed)?,
        })
    }
}

/// Compares two models.
pub fn run(context: &Context<'_>, request: &Request, watch: Watch<'_>) -> Result<Outcome> {
    if let Some(page) = request.page.as_ref().filter(|page| page.exists()) {
        return Err(Error::setting("page", format!("{}, which is there", page.display()), "a new file"));
    }
    let [a, b] = &request.models;
    let sides = [Side::open(a, context)?, Side::open(b, context)?];
    let mut notes = Vec::new();
    for side in sides.iter().filter(|side| side.folder.is_none()) {
        if request.data.is_some() {
            let found = format!("{}, which has no weights", side.name);
            return Err(Error::setting("data", format!("a text for {found}"), "two model folders with weights"));
        }
        notes.push(format!("{} has no weights: it is measured with random ones", side.name));
    }
    let least = sides.iter().map(|side| side.model.frame.tgt_len).min().unwrap_or(1);
    let workload = Workload { seq: Some(request.workload.seq.unwrap_or(least)), ..request.workload.clone() };
    if let Some(warning) = workload.precision.warning() {
        watch(Event::Warning(warning));
    }
    let jobs = [sides[0].job(&workload, request.seed)?, sides[1].job(&workload, request.seed)?];
    watch(steps("measuring", 0, 3));
    let pair = pair::measure_jobs(jobs, Duration::from_secs_f64(request.seconds.clamp(0.0, 3600.0)));
    let mut peaks = [None; 2];
    for (i, side) in sides.iter().enumerate() {
        watch(steps("measuring", 1 + i, 3));
        let model = workload.model(&side.model)?;
        let (seed, weights) = (request.seed, side.weights(&workload));
        let asked = Asked { seed, weights, ..Asked::new(&model, &workload, 0.0) };
        peaks[i] = context.measurer.measure(&asked)?.peak_bytes;
    }
    watch(Event::Done);
    if (pair.interval[1] - pair.interval[0]) / pair.speedup > NOISY {
        let [low, high] = pair.interval;
        watch(Event::Warning(format!("the machine is noisy: the speed-up is somewhere from {low:.2} to {high:.2}")));
    }
    let quality = match &request.data {
        Some(data) => Some(quality::judge(&sides, request, data, context.registry, watch)?),
        None => None,
    };
    notes.extend(quality.iter().flat_map(|quality| quality.notes.clone()));
    notes.iter().for_each(|note| watch(Event::Message(format!("note: {note}"))));
    let outcome = outcome(&sides, &workload, pair, peaks, quality.as_ref(), notes);
    if let Some(page) = &request.page {
        Page { outcome: &outcome, sides: &sides, workload: &workload, quality: quality.as_ref(), request }
            .write(page)?;
        watch(Event::Wrote(page));
    }
    Ok(outcome)
}

fn outcome(
    sides: &[Side; 2],
    workload: &Workload,
    pair: Pair,
    peaks: [Option<u64>; 2],
    quality: Option<&Quality>,
    notes: Vec<String>,
) -> Outcome {
    let evaluation = |i: usize| quality.map(|quality| &quality.evaluations[i]);
    let divergence = quality.and_then(|quality| quality.divergence.as_ref());
    let each = |i: usize| &sides[i];
    Outcome {
        models: [0, 1].map(|i| each(i).name.clone()).into(),
        layers: [0, 1].map(|i| each(i).model.layers()).into(),
        params: [0, 1].map(|i| count(&each(i).model, &Setting::of(&each(i).model)).total_params()).into(),
        speedup: pair.speedup,
        speedup_interval: pair.interval,
        passes: pair.passes,
        latency_ms: [&pair.first_ms, &pair.second_ms].map(|ms| ms.median).into(),
        latency_interval_ms: [&pair.first_ms, &pair.second_ms].map(|ms| [ms.low, ms.high]).into(),
        peak_bytes: peaks.into(),
        memory_ratio: peaks[0].zip(peaks[1]).map(|(a, b)| a as f64 / b as f64),
        bytes: [0, 1].map(|i| each(i).folder.as_deref().and_then(folder::weight_bytes)).into(),
        loss: [0, 1].map(|i| evaluation(i).map(|found| found.loss)).into(),
        bits_per_byte: [0, 1].map(|i| evaluation(i).map(|found| found.bits_per_byte)).into(),
        tokens: [0, 1].map(|i| evaluation(i).map(|found| found.tokens)).into(),
        kl: divergence.map(|found| found.kl),
        same_top: divergence.map(|found| found.same_top),
        mode: workload.mode,
        batch: workload.batch,
        seq: workload.seq.unwrap_or(0),
        precision: workload.precision.available().to_string(),
        threads: rayon::current_num_threads(),
        cpu: cpu(),
        instructions: lathe_ops::cpu::level().name(),
        notes,
        raw_ms: pair.raw_ms.into(),
    }
}
