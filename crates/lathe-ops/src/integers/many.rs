//! Many rows by two panels at a time, of codes a byte each: AVX512-VNNI, and what follows on tiles.

use super::activations::Side;
use super::kernel::Place;
use super::panels::{BLOCK, LANES, LINE};
use super::vnni::{quad, store};
use std::arch::x86_64::*;

/// The most rows where a row of weights has one scale: 16 sums in registers, which is enough to keep both units for them
/// busy.
pub(super) const WHOLE: usize = 8;
/// The most rows with groups: 12 sums and 12 results.
pub(super) const GROUPED: usize = 6;

/// Rows by two panels.
pub(super) struct Pair {
    /// Codes of the first panel, and bytes from there to those of the second: 0 where there is none, and the first is
    /// computed twice.
    pub codes: *const u8,
    pub second: usize,
    /// Scales of the first panel, 16 for each group, and floats from there to those of the second.
    pub scales: *const f32,
    pub second_scales: usize,
    /// Floats from the scales of a group to those of the next; 0 where there is one for all.
    pub step: usize,
    /// Floats from scales to offsets, where there are any.
    pub offsets: Option<usize>,
    /// Activations, as [`Kind::Panels`](super::activations::Kind) or `Tiles` has them.
    pub x: *const u8,
    /// What goes with the groups of activations: for each group that of each row.
    pub sides: *const Side,
    /// Groups of activations, and blocks of a group and of all.
    pub groups: usize,
    pub span: usize,
    pub blocks: usize,
}

/// Computes up to [`WHOLE`] or [`GROUPED`] rows.
///
/// # Safety
/// The CPU must have AVX-512 F, BW and VNNI; there must be so many rows of activations and of C, and panels as deep.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn many(rows: usize, pair: &Pair, place: &Place<'_>) {
    // SAFETY: the caller's.
    unsafe {
        match (pair.groups, rows) {
            (1, 1) => rows_of::<false, 1>(pair, place),
            (1, 2) => rows_of::<false, 2>(pair, place),
            (1, 3) => rows_of::<false, 3>(pair, place),
            (1, 4) => rows_of::<false, 4>(pair, place),
            (1, 5) => rows_of::<false, 5>(pair, place),
            (1, 6) => rows_of::<false, 6>(pair, place),
            (1, 7) => rows_of::<false, 7>(pair, place),
            (1, 8) => rows_of::<false, 8>(pair, place),
            (_, 1) => rows_of::<true, 1>(pair, place),
            (_, 2) => rows_of::<true, 2>(pair, place),
            (_, 3) => rows_of::<true, 3>(pair, place),
            (_, 4) => rows_of::<true, 4>(pair, place),
            (_, 5) => rows_of::<true, 5>(pair, place),
            (_, 6) => rows_of::<true, 6>(pair, place),
            _ => unreachable!("no more rows than there are registers for"),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn rows_of<const SEVERAL: bool, const ROWS: usize>(pair: &Pair, place: &Place<'_>) {
    let (mut codes, mut x, mut sides, mut scales) = (pair.codes, pair.x, pair.sides, pair.scales);
    let mut left = pair.blocks;
    let mut results = [[_mm512_setzero_ps(); ROWS]; 2];
    // SAFETY: there are so many blocks of codes, and of activations of each row, and scales for each group.
    unsafe {
        for _ in 0..if SEVERAL { pair.groups } else { 1 } {
            let mut sums = [[_mm512_setzero_si512(); ROWS]; 2];
            for r in 0..ROWS {
                let start = _mm512_set1_epi32((*sides.add(r)).start);
                (sums[0][r], sums[1][r]) = (start, start);
            }
            let blocks = if SEVERAL { pair.span.min(left) } else { left };
            left -= blocks;
            for _ in 0..blocks {
                // Written out: in a loop over lines, sums of many rows went through memory.
                line(codes, pair.second, x, &mut sums);
                line(codes.add(LINE), pair.second, x.add(4 * ROWS), &mut sums);
                line(codes.add(2 * LINE), pair.second, x.add(8 * ROWS), &mut sums);
                line(codes.add(3 * LINE), pair.second, x.add(12 * ROWS), &mut sums);
                codes = codes.add(4 * LINE);
                x = x.add(ROWS * BLOCK);
            }
            for half in 0..2 {
                let scales = scales.add(half * pair.second_scales);
                add(sides, scales, pair.offsets, &sums[half], &mut results[half]);
            }
            sides = sides.add(ROWS);
            scales = scales.add(pair.step);
        }
        // The mask of a panel that is not there is empty.
        store(place, 0, &results[0]);
        store(place, 1, &results[1]);
    }
}

/// Adds the products of a line of two panels.
#[inline(always)]
unsafe fn line<const ROWS: usize>(codes: *const u8, second: usize, x: *const u8, sums: &mut [[__m512i; ROWS]; 2]) {
    // SAFETY: the caller's: a line of each panel, four activations of each row, and VNNI.
    unsafe {
        let left = _mm512_loadu_si512(codes.cast());
        let right = _mm512_loadu_si512(codes.add(second).cast());
        for r in 0..ROWS {
            let x = quad(x.add(4 * r));
            sums[0][r] = _mm512_dpbusd_epi32(sums[0][r], left, x);
            sums[1][r] = _mm512_dpbusd_epi32(sums[1][r], right, x);
        }
    }
}

/// Adds the sums of a group to the results of rows, for a panel.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add<const ROWS: usize>(
    sides: *const Side,
    scales: *const f32,
    offsets: Option<usize>,
    sums: &[__m512i; ROWS],
    results: &mut [__m512; ROWS],
) {
    // SAFETY: the caller's: what goes with each row, and 16 scales, and offsets where there are any.
    unsafe {
        let factors = _mm512_loadu_ps(scales);
        for r in 0..ROWS {
            let scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r]), factors);
            results[r] = _mm512_fmadd_ps(scaled, _mm512_set1_ps((*sides.add(r)).scale), results[r]);
        }
        if let Some(offsets) = offsets {
            let offsets = _mm512_loadu_ps(scales.add(offsets));
            for r in 0..ROWS {
                results[r] = _mm512_fmadd_ps(offsets, _mm512_set1_ps((*sides.add(r)).sum), results[r]);
            }
        }
    }
}

/// The results of rows from sums of tiles, of one group, which do not begin with what they should.
///
/// # Safety
/// The CPU must have AVX-512 F; there must be so many rows of sums, of C, and of what goes with activations.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn scale(rows: usize, pair: &Pair, sums: &[[i32; 2 * LANES]], place: &Place<'_>) {
    for half in 0..if pair.second > 0 { 2 } else { 1 } {
        for (row, sums) in sums.iter().enumerate().take(rows) {
            // SAFETY: a row, its only group, and 16 sums for each panel.
            unsafe {
                let side = pair.sides.add(row);
                let start = _mm512_set1_epi32((*side).start);
                let sums = _mm512_add_epi32(start, _mm512_loadu_si512(sums.as_ptr().add(half * LANES).cast()));
                let mut results = [_mm512_setzero_ps()];
                add(side, pair.scales.add(half * pair.second_scales), pair.offsets, &[sums], &mut results);
                store(&place.row(row), half, &results);
            }
        }
    }
}
