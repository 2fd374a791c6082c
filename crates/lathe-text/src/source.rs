//! Where text comes from: a file, a folder of files in sorted order, either of them gzipped, or the built-in language.
//!
//! A [`Source`] is one long text, its parts joined with nothing between, that is read in ranges and never held whole.

use crate::language::{Documents, Language};
use crate::{Error, Result};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

/// What every gzipped file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// MB of the built-in language, where no size is given.
pub const BUILTIN_MB: u64 = 4;
/// The largest size that can be asked for, 1 TB: more is a slip of the hand.
const MAX_BUILTIN_MB: u64 = 1 << 20;

/// A text, in parts.
#[derive(Debug, Clone)]
pub struct Source {
    /// As it was given.
    pub name: String,
    /// The parts in order, with the number of bytes of text in each.
    parts: Vec<(Part, u64)>,
}

#[derive(Debug, Clone)]
enum Part {
    File { path: PathBuf, gzip: bool },
    Builtin { seed: u64 },
}

impl Source {
    /// Finds out what a name means and how much text there is: gzipped files are read once for that.
    pub fn open(name: &str) -> Result<Self> {
        if let Some((bytes, seed)) = builtin(name)? {
            return Ok(Self { name: name.into(), parts: vec![(Part::Builtin { seed }, bytes)] });
        }
        let mut paths = Vec::new();
        let path = Path::new(name);
        find(path, &mut paths, true)?;
        if paths.is_empty() {
            return Err(Error::data(path.display(), "an empty folder", "a folder with text files"));
        }
        let parts = paths.into_iter().map(part).collect::<Result<_>>()?;
        Ok(Self { name: name.into(), parts })
    }

    /// Bytes of the whole text.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Name and bytes of each file; the built-in language counts as one.
    pub fn files(&self) -> impl ExactSizeIterator<Item = (String, u64)> + '_ {
        self.parts.iter().map(|(part, bytes)| (self.name_of(part), *bytes))
    }

    fn name_of(&self, part: &Part) -> String {
        match part {
            Part::File { path, .. } => path.display().to_string(),
            Part::Builtin { .. } => self.name.clone(),
        }
    }

    /// A range of the text, to be read from its beginning.
    pub fn read(&self, range: Range<u64>) -> Reader<'_> {
        Reader { source: self, next: 0, start: 0, range, open: Box::new(io::empty()) }
    }

    /// The file that a byte of the text is in, and where in it.
    pub fn place(&self, byte: u64) -> String {
        let mut start = 0;
        for (part, bytes) in &self.parts {
            if byte < start + bytes {
                return format!("{}, byte {}", self.name_of(part), byte - start);
            }
            start += bytes;
        }
        format!("{}, byte {byte}", self.name)
    }

    /// Where 90 % of the bytes end, moved to the next character start.
    pub fn split(&self) -> Result<u64> {
        self.next_character((u128::from(self.bytes()) * 9 / 10) as u64)
    }

    /// A place in the text, moved to the next character start.
    pub fn next_character(&self, at: u64) -> Result<u64> {
        let total = self.bytes();
        let at = at.min(total);
        // A character has at most three bytes after its first; text that is no UTF-8 may have more of that kind.
        let mut next = [0; 3];
        let mut reader = self.read(at..(at + 3).min(total));
        let found = read_full(&mut reader, &mut next).map_err(|error| reader.error(error))?;
        let inside = next[..found].iter().take_while(|&&byte| !is_start(byte)).count();
        Ok(at + inside as u64)
    }

    /// The first characters of the text, in at most so many bytes.
    pub fn beginning(&self, bytes: usize) -> Result<String> {
        let mut text = vec![0; bytes];
        let mut reader = self.read(0..self.bytes().min(bytes as u64));
        let read = read_full(&mut reader, &mut text).map_err(|error| reader.error(error))?;
        text.truncate(read);
        if let Err(error) = std::str::from_utf8(&text)
            && error.error_len().is_none()
        {
            text.truncate(error.valid_up_to());
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// What tells this text from another without reading it: names, sizes and times of the last change.
    pub fn fingerprint(&self) -> Result<String> {
        let mut out = String::new();
        for (part, bytes) in &self.parts {
            match part {
                Part::File { path, .. } => out += &fingerprint(path)?,
                Part::Builtin { seed } => out += &format!("builtin {bytes} {seed} {}\n", env!("CARGO_PKG_VERSION")),
            }
        }
        Ok(out)
    }
}

/// Path, size and time of the last change of a file.
pub fn fingerprint(path: &Path) -> Result<String> {
    let path = path.canonicalize().map_err(Error::io(path))?;
    let found = path.metadata().map_err(Error::io(&path))?;
    let changed = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(format!("{} {} {}\n", path.display(), found.len(), changed.map_or(0, |time| time.as_nanos())))
}

/// Whether a byte begins a character of UTF-8.
pub(crate) fn is_start(byte: u8) -> bool {
    byte & 0b1100_0000 != 0b1000_0000
}

/// Bytes and seed of `builtin`, `builtin:MB` and `builtin:MB:SEED`.
fn builtin(name: &str) -> Result<Option<(u64, u64)>> {
    let Some(rest) = name.strip_prefix("builtin") else { return Ok(None) };
    if rest.is_empty() {
        return Ok(Some((BUILTIN_MB << 20, 0)));
    }
    let Some(rest) = rest.strip_prefix(':') else { return Ok(None) };
    let (size, seed) = rest.split_once(':').unwrap_or((rest, "0"));
    let size: Option<f64> = size.parse().ok().filter(|size| (0.001..=MAX_BUILTIN_MB as f64).contains(size));
    match (size, seed.parse()) {
        (Some(size), Ok(seed)) => Ok(Some(((size * f64::from(1 << 20)) as u64, seed))),
        _ => Err(Error::setting(
            "data",
            format_args!("`{name}`"),
            "builtin, builtin:MEGABYTES or builtin:MEGABYTES:SEED, as builtin:16:1; a file of that name is ./builtin...",
        )),
    }
}

/// Every regular file, in sorted order, but hidden ones only if they were asked for by name.
fn find(path: &Path, paths: &mut Vec<PathBuf>, named: bool) -> Result<()> {
    let found = path.metadata().map_err(Error::io(path))?;
    if found.is_dir() {
        let entries = path.read_dir().map_err(Error::io(path))?;
        let mut entries: Vec<_> = entries.collect::<io::Result<_>>().map_err(Error::io(path))?;
        entries.sort_by_key(|entry| entry.file_name());
        entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
        for entry in entries {
            // A link to a folder could lead back here.
            let is_link = entry.file_type().map_err(Error::io(&entry.path()))?.is_symlink();
            if !(is_link && entry.path().is_dir()) {
                find(&entry.path(), paths, false)?;
            }
        }
    } else if found.is_file() {
        paths.push(path.to_path_buf());
    } else if named {
        return Err(Error::data(path.display(), "a pipe or a device", "a file, a folder or builtin"));
    }
    Ok(())
}

/// A file, and how much text is in it.
fn part(path: PathBuf) -> Result<(Part, u64)> {
    let mut file = File::open(&path).map_err(Error::io(&path))?;
    let mut magic = [0; 2];
    let found = read_full(&mut file, &mut magic).map_err(Error::io(&path))?;
    let gzip = found == 2 && magic == GZIP;
    let bytes = if gzip {
        file.rewind().map_err(Error::io(&path))?;
        io::copy(&mut MultiGzDecoder::new(io::BufReader::new(file)), &mut io::sink()).map_err(Error::io(&path))?
    } else {
        file.metadata().map_err(Error::io(&path))?.len()
    };
    Ok((Part::File { path, gzip }, bytes))
}

/// Fills a buffer as far as there is something to fill it with.
pub(crate) fn read_full(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads a range of a source, part by part.
pub struct Reader<'a> {
    source: &'a Source,
    /// The part to open next, and where in the text it begins.
    next: usize,
    start: u64,
    /// What is still to be read.
    range: Range<u64>,
    open: Box<dyn Read + Send>,
}

impl Reader<'_> {
    /// An error of the system, at the file that was being read.
    pub fn error(&self, source: io::Error) -> Error {
        let part = self.source.parts.get(self.next.saturating_sub(1));
        let name = part.map_or_else(|| self.source.name.clone(), |(part, _)| self.source.name_of(part));
        Error::Io { path: name.into(), error: source }
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.range.end.saturating_sub(self.range.start);
            let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = self.open.read(&mut buffer[..want])?;
            self.range.start += read as u64;
            if read > 0 || want == 0 {
                return Ok(read);
            }
            let Some((part, bytes)) = self.source.parts.get(self.next) else {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the text became shorter while it was read"));
            };
            let start = self.start;
            self.next += 1;
            self.start += bytes;
            if self.start > self.range.start {
                self.open = part.read(self.range.start - start..*bytes)?;
            }
        }
    }
}

impl Part {
    fn read(&self, range: Range<u64>) -> io::Result<Box<dyn Read + Send>> {
        let bytes = range.end - range.start;
        let mut reader: Box<dyn Read + Send> = match self {
            Part::File { path, gzip: false } => {
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(range.start))?;
                return Ok(Box::new(file.take(bytes)));
            }
            Part::File { path, gzip: true } => Box::new(MultiGzDecoder::new(io::BufReader::new(File::open(path)?))),
            Part::Builtin { seed } => builtin_text(*seed),
        };
        io::copy(&mut (&mut reader).take(range.start), &mut io::sink())?;
        Ok(Box::new(reader.take(bytes)))
    }
}

/// The built-in language, document by document without end.
struct Stories {
    documents: Documents<'static>,
    /// The document at hand, and how much of it was read.
    document: Vec<u8>,
    read: usize,
}

fn builtin_text(seed: u64) -> Box<dyn Read + Send> {
    static LANGUAGE: LazyLock<Language> = LazyLock::new(Language::default);
    Box::new(Stories { documents: LANGUAGE.documents(seed), document: Vec::new(), read: 0 })
}

impl Read for Stories {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read == self.document.len() {
            self.document.clear();
            self.documents.write(&mut self.document);
            self.read = 0;
        }
        let read = (&self.document[self.read..]).read(buffer)?;
        self.read += read;
        Ok(read)
    }
}
