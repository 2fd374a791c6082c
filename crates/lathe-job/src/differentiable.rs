//! A super net and its architecture, trained in turn: from a space and a target to a search in a folder.

use crate::profiler::TableSource;
use crate::{At, Context, Error, Event, Result, Watch, input};
use lathe_core::{Block, Frame, Model, Registry, Space};
use lathe_search::differentiable::costs::Costs;
use lathe_search::differentiable::run::{self, Outcome};
use lathe_search::differentiable::settings::{Cost, SearchSettings};
use lathe_search::differentiable::task::Task;
use lathe_search::workload::Workload;
use lathe_train::settings::Settings;
use std::path::{Path, PathBuf};

/// What to search for, and how.
#[derive(Debug, Clone)]
pub struct Request {
    /// A space, by file or shipped name.
    pub space: String,
    /// How the architecture is searched.
    pub settings: SearchSettings,
    /// How weights are trained, and on what; `out` is the folder of the search, empty for one that is gone in the end.
    pub training: Settings,
    /// Costs of blocks; without it, this machine's profile.
    pub table: Option<PathBuf>,
    /// Whether embedding and output are left out of estimates, as in the papers.
    pub blocks_only: bool,
    /// Sequences of a measured pass.
    pub measure_batch: u32,
    /// Tokens of a measured pass; `None` for the model's tgt_len.
    pub measure_seq: Option<u32>,
}

/// Begins a search.
pub fn begin(context: &Context<'_>, request: &Request, watch: Watch<'_>) -> Result<Outcome> {
    let task = request.task(context, watch)?;
    if task.training.out.is_empty() {
        let folder = tempfile::tempdir().map_err(Error::io(Path::new("a folder for the search")))?;
        let outcome = run::begin(&task, folder.path(), context.registry, &mut |event| watch(Event::Searching(event)))?;
        return Ok(Outcome { out: String::new(), ..outcome });
    }
    Ok(run::begin(&task, Path::new(&task.training.out), context.registry, &mut |event| watch(Event::Searching(event)))?)
}

/// Goes on with the search in a folder.
pub fn resume(folder: &Path, registry: &Registry, watch: Watch<'_>) -> Result<Outcome> {
    Ok(run::resume(folder, registry, &mut |event| watch(Event::Searching(event)))?)
}

impl Request {
    fn task(&self, context: &Context<'_>, watch: Watch<'_>) -> Result<Task> {
        let space = input::space(&self.space, context.registry)?;
        let (frame, slots) = space.block_choices().at(&self.space)?;
        self.settings.check()?;
        let frame = frame.clone();
        let baseline = space.baseline.blocks.clone();
        let costs = self.costs(context, &space, &frame, &slots, watch)?;
        let table = costs.table(&frame, &slots, &baseline, !self.blocks_only)?;
        let (training, settings) = (self.training.clone(), self.settings.clone());
        Ok(Task { frame, slots, baseline, table, training, settings, options: None })
    }

    /// The costs of a file, or of a profile.
    fn costs(
        &self,
        context: &Context<'_>,
        space: &Space,
        frame: &Frame,
        slots: &[Vec<Block>],
        watch: Watch<'_>,
    ) -> Result<Costs> {
        let cost = self.settings.cost;
        let (batch, seq) = (self.measure_batch, self.measure_seq.unwrap_or(frame.tgt_len));
        let precision = self.training.precision()?;
        let workload = Workload { batch, seq: self.measure_seq, precision, ..Workload::default() };
        let model = Model { frame: frame.clone(), blocks: space.baseline.blocks.clone() };
        let frame = workload.model(&model)?.frame; // with the lengths of the measurement
        if let Some(path) = self.table.as_ref().filter(|_| cost == Cost::Latency) {
            let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
            return Ok(Costs::read(&text, &path.display().to_string(), &frame, context.registry, (batch, seq))?);
        }
        let baseline = std::slice::from_ref(&space.baseline);
        let profiled = TableSource::of(self.table.as_deref()).table(context, space, baseline, &workload, watch)?;
        let blocks = slots.iter().flatten().chain(&space.baseline.blocks).copied();
        Ok(Costs::of_profile(&profiled.table, cost, blocks, &frame)?)
    }
}
