//! bfloat16: the upper half of an f32, that is its sign, its 8 bits of exponent and 7 of its mantissa.

use super::{Storage, decode_pieces, encode_pieces};
use crate::simd::simd;

/// Two bytes for each value, with the range of f32.
#[derive(Debug, Clone, Copy)]
pub struct Bf16;

impl Storage for Bf16 {
    fn key(&self) -> &'static str {
        "bf16"
    }

    fn dtype(&self) -> &'static str {
        "BF16"
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

simd! {
    fn encode(values: &[f32], bytes: &mut [u8]) {
        for (value, bytes) in values.iter().zip(bytes.as_chunks_mut().0) {
            *bytes = to_bits(*value).to_le_bytes();
        }
    }
}

/// The bits of the nearest bf16.
#[inline(always)]
pub(crate) fn to_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    // What is cut off rounds up from more than a half, and from a half if that makes the rest even.
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let nan = bits >> 16 | 0x40;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { nan } else { rounded }) as u16
}

simd! {
    fn decode(bytes: &[u8], values: &mut [f32]) {
        for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
        }
    }
}
