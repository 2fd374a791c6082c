//! The text of a job in three parts: one to learn, one to choose by, and one to report on, which nothing is chosen by.
//!
//! Where lines `<|endoftext|>` mark documents, no document is in two parts, each is read from its own beginning, and the
//! text to learn is the documents one after the other, each after BOS.

use super::samples::Samples;
use crate::{Error, Event, Result, Watch};
use lathe_core::Frame;
use lathe_ops::loss::IGNORE;
use lathe_train::data::{self, Batch, Documents, Sampler, Sequence, Source, Tokenizer, Tokens};
use lathe_train::tasks::CausalLm;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::path::Path;

/// The share of the text in each of the parts to choose by and to report on, and their most bytes.
const SHARE: f64 = 0.1;
const MOST: u64 = 1 << 20;
/// Places computed at once.
const AT_ONCE: usize = 2048;
/// Longest window.
const LONGEST: usize = 512;
/// Streams of a model with a memory.
const STREAMS: usize = 4;

/// A text and its parts.
pub struct Text {
    source: Source,
    valid: Option<Source>,
    /// Where the parts are.
    pub parts: Parts,
}

/// Where the parts are: first byte and end. The last two are those of the text to validate on, where there is one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Parts {
    pub learn: [u64; 2],
    pub choose: [u64; 2],
    pub report: [u64; 2],
    /// Whether documents are marked.
    pub documents: bool,
}

/// Documents of two kinds: those whose tokens are others where a tokenizer has fewer of them, and those whose tokens stay.
pub struct Changed {
    /// The share of the first kind, by bytes.
    pub share: f64,
    /// Some of each kind, by the tokens of before and of after.
    pub samples: [[Samples; 2]; 2],
}

impl Text {
    /// Opens a text, and another one to choose by and to report on, if there is one.
    pub fn open(data: &str, valid: Option<&str>) -> Result<Self> {
        let source = Source::open(data)?;
        let valid = valid.map(Source::open).transpose()?;
        let documents = Documents::new(&source)?.are_marked();
        let (all, held) = (source.bytes(), valid.as_ref().unwrap_or(&source));
        let border = |at: u64| -> Result<u64> {
            Ok(if documents { Documents::next_marked(held, at)? } else { held.next_character(at)? })
        };
        let size = ((SHARE * held.bytes() as f64) as u64).min(MOST);
        let parts = match &valid {
            Some(valid) => {
                let end = valid.bytes();
                let middle = border((end / 2).min(MOST))?;
                Parts {
                    learn: [0, all],
                    choose: [0, middle],
                    report: [middle, border((2 * middle).min(end))?],
                    documents,
                }
            }
            None => {
                let choose = border(all.saturating_sub(2 * size))?;
                let report = border((choose + size).min(all))?;
                Parts { learn: [0, choose], choose: [choose, report], report: [report, all], documents }
            }
        };
        for (part, [start, end]) in [("learn", parts.learn), ("choose by", parts.choose), ("report on", parts.report)] {
            if end <= start {
                let expected = "a text that can be cut into one to learn, one to choose by and one to report on";
                return Err(Error::data(data, format!("too short a text: nothing is left to {part}"), expected));
            }
        }
        Ok(Self { source, valid, parts })
    }

    /// Leaves at most so many bytes to report on, about.
    pub fn report_at_most(&mut self, bytes: u64) -> Result<()> {
        self.parts.report = self.beginning(self.parts.report, bytes)?;
        Ok(())
    }

    /// The first bytes of a part, about so many: the same text whatever tokens it is cut into.
    pub fn beginning(&self, [start, end]: [u64; 2], bytes: u64) -> Result<[u64; 2]> {
        if end - start <= bytes {
            return Ok([start, end]);
        }
        let held = self.held();
        let border = match self.parts.documents {
            true => Documents::next_marked(held, start + bytes)?,
            false => held.next_character(start + bytes)?,
        };
        Ok([start, border.min(end)])
    }

    fn held(&self) -> &Source {
        self.valid.as_ref().unwrap_or(&self.source)
    }

    /// Writes the tokens to learn, and the tokenizer, into a folder that a training run takes as its data.
    pub fn learn(&self, tokenizer: &Tokenizer, folder: &Path, watch: Watch<'_>) -> Result<Tokens> {
        std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
        let (learn, valid) = (folder.join("train.tokens"), folder.join("valid.tokens"));
        if valid.exists() {
            return Ok(Tokens::open(&learn)?);
        }
        let watch = RefCell::new(watch);
        let progress = |what: &str, done, total| watch.borrow_mut()(Event::Bytes { what, done, total });
        tokenizer.save(folder)?;
        let [start, end] = self.parts.learn;
        let tokens = match self.parts.documents {
            true => data::encode_documents(&self.source, start..end, tokenizer, &learn, &progress)?,
            false => data::encode_range(&self.source, start..end, tokenizer, &learn, &progress)?,
        };
        // A run evaluates nothing on the way: whoever chooses does it by the other parts.
        data::encode_range(&self.source, start..start, tokenizer, &valid, &progress)?;
        watch.borrow_mut()(Event::Done);
        Ok(tokens)
    }

    /// The same with the text to choose by beside it, for searches that learn from both.
    pub fn learn_and_choose(&self, tokenizer: &Tokenizer, folder: &Path, watch: Watch<'_>) -> Result<()> {
        let path = folder.join("choose.tokens");
        if path.exists() {
            return Ok(());
        }
        self.learn(tokenizer, folder, watch)?;
        let [start, end] = self.parts.choose;
        let quiet = |_: &str, _: u64, _: u64| {};
        let (held, valid) = (self.held(), folder.join("valid.tokens"));
        match self.parts.documents {
            true => data::encode_documents(held, start..end, tokenizer, &valid, &quiet)?,
            false => data::encode_range(held, start..end, tokenizer, &valid, &quiet)?,
        };
        Ok(lathe_model::folder::write_aside(&path, |_| Ok(()))?)
    }

    /// Every token that the text to learn has.
    pub fn used(&self, tokenizer: &Tokenizer, aside: &Path, watch: Watch<'_>) -> Result<BTreeSet<u32>> {
        let tokens = self.learn(tokenizer, aside, watch)?;
        let mut used = BTreeSet::new();
        let mut piece = vec![0; 1 << 16];
        for start in (0..tokens.len()).step_by(piece.len()) {
            let len = piece.len().min((tokens.len() - start) as usize);
            tokens.read(start, &mut piece[..len])?;
            used.extend(&piece[..len]);
        }
        Ok(used)
    }

    /// Writes a part as a text of its own.
    pub fn write(&self, [start, end]: [u64; 2], path: &Path) -> Result<()> {
        let mut text = Vec::new();
        let mut reader = self.held().read(start..end);
        reader.read_to_end(&mut text).map_err(|error| Error::from(reader.error(error)))?;
        Ok(lathe_model::folder::write_aside(path, |out| out.write_all(&text))?)
    }

    /// Sequences of a part, of about so many tokens; 0 for all.
    pub fn samples(&self, part: [u64; 2], tokenizer: &Tokenizer, frame: &Frame, limit: u64) -> Result<Samples> {
        let limit = if limit == 0 { u64::MAX } else { limit };
        let samples = match self.by_documents(frame) {
            true => self.documents(part, tokenizer, frame, limit)?,
            false => self.windows(part, tokenizer, frame, limit)?,
        };
        if samples.tokens == 0 {
            let name = &self.held().name;
            return Err(Error::data(name, "a part without a token to score", "a longer text"));
        }
        Ok(samples)
    }

    /// Whether documents of a part are scored one by one.
    pub fn by_documents(&self, frame: &Frame) -> bool {
        self.parts.documents && !frame.has_memory()
    }

    fn documents(&self, [start, end]: [u64; 2], tokenizer: &Tokenizer, frame: &Frame, limit: u64) -> Result<Samples> {
        let longest = LONGEST.min(frame.window() as usize);
        let sequences = Documents::within(self.held(), start..end)?.tokens(tokenizer, longest)?;
        side_by_side(sequences.map(|sequence| Ok(sequence?)), limit)
    }

    /// The documents of a part that a tokenizer with fewer tokens cuts otherwise, given what it calls those that are left, and
    /// those that it does not; of each about so many tokens.
    pub fn changed(
        &self,
        [start, end]: [u64; 2],
        [all, fewer]: [&Tokenizer; 2],
        new: &HashMap<u32, u32>,
        frame: &Frame,
        limit: u64,
    ) -> Result<Changed> {
        let longest = LONGEST.min(frame.window() as usize);
        let by =
            |tokenizer| -> Result<_> { Ok(Documents::within(self.held(), start..end)?.tokens(tokenizer, longest)?) };
        let (mut bytes, mut changed) = (0, 0);
        let mut tokens = [0; 2];
        let mut kinds: [[Vec<Sequence>; 2]; 2] = Default::default();
        for (before, after) in by(all)?.zip(by(fewer)?) {
            let (before, after) = (before?, after?);
            bytes += before.bytes;
            let same = before.ids.iter().map(|id| new.get(id)).eq(after.ids.iter().map(Some));
            changed += if same { 0 } else { before.bytes };
            let kind = usize::from(same);
            if tokens[kind] < limit {
                tokens[kind] += before.targets() as u64;
                kinds[kind][0].push(before);
                kinds[kind][1].push(after);
            }
        }
        let samples = |sequences: Vec<Sequence>| side_by_side(sequences.into_iter().map(Ok), u64::MAX);
        let [[old, new], [old_same, new_same]] = kinds.map(|pair| pair.map(samples));
        let samples = [[old?, new?], [old_same?, new_same?]];
        Ok(Changed { share: changed as f64 / bytes.max(1) as f64, samples })
    }

    fn windows(&self, [start, end]: [u64; 2], tokenizer: &Tokenizer, frame: &Frame, limit: u64) -> Result<Samples> {
        let aside = tempfile::tempdir().map_err(Error::io(Path::new("a folder for tokens")))?;
        let quiet = |_: &str, _: u64, _: u64| {};
        let path = aside.path().join("part.tokens");
        let tokens = data::encode_range(self.held(), start..end, tokenizer, &path, &quiet)?;
        let bytes_per_token = tokens.bytes() as f64 / tokens.len().max(1) as f64;
        let mut found = Samples { task: &CausalLm, batches: Vec::new(), tokens: 0, bytes: 0.0 };
        let window = frame.window() as usize;
        if frame.has_memory() {
            let streams = STREAMS.min((tokens.len().saturating_sub(1) / window as u64) as usize).max(1);
            let sampler = Sampler::streams(tokens, streams, window)?;
            for step in 0..sampler.steps_per_epoch() {
                let batch = sampler.batch(step)?;
                found.tokens += batch.targets.len() as u64;
                found.batches.push(batch);
                if found.tokens >= limit {
                    break;
                }
            }
        } else {
            let all = tokens.len().saturating_sub(1);
            while found.tokens < all.min(limit) {
                let rest = (all - found.tokens) as usize;
                let len = window.min(LONGEST).min(rest);
                let rows = (AT_ONCE / len).clamp(1, rest / len);
                let mut ids = vec![0; rows * len + 1];
                tokens.read(found.tokens, &mut ids)?;
                let targets = ids[1..].to_vec();
                ids.pop();
                found.tokens += targets.len() as u64;
                found.batches.push(Batch { rows, ids, targets, fresh: true, ..Batch::default() });
            }
        }
        found.bytes = found.tokens as f64 * bytes_per_token;
        Ok(found)
    }
}

/// Sequences as batches, until there are so many tokens.
fn side_by_side(sequences: impl Iterator<Item = Result<Sequence>>, limit: u64) -> Result<Samples> {
    let mut found = Samples { task: &CausalLm, batches: Vec::new(), tokens: 0, bytes: 0.0 };
    let mut waiting: Vec<Vec<u32>> = Vec::new();
    let flush = |waiting: &mut Vec<Vec<u32>>, batches: &mut Vec<Batch>| {
        let len = waiting.iter().map(Vec::len).max().unwrap_or(1) - 1;
        let mut batch = Batch { rows: waiting.len(), fresh: true, ..Batch::default() };
        for ids in waiting.iter() {
            let pad = len + 1 - ids.len();
            batch.ids.extend(ids[..ids.len() - 1].iter().copied().chain(std::iter::repeat_n(0, pad)));
            batch.targets.extend(ids[1..].iter().copied().chain(std::iter::repeat_n(IGNORE, pad)));
        }
        batches.push(batch);
        waiting.clear();
    };
    for sequence in sequences {
        let sequence = sequence?;
        if sequence.targets() == 0 {
            continue;
        }
        let longest = waiting.iter().chain([&sequence.ids]).map(Vec::len).max().unwrap_or(0);
        if !waiting.is_empty() && longest * (waiting.len() + 1) > AT_ONCE {
            flush(&mut waiting, &mut found.batches);
        }
        found.tokens += sequence.targets() as u64;
        found.bytes += sequence.target_bytes as f64;
        waiting.push(sequence.ids);
        if found.tokens >= limit {
            break;
        }
    }
    if !waiting.is_empty() {
        flush(&mut waiting, &mut found.batches);
    }
    Ok(found)
}
