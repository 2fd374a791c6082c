//! How weights are stored: as which bytes, of which type in a file of safetensors. The engine computes from f32, so a
//! storage turns f32 into bytes and bytes into f32.
//!
//! A storage decides alone how many bytes so many values take. One whose values share scales keeps these beside the
//! values of their group, in the same bytes. Numbers are little endian, as safetensors has them.

pub(crate) mod bf16;
pub(crate) mod f16;
// A module named f32 would hide the type.
#[path = "storage/f32.rs"]
mod single;

pub use bf16::Bf16;
pub use f16::F16;
pub use single::F32;

use crate::parallel;

/// A way to store weights.
pub trait Storage: Sync {
    /// Its name.
    fn key(&self) -> &'static str;

    /// The name of its type in safetensors.
    fn dtype(&self) -> &'static str;

    /// How many bytes so many values take.
    fn bytes(&self, values: usize) -> usize;

    /// The bytes of values: each rounded to the nearest that there is, of two equally near ones to the even one.
    fn encode(&self, values: &[f32]) -> Vec<u8>;

    /// The values of bytes, of which there have to be [`Self::bytes`].
    fn decode(&self, bytes: &[u8], values: &mut [f32]);
}

/// Every storage.
pub const STORAGES: &[&dyn Storage] = &[&F32, &Bf16, &F16];

/// The storage of a name.
pub fn find(key: &str) -> Option<&'static dyn Storage> {
    STORAGES.iter().copied().find(|storage| storage.key() == key)
}

/// Values of a piece of work.
const PIECE: usize = 1 << 14;

/// Encodes pieces of values on all threads, `size` bytes for each value.
fn encode_pieces(values: &[f32], size: usize, encode: impl Fn(&[f32], &mut [u8]) + Sync) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * size];
    let pieces = values.chunks(PIECE).zip(bytes.chunks_mut(PIECE * size)).collect();
    parallel::each(pieces, |_, (values, bytes)| encode(values, bytes));
    bytes
}

/// Decodes pieces of values on all threads, `size` bytes for each value.
fn decode_pieces(bytes: &[u8], values: &mut [f32], size: usize, decode: impl Fn(&[u8], &mut [f32]) + Sync) {
    assert_eq!(bytes.len(), values.len() * size, "bytes of {} values", values.len());
    let pieces = bytes.chunks(PIECE * size).zip(values.chunks_mut(PIECE)).collect();
    parallel::each(pieces, |_, (bytes, values)| decode(bytes, values));
}
