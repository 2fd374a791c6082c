//! Weights and constants: a type, a shape and little-endian bytes.

/// The types of numbers that are used here, with their ids in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    F32 = 1,
    U8 = 2,
    I8 = 3,
    I32 = 6,
    I64 = 7,
    Bool = 9,
    F16 = 10,
    Bf16 = 16,
}

impl Kind {
    const ALL: [Self; 8] = [Self::F32, Self::U8, Self::I8, Self::I32, Self::I64, Self::Bool, Self::F16, Self::Bf16];

    /// The type of an id.
    pub fn of_id(id: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as i32 == id)
    }

    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::I64 => 8,
        }
    }

    /// What ONNX calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float",
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::Bool => "bool",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }
}

/// A tensor of constants.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// The type of its numbers.
    pub kind: Kind,
    /// Its shape; empty for a single number.
    pub shape: Vec<usize>,
    /// Its numbers, row-major, little-endian.
    pub data: Vec<u8>,
}

impl Tensor {
    /// A tensor of bytes that are as many as type and shape say.
    pub fn new(kind: Kind, shape: &[usize], data: Vec<u8>) -> Self {
        assert_eq!(data.len(), kind.bytes() * shape.iter().product::<usize>(), "bytes of {shape:?} of {kind:?}");
        Self { kind, shape: shape.to_vec(), data }
    }

    /// Floats.
    pub fn floats(shape: &[usize], values: &[f32]) -> Self {
        Self::new(Kind::F32, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    /// Whole numbers of 64 bits, a list.
    pub fn ints(values: &[i64]) -> Self {
        Self::new(Kind::I64, &[values.len()], values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }
}
