//! Batches of tokens, each a pure function of seed and step, so that a resumed run needs no state of its data.
//!
//! **Windows**, for learned positions: each epoch cuts the tokens into windows of T at a random offset and visits them
//! in a random order. The order is a permutation computed in place, not stored: a Feistel network on the next power of
//! four, walked until it is back in range (Black & Rogaway 2002, "Ciphers with arbitrary finite domains").
//!
//! **Streams**, for memory: the tokens are cut into B streams of equal length, and step k reads segment k of each, so
//! that a segment follows on from the one before.

use crate::{Error, Result};
use lathe_model::Input;
use lathe_ops::dropout;
use lathe_ops::loss::IGNORE;
use lathe_text::Tokens;
use std::ops::Range;

/// Sequences and what they are to give, [B, T] each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// B
    pub rows: usize,
    /// [B, T]
    pub ids: Vec<u32>,
    /// [B, T]: what the task wants of each token, of a language model the token after it; [`IGNORE`] where nothing.
    /// Where it wants something of whole sequences, that stands at their first tokens.
    pub targets: Vec<u32>,
    /// [B, T], false for padding; empty where there is none.
    pub mask: Vec<bool>,
    /// [B, T]: which of several texts a token is of; empty where there is one.
    pub segments: Vec<u32>,
    /// Whether nothing went before: the memory begins anew.
    pub fresh: bool,
    /// [B, S]: what an encoder reads; empty where there is none.
    pub source: Vec<u32>,
}

impl Batch {
    /// All of it, as so many sequences.
    pub fn input(&self, rows: usize) -> Input<'_> {
        self.part(0..self.ids.len(), rows)
    }

    /// So many of its sequences, whose tokens stand at these places.
    pub fn part(&self, places: Range<usize>, rows: usize) -> Input<'_> {
        let len = places.len() / rows;
        let sequences = self.ids.len() / len;
        let (first, of_source) = (places.start / len, self.source.len() / sequences);
        let mask = self.mask.get(places.clone());
        let segments = self.segments.get(places.clone());
        let input = Input { mask, segments, ..Input::tokens(&self.ids[places], rows) };
        match of_source {
            0 => input,
            len => input.after(&self.source[first * len..][..rows * len]),
        }
    }

    /// Tokens, without padding.
    pub fn tokens(&self) -> usize {
        self.ids.len() - self.mask.iter().filter(|&&real| !real).count()
    }

    /// How many targets count.
    pub fn counted(&self) -> usize {
        self.targets.iter().filter(|&&target| target != IGNORE).count()
    }
}

/// Where batches are taken from.
#[derive(Debug, Clone)]
pub enum Sampler {
    /// Shuffled windows, for learned positions.
    Windows {
        /// Where they are cut from.
        tokens: Tokens,
        /// B
        batch: usize,
        /// T
        len: usize,
        /// Of offsets and orders.
        seed: u64,
    },
    /// Contiguous segments in B parallel streams, for memory.
    Streams {
        /// What is cut into streams.
        tokens: Tokens,
        /// B
        batch: usize,
        /// T
        len: usize,
    },
}

impl Sampler {
    /// Windows of `len` tokens, `batch` at a time, in an order that depends on the seed and differs in each epoch.
    ///
    /// An epoch leaves out what lies before its offset and what is left after its last window, less than 2 T tokens.
    pub fn windows(tokens: Tokens, batch: usize, len: usize, seed: u64) -> Result<Self> {
        check(&tokens, batch, len, 1)?;
        Ok(Self::Windows { tokens, batch, len, seed })
    }

    /// `batch` streams of equal length, in segments of `len` tokens.
    ///
    /// Left out are the up to B tokens after the last stream, and what is left of each stream after its last whole
    /// segment, the same in each epoch.
    pub fn streams(tokens: Tokens, batch: usize, len: usize) -> Result<Self> {
        check(&tokens, batch, len, batch)?;
        Ok(Self::Streams { tokens, batch, len })
    }

    /// Steps until everything was seen once.
    pub fn steps_per_epoch(&self) -> u64 {
        match self {
            Self::Windows { tokens, batch, len, .. } => windows(tokens, *len).div_ceil(*batch as u64),
            Self::Streams { tokens, batch, len } => stream(tokens, *batch) / *len as u64,
        }
    }

    /// The batch of a step.
    pub fn batch(&self, step: u64) -> Result<Batch> {
        match self {
            Self::Windows { tokens, batch, len, seed } => {
                let (windows, len64) = (windows(tokens, *len), *len as u64);
                let start = |i: u64| {
                    // Steps count windows: one that crosses the border of an epoch takes from both.
                    let i = step.wrapping_mul(*batch as u64).wrapping_add(i);
                    let key = mix(mix(*seed) ^ (i / windows));
                    let left_out = tokens.len() - 1 - windows * len64;
                    let offset = mix(key ^ 1) % (left_out + 1);
                    offset + permute(i % windows, windows, key) * len64
                };
                gather(tokens, *len, (0..*batch as u64).map(start), true)
            }
            Self::Streams { tokens, batch, len } => {
                let segment = step % self.steps_per_epoch();
                let stream = stream(tokens, *batch);
                let start = |b: u64| b * stream + segment * *len as u64;
                gather(tokens, *len, (0..*batch as u64).map(start), segment == 0)
            }
        }
    }
}

/// Sizes that can be sampled: `parallel` windows beside each other, with a token after the last.
fn check(tokens: &Tokens, batch: usize, len: usize, parallel: usize) -> Result<()> {
    for (name, value) in [("batch", batch), ("tgt_len", len)] {
        if value == 0 {
            return Err(Error::setting(name, 0, "at least 1"));
        }
    }
    let needed = (parallel as u128) * (len as u128) + 1;
    if u128::from(tokens.len()) < needed {
        let kind = if parallel > 1 { format!("{parallel} segments of {len}") } else { format!("a window of {len}") };
        let expected =
            format!("at least {needed}, for {kind} and the token after it: a longer text or a shorter window");
        return Err(Error::data(tokens.path().display(), format_args!("{} tokens", tokens.len()), expected));
    }
    Ok(())
}

/// Windows of an epoch: one less than fit, so that there are offsets to choose from, but at least one.
fn windows(tokens: &Tokens, len: usize) -> u64 {
    (tokens.len() / len as u64).saturating_sub(1).max(1)
}

/// Tokens of a stream that have a next one.
fn stream(tokens: &Tokens, batch: usize) -> u64 {
    (tokens.len() - 1) / batch as u64
}

/// Reads the windows that begin at these places.
fn gather(tokens: &Tokens, len: usize, starts: impl Iterator<Item = u64>, fresh: bool) -> Result<Batch> {
    let mut out = Batch { fresh, ..Batch::default() };
    let mut window = vec![0; len + 1];
    for start in starts {
        tokens.read(start, &mut window)?;
        out.ids.extend_from_slice(&window[..len]);
        out.targets.extend_from_slice(&window[1..]);
        out.rows += 1;
    }
    Ok(out)
}

/// The image of `i` under a permutation of `0..n` that depends on the key.
pub fn permute(i: u64, n: u64, key: u64) -> u64 {
    // Half the bits of the next power of four, at least one.
    let half = (u64::BITS - n.saturating_sub(1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1u64 << half) - 1;
    let mut i = i;
    loop {
        let (mut left, mut right) = (i >> half, i & mask);
        for round in 0..6 {
            (left, right) = (right, left ^ (mix(key ^ mix(right << 3 | round)) & mask));
        }
        i = left << half | right;
        if i < n {
            return i;
        }
    }
}

/// A step of SplitMix64: every bit of the result depends on every bit given.
pub fn mix(x: u64) -> u64 {
    dropout::mix(x.wrapping_add(0x9e37_79b9_7f4a_7c15))
}
