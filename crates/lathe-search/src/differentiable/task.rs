//! What is searched for, and how it is written into the folder of a search.

use super::latency::{CostTable, Target};
use super::settings::{Cost, SearchSettings};
use super::snapshot;
use crate::{Error, Result};
use lathe_core::{Block, Frame, Model, Registry, notation};
use lathe_model::{SuperNet, folder};
use lathe_train::checkpoint;
use lathe_train::settings::{self, ModelEntry, Settings};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const SEARCH: &str = "search.json";

/// What is searched for.
pub struct Task {
    /// What stands around the slots.
    pub frame: Frame,
    /// The options of each slot, from the bottom.
    pub slots: Vec<Vec<Block>>,
    /// The stack that targets refer to.
    pub baseline: Vec<Block>,
    /// What blocks cost.
    pub table: CostTable,
    /// How weights are trained, and on what.
    pub training: Settings,
    /// How the architecture is searched.
    pub settings: SearchSettings,
    /// Checkpoints of a super net of these slots whose weights all options begin with.
    pub options: Option<PathBuf>,
}

impl Task {
    /// The option of each slot that is the baseline's own block there, where there is one.
    fn own_options(&self) -> Vec<Option<usize>> {
        let resolve = |block: &Block| block.kind.resolve(block, &self.frame);
        let of_slot = |(s, options): (usize, &Vec<Block>)| {
            let own = self.baseline.get(s).filter(|_| self.baseline.len() == self.slots.len()).map(resolve)?;
            options.iter().position(|option| resolve(option) == own)
        };
        self.slots.iter().enumerate().map(of_slot).collect()
    }

    /// What the search begins with: options that are equal, or the baseline's own block before the others.
    pub(super) fn first_alphas(&self) -> Vec<Vec<f64>> {
        let share = self.settings.baseline_share;
        let of_slot = |(options, own): (&Vec<Block>, Option<usize>)| {
            let mut alphas = vec![0.0; options.len()];
            if let Some(own) = own.filter(|_| share > 0.0 && options.len() > 1) {
                alphas[own] = (share * (options.len() - 1) as f64 / (1.0 - share)).ln();
            }
            alphas
        };
        self.slots.iter().zip(self.own_options()).map(of_slot).collect()
    }

    /// Gives the baseline's options the weights of the folder that training begins with, if it names one.
    pub(super) fn take_first_weights(&self, net: &mut SuperNet) -> Result<()> {
        if let Some(checkpoints) = &self.options {
            return snapshot::restore_weights(checkpoints, net);
        }
        let init = &self.training.init;
        if init.is_empty() {
            return Ok(());
        }
        let own: Option<Vec<usize>> = self.own_options().into_iter().collect();
        let Some(own) = own else {
            let expected = "weights of the baseline, with a space whose every slot offers the baseline's block";
            return Err(Error::setting("init", init, expected));
        };
        let model = Model::new(self.frame.clone(), self.baseline.clone())?;
        let network = folder::load_as(Path::new(init), model).map_err(lathe_train::Error::from)?;
        net.adopt(&own, &network);
        Ok(())
    }
}

/// A task as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskFile {
    /// A run file, whose model has the frame.
    training: String,
    slots: Vec<Vec<String>>,
    baseline: String,
    table: CostTable,
    search: SearchSettings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    options: Option<PathBuf>,
}

/// An error where no architecture meets the target.
pub fn check_target(task: &Task) -> Result<()> {
    let Some(target) = task.settings.target else { return Ok(()) };
    let cheapest = task.table.cheapest();
    let (least, limit) = (task.table.of(&cheapest), task.table.limit(target));
    if least <= limit {
        return Ok(());
    }
    let blocks: Vec<Block> = cheapest.iter().zip(&task.slots).map(|(&option, slot)| slot[option]).collect();
    let layers = notation::print(&blocks);
    let (place, found, least_of) = match (target, task.settings.cost) {
        (Target::Ratio(ratio), Cost::Latency) => ("target-latency", ratio, least / task.table.baseline),
        (Target::Ratio(ratio), Cost::Memory) => ("target-memory", ratio, least / task.table.baseline),
        (Target::Absolute(cost), _) => ("target-latency-us", cost, least),
    };
    let cheapest = match task.settings.cost {
        Cost::Latency => "fastest",
        Cost::Memory => "smallest",
    };
    // Rounded up, so that what is said to be accepted is.
    let least_of = (least_of * 1e4).ceil() / 1e4;
    let expected = format!("at least {least_of}, the estimate of the {cheapest} architecture of the space, `{layers}`");
    Err(Error::setting(place, format_args!("{found}, which no architecture meets"), expected))
}

/// Checks a task and writes it into a folder that is new or empty.
pub fn write(task: &Task, folder: &Path) -> Result<()> {
    task.training.check()?;
    task.settings.check()?;
    task.table.check()?;
    check_target(task)?;
    if !folder::is_free(folder).map_err(lathe_train::Error::from)? {
        let found = if folder.join(SEARCH).exists() { "another search" } else { "other files" };
        return Err(Error::setting(format!("out: {}", folder.display()), found, "a new or empty folder"));
    }
    let first = task.slots.iter().map(|options| options[0]).collect();
    let model = Model::new(task.frame.clone(), first)?;
    let print = |options: &Vec<Block>| options.iter().map(|block| format!("{block:?}")).collect();
    let file = TaskFile {
        training: task.training.to_toml(&model.spec()),
        slots: task.slots.iter().map(print).collect(),
        baseline: notation::print(&task.baseline),
        table: task.table.clone(),
        search: task.settings.clone(),
        options: task.options.clone(),
    };
    std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    Ok(checkpoint::write_json(&folder.join(SEARCH), &file)?)
}

/// Reads the task of a folder.
pub(super) fn read(folder: &Path, registry: &Registry) -> Result<Task> {
    let path = folder.join(SEARCH);
    if !path.exists() {
        return Err(Error::setting(folder.display(), "no search.json", "the folder of a search"));
    }
    let text = std::fs::read(&path).map_err(Error::io(&path))?;
    let wrong = |found: &dyn std::fmt::Display| Error::data(path.display(), found, "the task of a search");
    let file: TaskFile = serde_json::from_slice(&text).map_err(|error| wrong(&error))?;
    let (training, ModelEntry::Inline(spec)) = settings::read(&file.training, registry)? else {
        return Err(wrong(&"no model"));
    };
    let mut slots = Vec::new();
    for options in &file.slots {
        slots.push(notation::parse(&options.join(" "), registry)?);
    }
    let baseline = notation::parse(&file.baseline, registry)?;
    let frame = spec.model(registry)?.frame;
    Ok(Task { frame, slots, baseline, table: file.table, training, settings: file.search, options: file.options })
}

#[cfg(test)]
mod tests {
    use super::super::gumbel::softmax;
    use super::super::settings::Preset;
    use super::*;
    use lathe_core::Spec;
    use lathe_model::REGISTRY;

    #[test]
    fn a_search_may_begin_at_the_baseline() {
        let spec =
            Spec::from_toml("backbone='gpt2'\nlayers='sf'\nd_model=16\nheads=2\ninner=32\nvocab=9", &REGISTRY).unwrap();
        let model = spec.model(&REGISTRY).unwrap();
        let parse = |text: &str| notation::parse(text, &REGISTRY).unwrap();
        let task = |baseline_share: f64, baseline: &str| Task {
            frame: model.frame.clone(),
            slots: vec![parse("- s1 s2 f32"); 2],
            baseline: parse(baseline),
            table: CostTable { slots: vec![vec![0.0; 4]; 2], fixed: 1.0, baseline: 1.0 },
            training: Settings::default(),
            settings: SearchSettings { baseline_share, ..SearchSettings::preset(Preset::Planer, None) },
            options: None,
        };
        assert_eq!(task(0.0, "sf").first_alphas(), vec![vec![0.0; 4]; 2]);
        let first = task(0.5, "sf").first_alphas();
        for (alphas, own) in first.iter().zip([2, 3]) {
            for (i, p) in softmax(alphas, 1.0).into_iter().enumerate() {
                let expected = if i == own { 0.5 } else { 0.5 / 3.0 };
                assert!((p - expected).abs() < 1e-12, "{p} {expected}");
            }
        }
        // Neither a block that no slot offers nor a stack of another length has a slot to begin in.
        assert_eq!(task(0.5, "s4 f8").first_alphas(), vec![vec![0.0; 4]; 2]);
        assert_eq!(task(0.5, "sfs").first_alphas(), vec![vec![0.0; 4]; 2]);
    }
}
