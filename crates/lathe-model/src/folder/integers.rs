//! Matrices of integers in a file of tensors: the codes under the parameter's name, [outputs, bytes of a row], their scales
//! and offsets under that name with `.scale` and `.offset`. The header notes the format and what activations are:
//! `int4_g32 int8`.

use super::FolderError;
use super::tensors::{Tensor, TensorFile, Values};
use crate::params::{Param, Place};
use lathe_ops::integers::{Activations, Format, Integers, Parts};
use safetensors::Dtype;

/// What the header says of a parameter that is held as integers.
pub(super) fn note(param: &Param) -> Option<(String, String)> {
    let format = param.integers().first()?.format();
    Some((param.name.clone(), format!("{} {}", format.key(), param.activations().key())))
}

/// The tensors of a parameter that is held as integers: those of its matrices one below another.
pub(super) fn tensors(param: &Param) -> Vec<Tensor<'static>> {
    let mut all = Parts::default();
    for matrix in param.integers() {
        let parts = matrix.to_parts();
        all.codes.extend(parts.codes);
        all.scales.extend(parts.scales);
        all.offsets.extend(parts.offsets);
    }
    let place = param.place().expect("only matrices are held as integers");
    let shapes = Shapes::of(param.integers()[0].format(), place);
    let tensor = |name: String, shape: [usize; 2], dtype: Dtype, bytes: Vec<u8>| Tensor {
        name,
        shape: shape.to_vec(),
        values: Values::Bytes(dtype, bytes),
    };
    let mut tensors = vec![
        tensor(param.name.clone(), shapes.codes, Dtype::U8, all.codes),
        tensor(format!("{}.scale", param.name), shapes.scales, shapes.dtype, all.scales),
    ];
    if !all.offsets.is_empty() {
        tensors.push(tensor(format!("{}.offset", param.name), shapes.scales, shapes.dtype, all.offsets));
    }
    tensors
}

/// The shapes of the tensors of a parameter's matrices.
struct Shapes {
    codes: [usize; 2],
    scales: [usize; 2],
    dtype: Dtype,
}

impl Shapes {
    fn of(format: Format, place: Place) -> Self {
        let rows = place.count * place.outputs;
        let dtype = if format.group().is_some() { Dtype::F16 } else { Dtype::F32 };
        Self { codes: [rows, format.row_bytes(place.inputs)], scales: [rows, format.groups(place.inputs)], dtype }
    }
}

/// The tensors of a file that a parameter takes as integers.
pub(super) struct IntegerTensors {
    name: String,
    format: Format,
    activations: Activations,
    place: Place,
}

/// Bytes of codes that are read at a time.
const PIECE: usize = 1 << 18;

impl IntegerTensors {
    /// Those of a name, if the file says that it holds integers.
    pub fn of(file: &TensorFile, name: &str, param: &Param) -> Result<Option<Self>, FolderError> {
        let Some(note) = file.note(name) else { return Ok(None) };
        let wrong = |found: String, expected: &str| FolderError::Malformed {
            file: file.path().into(),
            found: format!("{found} for the tensor `{name}` in its header"),
            expected: expected.into(),
        };
        let (format, activations) = note.split_once(' ').unwrap_or((note, Activations::Int8.key()));
        let (Some(format), Some(activations)) = (Format::parse(format), Activations::parse(activations)) else {
            let expected = "a format and what activations are, such as `int8 int8` or `int4_g32 float`";
            return Err(wrong(format!("{:?}", super::readable(note)), expected));
        };
        let Some(place) = param.place() else {
            return Err(wrong(format!("the format `{}`", format.key()), "integers for matrices only"));
        };
        Ok(Some(Self { name: name.into(), format, activations, place }))
    }

    fn beside(&self, what: &str) -> String {
        format!("{}.{what}", self.name)
    }

    /// An error unless all are there, of the right types and shapes. Returns their names.
    pub fn check(&self, file: &TensorFile) -> Result<Vec<String>, FolderError> {
        let shapes = Shapes::of(self.format, self.place);
        file.expect(&self.name, Dtype::U8, &shapes.codes)?;
        let mut names = vec![self.name.clone(), self.beside("scale")];
        if self.format.has_offset() {
            names.push(self.beside("offset"));
        }
        for name in &names[1..] {
            file.expect(name, shapes.dtype, &shapes.scales)?;
        }
        Ok(names)
    }

    /// Fills a parameter. Codes are read and packed in pieces, so that no more than a piece is there twice.
    pub fn fill(&self, file: &mut TensorFile, param: &mut Param) -> Result<(), FolderError> {
        let Place { count, outputs, inputs, .. } = self.place;
        let row = self.format.row_bytes(inputs);
        let scales = file.bytes(&self.beside("scale"))?;
        let offsets = if self.format.has_offset() { file.bytes(&self.beside("offset"))? } else { Vec::new() };
        let path = file.path().to_path_buf();
        let wrong = |found: String| FolderError::Malformed {
            file: path.clone(),
            found: format!("tensor `{}`: {found}", self.name),
            expected: "finite scales and offsets".into(),
        };
        let mut integers = Vec::new();
        for i in 0..count {
            let part = |bytes: &[u8]| bytes[bytes.len() / count * i..bytes.len() / count * (i + 1)].to_vec();
            let mut matrix = Integers::unfilled(self.format, outputs, inputs, &part(&scales), &part(&offsets)).map_err(wrong)?;
            let rows = (PIECE / row.max(1)).next_multiple_of(16);
            for first in (0..outputs).step_by(rows) {
                let rows = rows.min(outputs - first);
                let start = (i * outputs + first) * row;
                matrix.fill_rows(first, &file.read(&self.name, start..start + rows * row)?);
            }
            integers.push(matrix);
        }
        param.set_integers(integers);
        param.set_activations(self.activations);
        Ok(())
    }
}
