//! What a model folder computes for given tokens, to be compared with other implementations.

use crate::{Error, Event, Result, Watch, input};
use lathe_core::Registry;
use lathe_model::folder::{self, Tensor, TensorFile};
use lathe_model::{Grads, Input, Network, Precision, Targets, Training};
use lathe_ops::loss::IGNORE;
use lathe_search::measure::{Budget, Times, measure};
use lathe_search::profile::Interval;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to compute.
#[derive(Debug, Clone)]
pub struct Request {
    /// A model folder.
    pub folder: PathBuf,
    /// A safetensors file with `ids`, int64 of shape [B, T]; for encoders also `mask` (1 for a token, 0 for padding) and
    /// `segments`, both of the same shape.
    pub tokens: PathBuf,
    /// The safetensors file of the results.
    pub out: PathBuf,
    /// Consecutive segments that the tokens are cut into, which carry the memory.
    pub segments: u32,
    /// Whether to compute the gradient of every weight, too.
    pub grads: bool,
    /// Precision of products.
    pub precision: Precision,
    /// How long to measure an encoder's pass, with its weights packed, if that is wanted.
    pub seconds: Option<f64>,
}

/// What was computed.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Mean of -log p of the next token; none of one token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// How many tokens, padding included.
    pub tokens: usize,
    /// Median and interval of a pass, where it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<Interval>,
    /// Where the results are.
    pub out: String,
}

/// Computes and writes the results.
pub fn run(request: &Request, registry: &Registry, watch: Watch<'_>) -> Result<Outcome> {
    let mut network = folder::load(&input::model_folder(&request.folder)?, registry)?;
    network.set_precision(request.precision);
    if let Some(warning) = request.precision.warning() {
        watch(Event::Warning(warning));
    }
    let tokens = Tokens::read(&request.tokens, request.segments as usize, &network)?;
    if !network.model.frame.backbone.causal() {
        return encode(request, network, &tokens);
    }
    if let Some(seconds) = request.seconds {
        let found = format!("{seconds} for a {}", network.model.frame.backbone.key());
        return Err(Error::setting("seconds", found, "none: passes of an encoder are measured here"));
    }
    if tokens.len == 1 {
        let message = "note: one token has no next one, so there is no loss, and no gradient of it";
        watch(Event::Message(message.into()));
    }
    let results = Results::compute(&network, &tokens, request.grads);
    results.write(&request.out, &network, &tokens)?;
    Ok(Outcome {
        loss: results.loss,
        latency_ms: None,
        tokens: tokens.ids.len(),
        out: request.out.display().to_string(),
    })
}

/// What an encoder computes: hidden states, their vector and outputs, where it has them.
fn encode(request: &Request, mut network: Network, tokens: &Tokens) -> Result<Outcome> {
    if request.grads {
        let found = format!("true for a {}", network.model.frame.backbone.key());
        return Err(Error::setting("grads", found, "false: there is no next token to tell"));
    }
    let (batch, len) = (tokens.batch, tokens.len);
    let (d, vocab) = (network.model.frame.d_model as usize, network.model.frame.vocab as usize);
    let (mask, segments) = (tokens.mask.as_deref(), tokens.texts.as_deref());
    let input = Input { mask, segments, ..Input::tokens(&tokens.ids, batch) };
    network.freeze();
    let pass = || {
        let hidden = network.hidden(&input, &mut network.init_memory(batch));
        let pooled = network.pooled(&hidden, batch);
        let logits = network.has_head().then(|| network.outputs(&hidden));
        (hidden, pooled, logits)
    };
    let latency_ms = request.seconds.map(|seconds| {
        let limit = Duration::from_secs_f64(seconds.clamp(0.0, 3600.0));
        let times = measure(Budget { limit, tight: 0.0 }, || drop(pass()));
        Interval::from(&Times { raw: times.raw.iter().map(|seconds| 1000.0 * seconds).collect() })
    });
    let (hidden, pooled, logits) = pass();
    // Blocks may have left fewer tokens.
    let mut tensors = vec![Tensor::f32("hidden", &[batch, hidden.len() / (batch * d), d], &hidden)];
    tensors.extend(pooled.as_ref().map(|pooled| Tensor::f32("pooled", &[batch, d], pooled)));
    tensors.extend(logits.as_ref().map(|logits| Tensor::f32("logits", &[batch, len, vocab], logits)));
    folder::write_tensors(&request.out, &tensors)?;
    Ok(Outcome { loss: None, latency_ms, tokens: tokens.ids.len(), out: request.out.display().to_string() })
}

/// Tokens to compute with, cut into segments.
struct Tokens {
    ids: Vec<u32>,
    /// [B, T]: which of them are real.
    mask: Option<Vec<bool>>,
    /// [B, T]: of which text they are.
    texts: Option<Vec<u32>>,
    batch: usize,
    /// T, of all segments together.
    len: usize,
    segments: usize,
}

impl Tokens {
    /// Reads and checks them.
    fn read(path: &Path, segments: usize, network: &Network) -> Result<Self> {
        let frame = &network.model.frame;
        let mut file = TensorFile::open(path)?;
        let ([batch, len], ids) = file.ints("ids", "[B, T]")?;
        let place = format!("{}: ids", path.display());
        if batch == 0 || len == 0 {
            return Err(Error::data(place, format!("the shape [{batch}, {len}]"), "at least one token"));
        }
        if !frame.has_memory() {
            if segments > 1 {
                let found = format!("{segments} for a {}", frame.backbone.key());
                return Err(Error::setting("segments", found, "1, for segments need a model with a memory"));
            }
            if len > frame.max_len as usize {
                let expected = format!("at most max_len, which is {}", frame.max_len);
                return Err(Error::data(place, format!("{len} tokens in a sequence"), expected));
            }
        }
        if len % segments != 0 {
            return Err(Error::setting("segments", segments, format!("a divisor of T, which is {len}")));
        }
        if let Some(i) = ids.iter().position(|id| !(0..i64::from(frame.vocab)).contains(id)) {
            let (row, column) = (i / len, i % len);
            let expected = format!("a token from 0 to {}", frame.vocab - 1);
            return Err(Error::data(format!("{place}[{row}, {column}]"), ids[i], expected));
        }
        let mask = beside(&mut file, path, "mask", [batch, len], 2, frame.backbone.causal())?;
        let most = frame.int("segments").unwrap_or(1);
        let texts = beside(&mut file, path, "segments", [batch, len], most, frame.backbone.causal())?;
        let mask = mask.map(|mask| mask.into_iter().map(|real| real == 1).collect());
        Ok(Self { ids: ids.into_iter().map(|id| id as u32).collect(), mask, texts, batch, len, segments })
    }

    /// Tokens of a segment.
    fn part(&self) -> usize {
        self.len / self.segments
    }

    /// Tokens and next tokens of a segment, [B, T / N] each; the last token of a sequence has no next one.
    fn segment(&self, i: usize) -> (Vec<u32>, Vec<u32>) {
        let places = i * self.part()..(i + 1) * self.part();
        let of_sequence = |ids: &[u32]| {
            let next = |t: usize| ids.get(t + 1).copied().unwrap_or(IGNORE);
            places.clone().map(|t| (ids[t], next(t))).collect::<Vec<_>>()
        };
        self.ids.chunks_exact(self.len).flat_map(of_sequence).unzip()
    }
}

/// A matrix beside `ids`, of the same shape and of whole numbers below `most`, if there is one; only encoders take it.
fn beside(
    file: &mut TensorFile,
    path: &Path,
    name: &str,
    shape: [usize; 2],
    most: u32,
    causal: bool,
) -> Result<Option<Vec<u32>>> {
    if file.shape(name).is_none() {
        return Ok(None);
    }
    let place = format!("{}: {name}", path.display());
    if causal {
        return Err(Error::data(place, "a tensor", "none, for a model that predicts the next token"));
    }
    let (found, values) = file.ints(name, "[B, T]")?;
    if found != shape {
        return Err(Error::data(place, format!("the shape {found:?}"), format!("{shape:?}, as that of ids")));
    }
    if let Some(wrong) = values.iter().find(|value| !(0..i64::from(most)).contains(value)) {
        return Err(Error::data(place, wrong, format!("whole numbers from 0 to {}", most - 1)));
    }
    Ok(Some(values.into_iter().map(|value| value as u32).collect()))
}

/// What was computed.
struct Results {
    /// [B, T, V]
    logits: Vec<f32>,
    loss: Option<f64>,
    /// Layer and memory, [B, M, D] each.
    memories: Vec<(usize, Vec<f32>)>,
    /// In the order of the parameters; empty where they were not asked for.
    grads: Vec<Vec<f32>>,
}

impl Results {
    fn compute(network: &Network, tokens: &Tokens, with_grads: bool) -> Self {
        let (batch, vocab) = (tokens.batch, network.model.frame.vocab as usize);
        let targets = batch * (tokens.len - 1);
        let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 / targets.max(1) as f32 };
        let mut grads = (with_grads && targets > 0).then(|| Grads::new(network.params()));
        let mut logits = vec![0.0; tokens.ids.len() * vocab];
        let mut total = 0.0;
        let mut state = network.init_memory(batch);
        let part = tokens.part() * vocab;
        for i in 0..tokens.segments {
            let (ids, next) = tokens.segment(i);
            let mut before = state.clone();
            let of_segment = network.logits(&Input::tokens(&ids, batch), &mut state);
            for (all, segment) in logits.chunks_exact_mut(tokens.len * vocab).zip(of_segment.chunks_exact(part)) {
                all[i * part..][..part].copy_from_slice(segment);
            }
            let losses = match &mut grads {
                Some(grads) => {
                    network.train(&Input::tokens(&ids, batch), &Targets(&next), &mut before, &training, grads).losses
                }
                None => network.loss(&Input::tokens(&ids, batch), &Targets(&next), &mut before),
            };
            total += losses.into_iter().map(f64::from).sum::<f64>();
        }
        let memories = network.memories(&state).filter(|(_, memory)| !memory.is_empty());
        Self {
            logits,
            loss: (targets > 0).then(|| total / targets as f64),
            memories: memories.map(|(layer, memory)| (layer, memory.to_vec())).collect(),
            grads: grads.map_or_else(Vec::new, |mut grads| grads.finish().iter_mut().map(std::mem::take).collect()),
        }
    }

    fn write(&self, path: &Path, network: &Network, tokens: &Tokens) -> Result<()> {
        let frame = &network.model.frame;
        let loss = self.loss.map(|loss| [loss as f32]);
        let shape = [tokens.batch, tokens.len, frame.vocab as usize];
        let mut tensors = vec![Tensor::f32("logits", &shape, &self.logits)];
        if let Some(loss) = &loss {
            tensors.push(Tensor::f32("loss", &[1], loss));
        }
        let memory = [tokens.batch, frame.mem_len as usize, frame.d_model as usize];
        tensors
            .extend(self.memories.iter().map(|(layer, values)| Tensor::f32(format!("mems.{layer}"), &memory, values)));
        let grads = network.params().iter().zip(&self.grads);
        tensors.extend(grads.map(|(param, grad)| Tensor::f32(format!("grad.{}", param.name), &param.shape, grad)));
        Ok(folder::write_tensors(path, &tensors)?)
    }
}
