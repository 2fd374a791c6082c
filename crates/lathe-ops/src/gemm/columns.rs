//! Products with no more rows than columns, as gradients of weights are, and forward passes over few tokens: A is the
//! smaller side and packed once for all pieces, and a piece has all rows of some columns, so that B is read once. A
//! piece packs its own part of B, unless it was packed before, and reads it while it is still in the cache.

use super::kernel;
use super::matrix::{Mat, MatMut};
use super::pack::{self, LINE};
use super::{B_BUFFER, Finish, KC, Rhs, shrinking};
use crate::parallel;

/// With more rows a block of A would leave no room for the rest in the second-level cache.
pub(super) const MOST_ROWS: usize = 600;
/// The most columns of a piece.
const MOST_COLUMNS: usize = 192;

/// C = A B, or added to C.
pub(super) fn run(c: MatMut<'_>, a: Mat<'_>, b: Rhs<'_>, accumulate: bool, finish: Option<Finish<'_>>, threads: usize) {
    let kernel = kernel::best();
    let (m, n, k) = (c.rows(), c.cols(), a.cols());
    let mut buffer = pack::Borrowed::new();
    let panels = m.div_ceil(kernel.mr);
    let mut to_fill = Vec::new();
    for (k0, out) in (0..k).step_by(KC).zip(buffer.take(panels * k * LINE).chunks_mut(panels * KC * LINE)) {
        let kc = KC.min(k - k0);
        let out = out.chunks_exact_mut(kc * LINE).zip(pack::row_panels(m, kernel.mr));
        to_fill.extend(out.map(|(out, rows)| (rows, (k0, kc), out)));
    }
    parallel::each(to_fill, |_, (rows, depth, out)| pack::fill_rows(a, rows, depth, out));
    let left = buffer.get();
    let ends = shrinking(n, threads, kernel.nr, (kernel.nr, MOST_COLUMNS));
    let width = n.next_multiple_of(kernel.nr);
    parallel::each(c.split(&[m], &ends), |_, (_, col, mut c)| {
        B_BUFFER.with_borrow_mut(|buffer| {
            let n = c.cols();
            for k0 in (0..k).step_by(KC) {
                let kc = KC.min(k - k0);
                let right = match b {
                    Rhs::Packed(b) => &b.buffer().get()[k0 * width + col * kc..],
                    Rhs::Mat(b) | Rhs::Bf16(b) => {
                        pack::pack_b(b.rows_from(k0, kc).cols_from(col, n), kernel.nr, 1, buffer);
                        buffer.get()
                    }
                    Rhs::Integers { .. } => unreachable!("integer weights have kernels of their own"),
                };
                let left = left[k0 * panels * LINE..][..kc * panels * LINE].chunks_exact(kc * LINE);
                for (i, (left, (r0, rows))) in left.zip(pack::row_panels(m, kernel.mr)).enumerate() {
                    kernel.row(left, right, kc, c.block(r0, 0, rows, n), accumulate || k0 > 0, (i, panels));
                    if let (Some(finish), true) = (finish, k0 + kc == k) {
                        (r0..r0 + rows).for_each(|row| finish(row, col, c.row(row, 0, n)));
                    }
                }
            }
        });
    });
}
