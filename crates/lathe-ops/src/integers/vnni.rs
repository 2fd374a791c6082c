//! AVX512-VNNI: four products of bytes and their sum in one instruction, codes as unsigned bytes by activations as
//! signed ones.

use super::kernel::{Lane, Numbers, Task};
use super::panels::{self, LANES, LINE};
use std::arch::x86_64::*;

/// The most rows of [`few`].
pub(super) const FEW: usize = 8;
/// The most rows of [`many`] where a row of weights has one scale: 24 sums in registers.
pub(super) const WHOLE: usize = 12;
/// The most rows of [`many`] with groups: 12 sums and 12 results.
pub(super) const GROUPED: usize = 6;

/// How many bytes before they are read codes are fetched.
const AHEAD: usize = 2048;

/// Calls `f::<first, rows>(task, out)`.
macro_rules! for_rows {
    ($rows:expr, $f:ident, $first:literal, $task:expr, $out:expr, [$($n:literal)*]) => {
        match $rows {
            // SAFETY: the caller's.
            $($n => unsafe { $f::<$first, $n>($task, $out) },)*
            _ => unreachable!("a task has no more rows than its kernel"),
        }
    };
}

/// Up to 8 rows by one panel: codes come from memory once, in one stream.
///
/// # Safety
/// The CPU must have AVX-512 F, BW and VNNI, and the task and `out` must hold what so many rows need.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn few(rows: usize, task: &Task<'_>, out: &mut [Lane]) {
    match task.bits {
        4 => for_rows!(rows, few_of, 4, task, out, [1 2 3 4 5 6 7 8]),
        6 => for_rows!(rows, few_of, 6, task, out, [1 2 3 4 5 6 7 8]),
        _ => for_rows!(rows, few_of, 8, task, out, [1 2 3 4 5 6 7 8]),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn few_of<const BITS: u32, const ROWS: usize>(task: &Task<'_>, out: &mut [Lane]) {
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
                sums[r][0] = _mm512_set1_epi32(task.side(r, group).start);
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
                let sum = match split {
                    4 => _mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, d)),
                    2 => _mm512_add_epi32(a, b),
                    _ => a,
                };
                results[r] = add(task, 0, r, group, sum, results[r]);
            }
        }
        for r in 0..ROWS {
            _mm512_storeu_ps(out[r].as_mut_ptr(), results[r]);
        }
    }
}

/// Up to [`WHOLE`] or [`GROUPED`] rows by two panels of codes of 8 bits, whose results follow one another.
///
/// # Safety
/// As for [`few`], where the task's codes, scales and offsets are those of two panels.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn many(rows: usize, task: &Task<'_>, out: &mut [[Lane; 2]]) {
    match task.x_groups {
        1 => for_rows!(rows, many_of, false, task, out, [1 2 3 4 5 6 7 8 9 10 11 12]),
        _ => for_rows!(rows, many_of, true, task, out, [1 2 3 4 5 6]),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn many_of<const SEVERAL: bool, const ROWS: usize>(task: &Task<'_>, out: &mut [[Lane; 2]]) {
    let panel = task.codes.len() / 2;
    let lines = panel / LINE;
    let mut codes = task.codes.as_ptr();
    let mut x = task.x.as_ptr();
    let mut results = [[_mm512_setzero_ps(); 2]; ROWS];
    // SAFETY: there are so many lines of codes, and four activations of each row for each.
    unsafe {
        for group in 0..if SEVERAL { task.x_groups } else { 1 } {
            let mut sums = [[_mm512_setzero_si512(); 2]; ROWS];
            for r in 0..ROWS {
                sums[r] = [_mm512_set1_epi32(task.side(r, group).start); 2];
            }
            let span = 4 * task.span;
            for _ in 0..if SEVERAL { span.min(lines - group * span) } else { lines } {
                let left = _mm512_loadu_si512(codes.cast());
                let right = _mm512_loadu_si512(codes.add(panel).cast());
                for r in 0..ROWS {
                    let x = quad(x.add(r * task.stride));
                    sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], left, x);
                    sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], right, x);
                }
                codes = codes.add(LINE);
                x = x.add(4);
            }
            for r in 0..ROWS {
                for half in 0..2 {
                    results[r][half] = add(task, half, r, group, sums[r][half], results[r][half]);
                }
            }
        }
        for r in 0..ROWS {
            for half in 0..2 {
                _mm512_storeu_ps(out[r][half].as_mut_ptr(), results[r][half]);
            }
        }
    }
}

/// Four activations, for every output.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn quad(x: *const u8) -> __m512i {
    // SAFETY: the caller's.
    _mm512_set1_epi32(unsafe { x.cast::<i32>().read_unaligned() })
}

/// Adds the sums of a group to the results of a row, for a panel of the task.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn add(task: &Task<'_>, panel: usize, row: usize, group: usize, sums: __m512i, results: __m512) -> __m512 {
    let side = task.side(row, group);
    let group = panel * task.numbers_of_panel() + if task.groups == 1 { 0 } else { group };
    // SAFETY: the group is one of the panel.
    let (scales, offsets) =
        unsafe { (numbers(&task.numbers, group), task.offset.then(|| numbers(&task.numbers, task.groups + group))) };
    let scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), scales);
    let results = _mm512_fmadd_ps(scaled, _mm512_set1_ps(side.scale), results);
    match offsets {
        Some(offsets) => _mm512_fmadd_ps(offsets, _mm512_set1_ps(side.sum), results),
        None => results,
    }
}

/// 16 scales or offsets.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn numbers(numbers: &Numbers<'_>, group: usize) -> __m512 {
    // SAFETY: the caller's.
    unsafe {
        match numbers {
            Numbers::Rows(numbers) => _mm512_loadu_ps(numbers.as_ptr().add(group * LANES)),
            Numbers::Groups(numbers) => _mm512_cvtph_ps(_mm256_loadu_si256(numbers.as_ptr().add(group * LANES).cast())),
        }
    }
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

/// The results of a row from sums that do not begin with what they should, of two panels and one group.
///
/// # Safety
/// The CPU must have AVX-512 F, and the task must be one of two panels.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn scale(task: &Task<'_>, row: usize, sums: &[i32; 2 * LANES], out: &mut [Lane; 2]) {
    let start = _mm512_set1_epi32(task.side(row, 0).start);
    for panel in 0..2 {
        // SAFETY: 16 sums; the group is one of the task's.
        unsafe {
            let sums = _mm512_loadu_si512(sums.as_ptr().add(panel * LANES).cast());
            let results = add(task, panel, row, 0, _mm512_add_epi32(sums, start), _mm512_setzero_ps());
            _mm512_storeu_ps(out[panel].as_mut_ptr(), results);
        }
    }
}
