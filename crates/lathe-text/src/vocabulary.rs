//! Vocabularies made from the training text: merges of BPE, and lists of words.

use crate::TextProgress;
use crate::chunks::{CHUNK, Chunks};
use crate::guard::guarded;
use crate::quick::{byte_characters, pattern, pieces};
use crate::source::Source;
use crate::tokenizer::{Tokenizer, TokenizerSpec};
use crate::{Error, Result};
use rayon::prelude::*;
use std::collections::HashMap;
use std::ops::Range;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence;
use tokenizers::decoders::wordpiece::WordPiece;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::wordlevel::WordLevel;
use tokenizers::normalizers::replace::{Replace, ReplacePattern};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::{DecoderWrapper, Trainer};

/// The end of a line, as a word.
pub(crate) const END_OF_LINE: &str = "<eos>";
/// Any word that the vocabulary does not have.
const UNKNOWN: &str = "<unk>";
/// Bytes of text that merges are learnt from, at most; of a longer text, evenly spread pieces.
pub const SAMPLE: u64 = 32 << 20;
/// Words that are counted at the same time; beyond that the rarest are forgotten.
const COUNTED: usize = 1 << 20;
/// Bytes of a word that can be in a vocabulary.
const LONGEST: usize = 1 << 10;
/// Bytes of a piece that merges are learnt from; longer ones, which take the square of their length, are cut.
const PIECE: usize = 256;
const GROUP: usize = 32;

/// The tokenizer that was asked for, trained on a range of the text where it has to be, and how many bytes it was
/// trained on.
pub(crate) fn make(
    spec: &TokenizerSpec,
    source: &Source,
    range: Range<u64>,
    progress: &TextProgress<'_>,
) -> Result<(Tokenizer, u64)> {
    let failed = |error: String| {
        Error::data(&source.name, format_args!("an error of the tokenizers library: {error}"), "text to train on")
    };
    let text = Text { source, range, progress };
    match spec {
        TokenizerSpec::Bytes => Ok((Tokenizer::Bytes, 0)),
        TokenizerSpec::File(path) => Ok((Tokenizer::open(path)?, 0)),
        TokenizerSpec::Bpe(vocab) => {
            let sample = text.sample()?;
            let bytes = sample.iter().map(|piece| piece.len() as u64).sum();
            progress("learning merges", 0, 0);
            Ok((guarded(|| train_bpe(*vocab as usize, &sample)).map_err(failed)?, bytes))
        }
        TokenizerSpec::Word(vocab) => {
            let words = text.count_words(*vocab as usize)?;
            Ok((guarded(|| word_level(words, *vocab as usize)).map_err(failed)?, text.bytes()))
        }
    }
}

struct Text<'a> {
    source: &'a Source,
    range: Range<u64>,
    progress: &'a TextProgress<'a>,
}

impl Text<'_> {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn chunks(&self) -> Chunks<'_> {
        Chunks::new(self.source, self.range.clone(), true, CHUNK)
    }

    /// All of the text, or evenly spread pieces of it.
    fn sample(&self) -> Result<Vec<String>> {
        let every = self.bytes().div_ceil(SAMPLE).max(1) as usize;
        let mut sample = Vec::new();
        let mut done = 0;
        for (i, chunk) in self.chunks().enumerate() {
            let chunk = chunk?;
            done += chunk.len() as u64;
            if i % every == 0 {
                sample.push(String::from_utf8(chunk).unwrap_or_default());
                (self.progress)("reading", done, self.bytes());
            }
        }
        Ok(sample)
    }

    /// How often each word is there.
    fn count_words(&self, vocab: usize) -> Result<HashMap<Box<str>, u64>> {
        let limit = COUNTED.max(2 * vocab);
        let mut all: HashMap<Box<str>, u64> = HashMap::new();
        let mut chunks = self.chunks();
        let mut done = 0;
        loop {
            (self.progress)("counting words", done, self.bytes());
            let group = chunks.group(GROUP)?;
            if group.is_empty() {
                return Ok(all);
            }
            let counts: Vec<HashMap<&str, u64>> = group.par_iter().map(|chunk| count(chunk)).collect();
            for (word, count) in counts.into_iter().flatten() {
                match all.get_mut(word) {
                    Some(sum) => *sum += count,
                    None => _ = all.insert(word.into(), count),
                }
            }
            let mut least = 0;
            while all.len() > limit {
                least += 1;
                all.retain(|_, count| *count > least);
            }
            done += group.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
        }
    }
}

fn count(chunk: &[u8]) -> HashMap<&str, u64> {
    let text = std::str::from_utf8(chunk).unwrap_or_default();
    let mut counts = HashMap::new();
    for word in text.split_whitespace().filter(|word| word.len() <= LONGEST) {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

/// Merges of pairs, the most frequent first.
fn train_bpe(vocab: usize, sample: &[String]) -> tokenizers::Result<Tokenizer> {
    let pattern = pattern()?;
    let alphabet = ByteLevel::alphabet().into_iter().collect();
    let mut trainer = BpeTrainer::builder()
        .vocab_size(vocab)
        .min_frequency(2)
        .initial_alphabet(alphabet)
        .show_progress(false)
        .build();
    trainer.feed(sample.iter(), |text| {
        let parts = pieces(&pattern, text).flat_map(|piece| piece.as_bytes().chunks(PIECE));
        Ok(parts.map(byte_characters).collect())
    })?;
    let mut model = BPE::default();
    trainer.train(&mut model)?;
    Tokenizer::byte_level(model)
}

/// The end of a line becomes a word.
pub(crate) fn lines_to_words() -> tokenizers::Result<Replace> {
    Replace::new("\n", format!(" {END_OF_LINE} "))
}

/// Words between white space, without any word.
fn words() -> tokenizers::Result<tokenizers::Tokenizer> {
    let mut tokenizer = tokenizers::Tokenizer::new(WordLevel::default());
    tokenizer.with_normalizer(Some(lines_to_words()?))?;
    tokenizer.with_pre_tokenizer(Some(WhitespaceSplit));
    // A space before each word but the first, then line breaks for their word and the spaces around it.
    let spaces = DecoderWrapper::WordPiece(WordPiece::new("\n".into(), false));
    let lines = Replace::new(ReplacePattern::Regex(format!(" ?{END_OF_LINE} ?")), "\n")?;
    let steps = vec![spaces, DecoderWrapper::Fuse(Fuse::new()), DecoderWrapper::Replace(lines)];
    tokenizer.with_decoder(Some(Sequence::new(steps)));
    Ok(tokenizer)
}

/// The most frequent words, after the two that are always there; those of equal count in their own order.
fn word_level(mut counts: HashMap<Box<str>, u64>, vocab: usize) -> tokenizers::Result<Tokenizer> {
    for special in [END_OF_LINE, UNKNOWN] {
        counts.remove(special);
    }
    let mut words: Vec<(Box<str>, u64)> = counts.into_iter().collect();
    words.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let names = [END_OF_LINE, UNKNOWN].into_iter().chain(words.iter().map(|(word, _)| &**word));
    let ids = names.take(vocab).map(String::from).zip(0..).collect();
    let mut tokenizer = self::words()?;
    tokenizer.with_model(WordLevel::builder().vocab(ids).unk_token(UNKNOWN.into()).build()?);
    Tokenizer::of(tokenizer)
}
