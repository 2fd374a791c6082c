//! The frontier of quality, latency and memory, as LTS searches for it.
//!
//! The folder of a search holds `plan.txt` (its settings), `table.json` (what candidates are predicted with),
//! `candidates.jsonl` and `measured.jsonl` (the records), and in the end a model file per point in `frontier/`, and
//! the page, the pictures and the figures.

mod device;
mod frontier;
mod outcome;

pub use outcome::{Baseline, MeanSaving, Outcome, Params, Point, point_file};

use crate::pages::pareto::Page;
use crate::profiler::TableSource;
use crate::store::{Files, open_record};
use crate::{Context, Error, Event, Result, Watch, input};
use device::Device;
use lathe_core::{Model, Registry, Space, notation};
use lathe_model::design;
use lathe_model::folder::is_free;
use lathe_search::objective::{self, OBJECTIVES, Objective};
use lathe_search::search::{self, Evaluated, SearchPlan};
use lathe_search::searchers::{self, SEARCHERS, Sizes};
use lathe_search::workload::Workload;
use std::path::PathBuf;
use std::time::Instant;

/// What to search for, and how.
#[derive(Debug, Clone)]
pub struct Request {
    /// A space, by file or shipped name.
    pub space: String,
    /// The setting to be fast in.
    pub workload: Workload,
    /// Where the table comes from.
    pub table: TableSource,
    /// The folder of the search.
    pub out: PathBuf,
    /// What is wanted, quality first: names of [`OBJECTIVES`].
    pub objectives: Vec<String>,
    /// Most milliseconds of a pass.
    pub max_latency_ms: Option<f64>,
    /// Most memory.
    pub max_memory_mb: Option<f64>,
    /// Rounds after the first, random one.
    pub iterations: u32,
    /// Architectures to begin with.
    pub population: u32,
    /// Who proposes: a name of [`SEARCHERS`].
    pub searcher: String,
    /// Whether every candidate is measured whole instead of predicted.
    pub measure_all: bool,
    /// Whether only what of the frontier is on the lower convex hull is kept, and gives parents to LTS's search.
    pub hull: bool,
    /// Whole models to fit the correction of sums to, where the table has none.
    pub models: u32,
    /// The most points of the frontier to measure whole; 0 for all.
    pub most_measured: usize,
    /// Whether predictions are taken for the frontier, too.
    pub no_measure: bool,
    /// Of all that is random.
    pub seed: u64,
}

/// Layer-scaled baselines: of 1 to so many layers.
const MOST_LAYERS: usize = 16;

/// Searches; a search that was killed goes on, and ends with the same frontier.
pub fn run(context: &Context<'_>, request: &Request, watch: Watch<'_>) -> Result<Outcome> {
    let began = Instant::now();
    let space = input::space(&request.space, context.registry)?;
    let plan = request.plan()?;
    let identity = request.identity(&space);
    request.check_folder(&identity)?;
    let baselines = scaled(&space.baseline, &request.workload, context.registry)?;
    let device = Device::open(context, request, &space, &identity, watch)?;

    let store = Files::new(&request.out);
    let mut open = |name| open_record(&store, name, context.registry, &mut |warning| watch(Event::Warning(warning)));
    let (mut candidates, mut measured) = (open("candidates.jsonl")?, open("measured.jsonl")?);
    let evaluated = search::search(
        &space,
        &plan,
        &mut candidates,
        &mut |model| device.cost(&request.workload.model(model)?),
        &mut |done, seen| {
            let note = format!("{seen} evaluated");
            watch(Event::Steps { what: "searching", note: &note, done: done.into(), total: request.iterations.into() });
        },
    )?;
    watch(Event::Done);
    let found = frontier::most_dominant_of(&evaluated, &plan, request);
    let models: Vec<&Model> = found.iter().map(|one| &one.model).chain(&baselines).collect();
    let costs = frontier::measure(&device, request, &models, &mut measured, watch)?;
    let as_measured = models.into_iter().zip(costs).map(|(model, cost)| Evaluated::new(model.clone(), cost, &plan));
    let mut points: Vec<Evaluated> = as_measured.collect();
    let scaled = points.split_off(found.len());
    let predicted = found.iter().map(|seen| seen.cost);
    let points = frontier::keep(points.into_iter().zip(predicted).collect(), &plan, request.hull, watch)?;
    let outcome = Outcome::new(&points, &scaled, &plan, evaluated.len(), &request.out, began);
    outcome::write_models(&request.out, &points)?;
    Page {
        space: &request.space,
        plan: &plan,
        workload: &request.workload,
        evaluated: &evaluated,
        frontier: &outcome.frontier,
        baselines: &outcome.baselines,
        mean_saving: outcome.mean_saving,
    }
    .write(&request.out)?;
    Ok(outcome)
}

impl Request {
    fn plan(&self) -> Result<SearchPlan> {
        let named = |name: &String| -> Result<&'static Objective> {
            let known = || OBJECTIVES.iter().map(|objective| objective.name).collect::<Vec<_>>().join(", ");
            let wrong = || Error::setting("objectives", format!("`{name}`"), format!("some of {}", known()));
            objective::find(name).ok_or_else(wrong)
        };
        let objectives = self.objectives.iter().map(named).collect::<Result<Vec<_>>>()?;
        if objectives.len() < 2 || (self.hull && objectives.len() > 3) {
            let expected = if self.hull { "two or three" } else { "two or more" };
            return Err(Error::setting("objectives", objectives.len(), expected));
        }
        let searchers = || SEARCHERS.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
        let wrong = || Error::setting("searcher", format!("`{}`", self.searcher), format!("one of {}", searchers()));
        Ok(SearchPlan {
            searcher: searchers::find(&self.searcher).ok_or_else(wrong)?,
            sizes: Sizes { population: self.population as usize, hull: self.hull, ..Sizes::default() },
            iterations: self.iterations,
            seed: self.seed,
            batch: self.workload.batch,
            objectives,
            max_latency_ms: self.max_latency_ms.unwrap_or(f64::INFINITY),
            max_peak_bytes: self.max_memory_mb.map_or(f64::INFINITY, |mb| mb * (1 << 20) as f64),
        })
    }

    /// What tells this search from others: a folder holds one.
    fn identity(&self, space: &Space) -> String {
        format!(
            "predictions 3, searches 2; {} threads; space {} of {}; {:?}; {} {} {} {} {:?} {:?} {:?} {} {} {} {} {}\n",
            rayon::current_num_threads(),
            self.space,
            space.size(),
            self.workload,
            self.searcher,
            self.iterations,
            self.population,
            self.seed,
            self.objectives,
            self.max_latency_ms,
            self.max_memory_mb,
            self.measure_all,
            self.hull,
            self.models,
            self.most_measured,
            self.no_measure
        )
    }

    /// An error where the folder holds something else than this search.
    fn check_folder(&self, identity: &str) -> Result<()> {
        if is_free(&self.out)? {
            return Ok(());
        }
        let (found, expected) = match std::fs::read_to_string(self.out.join(PLAN)) {
            Ok(found) if found == identity => return Ok(()),
            Ok(_) => ("a search with other settings", "a new folder, or the settings that it began with"),
            Err(_) => ("other files", "a new or empty folder"),
        };
        Err(Error::setting(format!("out {}", self.out.display()), found, expected))
    }

    /// Begins the folder. A search that cannot begin leaves nothing behind.
    fn begin(&self, identity: &str) -> Result<()> {
        std::fs::create_dir_all(&self.out).map_err(Error::io(&self.out))?;
        input::write_text(&self.out.join(PLAN), identity)
    }
}

/// The settings of the search that a folder holds.
const PLAN: &str = "plan.txt";

/// The baseline with fewer layers and with more: what people do without a search. An encoder-decoder has no such line.
fn scaled(baseline: &Model, workload: &Workload, registry: &Registry) -> Result<Vec<Model>> {
    let model = |layers: usize| -> Result<Model> {
        let blocks = notation::parse(&format!("({})x{layers}", design::layer()), registry)?;
        let model = Model::new(baseline.frame.clone(), blocks)?;
        workload.model(&model)?;
        Ok(model)
    };
    let most = if baseline.frame.source_len().is_some() { 0 } else { MOST_LAYERS };
    (1..=most).map(model).collect()
}
