//! Loops over rows on all threads. Each row is computed by one thread, so results do not depend on how many
//! there are; sums over rows go through [`sum_rows`], whose order depends on the number of rows alone.

use crate::gemm::MatMut;
use crate::team;
use std::mem::ManuallyDrop;

/// Below this many floats a loop stays on its thread.
const SMALL: usize = 1 << 14;

/// Gives each item to one thread: `work(index, item)`.
pub(crate) fn each<T: Send>(items: Vec<T>, work: impl Fn(usize, T) + Sync) {
    struct Items<T>(*const T);
    // SAFETY: items are sent to other threads, which `T: Send` allows, and each to one thread only.
    unsafe impl<T: Send> Sync for Items<T> {}
    impl<T> Items<T> {
        /// # Safety
        /// `i` must be an index of the items, and each may be taken only once.
        unsafe fn take(&self, i: usize) -> T {
            // SAFETY: as the caller promises.
            unsafe { self.0.add(i).read() }
        }
    }
    // What a panic leaves behind leaks. The memory of the list itself is given back at the end.
    let mut items = ManuallyDrop::new(items);
    let taken = Items(items.as_ptr());
    team::run(items.len(), |i| {
        // SAFETY: the team calls this once for each index.
        work(i, unsafe { taken.take(i) });
    });
    // SAFETY: all items are gone, so that only the list's memory is left.
    unsafe { items.set_len(0) };
    drop(ManuallyDrop::into_inner(items));
}

/// How many rows of `width` make a piece of work.
fn rows_per_piece(rows: usize, width: usize) -> usize {
    let pieces = (rows * width / SMALL).clamp(1, 8 * team::threads());
    rows.div_ceil(pieces).max(1)
}

/// Calls `work(row, values)` for each row of `width` floats.
pub(crate) fn rows(data: &mut [f32], width: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
    if width == 0 || data.is_empty() {
        return;
    }
    let piece = rows_per_piece(data.len() / width, width);
    each(data.chunks_mut(piece * width).collect(), |p, chunk| {
        chunk.chunks_exact_mut(width).enumerate().for_each(|(r, row)| work(p * piece + r, row));
    });
}

/// As [`rows`], for a matrix with any row stride.
pub(crate) fn matrix_rows(matrix: MatMut<'_>, work: impl Fn(usize, &mut [f32]) + Sync) {
    let (rows, width) = (matrix.rows(), matrix.cols());
    let piece = rows_per_piece(rows, width);
    let ends: Vec<usize> = (1..=rows.div_ceil(piece)).map(|p| (p * piece).min(rows)).collect();
    each(matrix.split(&ends, &[width]), |_, (first, _, mut part)| {
        (0..part.rows()).for_each(|r| work(first + r, part.row(r, 0, width)));
    });
}

/// Calls `work` for each pair of rows of two arrays.
pub(crate) fn zip_rows(
    a: (&mut [f32], usize),
    b: (&mut [f32], usize),
    work: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    let ((a, a_width), (b, b_width)) = (a, b);
    if a.is_empty() {
        return;
    }
    let piece = rows_per_piece(a.len() / a_width, a_width.max(b_width));
    each(a.chunks_mut(piece * a_width).zip(b.chunks_mut(piece * b_width)).collect(), |p, (a, b)| {
        let both = a.chunks_exact_mut(a_width).zip(b.chunks_exact_mut(b_width));
        both.enumerate().for_each(|(r, (a, b))| work(p * piece + r, a, b));
    });
}

/// Rows that are summed one after the other; the sums of such pieces are added in their order.
const PIECE: usize = 64;

/// Adds `sum.len()` numbers per row into `sum`: `add(row, sum)` adds one row's. Pieces of 64 rows are summed side by
/// side, and then in their order.
pub(crate) fn sum_rows(rows: usize, sum: &mut [f32], add: impl Fn(usize, &mut [f32]) + Sync) {
    let pieces = vec![(); rows.div_ceil(PIECE)];
    sum_pieces(pieces, sum, |p, (), sum| (p * PIECE..rows.min((p + 1) * PIECE)).for_each(|row| add(row, sum)));
}

/// As [`sum_rows`], where the same loop also changes the rows of an array: `add(row, values, sum)`.
pub(crate) fn sum_rows_with(
    (data, width): (&mut [f32], usize),
    sum: &mut [f32],
    add: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    sum_pieces(data.chunks_mut(PIECE * width).collect(), sum, |p, data, sum| {
        data.chunks_exact_mut(width).enumerate().for_each(|(r, row)| add(p * PIECE + r, row, sum));
    });
}

fn sum_pieces<T: Send>(pieces: Vec<T>, sum: &mut [f32], add: impl Fn(usize, T, &mut [f32]) + Sync) {
    let width = sum.len();
    if width == 0 {
        return;
    }
    let mut partial = vec![0.0; pieces.len() * width];
    let items = pieces.into_iter().zip(partial.chunks_exact_mut(width)).collect();
    each(items, |p, (piece, partial)| add(p, piece, partial));
    for partial in partial.chunks_exact(width) {
        sum.iter_mut().zip(partial).for_each(|(sum, partial)| *sum += partial);
    }
}
