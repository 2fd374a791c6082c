//! The stages of an optimisation.

use super::options;
use super::pair::{self, Pair};
use super::plan::Plan;
use crate::input::read_json;
use crate::profiler::TableArgs;
use crate::progress::Progress;
use crate::verbs::train::Screen;
use anyhow::{Context, Result};
use lathe_core::{Block, Model, Positions, Sampling, Space, Spec, notation};
use lathe_model::folder::write_aside;
use lathe_model::{REGISTRY, design};
use lathe_search::differentiable::costs;
use lathe_search::differentiable::latency::{Table as Costs, Target};
use lathe_search::differentiable::projection::project;
use lathe_search::differentiable::run::{self as searching, Event};
use lathe_search::differentiable::settings::{Cost, Preset, SearchSettings};
use lathe_search::differentiable::task::{self, Task};
use lathe_search::profile::{Part, Table};
use lathe_search::workload::{Memory, Mode, Workload};
use lathe_train::data::Source;
use lathe_train::run;
use lathe_train::settings::Settings;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
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
pub struct Job {
    /// Its folder.
    pub out: PathBuf,
    /// What was decided.
    pub plan: Plan,
    /// The model to make faster.
    pub baseline: Model,
    space: Space,
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

/// An architecture in the race.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Runner {
    /// Where it comes from.
    pub name: String,
    /// The architecture.
    pub layers: String,
    /// Its measured latency as a share of the baseline's.
    pub measured: f64,
    /// The loss on the text to validate on after a short training; none for what was too slow to run.
    pub loss: Option<f64>,
    /// What that training took.
    pub seconds: f64,
}

/// The architecture to train, and how it was come by.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Chosen {
    /// The architecture.
    pub layers: String,
    /// Where it comes from.
    pub name: String,
    /// The target as a share of the baseline's latency.
    pub target: f64,
    /// Everything that was measured on the way to what the search gave.
    pub tries: Vec<Try>,
    /// What the search itself gave, by the table alone.
    pub estimated: f64,
    /// Who else was tried.
    pub race: Vec<Runner>,
    /// Steps of each training in the race.
    pub race_steps: u32,
}

/// One setting of the comparison over batch sizes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Sweep {
    pub batch: u32,
    pub memory: Memory,
    pub pair: Pair,
}

/// Another way to a faster model.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Compared {
    pub name: String,
    pub layers: String,
    pub pair: Pair,
}

/// What the trained models take.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// Baseline and found model in the setting asked for.
    pub pair: Pair,
    /// Over batch sizes.
    pub sweep: Vec<Sweep>,
}

/// What the search found, in the race.
const SEARCHED: &str = "searched";
/// How often a training is evaluated; the best of them counts.
const EVALUATIONS: u32 = 8;
/// Steps of the search and of each training in the race, as shares of a whole training's.
const SEARCH_SHARE: f64 = 0.6;
const RACE_SHARE: f64 = 0.25;
/// The search's learning rate, as a share of a training's.
const SEARCH_RATE: f64 = 0.5;
/// How close to the target a measurement has to come from below, before a slower and better model is tried.
const CLOSE: f64 = 0.95;
/// The most architectures that are measured before one is chosen.
const MOST_TRIES: usize = 6;
const CHOOSING: Duration = Duration::from_secs(3);
const MEASURING: Duration = Duration::from_secs(8);
const SWEEPING: Duration = Duration::from_millis(1200);
const BATCHES: [u32; 3] = [1, 4, 16];

impl Job {
    /// Opens a job whose plan is made.
    pub fn new(out: &Path, plan: Plan) -> Result<Self> {
        let baseline = Spec::from_toml(&plan.model)?.model(&REGISTRY)?;
        let options = options::options(&baseline, plan.iso_parameter)?;
        let space = Space::from_toml(&options::space_file(&baseline, &options), &REGISTRY)?;
        let slots = vec![options; baseline.blocks.len()];
        Ok(Self { out: out.into(), plan, baseline, space, slots })
    }

    /// What each block costs here.
    pub fn profile(&self, progress: &mut Progress) -> Result<Table> {
        let path = self.out.join(TABLE);
        if path.exists() {
            return Ok(Table::read(&path)?);
        }
        let profiled = TableArgs::default().table(
            &self.space,
            std::slice::from_ref(&self.baseline),
            &self.plan.workload,
            progress,
        )?;
        let mut table = profiled.table;
        // The cache may know of more than this job needs.
        let parts = Part::of_space(&self.space, &self.plan.workload)?;
        table.blocks.retain(|entry| parts.iter().any(|part| part.name == entry.name));
        Ok(table)
    }

    /// Writes down what was decided, once it is known that the target can be met: a job that cannot begin leaves nothing.
    pub fn begin(&self, table: &Table, target: f64) -> Result<()> {
        let [plan, space, table_path] = [PLAN, "space.toml", TABLE].map(|name| self.out.join(name));
        if !plan.exists() {
            task::check_target(&self.task(table, target)?)?;
            std::fs::create_dir_all(&self.out).with_context(|| self.out.display().to_string())?;
            write_json(&plan, &self.plan)?;
        }
        if !table_path.exists() {
            let text = options::space_file(&self.baseline, &self.slots[0]);
            write_aside(&space, |out| out.write_all(text.as_bytes()))?;
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
    fn costs(&self, table: &Table) -> Result<Costs> {
        let frame = self.plan.workload.model(&self.baseline)?.frame;
        let blocks = self.slots[0].iter().chain(&self.baseline.blocks).copied();
        let costs = costs::Costs::of_profile(table, Cost::Latency, blocks, &frame)?;
        Ok(costs.table(&frame, &self.slots, &self.baseline.blocks, true)?)
    }

    /// The sum of the baseline's blocks and frame.
    pub fn latency_ms(&self, table: &Table) -> Result<f64> {
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
    pub fn search(&self, table: &Table, target: f64, progress: &mut Progress) -> Result<searching::Outcome> {
        let folder = self.out.join("search");
        let mut watch = |event: Event<'_>| match event {
            Event::Preparing(what, done, total) => progress.bytes(what, done, total),
            Event::Step(done, total, _) => progress.steps("searching", "", done.into(), total.into()),
            Event::Round(_, architecture, _) => progress.note(&architecture.layers),
            Event::Warning(warning) => progress.say(&format!("warning: {warning}")),
        };
        if folder.join("search.json").exists() {
            return Ok(searching::resume(&folder, &mut watch)?);
        }
        Ok(searching::begin(&self.task(table, target)?, &folder, &mut watch)?)
    }

    fn task(&self, table: &Table, target: f64) -> Result<Task> {
        let ratio = Target::Ratio(target);
        Ok(Task {
            frame: self.baseline.frame.clone(),
            slots: self.slots.clone(),
            baseline: self.baseline.blocks.clone(),
            table: self.costs(table)?,
            // A super net that learns from scratch learns late what attention is good for, later than a run as short as
            // these lasts. So it begins with the trained baseline, whose blocks are also the most probable at first.
            training: Settings {
                steps: share_of(self.plan.steps, SEARCH_SHARE),
                init: self.out.join(BASELINE).display().to_string(),
                lr: SEARCH_RATE * self.plan.lr,
                balance: 0.0,
                ..self.training(Path::new(""))
            },
            // The papers' rate moves the architecture little in so few steps.
            settings: SearchSettings {
                arch_lr: 0.1,
                arch_off: 0.2,
                baseline_share: 0.5,
                ..SearchSettings::preset(Preset::Planer, Some(ratio))
            },
        })
    }

    fn model(&self, layers: &str) -> Result<Model> {
        Ok(Model::new(self.baseline.frame.clone(), notation::parse(layers, &REGISTRY)?)?)
    }

    /// Measures what the search found, whole and beside the baseline. Where the table promised too much or too little, it
    /// is asked again for the most probable architecture of a corrected latency.
    pub fn choose(
        &self,
        table: &Table,
        found: &searching::Outcome,
        mut target: f64,
        progress: &mut Progress,
    ) -> Result<Searched> {
        let path = self.out.join("searched.json");
        if path.exists() {
            return read_json(&path);
        }
        let costs = self.costs(table)?;
        let log_p: Vec<Vec<f64>> =
            found.probabilities.iter().map(|slot| slot.iter().map(|(_, p)| p.max(1e-300).ln()).collect()).collect();
        let mut tries: Vec<Try> = Vec::new();
        let mut next = Some((found.layers.clone(), target, found.estimated_latency));
        while let Some((layers, asked, estimated)) = next.take() {
            progress.steps("measuring what was found", &layers, tries.len() as u64, MOST_TRIES as u64);
            let pair = pair::measure(&self.baseline, &self.model(&layers)?, &self.plan.workload, CHOOSING)?;
            let measured = pair.second_ms.median / pair.first_ms.median;
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
        progress.finish();
        // Of those that meet the target the one that comes closest; where none does, the fastest.
        let meets = tries.iter().filter(|one| one.measured <= target);
        let best = meets.max_by(|a, b| a.measured.total_cmp(&b.measured));
        let fastest = || tries.iter().min_by(|a, b| a.measured.total_cmp(&b.measured));
        let best = best.or_else(fastest).context("nothing was measured")?.clone();
        let estimated_us = best.estimated * costs.baseline;
        let searched =
            Searched { layers: best.layers, target, estimated_us, tries, estimated: found.estimated_latency };
        write_json(&path, &searched)?;
        Ok(searched)
    }

    /// A short training of what the search gave and of plain ways to the same latency; the best of those that meet the target
    /// is to be trained. A search as short as these is a guess, and a guess is worth a test.
    pub fn race(&self, table: &Table, searched: &Searched, progress: &mut Progress) -> Result<Chosen> {
        let path = self.out.join("chosen.json");
        if path.exists() {
            return read_json(&path);
        }
        let mut names = vec![(SEARCHED.to_string(), searched.layers.clone())];
        for (name, layers) in self.plain(table, searched.estimated_us)? {
            if !names.iter().any(|(_, known)| *known == layers) {
                names.push((name, layers));
            }
        }
        let measured = |layers: &String| -> Result<f64> {
            let pair = pair::measure(&self.baseline, &self.model(layers)?, &self.plan.workload, CHOOSING / 2)?;
            Ok(pair.second_ms.median / pair.first_ms.median)
        };
        let race_steps = share_of(self.plan.steps, RACE_SHARE);
        let mut race = Vec::new();
        for (name, layers) in names {
            let measured = match searched.tries.iter().find(|one| one.layers == layers) {
                Some(one) => one.measured,
                None => measured(&layers)?,
            };
            let fast_enough = measured <= searched.target || name == SEARCHED;
            let mut watch = |event: run::Event<'_>| {
                if let run::Event::Step(step) = event {
                    progress.steps(&format!("trying {name}"), &layers, step.step.into(), step.steps.into());
                }
            };
            let (loss, seconds) = match fast_enough {
                true => {
                    let place = format!("race/{name}");
                    let settings = self.training(&self.out.join(&place));
                    let settings = Settings { steps: race_steps, eval_every: race_steps, patience: 0, ..settings };
                    let outcome = self.train_as(&place, settings, &layers, &mut watch)?;
                    (outcome.valid.map(|valid| valid.loss), outcome.seconds)
                }
                false => (None, 0.0),
            };
            race.push(Runner { name, layers, measured, loss, seconds });
        }
        progress.finish();
        let loss = |one: &Runner| one.loss.unwrap_or(f64::INFINITY);
        let meets = race.iter().filter(|one| one.measured <= searched.target);
        let best = meets.min_by(|a, b| loss(a).total_cmp(&loss(b)));
        let fastest = || race.iter().min_by(|a, b| a.measured.total_cmp(&b.measured));
        let best = best.or_else(fastest).context("nobody ran")?;
        let chosen = Chosen {
            layers: best.layers.clone(),
            name: best.name.clone(),
            target: searched.target,
            tries: searched.tries.clone(),
            estimated: searched.estimated,
            race_steps,
            race: race.clone(),
        };
        write_json(&path, &chosen)?;
        Ok(chosen)
    }

    /// Plain ways to a latency: fewer layers, and narrower ones.
    fn plain(&self, table: &Table, limit_us: f64) -> Result<Vec<(String, String)>> {
        let costs = self.costs(table)?;
        let sum = |blocks: &[Block]| self.sum(&costs, blocks);
        let mut ways = Vec::new();
        // The most layers of the baseline that take no longer, or one block where even that does.
        let n = self.baseline.blocks.len();
        let length = (1..=n).rev().find(|&length| sum(&self.baseline.blocks[..length]) <= limit_us).unwrap_or(1);
        ways.push(("layer-scaled".to_string(), notation::print(&self.baseline.blocks[..length])));
        // All layers, with fewer heads and a narrower inner width, whatever uses the time best.
        let kind =
            |key: &str| self.slots[0].iter().filter(|option| option.kind.key() == key).copied().collect::<Vec<_>>();
        let mut narrow: Option<(f64, Vec<Block>)> = None;
        for attention in kind("attention") {
            for ffn in kind("ffn") {
                let swap = |block: &Block| match block.kind.key() {
                    "attention" => attention,
                    "ffn" => ffn,
                    _ => *block,
                };
                let blocks: Vec<Block> = self.baseline.blocks.iter().map(swap).collect();
                let cost = sum(&blocks);
                if cost <= limit_us && narrow.as_ref().is_none_or(|(most, _)| cost > *most) {
                    narrow = Some((cost, blocks));
                }
            }
        }
        ways.extend(narrow.map(|(_, blocks)| ("narrower".to_string(), notation::print(&blocks))));
        Ok(ways)
    }

    /// Whether two blocks are the same, however they are written.
    pub(super) fn same(&self, a: &Block, b: &Block) -> bool {
        let frame = &self.baseline.frame;
        a.kind.resolve(a, frame) == b.kind.resolve(b, frame)
    }

    /// Trains an architecture with the baseline's settings; one that is trained already gives its outcome again.
    pub fn train(&self, name: &str, layers: &str, screen: &mut Screen) -> Result<run::Outcome> {
        self.train_as(name, self.training(&self.out.join(name)), layers, &mut |event| screen.show(event))
    }

    fn train_as(&self, name: &str, settings: Settings, layers: &str, watch: run::Watch<'_>) -> Result<run::Outcome> {
        let folder = Path::new(&settings.out);
        if folder.join(run::SETTINGS).exists() {
            return Ok(run::resume(folder, watch)?);
        }
        let model = self.model(layers)?;
        let init = match self.plan.inherit && name != BASELINE {
            true => self.inherit(name, &model)?.display().to_string(),
            false => String::new(),
        };
        Ok(run::begin(&Settings { init, ..settings }, &model.spec(), watch)?)
    }

    /// Other ways to about the same latency: what the search found where the race had another winner, the papers' rules,
    /// fewer and narrower layers, and random architectures.
    pub fn rivals(&self, table: &Table, chosen: &Chosen) -> Result<Vec<(String, String)>> {
        let costs = self.costs(table)?;
        let sum = |model: &Model| self.sum(&costs, &model.blocks);
        let limit = sum(&self.model(&chosen.layers)?);
        let n = self.baseline.blocks.len();
        let searched = chosen.race.iter().filter(|one| one.name == SEARCHED);
        let mut rivals: Vec<_> = searched.map(|one| (one.name.clone(), one.layers.clone())).collect();
        rivals.extend(self.plain(table, limit)?);
        if let Ok(layers) = design::par(n, 5.0) {
            rivals.push(("par".to_string(), layers));
        }
        if let Ok(layers) = design::sandwich(n, n / 6) {
            rivals.push(("sandwich".to_string(), layers));
        }
        // Random ones whose sum comes closest from below.
        let mut rng = ChaCha8Rng::seed_from_u64(self.plan.seed.into());
        for i in 1..=2 {
            let drawn = (0..2000).map(|_| self.space.model(&self.space.sample(Sampling::Choices, &mut rng)));
            let fits = drawn.map(|model| (sum(&model), model)).filter(|(sum, _)| *sum <= limit);
            if let Some((_, model)) = fits.max_by(|a, b| a.0.total_cmp(&b.0)) {
                rivals.push((format!("random-{i}"), model.layers()));
            }
        }
        rivals.retain(|(_, layers)| *layers != chosen.layers);
        Ok(rivals)
    }

    /// The estimate of an architecture, as a share of the baseline's.
    pub fn estimate(&self, table: &Table, layers: &str) -> Result<f64> {
        let costs = self.costs(table)?;
        Ok(self.sum(&costs, &self.model(layers)?.blocks) / costs.baseline)
    }

    /// What blocks that are options cost together, with the frame.
    fn sum(&self, costs: &Costs, blocks: &[Block]) -> f64 {
        let of = |block: &Block| {
            let at = self.slots[0].iter().position(|option| self.same(option, block));
            at.map_or(f64::INFINITY, |at| costs.slots[0][at])
        };
        costs.fixed + blocks.iter().map(of).sum::<f64>()
    }

    /// Measures the trained models side by side.
    pub fn measure(&self, progress: &mut Progress) -> Result<Measured> {
        let path = self.out.join("measured.json");
        if path.exists() {
            return read_json(&path);
        }
        let [baseline, found] = [BASELINE, FOUND].map(|name| self.out.join(name));
        let folders = [baseline.as_path(), found.as_path()];
        let workload = &self.plan.workload;
        let pair = pair::measure_trained(folders, workload, MEASURING)?;
        let relative = self.baseline.frame.backbone.positions == Positions::Relative;
        let memories: &[Memory] = match relative && workload.mode == Mode::Infer && self.baseline.frame.mem_len > 0 {
            true => &[Memory::Cached, Memory::Reproject],
            false => &[Memory::Cached],
        };
        let mut sweep = Vec::new();
        for &memory in memories {
            for batch in BATCHES {
                progress.steps(
                    "measuring over batch sizes",
                    "",
                    sweep.len() as u64,
                    (memories.len() * BATCHES.len()) as u64,
                );
                let setting = Workload { batch, memory, ..workload.clone() };
                sweep.push(Sweep { batch, memory, pair: pair::measure_trained(folders, &setting, SWEEPING)? });
            }
        }
        progress.finish();
        let measured = Measured { pair, sweep };
        write_json(&path, &measured)?;
        Ok(measured)
    }

    /// Measures other ways to the same latency.
    pub fn compare(&self, rivals: &[(String, String)], progress: &mut Progress) -> Result<Vec<Compared>> {
        let path = self.out.join("compared.json");
        if rivals.is_empty() || path.exists() {
            return if rivals.is_empty() { Ok(Vec::new()) } else { read_json(&path) };
        }
        let mut compared = Vec::new();
        for (name, layers) in rivals {
            progress.steps("measuring other ways", layers, compared.len() as u64, rivals.len() as u64);
            let folders = [BASELINE.to_string(), format!("{COMPARED}/{name}")].map(|name| self.out.join(name));
            let pair = pair::measure_trained([&folders[0], &folders[1]], &self.plan.workload, CHOOSING)?;
            compared.push(Compared { name: name.clone(), layers: layers.clone(), pair });
        }
        progress.finish();
        write_json(&path, &compared)?;
        Ok(compared)
    }
}

fn share_of(steps: u32, share: f64) -> u32 {
    ((f64::from(steps) * share) as u32).max(1)
}

/// The most probable architecture that costs at most `limit` and does not leave much of it unused: where the most
/// probable one does, every microsecond counts for it, just as much as it takes to come close.
fn within(log_p: &[Vec<f64>], costs: &Costs, limit: f64) -> Option<Vec<usize>> {
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

/// Writes a file of the job, whole or not at all.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec_pretty(value)?;
    Ok(write_aside(path, |out| out.write_all(&text))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_used() {
        // Two slots of three options; the most probable, the cheapest, leaves most of the limit unused.
        let log_p = vec![vec![0.8f64.ln(), 0.15f64.ln(), 0.05f64.ln()]; 2];
        let costs = Costs { slots: vec![vec![0.0, 40.0, 50.0]; 2], fixed: 10.0, baseline: 110.0 };
        assert_eq!(within(&log_p, &costs, 15.0), Some(vec![0, 0]));
        // 10 + 40 + 40 is close to 91, and more probable than what comes closer.
        assert_eq!(within(&log_p, &costs, 91.0), Some(vec![1, 1]));
        assert_eq!(within(&log_p, &costs, 110.0), Some(vec![2, 2]));
        assert_eq!(within(&log_p, &costs, 5.0), None);
    }
}
