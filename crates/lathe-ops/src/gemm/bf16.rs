//! Products in tiles of bf16 with sums in f32: both sides are packed into tiles, and a block of 32 by 32 of C is summed at
//! a time. A number is rounded to one bf16, or, for products as exact as those of f32, split into three.
//!
//! B is packed whole, in panels of 32 columns; A piece by piece, in panels of 32 rows. A panel of B stays in the
//! first-level cache while the rows of a piece pass by, which come from the second. Each entry of C is summed in one
//! fixed order.

use super::matrix::{Mat, MatMut};
use super::pack::Buffer;
pub(super) use super::pairs::PANEL;
use super::pairs::{self, SIDE, TILE};
use super::{Job, dots, tiles};
use crate::cpu::{self, Level};
use crate::parallel;

/// Columns of C that are completed before they are finished.
const NC: usize = 256;

/// How much is worked on at a time.
struct Sizes {
    /// The most rows of A that a piece has: packed they fit into the second-level cache.
    rows: usize,
    /// The most steps of the depth of A that are packed at a time.
    a_steps: usize,
    /// The most steps of a panel of B before C is stored: all, where the sums take much longer than C.
    b_steps: usize,
}

impl Sizes {
    const fn of(parts: usize) -> Self {
        match parts {
            1 => Self { rows: 256, a_steps: 64, b_steps: 16 },
            _ => Self { rows: 128, a_steps: 32, b_steps: 32 },
        }
    }
}

/// Whether a product of f32 is faster in three parts: where there are tiles, and each number that is packed is used often.
pub(super) fn worth_splitting(m: usize, n: usize, k: usize) -> bool {
    m.min(n) >= 256 && k >= 2 * pairs::DEPTH && cpu::level() == Level::Amx
}

/// Pairs in a panel of B of so many steps.
fn panel_pairs(parts: usize, steps: usize) -> usize {
    2 * TILE * parts * steps
}

/// Packs B: panels of 32 columns, all of the depth.
pub(super) fn pack_b(b: Mat<'_>, parts: usize, threads: usize, buffer: &mut Buffer) {
    assert!(cpu::level() >= Level::Avx512Bf16);
    let size = panel_pairs(parts, pairs::steps(b.rows()));
    let out = buffer.take_pairs(b.cols().div_ceil(PANEL) * size);
    if size == 0 {
        return;
    }
    let fill = |(panel, out): (usize, &mut [u32])| {
        // SAFETY: the CPU has AVX512-BF16, as asserted above.
        unsafe {
            match parts {
                1 => pairs::fill_b::<1>(b, panel * PANEL, out),
                _ => pairs::fill_b::<3>(b, panel * PANEL, out),
            }
        }
    };
    match threads {
        1 => out.chunks_exact_mut(size).enumerate().for_each(fill),
        _ => parallel::each(out.chunks_exact_mut(size).collect(), |panel, out| fill((panel, out))),
    }
}

/// Computes the part of C that begins at (row, col), which are multiples of 32.
pub(super) fn part(job: &Job<'_>, parts: usize, mut c: MatMut<'_>, row: usize, col: usize, buffer: &mut Buffer) {
    let (rows, cols) = (c.rows(), c.cols());
    if job.a.cols() == 0 {
        // A product over nothing is 0.
        if !job.accumulate {
            c.fill(0.0);
        }
        return job.finish(&mut c, (0, rows), (0, cols), row, col);
    }
    let work = Part { job, row, col, kernel: Kernel::new(parts), panels: job.panels.get_pairs() };
    let most = Sizes::of(parts).rows;
    for m0 in (0..rows).step_by(most) {
        work.rows(&mut c, (m0, most.min(rows - m0)), buffer);
    }
}

struct Part<'a> {
    job: &'a Job<'a>,
    row: usize,
    col: usize,
    kernel: Kernel,
    panels: &'a [u32],
}

impl Part<'_> {
    /// Computes `mc` rows of a part from `m0` on.
    fn rows(&self, c: &mut MatMut<'_>, (m0, mc): (usize, usize), buffer: &mut Buffer) {
        let Self { job, row, col, .. } = *self;
        let parts = self.kernel.parts();
        let panel_pairs = |steps: usize| panel_pairs(parts, steps);
        let n = c.cols();
        let all = pairs::steps(job.a.cols());
        let most = evenly(all, Sizes::of(parts).a_steps);
        for ka in (0..all).step_by(most) {
            let steps = most.min(all - ka);
            let a = pack_a(job.a, parts, (row + m0, mc), (ka, steps), buffer);
            for n0 in (0..n).step_by(NC) {
                let nc = NC.min(n - n0);
                let most = evenly(steps, Sizes::of(parts).b_steps);
                for k0 in (0..steps).step_by(most) {
                    let kc = most.min(steps - k0);
                    for n1 in (n0..n0 + nc).step_by(PANEL) {
                        let b = &self.panels[panel_pairs((col + n1) / PANEL * all + ka + k0)..];
                        let b = &b[..panel_pairs(kc)];
                        let cols = PANEL.min(n - n1);
                        for (panel, r0) in (0..mc).step_by(PANEL).enumerate() {
                            let rows = PANEL.min(mc - r0);
                            let size = rows.div_ceil(SIDE) * parts * TILE; // of a step
                            let a = &a[panel * panel_pairs(steps) + k0 * size..][..kc * size];
                            let c = c.block(m0 + r0, n1, rows, cols);
                            self.kernel.block(a, b, c, job.accumulate || ka + k0 > 0);
                        }
                    }
                }
                if ka + steps == all {
                    job.finish(c, (m0, mc), (n0, nc), row, col);
                }
            }
        }
    }
}

/// The size of the fewest nearly equal pieces of at most `most`.
fn evenly(total: usize, most: usize) -> usize {
    total.div_ceil(total.div_ceil(most))
}

/// Packs `mc` rows of A from `m0` on, `steps` of the depth from `first` on, in panels of 32 rows.
fn pack_a<'a>(
    a: Mat<'_>,
    parts: usize,
    (m0, mc): (usize, usize),
    (first, steps): (usize, usize),
    buffer: &'a mut Buffer,
) -> &'a [u32] {
    let out = buffer.take_pairs(mc.div_ceil(SIDE) * TILE * parts * steps);
    for (out, r0) in out.chunks_mut(panel_pairs(parts, steps)).zip((0..mc).step_by(PANEL)) {
        let (rows, depth) = (PANEL.min(mc - r0), first * pairs::DEPTH);
        // SAFETY: whoever packed B asserted that the CPU has AVX512-BF16.
        unsafe {
            match parts {
                1 => pairs::fill_a::<1>(a, m0 + r0, rows, depth, out),
                _ => pairs::fill_a::<3>(a, m0 + r0, rows, depth, out),
            }
        }
    }
    out
}

/// Cuts C into `down` by `across` pieces.
pub(super) fn grid(parts: usize, m: usize, n: usize, k: usize, threads: usize) -> (usize, usize) {
    let by_cache = m.div_ceil(Sizes::of(parts).rows);
    if threads == 1 {
        return (by_cache, 1);
    }
    // Each piece across rounds its rows of A again, so there are few.
    let wanted = (2 * m * n * k / 4_000_000).clamp(threads, 2 * threads);
    let down = by_cache.max(wanted.min(m / 128));
    (down, wanted.div_ceil(down).min(n.div_ceil(2 * PANEL)))
}

/// A kernel of this CPU, ready on this thread.
enum Kernel {
    Dots,
    Tiles { _registers: tiles::Tiles, parts: usize },
}

impl Kernel {
    fn new(parts: usize) -> Self {
        assert!(matches!(parts, 1 | 3));
        match cpu::level() {
            // SAFETY: the level says that there is AMX.
            Level::Amx => Self::Tiles { _registers: unsafe { tiles::Tiles::new() }, parts },
            _ => {
                assert_eq!(parts, 1, "only tiles compute in parts");
                Self::Dots
            }
        }
    }

    /// How many bf16 a number is.
    fn parts(&self) -> usize {
        match self {
            Self::Dots => 1,
            Self::Tiles { parts, .. } => *parts,
        }
    }

    /// C (at most 32 by 32) = A B, or added to it, over as many steps as A and B have.
    fn block(&self, a: &[u32], b: &[u32], mut c: MatMut<'_>, accumulate: bool) {
        let (rows, cols) = (c.rows(), c.cols());
        let (tiles, steps) = (rows.div_ceil(SIDE), b.len() / panel_pairs(self.parts(), 1));
        assert!(rows <= PANEL && cols <= PANEL && steps > 0 && a.len() == tiles * self.parts() * steps * TILE);
        let product = match self {
            Self::Dots => dots::product,
            Self::Tiles { parts: 1, .. } => tiles::product,
            Self::Tiles { .. } => tiles::product_of_parts,
        };
        if rows == tiles * SIDE && cols == PANEL {
            let (pointer, stride) = c.raw();
            // SAFETY: the kernel is one of this CPU, ready; A and B have so many steps, and C 16 or 32 rows of 32.
            return unsafe { product(tiles, steps, a.as_ptr(), b.as_ptr(), pointer, stride, accumulate) };
        }
        // At an edge of C, through a block that is whole.
        let mut whole = [0.0f32; PANEL * PANEL];
        if accumulate {
            for (r, line) in whole.chunks_exact_mut(PANEL).take(rows).enumerate() {
                line[..cols].copy_from_slice(c.row(r, 0, cols));
            }
        }
        // SAFETY: as above.
        unsafe { product(tiles, steps, a.as_ptr(), b.as_ptr(), whole.as_mut_ptr(), PANEL, accumulate) };
        for (r, line) in whole.chunks_exact(PANEL).take(rows).enumerate() {
            c.row(r, 0, cols).copy_from_slice(&line[..cols]);
        }
    }
}
