//! What single blocks cost, by block, and the table of a search made of it.

use super::latency::CostTable;
use super::settings::Cost;
use crate::profile::{self, FRAME, Part};
use crate::{Error, Result};
use lathe_core::{Block, Frame, Registry, notation};
use serde::Deserialize;

/// The cost of blocks and of what stands around them, in microseconds or bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// Each block with every knob set, and its cost.
    pub blocks: Vec<(Block, f64)>,
    /// Embedding and output.
    pub frame: f64,
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
    batch: Option<u32>,
    seq: Option<u32>,
    latency_us: Latency,
}

#[derive(Deserialize)]
struct Latency {
    median: f64,
}

impl Costs {
    /// Reads a table of `lathe profile`, or a shorter one: `{"blocks": [{"block": "s8", "latency_us": {"median": 12.5}}, ...], "frame_us": 40.0}`. Entries that name
    /// another batch, length or frame than this one are left out.
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
            if entry.batch.is_some_and(|batch| batch != at.0) || entry.seq.is_some_and(|seq| seq != at.1) {
                continue;
            }
            let stack = notation::parse(&entry.block, registry)?;
            let &[block] = stack.as_slice() else {
                return Err(Error::data(place, format_args!("`{}`", entry.block), "one block an entry"));
            };
            if !elsewhere(Part::block(&block, frame)) {
                blocks.push((block.kind.resolve(&block, frame), entry.latency_us.median));
            }
        }
        Ok(Self { blocks, frame: frame_us })
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
        let mut of_part = |part: Part| -> Result<f64> {
            let expected = "a profile of this space in this setting";
            let missing = || Error::data("table of costs", format_args!("no {}", part.name.block), expected);
            let entry = profile.get(&part.name).ok_or_else(missing)?;
            let (adds, takes) = profile.bytes_of(entry);
            most = most.max(takes);
            Ok(match cost {
                Cost::Latency => entry.latency_us.median,
                Cost::Memory => adds,
            })
        };
        let of = |block: Block| Ok((block.kind.resolve(&block, frame), of_part(Part::block(&block, frame))?));
        let blocks = blocks.map(of).collect::<Result<_>>()?;
        let mut frame = of_part(Part::frame(frame))?;
        if cost == Cost::Memory {
            frame += most;
        }
        Ok(Self { blocks, frame })
    }

    fn of(&self, block: &Block, frame: &Frame) -> Result<f64> {
        let resolved = block.kind.resolve(block, frame);
        if let Some(&(_, latency)) = self.blocks.iter().find(|(known, _)| *known == resolved) {
            return Ok(latency);
        }
        // A block of no operations takes no time, and tables may leave it out.
        let setting = lathe_core::Setting { batch: 1, tgt_len: 1, mem_len: 0 };
        if block.kind.cost(&resolved, frame, &setting).flops == 0 {
            return Ok(0.0);
        }
        let known: Vec<String> = self.blocks.iter().map(|(block, _)| format!("{block:?}")).collect();
        let expected = format!("an entry `{resolved:?}` beside {}", lathe_core::shorten(&known.join(", ")));
        Err(Error::data("table of latencies", format_args!("no latency of {block:?}"), expected))
    }

    /// The table of a search: the options of each slot, and the sum of the baseline's blocks. Without `whole`, blocks
    /// alone count, as in the papers.
    pub fn table(&self, frame: &Frame, slots: &[Vec<Block>], baseline: &[Block], whole: bool) -> Result<CostTable> {
        let of_slot = |options: &Vec<Block>| options.iter().map(|block| self.of(block, frame)).collect::<Result<_>>();
        let fixed = if whole { self.frame } else { 0.0 };
        let of_baseline = baseline.iter().map(|block| self.of(block, frame)).sum::<Result<f64>>()?;
        let slots = slots.iter().map(of_slot).collect::<Result<_>>()?;
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
