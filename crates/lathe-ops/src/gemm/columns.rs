//! Products with no more rows than columns, as gradients of weights are, and forward passes over few tokens: A is the
//! smaller side and packed once for all pieces, and a piece has all rows of some columns, so that B is read once. A
//! piece packs its own part of B, unless it was packed before, and reads it while it is still in the cache.

use super::kernel;
use super::matrix::{Mat, MatMut};
use super::pack::{self, Buffer, LINE};
use super::{B_BUFFER, Finish, KC, Rhs, shrinking};
use crate::parallel;

/// With more rows a block of A would leave no room for the rest in the second-level cache.
pub(super) const MOST_ROWS: usize = 600;
/// The most columns of a piece.
const MOST_COLUMNS: usize = 192;

/// A right-hand side of which a piece asks for its part.
pub(crate) trait Right: Sync {
    /// Rows k0 to k0 + kc of `n` columns from `col` on, as panels of `nr` columns, each row by row. `col` and k0 are ends
    /// of panels and of blocks of [`KC`].
    fn block<'s>(&'s self, depth: (usize, usize), cols: (usize, usize), nr: usize, buffer: &'s mut Buffer)
    -> &'s [f32];
}

impl Right for Rhs<'_> {
    fn block<'s>(
        &'s self,
        (k0, kc): (usize, usize),
        (col, n): (usize, usize),
        nr: usize,
        buffer: &'s mut Buffer,
    ) -> &'s [f32] {
        match self {
            Self::Packed(b) => b.block((k0, kc), (col, n), nr, buffer),
            Self::Mat(b) | Self::Bf16(b) => {
                pack::pack_b(b.rows_from(k0, kc).cols_from(col, n), nr, 1, buffer);
                buffer.get()
            }
            Self::Integers { .. } => unreachable!("integer weights have pieces of their own"),
        }
    }
}

/// A, packed for all pieces.
pub(crate) struct Left {
    buffer: pack::Borrowed,
    rows: usize,
    depth: usize,
}

impl Left {
    pub fn new(a: Mat<'_>) -> Self {
        let kernel = kernel::best();
        let (rows, depth) = (a.rows(), a.cols());
        let mut buffer = pack::Borrowed::new();
        let panels = rows.div_ceil(kernel.mr);
        let mut to_fill = Vec::new();
        let blocks = buffer.take(panels * depth * LINE).chunks_mut((panels * KC * LINE).max(1));
        for (k0, out) in (0..depth).step_by(KC).zip(blocks) {
            let kc = KC.min(depth - k0);
            let out = out.chunks_exact_mut(kc * LINE).zip(pack::row_panels(rows, kernel.mr));
            to_fill.extend(out.map(|(out, rows)| (rows, (k0, kc), out)));
        }
        parallel::each(to_fill, |_, (rows, depth, out)| pack::fill_rows(a, rows, depth, out));
        Self { buffer, rows, depth }
    }

    /// The part of C whose columns begin at `col` = A B, or added to it: all rows.
    pub fn piece(
        &self,
        right: &impl Right,
        mut c: MatMut<'_>,
        col: usize,
        accumulate: bool,
        finish: Option<Finish<'_>>,
    ) {
        let kernel = kernel::best();
        let (n, k) = (c.cols(), self.depth);
        let end = |c: &mut MatMut<'_>, (r0, rows): (usize, usize)| {
            if let Some(finish) = finish {
                (r0..r0 + rows).for_each(|row| finish(row, col, c.row(row, 0, n)));
            }
        };
        if k == 0 {
            // A product over nothing is 0.
            if !accumulate {
                c.fill(0.0);
            }
            return end(&mut c, (0, self.rows));
        }
        let panels: Vec<(usize, usize)> = pack::row_panels(self.rows, kernel.mr).collect();
        let most = MOST_ROWS.div_ceil(kernel.mr);
        B_BUFFER.with_borrow_mut(|buffer| {
            for (first, some) in panels.chunks(most).enumerate() {
                for k0 in (0..k).step_by(KC) {
                    let kc = KC.min(k - k0);
                    let right = right.block((k0, kc), (col, n), kernel.nr, buffer);
                    let left = &self.buffer.get()[k0 * panels.len() * LINE..][..kc * panels.len() * LINE];
                    let left = left[first * most * kc * LINE..].chunks_exact(kc * LINE);
                    for (i, (left, &(r0, rows))) in left.zip(some).enumerate() {
                        let share = (i, some.len());
                        kernel.row(left, right, kc, c.block(r0, 0, rows, n), accumulate || k0 > 0, share);
                        if k0 + kc == k {
                            end(&mut c, (r0, rows));
                        }
                    }
                }
            }
        });
    }
}

/// C = A B, or added to C.
pub(super) fn run(c: MatMut<'_>, a: Mat<'_>, b: Rhs<'_>, accumulate: bool, finish: Option<Finish<'_>>, threads: usize) {
    let left = Left::new(a);
    let nr = kernel::best().nr;
    let ends = shrinking(c.cols(), threads, nr, (nr, MOST_COLUMNS));
    let rows = c.rows();
    parallel::each(c.split(&[rows], &ends), |_, (_, col, c)| left.piece(&b, c, col, accumulate, finish));
}
