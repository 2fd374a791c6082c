//! Examples as tokens, and batches of them: texts of similar lengths stand together, so that little of a batch is
//! padding.
//!
//! Each epoch shuffles all examples, sorts stretches of 50 batches by length, and visits the batches in a
//! random order. What a batch holds is a function of seed and step.

use crate::data::{Batch, Encoding, Tokenizer, mix, permute};
use crate::tasks::Batches;
use crate::{Error, Result};
use lathe_ops::loss::IGNORE;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

/// Batches that are sorted by length together.
const STRETCH: usize = 50;

/// Texts that belong together in a batch, as tokens, and what is right for them.
#[derive(Debug, Clone, Default)]
pub struct Unit {
    /// The texts.
    pub texts: Vec<Encoding>,
    /// A number that the task knows the meaning of; [`IGNORE`] where nobody says.
    pub target: u32,
    /// The same of each text after the first, where they have one of their own.
    pub others: Vec<u32>,
    /// The line of a text that lost its end, and how many tokens it had.
    pub cut: Option<(u64, usize)>,
}

/// How texts become tokens.
#[derive(Clone, Copy)]
pub struct Encoder<'a> {
    /// By what.
    pub tokenizer: &'a Tokenizer,
    /// Most tokens of a text or pair; what is longer loses its end.
    pub max_len: usize,
    /// The file that they are of, for messages.
    pub path: &'a Path,
}

impl Encoder<'_> {
    /// A text or a pair of a line, and whether it was cut.
    pub fn encode(&self, line: u64, (a, b): &(String, Option<String>)) -> Result<(Encoding, usize)> {
        let encode = |max_len: Option<usize>| match b {
            Some(b) => self.tokenizer.encode_pair(a, b, max_len),
            None => self.tokenizer.encode_with_specials(a, max_len),
        };
        let wrong = |error: lathe_core::Fault| match error {
            usage if usage.is_usage() => Error::from(usage),
            error => Error::data(self.place(line), error, "a text that the tokenizer takes"),
        };
        let whole = encode(None).map_err(wrong)?;
        let len = whole.ids.len();
        let encoding = if len > self.max_len { encode(Some(self.max_len)).map_err(wrong)? } else { whole };
        match encoding.ids.is_empty() {
            true => Err(Error::data(self.place(line), "an empty text", "at least one token")),
            false => Ok((encoding, len)),
        }
    }

    /// A question with a context, in as many windows as it takes, each of which shares some tokens with the one before.
    pub fn windows(&self, line: u64, question: &str, context: &str, overlap: usize) -> Result<Vec<Encoding>> {
        let windows = self.tokenizer.encode_windows(question, context, self.max_len, overlap);
        windows.map_err(|error| match error {
            usage if usage.is_usage() => Error::data(self.place(line), usage, "a shorter question"),
            error => Error::data(self.place(line), error, "texts that the tokenizer takes"),
        })
    }

    /// A line of the file.
    pub fn place(&self, line: u64) -> impl std::fmt::Display {
        super::table::place(self.path, line)
    }
}

/// Units side by side, each sequence filled up to the longest.
pub fn batch(units: &[&Unit], pad: u32) -> Batch {
    let texts = || units.iter().flat_map(|unit| &unit.texts);
    let len = texts().map(|text| text.ids.len()).max().unwrap_or(0);
    let rows = texts().count();
    let padded = texts().any(|text| text.ids.len() < len);
    let mut batch = Batch { rows, fresh: true, ..Batch::default() };
    for unit in units {
        for (i, text) in unit.texts.iter().enumerate() {
            let (own, end) = (text.ids.len(), batch.ids.len() + len);
            batch.ids.extend(&text.ids);
            batch.ids.resize(end, pad);
            batch.segments.extend(&text.segments);
            batch.segments.resize(end, 0);
            let other = |i: usize| unit.others.get(i).copied().unwrap_or(IGNORE);
            batch.targets.push(i.checked_sub(1).map_or(unit.target, other));
            batch.targets.resize(end, IGNORE);
            if padded {
                batch.mask.extend((0..len).map(|at| at < own));
            }
        }
    }
    batch
}

/// Of how many examples texts lost their ends, where some did.
pub fn cut_note(units: &[Unit], encoder: &Encoder<'_>) -> Option<String> {
    let mut cut = units.iter().filter_map(|unit| unit.cut);
    let (line, tokens) = cut.next()?;
    let (count, longest) = (1 + cut.count(), encoder.max_len);
    let place = encoder.place(line);
    Some(format!("texts of {count} examples have more than {longest} tokens and lose their ends; {place} has {tokens}"))
}

/// The longest text of a unit.
pub fn longest(unit: &Unit) -> usize {
    unit.texts.iter().map(|text| text.ids.len()).max().unwrap_or(0)
}

/// Units in groups of similar lengths, each with at most so many tokens, padding included, but at least one unit.
pub fn by_length(units: &[Unit], tokens: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..units.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(longest(&units[i])));
    let (mut groups, mut rows): (Vec<Vec<usize>>, usize) = (Vec::new(), 0);
    for i in order {
        let own = units[i].texts.len();
        match groups.last_mut() {
            Some(group) if (rows + own) * longest(&units[group[0]]) <= tokens => {
                group.push(i);
                rows += own;
            }
            _ => {
                groups.push(vec![i]);
                rows = own;
            }
        }
    }
    groups
}

/// Batches of units in random orders.
pub struct Grouped {
    units: Vec<Unit>,
    batch: usize,
    seed: u64,
    pad: u32,
    note: Option<String>,
    /// The order of an epoch.
    order: Mutex<(u64, Vec<u32>)>,
}

impl Grouped {
    /// `batch` units at a time, in orders that depend on the seed and differ in each epoch. The last batch of an epoch
    /// may have fewer. `note` is what a user should know of the units.
    pub fn new(units: Vec<Unit>, batch: usize, seed: u64, pad: u32, note: Option<String>) -> Self {
        Self { units, batch, seed, pad, note, order: Mutex::new((u64::MAX, Vec::new())) }
    }

    fn order_of(&self, epoch: u64) -> Vec<u32> {
        let (n, key) = (self.units.len() as u64, mix(mix(self.seed) ^ epoch));
        let mut order: Vec<u32> = (0..n).map(|i| permute(i, n, key) as u32).collect();
        for stretch in order.chunks_mut(STRETCH * self.batch) {
            stretch.sort_by_key(|&i| std::cmp::Reverse(longest(&self.units[i as usize])));
        }
        // A batch that is not full comes last.
        let (whole, rest) = order.split_at(order.len() / self.batch * self.batch);
        let count = (whole.len() / self.batch) as u64;
        let at = |i: u64| permute(i, count, key ^ 1) as usize * self.batch;
        let batches = (0..count).flat_map(|i| whole[at(i)..][..self.batch].iter().copied());
        batches.chain(rest.iter().copied()).collect()
    }

    /// Where a batch stands in its epoch.
    fn range(&self, step: u64) -> (u64, Range<usize>) {
        let (epoch, i) = (step / self.steps_per_epoch(), (step % self.steps_per_epoch()) as usize);
        (epoch, i * self.batch..((i + 1) * self.batch).min(self.units.len()))
    }
}

impl Batches for Grouped {
    fn batch(&self, step: u64) -> Result<Batch> {
        let (epoch, range) = self.range(step);
        let mut order = self.order.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if order.0 != epoch {
            *order = (epoch, self.order_of(epoch));
        }
        let units: Vec<&Unit> = order.1[range].iter().map(|&i| &self.units[i as usize]).collect();
        Ok(batch(&units, self.pad))
    }

    fn note(&self) -> Option<String> {
        self.note.clone()
    }

    fn steps_per_epoch(&self) -> u64 {
        (self.units.len().div_ceil(self.batch.max(1)) as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(len: usize, target: u32) -> Unit {
        let text = Encoding { ids: vec![target + 1; len], segments: vec![0; len], ..Encoding::default() };
        Unit { texts: vec![text], target, ..Unit::default() }
    }

    #[test]
    fn an_epoch_has_every_unit_once_and_little_padding() {
        let units: Vec<Unit> = (0..1003).map(|i| unit(1 + (mix(i) % 60) as usize, i as u32)).collect();
        let tokens: usize = units.iter().map(longest).sum();
        let grouped = Grouped::new(units, 8, 7, 0, None);
        assert_eq!(grouped.steps_per_epoch(), 126);
        let mut orders = Vec::new();
        for epoch in 0..2 {
            let (mut seen, mut places) = (Vec::new(), 0);
            for step in epoch * 126..(epoch + 1) * 126 {
                let batch = grouped.batch(step).unwrap();
                assert_eq!(batch, grouped.batch(step).unwrap());
                places += batch.ids.len();
                seen.extend(batch.targets.iter().copied().filter(|&target| target != IGNORE));
            }
            assert!(places < tokens * 11 / 10, "{places} places for {tokens} tokens");
            orders.push(seen.clone());
            seen.sort_unstable();
            assert_eq!(seen, (0..1003).collect::<Vec<u32>>());
        }
        assert_ne!(orders[0], orders[1]);
    }

    #[test]
    fn texts_of_a_unit_stay_together_and_are_filled_up() {
        let mut two = unit(3, 5);
        two.texts.push(unit(1, 5).texts.remove(0));
        let batch = batch(&[&two, &unit(2, 6)], 9);
        assert_eq!((batch.rows, batch.ids.as_slice()), (3, &[6, 6, 6, 6, 9, 9, 7, 7, 9][..]));
        assert_eq!(batch.mask, [true, true, true, true, false, false, true, true, false]);
        assert_eq!(batch.targets.iter().filter(|&&target| target != IGNORE).count(), 2);
        let groups = by_length(&[unit(4, 0), two, unit(9, 1), unit(4, 2)], 12);
        assert_eq!(groups, [vec![2], vec![0, 3], vec![1]]);
    }
}
