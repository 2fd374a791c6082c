//! Writing a file.

use crate::file::{ALIGNMENT, ALIGNMENT_KEY, MAGIC, VERSION};
use crate::value::write_text;
use crate::{TensorType, Value};
use std::borrow::Cow;
use std::io::{self, Write};

/// A tensor to be written, without its bytes.
#[derive(Debug, Clone)]
pub struct TensorHeader {
    /// Its name.
    pub name: String,
    /// Its shape, rows before columns.
    pub shape: Vec<usize>,
    /// What its values are stored as.
    pub kind: &'static TensorType,
}

impl TensorHeader {
    fn bytes(&self) -> usize {
        self.kind.bytes_of(self.shape.iter().product())
    }
}

/// A tensor to be written.
#[derive(Debug, Clone)]
pub struct TensorData<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its shape, rows before columns.
    pub shape: &'a [usize],
    /// What its values are stored as.
    pub kind: &'static TensorType,
    /// Its bytes, as many as type and shape say.
    pub bytes: &'a [u8],
}

/// Writes a file of keys and tensors, in the order in which they are given. Tensors are aligned as usual, and a key that
/// says otherwise is left out.
pub fn write(out: &mut dyn Write, keys: &[(&str, &Value)], tensors: &[TensorData<'_>]) -> io::Result<()> {
    let header = |tensor: &TensorData<'_>| TensorHeader {
        name: tensor.name.into(),
        shape: tensor.shape.into(),
        kind: tensor.kind,
    };
    let headers: Vec<_> = tensors.iter().map(header).collect();
    write_with(out, keys, &headers, &mut |i| tensors[i].bytes.into())
}

/// The same with tensors whose bytes are made one by one.
pub fn write_with<'a>(
    out: &mut dyn Write,
    keys: &[(&str, &Value)],
    tensors: &[TensorHeader],
    bytes: &mut dyn FnMut(usize) -> Cow<'a, [u8]>,
) -> io::Result<()> {
    let keys: Vec<_> = keys.iter().filter(|(key, _)| *key != ALIGNMENT_KEY).collect();
    let mut header = MAGIC.to_vec();
    header.extend(VERSION.to_le_bytes());
    header.extend((tensors.len() as u64).to_le_bytes());
    header.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        write_text(key, &mut header);
        value.write_typed(&mut header);
    }
    let mut start = 0;
    for tensor in tensors {
        write_text(&tensor.name, &mut header);
        header.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().rev().for_each(|&size| header.extend((size as u64).to_le_bytes()));
        header.extend(tensor.kind.id.to_le_bytes());
        header.extend(u64::to_le_bytes(start));
        start += (tensor.bytes() as u64).next_multiple_of(ALIGNMENT);
    }
    let padding = |len: usize| vec![0; (len as u64).next_multiple_of(ALIGNMENT) as usize - len];
    out.write_all(&header)?;
    out.write_all(&padding(header.len()))?;
    for (i, tensor) in tensors.iter().enumerate() {
        let bytes = bytes(i);
        assert_eq!(bytes.len(), tensor.bytes(), "{}: bytes of {:?}", tensor.name, tensor.shape);
        out.write_all(&bytes)?;
        out.write_all(&padding(bytes.len()))?;
    }
    Ok(())
}
