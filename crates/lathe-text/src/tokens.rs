//! Token files: the numbers of a text's tokens, encoded once and read in places.
//!
//! A file is a header of 1024 bytes, a line of JSON padded with spaces, and then every token in 1, 2 or 4 bytes, little
//! end first, as few as the vocabulary allows; where the text was read document by document, behind them the places of their
//! first tokens, in 8 bytes each. It is read at positions, not mapped into memory: the pages that a
//! mapping touched would count as the process's own, while a read leaves them to the system.

use crate::TextProgress;
use crate::chunks::{CHUNK, Chunks};
use crate::documents::{Document, Documents};
use crate::source::{Source, is_start};
use crate::tokenizer::Tokenizer;
use crate::{Error, Result};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufWriter, Read, Seek, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const HEADER: usize = 1024;
const FORMAT: &str = "lathe tokens 1";
/// Bytes of the place of a document.
const PLACE: u64 = 8;
/// Pieces that are encoded at the same time.
const GROUP: usize = 32;

/// What a token file says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    format: String,
    /// Tokens in the file.
    pub tokens: u64,
    /// Bytes of the text.
    pub bytes: u64,
    /// Characters of the text.
    pub characters: u64,
    /// Tokens that stand for what the vocabulary does not have.
    pub unknown: u64,
    /// V; every token is below it.
    pub vocab: u32,
    /// Bytes of each token.
    width: u32,
    /// Documents whose beginnings are known; 0 where nobody looked for them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub documents: u64,
    /// What the file was made from.
    pub key: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(x: &u64) -> bool {
    *x == 0
}

/// A token file, open for reading. Clones share it.
#[derive(Debug, Clone)]
pub struct Tokens(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: File,
    header: Header,
}

impl Tokens {
    /// Opens a file and checks that it is whole.
    pub fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).map_err(Error::io(path))?;
        let size = file.metadata().map_err(Error::io(path))?.len();
        let wrong = |found: &dyn std::fmt::Display| Error::data(path.display(), found, "a token file that lathe wrote");
        let mut header = Vec::new();
        (&mut file).take(HEADER as u64).read_to_end(&mut header).map_err(Error::io(path))?;
        let header: Header = serde_json::from_slice(&header).map_err(|error| wrong(&error))?;
        if header.format != FORMAT || header.width != width(header.vocab) {
            return Err(wrong(&format_args!("the format `{}`, {} bytes a token", header.format, header.width)));
        }
        let tokens = header.tokens.checked_mul(header.width.into());
        let documents = header.documents.checked_mul(PLACE);
        let all = tokens.zip(documents).and_then(|(tokens, documents)| tokens.checked_add(documents));
        let expected = all.and_then(|all| all.checked_add(HEADER as u64));
        if expected != Some(size) {
            let found = format!("{size} bytes");
            let expected = match header.documents {
                0 => format!("{} tokens", header.tokens),
                documents => format!("{} tokens and the places of {documents} documents", header.tokens),
            };
            return Err(Error::data(path.display(), found, expected));
        }
        Ok(Self(Arc::new(Inner { path: path.into(), file, header })))
    }

    /// Number of tokens.
    #[allow(clippy::len_without_is_empty)] // `len` is what matters; a file of no tokens is rare
    pub fn len(&self) -> u64 {
        self.0.header.tokens
    }

    /// V: every token is below it.
    pub fn vocab(&self) -> u32 {
        self.0.header.vocab
    }

    /// Bytes of the text.
    pub fn bytes(&self) -> u64 {
        self.0.header.bytes
    }

    /// All that the file says of itself.
    pub fn header(&self) -> &Header {
        &self.0.header
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The places of the documents' first tokens, where the text was read document by document.
    pub fn documents(&self) -> Result<Vec<u64>> {
        let Inner { path, file, header } = &*self.0;
        let mut bytes = vec![0; (header.documents * PLACE) as usize];
        let start = HEADER as u64 + header.tokens * u64::from(header.width);
        read_at(file, start, &mut bytes).map_err(Error::io(path))?;
        let place = |bytes: &[u8]| bytes.iter().rev().fold(0, |place, &byte| place << 8 | u64::from(byte));
        let places: Vec<u64> = bytes.chunks_exact(PLACE as usize).map(place).collect();
        let wrong = places.iter().zip(places.iter().skip(1).chain([&header.tokens])).find(|(here, next)| here > next);
        match wrong {
            None => Ok(places),
            Some((here, next)) => {
                let expected = format_args!("a place up to {next}, where the next one begins");
                Err(Error::data(path.display(), format_args!("a document at token {here}"), expected))
            }
        }
    }

    /// Reads tokens from a place on.
    pub fn read(&self, start: u64, out: &mut [u32]) -> Result<()> {
        let Inner { path, file, header } = &*self.0;
        if start.checked_add(out.len() as u64).is_none_or(|end| end > header.tokens) {
            let found = format_args!("{} tokens from {start} on", out.len());
            return Err(Error::data(path.display(), found, format_args!("a range within {}", header.tokens)));
        }
        let width = header.width as usize;
        let mut bytes = vec![0; out.len() * width];
        read_at(file, HEADER as u64 + start * width as u64, &mut bytes).map_err(Error::io(path))?;
        for (id, bytes) in out.iter_mut().zip(bytes.chunks_exact(width)) {
            *id = bytes.iter().rev().fold(0, |id, &byte| id << 8 | u32::from(byte));
        }
        match out.iter().position(|&id| id >= header.vocab) {
            None => Ok(()),
            Some(i) => {
                let place = format_args!("{}, token {}", path.display(), start + i as u64).to_string();
                Err(Error::data(place, out[i], format_args!("a token below {}", header.vocab)))
            }
        }
    }
}

/// Bytes of a token.
fn width(vocab: u32) -> u32 {
    match vocab {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

#[cfg(unix)]
fn read_at(file: &File, start: u64, out: &mut [u8]) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, start)
}

#[cfg(windows)]
fn read_at(file: &File, mut start: u64, mut out: &mut [u8]) -> std::io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !out.is_empty() {
        match file.seek_read(out, start)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => (start, out) = (start + read as u64, &mut out[read..]),
        }
    }
    Ok(())
}

/// What to encode, and what for.
pub(crate) struct EncodeJob<'a> {
    pub source: &'a Source,
    pub range: Range<u64>,
    pub tokenizer: &'a Tokenizer,
    /// What the file is made from, so that it can be found again.
    pub key: String,
}

/// Encodes a text piece by piece into a file, which is there when it is whole.
pub(crate) fn encode(job: EncodeJob<'_>, path: &Path, progress: &TextProgress<'_>) -> Result<Tokens> {
    let bytes = job.range.end - job.range.start;
    let mut writer = Writer::new(path, job.tokenizer, bytes, job.key)?;
    let mut chunks = Chunks::for_tokenizer(job.source, job.range, job.tokenizer, CHUNK);
    let mut last: Option<Vec<u8>> = None; // the piece before
    let mut done = 0;
    loop {
        progress("encoding", done, bytes);
        let group = chunks.group(GROUP)?;
        if group.is_empty() {
            break;
        }
        let encoded: Vec<Vec<u32>> = (0..group.len())
            .into_par_iter()
            .map(|i| {
                let before = if i == 0 { last.as_ref() } else { group.get(i - 1) };
                job.tokenizer.encode_piece(before.map(Vec::as_slice), &group[i])
            })
            .collect::<Result<_>>()?;
        writer.push(&encoded)?;
        for chunk in &group {
            done += chunk.len() as u64;
            writer.count_characters(chunk);
        }
        last = group.into_iter().next_back();
    }
    writer.finish()
}

/// Encodes the documents of a text one after the other, each after BOS where the tokenizer has one, into a file, which is
/// there when it is whole and knows where they begin. What stands between documents is no part of it.
pub(crate) fn encode_documents(job: EncodeJob<'_>, path: &Path, progress: &TextProgress<'_>) -> Result<Tokens> {
    let bytes = job.range.end - job.range.start;
    let mut writer = Writer::new(path, job.tokenizer, bytes, job.key)?;
    let mut documents = Documents::within(job.source, job.range)?;
    let mut done = 0;
    loop {
        progress("encoding", done, bytes);
        let group = documents.by_ref().take(GROUP).collect::<Result<Vec<Document>>>()?;
        if group.is_empty() {
            break;
        }
        let encoded: Vec<Vec<u32>> = group
            .par_iter()
            .map(|document| Ok(job.tokenizer.document(&document.text, usize::MAX)?.ids))
            .collect::<Result<_>>()?;
        writer.begin(&encoded);
        writer.push(&encoded)?;
        for document in &group {
            done += document.text.len() as u64;
            writer.count_characters(&document.text);
        }
    }
    writer.finish()
}

/// Writes a token file aside, which is there when it is whole.
struct Writer<'a> {
    path: &'a Path,
    aside: PathBuf,
    file: BufWriter<File>,
    header: Header,
    /// The token that stands for what the vocabulary does not have.
    unknown: Option<u32>,
    /// Where documents begin.
    documents: Vec<u64>,
}

impl<'a> Writer<'a> {
    fn new(path: &'a Path, tokenizer: &Tokenizer, bytes: u64, key: String) -> Result<Self> {
        let vocab = tokenizer.vocab();
        let (format, width) = (FORMAT.into(), width(vocab));
        let header = Header { format, tokens: 0, bytes, characters: 0, unknown: 0, vocab, width, documents: 0, key };
        let aside = path.with_extension("tokens.part");
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&aside).map_err(Error::io(&aside))?);
        file.write_all(&[b' '; HEADER]).map_err(Error::io(&aside))?;
        Ok(Self { path, aside, file, header, unknown: tokenizer.unknown(), documents: Vec::new() })
    }

    /// Remembers where documents begin, which are about to be pushed.
    fn begin(&mut self, documents: &[Vec<u32>]) {
        let mut at = self.header.tokens;
        for ids in documents {
            self.documents.push(at);
            at += ids.len() as u64;
        }
    }

    fn push(&mut self, pieces: &[Vec<u32>]) -> Result<()> {
        for ids in pieces {
            self.header.tokens += ids.len() as u64;
            self.header.unknown += ids.iter().filter(|&&id| Some(id) == self.unknown).count() as u64;
            let bytes: Vec<u8> = match self.header.width {
                1 => ids.iter().map(|&id| id as u8).collect(),
                2 => ids.iter().flat_map(|&id| (id as u16).to_le_bytes()).collect(),
                _ => ids.iter().flat_map(|&id| id.to_le_bytes()).collect(),
            };
            self.file.write_all(&bytes).map_err(Error::io(&self.aside))?;
        }
        Ok(())
    }

    fn count_characters(&mut self, text: &[u8]) {
        self.header.characters += text.iter().filter(|&&byte| is_start(byte)).count() as u64;
    }

    fn finish(mut self) -> Result<Tokens> {
        self.header.documents = self.documents.len() as u64;
        let places: Vec<u8> = self.documents.iter().flat_map(|place| place.to_le_bytes()).collect();
        self.file.write_all(&places).map_err(Error::io(&self.aside))?;
        let io = |error| Error::io(&self.aside)(error);
        let mut file = self.file.into_inner().map_err(|error| io(error.into_error()))?;
        let mut line = serde_json::to_vec(&self.header).map_err(|error| io(error.into()))?;
        line.resize(HEADER - 1, b' ');
        line.push(b'\n');
        file.rewind().and_then(|()| file.write_all(&line)).and_then(|()| file.sync_all()).map_err(io)?;
        std::fs::rename(&self.aside, self.path).map_err(Error::io(self.path))?;
        Tokens::open(self.path)
    }
}
