//! The stages of an optimisation.

use super::options;
use super::plan::OptimizePlan;
use crate::event::steps;
use crate::input::{read_json, write_json, write_text};
use crate::optimize::pair;
use crate::profiler::TableSource;
use crate::{Context, Error, Event, Result, Watch};
use lathe_core::{Block, Model, Registry, Space, Spec, notation};
use lathe_search::differentiable::costs;
use lathe_search::differentiable::latency::{CostTable, Target};
use lathe_search::differentiable::projection::project;
use lathe_search::differentiable::run as searching;
use lathe_search::differentiable::settings::{Cost, Preset, SearchSettings};
use lathe_search::differentiable::task::{self, Task};
use lathe_search::profile::{Part, ProfileTable};
use lathe_train::data::Source;
use lathe_train::run;
use lathe_train::settings::Settings;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file of the plan.
pub const PLAN: &str = "plan.json";
const TABLE: &str = "table.json";
/// The folder of the baseline.
pub const BASELINE: &str = "baseline";
/// The folder of what was found.
pub const FOUND: &str = "found";
/// The folder of what it is compared with.
pub const COMPARED: &str = "compare";

/// An optimisation at work.
pub struct OptimizeJob {
    /// Its folder.
    pub out: PathBuf,
    /// What was decided.
    pub plan: OptimizePlan,
    /// The model to make faster.
    pub baseline: Model,
    /// The blocks and backbones there are.
    pub registry: Registry,
    pub(super) space: Space,
    pub(super) slots: Vec<Vec<Block>>,
}

/// An architecture that was measured before anything was trained.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Try {
    /// The architecture.
    pub layers: String,
    /// The latency that the table was asked for, as a share of the baseline's.
    pub asked: f64,
    /// What the table says.
    pub estimated: f64,
    /// What was measured, whole and beside the baseline.
    pub measured: f64,
}

/// What the search gave, after measuring it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Searched {
    /// The architecture.
    pub layers: String,
    /// The target as a share of the baseline's latency.
    pub target: f64,
    /// What its blocks sum up to, microseconds.
    pub estimated_us: f64,
    /// Everything that was measured on the way.
    pub tries: Vec<Try>,
    /// What the search itself gave, by the table alone.
    pub estimated: f64,
}

/// How often a training is evaluated; the best of them counts.
const EVALUATIONS: u32 = 8;
/// Steps of the search, as a share of a training's.
const SEARCH_SHARE: f64 = 0.6;
/// The search's learning rate, as a share of a training's.
const SEARCH_RATE: f64 = 0.5;
/// How close to the target a measurement has to come from below, before a slower and better model is tried.
const CLOSE: f64 = 0.95;
/// The most architectures that are measured before one is chosen.
const MOST_TRIES: usize = 6;
/// How long architectures are measured before they are trained, and those compared with after it.
pub(super) const CHOOSING: Duration = Duration::from_secs(3);

impl OptimizeJob {
    /// Opens a job whose plan is made.
    pub fn new(out: &Path, plan: OptimizePlan, registry: &Registry) -> Result<Self> {
        let baseline = Spec::from_toml(&plan.model, registry)?.model(registry)?;
        let options = options::options(&baseline, plan.iso_parameter, registry);
        let space = Space::from_toml(&options::space_file(&baseline, &options), registry)?;
        let slots = vec![options; baseline.blocks.len()];
        Ok(Self { out: out.into(), plan, baseline, registry: *registry, space, slots })
    }

    /// What each block costs here.
    pub fn profile(&self, context: &Context<'_>, watch: Watch<'_>) -> Result<ProfileTable> {
        let path = self.out.join(TABLE);
        if path.exists() {
            return Ok(ProfileTable::read(&path)?);
        }
        let baseline = std::slice::from_ref(&self.baseline);
        let source = TableSource::default();
        let mut table = source.table(context, &self.space, baseline, &self.plan.workload, watch)?.table;
        // The cache may know of more than this job needs.
        let parts = Part::of_space(&self.space, &self.plan.workload)?;
        table.blocks.retain(|entry| parts.iter().any(|part| part.name == entry.name));
        Ok(table)
    }

    /// Writes down what was decided, once it is known that the target can be met: a job that cannot begin leaves nothing.
    pub fn begin(&self, table: &ProfileTable, target: f64) -> Result<()> {
        let [plan, space, table_path] = [PLAN, "space.toml", TABLE].map(|name| self.out.join(name));
        if !plan.exists() {
            task::check_target(&self.task(table, target)?)?;
            std::fs::create_dir_all(&self.out).map_err(Error::io(&self.out))?;
            write_json(&plan, &self.plan)?;
        }
        if !table_path.exists() {
            let text = options::space_file(&self.baseline, &self.slots[0]);
            write_text(&space, &text)?;
            table.write(&table_path)?;
        }
        Ok(())
    }

    /// What can be found wrong with the text and the settings of trainings before anything is measured.
    pub fn check(&self) -> Result<()> {
        self.training(&self.out).check()?;
        for name in [&self.plan.data, &self.plan.valid].into_iter().filter(|name| !name.is_empty()) {
            Source::open(name)?;
        }
        Ok(())
    }

    /// The costs of a search: microseconds of each option, and of what stands around them.
    pub(super) fn costs(&self, table: &ProfileTable) -> Result<CostTable> {
        let frame = self.plan.workload.model(&self.baseline)?.frame;
        let blocks = self.slots[0].iter().chain(&self.baseline.blocks).copied();
        let costs = costs::Costs::of_profile(table, Cost::Latency, blocks, &frame)?;
        Ok(costs.table(&frame, &self.slots, &self.baseline.blocks, true)?)
    }

    /// The sum of the baseline's blocks and frame.
    pub fn latency_ms(&self, table: &ProfileTable) -> Result<f64> {
        Ok(self.costs(table)?.baseline / 1000.0)
    }

    /// The settings of a training in a folder.
    pub(super) fn training(&self, out: &Path) -> Settings {
        let plan = &self.plan;
        Settings {
            data: plan.data.clone(),
            valid: plan.valid.clone(),
            tokenizer: plan.tokenizer.clone(),
            steps: plan.steps,
            eval_every: plan.steps.div_ceil(EVALUATIONS),
            patience: EVALUATIONS, // never stops, and gives the best
            batch: plan.batch,
            lr: plan.lr,
            seed: plan.seed,
            precision: plan.precision.clone(),
            eval_tokens: plan.eval_tokens,
            out: out.display().to_string(),
            ..Settings::default()
        }
    }

    /// The differentiable search.
    pub fn search(&self, table: &ProfileTable, target: f64, watch: Watch<'_>) -> Result<searching::Outcome> {
        let folder = self.out.join("search");
        let mut watch = |event: searching::Event<'_>| match event {
            searching::Event::Preparing(what, done, total) => watch(Event::Bytes { what, done, total }),
            searching::Event::Step(done, total, _) => watch(steps("searching", done as usize, total as usize)),
            searching::Event::Round(_, architecture, _) => watch(Event::Note(&architecture.layers)),
            searching::Event::Warning(warning) => watch(Event::Warning(warning)),
        };
        if folder.join("search.json").exists() {
            return Ok(searching::resume(&folder, &self.registry, &mut watch)?);
        }
        Ok(searching::begin(&self.task(table, target)?, &folder, &self.registry, &mut watch)?)
    }

    fn task(&self, table: &ProfileTable, target: f64) -> Result<Task> {
        let ratio = Target::Ratio(target);
        Ok(Task {
            frame: self.baseline.frame.clone(),
            slots: self.slots.clone(),
            baseline: self.baseline.blocks.clone(),
            table: self.costs(table)?,
            // As the papers do: fresh weights, and options that are equal at first.
            training: Settings {
                steps: share_of(self.plan.steps, SEARCH_SHARE),
                lr: SEARCH_RATE * self.plan.lr,
                balance: 0.0,
                ..self.training(Path::new(""))
            },
            // The papers' rate moves the architecture little in so few steps.
            settings: SearchSettings { arch_lr: 0.1, ..SearchSettings::preset(Preset::Planer, Some(ratio)) },
            options: None,
        })
    }

    /// The baseline's frame with other layers.
    pub fn model(&self, layers: &str) -> Result<Model> {
        Ok(Model::new(self.baseline.frame.clone(), notation::parse(layers, &self.registry)?)?)
    }

    /// Measures what the search found, whole and beside the baseline. Where the table promised too much or too little, it
    /// is asked again for the most probable architecture of a corrected latency.
    pub fn choose(
        &self,
        table: &ProfileTable,
        found: &searching::Outcome,
        mut target: f64,
        watch: Watch<'_>,
    ) -> Result<Searched> {
        let path = self.out.join("searched.json");
        if path.exists() {
            return read_json(&path);
        }
        let costs = self.costs(table)?;
        let log_p: Vec<Vec<f64>> =
            found.probabilities.iter().map(|slot| slot.iter().map(|(_, p)| p.max(1e-300).ln()).collect()).collect();
        let mut tries: Vec<Try> = Vec::new();
        let mut next = Some((found.layers.clone(), target, found.estimate));
        while let Some((layers, asked, estimated)) = next.take() {
            let (done, total) = (tries.len() as u64, MOST_TRIES as u64);
            watch(Event::Steps { what: "measuring what was found", note: &layers, done, total });
            let pair = pair::measure(&self.baseline, &self.model(&layers)?, &self.plan.workload, CHOOSING)?;
            let measured = pair.share;
            target = self.plan.target.ratio(pair.first_ms.median); // milliseconds are those of a clock, not of a sum
            tries.push(Try { layers, asked, estimated, measured });
            let close = measured <= target && measured >= CLOSE * target;
            if close || tries.len() == MOST_TRIES {
                break;
            }
            // What to ask for, if the table errs here as it did there.
            let asked = 0.985 * target * estimated / measured;
            let Some(choice) = within(&log_p, &costs, asked * costs.baseline) else { break };
            let blocks: Vec<Block> = choice.iter().zip(&self.slots).map(|(&i, slot)| slot[i]).collect();
            let layers = notation::print(&blocks);
            if !tries.iter().any(|one| one.layers == layers) {
                next = Some((layers, asked, costs.of(&choice) / costs.baseline));
            }
        }
        watch(Event::Done);
        // Of those that meet the target the one that comes closest; where none does, the fastest.
        let meets = tries.iter().filter(|one| one.measured <= target);
        let best = meets.max_by(|a, b| a.measured.total_cmp(&b.measured));
        let fastest = || tries.iter().min_by(|a, b| a.measured.total_cmp(&b.measured));
        let best =
            best.or_else(fastest).ok_or_else(|| Error::data("search", "nothing measured", "at least one"))?.clone();
        let estimated_us = best.estimated * costs.baseline;
        let searched = Searched { layers: best.layers, target, estimated_us, tries, estimated: found.estimate };
        write_json(&path, &searched)?;
        Ok(searched)
    }

    /// Whether two blocks are the same, however they are written.
    pub(super) fn same(&self, a: &Block, b: &Block) -> bool {
        let frame = &self.baseline.frame;
        a.kind.resolve(a, frame) == b.kind.resolve(b, frame)
    }

    /// Trains an architecture with the baseline's settings; one that is trained already returns its outcome again.
    pub fn train(&self, name: &str, layers: &str, watch: Watch<'_>) -> Result<run::Outcome> {
        let settings = self.training(&self.out.join(name));
        self.train_as(name, settings, layers, name != BASELINE, &mut |event| watch(Event::Training(event)))
    }

    /// The same with settings of its own; `inherit` where it begins with the search's weights, should the plan say so.
    pub(super) fn train_as(
        &self,
        name: &str,
        settings: Settings,
        layers: &str,
        inherit: bool,
        watch: run::Watch<'_>,
    ) -> Result<run::Outcome> {
        let folder = Path::new(&settings.out);
        if folder.join(run::SETTINGS).exists() {
            return Ok(run::resume(folder, &self.registry, watch)?);
        }
        let model = self.model(layers)?;
        let init = match self.plan.inherit && inherit {
            true => self.inherit(name, &model)?.display().to_string(),
            false => String::new(),
        };
        Ok(run::begin(&Settings { init, ..settings }, &model.spec(), &self.registry, watch)?)
    }

    /// The estimate of an architecture, as a share of the baseline's.
    pub fn estimate(&self, table: &ProfileTable, layers: &str) -> Result<f64> {
        let costs = self.costs(table)?;
        Ok(self.sum(&costs, &self.model(layers)?.blocks) / costs.baseline)
    }

    /// What blocks that are options cost together, with the frame.
    pub(super) fn sum(&self, costs: &CostTable, blocks: &[Block]) -> f64 {
        let of = |block: &Block| {
            let at = self.slots[0].iter().position(|option| self.same(option, block));
            at.map_or(f64::INFINITY, |at| costs.slots[0][at])
        };
        costs.fixed + blocks.iter().map(of).sum::<f64>()
    }
}

/// So many of the steps, at least one.
pub(super) fn share_of(steps: u32, share: f64) -> u32 {
    ((f64::from(steps) * share) as u32).max(1)
}

/// The most probable architecture that costs at most `limit` and does not leave much of it unused: where the most
/// probable one does, every microsecond counts for it, just as much as it takes to come close.
fn within(log_p: &[Vec<f64>], costs: &CostTable, limit: f64) -> Option<Vec<usize>> {
    let with = |weight: f64| {
        let cost =
            |(log_p, us): (&Vec<f64>, &Vec<f64>)| log_p.iter().zip(us).map(|(p, us)| p + weight * us / limit).collect();
        let valued: Vec<Vec<f64>> = log_p.iter().zip(&costs.slots).map(cost).collect();
        Some(project(&valued, costs, limit)?.choice)
    };
    let close = |choice: &Vec<usize>| costs.of(choice) >= CLOSE * limit;
    let plain = with(0.0)?;
    if close(&plain) {
        return Some(plain);
    }
    let (mut low, mut high) = (0.0, 1.0);
    while !close(&with(high)?) {
        (low, high) = (high, 2.0 * high);
        if high > 1e6 {
            return with(high); // nothing comes closer
        }
    }
    for _ in 0..12 {
        let middle = (low + high) / 2.0;
        if close(&with(middle)?) { high = middle } else { low = middle }
    }
    with(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_used() {
        // Two slots of three options; the most probable, the cheapest, leaves most of the limit unused.
        let log_p = vec![vec![0.8f64.ln(), 0.15f64.ln(), 0.05f64.ln()]; 2];
        let costs = CostTable { slots: vec![vec![0.0, 40.0, 50.0]; 2], fixed: 10.0, baseline: 110.0 };
        assert_eq!(within(&log_p, &costs, 15.0), Some(vec![0, 0]));
        // 10 + 40 + 40 is close to 91, and more probable than what comes closer.
        assert_eq!(within(&log_p, &costs, 91.0), Some(vec![1, 1]));
        assert_eq!(within(&log_p, &costs, 110.0), Some(vec![2, 2]));
        assert_eq!(within(&log_p, &costs, 5.0), None);
    }
}
