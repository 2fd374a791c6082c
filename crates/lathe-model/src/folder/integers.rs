//! Matrices of integers in a file of tensors: the codes under the parameter's name, [outputs, bytes of a row], their scales
//! and offsets under that name with `.scale` and `.offset`. The header notes the format and what activations are:
//! `int4_g32 int8`.

use super::FolderError;
use super::tensors::{Tensor, TensorFile, Values};
use crate::params::{Param, Place};
use lathe_ops::integers::{Activations, Format, Integers};
use safetensors::Dtype;

/// What the header says of a parameter that is held as integers.
pub(super) fn note(param: &Param) -> Option<(String, String)> {
    let format = param.integers().first()?.format();
    Some((param.name.clone(), format!("{} {}", format.key(), word(param.activations()))))
}

const WORDS: [(&str, Activations); 2] = [("int8", Activations::Int8), ("float", Activations::Float)];

/// The word of a header for what activations are.
fn word(activations: Activations) -> &'static str {
    WORDS.iter().find(|(_, of)| *of == activations).map_or("int8", |(word, _)| word)
}

/// The tensors of a parameter that is held as integers: those of its matrices one below another.
pub(super) fn tensors(param: &Param) -> Vec<Tensor<'static>> {
    let (mut codes, mut scales, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
    for matrix in param.integers() {
        let parts = matrix.to_parts();
        codes.extend(parts.codes);
        scales.extend(parts.scales);
        offsets.extend(parts.offsets);
    }
    let place = param.place().expect("only matrices are held as integers");
    let shapes = Shapes::of(param.integers()[0].format(), place);
    let tensor = |name: String, shape: [usize; 2], dtype: Dtype, bytes: Vec<u8>| Tensor {
        name,
        shape: shape.to_vec(),
        values: Values::Bytes(dtype, bytes),
    };
    let mut tensors = vec![
        tensor(param.name.clone(), shapes.codes, Dtype::U8, codes),
        tensor(format!("{}.scale", param.name), shapes.scales, shapes.dtype, scales),
    ];
    if !offsets.is_empty() {
        tensors.push(tensor(format!("{}.offset", param.name), shapes.scales, shapes.dtype, offsets));
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
const PIECE: usize = 1 << 16;

impl IntegerTensors {
    /// Those of a name, if the file says that it holds integers.
    pub fn of(file: &TensorFile, name: &str, param: &Param) -> Result<Option<Self>, FolderError> {
        let Some(note) = file.note(name) else { return Ok(None) };
        let wrong = |found: String, expected: &str| FolderError::Malformed {
            file: file.path().into(),
            found: format!("{found} for the tensor `{name}` in its header"),
            expected: expected.into(),
        };
        let (format, activations) = note.split_once(' ').unwrap_or((note, "int8"));
        let activations = WORDS.iter().find(|(word, _)| *word == activations).map(|(_, of)| *of);
        let (Ok(format), Some(activations)) = (Format::parse(format), activations) else {
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
        if self.format.offset() {
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
        let (row, side) = (self.format.row_bytes(inputs), self.format.groups(inputs) * self.format.scale_bytes());
        let rows = (PIECE / row.max(1)).next_multiple_of(16);
        let mut integers = Vec::new();
        for i in 0..count {
            let mut matrix = Integers::with_room(self.format, outputs, inputs);
            for first in (0..outputs).step_by(rows) {
                let places = i * outputs + first..i * outputs + (first + rows).min(outputs);
                let range = |size: usize| places.start * size..places.end * size;
                let codes = file.read(&self.name, range(row))?;
                let scales = file.read(&self.beside("scale"), range(side))?;
                let offsets = match self.format.offset() {
                    true => file.read(&self.beside("offset"), range(side))?,
                    false => Vec::new(),
                };
                let added = matrix.push_rows(places.len(), &codes, &scales, &offsets);
                added.map_err(|found| FolderError::Malformed {
                    file: file.path().into(),
                    found: format!("in the rows from {} on of tensor `{}`, {found}", places.start, self.name),
                    expected: "a matrix of integers".into(),
                })?;
            }
            integers.push(matrix);
        }
        param.set_integers(integers);
        param.set_activations(self.activations);
        Ok(())
    }
}
