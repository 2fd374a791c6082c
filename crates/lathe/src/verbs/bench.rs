//! `lathe bench`: how long a model takes on this machine, and how much memory.
//!
//! The measurement runs in a child process, so that its peak of memory is the model's alone.

use super::Action;
use crate::input::ModelArgs;
use crate::output::{self, BOLD, DIM, bytes};
use crate::screen;
use crate::workload::WorkloadArgs;
use anyhow::Result;
use clap::Parser;
use lathe_job::bench;
use lathe_job::measurer::Request;
use lathe_model::{REGISTRY, folder};
use lathe_search::profile::Interval;

/// Measure how long a model takes on this machine, and how much memory
#[derive(Parser)]
#[command(
    name = "bench",
    after_help = "\
infer   one forward pass over T tokens, logits at every position; a transformer_xl runs after a full memory
decode  T tokens, one at a time with the cache, from an empty prompt; the latency is that of all T
prompt  T tokens of a prompt in one pass into an empty cache, logits of the last one alone, as a chat begins
train   one whole step on random tokens: forward, cross-entropy, backward, AdamW

A model folder or a GGUF file is measured with its weights, stored as they are there; a model file, a shipped name or a folder
with other keys over it with random ones. Latency is a median with its 95 % interval; memory is the peak of the process.

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

impl Action for Bench {
    fn run(self, json: bool) -> Result<()> {
        let workload = self.workload.workload();
        let weights = self.model.folder();
        let model = match weights {
            Some(folder) => folder::load_model(folder, &REGISTRY)?,
            None => self.model.model()?,
        };
        let model = workload.model(&model)?;
        let (seconds, seed) = (self.seconds, self.seed);
        let request = Request { seed, weights, ..Request::new(&model, &workload, seconds) };
        let found = screen::job(|context, watch| bench::run(context, &request, watch))?;
        if json {
            return output::json(&found);
        }
        let Interval { median, low, high } = found.latency_ms;
        output::text(&format!(
            "{}{median:.2} ms{} {}[{low:.2}, {high:.2}], {} runs{}\n{:.0} tokens/s, peak memory {}\n{} threads, {} ({}, {})",
            BOLD.render(),
            BOLD.render_reset(),
            DIM.render(),
            found.repetitions,
            DIM.render_reset(),
            found.tokens_per_s,
            found.peak_bytes.map_or("unknown".into(), |peak| bytes(peak.into())),
            found.threads,
            found.cpu,
            found.instructions,
            found.precision,
        ))
    }
}
