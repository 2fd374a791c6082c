//! Register tiles: a few rows of A by `nr` columns of B, all of a block's depth.

use super::matrix::MatMut;
use super::pack::LINE;
use crate::cpu::{self, Level};

/// A kernel for one level of instructions.
pub(super) struct Kernel {
    #[allow(dead_code)] // shown by tests
    pub name: &'static str,
    level: Level,
    /// The most rows of a tile.
    pub mr: usize,
    /// Columns of a tile.
    pub nr: usize,
    run: unsafe fn(usize, &Tile),
}

/// One tile: C (rows x cols) = or += A (rows x depth) B (depth x nr).
struct Tile {
    /// Columns of 16 places, of which the first count; of 1 place where there is but one row.
    a: *const f32,
    b: *const f32,
    depth: usize,
    c: *mut f32,
    c_stride: usize,
    /// As C: what will be wanted when it is complete.
    wanted: *const f32,
    cols: usize,
    accumulate: bool,
    /// What will be wanted after this tile, to be fetched meanwhile: where, and how many cache lines.
    next: *const f32,
    next_lines: usize,
}

/// How far columns of A are apart in a panel of so many rows.
pub(super) const fn step(rows: usize) -> usize {
    if rows == 1 { 1 } else { LINE }
}

#[cfg(target_arch = "x86_64")]
static KERNELS: &[Kernel] = &[
    Kernel { name: "avx512", level: Level::Avx512, mr: 14, nr: 32, run: avx512::run },
    Kernel { name: "avx2", level: Level::Avx2, mr: 6, nr: 16, run: avx2::run },
    Kernel { name: "portable", level: Level::Portable, mr: 4, nr: 16, run: portable::run },
];
#[cfg(not(target_arch = "x86_64"))]
static KERNELS: &[Kernel] = &[Kernel { name: "portable", level: Level::Portable, mr: 4, nr: 16, run: portable::run }];

/// The kernels that this CPU can run, best first.
pub(super) fn available() -> impl Iterator<Item = &'static Kernel> {
    KERNELS.iter().filter(|kernel| kernel.level <= cpu::level())
}

/// The kernel for this CPU.
pub(super) fn best() -> &'static Kernel {
    available().next().expect("the portable kernel runs everywhere")
}

impl Kernel {
    /// C = or += A B over `depth`: one panel of A, which stays in the first cache, with panel after panel of B. It is
    /// share `i` of `n` panels of A that go through the same columns of B, and together fetch those behind them.
    pub fn row(&self, a: &[f32], b: &[f32], depth: usize, mut c: MatMut<'_>, accumulate: bool, (i, n): (usize, usize)) {
        let (rows, cols) = (c.rows(), c.cols());
        let behind = cols.div_ceil(self.nr) * depth * self.nr;
        let lines = (depth * self.nr / LINE).div_ceil(n);
        for (b, n0) in b.chunks_exact(depth * self.nr).zip((0..cols).step_by(self.nr)) {
            let next = b.as_ptr().wrapping_add(behind + i * lines * LINE);
            self.tile(a, b, depth, c.block(0, n0, rows, self.nr.min(cols - n0)), accumulate, (next, lines));
        }
    }

    /// Computes one tile of at most `mr` rows and `nr` columns; fetches what will be wanted meanwhile, so many cache lines.
    fn tile(
        &self,
        a: &[f32],
        b: &[f32],
        depth: usize,
        mut c: MatMut<'_>,
        accumulate: bool,
        (next, next_lines): (*const f32, usize),
    ) {
        let (rows, cols) = (c.rows(), c.cols());
        assert!((1..=self.mr).contains(&rows) && (1..=self.nr).contains(&cols));
        assert!(a.len() >= depth * step(rows) && b.len() >= depth * self.nr && self.level <= cpu::level());
        let ((pointer, c_stride), wanted) = (c.raw(), c.wanted());
        let (a, b) = (a.as_ptr(), b.as_ptr());
        let tile = Tile { a, b, depth, c: pointer, c_stride, wanted, cols, accumulate, next, next_lines };
        // SAFETY: the CPU has the kernel's level; A, B and C hold every entry of the tile, as asserted above,
        // and C is borrowed uniquely.
        unsafe { (self.run)(rows, &tile) }
    }
}

/// Calls `tile::<ROWS>` for the tile's number of rows, which the compiler then knows.
macro_rules! for_rows {
    ($rows:expr, $tile:expr, [$($n:literal)*]) => {
        match $rows {
            // SAFETY: the caller has the features and vouches for the tile.
            $($n => unsafe { tile::<$n>($tile) },)*
            _ => unreachable!("a tile has at most `mr` rows"),
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{LINE, Tile, step};
    use std::arch::x86_64::*;

    /// Steps between lines of C that are fetched.
    const EVERY: usize = 4;

    #[target_feature(enable = "avx512f")]
    pub unsafe fn run(rows: usize, t: &Tile) {
        for_rows!(rows, t, [1 2 3 4 5 6 7 8 9 10 11 12 13 14])
    }

    #[target_feature(enable = "avx512f")]
    unsafe fn tile<const ROWS: usize>(t: &Tile) {
        let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
        // SAFETY: A has `depth` columns, B `depth` rows of 32; the masks keep loads and
        // stores of C to its `cols` columns.
        unsafe {
            // C and what goes with it are wanted at the end, when waiting for them would stop everything. A line is
            // fetched every few steps, where there are enough, rather than all at once before the panels.
            let lines = 2 * ROWS;
            let spread = t.depth >= EVERY * lines;
            let fetch = |line: usize| {
                let at = line / 2 * t.c_stride + line % 2 * 16;
                _mm_prefetch::<_MM_HINT_ET0>(t.c.wrapping_add(at).cast());
                if t.wanted != t.c {
                    _mm_prefetch::<_MM_HINT_ET0>(t.wanted.wrapping_add(at).cast());
                }
            };
            if !spread {
                (0..lines).for_each(fetch);
            }
            // Both panels stream from the second-level cache, some steps ahead, and the next panel of B into that cache: where
            // this tile is the only one of its panel, two lines a step, which is all of it.
            let alone = t.next_lines > t.depth;
            for p in 0..t.depth {
                if spread && p % EVERY == 0 && p < EVERY * lines {
                    fetch(p / EVERY);
                }
                _mm_prefetch::<_MM_HINT_T0>(t.b.wrapping_add(32 * (p + 8)).cast());
                _mm_prefetch::<_MM_HINT_T0>(t.b.wrapping_add(32 * (p + 8) + 16).cast());
                if ROWS > 1 {
                    _mm_prefetch::<_MM_HINT_T0>(t.a.wrapping_add(LINE * (p + 8)).cast());
                }
                if alone {
                    _mm_prefetch::<_MM_HINT_T1>(t.next.wrapping_add(LINE * 2 * p).cast());
                    _mm_prefetch::<_MM_HINT_T1>(t.next.wrapping_add(LINE * (2 * p + 1)).cast());
                } else if p < t.next_lines {
                    _mm_prefetch::<_MM_HINT_T1>(t.next.wrapping_add(LINE * p).cast());
                }
                let b0 = _mm512_loadu_ps(t.b.add(32 * p));
                let b1 = _mm512_loadu_ps(t.b.add(32 * p + 16));
                for r in 0..ROWS {
                    let a = _mm512_set1_ps(*t.a.add(step(ROWS) * p + r));
                    sums[r][0] = _mm512_fmadd_ps(a, b0, sums[r][0]);
                    sums[r][1] = _mm512_fmadd_ps(a, b1, sums[r][1]);
                }
            }
            let mask = ((1u64 << t.cols) - 1) as u32;
            let masks = [mask as u16, (mask >> 16) as u16];
            for (r, sums) in sums.into_iter().enumerate() {
                for (half, mut sum) in sums.into_iter().enumerate() {
                    let c = t.c.add(r * t.c_stride).wrapping_add(16 * half);
                    if t.accumulate {
                        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(masks[half], c));
                    }
                    _mm512_mask_storeu_ps(c, masks[half], sum);
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Tile, step};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn run(rows: usize, t: &Tile) {
        for_rows!(rows, t, [1 2 3 4 5 6])
    }

    #[target_feature(enable = "avx2,fma")]
    unsafe fn tile<const ROWS: usize>(t: &Tile) {
        let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
        // SAFETY: A has `depth` columns, B `depth` rows of 16.
        unsafe {
            for p in 0..t.depth {
                let b0 = _mm256_loadu_ps(t.b.add(16 * p));
                let b1 = _mm256_loadu_ps(t.b.add(16 * p + 8));
                for r in 0..ROWS {
                    let a = _mm256_set1_ps(*t.a.add(step(ROWS) * p + r));
                    sums[r][0] = _mm256_fmadd_ps(a, b0, sums[r][0]);
                    sums[r][1] = _mm256_fmadd_ps(a, b1, sums[r][1]);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            let mut values = [0.0; 16];
            // SAFETY: `values` has 16 floats; C has ROWS rows of `cols` entries.
            unsafe {
                _mm256_storeu_ps(values.as_mut_ptr(), sums[0]);
                _mm256_storeu_ps(values.as_mut_ptr().add(8), sums[1]);
                super::store(t, r, &values);
            }
        }
    }
}

mod portable {
    use super::{Tile, step};

    pub unsafe fn run(rows: usize, t: &Tile) {
        for_rows!(rows, t, [1 2 3 4])
    }

    unsafe fn tile<const ROWS: usize>(t: &Tile) {
        let mut sums = [[0.0f32; 16]; ROWS];
        for p in 0..t.depth {
            // SAFETY: B has `depth` rows of 16.
            let b = unsafe { &*t.b.add(16 * p).cast::<[f32; 16]>() };
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: A has `depth` columns.
                let a = unsafe { *t.a.add(step(ROWS) * p + r) };
                for (sum, &b) in sums.iter_mut().zip(b) {
                    *sum += a * b;
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            // SAFETY: C has ROWS rows of `cols` entries.
            unsafe { super::store(t, r, sums) }
        }
    }
}

/// Stores or adds the first `cols` values to a row of C.
///
/// # Safety
/// C must have that row.
#[inline(always)]
unsafe fn store(t: &Tile, row: usize, values: &[f32; 16]) {
    // SAFETY: the row has `cols` entries, and C is borrowed uniquely.
    let c = unsafe { std::slice::from_raw_parts_mut(t.c.add(row * t.c_stride), t.cols) };
    for (c, value) in c.iter_mut().zip(values) {
        *c = if t.accumulate { *c + value } else { *value };
    }
}
