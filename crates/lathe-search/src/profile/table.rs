//! The table of a profile: what each block, and each frame without blocks, costs in one workload on one machine.

use super::calibrate::Calibration;
use super::machine::Machine;
use crate::measure::Times;
use crate::workload::{Mode, Workload};
use crate::{Error, Result};
use lathe_core::{Block, Frame, Model, Setting, Space};
use lathe_model::WeightStorage;
use lathe_model::folder::write_aside;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Display;
use std::path::Path;

/// Keys of a model that do not change what a block costs, once its knobs are resolved.
const NOT_OF_BLOCKS: &[&str] = &[
    "layers",
    "vocab",
    "heads",
    "d_head",
    "inner",
    "d_embed",
    "div_val",
    "cutoffs",
    "tie_embeddings",
    "tie_projs",
    "dropout",
    "attn_dropout",
    "moe_dropout",
];
/// Keys that do not change what a model without blocks costs.
const NOT_OF_FRAMES: &[&str] = &["layers", "heads", "d_head", "inner", "dropout", "attn_dropout", "moe_dropout"];
/// The name of a frame among blocks.
pub const FRAME: &str = "frame";

/// Something that is measured by itself: a block in a frame, or a frame without blocks.
#[derive(Debug, Clone)]
pub struct Part {
    /// What it is called in the table.
    pub name: PartName,
    /// `None` for a frame without blocks.
    pub block: Option<Block>,
    /// Where it stands.
    pub frame: Frame,
    /// What its matrices are stored as.
    pub storage: WeightStorage,
}

/// What tells a part from all others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartName {
    /// The block with all knobs set, in the notation; [`FRAME`] for a frame.
    pub block: String,
    /// The keys of the model that matter to it.
    pub frame: String,
    /// What its matrices are stored as; nothing for f32.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub storage: String,
}

impl Part {
    /// A block in a frame.
    pub fn block(block: &Block, frame: &Frame) -> Self {
        let block = block.kind.resolve(block, frame);
        let name =
            PartName { block: format!("{block:?}"), frame: keys_of(frame, NOT_OF_BLOCKS), storage: String::new() };
        Self { name, block: Some(block), frame: frame.clone(), storage: WeightStorage::F32 }
    }

    /// A frame without blocks: embedding and output.
    pub fn frame(frame: &Frame) -> Self {
        let name = PartName { block: FRAME.into(), frame: keys_of(frame, NOT_OF_FRAMES), storage: String::new() };
        Self { name, block: None, frame: frame.clone(), storage: WeightStorage::F32 }
    }

    /// The same with its matrices in a storage.
    pub fn stored(mut self, storage: WeightStorage) -> Self {
        self.storage = storage;
        self.name.storage = if storage == WeightStorage::F32 { String::new() } else { storage.to_string() };
        self
    }

    /// The parts of a model: its frame, then its blocks from the bottom, each with the width and length it stands in.
    pub fn of_model(model: &Model) -> impl Iterator<Item = Self> + '_ {
        let blocks = placed(model).map(|(block, frame)| Self::block(block, &frame));
        std::iter::once(Self::frame(&model.frame)).chain(blocks)
    }

    /// All parts that models of a space can have, each once, in the order of their names.
    pub fn of_space(space: &Space, workload: &Workload) -> Result<Vec<Self>> {
        let mut parts = BTreeMap::new();
        let mut add = |part: Self| drop(parts.insert(part.name.clone(), part));
        let (mut last, mut seen) = (None, HashSet::new());
        for model in space.covering() {
            let model = workload.model(&model)?;
            if last.as_ref() != Some(&model.frame) {
                add(Self::frame(&model.frame));
                seen.clear();
            }
            for (block, frame) in placed(&model) {
                if seen.insert((*block, frame.d_model, frame.tgt_len, frame.stack().map(String::from))) {
                    add(Self::block(block, &frame));
                }
            }
            last = Some(model.frame);
        }
        Ok(parts.into_values().collect())
    }
}

/// Each block of a model with the frame it stands in, lengths included.
pub fn placed(model: &Model) -> impl Iterator<Item = (&Block, Cow<'_, Frame>)> {
    model.placed(Setting::of(model)).map(|(block, mut frame, setting)| {
        let len = u32::try_from(setting.tgt_len).unwrap_or(u32::MAX).max(1); // a block by itself has something to do
        if len != frame.tgt_len {
            frame.to_mut().tgt_len = len;
        }
        (block, frame)
    })
}

fn keys_of(frame: &Frame, without: &[&str]) -> String {
    let spec = Model { frame: frame.clone(), blocks: Vec::new() }.spec();
    let text = spec.to_toml();
    let lines = text.lines().filter(|line| !without.iter().any(|key| line.split(' ').next() == Some(key)));
    lines.collect::<Vec<_>>().join("; ")
}

/// A median with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Interval {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// Its width relative to the median.
    pub fn spread(&self) -> f64 {
        (self.high - self.low) / self.median
    }
}

impl From<&Times> for Interval {
    fn from(times: &Times) -> Self {
        let (low, high) = times.interval();
        Self { median: times.median(), low, high }
    }
}

/// What was measured of one part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// What it is.
    #[serde(flatten)]
    pub name: PartName,
    /// D
    pub d_model: u32,
    /// B
    pub batch: u32,
    /// T
    pub seq: u32,
    /// One pass, microseconds.
    pub latency_us: Interval,
    /// How many of the times lie far beyond the others.
    pub outliers: usize,
    /// Bytes in use at the most, its weights included.
    pub peak_bytes: u64,
    /// Bytes in use between passes: its weights, and what it keeps.
    pub held_bytes: u64,
    /// Every time, as measured, in the order taken.
    pub raw_us: Vec<f64>,
}

/// What the parts cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileTable {
    /// Where it was measured.
    pub machine: Machine,
    /// The setting.
    pub workload: Workload,
    /// The parts, in the order of their names.
    pub blocks: Vec<Entry>,
    /// The correction of its sums, where whole models were measured for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
}

/// What the parts of a model cost together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sum {
    /// The blocks, microseconds.
    pub blocks_us: f64,
    /// The frame, microseconds.
    pub frame_us: f64,
    /// How many blocks there are.
    pub count: f64,
    /// All that its parts add, and the most that any of them takes in addition, bytes.
    pub peak_bytes: f64,
}

impl ProfileTable {
    /// An empty one.
    pub fn new(workload: &Workload) -> Self {
        Self { machine: Machine::here(), workload: workload.clone(), blocks: Vec::new(), calibration: None }
    }

    /// Reads the table in a file and checks that it is as it was written.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&std::fs::read(path).map_err(Error::io(path))?, path.display())
    }

    /// Reads a table, which is kept at a place, and checks that it is as it was written.
    pub fn parse(text: &[u8], place: impl Display) -> Result<Self> {
        let table: Self =
            serde_json::from_slice(text).map_err(|error| Error::data(&place, error, "a table that a profile wrote"))?;
        let wrong =
            table.blocks.iter().find(|entry| entry.latency_us.median.is_nan() || entry.latency_us.median <= 0.0);
        if let Some(entry) = wrong {
            let place = format!("{place}: {}", entry.name.block);
            return Err(Error::data(place, entry.latency_us.median, "a latency above 0"));
        }
        let mut table = table;
        table.blocks.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(table)
    }

    /// An error where the table is of another machine or another workload.
    pub fn check(&self, place: impl Display, workload: &Workload) -> Result<()> {
        if let Some(difference) = Machine::here().difference(&self.machine) {
            let expected = "a table of this machine";
            return Err(Error::data(place, format!("a table of another machine ({difference})"), expected));
        }
        if self.workload != *workload {
            return Err(Error::data(place, format!("a table for {}", self.workload), workload));
        }
        Ok(())
    }

    /// What is written of it, at a place.
    pub fn to_json(&self, place: impl Display) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Error::data(place, error, "finite numbers"))
    }

    /// Writes it to a file, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
        }
        let text = self.to_json(path.display())?;
        Ok(write_aside(path, |out| out.write_all(&text)).map_err(lathe_train::Error::from)?)
    }

    /// The entry of a part.
    pub fn get(&self, name: &PartName) -> Option<&Entry> {
        let at = self.blocks.binary_search_by(|entry| entry.name.cmp(name)).ok()?;
        Some(&self.blocks[at])
    }

    /// Adds entries, or puts them in place of older ones.
    pub fn extend(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            match self.blocks.binary_search_by(|old| old.name.cmp(&entry.name)) {
                Ok(at) => self.blocks[at] = entry,
                Err(at) => self.blocks.insert(at, entry),
            }
        }
    }

    /// Those of the parts that are not in the table.
    pub fn missing(&self, parts: Vec<Part>) -> Vec<Part> {
        let known: BTreeSet<&PartName> = self.blocks.iter().map(|entry| &entry.name).collect();
        parts.into_iter().filter(|part| !known.contains(&part.name)).collect()
    }

    /// Bytes that a part adds to a model, and bytes that it takes only while it runs, which the next part takes over.
    /// In training a pass leaves what the way back needs, so that all of it adds up; and the frame's logits are there
    /// beside the last block's buffers.
    pub fn bytes_of(&self, entry: &Entry) -> (f64, f64) {
        let (held, peak) = (entry.held_bytes as f64, entry.peak_bytes as f64);
        if entry.name.block == FRAME || self.workload.mode == Mode::Train { (peak, 0.0) } else { (held, peak - held) }
    }

    /// What the parts of a model cost together; `None` where one is not in the table.
    pub fn sum(&self, model: &Model) -> Option<Sum> {
        let mut sum = Sum::default();
        let (mut added, mut most) = (0.0, 0.0f64);
        for part in Part::of_model(model) {
            let entry = self.get(&part.name)?;
            match part.block {
                Some(_) => {
                    sum.blocks_us += entry.latency_us.median;
                    sum.count += 1.0;
                }
                None => sum.frame_us += entry.latency_us.median,
            }
            let (adds, takes) = self.bytes_of(entry);
            added += adds;
            most = most.max(takes);
        }
        sum.peak_bytes = added + most;
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_core::Spec;
    use lathe_model::REGISTRY;

    #[test]
    fn blocks_share_what_they_take_but_in_training() {
        let spec =
            Spec::from_toml("backbone='gpt2'\nlayers='s f64 f128'\nd_model=64\nheads=4\nvocab=9", &REGISTRY).unwrap();
        let model = spec.model(&REGISTRY).unwrap();
        // Frame, s, f64, f128: held and peak.
        let bytes = [(1000, 1400), (10, 15), (20, 50), (30, 70)];
        let entry = |(part, (held_bytes, peak_bytes)): (Part, (u64, u64))| Entry {
            name: part.name,
            d_model: 64,
            batch: 1,
            seq: 1,
            latency_us: Interval { median: 1.0, low: 1.0, high: 1.0 },
            outliers: 0,
            peak_bytes,
            held_bytes,
            raw_us: vec![1.0],
        };
        let sum = |mode: Mode| {
            let mut table = ProfileTable::new(&Workload { mode, ..Workload::default() });
            table.extend(Part::of_model(&model).zip(bytes).map(entry));
            table.sum(&model).unwrap().peak_bytes
        };
        assert_eq!(sum(Mode::Infer), 1400.0 + 10.0 + 20.0 + 30.0 + 40.0);
        assert_eq!(sum(Mode::Train), 1400.0 + 15.0 + 50.0 + 70.0);
    }
}
