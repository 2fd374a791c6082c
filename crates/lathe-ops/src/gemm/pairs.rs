//! Matrices in bf16, in the order in which kernels read them.
//!
//! A kernel multiplies tiles of 256 pairs: neighbours in the depth of the product share 32 bits. A tile of A is 16 rows
//! by 16 pairs, a tile of B 16 pairs by 16 columns. What is beyond the edge of a matrix counts as 0.
//!
//! A number is one bf16, rounded; or three parts, each what the ones before it leave of the number, rounded: together
//! they have all 24 bits of an f32, where it is finite, below the largest bf16 (3.39e38) and above about 1e-33: parts that are
//! subnormal count as 0, and what is infinite becomes NaN. The parts of a tile follow one another, those of two tiles side by side in turn.

use super::matrix::Mat;
use std::arch::x86_64::*;

/// Pairs of a tile.
pub(super) const TILE: usize = 256;
/// Rows of a tile of A, columns of a tile of B.
pub(super) const SIDE: usize = 16;
/// Depth of a tile.
pub(super) const DEPTH: usize = 32;
/// Rows of a panel of A, columns of a panel of B: two tiles.
pub(super) const PANEL: usize = 2 * SIDE;

/// How many tiles a depth has.
pub(super) fn steps(depth: usize) -> usize {
    depth.div_ceil(DEPTH)
}

/// Fills a panel of B: for each step two tiles, of the 32 columns from `first` on.
///
/// # Safety
/// The CPU must have AVX512-BF16.
pub(super) unsafe fn fill_b<const PARTS: usize>(b: Mat<'_>, first: usize, out: &mut [u32]) {
    let b = b.t(); // columns by depth
    for (step, out) in out.chunks_exact_mut(2 * PARTS * TILE).enumerate() {
        // SAFETY: the caller's.
        unsafe { fill_step::<PARTS>(b, (first, 2), step * DEPTH, Order::Pairs, out) };
    }
}

/// Fills a panel of A: for each step one tile for each 16 of `rows` (at most 32) rows from `first` on, of the depth from
/// `depth` on.
///
/// # Safety
/// The CPU must have AVX512-BF16.
pub(super) unsafe fn fill_a<const PARTS: usize>(a: Mat<'_>, first: usize, rows: usize, depth: usize, out: &mut [u32]) {
    let tiles = rows.div_ceil(SIDE);
    for (step, out) in out.chunks_exact_mut(tiles * PARTS * TILE).enumerate() {
        // SAFETY: the caller's.
        unsafe { fill_step::<PARTS>(a, (first, tiles), depth + step * DEPTH, Order::Rows, out) };
    }
}

/// Fills the tiles of one step.
unsafe fn fill_step<const PARTS: usize>(
    from: Mat<'_>,
    (first, tiles): (usize, usize),
    depth: usize,
    order: Order,
    out: &mut [u32],
) {
    for half in 0..tiles {
        // SAFETY: the caller's.
        unsafe { fill_tile::<PARTS>(from, first + half * SIDE, depth, order, &mut out[half * TILE..], tiles * TILE) };
    }
}

/// What stands side by side in a tile.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// The pairs of a row: A.
    Rows,
    /// A pair of every row: B, as the transpose.
    Pairs,
}

/// The 16 lines of each part.
type Lines<const PARTS: usize> = [[__m512i; SIDE]; PARTS];

/// Fills a tile from 16 rows and 32 columns of a matrix; its parts begin `apart` pairs from one another.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn fill_tile<const PARTS: usize>(
    from: Mat<'_>,
    row: usize,
    col: usize,
    order: Order,
    out: &mut [u32],
    apart: usize,
) {
    let rows = SIDE.min(from.rows().saturating_sub(row));
    let cols = DEPTH.min(from.cols().saturating_sub(col));
    let mut lines = [[_mm512_setzero_si512(); SIDE]; PARTS];
    let read = if rows < SIDE || cols < DEPTH {
        let mut whole = [0.0f32; SIDE * DEPTH];
        for r in 0..rows {
            for c in 0..cols {
                whole[r * DEPTH + c] = from.at(row + r, col + c);
            }
        }
        // SAFETY: 16 rows of 32.
        unsafe { read_rows(whole.as_ptr(), DEPTH, &mut lines) };
        Order::Rows
    } else {
        let (pointer, stride) = from.block(row, col, SIDE, DEPTH);
        if from.row_major() {
            // SAFETY: `block` says that there are 16 rows of 32.
            unsafe { read_rows(pointer, stride, &mut lines) };
            Order::Rows
        } else {
            // SAFETY: `block` says that there are 32 columns of 16.
            unsafe { read_columns(pointer, stride, &mut lines) };
            Order::Pairs
        }
    };
    for (part, lines) in lines.iter_mut().enumerate() {
        if order != read {
            transpose(lines);
        }
        write(lines, &mut out[part * apart..]);
    }
}

/// The pairs of 16 rows of 32 numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn read_rows<const PARTS: usize>(from: *const f32, stride: usize, lines: &mut Lines<PARTS>) {
    for i in 0..SIDE {
        // SAFETY: the row has 32 numbers.
        let (low, high) =
            unsafe { (_mm512_loadu_ps(from.add(i * stride)), _mm512_loadu_ps(from.add(i * stride + SIDE))) };
        for (lines, part) in lines.iter_mut().zip(split::<PARTS>(low, high)) {
            lines[i] = part;
        }
    }
}

/// For each pair of columns, those pairs of all 16 rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn read_columns<const PARTS: usize>(from: *const f32, stride: usize, lines: &mut Lines<PARTS>) {
    // 32 words: those of two columns in turn.
    const TURNS: [u16; 32] = {
        let mut turns = [0; 32];
        let mut i = 0;
        while i < 32 {
            turns[i] = (i / 2 + 16 * (i % 2)) as u16;
            i += 1;
        }
        turns
    };
    // SAFETY: 32 words.
    let turns = unsafe { _mm512_loadu_si512(TURNS.as_ptr().cast()) };
    for i in 0..SIDE {
        // SAFETY: the columns have 16 numbers.
        let (even, odd) =
            unsafe { (_mm512_loadu_ps(from.add(2 * i * stride)), _mm512_loadu_ps(from.add((2 * i + 1) * stride))) };
        for (lines, part) in lines.iter_mut().zip(split::<PARTS>(even, odd)) {
            lines[i] = _mm512_permutexvar_epi16(turns, part);
        }
    }
}

/// The parts of 16 numbers and of 16 more: each the nearest bf16 to what the parts before it leave, which is exact.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn split<const PARTS: usize>(mut low: __m512, mut high: __m512) -> [__m512i; PARTS] {
    let mut parts = [_mm512_setzero_si512(); PARTS];
    for part in 0..PARTS {
        let rounded = round(low, high);
        parts[part] = rounded;
        if part + 1 < PARTS {
            let as_f32 = |half| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half)));
            low = _mm512_sub_ps(low, as_f32(_mm512_castsi512_si256(rounded)));
            high = _mm512_sub_ps(high, as_f32(_mm512_extracti64x4_epi64::<1>(rounded)));
        }
    }
    parts
}

/// Rounds to the nearest bf16, ties to even: 16 numbers, then 16 more.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn round(low: __m512, high: __m512) -> __m512i {
    let rounded = _mm512_cvtne2ps_pbh(high, low);
    // SAFETY: both are 512 bits.
    unsafe { std::mem::transmute(rounded) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn write(lines: &[__m512i; SIDE], out: &mut [u32]) {
    assert!(out.len() >= TILE);
    for (i, line) in lines.iter().enumerate() {
        // SAFETY: 16 lines of 16, which `out` has, as asserted above.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(SIDE * i).cast(), *line) };
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(lines: &mut [__m512i; SIDE]) {
    let mut floats = [_mm512_setzero_ps(); SIDE];
    for i in 0..SIDE {
        floats[i] = _mm512_castsi512_ps(lines[i]);
    }
    let floats = super::pack::transpose_registers(floats);
    for i in 0..SIDE {
        lines[i] = _mm512_castps_si512(floats[i]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{self, Level};

    /// Round to nearest, ties to even; subnormal numbers count as 0, as the instruction has it.
    fn rounded(x: f32) -> u16 {
        let bits = x.to_bits();
        let high = (bits >> 16) as u16;
        match x.classify() {
            std::num::FpCategory::Nan => high | 0x40,
            std::num::FpCategory::Subnormal => high & 0x8000,
            _ => ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16,
        }
    }

    #[test]
    fn tiles_hold_every_number_rounded() {
        if cpu::level() < Level::Avx512Bf16 {
            return;
        }
        let special =
            [f32::NAN, f32::INFINITY, -f32::INFINITY, f32::MAX, 1e-40, -1e-40, -0.0, 1.0 + 1.0 / 256.0, 1.011_718_8];
        let number = |i: usize| special.get(i % 61).copied().unwrap_or((i * 7919 % 1013) as f32 / 37.0 - 11.0);
        let data: Vec<f32> = (0..70 * 90).map(number).collect();
        for (rows, cols) in [(70, 90), (33, 64), (16, 32), (1, 1), (15, 31), (17, 3)] {
            for transposed in [false, true] {
                let data = &data[..rows * cols];
                let mat = if transposed { Mat::new(data, cols, rows).t() } else { Mat::new(data, rows, cols) };
                for (row, col) in [(0, 0), (16, 32), (rows / 2, cols / 2)] {
                    let mut tiles = [[1u32; TILE]; 2];
                    // SAFETY: the CPU has AVX512-BF16.
                    unsafe {
                        fill_step::<1>(mat, (row, 1), col, Order::Rows, &mut tiles[0]);
                        fill_step::<1>(mat, (row, 1), col, Order::Pairs, &mut tiles[1]);
                    }
                    for (r, pair) in (0..SIDE).flat_map(|r| (0..SIDE).map(move |pair| (r, pair))) {
                        let at = |c: usize| {
                            let inside = row + r < rows && col + c < cols;
                            if inside { rounded(mat.at(row + r, col + c)) } else { 0 }
                        };
                        let expected = u32::from(at(2 * pair)) | u32::from(at(2 * pair + 1)) << 16;
                        assert_eq!(tiles[0][r * SIDE + pair], expected, "{rows} {cols} {r} {pair}");
                        assert_eq!(tiles[1][pair * SIDE + r], expected, "{rows} {cols} {r} {pair}");
                    }
                }
            }
        }
    }

    /// Three parts of a number, each at most half of the last bit of the one before, are the number.
    #[test]
    fn three_parts_are_the_number() {
        if cpu::level() < Level::Avx512Bf16 {
            return;
        }
        let special = [0.0, -0.0, 1.0, f32::MAX / 2.0, -1e-30, 1.0 / 3.0, 16_777_215.0, 1.0 + f32::EPSILON];
        let number = |i: usize| special.get(i).copied().unwrap_or(((i * 7919 % 1013) as f32 / 37.0 - 11.0).exp());
        let data: Vec<f32> = (0..SIDE * DEPTH).map(number).collect();
        for transposed in [false, true] {
            let mat = if transposed { Mat::new(&data, DEPTH, SIDE).t() } else { Mat::new(&data, SIDE, DEPTH) };
            let mut tiles = [[0u32; TILE]; 3];
            // SAFETY: the CPU has AVX512-BF16.
            unsafe { fill_step::<3>(mat, (0, 1), 0, Order::Rows, tiles.as_flattened_mut()) };
            for (r, c) in (0..SIDE).flat_map(|r| (0..DEPTH).map(move |c| (r, c))) {
                let part = |p: usize| f32::from_bits(tiles[p][r * SIDE + c / 2] >> (16 * (c % 2)) << 16);
                let x = mat.at(r, c);
                assert_eq!(f64::from(part(0)) + f64::from(part(1)) + f64::from(part(2)), f64::from(x), "{x}");
                assert!(part(1).abs() <= x.abs() / 256.0 && part(2).abs() <= part(1).abs() / 256.0, "{x}");
            }
        }
    }
}
