//! What single blocks cost, by block, and the table of a search made of it.

use super::latency::CostTable;
use super::settings::Cost;
use crate::profile::{self, FRAME, Part};
use crate::{Error, Result};
use lathe_core::{Block, Frame, Registry, StackPlace, notation};
use serde::Deserialize;
use std::collections::BTreeSet;

/// The cost of blocks and of what stands around them, in microseconds or bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// What each block costs.
    pub blocks: Vec<BlockCost>,
    /// Embedding and output.
    pub frame: f64,
    /// Tokens that enter the first block.
    pub len: u32,
}

/// The cost of a block, in microseconds or bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockCost {
    /// With every knob set.
    pub block: Block,
    /// The stack that it was measured in, where models have several.
    pub stack: Option<String>,
    /// The width and length that it was measured in; `None`: any.
    pub shape: Option<(u32, u32)>,
    /// What it costs.
    pub cost: f64,
}

/// A file of measured blocks, as far as it is read.
#[derive(Deserialize)]
struct File {
    blocks: Vec<Entry>,
    #[serde(default)]
    frame_us: f64,
}

#[derive(Deserialize)]
struct Entry {
    block: String,
    /// Where it was measured, in the words of a profile.
    frame: Option<String>,
    d_model: Option<u32>,
    batch: Option<u32>,
    seq: Option<u32>,
    latency_us: Latency,
}

#[derive(Deserialize)]
struct Latency {
    median: f64,
}

impl Costs {
    /// Reads a table of `lathe profile`, or a shorter one: `{"blocks": [{"block": "s8", "latency_us": {"median":
    /// 12.5}}, ...], "frame_us": 40.0}`. Entries that name another batch, length or frame than this one are left out.
    pub fn read(text: &str, place: &str, frame: &Frame, registry: &Registry, at: (u32, u32)) -> Result<Self> {
        let expected = "a table of blocks, each with `block` and `latency_us.median`";
        let file: File = serde_json::from_str(text).map_err(|error| Error::data(place, error, expected))?;
        let mut blocks = Vec::new();
        let mut frame_us = file.frame_us;
        for entry in file.blocks {
            let elsewhere = |part: Part| entry.frame.as_ref().is_some_and(|known| *known != part.name.frame);
            if entry.block == FRAME {
                if !elsewhere(Part::frame(frame)) {
                    frame_us = entry.latency_us.median;
                }
                continue;
            }
            if entry.batch.is_some_and(|batch| batch != at.0) {
                continue;
            }
            let stack = notation::parse(&entry.block, registry)?;
            let &[block] = stack.as_slice() else {
                return Err(Error::data(place, format_args!("`{}`", entry.block), "one block an entry"));
            };
            let (width, len) = (entry.d_model.unwrap_or(frame.d_model), entry.seq.unwrap_or(at.1));
            for of_stack in frame.stacks() {
                let here = Frame { d_model: width, tgt_len: if len == at.1 { frame.tgt_len } else { len }, ..of_stack };
                if !elsewhere(Part::block(&block, &here)) {
                    let shape = entry.seq.map(|seq| (width, seq));
                    let (block, stack) = (block.kind.resolve(&block, &here), here.stack().map(String::from));
                    blocks.push(BlockCost { block, stack, shape, cost: entry.latency_us.median });
                }
            }
        }
        Ok(Self { blocks, frame: frame_us, len: at.1 })
    }

    /// What a profile says of blocks in a frame, whose lengths are those of the profile's workload. Memory is what each
    /// part adds; what the greediest takes in addition while it runs counts for the frame.
    pub fn of_profile(
        profile: &profile::ProfileTable,
        cost: Cost,
        blocks: impl Iterator<Item = Block>,
        frame: &Frame,
    ) -> Result<Self> {
        let mut most = 0.0f64;
        let mut of_entry = |entry: &profile::Entry| {
            let (adds, takes) = profile.bytes_of(entry);
            most = most.max(takes);
            match cost {
                Cost::Latency => entry.latency_us.median,
                Cost::Memory => adds,
            }
        };
        let shapes: BTreeSet<(u32, u32)> = profile.blocks.iter().map(|entry| (entry.d_model, entry.seq)).collect();
        let mut found = Vec::new();
        for block in blocks {
            let everywhere =
                shapes.iter().flat_map(|shape| frame.stacks().into_iter().map(move |frame| (shape, frame)));
            for (&(width, len), of_stack) in everywhere {
                let here = Frame { d_model: width, tgt_len: len, ..of_stack };
                let part = Part::block(&block, &here);
                if let (Some(entry), Some(block)) = (profile.get(&part.name), part.block) {
                    let stack = here.stack().map(String::from);
                    found.push(BlockCost { block, stack, shape: Some((width, len)), cost: of_entry(entry) });
                }
            }
        }
        let expected = "a profile of this space in this setting";
        let missing = || Error::data("table of costs", format_args!("no {FRAME}"), expected);
        let mut of_frame = of_entry(profile.get(&Part::frame(frame).name).ok_or_else(missing)?);
        if cost == Cost::Memory {
            of_frame += most;
        }
        Ok(Self { blocks: found, frame: of_frame, len: frame.tgt_len })
    }

    fn of(&self, block: &Block, place: &StackPlace<'_>) -> Result<f64> {
        let (frame, len) = (&*place.frame, place.shape.len.max(1));
        let resolved = block.kind.resolve(block, frame);
        let here = |shape: (u32, u32)| shape.0 == frame.d_model && u64::from(shape.1) == len;
        let of_stack = self.blocks.iter().filter(|known| known.stack.as_deref() == frame.stack());
        let mut known = of_stack.filter(|known| known.shape.is_none_or(here));
        if let Some(known) = known.find(|known| known.block == resolved) {
            return Ok(known.cost);
        }
        // A block of no operations takes no time, and tables may leave it out.
        let setting = lathe_core::Setting { batch: 1, tgt_len: 1, mem_len: 0 };
        if block.kind.cost(&resolved, frame, &setting).flops == 0 {
            return Ok(0.0);
        }
        let known: Vec<String> = self.blocks.iter().map(|known| format!("{:?}", known.block)).collect();
        let expected = format!("an entry `{resolved:?}` beside {}", lathe_core::shorten(&known.join(", ")));
        Err(Error::data("table of latencies", format_args!("no latency of {block:?}"), expected))
    }

    /// The table of a search: the options of each slot, and the sum of the baseline's blocks. Without `whole`, blocks
    /// alone count, as in the papers.
    pub fn table(&self, frame: &Frame, slots: &[Vec<Block>], baseline: &[Block], whole: bool) -> Result<CostTable> {
        // Where one option changes width or length, all do, and alike.
        let stack = |slots: &[Vec<Block>]| {
            let (mut place, mut costs) = (StackPlace::of_len(frame, self.len.into()), Vec::new());
            for options in slots {
                costs.push(options.iter().map(|block| self.of(block, &place)).collect::<Result<Vec<f64>>>()?);
                options.first().map_or(Ok(()), |block| place.pass(block))?;
            }
            Ok::<_, Error>(costs)
        };
        let fixed = if whole { self.frame } else { 0.0 };
        let alone: Vec<Vec<Block>> = baseline.iter().map(|&block| vec![block]).collect();
        let of_baseline: f64 = stack(&alone)?.iter().flatten().sum();
        let slots = stack(slots)?;
        let table = CostTable { slots, fixed, baseline: fixed + of_baseline };
        table.check()?;
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_core::Spec;
    use lathe_model::REGISTRY;

    #[test]
    fn blocks_are_found_however_they_are_written() {
        let model = Spec::from_toml("backbone='gpt2'\nlayers='sf'\nd_model=64\nheads=4\nvocab=9", &REGISTRY).unwrap();
        let model = model.model(&REGISTRY).unwrap();
        let parse = |text: &str| notation::parse(text, &REGISTRY).unwrap();
        let text = r#"{"machine": "x", "frame_us": 3, "blocks": [
            {"block": "attention{heads=4}", "batch": 1, "seq": 8, "latency_us": {"median": 10, "low": 9}},
            {"block": "s4", "batch": 1, "seq": 9, "latency_us": {"median": 99}},
            {"block": "f", "latency_us": {"median": 2.5}}]}"#;
        let costs = Costs::read(text, "t.json", &model.frame, &REGISTRY, (1, 8)).unwrap();
        let table = costs.table(&model.frame, &[parse("s f -"), parse("f256")], &parse("sf"), true).unwrap();
        assert_eq!(table, CostTable { slots: vec![vec![10.0, 2.5, 0.0], vec![2.5]], fixed: 3.0, baseline: 15.5 });
        let alone = costs.table(&model.frame, &[parse("s")], &parse("sf"), false).unwrap();
        assert_eq!((alone.fixed, alone.baseline), (0.0, 12.5));
        let error = costs.table(&model.frame, &[parse("f8")], &parse("s"), true).unwrap_err().to_string();
        assert!(error.starts_with("table of latencies: found no latency of f8; expected an entry `f8`"), "{error}");
        let error = Costs::read("{\"blocks\": 3}", "t.json", &model.frame, &REGISTRY, (1, 8)).unwrap_err();
        assert!(error.to_string().starts_with("t.json: found invalid type"), "{error}");
    }
}
