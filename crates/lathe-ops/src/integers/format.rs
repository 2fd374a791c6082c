//! The formats of integer weights: how many bits a code has, how many inputs share a scale, and whether groups have an
//! offset of their own.

use crate::storage::f16;
use std::fmt;

/// Sizes of groups that a format may have.
const GROUPS: [usize; 4] = [16, 32, 64, 128];

/// A format of integer weights. Codes u are from 0 to 2^bits - 1, and a weight is scale * u + offset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Format {
    pub(super) bits: u32,
    pub(super) group: Option<usize>,
    pub(super) offset: bool,
}

/// Formats to choose from, smallest error first among those of as many bits. Others have the same names:
/// [`Format::parse`] takes every combination.
pub const FORMATS: &[Format] = &[
    Format { bits: 8, group: Some(32), offset: false },
    Format { bits: 8, group: None, offset: false },
    Format { bits: 6, group: Some(64), offset: false },
    Format { bits: 4, group: Some(32), offset: true },
    Format { bits: 4, group: Some(32), offset: false },
    Format { bits: 4, group: Some(64), offset: false },
    Format { bits: 4, group: Some(128), offset: false },
];

impl Format {
    /// A format of 4, 6 or 8 bits; a scale for each row, or for each 16, 32, 64 or 128 inputs of it; with an offset beside
    /// each scale, or without, where offset = -scale * 2^(bits - 1).
    pub fn new(bits: u32, group: Option<usize>, offset: bool) -> Result<Self, String> {
        if !matches!(bits, 4 | 6 | 8) {
            return Err(format!("integer weights of {bits} bits; expected 4, 6 or 8"));
        }
        if let Some(group) = group.filter(|group| !GROUPS.contains(group)) {
            return Err(format!(
                "integer weights in groups of {group}; expected 16, 32, 64 or 128 inputs, or whole rows"
            ));
        }
        Ok(Self { bits, group, offset })
    }

    /// The format of a name, which [`Self::key`] gives.
    pub fn parse(key: &str) -> Result<Self, String> {
        let wrong = || {
            let expected = "int4, int6 or int8, then _g16, _g32, _g64 or _g128 for groups, then _offset for offsets";
            format!("found \"{key}\"; expected {expected}")
        };
        let mut words = key.split('_');
        let bits = match words.next() {
            Some("int4") => 4,
            Some("int6") => 6,
            Some("int8") => 8,
            _ => return Err(wrong()),
        };
        let mut rest: Vec<&str> = words.collect();
        let offset = rest.last() == Some(&"offset");
        rest.truncate(rest.len() - usize::from(offset));
        let group = match rest[..] {
            [] => None,
            [word] => Some(GROUPS.into_iter().find(|group| word == format!("g{group}")).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        };
        Self::new(bits, group, offset)
    }

    /// Its name: `int8`, `int4_g32`, `int4_g32_offset`.
    pub fn key(&self) -> String {
        let group = self.group.map_or(String::new(), |group| format!("_g{group}"));
        format!("int{}{group}{}", self.bits, if self.offset { "_offset" } else { "" })
    }

    /// Bits of a code.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Inputs that share a scale; none where a whole row does.
    pub fn group(&self) -> Option<usize> {
        self.group
    }

    /// Whether there is an offset beside each scale.
    pub fn offset(&self) -> bool {
        self.offset
    }

    /// The code that stands for 0 where there are no offsets.
    pub fn middle(&self) -> u8 {
        1 << (self.bits - 1)
    }

    /// The largest code.
    pub fn largest(&self) -> u8 {
        ((1u32 << self.bits) - 1) as u8
    }

    /// Scales of a row: one for each group, the last of which may be short.
    pub fn groups(&self, inputs: usize) -> usize {
        self.group.map_or(1, |group| inputs.div_ceil(group))
    }

    /// Bytes of a row's codes in a file.
    pub fn row_bytes(&self, inputs: usize) -> usize {
        // Without overflow whatever the inputs: 8 codes take as many bytes as a code has bits.
        inputs / 8 * self.bits as usize + (inputs % 8 * self.bits as usize).div_ceil(8)
    }

    /// Bytes of a scale or an offset in a file: f32 for a row, f16 for a group.
    pub fn scale_bytes(&self) -> usize {
        if self.group.is_some() { 2 } else { 4 }
    }

    /// The type of scales and offsets in safetensors.
    pub fn scale_dtype(&self) -> &'static str {
        if self.group.is_some() { "F16" } else { "F32" }
    }

    /// Bytes of a matrix in a file: codes, scales and offsets.
    pub fn bytes(&self, outputs: usize, inputs: usize) -> usize {
        let scales = self.groups(inputs) * self.scale_bytes() * if self.offset { 2 } else { 1 };
        outputs * (self.row_bytes(inputs) + scales)
    }

    /// A scale or an offset as it is stored: rounded to the nearest f16 in groups, where what is too large becomes the
    /// largest there is.
    pub fn stored(&self, scale: f32) -> f32 {
        match self.group {
            None => scale,
            Some(_) => f16::from_bits(f16::to_bits(scale.clamp(-65504.0, 65504.0))),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())
    }
}
