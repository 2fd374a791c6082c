//! AVX512-BF16: products of the same tiles as those of AMX, by dot products of pairs.

use super::pairs::{SIDE, TILE};
use std::arch::x86_64::*;

/// Rows whose sums are in registers at the same time, two of 16 columns each.
const ROWS: usize = 8;

/// C (16 `row_tiles` by 32) = or += A B over `steps` of 32: `a` has `row_tiles` (1 or 2) tiles for each step, `b` two.
///
/// # Safety
/// The CPU must have AVX512-BF16; A, B and C, whose rows begin `stride` floats apart, must hold that much.
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn product(
    row_tiles: usize,
    steps: usize,
    a: *const u32,
    b: *const u32,
    c: *mut f32,
    stride: usize,
    accumulate: bool,
) {
    for first in (0..row_tiles * SIDE).step_by(ROWS) {
        // SAFETY: rows `first` to `first + 8` of A's tiles and of C.
        unsafe {
            let a = a.add(first / SIDE * TILE + first % SIDE * SIDE);
            let c = c.add(first * stride);
            let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
            if accumulate {
                for r in 0..ROWS {
                    sums[r] = [_mm512_loadu_ps(c.add(r * stride)), _mm512_loadu_ps(c.add(r * stride + SIDE))];
                }
            }
            for step in 0..steps {
                let (a, b) = (a.add(step * row_tiles * TILE), b.add(step * 2 * TILE));
                for pair in 0..SIDE {
                    let low = halves(_mm512_loadu_si512(b.add(pair * SIDE).cast()));
                    let high = halves(_mm512_loadu_si512(b.add(TILE + pair * SIDE).cast()));
                    for r in 0..ROWS {
                        let a = halves(_mm512_set1_epi32(*a.add(r * SIDE + pair) as i32));
                        sums[r][0] = _mm512_dpbf16_ps(sums[r][0], a, low);
                        sums[r][1] = _mm512_dpbf16_ps(sums[r][1], a, high);
                    }
                }
            }
            for r in 0..ROWS {
                _mm512_storeu_ps(c.add(r * stride), sums[r][0]);
                _mm512_storeu_ps(c.add(r * stride + SIDE), sums[r][1]);
            }
        }
    }
}

/// 16 pairs as the instruction takes them.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn halves(pairs: __m512i) -> __m512bh {
    // SAFETY: both are 512 bits.
    unsafe { std::mem::transmute(pairs) }
}
