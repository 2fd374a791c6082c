//! Tables of this machine: taken from the cache where they are of this machine and this setting, measured otherwise.

use crate::event::steps;
use crate::measurer::Request;
use crate::store::{read_table, write_table};
use crate::{Context, Error, Event, Result, Watch, identity};
use lathe_core::{Block, Identify, Model, Registry, Sampling, Space, notation};
use lathe_search::measure::Times;
use lathe_search::profile::{self, Calibration, Interval, Limits, Machine, Measured, Noise, Part, ProfileTable};
use lathe_search::workload::Workload;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Others may take so much of the machine before measurements are distrusted.
const BUSY: f64 = 0.1;
/// Intervals may be so wide, relative to the median, before a figure is distrusted.
const WIDE: f64 = 0.2;
/// Seconds that the measurement of a whole model takes.
pub const SECONDS: f64 = 0.5;
/// Rounds in which whole models are measured for a calibration.
pub const ROUNDS: usize = 5;

/// What a table is valid for.
#[derive(Serialize)]
struct Validity<'a> {
    machine: Machine,
    workload: &'a Workload,
}

/// The name of the table for a setting on this machine.
pub fn table_name(workload: &Workload) -> String {
    format!("profile-{}.json", identity::of(&Validity { machine: Machine::here(), workload }))
}

/// How to come by a table.
#[derive(Debug, Clone, Default)]
pub struct TableSource {
    /// A file to be used as it is.
    pub file: Option<PathBuf>,
    /// Whether to measure anew, whatever was measured before.
    pub fresh: bool,
}

/// A table, and how the machine behaved where anything was measured.
pub struct Profiled {
    /// The table.
    pub table: ProfileTable,
    /// How the machine behaved; `None` where nothing was measured.
    pub noise: Option<Noise>,
}

impl TableSource {
    /// The table of a file, if one is named.
    pub fn of(file: Option<&Path>) -> Self {
        Self { file: file.map(Path::to_path_buf), fresh: false }
    }

    /// The table of a space and of further models, in a setting.
    pub fn table(
        &self,
        context: &Context<'_>,
        space: &Space,
        models: &[Model],
        workload: &Workload,
        watch: Watch<'_>,
    ) -> Result<Profiled> {
        let mut parts = Part::of_space(space, workload)?;
        let mut names: HashSet<_> = parts.iter().map(|part| part.name.clone()).collect();
        for model in models {
            let model = workload.model(model)?;
            parts.extend(Part::of_model(&model).filter(|part| names.insert(part.name.clone())));
        }
        self.parts(context, parts, workload, watch)
    }

    /// The table of some parts, in a setting.
    pub fn parts(
        &self,
        context: &Context<'_>,
        parts: Vec<Part>,
        workload: &Workload,
        watch: Watch<'_>,
    ) -> Result<Profiled> {
        if let Some(path) = &self.file {
            let table = ProfileTable::read(path)?;
            table.check(path.display(), workload)?;
            if let Some(part) = table.missing(parts).first() {
                let expected = "a table of this space in this setting";
                let found = format!("nothing for {} ({})", part.name.block, part.name.frame);
                return Err(Error::data(path.display(), found, expected));
            }
            return Ok(Profiled { table, noise: None });
        }
        let name = table_name(workload);
        let mut table = match kept(context, &name, workload) {
            Ok(table) => table.unwrap_or_else(|| ProfileTable::new(workload)),
            Err(error) => {
                watch(Event::Warning(format!("{error}; measured anew")));
                ProfileTable::new(workload)
            }
        };
        let missing = if self.fresh { parts } else { table.missing(parts) };
        if missing.is_empty() {
            return Ok(Profiled { table, noise: None });
        }
        let what = format!("measuring blocks ({workload})");
        let (entries, noise) = profile::measure(
            &missing,
            workload,
            &Limits::default(),
            &mut ChaCha8Rng::seed_from_u64(0),
            &mut |done, total| watch(Event::Steps { what: &what, note: "", done, total }),
        )?;
        watch(Event::Done);
        warn(&entries, noise, context.registry, watch);
        table.extend(entries);
        write_table(context.tables, &name, &table)?;
        Ok(Profiled { table, noise: Some(noise) })
    }
}

/// The table that is kept under a name, if it is one for this setting.
fn kept(context: &Context<'_>, name: &str, workload: &Workload) -> Result<Option<ProfileTable>> {
    let table = read_table(context.tables, name)?;
    Ok(table.filter(|table| table.check(context.tables.place(name), workload).is_ok()))
}

/// Says which figures to distrust, if any.
fn warn(entries: &[profile::Entry], noise: Noise, registry: &Registry, watch: Watch<'_>) {
    if let Some(others) = noise.others.filter(|&others| others > BUSY) {
        watch(Event::Busy(others));
    }
    let wide: Vec<String> = entries
        .iter()
        .filter(|entry| entry.latency_us.spread() > WIDE)
        .map(|entry| short_name(&entry.name.block, registry))
        .collect();
    if !wide.is_empty() {
        let some = wide[..wide.len().min(5)].join(", ");
        let more = if wide.len() > 5 { ", ..." } else { "" };
        watch(Event::Warning(format!(
            "the machine is too noisy for {} of {} figures (intervals wider than {:.0} % of the median): {some}{more}",
            wide.len(),
            entries.len(),
            100.0 * WIDE
        )));
    }
}

/// Random architectures of a space, all different, with the lengths of a setting.
pub fn random_models(space: &Space, workload: &Workload, count: usize, rng: &mut ChaCha8Rng) -> Result<Vec<Model>> {
    let mut seen = HashSet::new();
    let mut models = Vec::new();
    for _ in 0..20 * count {
        if models.len() == count {
            break;
        }
        let model = workload.model(&space.model(&space.sample(Sampling::Choices, rng)))?;
        if seen.insert(model.identity()) {
            models.push(model);
        }
    }
    Ok(models)
}

/// How fast the machine was: what the model that all others are measured beside took when it was measured first, in
/// milliseconds. Latencies are told at that speed, so that those measured at different times can be compared.
#[derive(Debug, Default)]
pub struct Pace(Option<f64>);

/// How often models are measured, and what for.
#[derive(Debug, Clone, Copy)]
pub struct Rounds<'a> {
    /// How often each is measured.
    pub rounds: usize,
    /// What events call it.
    pub what: &'a str,
}

/// Measures whole models in several rounds over all of them, each in another order and beside a model that is always the
/// same: a machine that is slower for some seconds is so for both.
pub fn measure_models(
    context: &Context<'_>,
    models: Vec<Model>,
    workload: &Workload,
    rounds: Rounds<'_>,
    pace: &mut Pace,
    watch: Watch<'_>,
) -> Result<Vec<(Model, Measured)>> {
    let Rounds { rounds, what } = rounds;
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut order: Vec<usize> = (0..models.len()).collect();
    let mut of_rounds = vec![Vec::new(); models.len()];
    let mut peaks = vec![0; models.len()];
    let mut references = Vec::new();
    for round in 0..rounds {
        order.shuffle(&mut rng);
        for (i, &at) in order.iter().enumerate() {
            watch(steps(what, round * models.len() + i, rounds * models.len()));
            let found = context.measurer.measure(&Request::new(&models[at], workload, SECONDS / 2.0).beside())?;
            let beside = found.beside.ok_or_else(|| Error::data(what, "no reference", "a measurement beside one"))?;
            of_rounds[at].push(beside.ratio);
            references.push(beside.reference_ms);
            peaks[at] = found.peak_bytes.unwrap_or(0).max(peaks[at]);
        }
    }
    watch(Event::Done);
    let reference_ms = *pace.0.get_or_insert_with(|| profile::median(references));
    let measured = of_rounds.into_iter().zip(peaks).map(|(ratios, peak_bytes)| {
        let raw = ratios.into_iter().map(|ratio| ratio * reference_ms).collect();
        Measured { latency_ms: Interval::from(&Times { raw }), peak_bytes }
    });
    Ok(models.into_iter().zip(measured).collect())
}

/// Fits the correction of a table's sums to so many whole models of a space.
pub fn calibrate(
    context: &Context<'_>,
    table: &mut ProfileTable,
    space: &Space,
    (count, seed): (usize, u64),
    pace: &mut Pace,
    watch: Watch<'_>,
) -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let models = random_models(space, &table.workload, count, &mut rng)?;
    let rounds = Rounds { rounds: ROUNDS, what: "measuring whole models" };
    let measured = measure_models(context, models, &table.workload, rounds, pace, watch)?;
    table.calibration = Some(Calibration::fit(&table.clone().smoothed(context.registry), &measured)?);
    Ok(())
}

/// A block of which every knob is written, with only those that tell it from others: `m8k1i256`, `s4`.
pub fn short_name(block: &str, registry: &Registry) -> String {
    let Ok(blocks) = notation::parse(block, registry) else { return block.into() };
    let Some(first): Option<&Block> = blocks.first() else { return block.into() };
    let mut short = Block::new(first.kind);
    // Knobs that only the long form has are options, and a second width of one number follows from the model.
    let shown = first.kind.telling_knobs();
    for (i, _, value) in first.knobs().take(shown) {
        if let Some(value) = value {
            short.set(i, value);
        }
    }
    format!("{short:?}")
}
