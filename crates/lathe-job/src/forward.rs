//! What a model folder computes for given tokens, to be compared with other implementations.

use crate::{Error, Event, Result, Watch};
use lathe_core::Positions;
use lathe_model::folder::{self, Tensor, TensorFile};
use lathe_model::{Grads, Network, Training};
use lathe_ops::loss::IGNORE;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What to compute.
#[derive(Debug, Clone)]
pub struct Request {
    /// A model folder.
    pub folder: PathBuf,
    /// A safetensors file with `ids`, int64 of shape [B, T].
    pub tokens: PathBuf,
    /// The safetensors file of the results.
    pub out: PathBuf,
    /// Consecutive segments that the tokens are cut into, which carry the memory.
    pub segments: u32,
    /// Whether to compute the gradient of every weight, too.
    pub grads: bool,
}

/// What was computed.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Mean of -log p of the next token; none of one token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// How many tokens.
    pub tokens: usize,
    /// Where the results are.
    pub out: String,
}

/// Computes and writes the results.
pub fn run(request: &Request, watch: Watch<'_>) -> Result<Outcome> {
    let network = folder::load(&request.folder)?;
    let tokens = Tokens::read(&request.tokens, request.segments as usize, &network)?;
    if tokens.len == 1 {
        let message = "note: one token has no next one, so there is no loss, and no gradient of it";
        watch(Event::Message(message.into()));
    }
    let results = Results::compute(&network, &tokens, request.grads);
    results.write(&request.out, &network, &tokens)?;
    Ok(Outcome { loss: results.loss, tokens: tokens.ids.len(), out: request.out.display().to_string() })
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
            return Err(Error::data(place, format!("the shape [{batch}, {len}]"), "at least one token"));
        }
        if frame.backbone.positions == Positions::Learned {
            if segments > 1 {
                let found = format!("{segments} for a {}", frame.backbone.key);
                return Err(Error::setting("segments", found, "1, for segments need the memory of a transformer_xl"));
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
