//! A text in pieces that can be encoded apart from each other.
//!
//! A piece ends after a single line break between two characters that are no white space, or else between a character
//! that is no white space and one that is. Neither GPT-2's pattern nor words reach across such a place, so that the
//! tokens of the pieces, one after the other, are those of the whole text.
//!
//! Tokenizers that put a mark before a text, as Llama's do, would put one before every piece. For them a piece ends before
//! a single space between two letters or digits where there is one, and is encoded after the last character of the piece
//! before it, whose tokens are then left out.

use crate::source::{Reader, Source, is_start, read_full};
use crate::tokenizer::Tokenizer;
use crate::{Error, Result};
use std::ops::Range;

/// Bytes of a piece, at most. Tokenizers that keep more than the tokens take about a hundred times as much.
pub const CHUNK: usize = 1 << 17;

/// Pieces of a text.
pub struct Chunks<'a> {
    source: &'a Source,
    reader: Reader<'a>,
    /// What was read and is not in a piece yet, and where in the text it begins.
    buffer: Vec<u8>,
    start: u64,
    /// Whether it has to be UTF-8.
    text: bool,
    size: usize,
    /// Whether pieces end between words, where they can.
    words: bool,
}

impl<'a> Chunks<'a> {
    /// Pieces of a range, of at most `size` bytes each; `text` has to be UTF-8.
    pub fn new(source: &'a Source, range: Range<u64>, text: bool, size: usize) -> Self {
        let start = range.start;
        Self { source, reader: source.read(range), buffer: Vec::new(), start, text, size: size.max(8), words: false }
    }

    /// The pieces for a tokenizer: between words where it puts a mark before a text.
    pub fn for_tokenizer(source: &'a Source, range: Range<u64>, tokenizer: &Tokenizer, size: usize) -> Self {
        let chunks = Self::new(source, range, tokenizer.needs_text(), size);
        Self { words: tokenizer.marks_beginnings(), ..chunks }
    }

    /// Up to so many pieces, to be worked on at the same time; none at the end.
    pub fn group(&mut self, count: usize) -> Result<Vec<Vec<u8>>> {
        self.take(count).collect()
    }

    fn read(&mut self) -> Result<Option<Vec<u8>>> {
        let had = self.buffer.len();
        self.buffer.resize(self.size, 0);
        let read = read_full(&mut self.reader, &mut self.buffer[had..]);
        self.buffer.truncate(had + read.map_err(|error| self.reader.error(error))?);
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let at_end = self.buffer.len() < self.size;
        let end = match self.text {
            true => self.text_end(at_end)?,
            false => self.buffer.len(),
        };
        let rest = self.buffer.split_off(end);
        self.start += end as u64;
        Ok(Some(std::mem::replace(&mut self.buffer, rest)))
    }

    /// Where a piece of text can end.
    fn text_end(&self, at_end: bool) -> Result<usize> {
        let text = match std::str::from_utf8(&self.buffer) {
            Ok(text) => text,
            // The last character is not all there yet.
            Err(error) if error.error_len().is_none() && !at_end => {
                std::str::from_utf8(&self.buffer[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(error) => {
                let at = error.valid_up_to();
                let place = self.source.place(self.start + at as u64);
                let found = format_args!("{:#04x}, which is not UTF-8", self.buffer[at]);
                return Err(Error::data(place, found, "UTF-8; the tokenizer `bytes` takes any bytes"));
            }
        };
        Ok(match at_end {
            true => text.len(),
            false if self.words => cut_between_words(text).unwrap_or_else(|| cut(text)),
            false => cut(text),
        })
    }
}

impl Iterator for Chunks<'_> {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// Where to end a piece: as late as can be, but rather in the later half after a line than later within one.
pub(crate) fn cut(text: &str) -> usize {
    let mut between_words = None;
    // Backwards: the character after the place, the one before it, and the one before that.
    let mut after: Option<char> = None;
    let mut before = text.char_indices().rev().peekable();
    while let Some((i, c)) = before.next() {
        let end = i + c.len_utf8();
        if let Some(next) = after {
            let word = |c: char| !c.is_whitespace();
            if c == '\n' && word(next) && before.peek().is_some_and(|&(_, c)| word(c)) {
                return end;
            }
            if word(c) && !word(next) && between_words.is_none() {
                between_words = Some(end);
            }
        }
        after = Some(c);
        if let Some(end) = between_words
            && i < text.len() / 2
        {
            return end;
        }
    }
    between_words.unwrap_or(text.len())
}

/// The last single space between two letters or digits, in the later half of a text.
fn cut_between_words(text: &str) -> Option<usize> {
    let mut after = [None, None]; // the two characters after the place
    for (i, c) in text.char_indices().rev().take_while(|&(i, _)| i >= text.len() / 2) {
        if c.is_alphanumeric() && after[0] == Some(' ') && after[1].is_some_and(char::is_alphanumeric) {
            return Some(i + c.len_utf8());
        }
        after = [Some(c), after[0]];
    }
    None
}

impl Tokenizer {
    /// Whether words have other tokens where a text begins with them than inside of one.
    pub(super) fn marks_beginnings(&self) -> bool {
        let apart = |a: &str, b: &str| Some([self.encode(a).ok()?, self.encode(b).ok()?].concat());
        let joined = |a: &str, b: &str| self.encode([a, b].concat()).ok();
        self.needs_text() && [("a", " b"), ("a\n", "b")].into_iter().any(|(a, b)| apart(a, b) != joined(a, b))
    }

    /// The tokens of a piece after the one before it, if there is one; both of [`Chunks::for_tokenizer`].
    pub fn encode_piece(&self, before: Option<&[u8]>, piece: &[u8]) -> Result<Vec<u32>> {
        let Some(before) = before.filter(|_| self.marks_beginnings()) else { return self.encode(piece) };
        let last = &before[before.iter().rposition(|&byte| is_start(byte)).unwrap_or(0)..];
        let (head, both) = (self.encode(last)?, self.encode([last, piece].concat())?);
        match both.strip_prefix(head.as_slice()) {
            Some(ids) => Ok(ids.to_vec()),
            None => self.encode(piece), // no place to cut at, and no better way
        }
    }
}
