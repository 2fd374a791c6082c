//! AVX2: products of codes and activations in 16 bits, which hold them exactly.
//!
//! The sum of two products of 8 bits may not fit into 16: codes and activations become words, whose products are summed in
//! 32 bits. Products of codes of 6 and 4 bits are summed in 16 bits first: two lines of 2 * 63 * 127 each, or four
//! of 2 * 15 * 127, are below 2^15.

use super::kernel::{Numbers, Place, Task};
use super::panels::{self, BLOCK, LANES, LINE};
use std::arch::x86_64::*;

/// The most rows of a task.
pub(super) const ROWS: usize = 4;

/// Up to 4 rows by one panel, of activations as words where codes have 8 bits, and as bytes where they have fewer.
///
/// # Safety
/// The CPU must have AVX2, FMA and F16C, and the task and the place must hold what so many rows need.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run(rows: usize, task: &Task<'_>, place: &Place<'_>) {
    // SAFETY: the caller's.
    unsafe {
        match (task.bits, rows) {
            (4, 1) => rows_of::<4, 1>(task, place),
            (4, 2) => rows_of::<4, 2>(task, place),
            (4, 3) => rows_of::<4, 3>(task, place),
            (4, 4) => rows_of::<4, 4>(task, place),
            (6, 1) => rows_of::<6, 1>(task, place),
            (6, 2) => rows_of::<6, 2>(task, place),
            (6, 3) => rows_of::<6, 3>(task, place),
            (6, 4) => rows_of::<6, 4>(task, place),
            (_, 1) => rows_of::<8, 1>(task, place),
            (_, 2) => rows_of::<8, 2>(task, place),
            (_, 3) => rows_of::<8, 3>(task, place),
            (_, 4) => rows_of::<8, 4>(task, place),
            _ => unreachable!("a task has no more rows than its kernel"),
        }
    }
}

/// The sums of a row, or its results: 16 outputs.
type Halves<T> = [T; 2];

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows_of<const BITS: u32, const ROWS: usize>(task: &Task<'_>, place: &Place<'_>) {
    let size = panels::block_bytes(BITS);
    let blocks = task.codes.len() / size;
    let width = if BITS == 8 { 2 } else { 1 };
    let mut codes = task.codes.as_ptr();
    let mut x = task.x.as_ptr();
    let mut results = [[_mm256_setzero_ps(); 2]; ROWS];
    // SAFETY: there are so many blocks of codes, and of activations of each row.
    unsafe {
        for group in 0..task.x_groups {
            let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
            for r in 0..ROWS {
                sums[r] = [_mm256_set1_epi32(task.side(r, group).start); 2];
            }
            for _ in 0..task.span.min(blocks - group * task.span) {
                for line in 0..size / LINE {
                    _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(2048 + line * LINE).cast());
                }
                if BITS == 8 {
                    words(codes, x, width * task.stride, &mut sums);
                } else {
                    bytes::<BITS, ROWS>(codes, x, task.stride, &mut sums);
                }
                codes = codes.add(size);
                x = x.add(width * BLOCK);
            }
            for r in 0..ROWS {
                results[r] = add(task, r, group, sums[r], results[r]);
            }
        }
        for r in 0..ROWS {
            let mut out = [0.0; LANES];
            _mm256_storeu_ps(out.as_mut_ptr(), results[r][0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), results[r][1]);
            place.store(r, &out);
        }
    }
}

/// Adds the products of a block of 8 bits, with activations as words.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn words<const ROWS: usize>(codes: *const u8, x: *const u8, stride: usize, sums: &mut [Halves<__m256i>; ROWS]) {
    let low = _mm256_set1_epi16(0xff);
    for line in 0..4 {
        // SAFETY: the caller's: a block of each.
        unsafe {
            let codes = codes.add(line * LINE);
            let halves = [_mm256_loadu_si256(codes.cast()), _mm256_loadu_si256(codes.add(LINE / 2).cast())];
            let even = halves.map(|half| _mm256_and_si256(half, low));
            let odd = halves.map(|half| _mm256_srli_epi16::<8>(half));
            for r in 0..ROWS {
                let x = x.add(r * stride + 8 * line).cast::<i32>();
                let (first, second) = (broadcast(x), broadcast(x.add(1)));
                for half in 0..2 {
                    let products = _mm256_madd_epi16(even[half], first);
                    sums[r][half] = _mm256_add_epi32(sums[r][half], products);
                    let products = _mm256_madd_epi16(odd[half], second);
                    sums[r][half] = _mm256_add_epi32(sums[r][half], products);
                }
            }
        }
    }
}

/// Adds the products of a block of 4 or 6 bits, with activations as bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn bytes<const BITS: u32, const ROWS: usize>(
    codes: *const u8,
    x: *const u8,
    stride: usize,
    sums: &mut [Halves<__m256i>; ROWS],
) {
    let ones = _mm256_set1_epi16(1);
    for half in 0..2 {
        // SAFETY: the caller's: a block of each.
        unsafe {
            let lines = lines::<BITS>(codes.add(half * LINE / 2));
            for r in 0..ROWS {
                let x = x.add(r * stride).cast::<i32>();
                let products = |line: usize| _mm256_maddubs_epi16(lines[line], broadcast(x.add(line)));
                let first = _mm256_add_epi16(products(0), products(1));
                let second = _mm256_add_epi16(products(2), products(3));
                let words = |words| _mm256_madd_epi16(words, ones);
                let all = match BITS {
                    4 => words(_mm256_add_epi16(first, second)),
                    _ => _mm256_add_epi32(words(first), words(second)),
                };
                sums[r][half] = _mm256_add_epi32(sums[r][half], all);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn broadcast(x: *const i32) -> __m256i {
    // SAFETY: the caller's.
    _mm256_set1_epi32(unsafe { x.read_unaligned() })
}

/// Half of each of the four lines of a block of 4 or 6 bits.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn lines<const BITS: u32>(from: *const u8) -> [__m256i; 4] {
    // SAFETY: the caller's: half of a block.
    let line = |i: usize| unsafe { _mm256_loadu_si256(from.add(i * LINE).cast()) };
    let (a, b, low) = (line(0), line(1), _mm256_set1_epi8(15));
    let halves = [a, _mm256_srli_epi16::<4>(a), b, _mm256_srli_epi16::<4>(b)];
    let mut lines = halves.map(|half| _mm256_and_si256(half, low));
    if BITS == 6 {
        let (c, bits) = (line(2), _mm256_set1_epi8(0x30));
        let upper = [_mm256_slli_epi16::<4>(c), _mm256_slli_epi16::<2>(c), c, _mm256_srli_epi16::<2>(c)];
        for i in 0..4 {
            lines[i] = _mm256_or_si256(lines[i], _mm256_and_si256(upper[i], bits));
        }
    }
    lines
}

/// Adds the sums of a group to the results of a row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn add(
    task: &Task<'_>,
    row: usize,
    group: usize,
    sums: Halves<__m256i>,
    mut results: Halves<__m256>,
) -> Halves<__m256> {
    let side = task.side(row, group);
    let group = if task.groups == 1 { 0 } else { group };
    for half in 0..2 {
        // SAFETY: the group is one of the task's.
        unsafe {
            let scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[half]), numbers(&task.numbers, group, half));
            results[half] = _mm256_fmadd_ps(scaled, _mm256_set1_ps(side.scale), results[half]);
            if task.offset {
                let offsets = numbers(&task.numbers, task.groups + group, half);
                results[half] = _mm256_fmadd_ps(offsets, _mm256_set1_ps(side.sum), results[half]);
            }
        }
    }
    results
}

/// 8 scales or offsets.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn numbers(numbers: &Numbers<'_>, group: usize, half: usize) -> __m256 {
    let at = group * LANES + 8 * half;
    // SAFETY: the caller's.
    unsafe {
        match numbers {
            Numbers::Rows(numbers) => _mm256_loadu_ps(numbers.as_ptr().add(at)),
            Numbers::Groups(numbers) => _mm256_cvtph_ps(_mm_loadu_si128(numbers.as_ptr().add(at).cast())),
        }
    }
}
