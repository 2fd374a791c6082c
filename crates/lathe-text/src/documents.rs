//! A text as documents, each with tokens of its own.
//!
//! A line `<|endoftext|>` ends a document; in a text without such a line, a blank line does. White space around a
//! document is no part of it, and what is nothing else is no document.
//!
//! A document's tokens are BOS, where the tokenizer has one, and the tokens of its text, at most `max_len` together.
//! Every token but the first is a target: after BOS the whole text is scored, without BOS all but its first token.

use crate::chunks::cut;
use crate::source::{Reader, Source};
use crate::tokenizer::Tokenizer;
use crate::{Error, Result};
use std::io::{BufRead, BufReader};
use std::ops::Range;

/// The line that ends a document.
const SEPARATOR: &[u8] = b"<|endoftext|>";
/// Bytes of a long document that are encoded for each token that is wanted, to begin with.
const BYTES_A_TOKEN: usize = 64;
/// A document that is not longer is always encoded whole.
const WHOLE: usize = 1 << 16;
/// Bytes in which the first token is looked for.
const NEAR: usize = 256;

/// A document of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Without white space around it; never empty.
    pub text: Vec<u8>,
    /// Where in the whole text it begins.
    pub start: u64,
}

/// The documents of a text, one after the other; one is held at a time.
pub struct Documents<'a> {
    source: &'a Source,
    reader: BufReader<Reader<'a>>,
    /// Whether lines separate them; else blank lines do.
    lines: bool,
    /// Where the next line begins.
    at: u64,
    failed: bool,
}

impl<'a> Documents<'a> {
    /// Finds out what separates the documents: the text is read up to the first separating line, or to its end.
    pub fn new(source: &'a Source) -> Result<Self> {
        Self::within(source, 0..source.bytes())
    }

    /// The documents of a range of the text; those at its ends may be cut.
    pub fn within(source: &'a Source, range: Range<u64>) -> Result<Self> {
        let mut documents = Self::start(source, range.clone());
        let mut line = Vec::new();
        while documents.line(&mut line)? > 0 {
            if line.trim_ascii() == SEPARATOR {
                return Ok(Self { lines: true, ..Self::start(source, range) });
            }
            line.clear();
        }
        Ok(Self::start(source, range))
    }

    /// Whether lines that say so separate them; else blank lines do.
    pub fn are_marked(&self) -> bool {
        self.lines
    }

    /// Where the first document begins whose mark stands at a place or after it; the end of the text where there is none.
    pub fn next_marked(source: &'a Source, at: u64) -> Result<u64> {
        let mut documents = Self::start(source, at..source.bytes());
        let mut line = Vec::new();
        while documents.line(&mut line)? > 0 {
            if line.trim_ascii() == SEPARATOR {
                return Ok(documents.at);
            }
            line.clear();
        }
        Ok(documents.at)
    }

    fn start(source: &'a Source, range: Range<u64>) -> Self {
        let at = range.start;
        let reader = BufReader::with_capacity(1 << 16, source.read(range));
        Self { source, reader, lines: false, at, failed: false }
    }

    /// The documents as tokens, each at most `max_len` with BOS.
    pub fn tokens(self, tokenizer: &'a Tokenizer, max_len: usize) -> Result<DocumentTokens<'a>> {
        if max_len < 2 {
            return Err(Error::setting("max_len", max_len, "at least 2, a token and its target"));
        }
        Ok(DocumentTokens { documents: self, tokenizer, max_len })
    }

    /// Reads a line to the end of what is there.
    fn line(&mut self, line: &mut Vec<u8>) -> Result<usize> {
        let read = self.reader.read_until(b'\n', line);
        let read = read.map_err(|error| self.reader.get_ref().error(error))?;
        self.at += read as u64;
        Ok(read)
    }

    fn read(&mut self) -> Result<Option<Document>> {
        let mut text = Vec::new();
        let mut start = self.at;
        loop {
            let before = text.len();
            let at_end = self.line(&mut text)? == 0;
            let line = text[before..].trim_ascii();
            let ends = at_end || if self.lines { line == SEPARATOR } else { trim(line).is_empty() };
            if !ends {
                continue;
            }
            text.truncate(before);
            let inside = trim(&text);
            if !inside.is_empty() {
                let start = start + inside.start as u64;
                text.truncate(inside.end);
                text.drain(..inside.start);
                return Ok(Some(Document { text, start }));
            }
            if at_end {
                return Ok(None);
            }
            text.clear();
            start = self.at;
        }
    }
}

impl Iterator for Documents<'_> {
    type Item = Result<Document>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let document = self.read();
        self.failed = document.is_err();
        document.transpose()
    }
}

/// What is left without white space around it; of bytes that are no text, ASCII's.
fn trim(bytes: &[u8]) -> Range<usize> {
    let (start, len) = match std::str::from_utf8(bytes) {
        Ok(text) => (text.trim_start().len(), text.trim().len()),
        Err(_) => (bytes.trim_ascii_start().len(), bytes.trim_ascii().len()),
    };
    let start = bytes.len() - start;
    start..start + len
}

/// The tokens of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// BOS, where there is one, and the tokens of the text; all but the first are targets.
    pub ids: Vec<u32>,
    /// Bytes of the document that the tokens stand for: all of it, unless it was truncated.
    pub bytes: u64,
    /// Bytes that the targets stand for: without BOS, the first token's are not among them.
    pub target_bytes: u64,
    /// Whether the document had more tokens than fit.
    pub truncated: bool,
}

impl Sequence {
    /// How many tokens are predicted: all but the first.
    pub fn targets(&self) -> usize {
        self.ids.len().saturating_sub(1)
    }
}

/// The documents of a text as tokens.
pub struct DocumentTokens<'a> {
    documents: Documents<'a>,
    tokenizer: &'a Tokenizer,
    max_len: usize,
}

impl Iterator for DocumentTokens<'_> {
    type Item = Result<Sequence>;

    fn next(&mut self) -> Option<Self::Item> {
        let document = match self.documents.next()? {
            Ok(document) => document,
            Err(error) => return Some(Err(error)),
        };
        let place = |byte: usize| self.documents.source.place(document.start + byte as u64);
        let text = &document.text;
        if let Err(error) = std::str::from_utf8(text)
            && self.tokenizer.needs_text()
        {
            let at = error.valid_up_to();
            let found = format_args!("{:#04x}, which is not UTF-8", text[at]);
            return Some(Err(Error::data(place(at), found, "UTF-8; the tokenizer `bytes` takes any bytes")));
        }
        Some(self.tokenizer.document(text, self.max_len).map_err(|error| match error {
            Error::Data { found, expected, .. } => Error::data(place(0), found, expected),
            error => error,
        }))
    }
}

impl Tokenizer {
    /// A document's tokens after BOS, at most `max_len` in all. No other special token is added.
    pub fn document(&self, text: &[u8], max_len: usize) -> Result<Sequence> {
        let bos = self.specials().bos;
        let room = max_len.saturating_sub(usize::from(bos.is_some()));
        // Of a long text, no more is encoded than it takes.
        let mut size = room.saturating_mul(BYTES_A_TOKEN).max(WHOLE);
        let (part, mut ids) = loop {
            let part = beginning(text, size);
            let ids = self.encode(part)?;
            if ids.len() > room || part.len() == text.len() {
                break (part, ids);
            }
            size = size.saturating_mul(2);
        };
        let truncated = ids.len() > room;
        ids.truncate(room);
        let bytes = match ids.len() {
            len if truncated => self.tokens_with_ends(part, len)?.last().map_or(0, |&(_, end)| end),
            _ => text.len(),
        };
        let unscored = match (bos, ids.first()) {
            (None, Some(&first)) => self.first_end(part, first)?.min(bytes),
            _ => 0,
        };
        ids.splice(0..0, bos);
        Ok(Sequence { ids, bytes: bytes as u64, target_bytes: (bytes - unscored) as u64, truncated })
    }

    /// Where the first token of a text ends; what follows at a distance does not change it.
    fn first_end(&self, text: &[u8], first: u32) -> Result<usize> {
        let near = self.tokens_with_ends(beginning(text, NEAR), 1)?;
        match near.first() {
            Some(&(id, end)) if id == first => Ok(end),
            _ => Ok(self.tokens_with_ends(text, 1)?.first().map_or(0, |&(_, end)| end)),
        }
    }
}

/// The beginning of a text, up to a place between words.
fn beginning(text: &[u8], size: usize) -> &[u8] {
    if text.len() <= size {
        return text;
    }
    let part = &text[..size];
    let whole = match std::str::from_utf8(part) {
        Ok(text) => text,
        // A character that is cut through.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&part[..error.valid_up_to()]).unwrap_or_default()
        }
        // No text, but bytes.
        Err(_) => return part,
    };
    &text[..cut(whole)]
}
