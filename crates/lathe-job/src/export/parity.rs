//! How near two models are: what they compute for the same tokens.

use crate::{Error, Result};
use lathe_model::{Input, Network};
use lathe_train::generate::{Generator, Sampling};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// Tokens of a comparison.
const TOKENS: usize = 64;
/// The part of the largest output by which programs differ that compute the same in another order.
const SAME: f32 = 1e-4;

/// What differs between a model and its export.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Parity {
    /// Tokens that both saw.
    pub tokens: usize,
    /// The largest difference of an output.
    pub max_abs: f64,
    /// Nats per token of the export from the model, where both give tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kl: Option<f64>,
    /// The share of tokens with the same most probable next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_top: Option<f64>,
}

/// Tokens to compare by: a text that a decoder writes itself, from a token on, so that rounding is judged where it is used;
/// for others, tokens drawn at random.
pub(super) fn tokens(network: &Network, first: Option<u32>) -> Vec<u32> {
    let frame = &network.model.frame;
    let len = if frame.has_memory() { TOKENS } else { TOKENS.min(frame.max_len as usize) };
    if !frame.backbone.causal() || !network.has_head() {
        let mut random = ChaCha8Rng::seed_from_u64(0);
        return (0..len).map(|_| random.random_range(0..frame.vocab)).collect();
    }
    let first = first.filter(|&first| first < frame.vocab).unwrap_or_default();
    let sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0, seed: 0 };
    let mut generator = Generator::new(network, &[first], sampling);
    std::iter::once(first).chain((1..len).map(|_| generator.next_token())).collect()
}

/// What a network computes: logits, or hidden states where it has none.
pub(super) fn outputs(network: &Network, tokens: &[u32]) -> Vec<f32> {
    let (input, mut state) = (Input::tokens(tokens, 1), network.init_memory(1));
    match network.has_head() {
        true => network.logits(&input, &mut state).to_vec(),
        false => network.hidden(&input, &mut state).to_vec(),
    }
}

/// An error unless what was read back computes what it should.
pub(super) fn check(expected: &[f32], found: &[f32]) -> Result<()> {
    let largest = expected.iter().fold(1.0f32, |most, value| most.max(value.abs()));
    let worst = max_abs(expected, found);
    if worst <= SAME * largest && expected.len() == found.len() {
        return Ok(());
    }
    let found = format!("outputs that differ by {worst:.3e}, of a size of {largest:.3}");
    Err(Error::data("export, read back", found, "the same as those of the model; nothing was written"))
}

fn max_abs(a: &[f32], b: &[f32]) -> f32 {
    // Not a number is never near.
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |worst, d| if d <= worst { worst } else { d })
}

impl Parity {
    /// Of outputs of a model and of its export for so many tokens.
    pub(super) fn of(model: &[f32], export: &[f32], tokens: usize, has_head: bool) -> Self {
        let width = model.len() / tokens.max(1);
        let (mut kl, mut same) = (0.0, 0);
        for (p, q) in model.chunks_exact(width.max(1)).zip(export.chunks_exact(width.max(1))) {
            let (p, q) = (log_softmax(p), log_softmax(q));
            kl += p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
            same += usize::from(top(&p) == top(&q));
        }
        let per_token = |sum: f64| Some(sum / tokens as f64).filter(|_| has_head);
        let max_abs = f64::from(max_abs(model, export));
        Self { tokens, max_abs, kl: per_token(kl.max(0.0)), same_top: per_token(same as f64) }
    }
}

fn log_softmax(row: &[f32]) -> Vec<f64> {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|x| f64::from(x - most).exp()).sum();
    row.iter().map(|x| f64::from(x - most) - sum.ln()).collect()
}

fn top(row: &[f64]) -> Option<usize> {
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]))
}
