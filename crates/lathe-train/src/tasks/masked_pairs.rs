//! Masked language modelling of two texts at once, and what the second is to the first, told from the vector of both:
//!
//! - `masked_nsp`, next-sentence prediction (Devlin et al., 2018): 0 where it goes on with the first, 1 where it is from another
//!   document, which is so in half of the windows;
//! - `masked_sop`, sentence-order prediction (Lan et al., 2020): 0 where it goes on with the first, 1 where the two are swapped.
//!
//! loss = mean over masked tokens of -log p + mean over windows of -log p(what the second is)
//!
//! A document is cut into as few windows as hold it, of lengths that differ by one at most, so that a window is full or nearly so
//! where documents are long. It begins with a word, and is split in two where another begins, elsewhere in each epoch.
//! CLS A SEP B SEP, and padding behind; without CLS and SEP in the tokenizer, A B, of which the first token is never masked.
//! A text that does not know its documents is one document; the other text is then from somewhere else in it.

use super::masked_lm::{self, AT_ONCE, Masking, Told};
use super::{Batches, Cut, Sequences, Task};
use crate::data::{Batch, Data, Specials, Tokenizer, Tokens, mix, permute};
use crate::evaluate::{Evaluation, Options};
use crate::{Error, Result};
use lathe_core::Frame;
use lathe_model::head::Top;
use lathe_model::{Grads, Network, Objective, Params};
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use lathe_ops::loss::{self, IGNORE};
use lathe_text::Words;

/// Masked tokens and pairs of texts.
pub struct MaskedPairs {
    order: bool,
}

impl MaskedPairs {
    /// Whether the second text is from another document.
    pub const NEXT: Self = Self { order: false };
    /// Whether the second text stood before the first.
    pub const ORDER: Self = Self { order: true };
}

/// The output layer that models need.
const HEAD: &str = "pretraining";
/// What the second text of a pair can be.
const KINDS: usize = 2;
/// Windows that are asked for a text as long as the one that it stands for.
const ASKED: u64 = 8;

impl Task for MaskedPairs {
    fn key(&self) -> &'static str {
        if self.order { "masked_sop" } else { "masked_nsp" }
    }

    fn about(&self) -> &'static str {
        match self.order {
            true => "masked tokens, and whether two texts are in their order",
            false => "masked tokens, and whether a text goes on with another",
        }
    }

    fn check(&self, frame: &Frame) -> Result<()> {
        masked_lm::check(frame, self.key())?;
        let backbone = frame.backbone.key();
        if frame.word("head") != Some(HEAD) {
            let found = format!("`{backbone}` without an output layer for pairs of texts");
            let expected = format!("one with head {HEAD}, for {}; bert, albert and mobilebert can have it", self.key());
            return Err(Error::setting("backbone", found, expected));
        }
        match frame.int("segments").unwrap_or(0) {
            2.. => Ok(()),
            rows => Err(Error::setting("segments", rows, format!("at least 2, for {}", self.key()))),
        }
    }

    fn extra_tokens(&self, specials: &Specials) -> u32 {
        u32::from(specials.mask.is_none())
    }

    fn of_documents(&self) -> bool {
        true
    }

    fn head(&self) -> Option<&'static str> {
        Some(HEAD)
    }

    fn batches(&self, frame: &Frame, data: &Data, cut: &Cut<'_>) -> Result<Box<dyn Batches>> {
        if cut.batch == 0 {
            return Err(Error::setting("batch", 0, "at least 1"));
        }
        let windows = Windows::new(frame, data.tokens()?, cut.tokenizer, cut.len, self.order)?;
        Ok(Box::new(Pairs { windows, rows: cut.batch as u64, seed: cut.seed }))
    }

    fn objective<'a>(&'a self, sequences: Sequences<'a>) -> Box<dyn Objective + 'a> {
        Box::new(OfPairs(sequences))
    }

    fn any_targets(&self, _: &Frame, mut random: Vec<u32>, len: usize) -> Vec<u32> {
        random.iter_mut().step_by(len.max(1)).for_each(|target| *target %= KINDS as u32);
        random
    }

    fn chance(&self, frame: &Frame) -> f32 {
        (frame.vocab as f32).ln() + (KINDS as f32).ln()
    }

    /// All windows of the documents in their order, always split and masked alike. Loss, perplexity and accuracy are those of masked
    /// tokens; `pair_loss` and `pair_accuracy` those of the pairs.
    fn evaluate(
        &self,
        network: &Network,
        data: &Data,
        options: &Options<'_>,
        watch: &mut dyn FnMut(u64, u64),
    ) -> Result<Evaluation> {
        let frame = &network.model.frame;
        let tokens = data.tokens()?;
        let windows = Windows::new(frame, tokens, options.tokenizer, options.window_of(frame), self.order)?;
        let within = |sum: &mut u64, window: &Window| {
            let before = *sum;
            *sum += window.len;
            Some(before)
        };
        let most = if options.limit == 0 { u64::MAX } else { options.limit };
        let count = windows.all.iter().scan(0, within).take_while(|&before| before < most).count() as u64;
        let (mut told, mut nats, mut right) = (Told::default(), 0.0, 0);
        let together = (AT_ONCE / windows.row).max(1) as u64;
        for first in (0..count).step_by(together as usize) {
            watch(first, count);
            let batch = windows.batch((first..count.min(first + together)).map(|window| (window, mix(window))))?;
            let hidden = network.hidden(&batch.input(batch.rows), &mut network.init_memory(batch.rows));
            let (of_tokens, of_pairs) = apart(&batch.targets, batch.rows);
            told.add(network, &hidden, &of_tokens);
            let mut numbers =
                network.task_outputs(&hidden, batch.rows).expect("an output layer for pairs, as was checked");
            let is_right = |(row, &pair): (&[f32], &u32)| row[pair as usize] > row[1 - pair as usize];
            right += numbers.chunks_exact(KINDS).zip(&of_pairs).filter(|&(row, pair)| is_right((row, pair))).count();
            let mut losses = vec![0.0; batch.rows];
            loss::negative_log_likelihood(&mut numbers, KINDS, &of_pairs, &mut losses);
            nats += losses.iter().copied().map(f64::from).sum::<f64>();
        }
        watch(count, count);
        let mut evaluation = told.evaluation(tokens);
        evaluation.scores.insert("pair_loss".into(), nats / count as f64);
        evaluation.scores.insert("pair_accuracy".into(), right as f64 / count as f64);
        Ok(evaluation)
    }
}

/// Targets of tokens, and of the pairs, which stand at the first token of each row.
fn apart(targets: &[u32], rows: usize) -> (Vec<u32>, Vec<u32>) {
    let len = targets.len() / rows;
    let (mut of_tokens, pairs) = (targets.to_vec(), targets.iter().copied().step_by(len).collect());
    of_tokens.iter_mut().step_by(len).for_each(|target| *target = IGNORE);
    (of_tokens, pairs)
}

/// Masked tokens and pairs. Each loss counts as much as makes the mean over all of them the sum of both means, so that parts of a batch are
/// as batches by themselves.
struct OfPairs<'a>(Sequences<'a>);

impl Objective for OfPairs<'_> {
    fn loss(
        &self,
        top: &Top,
        params: &Params,
        hidden: &[f32],
        mut gradients: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>) {
        let Sequences { input, targets, .. } = self.0;
        let (of_tokens, of_pairs) = apart(targets, input.batch);
        let count = |targets: &[u32]| targets.iter().filter(|&&target| target != IGNORE).count() as f32;
        let (tokens, pairs) = (count(&of_tokens), count(&of_pairs));
        let [weight, weight_of_pair] = [tokens, pairs].map(|own| (tokens + pairs) / own.max(1.0));

        let head = top.head.as_ref().expect("an output layer for tokens, as was checked");
        let of_head = gradients.as_mut().map(|(scale, grads)| (*scale * weight, &mut **grads));
        let (mut losses, mut dhidden) = head.loss(params, hidden, &of_tokens, of_head);
        losses.iter_mut().for_each(|loss| *loss *= weight);

        // transformers drops nothing here for BERT.
        let outputs = top.outputs(params, hidden, input.batch, Dropout::NONE);
        let mut outputs = outputs.expect("an output layer for pairs, as was checked");
        let scale = gradients.as_ref().map_or(0.0, |(scale, _)| *scale * weight_of_pair);
        let mut own = vec![0.0; input.batch];
        loss::cross_entropy(&mut outputs.values, KINDS, &of_pairs, scale, &mut own);
        losses.iter_mut().step_by(input.len()).zip(own).for_each(|(loss, own)| *loss = weight_of_pair * own);
        if let (Some((_, grads)), Some(dhidden)) = (gradients, &mut dhidden) {
            let dvalues = std::mem::replace(&mut outputs.values, Buf::zeros(0));
            let more = top.outputs_backward(params, hidden, &outputs, &dvalues, Dropout::NONE, grads);
            dhidden.iter_mut().zip(&*more).for_each(|(d, more)| *d += more);
        }
        (losses, dhidden)
    }
}

/// A part of a document.
#[derive(Debug, Clone, Copy)]
struct Window {
    start: u64,
    len: u64,
    /// Which document.
    document: u32,
    /// Whether it begins there.
    begins: bool,
}

/// The windows of a text, and how they become pairs.
struct Windows {
    tokens: Tokens,
    /// From the first on; of each document one or more.
    all: Vec<Window>,
    masking: Masking,
    words: Words,
    pad: u32,
    /// T
    row: usize,
    order: bool,
}

impl Windows {
    fn new(frame: &Frame, tokens: &Tokens, tokenizer: &Tokenizer, row: usize, order: bool) -> Result<Self> {
        let masking = Masking::new(frame, tokenizer, false)?;
        let around = if masking.around.is_some() { 3 } else { 0 };
        let inside = row.saturating_sub(around) as u64;
        if inside < 3 {
            let expected = format!("at least {}, for two texts", around + 3); // of 2 there would be windows of one token
            return Err(Error::setting("max_len", row, expected));
        }
        let mut starts = tokens.documents()?;
        if starts.is_empty() {
            starts.push(0);
        }
        let ends = starts.iter().copied().skip(1).chain([tokens.len()]);
        let mut all = Vec::new();
        for ((document, &start), end) in (0..).zip(&starts).zip(ends) {
            let len = end - start;
            if len < 2 {
                continue; // no two texts
            }
            let parts = len.div_ceil(inside);
            let place = |part: u64| start + (u128::from(len) * u128::from(part) / u128::from(parts)) as u64;
            all.extend((0..parts).map(|part| Window {
                start: place(part),
                len: place(part + 1) - place(part),
                document,
                begins: part == 0,
            }));
        }
        if all.is_empty() {
            let found = format!("{} tokens", tokens.len());
            return Err(Error::data(tokens.path().display(), found, "a document of at least two tokens"));
        }
        let (words, pad) = (Words::of(tokenizer), tokenizer.specials().pad.unwrap_or(0));
        Ok(Self { tokens: tokens.clone(), all, masking, words, pad, row, order })
    }

    /// Windows by their numbers as rows, each with a key of what is drawn for it.
    fn batch(&self, windows: impl Iterator<Item = (u64, u64)>) -> Result<Batch> {
        let mut batch = Batch { fresh: true, ..Batch::default() };
        for (number, key) in windows {
            let window = self.all[number as usize];
            let text = self.read(window)?;
            let place = 1 + mix(key ^ 1) % (text.len() as u64 - 1);
            let (first, second) = text.split_at(self.word(&text, place as usize, text.len() - 1));
            let differs = mix(key ^ 2) % 2 == 1;
            let pair = match (differs, self.order) {
                (false, _) => [first.to_vec(), second.to_vec()],
                (true, true) => [second.to_vec(), first.to_vec()],
                (true, false) => [first.to_vec(), self.other(number, second.len(), mix(key ^ 3))?],
            };
            self.push(&mut batch, pair, differs, mix(key));
        }
        if batch.mask.iter().all(|&real| real) {
            batch.mask.clear();
        }
        Ok(batch)
    }

    /// The tokens of a window from its first word on: the rest of a word at its beginning would tell what came before what.
    fn read(&self, window: Window) -> Result<Vec<u32>> {
        let before = usize::from(!window.begins);
        let mut text = vec![0; before + window.len as usize];
        self.tokens.read(window.start - before as u64, &mut text)?;
        let first = (before..text.len() - 1).find(|&at| at == 0 || !self.words.joins(text[at - 1], text[at]));
        Ok(text.split_off(first.unwrap_or(before)))
    }

    /// Where the next word begins from a place on, up to another, or else the last one before; the place itself where none does.
    fn word(&self, text: &[u32], from: usize, to: usize) -> usize {
        let begins = |&at: &usize| !self.words.joins(text[at - 1], text[at]);
        (from.max(1)..=to).find(begins).or_else(|| (1..from).rev().find(begins)).unwrap_or(from)
    }

    /// So many tokens of another document, or fewer where none of those that are asked is as long; of the same one where there is
    /// no other, and of another window if there is one.
    fn other(&self, number: u64, len: usize, key: u64) -> Result<Vec<u32>> {
        let (count, own) = (self.all.len() as u64, self.all[number as usize]);
        let asked = (0..ASKED).map(|i| self.all[(mix(key ^ i) % count) as usize]);
        let others = asked.filter(|other| other.start != own.start);
        // The last of the best: another document first of all, then the length.
        let best = others.max_by_key(|other| (other.document != own.document, other.len.min(len as u64)));
        let text = self.read(best.unwrap_or(own))?;
        let rest = text.len().saturating_sub(len);
        let start = self.word(&text, (mix(key ^ ASKED) % (rest as u64 + 1)) as usize, rest);
        Ok(text[start..][..len.min(text.len())].to_vec())
    }

    /// Adds a pair as a row.
    fn push(&self, batch: &mut Batch, [first, second]: [Vec<u32>; 2], differs: bool, key: u64) {
        let text = [&first[..], &second[..]].concat();
        // Without CLS the first token says what the pair is.
        let (ids, targets) = self.masking.mask(&text, key, usize::from(self.masking.around.is_none()));
        let (begin, end) = (batch.ids.len(), batch.ids.len() + self.row);
        let mut add = |id: u32, target: u32, segment: u32| {
            batch.ids.push(id);
            batch.targets.push(target);
            batch.segments.push(segment);
        };
        let (before, behind) = self.masking.around.unzip();
        before.into_iter().for_each(|cls| add(cls, IGNORE, 0));
        for (i, (id, target)) in ids.into_iter().zip(targets).enumerate() {
            if i == first.len() {
                behind.into_iter().for_each(|sep| add(sep, IGNORE, 0));
            }
            add(id, target, u32::from(i >= first.len()));
        }
        behind.into_iter().for_each(|sep| add(sep, IGNORE, 1));
        batch.rows += 1;
        batch.targets[begin] = differs.into();
        batch.mask.resize(batch.ids.len(), true);
        batch.mask.resize(end, false);
        batch.ids.resize(end, self.pad);
        batch.targets.resize(end, IGNORE);
        batch.segments.resize(end, 0);
    }
}

/// Windows in a random order, another one in each epoch.
struct Pairs {
    windows: Windows,
    rows: u64,
    seed: u64,
}

impl Batches for Pairs {
    fn batch(&self, step: u64) -> Result<Batch> {
        let count = self.windows.all.len() as u64;
        let window = |row: u64| {
            let i = step.wrapping_mul(self.rows).wrapping_add(row);
            let order = mix(mix(self.seed) ^ (i / count));
            (permute(i % count, count, order), mix(mix(self.seed ^ 0x7061_6972) ^ i)) // apart from those of orders
        };
        self.windows.batch((0..self.rows).map(window))
    }

    fn steps_per_epoch(&self) -> u64 {
        (self.windows.all.len() as u64).div_ceil(self.rows)
    }
}
