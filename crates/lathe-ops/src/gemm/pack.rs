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
            let mut block = [[0.0f32; LINE]; LINE];
            for (c, column) in columns.iter().enumerate() {
                let values: &[f32; LINE] = column[p..p + LINE].try_into().expect("a line");
                for (row, &value) in block.iter_mut().zip(values) {
                    row[c] = value;
                }
            }
            for (i, row) in block.iter().enumerate() {
                out[(p + i) * stride + at..][..LINE].copy_from_slice(row);
            }
            p += LINE;
        }
    }
    for p in p..len {
        for (c, column) in columns.iter().enumerate() {
            out[p * stride + at + c] = column[p];
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
