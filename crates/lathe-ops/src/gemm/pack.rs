//! Copies of blocks of A and B in the order in which kernels read them.

use super::matrix::Mat;
use super::{KC, kernel};

/// A buffer aligned to cache lines, grown as needed and kept from product to product.
pub(super) struct Buffer {
    data: Vec<f32>,
}

/// Floats in a cache line.
const LINE: usize = 16;

impl Buffer {
    pub const fn new() -> Self {
        Self { data: Vec::new() }
    }

    /// `len` floats of whatever was there.
    pub fn take(&mut self, len: usize) -> &mut [f32] {
        if self.data.len() < len + LINE {
            self.data.resize(len + LINE, 0.0);
        }
        let offset = self.data.as_ptr().align_offset(4 * LINE);
        &mut self.data[offset..offset + len]
    }
}

/// Packs `kc` rows from `k0` and `nc` columns from `n0` of B into panels of `nr` columns, each row by row;
/// the last panel is filled up with zeros.
pub(super) fn pack_b<'a>(
    b: Mat<'_>,
    (k0, kc): (usize, usize),
    (n0, nc): (usize, usize),
    nr: usize,
    buffer: &'a mut Buffer,
) -> &'a [f32] {
    let panels = nc.div_ceil(nr);
    let out = buffer.take(panels * kc * nr);
    fill_b(b, (k0, kc), (n0, nc), nr, out);
    out
}

fn fill_b(b: Mat<'_>, (k0, kc): (usize, usize), (n0, nc): (usize, usize), nr: usize, out: &mut [f32]) {
    for (j, panel) in out.chunks_exact_mut(kc * nr).enumerate() {
        let first = n0 + j * nr;
        let cols = nr.min(n0 + nc - first);
        if cols < nr {
            panel.fill(0.0);
        }
        if b.row_major() {
            for (p, row) in panel.chunks_exact_mut(nr).enumerate() {
                row[..cols].copy_from_slice(b.row(k0 + p, first, cols));
            }
        } else {
            // Columns of B stand side by side in memory: turn them a block at a time.
            for c0 in (0..cols).step_by(LINE) {
                let width = LINE.min(cols - c0);
                let columns: [&[f32]; LINE] =
                    std::array::from_fn(|c| if c < width { b.col(k0, first + c0 + c, kc) } else { &[] });
                transpose(&columns[..width], panel, nr, c0, kc);
            }
        }
    }
}

/// Writes columns as rows: `out[p * stride + at + c] = columns[c][p]`.
fn transpose(columns: &[&[f32]], out: &mut [f32], stride: usize, at: usize, len: usize) {
    let mut p = 0;
    if let Ok(columns) = <&[&[f32]; LINE]>::try_from(columns) {
        while p + LINE <= len {
            let block = columns.map(|column| <&[f32; LINE]>::try_from(&column[p..p + LINE]).expect("a line"));
            transpose_block(block, &mut out[p * stride + at..], stride);
            p += LINE;
        }
    }
    for p in p..len {
        for (c, column) in columns.iter().enumerate() {
            out[p * stride + at + c] = column[p];
        }
    }
}

/// Writes 16 columns of 16 as rows that begin `stride` apart.
fn transpose_block(columns: [&[f32; LINE]; LINE], out: &mut [f32], stride: usize) {
    assert!(stride >= LINE && out.len() >= (LINE - 1) * stride + LINE);
    #[cfg(target_arch = "x86_64")]
    if crate::cpu::level() == crate::cpu::Level::Avx512 {
        // SAFETY: the CPU has AVX-512, and `out` has 16 rows of 16, as asserted above.
        return unsafe { transpose_avx512(columns, out.as_mut_ptr(), stride) };
    }
    for i in 0..LINE {
        let row = columns.map(|column| column[i]);
        out[i * stride..][..LINE].copy_from_slice(&row);
    }
}

/// In registers: pairs, then fours, then the 128-bit lanes.
///
/// # Safety
/// The CPU must have AVX-512 F, and `out` room for 16 rows of 16, `stride` apart.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn transpose_avx512(columns: [&[f32; LINE]; LINE], out: *mut f32, stride: usize) {
    use std::arch::x86_64::*;
    // SAFETY: each column has 16 floats.
    let c = columns.map(|column| unsafe { _mm512_loadu_ps(column.as_ptr()) });
    let pairs: [__m512d; LINE] = std::array::from_fn(|i| {
        let (a, b) = (c[i / 2 * 2], c[i / 2 * 2 + 1]);
        _mm512_castps_pd(if i % 2 == 0 { _mm512_unpacklo_ps(a, b) } else { _mm512_unpackhi_ps(a, b) })
    });
    // fours[4 g + j]: element j of each 128-bit lane, of columns 4 g to 4 g + 3.
    let fours: [__m512; LINE] = std::array::from_fn(|i| {
        let (a, b) = (pairs[i / 4 * 4 + i % 4 / 2], pairs[i / 4 * 4 + i % 4 / 2 + 2]);
        _mm512_castpd_ps(if i % 2 == 0 { _mm512_unpacklo_pd(a, b) } else { _mm512_unpackhi_pd(a, b) })
    });
    for j in 0..4 {
        let (a, b, c, d) = (fours[j], fours[4 + j], fours[8 + j], fours[12 + j]);
        // Lanes 0 and 2, and lanes 1 and 3, of two columns' groups each.
        let (ab_even, ab_odd) = (_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
        let (cd_even, cd_odd) = (_mm512_shuffle_f32x4(c, d, 0x88), _mm512_shuffle_f32x4(c, d, 0xdd));
        let rows = [
            _mm512_shuffle_f32x4(ab_even, cd_even, 0x88),
            _mm512_shuffle_f32x4(ab_odd, cd_odd, 0x88),
            _mm512_shuffle_f32x4(ab_even, cd_even, 0xdd),
            _mm512_shuffle_f32x4(ab_odd, cd_odd, 0xdd),
        ];
        for (lane, row) in rows.into_iter().enumerate() {
            // SAFETY: row 4 lane + j of 16.
            unsafe { _mm512_storeu_ps(out.add((4 * lane + j) * stride), row) };
        }
    }
}

/// A packed block of A.
#[derive(Clone, Copy)]
pub(super) struct PackedA<'a> {
    data: &'a [f32],
    layout: Layout,
    kc: usize,
}

#[derive(Clone, Copy)]
enum Layout {
    /// Rows one after the other, `stride` apart.
    Rows { stride: usize },
    /// Panels of `mr` rows, each column by column.
    Panels,
}

/// What a kernel reads of A: entry (r, p) is at `r * row_stride + p * col_stride`; one of them is 1.
#[derive(Clone, Copy)]
pub(super) struct Lhs<'a> {
    pub data: &'a [f32],
    pub row_stride: usize,
    pub col_stride: usize,
}

/// Copies `mc` rows from `m0` and `kc` columns from `k0` of A: as rows with a stride that does not put them
/// all onto the same cache lines, or, where columns stand side by side in memory, as panels.
pub(super) fn pack_a<'a>(
    a: Mat<'_>,
    (m0, mc): (usize, usize),
    (k0, kc): (usize, usize),
    mr: usize,
    buffer: &'a mut Buffer,
) -> PackedA<'a> {
    if a.row_major() {
        let stride = kc.next_multiple_of(LINE) + LINE;
        let out = buffer.take(mc * stride);
        for (r, row) in out.chunks_exact_mut(stride).enumerate() {
            row[..kc].copy_from_slice(a.row(m0 + r, k0, kc));
        }
        return PackedA { data: out, layout: Layout::Rows { stride }, kc };
    }
    let out = buffer.take(mc * kc);
    for (r0, rows) in row_panels(mc, mr) {
        let panel = &mut out[r0 * kc..(r0 + rows) * kc];
        for (p, values) in panel.chunks_exact_mut(rows).enumerate() {
            values.copy_from_slice(a.col(m0 + r0, k0 + p, rows));
        }
    }
    PackedA { data: out, layout: Layout::Panels, kc }
}

impl<'a> PackedA<'a> {
    /// One of the panels of rows that [`row_panels`] gives.
    pub fn rows(&self, first: usize, rows: usize) -> Lhs<'a> {
        match self.layout {
            Layout::Rows { stride } => Lhs { data: &self.data[first * stride..], row_stride: stride, col_stride: 1 },
            Layout::Panels => {
                Lhs { data: &self.data[first * self.kc..][..rows * self.kc], row_stride: 1, col_stride: rows }
            }
        }
    }
}

/// Cuts rows into the fewest panels of at most `mr` rows, nearly equal: (first, rows).
pub(super) fn row_panels(rows: usize, mr: usize) -> impl Iterator<Item = (usize, usize)> {
    let panels = rows.div_ceil(mr).max(1);
    (0..panels).map(move |i| {
        let (start, end) = (rows * i / panels, rows * (i + 1) / panels);
        (start, end - start)
    })
}

/// A matrix packed once, to be the right-hand side of many products.
pub struct Packed {
    buffer: Buffer,
    rows: usize,
    cols: usize,
    nr: usize,
}

impl Packed {
    /// Packs a matrix.
    pub fn new(b: Mat<'_>) -> Self {
        let mut packed = Self { buffer: Buffer::new(), rows: b.rows(), cols: b.cols(), nr: kernel::best().nr };
        packed.pack(b);
        packed
    }

    /// Packs another matrix of the same shape in its place.
    pub fn pack(&mut self, b: Mat<'_>) {
        assert!(b.rows() == self.rows && b.cols() == self.cols);
        let width = self.cols.div_ceil(self.nr) * self.nr;
        let out = self.buffer.take(self.rows * width);
        for k0 in (0..self.rows).step_by(KC) {
            let kc = KC.min(self.rows - k0);
            fill_b(b, (k0, kc), (0, self.cols), self.nr, &mut out[k0 * width..(k0 + kc) * width]);
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The panels of a block of depth from a column on, which is a multiple of `nr`.
    pub(super) fn panels(&self, (k0, kc): (usize, usize), col: usize) -> &[f32] {
        debug_assert!(col.is_multiple_of(self.nr) && k0.is_multiple_of(KC));
        let width = self.cols.div_ceil(self.nr) * self.nr;
        let offset = self.buffer.data.as_ptr().align_offset(4 * LINE);
        &self.buffer.data[offset + k0 * width + col * kc..offset + (k0 + kc) * width]
    }
}
