//! AVX512-VNNI: four products of bytes and their sum in one instruction, codes as unsigned bytes by activations as
//! signed ones.

use super::activations::Side;
use super::kernel::{Numbers, Place, Task};
use super::panels::{self, LANES, LINE};
use std::arch::x86_64::*;

/// The most rows of [`few`].
pub(super) const FEW: usize = 8;
/// How many bytes before they are read codes are fetched.
const AHEAD: usize = 4096;

/// Calls `f::<first, rows>(..)`.
macro_rules! for_rows {
    ($rows:expr, $f:ident, $first:literal, $arguments:tt, [$($n:literal)*]) => {
        match $rows {
            // SAFETY: the caller's.
            $($n => unsafe { $f::<$first, $n>$arguments },)*
            _ => unreachable!("a task has no more rows than its kernel"),
        }
    };
}

/// Up to 8 rows by one panel: codes come from memory once, in one stream.
///
/// # Safety
/// The CPU must have AVX-512 F, BW and VNNI, and the task and the place must hold what so many rows need.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn few(rows: usize, task: &Task<'_>, place: &Place<'_>) {
    match task.bits {
        4 => for_rows!(rows, few_of, 4, (task, place), [1 2 3 4 5 6 7 8]),
        6 => for_rows!(rows, few_of, 6, (task, place), [1 2 3 4 5 6 7 8]),
        _ => for_rows!(rows, few_of, 8, (task, place), [1 2 3 4 5 6 7 8]),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn few_of<const BITS: u32, const ROWS: usize>(task: &Task<'_>, place: &Place<'_>) {
    // Sums that wait for one another are slow: few rows have several each.
    let split = if ROWS == 1 { 4 } else { 2 / ROWS.min(2) };
    let size = panels::block_bytes(BITS);
    let blocks = task.codes.len() / size;
    let mut codes = task.codes.as_ptr();
    let mut x = task.x.as_ptr();
    let mut results = [_mm512_setzero_ps(); ROWS];
    // SAFETY: there are so many blocks of codes, and of activations of each row.
    unsafe {
        for group in 0..task.x_groups {
            let mut sums = [[_mm512_setzero_si512(); 4]; ROWS];
            for r in 0..ROWS {
                sums[r][0] = _mm512_set1_epi32(side(task, r, group).start);
            }
            for _ in 0..task.span.min(blocks - group * task.span) {
                for line in 0..size / LINE {
                    _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(AHEAD + line * LINE).cast());
                }
                let lines = lines::<BITS>(codes);
                for r in 0..ROWS {
                    for line in 0..4 {
                        let x = quad(x.add(r * task.stride + 4 * line));
                        sums[r][line % split] = _mm512_dpbusd_epi32(sums[r][line % split], lines[line], x);
                    }
                }
                codes = codes.add(size);
                x = x.add(panels::BLOCK);
            }
            for r in 0..ROWS {
                let [a, b, c, d] = sums[r];
                sums[r][0] = match split {
                    4 => _mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, d)),
                    2 => _mm512_add_epi32(a, b),
                    _ => a,
                };
            }
            add(task, group, &sums.map(|sums| sums[0]), &mut results);
        }
        store(place, 0, &results);
    }
}

/// Four activations, for every output.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn quad(x: *const u8) -> __m512i {
    // SAFETY: the caller's.
    _mm512_set1_epi32(unsafe { x.cast::<i32>().read_unaligned() })
}

// Loops over rows have small bodies without branches: where one is not unrolled, sums go through memory everywhere.

/// Stores or adds the results of rows and a panel.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn store<const ROWS: usize>(place: &Place<'_>, panel: usize, results: &[__m512; ROWS]) {
    let (c, stride, mask) = place.lines(panel);
    // SAFETY: the caller's: C has so many rows. The mask keeps to its columns.
    unsafe {
        if place.accumulate() {
            for r in 0..ROWS {
                let c = c.wrapping_add(r * stride);
                _mm512_mask_storeu_ps(c, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c), results[r]));
            }
        } else {
            for r in 0..ROWS {
                _mm512_mask_storeu_ps(c.wrapping_add(r * stride), mask, results[r]);
            }
        }
    }
}

/// What goes with a group of a row of activations.
#[inline(always)]
unsafe fn side<'a>(task: &Task<'a>, row: usize, group: usize) -> &'a Side {
    // SAFETY: the caller's: a row and a group of the task.
    unsafe { task.sides.get_unchecked(row * task.x_groups + group) }
}

/// Adds the sums of a group to the results of rows.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add<const ROWS: usize>(task: &Task<'_>, group: usize, sums: &[__m512i; ROWS], results: &mut [__m512; ROWS]) {
    // SAFETY: the caller's.
    unsafe {
        let (scales, offsets) = numbers(task, group);
        for r in 0..ROWS {
            let scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r]), scales);
            results[r] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(side(task, r, group).scale), results[r]);
        }
        if let Some(offsets) = offsets {
            for r in 0..ROWS {
                results[r] = _mm512_fmadd_ps(offsets, _mm512_set1_ps(side(task, r, group).sum), results[r]);
            }
        }
    }
}

/// The scales and offsets of a group.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn numbers(task: &Task<'_>, group: usize) -> (__m512, Option<__m512>) {
    let group = if task.groups == 1 { 0 } else { group };
    let get = |group: usize| {
        // SAFETY: the caller's: the group is one of the panel.
        unsafe {
            match task.numbers {
                Numbers::Rows(numbers) => _mm512_loadu_ps(numbers.as_ptr().add(group * LANES)),
                Numbers::Groups(numbers) => {
                    _mm512_cvtph_ps(_mm256_loadu_si256(numbers.as_ptr().add(group * LANES).cast()))
                }
            }
        }
    };
    (get(group), task.offset.then(|| get(task.groups + group)))
}

/// The four lines of a block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn lines<const BITS: u32>(from: *const u8) -> [__m512i; 4] {
    // SAFETY: the caller's: a block.
    let line = |i: usize| unsafe { _mm512_loadu_si512(from.add(i * LINE).cast()) };
    if BITS == 8 {
        return [line(0), line(1), line(2), line(3)];
    }
    let low = _mm512_set1_epi8(15);
    let (a, b) = (line(0), line(1));
    let halves = [a, _mm512_srli_epi16::<4>(a), b, _mm512_srli_epi16::<4>(b)];
    if BITS == 4 {
        return halves.map(|half| _mm512_and_si512(half, low));
    }
    let c = line(2);
    let upper = [_mm512_slli_epi16::<4>(c), _mm512_slli_epi16::<2>(c), c, _mm512_srli_epi16::<2>(c)];
    let bits = _mm512_set1_epi8(0x30);
    let mut lines = halves;
    for i in 0..4 {
        // lower | upper & bits
        lines[i] = _mm512_ternarylogic_epi32::<0xf8>(_mm512_and_si512(halves[i], low), upper[i], bits);
    }
    lines
}

/// Codes of 4 or 6 bits as bytes.
///
/// # Safety
/// The CPU must have AVX-512 F and BW; `from` must be whole blocks, and `out` as many of 8 bits.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn unpack(bits: u32, from: &[u8], out: &mut [u8]) {
    let size = panels::block_bytes(bits);
    for (from, out) in from.chunks_exact(size).zip(out.chunks_exact_mut(4 * LINE)) {
        // SAFETY: a block each.
        unsafe {
            let lines = if bits == 4 { lines::<4>(from.as_ptr()) } else { lines::<6>(from.as_ptr()) };
            for (i, line) in lines.into_iter().enumerate() {
                _mm512_storeu_si512(out.as_mut_ptr().add(i * LINE).cast(), line);
            }
        }
    }
}
