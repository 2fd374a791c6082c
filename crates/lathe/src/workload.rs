//! The flags that say what is measured, and the measuring of whole models in processes of their own.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use lathe_core::{Model, Spec};
use lathe_model::{Precision, REGISTRY};
use lathe_search::profile::{Interval, Measured};
use lathe_search::workload::{self, Workload};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::process::{Command, Stdio};

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
}

/// The names of [`workload::Mode`].
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Mode {
    Infer,
    Decode,
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
        }
    }
}

/// Set in a child process that measures; it gets a [`Task`] on stdin and answers with a [`Answer`].
pub const CHILD: &str = "LATHE_MEASURE_CHILD";

/// What a child measures.
#[derive(Serialize, Deserialize)]
pub struct Task {
    /// A model file.
    pub model: String,
    pub workload: Workload,
    pub seconds: f64,
    pub seed: u64,
    pub threads: usize,
    /// Whether to measure beside [`reference()`].
    pub beside: bool,
}

/// What a child measured.
#[derive(Serialize, Deserialize)]
pub struct Answer {
    pub latency_ms: Interval,
    pub peak_bytes: Option<u64>,
    pub raw_ms: Vec<f64>,
    /// Where it was measured beside [`reference()`].
    pub beside: Option<Beside>,
}

/// A model beside [`reference()`].
#[derive(Serialize, Deserialize)]
pub struct Beside {
    /// How many times as long it takes.
    pub ratio: f64,
    pub reference_ms: f64,
}

/// What models are measured beside, so that the moods of the machine can be divided out: large enough to meet the same
/// ones, small enough to take little time, whatever the workload.
pub fn reference(workload: &Workload) -> Result<workload::Job> {
    let spec = "backbone='gpt2'\nlayers='(sf)x4'\nd_model=256\nvocab=256\ntgt_len=128\nmax_len=128";
    let model = Spec::from_toml(spec)?.model(&REGISTRY)?;
    Ok(Workload { precision: workload.precision, ..Workload::default() }.whole(model, 0)?)
}

impl Answer {
    pub fn measured(&self) -> Measured {
        Measured { latency_ms: self.latency_ms, peak_bytes: self.peak_bytes.unwrap_or(0) }
    }
}

/// Measures a model in a process of its own, so that its peak of memory is the model's alone.
pub fn measure(model: &Model, workload: &Workload, seconds: f64, seed: u64) -> Result<Answer> {
    measure_in_child(model, workload, seconds, seed, false)
}

/// The same, beside [`reference()`].
pub fn measure_beside(model: &Model, workload: &Workload, seconds: f64) -> Result<Answer> {
    measure_in_child(model, workload, seconds, 0, true)
}

fn measure_in_child(model: &Model, workload: &Workload, seconds: f64, seed: u64, beside: bool) -> Result<Answer> {
    let program = std::env::current_exe().context("the path of this program")?;
    let what = "the process that measures";
    let threads = rayon::current_num_threads();
    let task = Task { model: model.to_toml(), workload: workload.clone(), seconds, seed, threads, beside };
    let mut child = Command::new(program)
        .args(["bench", "--threads", &threads.to_string()])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context(what)?;
    child.stdin.take().expect("a pipe").write_all(&serde_json::to_vec(&task)?).context(what)?;
    let output = child.wait_with_output().context(what)?;
    if !output.status.success() {
        bail!("the process that measures ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("what the measuring process said")
}
