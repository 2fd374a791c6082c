//! Loops over rows on all threads. Each row is computed by one thread, so results do not depend on how many
//! there are; sums over rows go through [`sum_rows`], whose order depends on the number of rows alone.

use rayon::prelude::*;

/// Below this many floats a loop stays on its thread.
const SMALL: usize = 1 << 14;

/// How many rows of `width` make a piece of work.
fn rows_per_piece(rows: usize, width: usize) -> usize {
    let pieces = (rows * width / SMALL).clamp(1, 4 * rayon::current_num_threads());
    rows.div_ceil(pieces).max(1)
}

/// Calls `work(row, values)` for each row of `width` floats.
pub(crate) fn rows(data: &mut [f32], width: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
    if width == 0 || data.is_empty() {
        return;
    }
    let piece = rows_per_piece(data.len() / width, width);
    data.par_chunks_mut(piece * width).enumerate().for_each(|(p, chunk)| {
        chunk.chunks_exact_mut(width).enumerate().for_each(|(r, row)| work(p * piece + r, row));
    });
}

/// Adds `width` numbers per row into `sum`: `add(row, sum)` adds one row's. Pieces of 64 rows are summed side by
/// side, and then in their order.
pub(crate) fn sum_rows(rows: usize, sum: &mut [f32], add: impl Fn(usize, &mut [f32]) + Sync) {
    const PIECE: usize = 64;
    let width = sum.len();
    let partial: Vec<Vec<f32>> = (0..rows.div_ceil(PIECE))
        .into_par_iter()
        .map(|p| {
            let mut partial = vec![0.0; width];
            (p * PIECE..rows.min((p + 1) * PIECE)).for_each(|row| add(row, &mut partial));
            partial
        })
        .collect();
    for partial in partial {
        sum.iter_mut().zip(partial).for_each(|(sum, partial)| *sum += partial);
    }
}
