//! An open GGUF file, whose header fits its length.

use crate::cursor::Cursor;
use crate::types::{self, TensorType};
use crate::{Error, Result, Value, readable};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
/// The version that is written; the one before differs in nothing that matters here.
pub(crate) const VERSION: u32 = 3;
/// Where tensors begin, unless a key says otherwise.
pub(crate) const ALIGNMENT: u64 = 32;
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
const MAX_ALIGNMENT: u64 = 1 << 20;
/// The most dimensions that a tensor has.
const MAX_DIMS: u32 = 4;

/// Whether a path is a GGUF file, by its name or by its first bytes.
pub fn is_gguf(path: &Path) -> bool {
    if path.is_dir() {
        return false;
    }
    let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let begins = || {
        let mut magic = [0; 4];
        // Reading from anything but a file, such as a pipe, would take from whoever reads it next.
        path.is_file() && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == MAGIC
    };
    named || begins()
}

/// What a file says of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    /// Its shape, rows before columns as elsewhere here; in the file it is the other way round.
    pub shape: Vec<usize>,
    /// What its values are stored as.
    pub kind: &'static TensorType,
    /// Where its values begin in the file.
    start: u64,
    /// Bytes that they take.
    len: usize,
}

impl TensorInfo {
    /// Type and shape, for errors: `Q8_0 [48, 32]`.
    pub fn describe(&self) -> String {
        format!("{} {:?}", self.kind.name, self.shape)
    }
}

/// An open file, whose header fits its length.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    file: File,
    keys: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl Gguf {
    /// Opens a file and checks its header.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |error| Error::Io { file: path.into(), error };
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        let len = metadata.len();
        let mut cursor = Cursor::new(path, file, len);
        if !metadata.is_file() {
            return Err(cursor.wrong(&"all of it", "something else than a file", "a GGUF file"));
        }
        let place = &"the beginning";
        let magic: [u8; 4] = cursor.take(place)?;
        if magic != MAGIC {
            return Err(cursor.wrong(place, format_args!("\"{}\"", magic.escape_ascii()), "\"GGUF\""));
        }
        let version = u32::from_le_bytes(cursor.take(place)?);
        if ![VERSION - 1, VERSION].contains(&version) {
            let other = if [2, 3].contains(&version.swap_bytes()) { ", in big-endian order" } else { "" };
            let found = format!("version {version}{other}");
            return Err(cursor.wrong(place, found, "version 2 or 3, in little-endian order"));
        }
        let tensors = cursor.count(place, "tensors", 8 + 4 + 4 + 8)?;
        let keys = read_keys(&mut cursor)?;
        let alignment = alignment(&cursor, &keys)?;
        let tensors = read_tensors(&mut cursor, tensors, alignment, len)?;
        Ok(Self { path: path.into(), file: cursor.into_file(), keys, tensors })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.keys.get(key)
    }

    /// All keys with their values, in the order of their names.
    pub fn keys(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.keys.iter().map(|(key, value)| (&**key, value))
    }

    /// What the file says of a tensor.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// All tensors, in the order of their names.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.tensors.iter().map(|(name, info)| (&**name, info))
    }

    /// The bytes of a tensor.
    pub fn bytes(&mut self, name: &str) -> Result<Vec<u8>> {
        let Some(info) = self.tensors.get(name) else {
            return Err(self.wrong(format!("tensor `{}`", readable(name)), "nothing", "a tensor"));
        };
        let mut bytes = vec![0; info.len];
        let read = self.file.seek(SeekFrom::Start(info.start)).and_then(|_| self.file.read_exact(&mut bytes));
        read.map_err(|error| Error::Io { file: self.path.clone(), error })?;
        Ok(bytes)
    }

    /// The values of a tensor.
    pub fn values(&mut self, name: &str) -> Result<Vec<f32>> {
        let bytes = self.bytes(name)?;
        let info = &self.tensors[name];
        let mut values = vec![0.0; info.shape.iter().product()];
        info.kind.decode(&bytes, &mut values);
        Ok(values)
    }

    /// An error about a place of this file.
    pub fn wrong(&self, place: impl ToString, found: impl ToString, expected: impl ToString) -> Error {
        Error::Malformed {
            file: self.path.clone(),
            place: place.to_string(),
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }
}

fn read_keys(cursor: &mut Cursor) -> Result<BTreeMap<String, Value>> {
    let count = cursor.count(&"the beginning", "keys", 8 + 4 + 1)?;
    let mut keys = BTreeMap::new();
    for i in 1..=count {
        let key = cursor.text(&format_args!("key {i} of {count}"))?;
        let name = readable(&key);
        let place = format_args!("key `{name}`");
        let id = u32::from_le_bytes(cursor.take(&place)?);
        let value = Value::read(cursor, &place, id)?;
        if keys.insert(key, value).is_some() {
            return Err(cursor.wrong(&place, "it twice", "every key once"));
        }
    }
    Ok(keys)
}

fn alignment(cursor: &Cursor, keys: &BTreeMap<String, Value>) -> Result<u64> {
    let Some(value) = keys.get(ALIGNMENT_KEY) else { return Ok(ALIGNMENT) };
    let alignment = value.int().and_then(|number| u64::try_from(number).ok());
    match alignment {
        Some(alignment) if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT => Ok(alignment),
        _ => {
            let (found, expected) = (format!("{value:?}"), format!("a power of 2 up to {MAX_ALIGNMENT}"));
            Err(cursor.wrong(&format_args!("key `{ALIGNMENT_KEY}`"), readable(&found), expected))
        }
    }
}

fn read_tensors(cursor: &mut Cursor, count: usize, alignment: u64, len: u64) -> Result<BTreeMap<String, TensorInfo>> {
    let mut tensors = BTreeMap::new();
    for i in 1..=count {
        let name = cursor.text(&format_args!("tensor {i} of {count}"))?;
        let readable = readable(&name);
        let place = format_args!("tensor `{readable}`");
        let info = read_tensor(cursor, &place, alignment)?;
        if tensors.insert(name, info).is_some() {
            return Err(cursor.wrong(&place, "it twice", "every tensor once"));
        }
    }
    // Offsets count from the end of the header.
    let data = cursor.at().next_multiple_of(alignment);
    let mut end = 0;
    let mut in_order: Vec<_> = tensors.iter_mut().collect();
    in_order.sort_by_key(|(_, info)| info.start);
    for (name, info) in in_order {
        let place = format!("tensor `{}`", crate::readable(name));
        let (start, bytes) = (info.start, info.len as u64);
        let inside = start.checked_add(bytes).and_then(|end| end.checked_add(data)).is_some_and(|end| end <= len);
        if !inside {
            let found = format!("{bytes} bytes from byte {start} of the values on");
            let expected =
                format!("no more than {}, all that there are; the file may be cut off", len.saturating_sub(data));
            return Err(cursor.wrong(&place, found, expected));
        }
        if start < end {
            return Err(cursor.wrong(&place, "values that are another tensor's too", "values of its own"));
        }
        (end, info.start) = (start + bytes, data + start);
    }
    Ok(tensors)
}

/// Shape, type and offset of a tensor.
fn read_tensor(cursor: &mut Cursor, place: &std::fmt::Arguments<'_>, alignment: u64) -> Result<TensorInfo> {
    let dims = u32::from_le_bytes(cursor.take(place)?);
    if !(1..=MAX_DIMS).contains(&dims) {
        return Err(cursor.wrong(place, format_args!("{dims} dimensions"), format_args!("1 to {MAX_DIMS}")));
    }
    let mut sizes = Vec::new();
    for _ in 0..dims {
        sizes.push(u64::from_le_bytes(cursor.take(place)?));
    }
    sizes.reverse();
    let id = u32::from_le_bytes(cursor.take(place)?);
    let Some(kind) = types::find(id) else {
        let found = types::foreign(id).map_or_else(|| format!("type {id}"), |name| format!("type {id}, {name}"));
        let known: Vec<_> = types::TYPES.iter().map(|kind| kind.name).collect();
        return Err(cursor.wrong(place, found, known.join(", ")));
    };
    let shape: Option<Vec<usize>> =
        sizes.iter().map(|&size| usize::try_from(size).ok().filter(|&size| size > 0)).collect();
    let values = |shape: &Vec<usize>| shape.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
    let found = |shape: Vec<usize>| Some((values(&shape)?.checked_next_multiple_of(kind.values)?, shape));
    let Some((values, shape)) = shape.and_then(found).filter(|(values, _)| values.checked_mul(kind.bytes).is_some())
    else {
        return Err(cursor.wrong(place, format_args!("the shape {sizes:?}"), "sizes above 0 that a file can hold"));
    };
    let width = shape.last().copied().unwrap_or_default();
    if !width.is_multiple_of(kind.values) {
        let expected = format!("a multiple of {}, the values of a block of {}", kind.values, kind.name);
        return Err(cursor.wrong(place, format_args!("rows of {width}"), expected));
    }
    let start = u64::from_le_bytes(cursor.take(place)?);
    if !start.is_multiple_of(alignment) {
        return Err(cursor.wrong(place, format_args!("the offset {start}"), format_args!("a multiple of {alignment}")));
    }
    Ok(TensorInfo { shape, kind, start, len: values / kind.values * kind.bytes })
}
