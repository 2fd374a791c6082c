//! The flags that say what is measured, and what it is predicted with.

use clap::{Args, ValueEnum};
use lathe_job::profiler::TableSource;
use lathe_model::Precision;
use lathe_ops::attention::KeptAs;
use lathe_search::workload::{self, Workload};
use std::path::PathBuf;

/// The setting of a measurement.
#[derive(Args, Clone)]
pub struct WorkloadArgs {
    /// Sequences in a pass
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    batch: u32,
    /// Tokens of each sequence [default: the model's tgt_len]
    #[arg(long, value_name = "T")]
    seq: Option<u32>,
    /// What to measure
    #[arg(long, value_enum, default_value_t = Mode::Infer)]
    mode: Mode,
    /// Precision of products: f32 or bf16; sums and weights are f32 either way
    #[arg(long, default_value_t)]
    precision: Precision,
    /// transformer_xl: memory projected before, projected anew in each pass, or none
    #[arg(long, value_enum, default_value_t = Memory::Cached)]
    memory: Memory,
    /// What keys and values of the tokens before are kept as: f32, bf16 or int8
    #[arg(long, default_value_t, value_name = "KIND")]
    cache: KeptAs,
}

/// The names of [`workload::Mode`].
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Mode {
    Infer,
    Decode,
    Prompt,
    Train,
}

/// The names of [`workload::Memory`].
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Memory {
    Cached,
    Reproject,
    None,
}

impl WorkloadArgs {
    pub fn workload(&self) -> Workload {
        Workload {
            mode: match self.mode {
                Mode::Infer => workload::Mode::Infer,
                Mode::Decode => workload::Mode::Decode,
                Mode::Prompt => workload::Mode::Prompt,
                Mode::Train => workload::Mode::Train,
            },
            batch: self.batch,
            seq: self.seq,
            memory: match self.memory {
                Memory::Cached => workload::Memory::Cached,
                Memory::Reproject => workload::Memory::Reproject,
                Memory::None => workload::Memory::None,
            },
            precision: self.precision,
            cache: self.cache,
        }
    }
}

/// How to come by a table of measured blocks.
#[derive(Args, Clone)]
pub struct TableArgs {
    /// Table of an earlier `lathe profile --out`, to be used as it is
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Measure anew, whatever was measured before
    #[arg(long)]
    fresh: bool,
}

impl TableArgs {
    pub fn source(&self) -> TableSource {
        TableSource { file: self.table.clone(), fresh: self.fresh }
    }
}
