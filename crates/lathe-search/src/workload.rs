//! What is measured: a whole model or one block, in the setting in which it will run.

use crate::{Error, Result};
use lathe_core::{Block, Frame, Model};
use lathe_model::{BlockBench, Grads, Input, Network, Precision, State, Training, WeightStorage};
use lathe_ops::allocator;
use lathe_ops::attention::KeptAs;
use lathe_ops::buffer::{self, Buf};
use lathe_train::optimizer::{Optimizer, Rule};
use lathe_train::settings::Settings;
use lathe_train::tasks::{self, Sequences};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a pass does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One forward pass over T tokens, logits at every position.
    #[default]
    Infer,
    /// T tokens, one at a time with the cache, from an empty prompt.
    Decode,
    /// T tokens of a prompt into an empty cache in one pass, logits of the last one alone, as a chat begins.
    Prompt,
    /// One whole step on random tokens: forward, cross-entropy, backward, AdamW.
    Train,
}

impl Mode {
    /// Its name in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Infer => "infer",
            Self::Decode => "decode",
            Self::Prompt => "prompt",
            Self::Train => "train",
        }
    }

    /// Whether it is a part of writing a text, which begins with an empty cache.
    pub fn writes(self) -> bool {
        matches!(self, Self::Decode | Self::Prompt)
    }
}

/// What a model with a memory has of the tokens before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// Keys and values that were projected before.
    #[default]
    Cached,
    /// Hidden states that each pass projects anew, as the papers do.
    Reproject,
    /// Nothing.
    None,
}

/// The setting of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// What a pass does.
    pub mode: Mode,
    /// B
    pub batch: u32,
    /// T; `None` for the model's tgt_len.
    pub seq: Option<u32>,
    /// Of a model with one.
    pub memory: Memory,
    /// What products are computed in.
    #[serde(with = "as_text")]
    pub precision: Precision,
    /// What keys and values of the tokens before are kept as.
    #[serde(with = "as_text", default, skip_serializing_if = "as_they_are")]
    pub cache: KeptAs,
}

fn as_they_are(cache: &KeptAs) -> bool {
    *cache == KeptAs::F32
}

impl Default for Workload {
    fn default() -> Self {
        let (mode, memory, precision) = (Mode::Infer, Memory::Cached, Precision::F32);
        Self { mode, batch: 1, seq: None, memory, precision, cache: KeptAs::F32 }
    }
}

/// A pass that can be run again and again.
pub type Pass = Box<dyn FnMut() + Send>;

/// A job with the memory that it holds between passes.
pub struct Resident {
    /// The pass.
    pub job: Pass,
    /// Bytes in use because of it, while it does not run.
    pub bytes: usize,
    /// Bytes in addition at the most, while it runs.
    pub transient: usize,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Infer => "inference",
            Mode::Decode => "decoding one token at a time",
            Mode::Prompt => "reading a prompt",
            Mode::Train => "training",
        };
        write!(f, "{mode}, batch {}", self.batch)?;
        if let Some(seq) = self.seq {
            write!(f, ", {seq} tokens")?;
        }
        match self.memory {
            Memory::Cached => {}
            Memory::Reproject => f.write_str(", memory projected anew")?,
            Memory::None => f.write_str(", no memory")?,
        }
        write!(f, ", {}", self.precision.available())?;
        match self.cache {
            KeptAs::F32 => Ok(()),
            cache => write!(f, ", keys and values in {cache}"),
        }
    }
}

impl Workload {
    /// A model with the lengths of this workload.
    pub fn model(&self, model: &Model) -> Result<Model> {
        let mut frame = model.frame.clone();
        match self.seq {
            Some(0) => return Err(Error::setting("seq", 0, "at least 1")),
            Some(seq) => frame.tgt_len = seq,
            None => {}
        }
        if self.memory == Memory::None {
            frame.mem_len = 0;
        }
        frame.check()?;
        if self.mode.writes() && !(frame.backbone.causal() && frame.has_head()) {
            let found = format!("{} for a {}", self.mode.name(), frame.backbone.key());
            return Err(Error::setting("mode", found, "infer or train: it does not write text token by token"));
        }
        let model = Model::new(frame, model.blocks.clone())?;
        if self.mode == Mode::Train {
            tasks::find("", &model)?; // it can be trained for something
        }
        Ok(model)
    }

    /// Tokens of one pass over a model.
    pub fn tokens(&self, model: &Model) -> u64 {
        u64::from(self.batch) * u64::from(self.seq.unwrap_or(model.frame.tgt_len))
    }

    /// The passes of a whole model with random weights; its lengths are those of [`Self::model`].
    pub fn whole(&self, model: Model, seed: u64) -> Result<Pass> {
        Ok(self.passes(Network::for_measuring(model, seed)?, seed))
    }

    /// The passes of a network over random tokens; its lengths are those of [`Self::model`].
    pub fn passes(&self, mut network: Network, seed: u64) -> Pass {
        let frame = &network.model.frame;
        let (batch, len) = (self.batch as usize, frame.tgt_len as usize);
        let (vocab, carried) = (frame.vocab, frame.has_memory());
        network.set_precision(self.precision);
        network.set_cache(self.cache);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut tokens = |n: usize| -> Vec<u32> { (0..n).map(|_| rng.random_range(0..vocab)).collect() };
        let (ids, targets) = (tokens(batch * len), tokens(batch * len));
        let source = network.model.frame.source_len().map(|len| tokens(batch * len as usize));
        let texts = Texts { ids, source, batch };
        match self.mode {
            Mode::Infer => {
                network.freeze();
                let mut state = network.init_memory(batch);
                if self.memory == Memory::Cached && carried {
                    run(&network, &texts, &mut state); // a memory of real hidden states
                    state = network.init_cache(batch, len, &state);
                }
                Box::new(move || {
                    if !carried {
                        state = network.init_memory(batch);
                    }
                    run(&network, &texts, &mut state);
                })
            }
            Mode::Decode => {
                network.freeze();
                Box::new(move || decode(&network, &texts, len))
            }
            Mode::Prompt => {
                network.freeze();
                Box::new(move || {
                    let mut state = network.init_cache(batch, len, &network.init_memory(batch));
                    network.last_logits(&texts.input(), &mut state);
                })
            }
            Mode::Train => {
                let task = tasks::find("", &network.model).expect("a model that can be trained");
                let mut optimizer = adamw(network.params());
                let mut grads = Grads::new(network.params());
                let (mut state, mut step) = (network.init_memory(batch), 0);
                let targets = task.any_targets(&network.model.frame, targets, len);
                Box::new(move || {
                    step += 1;
                    grads.clear();
                    let scale = 1.0 / targets.len() as f32;
                    let training = Training { dropout_key: Some(u64::from(step)), balance: 0.01, scale };
                    if !carried {
                        state = network.init_memory(batch);
                    }
                    let input = texts.input();
                    let objective = task.objective(Sequences::new(input, &targets));
                    network.train(&input, &*objective, &mut state, &training, &mut grads);
                    optimizer.step(network.params_mut(), &mut grads, step, RATE);
                })
            }
        }
    }

    /// The passes of a frame without blocks, whose lengths are those of [`Self::model`].
    pub fn frame(&self, frame: &Frame, storage: WeightStorage, seed: u64) -> Result<Pass> {
        let mut network = Network::for_measuring(Model::new(frame.clone(), Vec::new())?, seed)?;
        network.set_frame_storage(storage);
        Ok(self.passes(network, seed))
    }

    /// The passes of a block in a frame whose lengths are those of [`Self::model`].
    pub fn block(&self, block: &Block, frame: &Frame, storage: WeightStorage, seed: u64) -> Result<Pass> {
        let (batch, d) = (self.batch as usize, frame.d_model as usize);
        let len = if self.mode == Mode::Decode { 1 } else { frame.tgt_len as usize };
        let times = if self.mode == Mode::Decode { frame.tgt_len } else { 1 };
        let mut bench = BlockBench::new(block, frame, seed)?;
        bench.set_storage(storage);
        bench.set_precision(self.precision);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut x = Buf::zeros(batch * len * d);
        x.iter_mut().for_each(|x| *x = rng.random_range(-1.0..1.0));
        if self.mode == Mode::Train {
            let mut optimizer = adamw(bench.params());
            let mut grads = Grads::new(bench.params());
            let (mut state, mut step) = (bench.state(batch, len, false), 0);
            return Ok(Box::new(move || {
                step += 1;
                grads.clear();
                bench.train(x.clone(), batch, &mut state, &mut grads);
                optimizer.step(bench.params_mut(), &mut grads, step, RATE);
            }));
        }
        bench.freeze();
        let carried = frame.has_memory();
        let cached = self.mode.writes() || carried && self.memory == Memory::Cached;
        let mut state = bench.state(batch, len, cached);
        // Without a memory each pass begins with nothing, and what writes with an empty cache.
        let anew = !carried || self.mode.writes();
        Ok(Box::new(move || {
            if anew {
                state = bench.state(batch, len, cached);
            }
            for _ in 0..times {
                bench.forward(x.clone(), batch, &mut state);
            }
        }))
    }

    /// A job, and the memory that it holds and takes. Nothing else may allocate meanwhile.
    pub fn held(build: impl FnOnce() -> Result<Pass>) -> Result<Resident> {
        buffer::release();
        let before = allocator::in_use();
        let mut job = build()?;
        job(); // what it makes at first use is there from now on
        buffer::release();
        let held = allocator::in_use();
        allocator::restart_peak();
        job();
        Ok(Resident { bytes: held.saturating_sub(before), transient: allocator::peak().saturating_sub(held), job })
    }
}

const RATE: f64 = 1e-4;

fn adamw(params: &lathe_model::Params) -> Optimizer {
    Optimizer::new(Rule::AdamW, &Settings { clip: 0.0, ..Settings::default() }, params)
}

/// Random texts for a model.
struct Texts {
    ids: Vec<u32>,
    /// What an encoder reads, where there is one.
    source: Option<Vec<u32>>,
    batch: usize,
}

impl Texts {
    fn input(&self) -> Input<'_> {
        self.with(&self.ids)
    }

    /// Other tokens after the same source.
    fn with<'a>(&'a self, ids: &'a [u32]) -> Input<'a> {
        let input = Input::tokens(ids, self.batch);
        self.source.as_ref().map_or(input, |source| input.after(source))
    }
}

/// One forward pass: logits at every position, or hidden states and their vector where there is no output layer.
fn run(network: &Network, texts: &Texts, state: &mut State) {
    let hidden = network.hidden(&texts.input(), state);
    match network.has_head() {
        true => drop(network.outputs(&hidden)),
        false => drop(network.pooled(&hidden, texts.batch)),
    }
}

/// Decodes greedily from the first token of each sequence; an encoder reads before the first.
fn decode(network: &Network, texts: &Texts, len: usize) {
    let (vocab, batch) = (network.model.frame.vocab as usize, texts.batch);
    let mut state = network.init_cache(batch, 1, &network.init_memory(batch));
    let mut tokens: Vec<u32> = texts.ids.iter().step_by(len).copied().collect();
    for step in 0..len {
        let input = if step == 0 { texts.with(&tokens) } else { Input::tokens(&tokens, batch) };
        let logits = network.logits(&input, &mut state);
        let best = |row: &[f32]| {
            row.iter().enumerate().fold((0, f32::MIN), |best, (i, &x)| if x > best.1 { (i, x) } else { best }).0
        };
        tokens = logits.chunks_exact(vocab).map(|row| best(row) as u32).collect();
    }
}

/// Values that are written as the text they print.
mod as_text {
    use super::{Deserialize, FromStr, fmt};
    use serde::{Deserializer, Serializer, de::Error};

    pub fn serialize<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err = String>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
