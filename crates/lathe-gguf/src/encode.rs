//! Writing values as a type has them. Floats are rounded to the nearest; groups of 32 get the codes and scales that
//! llama.cpp's own quantiser gives them:
//!
//! | type | scale | code |
//! |---|---|---|
//! | Q8_0 | largest size / 127 | nearest, away from 0 where two are |
//! | Q4_0 | the value of the largest size / -8 | nearest, at most 15 |
//! | Q4_1 | (largest - least) / 15, offset = least | nearest, at most 15 |

use crate::{Form, TensorType};

/// Values that share a scale in every type that is written.
const GROUP: usize = 32;

impl TensorType {
    /// Whether [`Self::encode`] knows how.
    pub fn is_written(&self) -> bool {
        !matches!(self.form, Form::Groups(_)) || codes_of(self.name).is_some()
    }

    /// The bytes of values, which fill blocks; `None` for a type that is read alone.
    pub fn encode(&self, values: &[f32]) -> Option<Vec<u8>> {
        assert!(values.len().is_multiple_of(self.values), "{}: {} values fill no blocks", self.name, values.len());
        let mut bytes = Vec::with_capacity(self.bytes_of(values.len()));
        match self.form {
            Form::F32 => values.iter().for_each(|value| bytes.extend(value.to_le_bytes())),
            Form::F16 => values.iter().for_each(|&value| bytes.extend(to_half(value).to_le_bytes())),
            Form::Bf16 => values.iter().for_each(|&value| bytes.extend(to_bf16(value).to_le_bytes())),
            Form::Groups(_) => {
                let codes_of = codes_of(self.name)?;
                let mut codes = [0; GROUP];
                for group in values.chunks_exact(GROUP) {
                    let (scale, offset) = codes_of(group, &mut codes);
                    self.pack(&codes, scale, offset, &mut bytes)?;
                }
            }
        }
        Some(bytes)
    }

    /// Adds a block of 32 codes with their scale and, in a type that is not symmetric, their offset, both of which are
    /// rounded to f16; `None` for a type that is read alone.
    pub fn pack(&self, codes: &[u8; GROUP], scale: f32, offset: f32, bytes: &mut Vec<u8>) -> Option<()> {
        codes_of(self.name)?;
        let Form::Groups(groups) = &self.form else { return None };
        bytes.extend(to_half(scale).to_le_bytes());
        if !groups.symmetric {
            bytes.extend(to_half(offset).to_le_bytes());
        }
        match groups.bits {
            8 => bytes.extend(codes.iter().map(|code| code ^ 0x80)),
            _ => {
                let (low, high) = codes.split_at(GROUP / 2);
                bytes.extend(low.iter().zip(high).map(|(low, high)| low | high << 4));
            }
        }
        Some(())
    }
}

type CodesOf = fn(&[f32], &mut [u8; GROUP]) -> (f32, f32);

/// How a type rounds a group: fills in its codes, and gives scale and offset.
fn codes_of(name: &str) -> Option<CodesOf> {
    match name {
        "Q8_0" => Some(q8_0),
        "Q4_0" => Some(q4_0),
        "Q4_1" => Some(q4_1),
        _ => None,
    }
}

/// 1 / x, and 0 of 0.
fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

fn q8_0(group: &[f32], codes: &mut [u8; GROUP]) -> (f32, f32) {
    let scale = group.iter().fold(0.0f32, |most, value| most.max(value.abs())) / 127.0;
    let inverse = inverse(scale);
    codes.iter_mut().zip(group).for_each(|(code, value)| *code = ((value * inverse).round() + 128.0) as u8);
    (scale, 0.0)
}

fn q4_0(group: &[f32], codes: &mut [u8; GROUP]) -> (f32, f32) {
    let largest = group.iter().fold(0.0f32, |most, value| if value.abs() > most.abs() { *value } else { most });
    let scale = largest / -8.0;
    let inverse = inverse(scale);
    codes.iter_mut().zip(group).for_each(|(code, value)| *code = ((value * inverse + 8.5) as u8).min(15));
    (scale, 0.0)
}

fn q4_1(group: &[f32], codes: &mut [u8; GROUP]) -> (f32, f32) {
    let least = group.iter().copied().fold(f32::INFINITY, f32::min);
    let largest = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let scale = (largest - least) / 15.0;
    let inverse = inverse(scale);
    codes.iter_mut().zip(group).for_each(|(code, value)| *code = (((value - least) * inverse + 0.5) as u8).min(15));
    (scale, least)
}

/// The upper half of single precision, rounded to the nearest, ties to even.
fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    match value.is_nan() {
        true => (bits >> 16) as u16 | 64,
        false => ((bits + (0x7fff + (bits >> 16 & 1))) >> 16) as u16,
    }
}

/// Half precision, rounded to the nearest, ties to even; what is too large becomes infinite.
fn to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, size) = ((bits >> 16 & 0x8000) as u16, bits & 0x7fff_ffff);
    // The bits of a number that is shifted to the right by some, ties to even.
    let rounded = |mantissa: u32, shift: u32| {
        let half = 1 << (shift - 1);
        (mantissa + (half - 1) + (mantissa >> shift & 1)) >> shift
    };
    let half = match size >> 23 {
        255 => 0x7c00 | if size > 0x7f80_0000 { 0x200 } else { 0 },
        143.. => 0x7c00,
        // The exponent is rounded with the mantissa, which may carry over.
        113.. => rounded(size - (112 << 23), 13),
        102.. => rounded(size & 0x7f_ffff | 0x80_0000, 126 - (size >> 23)),
        _ => 0,
    };
    sign | half as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::half;

    #[test]
    fn halves_are_the_nearest() {
        for bits in 0..=u16::MAX {
            let value = half(bits.to_le_bytes());
            match value.is_nan() {
                true => assert!(half(to_half(value).to_le_bytes()).is_nan()),
                false => assert_eq!(to_half(value), bits, "{value}"),
            }
        }
        // Between two, the nearer; in the middle, the even one.
        assert_eq!(to_half(1.0 + 1.0 / 2048.0), 0x3c00);
        assert_eq!(to_half(1.0 + 3.0 / 2048.0), 0x3c02);
        assert_eq!(to_half(1.0 + 1.1 / 2048.0), 0x3c01);
        assert_eq!((to_half(65519.0), to_half(65520.0)), (0x7bff, 0x7c00));
        let least = 2f32.powi(-24);
        assert_eq!((to_half(least / 2.0), to_half(least * 0.51), to_half(-least)), (0, 1, 0x8001));
    }

    #[test]
    fn values_come_back_as_near_as_their_type_allows() {
        let values: Vec<f32> = (0..256).map(|i| ((i * 37 % 101) as f32 - 50.0) / 31.0).collect();
        for (name, most) in
            [("F32", 0.0), ("F16", 1e-3), ("BF16", 8e-3), ("Q8_0", 8e-3), ("Q4_0", 0.21), ("Q4_1", 0.12)]
        {
            let kind = TensorType::named(name).unwrap();
            assert!(kind.is_written());
            let bytes = kind.encode(&values).unwrap();
            let mut again = vec![0.0; values.len()];
            kind.decode(&bytes, &mut again);
            let worst = values.iter().zip(&again).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs()));
            assert!(worst <= most, "{name}: {worst}");
        }
        assert!(TensorType::named("Q6_K").unwrap().encode(&values).is_none());
        let zeros = TensorType::named("Q4_0").unwrap().encode(&[0.0; 32]).unwrap();
        assert_eq!(zeros[2..], [0x88; 16]);
    }
}
