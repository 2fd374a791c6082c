//! `lathe forward`: what a model folder computes for given tokens, to be compared with other implementations.

use super::Action;
use crate::input::Usage;
use crate::output::{self, grouped};
use anyhow::{Result, bail};
use clap::Parser;
use lathe_core::Positions;
use lathe_model::folder::{self, Tensor, TensorFile};
use lathe_model::{Grads, Network, Training};
use lathe_ops::loss::IGNORE;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Compute logits, loss, memories and gradients of a model folder for given tokens
#[derive(Parser)]
#[command(
    name = "forward",
    after_help = "\
IDS holds `ids`, int64 of shape [B, T]. OUT gets, in f32,
  logits         [B, T, V]; log-probabilities for a transformer_xl or an adaptive softmax
  loss           [1], mean of -log p of the next token over B * (T - 1); absent if T is 1
  mems.<layer>   [B, M, D], the memories of a transformer_xl after the last segment
  grad.<weight>  the loss's gradient, which ends at the border of a segment; without dropout and balance loss

Example:
  lathe forward my_model --tokens ids.safetensors --out out.safetensors --grads"
)]
pub struct Forward {
    /// Model folder: config.json and model.safetensors
    folder: PathBuf,
    /// Tokens: a safetensors file with `ids`
    #[arg(long, value_name = "IDS")]
    tokens: PathBuf,
    /// Where the results go: a safetensors file
    #[arg(long, value_name = "OUT")]
    out: PathBuf,
    /// transformer_xl: consecutive segments that the tokens are cut into, which carry the memory
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    segments: u32,
    /// Also the gradient of every weight
    #[arg(long)]
    grads: bool,
}

#[derive(Serialize)]
struct Document {
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<f64>,
    tokens: usize,
    out: String,
}

impl Action for Forward {
    fn run(self, json: bool) -> Result<()> {
        let network = folder::load(&self.folder)?;
        let tokens = Tokens::read(&self.tokens, self.segments as usize, &network)?;
        if tokens.len == 1 {
            anstream::eprintln!("note: one token has no next one, so there is no loss, and no gradient of it");
        }
        let results = Results::compute(&network, &tokens, self.grads);
        results.write(&self.out, &network, &tokens)?;
        let document = Document { loss: results.loss, tokens: tokens.ids.len(), out: self.out.display().to_string() };
        if json {
            return output::json(&document);
        }
        let loss = document.loss.map_or_else(String::new, |loss| format!("loss {loss:.6}, "));
        output::text(&format!("{loss}{} tokens; results in {}", grouped(document.tokens as u64), document.out))
    }
}

/// Tokens to compute with, cut into segments.
struct Tokens {
    ids: Vec<u32>,
    batch: usize,
    /// T, of all segments together.
    len: usize,
    segments: usize,
}

impl Tokens {
    /// Reads and checks them.
    fn read(path: &Path, segments: usize, network: &Network) -> Result<Self> {
        let frame = &network.model.frame;
        let ([batch, len], ids) = TensorFile::open(path)?.ints("ids", "[B, T]")?;
        let place = format!("{}: ids", path.display());
        if batch == 0 || len == 0 {
            bail!("{place}: found the shape [{batch}, {len}]; expected at least one token");
        }
        if frame.backbone.positions == Positions::Learned {
            if segments > 1 {
                let expected = "expected 1, for segments need the memory of a transformer_xl";
                return Err(
                    Usage(format!("--segments: found {segments} for a {}; {expected}", frame.backbone.key)).into()
                );
            }
            if len > frame.max_len as usize {
                bail!(
                    "{place}: found {len} tokens in a sequence; expected at most max_len, which is {}",
                    frame.max_len
                );
            }
        }
        if len % segments != 0 {
            return Err(Usage(format!("--segments: found {segments}; expected a divisor of T, which is {len}")).into());
        }
        if let Some(i) = ids.iter().position(|id| !(0..i64::from(frame.vocab)).contains(id)) {
            let (row, column) = (i / len, i % len);
            bail!("{place}[{row}, {column}]: found {}; expected a token from 0 to {}", ids[i], frame.vocab - 1);
        }
        Ok(Self { ids: ids.into_iter().map(|id| id as u32).collect(), batch, len, segments })
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
        let mut state = network.memory(batch);
        let part = tokens.part() * vocab;
        for i in 0..tokens.segments {
            let (ids, next) = tokens.segment(i);
            let mut before = state.clone();
            let of_segment = network.logits(&ids, batch, &mut state);
            for (all, segment) in logits.chunks_exact_mut(tokens.len * vocab).zip(of_segment.chunks_exact(part)) {
                all[i * part..][..part].copy_from_slice(segment);
            }
            let losses = match &mut grads {
                Some(grads) => network.train(&ids, &next, batch, &mut before, &training, grads).losses,
                None => network.loss(&ids, &next, batch, &mut before),
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
        let tensor = |name: String, shape: &[usize], values| Tensor { name, shape: shape.to_vec(), values };
        let mut tensors =
            vec![tensor("logits".into(), &[tokens.batch, tokens.len, frame.vocab as usize], &*self.logits)];
        if let Some(loss) = &loss {
            tensors.push(tensor("loss".into(), &[1], loss));
        }
        let memory = [tokens.batch, frame.mem_len as usize, frame.d_model as usize];
        tensors.extend(self.memories.iter().map(|(layer, values)| tensor(format!("mems.{layer}"), &memory, values)));
        let grads = network.params().iter().zip(&self.grads);
        tensors.extend(grads.map(|(param, grad)| tensor(format!("grad.{}", param.name), &param.shape, grad)));
        Ok(folder::write_tensors(path, &tensors)?)
    }
}
