//! Texts and pairs of texts as a model with special tokens takes them, and batches of such.
//!
//! The tokenizer's own post-processor says where its special tokens go: `[CLS] a [SEP] b [SEP]` with segments 0 and 1
//! for BERT, BOS before a text for Llama. What is too long loses tokens at its end, of a pair the longer text first,
//! and never a special token.

use crate::guard::guarded;
use crate::tokenizer::{Hf, Tokenizer, cannot_encode};
use crate::{Error, Result};
use std::ops::Range;
use tokenizers::PostProcessor;
use tokenizers::utils::truncation::{TruncationDirection, TruncationParams, truncate_encodings};

/// A text or a pair of texts with special tokens; each list has a value for each token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoding {
    /// The tokens.
    pub ids: Vec<u32>,
    /// Which segment a token belongs to, special tokens too.
    pub segments: Vec<u32>,
    /// Which text a token is of, 0 or 1; none for special tokens that were added.
    pub texts: Vec<Option<u32>>,
    /// First byte and end of what a token stands for in its text; 0 and 0 for special tokens that were added.
    pub offsets: Vec<(usize, usize)>,
}

/// A batch of encodings, each filled up at its end to the longest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Padded {
    /// B
    pub batch: usize,
    /// T
    pub len: usize,
    /// [B, T]: PAD, or 0 where the tokenizer has none, after the tokens.
    pub ids: Vec<u32>,
    /// [B, T]: 1 for a token, 0 for padding.
    pub mask: Vec<u32>,
    /// [B, T]: 0 for padding.
    pub segments: Vec<u32>,
}

impl Tokenizer {
    /// The token that it puts before a text that is to be continued, if any: not what an encoder ends a text with.
    pub fn begin(&self) -> Result<Option<u32>> {
        let specials = self.specials();
        let first = self.encode_with_specials("", None)?.ids.first().copied();
        Ok(first.filter(|first| specials.eos != Some(*first) || specials.bos == Some(*first)))
    }

    /// A text with the special tokens that the model expects, in at most `max_len` tokens.
    pub fn encode_with_specials(&self, text: &str, max_len: Option<usize>) -> Result<Encoding> {
        self.encode_texts(text, None, max_len)
    }

    /// Two texts with the special tokens that the model expects, in at most `max_len` tokens.
    pub fn encode_pair(&self, a: &str, b: &str, max_len: Option<usize>) -> Result<Encoding> {
        self.encode_texts(a, Some(b), max_len)
    }

    /// Two texts of which the second may be long: encodings of at most `max_len` tokens, each with all of the first
    /// text and the next part of the second, which shares `overlap` tokens with the part before, or half of it where
    /// that is less.
    pub fn encode_windows(&self, a: &str, b: &str, max_len: usize, overlap: usize) -> Result<Vec<Encoding>> {
        let Self::Hf(hf) = self else {
            let room = room_beside(a.len(), max_len)?;
            let cut = |range: Range<usize>| {
                let mut encoding = encode_bytes(a, b.get(..0), usize::MAX);
                let bytes = b.as_bytes()[range.clone()].iter();
                encoding.ids.extend(bytes.map(|&byte| u32::from(byte)));
                encoding.segments.resize(encoding.ids.len(), 1);
                encoding.texts.resize(encoding.ids.len(), Some(1));
                encoding.offsets.extend(range.map(|i| (i, i + 1)));
                encoding
            };
            return Ok(windows(b.len(), room, overlap).map(cut).collect());
        };
        let added = guarded(|| Ok(hf.inner.get_post_processor().map_or(0, |one| one.added_tokens(true))));
        let added = added.map_err(cannot_encode)?;
        let first = guarded(|| Ok(plain(&hf.inner.encode(a, false)?, 0))).map_err(cannot_encode)?;
        let room = room_beside(first.len() + added, max_len)?;
        let split = || {
            let mut second = plain(&hf.inner.encode(b, false)?, 1);
            second.truncate(room, overlap.min(room / 2), TruncationDirection::Right);
            let rest = second.take_overflowing();
            let process = |second| Ok(finished(&hf.inner.post_process(first.clone(), Some(second), true)?));
            std::iter::once(second).chain(rest).map(process).collect::<tokenizers::Result<Vec<_>>>()
        };
        let encodings = guarded(split).map_err(cannot_encode)?;
        encodings.into_iter().map(|encoding| self.checked(encoding)).collect()
    }

    /// Encodings of different lengths as one batch.
    pub fn pad(&self, batch: &[Encoding]) -> Padded {
        let len = batch.iter().map(|encoding| encoding.ids.len()).max().unwrap_or(0);
        let fill = self.specials().pad.unwrap_or(0);
        let rows = |row: fn(&Encoding) -> Vec<u32>, fill: u32| {
            let row = |encoding| {
                let mut row = row(encoding);
                row.resize(len, fill);
                row
            };
            batch.iter().flat_map(row).collect()
        };
        Padded {
            batch: batch.len(),
            len,
            ids: rows(|encoding| encoding.ids.clone(), fill),
            mask: rows(|encoding| vec![1; encoding.ids.len()], 0),
            segments: rows(|encoding| encoding.segments.clone(), 0),
        }
    }

    fn encode_texts(&self, a: &str, b: Option<&str>, max_len: Option<usize>) -> Result<Encoding> {
        let max_len = max_len.unwrap_or(usize::MAX);
        let Self::Hf(hf) = self else { return Ok(encode_bytes(a, b, max_len)) };
        let added = guarded(|| Ok(hf.inner.get_post_processor().map_or(0, |one| one.added_tokens(b.is_some()))));
        let added = added.map_err(cannot_encode)?;
        let Some(room) = max_len.checked_sub(added) else {
            return Err(Error::setting("max_len", max_len, format_args!("at least {added}, for the special tokens")));
        };
        self.checked(guarded(|| encode(hf, a, b, room)).map_err(cannot_encode)?)
    }

    fn checked(&self, encoding: Encoding) -> Result<Encoding> {
        // A post-processor names ids of its own, and nothing has checked them.
        match encoding.ids.iter().find(|&&id| id >= self.vocab()) {
            Some(id) => {
                let expected = format!("tokens below {}", self.vocab());
                Err(Error::data("post_processor of the tokenizer", format_args!("the special token {id}"), expected))
            }
            None => Ok(encoding),
        }
    }
}

/// By the library; `room` tokens at most without special ones.
fn encode(hf: &Hf, a: &str, b: Option<&str>, room: usize) -> tokenizers::Result<Encoding> {
    let first = plain(&hf.inner.encode(a, false)?, 0);
    let second = b.map(|b| Ok::<_, tokenizers::Error>(plain(&hf.inner.encode(b, false)?, 1))).transpose()?;
    let params = TruncationParams { max_length: room, ..Default::default() };
    let (mut first, mut second) = truncate_encodings(first, second, &params)?;
    // What was cut off would be put between special tokens too.
    first.take_overflowing();
    if let Some(second) = &mut second {
        second.take_overflowing();
    }
    Ok(finished(&hf.inner.post_process(first, second, true)?))
}

/// What the library made, as ours.
fn finished(encoding: &tokenizers::Encoding) -> Encoding {
    let texts = encoding.get_sequence_ids().into_iter();
    Encoding {
        ids: encoding.get_ids().to_vec(),
        segments: encoding.get_type_ids().to_vec(),
        texts: texts.map(|text| text.map(|text| text as u32)).collect(),
        offsets: encoding.get_offsets().to_vec(),
    }
}

/// Tokens that are left beside so many.
fn room_beside(taken: usize, max_len: usize) -> Result<usize> {
    match max_len.checked_sub(taken) {
        Some(room @ 1..) => Ok(room),
        _ => Err(Error::setting(
            "max_len",
            max_len,
            format_args!("more than {taken}, which are taken by the first text"),
        )),
    }
}

/// The windows of so many tokens, of `room` each but the last; each shares some with the one before.
fn windows(tokens: usize, room: usize, overlap: usize) -> impl Iterator<Item = Range<usize>> {
    let step = room - overlap.min(room / 2);
    let count = 1 + tokens.saturating_sub(room).div_ceil(step);
    (0..count).map(move |i| i * step..(i * step + room).min(tokens))
}

/// An encoding as if it had not been processed: the library would remember each text as the first.
fn plain(encoding: &tokenizers::Encoding, segment: u32) -> tokenizers::Encoding {
    tokenizers::Encoding::new(
        encoding.get_ids().to_vec(),
        vec![segment; encoding.len()],
        encoding.get_tokens().to_vec(),
        encoding.get_word_ids().to_vec(),
        encoding.get_offsets().to_vec(),
        encoding.get_special_tokens_mask().to_vec(),
        encoding.get_attention_mask().to_vec(),
        Vec::new(),
        Default::default(),
    )
}

/// Bytes have no special tokens: a text, or two one after the other.
fn encode_bytes(a: &str, b: Option<&str>, max_len: usize) -> Encoding {
    let (mut first, mut second) = (a.len(), b.map_or(0, str::len));
    if first.saturating_add(second) > max_len {
        // The longer one loses until both are equal, then both do; the longer one keeps the odd token, or the second.
        let half = max_len / 2;
        (first, second) = match (first, second) {
            _ if first <= half => (first, max_len - first),
            _ if second <= half => (max_len - second, second),
            _ if first > second => (max_len - half, half),
            _ => (half, max_len - half),
        };
    }
    let texts = [(a, first, 0), (b.unwrap_or_default(), second, 1)];
    let mut encoding = Encoding::default();
    for (text, len, index) in texts {
        for (i, byte) in text.bytes().take(len).enumerate() {
            encoding.ids.push(byte.into());
            encoding.segments.push(index);
            encoding.texts.push(Some(index));
            encoding.offsets.push((i, i + 1));
        }
    }
    encoding
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_context_is_read_in_windows_that_overlap() {
        let context: String = ('a'..='z').collect();
        for (max_len, overlap) in [(10, 3), (9, 0), (7, 100), (30, 2), (28, 5)] {
            let found = Tokenizer::Bytes.encode_windows("??", &context, max_len, overlap).expect("bytes");
            let room = max_len - 2;
            let shared = overlap.min(room / 2);
            let mut end = 0;
            for (i, window) in found.iter().enumerate() {
                assert!(window.ids.len() <= max_len && window.ids[..2] == [63, 63]);
                assert_eq!(window.texts[..2], [Some(0), Some(0)]);
                assert!(window.texts[2..].iter().all(|text| *text == Some(1)));
                let (first, last) = (window.offsets[2].0, window.offsets[window.offsets.len() - 1].1);
                assert_eq!(first, if i == 0 { 0 } else { end - shared }, "{max_len} {overlap}");
                assert_eq!(window.ids[2], u32::from(context.as_bytes()[first]));
                end = last;
            }
            assert_eq!(end, 26);
        }
        assert!(Tokenizer::Bytes.encode_windows("??", &context, 2, 1).is_err());
    }

    #[test]
    fn bytes_lose_the_longer_text_first() {
        let lens = |a: usize, b: usize, max_len: usize| {
            let encoding = Tokenizer::Bytes.encode_pair(&"a".repeat(a), &"b".repeat(b), Some(max_len)).expect("bytes");
            let first = encoding.texts.iter().filter(|text| **text == Some(0)).count();
            (first, encoding.ids.len() - first)
        };
        assert_eq!((lens(3, 4, 7), lens(3, 4, 6), lens(3, 9, 7)), ((3, 4), (3, 3), (3, 4)));
        assert_eq!((lens(9, 3, 7), lens(9, 9, 7), lens(10, 9, 7), lens(5, 5, 0)), ((4, 3), (3, 4), (4, 3), (0, 0)));
        assert_eq!((lens(1, 9, 7), lens(9, 1, 7), lens(0, 9, 5), lens(9, 0, 5)), ((1, 6), (6, 1), (0, 5), (5, 0)));
        let text = Tokenizer::Bytes.encode_with_specials("abc", Some(2)).expect("bytes");
        assert_eq!((text.ids, text.segments, text.offsets), (vec![97, 98], vec![0, 0], vec![(0, 1), (1, 2)]));
    }
}
