//! The trained models, measured side by side, in the setting asked for and over batch sizes.

use super::stages::{BASELINE, FOUND, OptimizeJob};
use crate::event::steps;
use crate::input::{read_json, write_json};
use crate::optimize::pair::{self, Pair};
use crate::{Event, Result, Watch};
use lathe_search::workload::{Memory, Mode, Workload};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One setting of the comparison over batch sizes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Sweep {
    pub batch: u32,
    pub memory: Memory,
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

/// How long the trained models are measured, and in each setting of the sweep.
const MEASURING: Duration = Duration::from_secs(8);
const SWEEPING: Duration = Duration::from_millis(1200);
const BATCHES: [u32; 3] = [1, 4, 16];

impl OptimizeJob {
    /// Measures the trained models side by side.
    pub fn measure(&self, watch: Watch<'_>) -> Result<Measured> {
        let path = self.out.join("measured.json");
        if path.exists() {
            return read_json(&path);
        }
        let [baseline, found] = [BASELINE, FOUND].map(|name| self.out.join(name));
        let folders = [baseline.as_path(), found.as_path()];
        let workload = &self.plan.workload;
        let pair = pair::measure_trained(folders, workload, MEASURING, &self.registry)?;
        let memories: &[Memory] =
            match self.baseline.frame.has_memory() && workload.mode == Mode::Infer && self.baseline.frame.mem_len > 0 {
                true => &[Memory::Cached, Memory::Reproject],
                false => &[Memory::Cached],
            };
        let mut sweep = Vec::new();
        for &memory in memories {
            for batch in BATCHES {
                watch(steps("measuring over batch sizes", sweep.len(), memories.len() * BATCHES.len()));
                let setting = Workload { batch, memory, ..workload.clone() };
                sweep.push(Sweep {
                    batch,
                    memory,
                    pair: pair::measure_trained(folders, &setting, SWEEPING, &self.registry)?,
                });
            }
        }
        watch(Event::Done);
        let measured = Measured { pair, sweep };
        write_json(&path, &measured)?;
        Ok(measured)
    }
}
