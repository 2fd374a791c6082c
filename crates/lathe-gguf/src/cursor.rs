//! The header of a file, read from its beginning: nothing is allocated for more than there is.

use crate::{Error, Result};
use std::fmt::Display;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The longest header; vocabularies take a few megabytes.
const MAX_HEADER: u64 = 100_000_000;

/// The unread rest of a header.
pub(crate) struct Cursor {
    path: PathBuf,
    input: BufReader<File>,
    /// Bytes of the file, or the longest header.
    end: u64,
    at: u64,
}

impl Cursor {
    pub fn new(path: &Path, file: File, len: u64) -> Self {
        Self { path: path.into(), input: BufReader::with_capacity(1 << 16, file), end: len.min(MAX_HEADER), at: 0 }
    }

    /// Bytes that were read.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The file, to read elsewhere.
    pub fn into_file(self) -> File {
        self.input.into_inner()
    }

    /// An error about a place.
    pub fn wrong(&self, place: &dyn Display, found: impl Display, expected: impl Display) -> Error {
        let (found, expected) = (found.to_string(), expected.to_string());
        Error::Malformed { file: self.path.clone(), place: place.to_string(), found, expected }
    }

    /// A count of things that take at least `least` bytes each.
    pub fn count(&mut self, place: &dyn Display, what: &str, least: u64) -> Result<usize> {
        let count = u64::from_le_bytes(self.take(place)?);
        let room = (self.end - self.at) / least;
        match usize::try_from(count) {
            Ok(count) if count as u64 <= room => Ok(count),
            _ => {
                let expected = format!("at most {room}, for which there is room; the file may be damaged or cut off");
                Err(self.wrong(place, format_args!("{count} {what}"), expected))
            }
        }
    }

    /// The next bytes.
    pub fn bytes(&mut self, place: &dyn Display, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.room(place, len)?];
        self.fill(place, &mut bytes)?;
        Ok(bytes)
    }

    /// The next few bytes.
    pub fn take<const N: usize>(&mut self, place: &dyn Display) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.room(place, N)?;
        self.fill(place, &mut bytes)?;
        Ok(bytes)
    }

    /// A string: its length and its bytes.
    pub fn text(&mut self, place: &dyn Display) -> Result<String> {
        let len = self.count(place, "bytes of a string", 1)?;
        let bytes = self.bytes(place, len)?;
        String::from_utf8(bytes).map_err(|_| self.wrong(place, "bytes that are not UTF-8", "a string"))
    }

    /// `len`, if so many bytes are left.
    fn room(&self, place: &dyn Display, len: usize) -> Result<usize> {
        if len as u64 <= self.end - self.at {
            return Ok(len);
        }
        let found = format!("the end after {} bytes", self.end);
        let expected = match self.end == MAX_HEADER {
            true => "a shorter header".into(),
            false => format!("{len} more; the file may be cut off"),
        };
        Err(self.wrong(place, found, expected))
    }

    fn fill(&mut self, place: &dyn Display, bytes: &mut [u8]) -> Result<()> {
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => self.wrong(place, "the end of the file", "more of it"),
            _ => Error::Io { file: self.path.clone(), error },
        })?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}
