//! Weights in bf16 by activations in f32: weights are half as many bytes, and each is multiplied exactly.
//!
//! They are packed as products in `bf16` have them: panels of 32 columns, each in steps of 32 of the depth, a step in
//! two tiles of 16 columns, a tile in 16 lines of pairs. What is beyond the edge of a matrix is 0. A few rows read
//! them once, as they are. For many rows blocks of them become f32 first, whose products are those of f32.

use super::columns::Right;
use super::matrix::{Mat, MatMut};
use super::pack::{self, Buffer};
use super::{Job, row_panels};
use crate::parallel;
use crate::simd::simd;
use crate::storage::bf16;
use crate::wide::{self, Wide, wide};

/// The most rows that read panels as they are.
pub(super) const FEW: usize = 8;
/// Columns of a panel.
pub(super) const PANEL: usize = 32;
/// Columns of a tile.
const SIDE: usize = 16;
/// Depth of a tile.
const DEPTH: usize = 32;
/// Pairs of a tile.
const TILE: usize = 256;

/// How many bytes before they are read weights are fetched.
const AHEAD: usize = 4096;

/// Pairs of a panel.
fn panel_pairs(depth: usize) -> usize {
    2 * TILE * depth.div_ceil(DEPTH)
}

/// Packs B, each number rounded to the nearest bf16.
pub(super) fn pack(b: Mat<'_>, threads: usize, buffer: &mut Buffer) {
    let size = panel_pairs(b.rows());
    let out = buffer.take_pairs(b.cols().div_ceil(PANEL) * size);
    if size == 0 {
        return;
    }
    let fill = |panel: usize, out: &mut [u32]| {
        for (i, tile) in out.chunks_exact_mut(TILE).enumerate() {
            fill_tile(b, i / 2 * DEPTH, panel * PANEL + i % 2 * SIDE, tile);
        }
    };
    match threads {
        1 => out.chunks_exact_mut(size).enumerate().for_each(|(panel, out)| fill(panel, out)),
        _ => parallel::each(out.chunks_exact_mut(size).collect(), fill),
    }
}

/// Packs a tile: rows from `row` on, columns from `col` on.
fn fill_tile(b: Mat<'_>, row: usize, col: usize, out: &mut [u32]) {
    let rows = DEPTH.min(b.rows() - row);
    let cols = SIDE.min(b.cols().saturating_sub(col));
    let mut whole = [[0.0; SIDE]; DEPTH];
    if cols > 0 && b.row_major() {
        (0..rows).for_each(|r| whole[r][..cols].copy_from_slice(b.row(row + r, col, cols)));
    } else {
        for c in 0..cols {
            b.col(row, col + c, rows).iter().enumerate().for_each(|(r, &x)| whole[r][c] = x);
        }
    }
    round(&whole, out);
}

simd! {
    fn round(from: &[[f32; SIDE]; DEPTH], out: &mut [u32]) {
        for (pair, out) in out.as_chunks_mut::<SIDE>().0.iter_mut().enumerate() {
            let (even, odd) = (&from[2 * pair], &from[2 * pair + 1]);
            for c in 0..SIDE {
                out[c] = u32::from(bf16::to_bits(even[c])) | u32::from(bf16::to_bits(odd[c])) << 16;
            }
        }
    }
}

/// Computes the part of C that begins at (row, col), a multiple of 32, of at most [`FEW`] rows.
pub(super) fn part(job: &Job<'_>, mut c: MatMut<'_>, row: usize, col: usize, buffer: &mut Buffer) {
    let (rows, cols, k) = (c.rows(), c.cols(), job.a.cols());
    // Activations, filled up with zeros.
    let stride = k.next_multiple_of(DEPTH);
    let x = buffer.take(rows * stride);
    for (r, line) in x.chunks_exact_mut(stride.max(1)).enumerate() {
        match job.a.row_major() {
            true => line[..k].copy_from_slice(job.a.row(row + r, 0, k)),
            false => line.iter_mut().enumerate().take(k).for_each(|(i, x)| *x = job.a.at(row + r, i)),
        }
        line[k..].fill(0.0);
    }
    let panels = &job.panels.get_pairs()[col / PANEL * panel_pairs(k)..];
    for (p, n0) in (0..cols).step_by(PANEL).enumerate() {
        let panel = &panels[p * panel_pairs(k)..][..panel_pairs(k)];
        let n1 = cols.min(n0 + PANEL);
        for (r0, some) in row_panels(rows, wide::rows()) {
            let mut out = [[0.0; PANEL]; FEW];
            // SAFETY: so many rows of activations, each as deep as the panel.
            unsafe { sums(some, &x[r0 * stride..][..some * stride], panel, &mut out) };
            for (r, out) in out.iter().enumerate().take(some) {
                let c = c.row(r0 + r, n0, n1 - n0).iter_mut().zip(out);
                match job.accumulate {
                    true => c.for_each(|(c, out)| *c += out),
                    false => c.for_each(|(c, out)| *c = *out),
                }
            }
        }
    }
    job.finish(&mut c, (0, rows), (0, cols), row, col);
}

wide! {
    /// Products of so many rows, at most [`FEW`], with a panel.
    ///
    /// # Safety
    /// Rows must be as deep as the panel.
    fn sums<W>(rows: usize, x: &[f32], panel: &[u32], out: &mut [[f32; PANEL]; FEW]) {
        // SAFETY: the caller's.
        unsafe {
            match rows {
                1 => of_rows::<W, 1>(x, panel, out),
                2 => of_rows::<W, 2>(x, panel, out),
                3 => of_rows::<W, 3>(x, panel, out),
                4 => of_rows::<W, 4>(x, panel, out),
                5 => of_rows::<W, 5>(x, panel, out),
                6 => of_rows::<W, 6>(x, panel, out),
                7 => of_rows::<W, 7>(x, panel, out),
                8 => of_rows::<W, 8>(x, panel, out),
                _ => unreachable!("at most {FEW} rows"),
            }
        }
    }
}

/// Sums of rows for 16 columns: of the even and of the odd inputs.
type Sums<W, const ROWS: usize> = [[W; ROWS]; 2];

#[inline(always)]
unsafe fn of_rows<W: Wide, const ROWS: usize>(x: &[f32], panel: &[u32], out: &mut [[f32; PANEL]; FEW]) {
    let stride = x.len() / ROWS;
    // SAFETY: a panel has as many steps as a row of activations, each of two tiles.
    unsafe {
        let (mut left, mut right): (Sums<W, ROWS>, Sums<W, ROWS>) =
            ([[W::set(0.0); ROWS]; 2], [[W::set(0.0); ROWS]; 2]);
        for step in 0..panel.len() / (2 * TILE) {
            let (x, tiles) = (x.as_ptr().add(step * DEPTH), panel.as_ptr().add(2 * step * TILE));
            tile(x, stride, tiles, &mut left);
            tile(x, stride, tiles.add(TILE), &mut right);
        }
        for r in 0..ROWS {
            left[0][r].add(left[1][r]).store(out[r].as_mut_ptr());
        }
        for r in 0..ROWS {
            right[0][r].add(right[1][r]).store(out[r].as_mut_ptr().add(SIDE));
        }
    }
}

#[inline(always)]
unsafe fn tile<W: Wide, const ROWS: usize>(x: *const f32, stride: usize, pairs: *const u32, sums: &mut Sums<W, ROWS>) {
    for pair in 0..SIDE {
        // SAFETY: the caller's: a tile, and 32 activations of each row.
        unsafe {
            let line = pairs.add(pair * SIDE).cast::<u8>();
            pack::fetch(line.wrapping_add(AHEAD));
            let words = W::words(line);
            let (even, odd) = (W::half(words, false), W::half(words, true));
            for r in 0..ROWS {
                let x = x.add(r * stride + 2 * pair);
                sums[0][r] = W::set(*x).fma(even, sums[0][r]);
                sums[1][r] = W::set(*x.add(1)).fma(odd, sums[1][r]);
            }
        }
    }
}

/// Packed weights, as panels of f32 where a piece asks for them.
pub(super) struct Widened<'a> {
    pub pairs: &'a [u32],
    pub depth: usize,
}

impl Right for Widened<'_> {
    fn block<'s>(
        &'s self,
        (k0, kc): (usize, usize),
        (col, n): (usize, usize),
        nr: usize,
        buffer: &'s mut Buffer,
    ) -> &'s [f32] {
        assert!(k0.is_multiple_of(DEPTH) && col.is_multiple_of(SIDE) && nr.is_multiple_of(SIDE));
        let out = buffer.take(kc * n.next_multiple_of(nr));
        let size = panel_pairs(self.depth);
        for (c, at) in (0..n).step_by(SIDE).map(|c| (c, col + c)) {
            let tiles = &self.pairs[at / PANEL * size + at % PANEL / SIDE * TILE..];
            let out = &mut out[c / nr * kc * nr + c % nr..];
            for (step, row) in (k0 / DEPTH..).zip((0..kc).step_by(DEPTH)) {
                let tile = &tiles[2 * step * TILE..][..TILE];
                // SAFETY: a tile, and rows of `nr` numbers, of which 16 from the first of `out` on are these columns'.
                unsafe { widen(tile, DEPTH.min(kc - row), &mut out[row * nr..], nr) };
            }
        }
        buffer.get()
    }
}

wide! {
    /// The numbers of a tile: so many rows of 16, `stride` apart.
    ///
    /// # Safety
    /// There must be a tile.
    fn widen<W>(tile: &[u32], rows: usize, out: &mut [f32], stride: usize) {
        assert!(rows <= DEPTH && tile.len() == TILE && out.len() >= (rows - 1) * stride + SIDE);
        for row in 0..rows {
            // SAFETY: a line of the tile and a row of `out`, as asserted.
            unsafe {
                let words = W::words(tile.as_ptr().add(row / 2 * SIDE).cast());
                W::half(words, row % 2 == 1).store(out.as_mut_ptr().add(row * stride));
            }
        }
    }
}
