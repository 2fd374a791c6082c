//! `lathe bench`: how long a model takes on this machine, and how much memory.
//!
//! The measurement runs in a child process, so that its peak of memory is the model's alone.

use super::Action;
use crate::input::{ModelArgs, Usage};
use crate::measure::{self, Budget, Times};
use crate::output::{self, BOLD, DIM, bytes};
use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use lathe_core::model::{Value, key};
use lathe_core::{Model, Positions, Spec};
use lathe_model::{Grads, Network, Precision, REGISTRY, State, Training};
use lathe_ops::optim::AdamW;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::process::{Command, Stdio};
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
    /// The longest time to measure for
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    seconds: f64,
    /// Seed of weights and tokens
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Mode {
    Infer,
    Decode,
    Train,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Memory {
    Cached,
    Reproject,
    None,
}

/// Set in the child process that measures, which gets the model on stdin: MODEL may be a pipe, to be read once.
const CHILD: &str = "LATHE_BENCH_CHILD";

#[derive(Serialize, Deserialize)]
struct Document {
    latency_ms: Latency,
    tokens_per_s: f64,
    peak_bytes: Option<u64>,
    threads: usize,
    cpu: String,
    instructions: String,
    precision: String,
    repetitions: usize,
    raw_ms: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
struct Latency {
    median: f64,
    low: f64,
    high: f64,
}

impl Action for Bench {
    fn run(self, json: bool) -> Result<()> {
        if std::env::var_os(CHILD).is_some() {
            let text = std::io::read_to_string(std::io::stdin())?;
            return output::json(&self.measure(Spec::from_toml(&text)?.model(&REGISTRY)?)?);
        }
        let document = measure_in_child(&self.model()?)?;
        if let Some(warning) = self.precision.warning() {
            output::tell(format_args!("warning: {warning}"));
        }
        let spread = (document.latency_ms.high - document.latency_ms.low) / document.latency_ms.median;
        if spread > 0.1 {
            let percent = 100.0 * spread;
            output::tell(format_args!("warning: the machine is noisy: the interval is {percent:.0} % of the median"));
        }
        if json {
            return output::json(&document);
        }
        let Latency { median, low, high } = document.latency_ms;
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

/// Runs this very command again, to measure.
fn measure_in_child(model: &Model) -> Result<Document> {
    let program = std::env::current_exe().context("the path of this program")?;
    let what = "the process that measures";
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context(what)?;
    child.stdin.take().expect("a pipe").write_all(model.to_toml().as_bytes()).context(what)?;
    let output = child.wait_with_output().context(what)?;
    if !output.status.success() {
        bail!("the process that measures ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("what the measuring process said")
}

impl Bench {
    /// The model, with the lengths of this measurement.
    fn model(&self) -> Result<Model> {
        let model = self.model.model()?;
        let mut spec: Spec = model.spec();
        let mut set = |name: &str, value: u32| {
            let key = key(name).expect("a key of the model file");
            spec.set(key, Value::Int(value));
        };
        if let Some(seq) = self.seq {
            if seq == 0 {
                return Err(Usage("--seq: found 0; expected at least 1".into()).into());
            }
            set("tgt_len", seq);
        }
        if model.frame.backbone.positions == Positions::Relative && self.memory == Memory::None {
            set("mem_len", 0);
        }
        Ok(spec.model(&REGISTRY)?)
    }

    fn measure(&self, model: Model) -> Result<Document> {
        let (batch, len) = (self.batch as usize, model.frame.tgt_len as usize);
        let vocab = model.frame.vocab;
        let mut network = Network::new(model, self.seed)?;
        network.set_precision(self.precision);
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut tokens = |n: usize| -> Vec<u32> { (0..n).map(|_| rng.random_range(0..vocab)).collect() };
        let (ids, targets) = (tokens(batch * len), tokens(batch * len));
        let budget = Budget { limit: Duration::from_secs_f64(self.seconds.clamp(0.0, 3600.0)), tight: 0.01 };
        let times = match self.mode {
            Mode::Infer => {
                network.freeze();
                let mut state = network.memory(batch);
                if self.memory == Memory::Cached {
                    // A memory of real hidden states, projected.
                    network.logits(&ids, batch, &mut state);
                    state = match network.model.frame.backbone.positions {
                        Positions::Relative => network.cache(batch, len, &state),
                        Positions::Learned => network.memory(batch),
                    };
                }
                measure::measure(budget, || {
                    if network.model.frame.backbone.positions == Positions::Learned {
                        state = network.memory(batch);
                    }
                    network.logits(&ids, batch, &mut state);
                })
            }
            Mode::Decode => {
                network.freeze();
                measure::measure(budget, || decode(&network, &ids, batch, len))
            }
            Mode::Train => {
                let mut trainer = Trainer::new(&network);
                measure::measure(budget, || trainer.step(&mut network, &ids, &targets, batch))
            }
        };
        Ok(self.document(&times, batch * len))
    }

    fn document(&self, times: &Times, tokens: usize) -> Document {
        let (low, high) = times.interval();
        let ms = |seconds: f64| 1000.0 * seconds;
        Document {
            latency_ms: Latency { median: ms(times.median()), low: ms(low), high: ms(high) },
            tokens_per_s: tokens as f64 / times.median(),
            peak_bytes: measure::peak_bytes(),
            threads: rayon::current_num_threads(),
            cpu: measure::cpu(),
            instructions: lathe_ops::cpu::level().name().into(),
            precision: self.precision.available().to_string(),
            repetitions: times.raw.len(),
            raw_ms: times.raw.iter().copied().map(ms).collect(),
        }
    }
}

/// Decodes greedily from the first token of each sequence.
fn decode(network: &Network, ids: &[u32], batch: usize, len: usize) {
    let vocab = network.model.frame.vocab as usize;
    let mut state = network.cache(batch, 1, &network.memory(batch));
    let mut tokens: Vec<u32> = ids.iter().step_by(len).copied().collect();
    for _ in 0..len {
        let logits = network.logits(&tokens, batch, &mut state);
        let best = |row: &[f32]| {
            row.iter().enumerate().fold((0, f32::MIN), |best, (i, &x)| if x > best.1 { (i, x) } else { best }).0
        };
        tokens = logits.chunks_exact(vocab).map(|row| best(row) as u32).collect();
    }
}

/// A whole training step.
struct Trainer {
    grads: Grads,
    moments: Vec<[Vec<f32>; 2]>,
    step: i32,
    state: Option<State>,
}

impl Trainer {
    fn new(network: &Network) -> Self {
        let moments = network.params().iter().map(|param| [vec![0.0; param.data.len()], vec![0.0; param.data.len()]]);
        Self { grads: Grads::new(network.params()), moments: moments.collect(), step: 0, state: None }
    }

    fn step(&mut self, network: &mut Network, ids: &[u32], targets: &[u32], batch: usize) {
        self.step += 1;
        self.grads.clear();
        let training =
            Training { dropout_key: Some(self.step as u64), balance: 0.01, scale: 1.0 / targets.len() as f32 };
        let mut state = self.state.take().unwrap_or_else(|| network.memory(batch));
        network.train(ids, targets, batch, &mut state, &training, &mut self.grads);
        if network.model.frame.backbone.positions == Positions::Relative {
            self.state = Some(state);
        }
        let adamw = AdamW { lr: 1e-4, betas: (0.9, 0.95), eps: 1e-8, weight_decay: 0.1 };
        for ((param, grad), [m, v]) in network.params_mut().zip(self.grads.finish()).zip(&mut self.moments) {
            adamw.step(self.step, 1.0, &mut param.data, grad, m, v);
        }
    }
}
