//! Single precision: the values as they are.

use super::{Storage, decode_pieces, encode_pieces};

/// Four bytes for each value.
#[derive(Debug, Clone, Copy)]
pub struct F32;

impl Storage for F32 {
    fn key(&self) -> &'static str {
        "f32"
    }

    fn dtype(&self) -> &'static str {
        "F32"
    }

    fn bytes(&self, values: usize) -> usize {
        4 * values
    }

    fn encode(&self, values: &[f32]) -> Vec<u8> {
        encode_pieces(values, 4, |values, bytes| {
            values.iter().zip(bytes.as_chunks_mut().0).for_each(|(value, bytes)| *bytes = value.to_le_bytes());
        })
    }

    fn decode(&self, bytes: &[u8], values: &mut [f32]) {
        decode_pieces(bytes, values, 4, |bytes, values| {
            values.iter_mut().zip(bytes.as_chunks().0).for_each(|(value, bytes)| *value = f32::from_le_bytes(*bytes));
        });
    }
}
