//! Files of tensors (safetensors): a length, a header in JSON, and the values.
//!
//! Nothing is read before the header fits the file's length, and then one tensor at a time, so that memory is bounded
//! by what the file really holds. Files are written aside and renamed, so that there is never half of one.

use super::FolderError;
use lathe_ops::storage::{F32, STORAGES, Storage};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// How the names of files begin that are not all there yet.
const ASIDE: &str = ".aside-";
/// Values that are read or written at a time.
const PIECE: usize = 1 << 14;
/// The longest header, which is also the reference implementation's limit.
pub(super) const MAX_HEADER: u64 = 100_000_000;

type Result<T> = std::result::Result<T, FolderError>;

/// An open file of tensors, whose header fits its length.
pub struct TensorFile {
    path: PathBuf,
    file: File,
    /// Where the values begin.
    start: u64,
    header: Metadata,
}

impl TensorFile {
    /// Opens a file and checks its header.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |error| FolderError::Io { file: path.into(), error };
        let malformed = |found: String, expected: String| FolderError::Malformed { file: path.into(), found, expected };
        let mut file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if !metadata.is_file() {
            return Err(malformed("something else than a file".into(), "a safetensors file".into()));
        }
        let len = metadata.len();
        let Some(rest) = len.checked_sub(8) else {
            return Err(malformed(format!("{len} bytes"), "a safetensors file, which has at least 8".into()));
        };
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(io)?;
        let size = u64::from_le_bytes(size);
        if size > rest.min(MAX_HEADER) {
            let expected = format!("at most {}, in a file of {len}", rest.min(MAX_HEADER));
            return Err(malformed(format!("a header of {size} bytes"), expected));
        }
        let mut text = vec![0; size as usize];
        file.read_exact(&mut text).map_err(io)?;
        let header: Metadata = serde_json::from_slice(&text).map_err(|error| {
            let error: String = error.to_string().chars().take(120).flat_map(char::escape_debug).collect();
            malformed(format!("a wrong header ({error})"), "that of a safetensors file".into())
        })?;
        let values = rest - size;
        if header.data_len() as u64 != values {
            return Err(malformed(
                format!("{values} bytes of values"),
                format!("{}, as its header says; the file may be cut off", header.data_len()),
            ));
        }
        Ok(Self { path: path.into(), file, start: 8 + size, header })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// All names, in their order.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.header.offset_keys();
        names.sort();
        names
    }

    /// Type and shape of a tensor, for errors: `F32 [16, 48]`.
    pub(super) fn describe(&self, name: &str) -> String {
        self.header.info(name).map_or_else(|| "nothing".into(), |info| format!("{} {:?}", info.dtype, info.shape))
    }

    /// Whether there is a tensor of that name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.header.info(name).is_some()
    }

    /// What the header says beside the tensors.
    pub(super) fn note(&self, key: &str) -> Option<&str> {
        self.header.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// An error unless there is a tensor of this name, type and shape.
    pub(super) fn expect(&self, name: &str, dtype: Dtype, shape: &[usize]) -> Result<()> {
        let expected = format!("{shape:?}");
        let info = self.info(name, dtype, &expected)?;
        if info.shape != shape {
            let (file, tensor, found) = (self.path.clone(), name.to_string(), format!("{:?}", info.shape));
            return Err(FolderError::Shape { file, tensor, found, expected });
        }
        Ok(())
    }

    /// The storage of a tensor, and its bytes: of this shape, in any type that weights are stored in, all of it finite.
    pub(super) fn weights(&mut self, name: &str, shape: &[usize]) -> Result<(&'static dyn Storage, Vec<u8>)> {
        let storage = self.check(name, shape)?;
        let bytes = self.bytes(name)?;
        for (piece, bytes) in bytes.chunks(storage.bytes(PIECE)).enumerate() {
            let mut values = vec![0.0; bytes.len() / storage.bytes(1)];
            storage.decode(bytes, &mut values);
            if let Some(index) = values.iter().position(|value| !value.is_finite()) {
                let (file, tensor, found) = (self.path.clone(), name.into(), values[index]);
                return Err(FolderError::NotFinite { file, tensor, index: piece * PIECE + index, found });
            }
        }
        Ok((storage, bytes))
    }

    /// The tensor of a name and a type; `expected` is its shape in words.
    fn info(&self, name: &str, dtype: Dtype, expected: &str) -> Result<&TensorInfo> {
        let (file, tensor) = (self.path.clone(), name.to_string());
        match self.header.info(name) {
            None => Err(FolderError::Missing { file, tensor, expected: format!("{dtype} {expected}") }),
            Some(info) if info.dtype != dtype => {
                let (found, expected) = (info.dtype.to_string(), dtype.to_string());
                Err(FolderError::Dtype { file, tensor, found, expected })
            }
            Some(info) => Ok(info),
        }
    }

    /// The shape of a tensor, if there is one of that name.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.header.info(name).map(|info| &*info.shape)
    }

    /// The storage of a tensor of this name and shape; an error where there is none, or of another type than weights have.
    pub(super) fn check(&self, name: &str, shape: &[usize]) -> Result<&'static dyn Storage> {
        let (file, tensor, expected) = (self.path.clone(), name.to_string(), format!("{shape:?}"));
        let Some(info) = self.header.info(name) else {
            return Err(FolderError::Missing { file, tensor, expected: format!("F32 {expected}") });
        };
        let dtype = info.dtype.to_string();
        let Some(storage) = STORAGES.iter().find(|storage| storage.dtype() == dtype) else {
            let known: Vec<_> = STORAGES.iter().map(|storage| storage.dtype()).collect();
            return Err(FolderError::Dtype { file, tensor, found: dtype, expected: known.join(", ") });
        };
        if info.shape != shape {
            return Err(FolderError::Shape { file, tensor, found: format!("{:?}", info.shape), expected });
        }
        Ok(*storage)
    }

    /// The values of a tensor of this shape, all of which must be finite.
    pub fn floats(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let (storage, bytes) = self.weights(name, shape)?;
        let mut values = vec![0.0; shape.iter().product()];
        storage.decode(&bytes, &mut values);
        Ok(values)
    }

    /// Shape and values of an int64 matrix; `expected` names its dimensions.
    pub fn ints(&mut self, name: &str, expected: &str) -> Result<([usize; 2], Vec<i64>)> {
        let info = self.info(name, Dtype::I64, expected)?;
        let Ok(shape) = <[usize; 2]>::try_from(&*info.shape) else {
            let (file, tensor, found) = (self.path.clone(), name.to_string(), format!("{:?}", info.shape));
            return Err(FolderError::Shape { file, tensor, found, expected: expected.into() });
        };
        let bytes = self.bytes(name)?;
        Ok((shape, bytes.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect()))
    }

    /// The bytes of a tensor that exists.
    pub(super) fn bytes(&mut self, name: &str) -> Result<Vec<u8>> {
        let (start, end) = self.header.info(name).map_or((0, 0), |info| info.data_offsets);
        self.read(name, 0..end - start)
    }

    /// Some of the bytes of a tensor that exists.
    pub(super) fn read(&mut self, name: &str, range: std::ops::Range<usize>) -> Result<Vec<u8>> {
        let (start, end) = self.header.info(name).map_or((0, 0), |info| info.data_offsets);
        assert!(range.end <= end - start, "{name}: bytes that it has");
        let mut bytes = vec![0; range.len()];
        let place = SeekFrom::Start(self.start + (start + range.start) as u64);
        let read = self.file.seek(place).and_then(|_| self.file.read_exact(&mut bytes));
        read.map_err(|error| FolderError::Io { file: self.path.clone(), error })?;
        Ok(bytes)
    }
}

/// A tensor to be written.
pub struct Tensor<'a> {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its values, as many as the shape says.
    pub values: Values<'a>,
}

impl<'a> Tensor<'a> {
    /// A tensor of f32.
    pub fn f32(name: impl Into<String>, shape: &[usize], values: &'a [f32]) -> Self {
        Self { name: name.into(), shape: shape.to_vec(), values: Values::F32(values) }
    }
}

/// The values of a tensor to be written.
pub enum Values<'a> {
    /// As f32.
    F32(&'a [f32]),
    /// To be stored as something else.
    Stored(&'static dyn Storage, std::borrow::Cow<'a, [f32]>),
    /// As they are in the file.
    Bytes(Dtype, Vec<u8>),
}

impl Values<'_> {
    fn dtype(&self) -> Dtype {
        match self {
            Self::F32(_) => Dtype::F32,
            Self::Stored(storage, _) => match storage.dtype() {
                "BF16" => Dtype::BF16,
                "F16" => Dtype::F16,
                _ => Dtype::F32,
            },
            Self::Bytes(dtype, _) => *dtype,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::F32(values) => F32.bytes(values.len()),
            Self::Stored(storage, values) => storage.bytes(values.len()),
            Self::Bytes(_, bytes) => bytes.len(),
        }
    }

    fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let (storage, values): (&dyn Storage, &[f32]) = match self {
            Self::Bytes(_, bytes) => return out.write_all(bytes),
            Self::F32(values) => (&F32, values),
            Self::Stored(storage, values) => (*storage, values),
        };
        values.chunks(PIECE).try_for_each(|values| out.write_all(&storage.encode(values)))
    }
}

/// Writes tensors.
pub fn write_tensors(path: &Path, tensors: &[Tensor<'_>]) -> Result<()> {
    write_tensors_with(path, tensors, [])
}

/// Writes tensors, and notes in the header.
pub(super) fn write_tensors_with(
    path: &Path,
    tensors: &[Tensor<'_>],
    notes: impl IntoIterator<Item = (String, String)>,
) -> Result<()> {
    let mut end = 0;
    let infos = tensors.iter().map(|tensor| {
        let start = end;
        end += tensor.values.bytes();
        let info = TensorInfo { dtype: tensor.values.dtype(), shape: tensor.shape.clone(), data_offsets: (start, end) };
        (tensor.name.clone(), info)
    });
    // transformers reads only files that say which framework's tensors they hold.
    let mut format = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    format.extend(notes);
    let header = Metadata::new(None, infos.collect()).expect("values that fill their shapes, one after another");
    let header = serde_json::to_string(&header).expect("names and numbers can be written");
    // In the order of their names, so that the same tensors are the same bytes: the crate has notes in any order.
    let format = serde_json::to_string(&format).expect("words can be written");
    let rest = if tensors.is_empty() { "}" } else { &format!(",{}", &header[1..]) };
    let mut header = format!("{{\"__metadata__\":{format}{rest}").into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    write_aside(path, |out| {
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        tensors.iter().try_for_each(|tensor| tensor.values.write(out))
    })
}

/// Whether a folder is new or empty; what a [`write_aside`] left that was killed does not count.
pub fn is_free(folder: &Path) -> Result<bool> {
    let io = |error| FolderError::Io { file: folder.into(), error };
    if !folder.exists() {
        return Ok(true);
    }
    for entry in std::fs::read_dir(folder).map_err(io)? {
        if !entry.map_err(io)?.file_name().as_encoded_bytes().starts_with(ASIDE.as_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes a file under another name beside it, and renames it when all of it is on the disk.
pub fn write_aside(path: &Path, content: impl Fn(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let io = |error| FolderError::Io { file: path.into(), error };
    if path.exists() && !path.is_file() {
        return Err(io(std::io::Error::other("is something else than a file; it is not overwritten")));
    }
    let write = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new(""));
        // Made as any file is: tempfile's own are for their owner's eyes only.
        let aside = tempfile::Builder::new().prefix(ASIDE).make_in(folder, |path| File::create_new(path))?;
        let mut out = BufWriter::with_capacity(1 << 20, aside);
        content(&mut out)?;
        let aside = out.into_inner()?;
        aside.as_file().sync_all()?;
        aside.persist(path)?;
        Ok(())
    };
    write().map_err(io)
}
