//! The values of a graph at work.

use crate::tensor::{Kind, Tensor};

/// Numbers with a shape. What is neither f32 nor of 8 bits is a whole number of 64.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Its shape; empty for a single number.
    pub shape: Vec<usize>,
    pub(super) data: Data,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Data {
    F32(Vec<f32>),
    I64(Vec<i64>),
    U8(Vec<u8>),
    I8(Vec<i8>),
}

impl Data {
    pub fn len(&self) -> usize {
        match self {
            Self::F32(data) => data.len(),
            Self::I64(data) => data.len(),
            Self::U8(data) => data.len(),
            Self::I8(data) => data.len(),
        }
    }

    /// Numbers from these places. None may be beyond the end.
    pub fn take(&self, places: impl Iterator<Item = usize>) -> Self {
        match self {
            Self::F32(data) => Self::F32(places.map(|i| data[i]).collect()),
            Self::I64(data) => Self::I64(places.map(|i| data[i]).collect()),
            Self::U8(data) => Self::U8(places.map(|i| data[i]).collect()),
            Self::I8(data) => Self::I8(places.map(|i| data[i]).collect()),
        }
    }

    /// Adds a part of others of the same type.
    pub fn extend(&mut self, from: &Self, range: std::ops::Range<usize>) -> Result<(), String> {
        match (self, from) {
            (Self::F32(to), Self::F32(from)) => to.extend_from_slice(&from[range]),
            (Self::I64(to), Self::I64(from)) => to.extend_from_slice(&from[range]),
            (Self::U8(to), Self::U8(from)) => to.extend_from_slice(&from[range]),
            (Self::I8(to), Self::I8(from)) => to.extend_from_slice(&from[range]),
            _ => return Err("inputs of different types".into()),
        }
        Ok(())
    }

    /// None of the same type yet.
    pub fn empty(&self) -> Self {
        self.take(std::iter::empty())
    }
}

impl Array {
    /// Floats.
    pub fn of_floats(shape: &[usize], data: Vec<f32>) -> Self {
        Self::new(shape, Data::F32(data))
    }

    /// Whole numbers.
    pub fn of_ints(shape: &[usize], data: Vec<i64>) -> Self {
        Self::new(shape, Data::I64(data))
    }

    pub(super) fn new(shape: &[usize], data: Data) -> Self {
        assert_eq!(data.len(), shape.iter().product::<usize>(), "as many numbers as the shape {shape:?} says");
        Self { shape: shape.to_vec(), data }
    }

    /// The floats, if they are.
    pub fn floats(&self) -> Option<&[f32]> {
        match &self.data {
            Data::F32(data) => Some(data),
            _ => None,
        }
    }

    /// The whole numbers, if they are of 64 bits.
    pub fn ints(&self) -> Option<&[i64]> {
        match &self.data {
            Data::I64(data) => Some(data),
            _ => None,
        }
    }

    /// All numbers as f32.
    pub(super) fn to_floats(&self) -> Vec<f32> {
        match &self.data {
            Data::F32(data) => data.clone(),
            Data::I64(data) => data.iter().map(|&x| x as f32).collect(),
            Data::U8(data) => data.iter().map(|&x| f32::from(x)).collect(),
            Data::I8(data) => data.iter().map(|&x| f32::from(x)).collect(),
        }
    }

    /// The values of a tensor; those of 16 bits become f32.
    pub(super) fn of(tensor: &Tensor) -> Self {
        let bytes = &tensor.data;
        let data = match tensor.kind {
            Kind::F32 => Data::F32(bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()),
            Kind::F16 => Data::F32(bytes.as_chunks().0.iter().map(|&b| half::f16::from_le_bytes(b).to_f32()).collect()),
            Kind::Bf16 => {
                Data::F32(bytes.as_chunks().0.iter().map(|&b| half::bf16::from_le_bytes(b).to_f32()).collect())
            }
            Kind::I64 => Data::I64(bytes.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b)).collect()),
            Kind::I32 => Data::I64(bytes.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b).into()).collect()),
            Kind::Bool => Data::I64(bytes.iter().map(|&b| (b != 0).into()).collect()),
            Kind::U8 => Data::U8(bytes.clone()),
            Kind::I8 => Data::I8(bytes.iter().map(|&b| b as i8).collect()),
        };
        Self::new(&tensor.shape, data)
    }

    pub(super) fn rank(&self) -> usize {
        self.shape.len()
    }

    /// How far apart neighbours along each axis are.
    pub(super) fn strides(&self) -> Vec<usize> {
        strides(&self.shape)
    }

    /// Strides for a shape that this is stretched to; `None` where it does not fit.
    pub(super) fn stretched(&self, to: &[usize]) -> Option<Vec<isize>> {
        let more = to.len().checked_sub(self.rank())?;
        let own = self.shape.iter().zip(&to[more..]).zip(self.strides()).map(|((&size, &to), stride)| match size {
            size if size == to => Some(stride as isize),
            1 => Some(0),
            _ => None,
        });
        std::iter::repeat_n(Some(0), more).chain(own).collect()
    }
}

/// How far apart neighbours along each axis of a shape are.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// The shape that two are stretched to.
pub(super) fn common(a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |at| shape[at]);
    let sizes = (0..rank).map(|axis| match (size(a, axis), size(b, axis)) {
        (a, b) if a == b => Some(a),
        (1, b) => Some(b),
        (a, 1) => Some(a),
        _ => None,
    });
    sizes.collect::<Option<_>>().ok_or_else(|| format!("shapes {a:?} and {b:?}"))
}

/// Places of numbers in row-major order of a shape, with any strides.
pub(super) struct Places {
    shape: Vec<usize>,
    strides: Vec<isize>,
    at: Vec<usize>,
    place: isize,
    left: usize,
}

impl Places {
    pub fn new(shape: &[usize], strides: Vec<isize>, first: isize) -> Self {
        let left = shape.iter().product();
        Self { shape: shape.to_vec(), strides, at: vec![0; shape.len()], place: first, left }
    }
}

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let here = self.place;
        for axis in (0..self.shape.len()).rev() {
            self.at[axis] += 1;
            self.place += self.strides[axis];
            if self.at[axis] < self.shape[axis] {
                break;
            }
            self.place -= self.strides[axis] * self.shape[axis] as isize;
            self.at[axis] = 0;
        }
        Some(here as usize)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}
