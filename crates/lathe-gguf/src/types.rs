//! The types of tensors: their numbers and names in files, the sizes of their blocks, and what their bytes mean.

use crate::groups::{self, Groups, Unpacked};

/// A type of tensors.
#[derive(Debug)]
pub struct TensorType {
    /// Its number in files.
    pub id: u32,
    /// Its name.
    pub name: &'static str,
    /// Values of a block.
    pub values: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// What its bytes mean.
    pub form: Form,
}

impl PartialEq for TensorType {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// What the bytes of a type mean.
#[derive(Debug)]
pub enum Form {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// The upper half of single precision.
    Bf16,
    /// Small whole numbers, groups of which share a scale.
    Groups(Groups),
}

const fn float(id: u32, name: &'static str, bytes: usize, form: Form) -> TensorType {
    TensorType { id, name, values: 1, bytes, form }
}

const fn quantised(id: u32, name: &'static str, block: (usize, usize), groups: Groups) -> TensorType {
    TensorType { id, name, values: block.0, bytes: block.1, form: Form::Groups(groups) }
}

/// Every type that is read.
pub static TYPES: &[TensorType] = &[
    float(0, "F32", 4, Form::F32),
    float(1, "F16", 2, Form::F16),
    float(30, "BF16", 2, Form::Bf16),
    quantised(8, "Q8_0", (32, 34), Groups { bits: 8, size: 32, symmetric: true, unpack: groups::q8_0 }),
    quantised(2, "Q4_0", (32, 18), Groups { bits: 4, size: 32, symmetric: true, unpack: groups::q4_0 }),
    quantised(3, "Q4_1", (32, 20), Groups { bits: 4, size: 32, symmetric: false, unpack: groups::q4_1 }),
    quantised(6, "Q5_0", (32, 22), Groups { bits: 5, size: 32, symmetric: true, unpack: groups::q5_0 }),
    quantised(7, "Q5_1", (32, 24), Groups { bits: 5, size: 32, symmetric: false, unpack: groups::q5_1 }),
    quantised(12, "Q4_K", (256, 144), Groups { bits: 4, size: 32, symmetric: false, unpack: groups::q4_k }),
    quantised(13, "Q5_K", (256, 176), Groups { bits: 5, size: 32, symmetric: false, unpack: groups::q5_k }),
    quantised(14, "Q6_K", (256, 210), Groups { bits: 6, size: 16, symmetric: true, unpack: groups::q6_k }),
];

/// Types that exist and are not read here.
const FOREIGN: &[(u32, &str)] = &[
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
];

/// The type of a number.
pub(crate) fn find(id: u32) -> Option<&'static TensorType> {
    TYPES.iter().find(|kind| kind.id == id)
}

/// The name of a type that is not read here.
pub(crate) fn foreign(id: u32) -> Option<&'static str> {
    FOREIGN.iter().find(|(known, _)| *known == id).map(|(_, name)| *name)
}

impl TensorType {
    /// The type of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TYPES.iter().find(|kind| kind.name == name)
    }

    /// Bytes of so many values, which fill blocks.
    pub fn bytes_of(&self, values: usize) -> usize {
        values / self.values * self.bytes
    }

    /// The values of bytes, which are blocks.
    pub fn decode(&self, bytes: &[u8], values: &mut [f32]) {
        assert_eq!(bytes.len(), self.bytes_of(values.len()), "{}: bytes of {} values", self.name, values.len());
        match &self.form {
            Form::F32 => each(bytes, values, f32::from_le_bytes),
            Form::F16 => each(bytes, values, groups::half),
            Form::Bf16 => each(bytes, values, |bytes| f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)),
            Form::Groups(groups) => {
                let mut unpacked = Unpacked::default();
                for (bytes, values) in bytes.chunks_exact(self.bytes).zip(values.chunks_exact_mut(self.values)) {
                    groups.unpack(bytes, &mut unpacked);
                    for (group, values) in values.chunks_exact_mut(groups.size).enumerate() {
                        let (scale, offset) = (unpacked.scales[group], unpacked.offsets[group]);
                        let codes = &unpacked.codes[group * groups.size..];
                        values
                            .iter_mut()
                            .zip(codes)
                            .for_each(|(value, &code)| *value = scale * f32::from(code) + offset);
                    }
                }
            }
        }
    }
}

fn each<const N: usize>(bytes: &[u8], values: &mut [f32], decode: impl Fn([u8; N]) -> f32) {
    values.iter_mut().zip(bytes.as_chunks().0).for_each(|(value, bytes)| *value = decode(*bytes));
}
