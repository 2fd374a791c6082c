//! Quantised blocks: small whole numbers, groups of which share a scale. Every type becomes the same here,
//!
//! ```text
//! value = scale * code + offset        0 <= code < 2^bits
//! ```
//!
//! where a symmetric type's offset is -scale * 2^(bits-1). That loses nothing: scales have few bits, so that products and
//! sums round as those of the type itself.
//!
//! Types named `_0` and `_1` have blocks of one group of 32, whose lower nibbles are the first half and whose upper
//! nibbles are the second. Those named `_K` have blocks of 256, whose scales are whole numbers times those of the block.

/// Values of the largest block.
pub const MAX_BLOCK: usize = 256;
/// Groups of the block that has most.
pub const MAX_GROUPS: usize = 16;

/// What the blocks of a type hold.
#[derive(Debug)]
pub struct Groups {
    /// Bits of a code.
    pub bits: u32,
    /// Values of a group.
    pub size: usize,
    /// Whether the offset follows from the scale.
    pub symmetric: bool,
    pub(crate) unpack: fn(&[u8], &mut Unpacked),
}

impl Groups {
    /// Unpacks a block.
    pub fn unpack(&self, block: &[u8], unpacked: &mut Unpacked) {
        (self.unpack)(block, unpacked);
    }
}

/// The codes of a block, and scale and offset of each of its groups; what is beyond them is of blocks before.
#[derive(Debug, Clone)]
pub struct Unpacked {
    /// Codes, in the order of the values.
    pub codes: [u8; MAX_BLOCK],
    /// Scales.
    pub scales: [f32; MAX_GROUPS],
    /// Offsets.
    pub offsets: [f32; MAX_GROUPS],
}

impl Default for Unpacked {
    fn default() -> Self {
        Self { codes: [0; MAX_BLOCK], scales: [0.0; MAX_GROUPS], offsets: [0.0; MAX_GROUPS] }
    }
}

/// Half precision: a sign, 5 bits of exponent and 10 of mantissa.
pub(crate) fn half(bytes: [u8; 2]) -> f32 {
    let bits = u32::from(u16::from_le_bytes(bytes));
    let (sign, exponent, mantissa) = ((bits & 0x8000) << 16, bits >> 10 & 31, bits & 1023);
    let size = match exponent {
        0 => (mantissa as f32 / (1 << 24) as f32).to_bits(),
        31 => 0x7f80_0000 | mantissa << 13,
        _ => (exponent + 127 - 15) << 23 | mantissa << 13,
    };
    f32::from_bits(sign | size)
}

/// A scale at a place of a block.
fn half_at(block: &[u8], at: usize) -> f32 {
    half([block[at], block[at + 1]])
}

/// Codes of 4 bits: lower nibbles first, then upper ones.
fn nibbles(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(bytes.len());
    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
}

/// 32 signed bytes.
pub(crate) fn q8_0(block: &[u8], out: &mut Unpacked) {
    let scale = half_at(block, 0);
    (out.scales[0], out.offsets[0]) = (scale, -128.0 * scale);
    out.codes.iter_mut().zip(&block[2..34]).for_each(|(code, byte)| *code = byte ^ 0x80);
}

pub(crate) fn q4_0(block: &[u8], out: &mut Unpacked) {
    let scale = half_at(block, 0);
    (out.scales[0], out.offsets[0]) = (scale, -8.0 * scale);
    nibbles(&block[2..18], &mut out.codes[..32]);
}

pub(crate) fn q4_1(block: &[u8], out: &mut Unpacked) {
    (out.scales[0], out.offsets[0]) = (half_at(block, 0), half_at(block, 2));
    nibbles(&block[4..20], &mut out.codes[..32]);
}

/// Bit i of four bytes is the fifth bit of code i; the nibbles follow.
fn fives(bytes: &[u8], codes: &mut [u8]) {
    let fifths = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    nibbles(&bytes[4..20], codes);
    codes.iter_mut().enumerate().for_each(|(i, code)| *code |= ((fifths >> i & 1) as u8) << 4);
}

pub(crate) fn q5_0(block: &[u8], out: &mut Unpacked) {
    let scale = half_at(block, 0);
    (out.scales[0], out.offsets[0]) = (scale, -16.0 * scale);
    fives(&block[2..22], &mut out.codes[..32]);
}

pub(crate) fn q5_1(block: &[u8], out: &mut Unpacked) {
    (out.scales[0], out.offsets[0]) = (half_at(block, 0), half_at(block, 2));
    fives(&block[4..24], &mut out.codes[..32]);
}

/// Scales and offsets of eight groups: two of half precision, times 6 bits for each group. The first four groups have
/// theirs in the lower bits of eight bytes; the others have four in the nibbles of four bytes, and the upper two where
/// the first four left room.
fn scales(block: &[u8], out: &mut Unpacked) {
    let (scale, least) = (half_at(block, 0), half_at(block, 2));
    let packed = &block[4..16];
    for group in 0..8 {
        let (factor, shift) = match group {
            0..4 => (packed[group] & 63, packed[group + 4] & 63),
            _ => {
                let [upper_factor, upper_shift] = [packed[group - 4] >> 6, packed[group] >> 6];
                (packed[group + 4] & 15 | upper_factor << 4, packed[group + 4] >> 4 | upper_shift << 4)
            }
        };
        out.scales[group] = scale * f32::from(factor);
        out.offsets[group] = -(least * f32::from(shift));
    }
}

/// Four times 32 bytes, each of which holds two groups.
fn nibbles_of_eight(bytes: &[u8], codes: &mut [u8]) {
    bytes.chunks_exact(32).zip(codes.chunks_exact_mut(64)).for_each(|(bytes, codes)| nibbles(bytes, codes));
}

pub(crate) fn q4_k(block: &[u8], out: &mut Unpacked) {
    scales(block, out);
    nibbles_of_eight(&block[16..144], &mut out.codes);
}

/// As with 4 bits; bit g of 32 bytes is the fifth bit of group g.
pub(crate) fn q5_k(block: &[u8], out: &mut Unpacked) {
    scales(block, out);
    nibbles_of_eight(&block[48..176], &mut out.codes);
    for (group, codes) in out.codes.chunks_exact_mut(32).enumerate() {
        codes.iter_mut().zip(&block[16..48]).for_each(|(code, fifths)| *code |= (fifths >> group & 1) << 4);
    }
}

/// Two halves of 128: the lower 4 bits of the first 64 and of the second 64 in the nibbles of 64 bytes, and the upper 2
/// bits of each quarter in 32 bytes. Then a signed factor for each group, and the scale of the block.
pub(crate) fn q6_k(block: &[u8], out: &mut Unpacked) {
    let (lower, upper, factors) = (&block[..128], &block[128..192], &block[192..208]);
    let scale = half_at(block, 208);
    for (group, factor) in factors.iter().enumerate() {
        out.scales[group] = scale * f32::from(*factor as i8);
        out.offsets[group] = -32.0 * out.scales[group];
    }
    for (half, codes) in out.codes.chunks_exact_mut(128).enumerate() {
        nibbles(&lower[64 * half..][..64], codes);
        let upper = &upper[32 * half..][..32];
        for (quarter, codes) in codes.chunks_exact_mut(32).enumerate() {
            codes.iter_mut().zip(upper).for_each(|(code, bits)| *code |= (bits >> (2 * quarter) & 3) << 4);
        }
    }
}
