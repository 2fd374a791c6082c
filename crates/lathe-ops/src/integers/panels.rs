//! Codes in the order in which kernels read them.
//!
//! A panel has 16 outputs. It goes through the inputs in blocks of 16, and a block in four lines of 64 bytes, each four
//! inputs of all 16 outputs, those of an output side by side: the order of VNNI and of AMX. Codes of 8 bits are those
//! lines. Of 4 bits, a line is two: the low halves of its bytes, then the high ones. Of 6 bits, the low four bits are as
//! those of 4 bits, and a third line has the upper two: of the block's first line in bits 0 and 1, and so on.
//! What is beyond the last input or output is 0.

/// Outputs of a panel.
pub(super) const LANES: usize = 16;
/// Inputs of a block.
pub(super) const BLOCK: usize = 16;
/// Bytes of a line.
pub(crate) const LINE: usize = 64;

/// Blocks of so many inputs.
pub(super) fn blocks(inputs: usize) -> usize {
    inputs.div_ceil(BLOCK)
}

/// Bytes of a block.
pub(crate) const fn block_bytes(bits: u32) -> usize {
    32 * bits as usize
}

/// Bytes that are aligned to cache lines.
#[derive(Clone)]
pub(super) struct Lines {
    lines: Vec<Line>,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

impl Lines {
    /// So many zeros, or more up to a whole line.
    pub fn zeros(bytes: usize) -> Self {
        Self { lines: vec![Line([0; LINE]); bytes.div_ceil(LINE)] }
    }

    /// None yet, with room for so many bytes.
    pub fn with_room(bytes: usize) -> Self {
        Self { lines: Vec::with_capacity(bytes.div_ceil(LINE)) }
    }

    /// Replaces all from a byte on, which is the first of a line.
    pub fn replace_from(&mut self, bytes: usize, more: &Self) {
        assert!(bytes.is_multiple_of(LINE));
        self.lines.truncate(bytes / LINE);
        self.lines.extend_from_slice(&more.lines);
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: lines are 64 bytes each without gaps.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.lines.len() * LINE) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.lines.len() * LINE) }
    }
}

/// The codes of a block, a byte each: four lines.
pub(crate) type Codes = [[u8; LINE]; 4];

/// Packs the codes of a block.
pub(super) fn pack(bits: u32, codes: &Codes, out: &mut [u8]) {
    match bits {
        8 => out.copy_from_slice(codes.as_flattened()),
        _ => {
            for (pair, out) in codes.as_chunks::<2>().0.iter().zip(out.chunks_exact_mut(LINE)) {
                (0..LINE).for_each(|i| out[i] = pair[0][i] & 15 | pair[1][i] << 4);
            }
            if let (6, upper) = (bits, &mut out[2 * LINE..]) {
                for i in 0..LINE {
                    upper[i] = (0..4).fold(0, |all, line| all | codes[line][i] >> 4 << (2 * line));
                }
            }
        }
    }
}

/// The codes of a packed block.
#[inline(always)]
pub(crate) fn unpack(bits: u32, from: &[u8]) -> Codes {
    let mut codes = [[0; LINE]; 4];
    if bits == 8 {
        codes.as_flattened_mut().copy_from_slice(&from[..4 * LINE]);
        return codes;
    }
    for (pair, from) in codes.as_chunks_mut::<2>().0.iter_mut().zip(from.chunks_exact(LINE)) {
        for i in 0..LINE {
            (pair[0][i], pair[1][i]) = (from[i] & 15, from[i] >> 4);
        }
    }
    if bits == 6 {
        let upper = &from[2 * LINE..3 * LINE];
        for (line, codes) in codes.iter_mut().enumerate() {
            (0..LINE).for_each(|i| codes[i] |= (upper[i] >> (2 * line) & 3) << 4);
        }
    }
    codes
}

/// Packs a panel from the codes of up to 16 outputs, `depth` apart, a byte each.
pub(super) fn pack_panel(bits: u32, rows: &[u8], depth: usize, out: &mut [u8]) {
    for (block, out) in out.chunks_exact_mut(block_bytes(bits)).enumerate() {
        let mut codes = [[0; LINE]; 4];
        for (lane, row) in rows.chunks_exact(depth).enumerate() {
            for (code, i) in row[block * BLOCK..].iter().zip(0..BLOCK) {
                codes[i / 4][lane * 4 + i % 4] = *code;
            }
        }
        pack(bits, &codes, out);
    }
}

/// The codes of one output of a panel.
pub(super) fn unpack_row(bits: u32, panel: &[u8], lane: usize, out: &mut [u8]) {
    for (from, out) in panel.chunks_exact(block_bytes(bits)).zip(out.chunks_mut(BLOCK)) {
        let at = |line: usize, i: usize| {
            let place = lane * 4 + i;
            match bits {
                8 => from[line * LINE + place],
                _ => {
                    let low = from[line / 2 * LINE + place] >> (4 * (line % 2)) & 15;
                    low | if bits == 6 { (from[2 * LINE + place] >> (2 * line) & 3) << 4 } else { 0 }
                }
            }
        };
        out.iter_mut().enumerate().for_each(|(i, code)| *code = at(i / 4, i % 4));
    }
}

/// Writes a row's codes as a file has them: a stream of bits, the lowest first.
pub(super) fn to_stream(bits: u32, codes: &[u8], out: &mut [u8]) {
    match bits {
        8 => out.copy_from_slice(codes),
        4 => {
            for (codes, out) in codes.chunks(2).zip(out) {
                *out = codes[0] | codes.get(1).map_or(0, |code| code << 4);
            }
        }
        _ => {
            for (codes, out) in codes.chunks(4).zip(out.chunks_mut(3)) {
                let all = codes.iter().rev().fold(0u32, |all, &code| all << 6 | u32::from(code));
                out.copy_from_slice(&all.to_le_bytes()[..out.len()]);
            }
        }
    }
}

/// Reads a row's codes from a stream of bits.
pub(super) fn from_stream(bits: u32, stream: &[u8], codes: &mut [u8]) {
    match bits {
        8 => codes.copy_from_slice(stream),
        4 => {
            for (codes, byte) in codes.chunks_mut(2).zip(stream) {
                codes.iter_mut().zip([byte & 15, byte >> 4]).for_each(|(code, half)| *code = half);
            }
        }
        _ => {
            for (codes, bytes) in codes.chunks_mut(4).zip(stream.chunks(3)) {
                let all = bytes.iter().rev().fold(0u32, |all, &byte| all << 8 | u32::from(byte));
                codes.iter_mut().enumerate().for_each(|(i, code)| *code = (all >> (6 * i) & 63) as u8);
            }
        }
    }
}
