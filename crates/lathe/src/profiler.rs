//! Tables of this machine: taken from the cache where they are of this machine and this setting, measured otherwise.

use crate::output;
use crate::picture::short_name;
use crate::progress::Progress;
use crate::workload;
use anyhow::{Context, Result};
use lathe_core::{Model, Sampling, Space};
use lathe_search::Error;
use lathe_search::measure::Times;
use lathe_search::profile::{self, Calibration, Interval, Limits, Machine, Measured, Noise, Part, Table};
use lathe_search::workload::Workload;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
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

/// Where tables are kept.
pub fn cache_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("LATHE_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("lathe")))
        .or_else(|| Some(set("HOME")?.join(".cache").join("lathe")))
        .unwrap_or_else(|| std::env::temp_dir().join("lathe"))
}

/// The file of the table for a setting on this machine.
fn cached(workload: &Workload) -> Result<PathBuf> {
    let key = serde_json::to_string(&(Machine::here(), workload))?;
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    Ok(cache_folder().join(format!("profile-{hash:016x}.json")))
}

/// How to come by a table.
#[derive(clap::Args, Clone, Default)]
pub struct TableArgs {
    /// Table of an earlier `lathe profile --out`, to be used as it is
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Measure anew, whatever was measured before
    #[arg(long)]
    fresh: bool,
}

/// A table, and how the machine behaved where anything was measured.
pub struct Profiled {
    pub table: Table,
    pub noise: Option<Noise>,
}

impl TableArgs {
    /// The table of a file, if there is one.
    pub fn of(table: Option<&Path>) -> Self {
        Self { table: table.map(Path::to_path_buf), fresh: false }
    }

    /// The table of a space and of further models, in a setting.
    pub fn table(
        &self,
        space: &Space,
        models: &[Model],
        workload: &Workload,
        progress: &mut Progress,
    ) -> Result<Profiled> {
        let mut parts = Part::of_space(space, workload)?;
        let mut names: HashSet<_> = parts.iter().map(|part| part.name.clone()).collect();
        for model in models {
            let model = workload.model(model)?;
            parts.extend(Part::of_model(&model).filter(|part| names.insert(part.name.clone())));
        }
        if let Some(path) = &self.table {
            let table = Table::read(path)?;
            table.check(path, workload)?;
            if let Some(part) = table.missing(parts).first() {
                let expected = "a table of this space in this setting";
                let found = format!("nothing for {} ({})", part.name.block, part.name.frame);
                return Err(Error::data(path.display(), found, expected).into());
            }
            return Ok(Profiled { table, noise: None });
        }
        let path = cached(workload)?;
        let mut table = match Table::read(&path) {
            Ok(table) if table.check(&path, workload).is_ok() => table,
            Err(error @ Error::Data { .. }) => {
                progress.say(&format!("warning: {error}; measured anew"));
                Table::new(workload)
            }
            _ => Table::new(workload),
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
            &mut |done, all| progress.steps(&what, "", done, all),
        )?;
        progress.finish();
        warn(&entries, noise, progress);
        table.extend(entries);
        table.write(&path)?;
        Ok(Profiled { table, noise: Some(noise) })
    }
}

/// Says which figures to distrust, if any.
fn warn(entries: &[profile::Entry], noise: Noise, progress: &mut Progress) {
    if let Some(others) = noise.others.filter(|&others| others > BUSY) {
        progress.say(&format!(
            "warning: other processes took {:.0} % of the cores during the measurement: distrust these figures, and measure again \
             with --fresh on a quiet machine",
            100.0 * others
        ));
    }
    let wide: Vec<String> = entries
        .iter()
        .filter(|entry| entry.latency_us.spread() > WIDE)
        .map(|entry| short_name(&entry.name.block))
        .collect();
    if !wide.is_empty() {
        let some = wide[..wide.len().min(5)].join(", ");
        let more = if wide.len() > 5 { ", ..." } else { "" };
        progress.say(&format!(
            "warning: the machine is too noisy for {} of {} figures (intervals wider than {:.0} % of the median): {some}{more}",
            wide.len(),
            entries.len(),
            100.0 * WIDE
        ));
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
        if seen.insert(model.to_toml()) {
            models.push(model);
        }
    }
    Ok(models)
}

/// How fast the machine was: what the model that all others are measured beside took when it was measured first, in
/// milliseconds. Latencies are told at that speed, so that those measured at different times can be compared.
#[derive(Debug, Default)]
pub struct Pace(Option<f64>);

/// Measures whole models in several rounds over all of them, each in another order and beside a model that is always the
/// same: a machine that is slower for some seconds is so for both.
pub fn measure_models(
    models: Vec<Model>,
    workload: &Workload,
    rounds: usize,
    what: &str,
    pace: &mut Pace,
    progress: &mut Progress,
) -> Result<Vec<(Model, Measured)>> {
    let all = (rounds * models.len()) as u64;
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut order: Vec<usize> = (0..models.len()).collect();
    let mut of_rounds = vec![Vec::new(); models.len()];
    let mut peaks = vec![0; models.len()];
    let mut references = Vec::new();
    for round in 0..rounds {
        order.shuffle(&mut rng);
        for (i, &at) in order.iter().enumerate() {
            progress.steps(what, "", (round * models.len() + i) as u64, all);
            let answer = workload::measure_beside(&models[at], workload, SECONDS / 2.0)?;
            let beside = answer.beside.context("a measurement beside another model")?;
            of_rounds[at].push(beside.ratio);
            references.push(beside.reference_ms);
            peaks[at] = answer.peak_bytes.unwrap_or(0).max(peaks[at]);
        }
    }
    progress.finish();
    let reference_ms = *pace.0.get_or_insert_with(|| profile::median(references));
    let measured = of_rounds.into_iter().zip(peaks).map(|(ratios, peak_bytes)| {
        let raw = ratios.into_iter().map(|ratio| ratio * reference_ms).collect();
        Measured { latency_ms: Interval::from(&Times { raw }), peak_bytes }
    });
    Ok(models.into_iter().zip(measured).collect())
}

/// Fits the correction of a table's sums to so many whole models of a space.
pub fn calibrate(
    table: &mut Table,
    space: &Space,
    count: usize,
    seed: u64,
    pace: &mut Pace,
    progress: &mut Progress,
) -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let models = random_models(space, &table.workload, count, &mut rng)?;
    let measured = measure_models(models, &table.workload, ROUNDS, "measuring whole models", pace, progress)?;
    table.calibration = Some(Calibration::fit(&table.clone().smoothed(), &measured)?);
    Ok(())
}

/// Writes a table where the user wants it.
pub fn export(table: &Table, path: &Path) -> Result<()> {
    table.write(path).with_context(|| path.display().to_string())?;
    output::tell(format_args!("wrote {}", path.display()));
    Ok(())
}
