//! GGUF files as models: one file in place of a folder.
//!
//! What its keys mean and what its tensors are called is for the backbone to say, in its [`GgufForm`]. Floats stay what they
//! are. Quantised matrices become integers with the same codes and scales: Q4_0 is `int4_g32`, Q8_0 is `int8_g32`, and so
//! on. Only the scales of types named `_K`, which are products of two numbers, are rounded to f16.

mod write;

pub use write::{GgufModel, GgufOptions, save_gguf};

use super::config::{ConfigReader, Json};
use super::{FolderError, readable};
use crate::{Network, Param, build};
use lathe_core::model::Value;
use lathe_core::{Backbone, Error, MAX_BLOCKS, Model, Registry};
use lathe_gguf::{Form, Gguf, Groups, TensorType, Unpacked};
use lathe_ops::integers::{Activations, Format, Integers};
use lathe_ops::storage::{Bf16, F16, Storage};
use rayon::prelude::*;
use serde_json::Map;
use std::collections::HashSet;
use std::path::Path;

type Result<T, E = FolderError> = std::result::Result<T, E>;

/// The key that names a family of models.
const ARCHITECTURE: &str = "general.architecture";
/// Values that a thread decodes at a time, about.
const PIECE: usize = 1 << 16;
/// The largest number of f16.
const LARGEST: f32 = 65504.0;

/// How the models of a backbone stand in GGUF files.
pub trait GgufForm: Sync {
    /// The values of `general.architecture` that it reads.
    fn architectures(&self) -> &'static [&'static str];
    /// The model of a file of such an architecture; the reader has the file's keys, under their whole names.
    fn read(&self, architecture: &str, file: &mut Gguf, reader: &mut ConfigReader<'_>) -> lathe_core::Result<()>;
    /// Which tensor a parameter is.
    fn tensor(&self, param: &str, file: &Gguf) -> Option<GgufTensor>;
    /// How a model stands in a file, or why llama.cpp cannot say it.
    fn write(&self, model: &Model) -> Result<GgufModel, String>;
    /// Whether a file may hold a tensor that no parameter is.
    fn is_needless(&self, _tensor: &str) -> bool {
        false
    }
}

/// Where a file has a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GgufTensor {
    /// The tensor's name.
    pub name: String,
    /// How its values lie there.
    pub order: Order,
}

/// How the values of a tensor lie, seen from the parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The same.
    Same,
    /// Rows are columns.
    Transposed,
    /// Rows of heads of this width: those that rotary positions turn together, i and i + width / 2, stand side by side.
    Pairs(usize),
}

/// What the model in a file is, without its weights.
pub(super) fn load_model(path: &Path, registry: &Registry) -> Result<Model> {
    let mut file = Gguf::open(path)?;
    let wrong = |error| FolderError::Config { file: path.into(), error };
    if let Some(parts) = file.get("split.count").and_then(lathe_gguf::Value::int).filter(|&parts| parts > 1) {
        return Err(wrong(Error::value("split.count", format!("one of {parts} files"), "a model in one file")));
    }
    let architecture = file.get(ARCHITECTURE).and_then(lathe_gguf::Value::text).unwrap_or("nothing").to_string();
    let names = |backbone: &&'static dyn Backbone| {
        build::of_backbone(*backbone).gguf().map(GgufForm::architectures).unwrap_or_default()
    };
    let found = registry.backbones.iter().find(|backbone| names(backbone).contains(&&*architecture));
    let Some((&backbone, form)) = found.and_then(|found| Some((found, build::of_backbone(*found).gguf()?))) else {
        let known: Vec<&str> = registry.backbones.iter().flat_map(names).copied().collect();
        return Err(wrong(Error::value(ARCHITECTURE, format!("`{architecture}`"), known.join(", "))));
    };
    let keys: Map<String, Json> = file.keys().filter_map(|(key, value)| Some((key.into(), json(value)?))).collect();
    let mut reader = ConfigReader::new(&keys, registry);
    reader.set("backbone", Value::Word(backbone.key().into()));
    form.read(&architecture, &mut file, &mut reader).and_then(|()| reader.model()).map_err(wrong)
}

/// A value that can say something of a model. A list of the same number for each layer is that number; of others, texts
/// of tokenizers above all, there is no need.
fn json(value: &lathe_gguf::Value) -> Option<Json> {
    if let Some(list) = value.array() {
        let numbers: Vec<Json> = (0..list.len().min(MAX_BLOCKS)).filter_map(|i| json(&list.get(i)?)).collect();
        return match numbers.iter().all(|number| number.is_number() && *number == numbers[0]) {
            true => numbers.first().cloned(),
            false => Some(Json::Array(numbers)).filter(|_| value.texts().is_none()),
        };
    }
    if let Some(text) = value.text() {
        return Some(text.into());
    }
    if let Some(truth) = value.truth() {
        return Some(truth.into());
    }
    match (value.int(), value.real()) {
        (Some(int), _) => Some(int.into()),
        // What is no number stays visible in the error about it.
        (None, Some(real)) if !real.is_finite() => Some(real.to_string().into()),
        (None, real) => real.map(Json::from),
    }
}

/// The weights in a file as those of a model that is given.
pub(super) fn load_as(path: &Path, model: Model) -> Result<Network> {
    let wrong = |error| FolderError::Config { file: path.into(), error };
    let backbone = model.frame.backbone;
    let Some(form) = build::of_backbone(backbone).gguf() else {
        let found = format!("`{}`, which no GGUF file is", backbone.key());
        return Err(wrong(Error::value("backbone", found, "that of the file")));
    };
    let mut file = Gguf::open(path)?;
    let mut network = Network::unfilled(model).map_err(wrong)?;

    // Everything that the header says is checked before the first weight is read.
    let mut places = Vec::new();
    for param in network.params().iter() {
        let Some(place) = form.tensor(&param.name, &file) else {
            let found = format!("a model with `{}`", param.name);
            return Err(wrong(Error::value("layers", found, "the model of the file")));
        };
        check(&file, &place, param)?;
        places.push(place);
    }
    let known: HashSet<&str> = places.iter().map(|place| &*place.name).collect();
    let unknown = |name: &str| !known.contains(name) && !form.is_needless(name);
    if let Some((name, info)) = file.tensors().find(|(name, _)| unknown(name)) {
        return Err(FolderError::Unexpected { file: path.into(), tensor: name.into(), found: info.describe() });
    }
    for (param, place) in network.params_mut().zip(&places) {
        fill(&mut file, place, param)?;
    }
    Ok(network)
}

/// An error unless there is a tensor of a parameter's shape.
fn check(file: &Gguf, place: &GgufTensor, param: &Param) -> Result<()> {
    let mut expected = param.shape.clone();
    if place.order == Order::Transposed {
        expected.reverse();
    }
    let (path, tensor) = (file.path().to_path_buf(), place.name.clone());
    let Some(info) = file.tensor(&place.name) else {
        return Err(FolderError::Missing { file: path, tensor, expected: format!("{expected:?}") });
    };
    if info.shape != expected {
        let (found, expected) = (format!("{:?}", info.shape), format!("{expected:?}"));
        return Err(FolderError::Shape { file: path, tensor, found, expected });
    }
    match place.order {
        Order::Pairs(width) if width < 2 || !width.is_multiple_of(2) || !expected[0].is_multiple_of(width) => {
            let (found, expected) = (format!("{expected:?}"), format!("rows of heads of an even width, not {width}"));
            Err(FolderError::Shape { file: path, tensor, found, expected })
        }
        _ => Ok(()),
    }
}

/// Gives a parameter the values of a tensor that was checked, all of which must be finite.
fn fill(file: &mut Gguf, place: &GgufTensor, param: &mut Param) -> Result<()> {
    let bytes = file.bytes(&place.name)?;
    let info = file.tensor(&place.name).expect("it was checked");
    let not_finite = |index: usize, found: f32| FolderError::NotFinite {
        file: file.path().into(),
        tensor: readable(&place.name),
        index,
        found,
    };
    let width = if info.shape.len() > 1 { info.shape[info.shape.len() - 1] } else { 1 };
    if let (Form::Groups(groups), Some(matrix)) = (&info.kind.form, param.place())
        && (matrix.count, matrix.exact) == (1, false)
    {
        let codes = Codes::unpack(info.kind, groups, &bytes, width);
        let sides = || codes.scales.iter().zip(&codes.offsets);
        if let Some(i) = sides().position(|(scale, offset)| !scale.is_finite() || !offset.is_finite()) {
            let found = if codes.scales[i].is_finite() { codes.offsets[i] } else { codes.scales[i] };
            return Err(not_finite(i * groups.size, found));
        }
        // What f16 cannot hold stays f32; no model that was trained has such weights.
        if sides().all(|(scale, offset)| scale.abs().max(offset.abs()) <= LARGEST) {
            param.set_integers(vec![codes.integers(groups, place.order, width)]);
            param.set_activations(Activations::Int8);
            return Ok(());
        }
    }
    let values = decode(info.kind, &bytes, param.count());
    if let Some(index) = values.par_iter().position_first(|value| !value.is_finite()) {
        return Err(not_finite(index, values[index]));
    }
    let values = place.order.undo(values, width);
    match info.kind.form {
        Form::F16 => param.fill(&F16, F16.encode(&values)),
        Form::Bf16 => param.fill(&Bf16, Bf16.encode(&values)),
        _ => param.set_data(values),
    }
    Ok(())
}

/// A quantised matrix unpacked: a byte for each code, and scale and offset of each group.
struct Codes {
    codes: Vec<u8>,
    scales: Vec<f32>,
    offsets: Vec<f32>,
}

impl Codes {
    /// Of rows of a width, on all threads.
    fn unpack(kind: &TensorType, groups: &Groups, bytes: &[u8], width: usize) -> Self {
        let count = bytes.len() / kind.bytes * kind.values;
        let sides = vec![0.0; count / groups.size];
        let mut all = Self { codes: vec![0; count], scales: sides.clone(), offsets: sides };
        let rows = bytes.par_chunks(kind.bytes_of(width)).zip(all.codes.par_chunks_mut(width));
        let sides = all.scales.par_chunks_mut(width / groups.size).zip(all.offsets.par_chunks_mut(width / groups.size));
        rows.zip(sides).for_each(|((bytes, codes), (scales, offsets))| {
            let mut unpacked = Unpacked::default();
            let each = kind.values / groups.size;
            for (i, block) in bytes.chunks_exact(kind.bytes).enumerate() {
                groups.unpack(block, &mut unpacked);
                codes[i * kind.values..][..kind.values].copy_from_slice(&unpacked.codes[..kind.values]);
                scales[i * each..][..each].copy_from_slice(&unpacked.scales[..each]);
                offsets[i * each..][..each].copy_from_slice(&unpacked.offsets[..each]);
            }
        });
        all
    }

    /// The matrix [outputs, inputs], which is what a transposed parameter's is too.
    fn integers(mut self, groups: &Groups, order: Order, width: usize) -> Integers {
        let format = format(groups);
        let outputs = self.codes.len() / width;
        if let Order::Pairs(_) = order {
            self.codes = order.undo(self.codes, width);
            self.scales = order.undo(self.scales, width / groups.size);
            self.offsets = order.undo(self.offsets, width / groups.size);
        }
        if groups.symmetric {
            // Zero is the code in the middle, which more bits move.
            let shift = format.middle() - (1 << (groups.bits - 1));
            self.codes.iter_mut().for_each(|code| *code += shift);
            self.offsets.clear();
        }
        Integers::from_codes(format, outputs, width, &self.codes, &self.scales, &self.offsets)
    }
}

/// The format of a type's codes: as many bits, or the next that there are.
fn format(groups: &Groups) -> Format {
    let bits = groups.bits.next_multiple_of(2);
    Format::new(bits, Some(groups.size), !groups.symmetric).expect("4, 6 or 8 bits in groups of 16 or 32")
}

/// The values of a tensor's bytes, on all threads.
fn decode(kind: &TensorType, bytes: &[u8], count: usize) -> Vec<f32> {
    let mut values = vec![0.0; count];
    let piece = PIECE.next_multiple_of(kind.values);
    let pieces = bytes.par_chunks(kind.bytes_of(piece)).zip(values.par_chunks_mut(piece));
    pieces.for_each(|(bytes, values)| kind.decode(bytes, values));
    values
}

impl Order {
    /// The rows of a tensor from those of a parameter, `width` each.
    fn apply<T: Copy>(self, rows: Vec<T>, width: usize) -> Vec<T> {
        match self {
            Self::Same | Self::Transposed => self.undo(rows, width),
            Self::Pairs(head) => {
                let source = |row: usize| {
                    let (first, row) = (row - row % head, row % head);
                    first + row % 2 * (head / 2) + row / 2
                };
                let count = rows.len() / width;
                (0..count).flat_map(|row| rows[source(row) * width..][..width].iter().copied()).collect()
            }
        }
    }

    /// The rows of a parameter from those of a tensor, `width` each.
    fn undo<T: Copy>(self, rows: Vec<T>, width: usize) -> Vec<T> {
        match self {
            Self::Same => rows,
            Self::Transposed => {
                (0..width).flat_map(|column| rows.iter().skip(column).step_by(width).copied()).collect()
            }
            Self::Pairs(head) => {
                let source = |row: usize| {
                    let (first, row) = (row - row % head, row % head);
                    first + 2 * (row % (head / 2)) + row / (head / 2)
                };
                let count = rows.len() / width;
                (0..count).flat_map(|row| rows[source(row) * width..][..width].iter().copied()).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_format() {
        let found = lathe_gguf::TYPES.iter().filter_map(|kind| match &kind.form {
            Form::Groups(groups) => Some((kind.name, format(groups).key())),
            _ => None,
        });
        let expected = [
            ("Q8_0", "int8_g32"),
            ("Q4_0", "int4_g32"),
            ("Q4_1", "int4_g32_offset"),
            ("Q5_0", "int6_g32"),
            ("Q5_1", "int6_g32_offset"),
            ("Q4_K", "int4_g32_offset"),
            ("Q5_K", "int6_g32_offset"),
            ("Q6_K", "int6_g16"),
        ];
        assert!(found.eq(expected.map(|(name, key)| (name, key.to_string()))));
    }

    #[test]
    fn orders_are_undone() {
        let rows: Vec<u32> = (0..16).collect();
        assert_eq!(Order::Same.undo(rows.clone(), 2), rows);
        assert_eq!(Order::Transposed.undo((0..6).collect(), 3), [0, 3, 1, 4, 2, 5]);
        // Two heads of width 4: the file has rows 0, 2, 1, 3 of each.
        assert_eq!(Order::Pairs(4).apply(Order::Pairs(4).undo(rows.clone(), 2), 2), rows);
        assert_eq!(Order::Transposed.apply(vec![0, 3, 1, 4, 2, 5], 2), [0, 1, 2, 3, 4, 5]);
        assert_eq!(Order::Pairs(4).undo(rows, 2), [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]);
    }

    #[test]
    fn lists_of_one_number_are_that_number() {
        use lathe_gguf::{Array, Value};
        assert_eq!(json(&Value::Array(Array::U32(vec![3, 3, 3]))), Some(3.into()));
        assert_eq!(json(&Value::Array(Array::U32(vec![3, 4]))), Some(Json::Array(vec![3.into(), 4.into()])));
        assert_eq!(json(&Value::Array(Array::Text(vec!["a".into(), "b".into()]))), None);
        assert_eq!(json(&Value::Array(Array::U32(vec![]))), None);
        assert_eq!(json(&Value::F32(1e-5)), Some(1e-5.into()));
        assert_eq!(json(&Value::F32(f32::NAN)), Some("NaN".into()));
    }
}
