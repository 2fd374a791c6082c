//! `lathe search pareto`: the frontier of quality, latency and memory, as LTS searches for it.
//!
//! The folder of a search holds `plan.txt` (its settings), `table.json` (what candidates are predicted with),
//! `candidates.jsonl` and `measured.jsonl` (the records), and in the end a model file per point in `frontier/`, and
//! the page, the pictures and the figures.

use super::super::Action;
use crate::input::{self, Usage};
use crate::output::{self, BOLD, DIM, Table as Rows};
use crate::pages::pareto::Page;
use crate::profiler::{self, Pace, TableArgs};
use crate::progress::Progress;
use crate::workload::{self, WorkloadArgs};
use anyhow::{Context, Result};
use clap::Parser;
use lathe_core::{Model, Setting, Space, notation};
use lathe_model::folder::{is_free, write_aside};
use lathe_model::{REGISTRY, count};
use lathe_search::objective::{self, OBJECTIVES, Objective};
use lathe_search::pareto::most_dominant;
use lathe_search::profile::{Prediction, Table};
use lathe_search::record::Record;
use lathe_search::search::{self, Evaluated, Plan, best, saving};
use lathe_search::searchers::{self, SEARCHERS, Sizes};
use lathe_search::workload::Workload;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Find the architectures that nothing beats in quality, latency and memory, without training any
#[derive(Parser)]
#[command(after_help = "\
Quality is estimated by a proxy, latency and memory by what the blocks were measured to cost on this machine; the frontier
is then measured whole, and so are the baseline's layer-scaled models, with what the frontier saves against each.

A search that was killed goes on with the same command and ends with the same frontier.

Examples:
  lathe search pareto lts_gpt2 --seq 192 --out frontier
  lathe search pareto lts_gpt2 --max-latency-ms 20 --max-memory-mb 400 --out small
  lathe search pareto my_space.toml --objectives decoder_params,latency --searcher nsga2 --out two")]
pub struct Pareto {
    /// Space file (TOML) or shipped name
    space: String,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    table: TableArgs,
    /// Folder of the search
    #[arg(long, value_name = "DIR", default_value = "search")]
    out: PathBuf,
    /// What is wanted, quality first: decoder_params or bottleneck_params; latency, memory, params, flops
    #[arg(long, value_delimiter = ',', default_value = "decoder_params,latency,memory")]
    objectives: Vec<String>,
    /// Most milliseconds of a pass
    #[arg(long, value_name = "MS")]
    max_latency_ms: Option<f64>,
    /// Most memory
    #[arg(long, value_name = "MB")]
    max_memory_mb: Option<f64>,
    /// Rounds after the first, random one
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    iterations: u32,
    /// Architectures to begin with; each round proposes four fifths as many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    population: u32,
    /// Who proposes: nsga2, lts (the published search) or random
    #[arg(long, default_value = "nsga2")]
    searcher: String,
    /// Measure every candidate whole instead of predicting it
    #[arg(long)]
    measure_all: bool,
    /// Keep only what of the frontier is on the lower convex hull, as the paper's text says
    #[arg(long)]
    hull: bool,
    /// Whole models to fit the correction of the blocks' sum to, where --table has none
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    models: u32,
    /// The most points of the frontier to measure whole, those that dominate most; 0 for all
    #[arg(long, default_value_t = 80, value_name = "N")]
    most_measured: usize,
    /// Take predictions for the frontier, too, and measure nothing whole
    #[arg(long)]
    no_measure: bool,
    /// Seed of all that is random
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Serialize)]
struct Document {
    frontier: Vec<Point>,
    baselines: Vec<Baseline>,
    /// Means over the baselines that the frontier reaches.
    mean_saving: Option<MeanSaving>,
    objectives: Vec<&'static str>,
    evaluated: usize,
    seconds: f64,
    out: String,
}

/// A point of the frontier, or a baseline.
#[derive(Serialize)]
pub struct Point {
    pub layers: String,
    pub d_model: u32,
    pub params: Params,
    pub latency_ms: f64,
    pub peak_bytes: u64,
    /// Where the search saw it.
    pub predicted_latency_ms: f64,
    /// The values of the objectives.
    pub values: Vec<f64>,
}

#[derive(Serialize)]
pub struct Params {
    pub decoder: u64,
    pub total: u64,
}

#[derive(Serialize)]
pub struct Baseline {
    #[serde(flatten)]
    pub point: Point,
    /// Shares that the frontier saves at equal proxy quality.
    pub latency_saving: Option<f64>,
    pub memory_saving: Option<f64>,
}

#[derive(Serialize, Clone, Copy)]
pub struct MeanSaving {
    pub latency: f64,
    pub memory: f64,
}

impl Pareto {
    fn plan(&self) -> Result<Plan> {
        let known = || OBJECTIVES.iter().map(|objective| objective.name).collect::<Vec<_>>().join(", ");
        let named = |name: &String| -> Result<&'static Objective> {
            let wrong = || Usage(format!("--objectives: found `{name}`; expected some of {}", known()));
            Ok(objective::find(name).ok_or_else(wrong)?)
        };
        let objectives = self.objectives.iter().map(named).collect::<Result<Vec<_>>>()?;
        if objectives.len() < 2 || (self.hull && objectives.len() > 3) {
            let expected = if self.hull { "two or three" } else { "two or more" };
            return Err(Usage(format!("--objectives: found {}; expected {expected}", objectives.len())).into());
        }
        let searchers = SEARCHERS.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
        let wrong = || Usage(format!("--searcher: found `{}`; expected one of {searchers}", self.searcher));
        Ok(Plan {
            searcher: searchers::find(&self.searcher).ok_or_else(wrong)?,
            sizes: Sizes { population: self.population as usize, ..Sizes::default() },
            iterations: self.iterations,
            seed: self.seed,
            batch: self.workload.workload().batch,
            objectives,
            max_latency_ms: self.max_latency_ms.unwrap_or(f64::INFINITY),
            max_peak_bytes: self.max_memory_mb.map_or(f64::INFINITY, |mb| mb * (1 << 20) as f64),
        })
    }

    /// What tells this search from others: a folder holds one.
    fn identity(&self, space: &Space) -> String {
        format!(
            "predictions 3; {} threads; space {} of {}; {:?}; {} {} {} {} {:?} {:?} {:?} {} {} {} {}\n",
            rayon::current_num_threads(),
            self.space,
            space.size(),
            self.workload.workload(),
            self.searcher,
            self.iterations,
            self.population,
            self.seed,
            self.objectives,
            self.max_latency_ms,
            self.max_memory_mb,
            self.measure_all,
            self.models,
            self.most_measured,
            self.no_measure
        )
    }
}

impl Action for Pareto {
    fn run(self, json: bool) -> Result<()> {
        let began = Instant::now();
        let space = input::space(&self.space)?;
        let plan = self.plan()?;
        let workload = self.workload.workload();
        let mut progress = Progress::default();
        let identity = self.identity(&space);
        check_folder(&self.out, &identity)?;
        let baselines = scaled(&space.baseline, &workload)?;
        let device = self.device(&space, &workload, &identity, &mut progress)?;

        let mut record = open_record(&self.out.join("candidates.jsonl"), &mut progress)?;
        let mut measured = open_record(&self.out.join("measured.jsonl"), &mut progress)?;
        let shown = std::cell::RefCell::new(&mut progress);
        let evaluated = search::search(
            &space,
            &plan,
            &mut record,
            &mut |model| device.cost(&workload.model(model)?),
            &mut |done, seen| {
                shown.borrow_mut().steps("searching", &format!("{seen} evaluated"), done.into(), self.iterations.into())
            },
        )?;
        progress.finish();
        let mut found = best(&evaluated, &plan, self.hull);
        if self.most_measured > 0 && found.len() > self.most_measured {
            let costs: Vec<Vec<f64>> = found.iter().map(|&i| evaluated[i].costs(&plan)).collect();
            let mut kept = most_dominant(&costs, self.most_measured);
            // The best quality, which dominates little, is what large baselines are compared with.
            let best = (0..found.len()).min_by(|&a, &b| costs[a][0].total_cmp(&costs[b][0])).unwrap_or(0);
            if !kept.contains(&best) {
                kept.pop();
                kept.push(best);
            }
            found = kept.into_iter().map(|i| found[i]).collect();
        }

        // What counts is measured whole: the frontier, and the baselines beside it, in a random order, so that a machine that
        // becomes slower meanwhile does so for both.
        let found: Vec<&Evaluated> = found.into_iter().map(|i| &evaluated[i]).collect();
        let models: Vec<&Model> = found.iter().map(|one| &one.model).chain(&baselines).collect();
        let mut order: Vec<usize> = (0..models.len()).collect();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(self.seed));
        let mut costs = vec![None; models.len()];
        for (done, at) in order.into_iter().enumerate() {
            progress.steps("measuring the frontier", "", done as u64, models.len() as u64);
            let model = workload.model(models[at])?;
            let key = model.to_toml();
            costs[at] = Some(match measured.get(&key) {
                _ if self.no_measure => device.cost(&model)?,
                Some(known) => known,
                None => {
                    let cost = Device::Whole(workload.clone()).cost(&model)?;
                    measured.add(&key, cost)?;
                    cost
                }
            });
        }
        progress.finish();
        let as_measured = models
            .into_iter()
            .zip(costs)
            .map(|(model, cost)| Evaluated::new(model.clone(), cost.expect("every model was measured"), &plan));
        let mut points: Vec<Evaluated> = as_measured.collect();
        let scaled = points.split_off(found.len());
        let mut points: Vec<(Evaluated, Prediction)> =
            points.into_iter().zip(&found).map(|(point, seen)| (point, seen.cost)).collect();
        // Measured anew, some points may turn out to be beyond the bounds, or worse than others.
        let found = points.len();
        points.retain(|(point, _)| plan.allows(&point.cost));
        if points.len() < found {
            let beyond = found - points.len();
            progress
                .say(&format!("{beyond} of {found} points were measured to be beyond the bounds, and are left out"));
        }
        if points.is_empty() {
            let message = "all that was found was measured to be beyond the bounds; expected higher ones";
            return Err(Usage(format!("--max-latency-ms, --max-memory-mb: {message}")).into());
        }
        let as_measured: Vec<Evaluated> = points.iter().map(|(point, _)| point.clone()).collect();
        let kept = best(&as_measured, &plan, self.hull);
        let mut frontier: Vec<(&Evaluated, Prediction)> = kept.iter().map(|&i| (&points[i].0, points[i].1)).collect();
        let decoder = |model: &Model| count(model, &Setting::of(model)).decoder_params();
        frontier.sort_by_key(|(one, _)| decoder(&one.model)); // in what is printed, in the figures and in model files
        let document = self.document(&frontier, &scaled, &plan, &evaluated, began);
        write_models(&self.out, &frontier)?;
        let (frontier, baselines, mean_saving) = (&document.frontier, &document.baselines, document.mean_saving);
        Page {
            space: &self.space,
            plan: &plan,
            workload: &workload,
            evaluated: &evaluated,
            frontier,
            baselines,
            mean_saving,
        }
        .write(&self.out)?;
        if json { output::json(&document) } else { output::text(&document.to_string()) }
    }
}

/// Tells what a model costs.
enum Device {
    /// By the sum of its blocks, corrected.
    Table(Box<Table>),
    /// By measuring it whole.
    Whole(Workload),
}

impl Device {
    fn cost(&self, model: &Model) -> lathe_search::Result<Prediction> {
        match self {
            Self::Table(table) => table.predict(model),
            Self::Whole(workload) => {
                let answer = workload::measure(model, workload, profiler::SECONDS, 0).map_err(|error| {
                    lathe_search::Error::data(model.layers(), format!("{error:#}"), "a model that can be measured")
                })?;
                let measured = answer.measured();
                Ok(Prediction { latency_ms: measured.latency_ms.median, peak_bytes: measured.peak_bytes as f64 })
            }
        }
    }
}

impl Pareto {
    /// How candidates are evaluated. What was measured for it is kept in the folder, so that a search that goes on
    /// predicts the same.
    fn device(&self, space: &Space, workload: &Workload, identity: &str, progress: &mut Progress) -> Result<Device> {
        // A search that cannot begin leaves nothing behind.
        let begin = || -> Result<()> {
            std::fs::create_dir_all(&self.out).with_context(|| self.out.display().to_string())?;
            write_text(&self.out.join(PLAN), identity)
        };
        if self.measure_all {
            begin()?;
            return Ok(Device::Whole(workload.clone()));
        }
        let path = self.out.join("table.json");
        let table = if path.exists() {
            Table::read(&path)?
        } else {
            let layer = |blocks: &str| Model::new(space.baseline.frame.clone(), notation::parse(blocks, &REGISTRY)?);
            let mut table = self.table.table(space, &[layer("sf")?], workload, progress)?.table;
            if table.calibration.is_none() && self.models > 0 && !self.no_measure {
                let models = self.models as usize;
                profiler::calibrate(&mut table, space, models, self.seed, &mut Pace::default(), progress)?;
            }
            begin()?;
            table.write(&path)?;
            table
        };
        Ok(Device::Table(Box::new(table.smoothed())))
    }

    fn document(
        &self,
        frontier: &[(&Evaluated, Prediction)],
        scaled: &[Evaluated],
        plan: &Plan,
        evaluated: &[Evaluated],
        began: Instant,
    ) -> Document {
        let points: Vec<&Evaluated> = frontier.iter().map(|(point, _)| *point).collect();
        let baselines: Vec<Baseline> = scaled
            .iter()
            .map(|one| {
                let saving = saving(&points, one, plan);
                let (latency_saving, memory_saving) = (saving.map(|s| s.latency), saving.map(|s| s.memory));
                Baseline { point: point(one, one.cost), latency_saving, memory_saving }
            })
            .collect();
        let reached: Vec<(f64, f64)> =
            baselines.iter().filter_map(|one| Some((one.latency_saving?, one.memory_saving?))).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| reached.iter().map(of).sum::<f64>() / reached.len() as f64;
        Document {
            frontier: frontier.iter().map(|(one, predicted)| point(one, *predicted)).collect(),
            mean_saving: (!reached.is_empty())
                .then(|| MeanSaving { latency: mean(|saving| saving.0), memory: mean(|saving| saving.1) }),
            baselines,
            objectives: plan.objectives.iter().map(|objective| objective.name).collect(),
            evaluated: evaluated.len(),
            seconds: began.elapsed().as_secs_f64(),
            out: self.out.display().to_string(),
        }
    }
}

fn point(one: &Evaluated, predicted: Prediction) -> Point {
    let counts = count(&one.model, &Setting::of(&one.model));
    Point {
        layers: one.model.layers(),
        d_model: one.model.frame.d_model,
        params: Params { decoder: counts.decoder_params(), total: counts.total_params() },
        latency_ms: one.cost.latency_ms,
        peak_bytes: one.cost.peak_bytes as u64,
        predicted_latency_ms: predicted.latency_ms,
        values: one.values.clone(),
    }
}

/// The baseline with 1 to 16 layers: what people do without a search.
fn scaled(baseline: &Model, workload: &Workload) -> Result<Vec<Model>> {
    let model = |layers: usize| -> Result<Model> {
        let blocks = notation::parse(&format!("(sf)x{layers}"), &REGISTRY)?;
        let model = Model::new(baseline.frame.clone(), blocks)?;
        workload.model(&model)?;
        Ok(model)
    };
    (1..=16).map(model).collect()
}

/// The settings of the search that a folder holds.
const PLAN: &str = "plan.txt";

/// An error where a folder holds something else than this search.
fn check_folder(out: &Path, identity: &str) -> Result<()> {
    if is_free(out)? {
        return Ok(());
    }
    let found = match std::fs::read_to_string(out.join(PLAN)) {
        Ok(found) if found == identity => return Ok(()),
        Ok(_) => "a search with other settings; expected a new folder, or the settings that it began with",
        Err(_) => "other files; expected a new or empty folder",
    };
    Err(Usage(format!("--out {}: found {found}", out.display())).into())
}

fn open_record(path: &Path, progress: &mut Progress) -> Result<Record> {
    Ok(Record::open(path, &mut |warning| progress.say(&format!("warning: {warning}")))?)
}

fn write_text(path: &Path, text: &str) -> Result<()> {
    Ok(write_aside(path, |out| out.write_all(text.as_bytes()))?)
}

/// The model file of a point of the frontier.
pub fn point_file(out: &Path, i: usize) -> PathBuf {
    out.join("frontier").join(format!("{:03}.toml", i + 1))
}

/// A model file per point, in their order.
fn write_models(out: &Path, frontier: &[(&Evaluated, Prediction)]) -> Result<()> {
    let folder = out.join("frontier");
    let _ = std::fs::remove_dir_all(&folder); // of an earlier end of the same search
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for (i, (one, _)) in frontier.iter().enumerate() {
        write_text(&point_file(out, i), &one.model.to_toml())?;
    }
    Ok(())
}

impl std::fmt::Display for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const MOST: usize = 24;
        let mut rows = Rows::new(&["decoder", "width", "ms", "MB", "layers"], 0);
        let step = self.frontier.len().div_ceil(MOST).max(1);
        let megabytes = |bytes: u64| format!("{:.0}", bytes as f64 / (1 << 20) as f64);
        for point in self.frontier.iter().step_by(step) {
            let short: String = point.layers.chars().take(60).collect();
            let layers = if short.len() < point.layers.len() { format!("{short}...") } else { short };
            rows.row([
                output::short(point.params.decoder.into()),
                point.d_model.to_string(),
                format!("{:.2}", point.latency_ms),
                megabytes(point.peak_bytes),
                format!("{layers:<63}"),
            ]);
        }
        write!(f, "{rows}")?;
        if step > 1 {
            writeln!(f, "{}one in {step} of {} points{}", DIM.render(), self.frontier.len(), DIM.render_reset())?;
        }
        writeln!(f, "\nAgainst the baseline with fewer layers, at equal proxy quality or better:")?;
        let mut rows = Rows::new(&["layers", "decoder", "ms", "MB", "latency saved", "memory saved"], 1);
        let percent = |share: Option<f64>| share.map_or("-".to_string(), |share| format!("{:.1} %", 100.0 * share));
        for Baseline { point, latency_saving, memory_saving } in &self.baselines {
            rows.row([
                point.layers.clone(),
                output::short(point.params.decoder.into()),
                format!("{:.2}", point.latency_ms),
                megabytes(point.peak_bytes),
                percent(*latency_saving),
                percent(*memory_saving),
            ]);
        }
        write!(f, "{rows}")?;
        if let Some(MeanSaving { latency, memory }) = self.mean_saving {
            writeln!(f, "mean: {} of latency, {} of memory", percent(Some(latency)), percent(Some(memory)))?;
        }
        writeln!(
            f,
            "\n{}{} evaluated, {} on the frontier{}, {:.0} s. {}/report.html shows them",
            BOLD.render(),
            self.evaluated,
            self.frontier.len(),
            BOLD.render_reset(),
            self.seconds,
            self.out
        )
    }
}
