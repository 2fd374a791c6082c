//! Half precision (IEEE 754 binary16): a sign, 5 bits of exponent and 10 of mantissa. Without branches, so that the
//! loops become vectors: every case is computed, and one is taken.

use super::{Storage, decode_pieces, encode_pieces};
use crate::simd::simd;

/// Two bytes for each value, from 6e-8 to 65504; what is larger becomes infinite.
#[derive(Debug, Clone, Copy)]
pub struct F16;

impl Storage for F16 {
    fn key(&self) -> &'static str {
        "f16"
    }

    fn dtype(&self) -> &'static str {
        "F16"
    }

    fn bytes(&self, values: usize) -> usize {
        2 * values
    }

    fn encode(&self, values: &[f32]) -> Vec<u8> {
        encode_pieces(values, 2, encode)
    }

    fn decode(&self, bytes: &[u8], values: &mut [f32]) {
        decode_pieces(bytes, values, 2, decode);
    }
}

/// Exponents are this much larger in f32, where they begin at bit 23.
const BIAS: u32 = (127 - 15) << 23;
/// 2^-14, the least normal number of f16, as f32.
const LEAST: u32 = BIAS + (1 << 23);
const INFINITE: u32 = 0x7f80_0000;

simd! {
    fn encode(values: &[f32], bytes: &mut [u8]) {
        for (value, bytes) in values.iter().zip(bytes.as_chunks_mut().0) {
            *bytes = to_bits(*value).to_le_bytes();
        }
    }
}

/// The bits of the nearest f16.
#[inline(always)]
pub(crate) fn to_bits(value: f32) -> u16 {
    let (sign, size) = (value.to_bits() >> 16 & 0x8000, value.to_bits() & 0x7fff_ffff);
    // What is cut off rounds up from more than a half, and from a half if that makes the rest even.
    let normal = size.wrapping_sub(BIAS).wrapping_add(0xfff + (size >> 13 & 1)) >> 13;
    // Beside 0.5 the last bit of an f32 is worth 2^-24, as is that of a subnormal f16.
    let small = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let nan = 0x7e00 | (size >> 13 & 0x3ff);
    let half = if size < LEAST { small } else { normal };
    let half = if size >= 65536.0f32.to_bits() { 0x7c00 } else { half };
    let half = if size > INFINITE { nan } else { half };
    (sign | half) as u16
}

simd! {
    fn decode(bytes: &[u8], values: &mut [f32]) {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = from_bits(u16::from_le_bytes(*bytes));
        }
    }
}

/// The value of the bits of an f16.
#[inline(always)]
pub(crate) fn from_bits(bits: u16) -> f32 {
    let bits = u32::from(bits);
    let (sign, size) = ((bits & 0x8000) << 16, (bits & 0x7fff) << 13);
    let normal = size + BIAS;
    // A subnormal number is the mantissa above 2^-14, less 2^-14.
    let small = (f32::from_bits(size + LEAST) - f32::from_bits(LEAST)).to_bits();
    let float = if size < 1 << 23 { small } else { normal };
    let float = if size >= 31 << 23 { size | INFINITE } else { float };
    f32::from_bits(sign | float)
}
