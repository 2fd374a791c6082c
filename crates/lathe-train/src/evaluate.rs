//! How well a model predicts a text.
//!
//! The tokens are cut into consecutive windows, each predicting its next tokens, so that every token but the first is
//! scored once. A model without a memory sees nothing before its window of max_len tokens, except where windows overlap;
//! one with a memory carries it through windows of tgt_len.

use crate::Result;
use crate::data::{Sequence, Tokenizer, Tokens};
use crate::language::{Judge, Language, Tally};
use lathe_core::Frame;
use lathe_model::{Input, Network, Targets};
use lathe_ops::loss::IGNORE;
use lathe_text::Decoder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How well a model predicts a text, or examples. NaN is what has no meaning for a task; it is left out where results
/// are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Nats per token; of examples, what the task has as the loss of one.
    #[serde(default = "nan", skip_serializing_if = "is_nan")]
    pub loss: f64,
    /// e^loss
    #[serde(default = "nan", skip_serializing_if = "is_nan")]
    pub perplexity: f64,
    /// Bits of all tokens over the bytes of the text.
    #[serde(default = "nan", skip_serializing_if = "is_nan")]
    pub bits_per_byte: f64,
    /// How many tokens were scored, or read.
    pub tokens: u64,
    /// How many examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<u64>,
    /// Share of them that is the most probable token, or of examples that are right, where the task counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// On the built-in language: bits of each kind of byte beside the least possible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<KindScore>,
    /// Other metrics of examples.
    #[serde(flatten)]
    pub scores: BTreeMap<String, f64>,
    /// What a user should know.
    #[serde(skip)]
    pub note: Option<String>,
}

impl Evaluation {
    /// Nothing evaluated.
    pub const NONE: Self = Self {
        loss: f64::NAN,
        perplexity: f64::NAN,
        bits_per_byte: f64::NAN,
        tokens: 0,
        examples: None,
        accuracy: None,
        kinds: Vec::new(),
        scores: BTreeMap::new(),
        note: None,
    };

    /// Bits per byte; of examples, bits for each.
    pub fn bits(&self) -> f64 {
        if self.bits_per_byte.is_nan() { self.loss / std::f64::consts::LN_2 } else { self.bits_per_byte }
    }

    /// What models of examples are compared by: the score of a benchmark, the share that is right, or else the first metric.
    pub fn metric(&self) -> Option<(&str, f64)> {
        let score = self.scores.get("score").map(|&value| ("score", value));
        let first = || self.scores.iter().next().map(|(name, &value)| (name.as_str(), value));
        self.examples.and(score.or(self.accuracy.map(|value| ("accuracy", value))).or_else(first))
    }
}

fn nan() -> f64 {
    f64::NAN
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_nan(x: &f64) -> bool {
    x.is_nan()
}

/// The bytes of one kind of the built-in language.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindScore {
    /// Which kind.
    pub kind: String,
    /// Share of the bytes.
    pub share: f64,
    /// The model's bits per byte of this kind.
    pub bits_per_byte: f64,
    /// What the language itself, the best possible model, needs.
    pub entropy: f64,
}

/// How to evaluate.
pub struct Options<'a> {
    /// Without a memory: tokens that a window shares with the one before.
    pub context: usize,
    /// Most tokens to score; 0 for all.
    pub limit: u64,
    /// The language that the text is of.
    pub language: Option<&'a Language>,
    /// The tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Without a memory: tokens of a window, or of a text of an example; 0 for the model's max_len.
    pub window: usize,
    /// What looks on.
    pub onlooker: Option<&'a dyn Onlooker>,
}

/// Something that is shown every window of an evaluation, such as a model to compare with.
pub trait Onlooker {
    /// Tokens, what is to be told, and what the model makes of them.
    fn window(&self, window: &Window<'_>) -> Result<()>;
}

/// A window of an evaluation.
pub struct Window<'a> {
    /// [B, T]
    pub ids: &'a [u32],
    /// [B, S]: what an encoder read; empty where there is none.
    pub source: &'a [u32],
    /// B
    pub batch: usize,
    /// [B, T]: what is scored at each place, [`IGNORE`] for nothing.
    pub targets: &'a [u32],
    /// [B * T, D]: the model's last hidden states.
    pub hidden: &'a [f32],
    /// Whether the sequences begin here; else they go on after the window before.
    pub begins: bool,
}

impl<'a> Options<'a> {
    /// All of a text, with this tokenizer.
    pub fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { context: 0, limit: 0, language: None, tokenizer, window: 0, onlooker: None }
    }

    /// Tokens of a window of a model.
    pub fn window_of(&self, frame: &Frame) -> usize {
        let most = frame.window() as usize;
        if self.window == 0 || frame.has_memory() { most } else { self.window.min(most) }
    }
}

/// Tokens computed at once.
const AT_ONCE: usize = 4096;

/// Scores a text; `watch` is told how many tokens of how many are done.
pub fn evaluate(
    network: &Network,
    tokens: &Tokens,
    options: &Options<'_>,
    watch: &mut dyn FnMut(u64, u64),
) -> Result<Evaluation> {
    let frame = &network.model.frame;
    let carried = frame.has_memory();
    let all = tokens.len().saturating_sub(1);
    let total = if options.limit == 0 { all } else { all.min(options.limit) };
    let window = options.window_of(frame);
    let context = if carried { 0 } else { options.context.min(window - 1) };
    let mut score =
        Score { nats: 0.0, kinds: options.language.map(|language| Kinds::new(language, options.tokenizer)) };
    if let Some(kinds) = &mut score.kinds
        && total > 0
    {
        let mut first = [0];
        tokens.read(0, &mut first)?;
        kinds.push(first[0], 0.0); // in no document that is judged
    }
    let mut memory = carried.then(|| network.init_cache(1, window, &network.init_memory(1)));
    let mut done = 0;
    while done < total {
        watch(done, total);
        // Windows that see nothing of each other go together, where each is whole.
        let rest = (total - done) as usize;
        let before = context.min(done as usize);
        let len = (window - before).min(rest);
        let together = if carried || before > 0 || context > 0 { 1 } else { (AT_ONCE / len).clamp(1, rest / len) };
        let mut ids = vec![0; before + together * len + 1];
        tokens.read(done - before as u64, &mut ids)?;
        let mut targets = ids[1..].to_vec();
        targets[..before].fill(IGNORE);
        ids.pop();
        let input = Input::tokens(&ids, together);
        let hidden = match &mut memory {
            Some(memory) => network.hidden(&input, memory),
            None => network.hidden(&input, &mut network.init_memory(together)),
        };
        let losses = network.loss_of(&hidden, &Targets(&targets));
        if let Some(onlooker) = options.onlooker {
            let begins = !carried || done == 0;
            let (ids, targets, hidden) = (&ids, &targets, &hidden);
            onlooker.window(&Window { ids, source: &[], batch: together, targets, hidden, begins })?;
        }
        score.add(&targets[before..], &losses[before..]);
        done += (together * len) as u64;
    }
    watch(total, total);
    let bytes = tokens.bytes() as f64 * total as f64 / all.max(1) as f64;
    let loss = score.nats / total as f64;
    Ok(Evaluation {
        loss,
        perplexity: loss.exp(),
        bits_per_byte: score.nats / std::f64::consts::LN_2 / bytes,
        tokens: total,
        kinds: score.kinds.map_or_else(Vec::new, |kinds| kinds.rows()),
        ..Evaluation::NONE
    })
}

/// Documents computed at once, and tokens of them, padding included.
const DOCUMENTS: usize = 32;

/// Scores documents one by one, each from its own beginning; `watch` is told how many are done.
pub fn evaluate_documents(
    network: &Network,
    documents: &mut dyn Iterator<Item = lathe_text::Result<Sequence>>,
    onlooker: Option<&dyn Onlooker>,
    watch: &mut dyn FnMut(u64),
) -> Result<Evaluation> {
    let (mut nats, mut targets, mut bytes, mut done) = (0.0, 0u64, 0u64, 0u64);
    let mut waiting: Vec<Sequence> = Vec::new();
    loop {
        let next = documents.next().transpose()?;
        let longest = waiting.iter().chain(&next).map(|sequence| sequence.ids.len()).max().unwrap_or(0);
        let full = waiting.len() == DOCUMENTS || longest * (waiting.len() + 1) > AT_ONCE;
        if !waiting.is_empty() && (next.is_none() || full) {
            nats += score_documents(network, &waiting, onlooker)?;
            targets += waiting.iter().map(|sequence| sequence.targets() as u64).sum::<u64>();
            bytes += waiting.iter().map(|sequence| sequence.target_bytes).sum::<u64>();
            done += waiting.len() as u64;
            waiting.clear();
            watch(done);
        }
        match next {
            Some(sequence) => waiting.extend(Some(sequence).filter(|sequence| sequence.targets() > 0)),
            None => break,
        }
    }
    let loss = nats / targets as f64;
    Ok(Evaluation {
        loss,
        perplexity: loss.exp(),
        bits_per_byte: nats / std::f64::consts::LN_2 / bytes as f64,
        tokens: targets,
        ..Evaluation::NONE
    })
}

/// Nats of all next tokens of some documents, side by side with padding behind, which nothing sees.
fn score_documents(network: &Network, documents: &[Sequence], onlooker: Option<&dyn Onlooker>) -> Result<f64> {
    let len = documents.iter().map(Sequence::targets).max().unwrap_or(0);
    let window = network.model.frame.window() as usize;
    let row = |sequence: &Sequence, first: usize, fill: u32| -> Vec<u32> {
        let ids = &sequence.ids[first..first + sequence.targets()];
        ids.iter().copied().chain(std::iter::repeat(fill)).take(len).collect()
    };
    let ids: Vec<Vec<u32>> = documents.iter().map(|sequence| row(sequence, 0, 0)).collect();
    let targets: Vec<Vec<u32>> = documents.iter().map(|sequence| row(sequence, 1, IGNORE)).collect();
    let (batch, mut nats) = (documents.len(), 0.0);
    let mut state = network.init_memory(batch);
    if network.model.frame.has_memory() {
        state = network.init_cache(batch, window, &state);
    }
    for first in (0..len).step_by(window) {
        let part = |rows: &[Vec<u32>]| -> Vec<u32> {
            rows.iter().flat_map(|row| row[first..len.min(first + window)].to_vec()).collect()
        };
        let (ids, targets) = (part(&ids), part(&targets));
        let hidden = network.hidden(&Input::tokens(&ids, batch), &mut state);
        let losses = network.loss_of(&hidden, &Targets(&targets));
        if let Some(onlooker) = onlooker {
            let (ids, targets, hidden, begins) = (&ids, &targets, &hidden, first == 0);
            let window = Window { ids, source: &[], batch, targets, hidden, begins };
            onlooker.window(&window)?;
        }
        nats += losses.iter().copied().map(f64::from).sum::<f64>();
    }
    Ok(nats)
}

struct Score<'a> {
    nats: f64,
    kinds: Option<Kinds<'a>>,
}

impl Score<'_> {
    fn add(&mut self, targets: &[u32], losses: &[f32]) {
        self.nats += losses.iter().copied().map(f64::from).sum::<f64>();
        if let Some(kinds) = &mut self.kinds {
            targets.iter().zip(losses).for_each(|(&target, &loss)| kinds.push(target, loss));
        }
    }
}

/// Adds up the bits of bytes by their kind, from the first whole document on: the text may begin inside one. The bytes of a
/// token share its bits evenly.
struct Kinds<'a> {
    language: &'a Language,
    decoder: Decoder<'a>,
    /// Bits of tokens whose text is not whole yet.
    waiting: f64,
    judge: Option<Judge<'a>>,
    last: u8,
    tally: Tally,
}

impl<'a> Kinds<'a> {
    fn new(language: &'a Language, tokenizer: &'a Tokenizer) -> Self {
        let (decoder, tally) = (tokenizer.decoder(), Tally::default());
        Self { language, decoder, waiting: 0.0, judge: None, last: 0, tally }
    }

    /// Takes a token and its loss.
    fn push(&mut self, token: u32, nats: f32) {
        self.waiting += f64::from(nats) / std::f64::consts::LN_2;
        let Some(text) = self.decoder.push(token) else { return };
        let bits = std::mem::take(&mut self.waiting) / text.len() as f64;
        text.bytes().for_each(|byte| self.byte(byte, bits));
    }

    fn byte(&mut self, byte: u8, bits: f64) {
        let Some(judge) = &mut self.judge else {
            // A blank line ends a document.
            if (self.last, byte) == (b'\n', b'\n') {
                self.judge = Some(self.language.judge());
            }
            self.last = byte;
            return;
        };
        match judge.push(byte) {
            Ok(judged) => self.tally.add(&judged, bits),
            // Not of the language: it goes on with the next document.
            Err(_) => (self.judge, self.last) = (None, byte),
        }
    }

    fn rows(self) -> Vec<KindScore> {
        let rows = self.tally.rows().into_iter().filter(|row| row.bytes > 0);
        rows.map(|row| KindScore {
            kind: row.kind.into(),
            share: row.share,
            bits_per_byte: row.model,
            entropy: row.language,
        })
        .collect()
    }
}
