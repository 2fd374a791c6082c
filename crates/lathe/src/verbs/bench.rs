//! `lathe bench`: how long a model takes on this machine, and how much memory.
//!
//! The measurement runs in a child process, so that its peak of memory is the model's alone.

use super::Action;
use crate::input::ModelArgs;
use crate::output::{self, BOLD, DIM, bytes};
use crate::workload::{self, Answer, Beside, Task, WorkloadArgs};
use anyhow::Result;
use clap::Parser;
use lathe_core::Spec;
use lathe_model::REGISTRY;
use lathe_search::measure::{self, Budget, Times};
use lathe_search::profile::{Interval, cpu};
use serde::Serialize;
use std::time::Duration;

/// Measure how long a model takes on this machine, and how much memory
#[derive(Parser)]
#[command(
    name = "bench",
    after_help = "\
infer   one forward pass over T tokens, logits at every position; a transformer_xl runs after a full memory
decode  T tokens, one at a time with the cache, from an empty prompt; the latency is that of all T
train   one whole step on random tokens: forward, cross-entropy, backward, AdamW

Latency is a median with its 95 % interval; memory is the peak of the process.

Examples:
  lathe bench gpt2_small --seq 192
  lathe bench transformer_xl_24b --seq 64 --mem-len 640 --memory reproject
  lathe bench --backbone gpt2 --layers \"(sf)x6\" --d-model 256 --vocab 256 --mode train --batch 16 --seq 128"
)]
pub struct Bench {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// The longest time to measure for
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    seconds: f64,
    /// Seed of weights and tokens
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Serialize)]
struct Document {
    latency_ms: Interval,
    tokens_per_s: f64,
    peak_bytes: Option<u64>,
    threads: usize,
    cpu: String,
    instructions: &'static str,
    precision: String,
    repetitions: usize,
    raw_ms: Vec<f64>,
}

impl Action for Bench {
    fn run(self, json: bool) -> Result<()> {
        if std::env::var_os(workload::CHILD).is_some() {
            return output::json(&answer(&serde_json::from_reader(std::io::stdin())?)?);
        }
        let workload = self.workload.workload();
        let model = workload.model(&self.model.model()?)?;
        let tokens = workload.tokens(&model);
        let Answer { latency_ms, peak_bytes, raw_ms, .. } =
            workload::measure(&model, &workload, self.seconds, self.seed)?;
        if let Some(warning) = workload.precision.warning() {
            output::tell(format_args!("warning: {warning}"));
        }
        if latency_ms.spread() > 0.1 {
            let percent = 100.0 * latency_ms.spread();
            output::tell(format_args!("warning: the machine is noisy: the interval is {percent:.0} % of the median"));
        }
        let document = Document {
            latency_ms,
            tokens_per_s: 1000.0 * tokens as f64 / latency_ms.median,
            peak_bytes,
            threads: rayon::current_num_threads(),
            cpu: cpu(),
            instructions: lathe_ops::cpu::level().name(),
            precision: workload.precision.available().to_string(),
            repetitions: raw_ms.len(),
            raw_ms,
        };
        if json {
            return output::json(&document);
        }
        let Interval { median, low, high } = document.latency_ms;
        output::text(&format!(
            "{}{median:.2} ms{} {}[{low:.2}, {high:.2}], {} runs{}\n{:.0} tokens/s, peak memory {}\n{} threads, {} ({}, {})",
            BOLD.render(),
            BOLD.render_reset(),
            DIM.render(),
            document.repetitions,
            DIM.render_reset(),
            document.tokens_per_s,
            document.peak_bytes.map_or("unknown".into(), |peak| bytes(peak.into())),
            document.threads,
            document.cpu,
            document.instructions,
            document.precision,
        ))
    }
}

/// Does what the parent process asked for.
fn answer(task: &Task) -> Result<Answer> {
    let model = Spec::from_toml(&task.model)?.model(&REGISTRY)?;
    let limit = Duration::from_secs_f64(task.seconds.clamp(0.0, 3600.0));
    let mut job = task.workload.whole(model, task.seed)?;
    if task.beside {
        (0..2).for_each(|_| job());
        let peak_bytes = measure::peak_bytes(); // before there is anything else
        let [ratios, others] = measure::measure_beside(limit, job, workload::reference(&task.workload)?);
        let beside = Beside { ratio: ratios.median(), reference_ms: 1000.0 * others.median() };
        let times = Times { raw: ratios.raw.iter().map(|ratio| ratio * beside.reference_ms).collect() };
        let latency_ms = Interval::from(&times);
        return Ok(Answer { latency_ms, peak_bytes, raw_ms: times.raw, beside: Some(beside) });
    }
    let times = measure::measure(Budget { limit, tight: 0.01 }, job);
    let times = Times { raw: times.raw.iter().map(|seconds| 1000.0 * seconds).collect() };
    let (latency_ms, peak_bytes) = (Interval::from(&times), measure::peak_bytes());
    Ok(Answer { latency_ms, peak_bytes, raw_ms: times.raw, beside: None })
}
