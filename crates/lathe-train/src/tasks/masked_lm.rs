//! Masked language modelling (Devlin et al., 2018): of every window 15 % of the tokens are to be told. Of these 80 % are
//! replaced by the mask token, 10 % by a random one, and 10 % are left as they are. Losses are -log p of them alone.
//!
//! As `masked_words`, whole words are drawn in the place of tokens, and all tokens of a word are to be told (whole-word masking, as BERT's
//! authors added it in 2019).
//!
//! A window stands between CLS and SEP where the tokenizer has them. The mask token is the tokenizer's; where it has none,
//! the model has one token more, its last.

use super::{Batches, Cut, Task};
use crate::data::{Batch, Data, Sampler, Specials, Tokenizer, Tokens, mix};
use crate::evaluate::{Evaluation, Options, Window};
use crate::{Error, Result};
use lathe_core::Frame;
use lathe_model::Network;
use lathe_ops::loss::{self, IGNORE};
use lathe_text::Words;

/// Masked tokens, or masked words.
pub struct MaskedLm {
    words: bool,
}

impl MaskedLm {
    /// Masked tokens.
    pub const TOKENS: Self = Self { words: false };
    /// Masked words.
    pub const WORDS: Self = Self { words: true };
}

/// An error where models of a frame cannot tell masked tokens.
pub(super) fn check(frame: &Frame, key: &str) -> Result<()> {
    let wrong = |found: String, expected: &str| Err(Error::setting("backbone", found, expected));
    if frame.backbone.causal() {
        let found = format!("`{}`, whose tokens see only those before them", frame.backbone.key());
        return wrong(found, &format!("one for {key}, whose tokens see the whole text"));
    }
    match frame.has_head() {
        true => Ok(()),
        false => {
            let found = format!("`{}` without an output layer", frame.backbone.key());
            wrong(found, &format!("one with an output layer, for {key}"))
        }
    }
}

/// Of 1,000 tokens, so many are to be told; of 10 of these, 8 are masked and one is replaced.
const TOLD: u64 = 150;
/// Tokens of an evaluation that are computed at once.
pub(super) const AT_ONCE: usize = 4096;

impl Task for MaskedLm {
    fn key(&self) -> &'static str {
        if self.words { "masked_words" } else { "masked_lm" }
    }

    fn about(&self) -> &'static str {
        match self.words {
            true => "masked words, from those around them",
            false => "masked tokens, from those around them",
        }
    }

    fn check(&self, frame: &Frame) -> Result<()> {
        check(frame, self.key())
    }

    fn extra_tokens(&self, specials: &Specials) -> u32 {
        u32::from(specials.mask.is_none())
    }

    fn batches(&self, frame: &Frame, data: &Data, cut: &Cut<'_>) -> Result<Box<dyn Batches>> {
        let masking = Masking::new(frame, cut.tokenizer, self.words)?;
        let inside = masking.inside(cut.len)?;
        let windows = Sampler::windows(data.tokens()?.clone(), cut.batch, inside, cut.seed)?;
        Ok(Box::new(Masked { windows, masking, inside, seed: cut.seed }))
    }

    /// Consecutive windows, always masked alike. `bits_per_byte` is that of the masked tokens over the bytes that as many
    /// tokens of the text have on average.
    fn evaluate(
        &self,
        network: &Network,
        data: &Data,
        options: &Options<'_>,
        watch: &mut dyn FnMut(u64, u64),
    ) -> Result<Evaluation> {
        let frame = &network.model.frame;
        let tokens = data.tokens()?;
        let masking = Masking::new(frame, options.tokenizer, self.words)?;
        let inside = masking.inside(options.window_of(frame))?;
        let total = if options.limit == 0 { tokens.len() } else { tokens.len().min(options.limit) };
        let (mut done, mut told) = (0, Told::default());
        while done < total {
            watch(done, total);
            let rest = (total - done) as usize;
            let len = inside.min(rest);
            let together = (AT_ONCE / len).clamp(1, rest / len);
            let mut text = vec![0; together * len];
            tokens.read(done, &mut text)?;
            let windows = text.chunks_exact(len).zip(0..).map(|(text, i)| (text, mix(done + i * len as u64)));
            let batch = masking.batch(windows);
            if batch.counted() > 0 {
                let hidden = network.hidden(&batch.input(together), &mut network.init_memory(together));
                if let Some(onlooker) = options.onlooker {
                    let (ids, targets, hidden) = (&batch.ids, &batch.targets, &hidden);
                    onlooker.window(&Window { ids, source: &[], batch: together, targets, hidden, begins: true })?;
                }
                told.add(network, &hidden, &batch.targets);
            } // else a last window of one token
            done += text.len() as u64;
        }
        watch(total, total);
        Ok(told.evaluation(tokens))
    }
}

/// How well masked tokens were told so far.
#[derive(Default)]
pub(super) struct Told {
    nats: f64,
    tokens: u64,
    /// Those that are the most probable.
    right: u64,
}

impl Told {
    /// Adds the tokens of a batch that have a target.
    pub fn add(&mut self, network: &Network, hidden: &[f32], targets: &[u32]) {
        let (d, vocab) = (network.model.frame.d_model as usize, network.model.frame.vocab as usize);
        let places: Vec<usize> = (0..targets.len()).filter(|&place| targets[place] != IGNORE).collect();
        let told: Vec<f32> = places.iter().flat_map(|&place| hidden[place * d..][..d].to_vec()).collect();
        let targets: Vec<u32> = places.iter().map(|&place| targets[place]).collect();
        let mut logits = network.outputs(&told);
        let best = |row: &[f32]| row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(i, _)| i as u32);
        self.right +=
            logits.chunks_exact(vocab).zip(&targets).filter(|(row, target)| best(row) == **target).count() as u64;
        self.tokens += targets.len() as u64;
        let mut losses = vec![0.0; targets.len()];
        loss::negative_log_likelihood(&mut logits, vocab, &targets, &mut losses);
        self.nats += losses.iter().copied().map(f64::from).sum::<f64>();
    }

    /// What it comes to, in a text.
    pub fn evaluation(&self, text: &Tokens) -> Evaluation {
        let loss = self.nats / self.tokens.max(1) as f64;
        let bytes_per_token = text.bytes() as f64 / text.len().max(1) as f64;
        Evaluation {
            loss,
            perplexity: loss.exp(),
            bits_per_byte: loss / std::f64::consts::LN_2 / bytes_per_token,
            tokens: self.tokens,
            accuracy: Some(self.right as f64 / self.tokens.max(1) as f64),
            ..Evaluation::NONE
        }
    }
}

/// Which tokens are masked, and by what.
pub(super) struct Masking {
    mask: u32,
    /// Before and after a window.
    pub around: Option<(u32, u32)>,
    /// Tokens that may replace another.
    vocab: u32,
    /// Where whole words are drawn.
    words: Option<Words>,
}

impl Masking {
    pub fn new(frame: &Frame, tokenizer: &Tokenizer, words: bool) -> Result<Self> {
        let (specials, vocab) = (tokenizer.specials(), tokenizer.vocab());
        let mask = match specials.mask {
            Some(mask) => mask,
            None if frame.vocab > vocab => frame.vocab - 1,
            None => {
                let expected = format!("at least {}, for a mask token that the tokenizer has not", vocab + 1);
                return Err(Error::setting("vocab", frame.vocab, expected));
            }
        };
        let words = words.then(|| Words::of(tokenizer));
        Ok(Self { mask, around: specials.cls.zip(specials.sep), vocab, words })
    }

    /// Tokens of the text in a window of so many.
    fn inside(&self, len: usize) -> Result<usize> {
        let around = if self.around.is_some() { 2 } else { 0 };
        match len.checked_sub(around) {
            Some(inside @ 1..) => Ok(inside),
            _ => Err(Error::setting("max_len", len, format!("more than the {around} tokens around a text"))),
        }
    }

    /// Windows of a text, each with a key of what is drawn for it.
    fn batch<'a>(&self, windows: impl Iterator<Item = (&'a [u32], u64)>) -> Batch {
        let mut batch = Batch::default();
        for (text, key) in windows {
            batch.rows += 1;
            let first = self.around.map(|(first, _)| first);
            let last = self.around.map(|(_, last)| last);
            batch.ids.extend(first);
            batch.targets.extend(first.map(|_| IGNORE));
            let (ids, targets) = self.mask(text, key, 0);
            batch.ids.extend(ids);
            batch.targets.extend(targets);
            batch.ids.extend(last);
            batch.targets.extend(last.map(|_| IGNORE));
        }
        batch
    }

    /// A text from a place on, masked: its tokens, and those that are to be told.
    pub fn mask(&self, text: &[u32], key: u64, from: usize) -> (Vec<u32>, Vec<u32>) {
        let (mut ids, mut targets) = (text.to_vec(), vec![IGNORE; text.len()]);
        let mut word = 0; // where it began
        for (i, &token) in text.iter().enumerate().skip(from) {
            let joins = |words: &Words| i > 0 && words.joins(text[i - 1], token);
            word = if self.words.as_ref().is_some_and(joins) { word } else { i };
            if mix(key ^ mix(word as u64)) % 1000 < TOLD {
                (ids[i], targets[i]) = (self.replace(token, mix(mix(key ^ mix(i as u64)))), token);
            }
        }
        if text.len() > 1 && targets.iter().all(|&target| target == IGNORE) {
            // A short window has something to tell, too.
            let drawn = from + (mix(key) % (text.len() - from) as u64) as usize;
            let joins = |i: usize| self.words.as_ref().is_some_and(|words| words.joins(text[i - 1], text[i]));
            let begin = (from + 1..=drawn).rev().find(|&i| !joins(i)).unwrap_or(from);
            let end = (drawn + 1..text.len()).find(|&i| !joins(i)).unwrap_or(text.len());
            for place in begin..end {
                (targets[place], ids[place]) = (ids[place], self.mask);
            }
        }
        (ids, targets)
    }

    fn replace(&self, token: u32, draw: u64) -> u32 {
        match draw % 10 {
            0 => token,
            1 => (mix(draw) % u64::from(self.vocab.max(1))) as u32,
            _ => self.mask,
        }
    }
}

/// Masked windows.
struct Masked {
    windows: Sampler,
    masking: Masking,
    inside: usize,
    seed: u64,
}

impl Batches for Masked {
    fn batch(&self, step: u64) -> Result<Batch> {
        let text = self.windows.batch(step)?.ids;
        let key = |row: u64| mix(mix(self.seed ^ 0x6d61_736b) ^ (step << 20 | row)); // apart from those of orders
        Ok(Batch { fresh: true, ..self.masking.batch(text.chunks_exact(self.inside).zip((0..).map(key))) })
    }

    fn steps_per_epoch(&self) -> u64 {
        self.windows.steps_per_epoch()
    }
}
