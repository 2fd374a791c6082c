//! Copies of blocks of A and B in the order in which kernels read them.

use super::columns::Right;
use super::matrix::Mat;
use super::{KC, Way, halves, kernel};
#[cfg(target_arch = "x86_64")]
use crate::cpu::{self, Level};
use crate::{Precision, parallel, team};
use std::sync::Mutex;

/// A buffer aligned to cache lines, which grows to the largest size that was asked for.
pub(crate) struct Buffer {
    data: Vec<f32>,
    /// Floats of the last `take`.
    len: usize,
}

/// Floats in a cache line.
pub(super) const LINE: usize = 16;

impl Buffer {
    pub const fn new() -> Self {
        Self { data: Vec::new(), len: 0 }
    }

    /// `len` floats of whatever was there.
    pub fn take(&mut self, len: usize) -> &mut [f32] {
        if self.data.len() < len + LINE {
            self.data = vec![0.0; len + LINE];
        }
        self.len = len;
        let offset = self.data.as_ptr().align_offset(4 * LINE);
        &mut self.data[offset..offset + len]
    }

    /// `len` pairs of bf16 of whatever was there.
    pub fn take_pairs(&mut self, len: usize) -> &mut [u32] {
        let floats = self.take(len);
        // SAFETY: f32 and u32 are alike in size and alignment, and every bit pattern is a value of either.
        unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), len) }
    }

    /// The pairs that were last taken.
    pub fn get_pairs(&self) -> &[u32] {
        let floats = self.get();
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), floats.len()) }
    }

    /// What was last taken.
    pub fn get(&self) -> &[f32] {
        let offset = self.data.as_ptr().align_offset(4 * LINE);
        &self.data[offset.min(self.data.len())..][..self.len]
    }
}

/// Buffers for packing B that no product uses at the moment; there are never more than products at the same time.
static FREE: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());

/// A buffer from the pool, given back when it is dropped.
pub(super) struct Borrowed(Buffer);

impl Borrowed {
    pub fn new() -> Self {
        let free = FREE.lock().expect("nothing panics while it holds the pool").pop();
        Self(free.unwrap_or(Buffer::new()))
    }
}

impl std::ops::Deref for Borrowed {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        &self.0
    }
}

impl std::ops::DerefMut for Borrowed {
    fn deref_mut(&mut self) -> &mut Buffer {
        &mut self.0
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let buffer = std::mem::replace(&mut self.0, Buffer::new());
        FREE.lock().expect("nothing panics while it holds the pool").push(buffer);
    }
}

/// Packs B into blocks of [`KC`] rows, each of panels of `nr` columns, each row by row; the last panel is filled up with
/// zeros. Threads share the panels.
pub(super) fn pack_b(b: Mat<'_>, nr: usize, threads: usize, buffer: &mut Buffer) {
    fill(b, nr, threads, buffer.take(b.rows() * b.cols().next_multiple_of(nr)));
}

/// Packs B for products that are computed in a way.
pub(super) fn pack(b: Mat<'_>, way: Way, threads: usize, buffer: &mut Buffer) {
    match way {
        Way::Sums => pack_b(b, kernel::best().nr, threads, buffer),
        Way::Few => super::bf16::pack_b(b, 1, threads, buffer),
        Way::Tiles { parts } => super::bf16::pack_b(b, parts, threads, buffer),
        Way::Widened => halves::pack(b, threads, buffer),
    }
}

fn fill(b: Mat<'_>, nr: usize, threads: usize, out: &mut [f32]) {
    let width = b.cols().next_multiple_of(nr);
    for (block, out) in out.chunks_mut((KC * width).max(1)).enumerate() {
        let (k0, kc) = (block * KC, KC.min(b.rows() - block * KC));
        let panel = |(j, panel): (usize, &mut [f32])| {
            let cols = nr.min(b.cols() - j * nr);
            match nr {
                32 => fill_panel::<32>(b, (k0, kc), (j * nr, cols), panel),
                16 => fill_panel::<16>(b, (k0, kc), (j * nr, cols), panel),
                _ => unreachable!("kernels have 16 or 32 columns"),
            }
        };
        match threads {
            1 => out.chunks_exact_mut(kc * nr).enumerate().for_each(panel),
            _ => parallel::each(out.chunks_mut(4 * kc * nr).collect(), |i, out| {
                out.chunks_exact_mut(kc * nr).enumerate().for_each(|(j, out)| panel((4 * i + j, out)));
            }),
        }
    }
}

/// Lines that are fetched before they are read: they are far apart, so that no processor guesses them.
const AHEAD: usize = 12;

/// Asks for a cache line that will be read.
#[inline(always)]
pub(crate) fn fetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction, and it reads nothing.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Packs one panel.
fn fill_panel<const NR: usize>(b: Mat<'_>, (k0, kc): (usize, usize), (first, cols): (usize, usize), panel: &mut [f32]) {
    if b.row_major() {
        for (p, row) in panel.as_chunks_mut::<NR>().0.iter_mut().enumerate() {
            let from = b.row(k0 + p, first, cols);
            let ahead = from.as_ptr().wrapping_add(AHEAD * b.stride());
            (0..NR).step_by(LINE).for_each(|i| fetch(ahead.wrapping_add(i)));
            match <&[f32; NR]>::try_from(from) {
                Ok(from) => *row = *from, // a few moves, where a copy of any length would be a call
                Err(_) => {
                    row[..cols].copy_from_slice(from);
                    row[cols..].fill(0.0);
                }
            }
        }
        return;
    }
    if cols < NR {
        panel.fill(0.0);
    }
    // Columns of B stand side by side in memory: turn them a block at a time.
    for c0 in (0..cols).step_by(LINE) {
        let width = LINE.min(cols - c0);
        let columns: [&[f32]; LINE] =
            std::array::from_fn(|c| if c < width { b.col(k0, first + c0 + c, kc) } else { &[] });
        transpose(&columns[..width], panel, NR, c0, kc);
    }
}

/// Writes columns as rows: `out[p * stride + at + c] = columns[c][p]`.
fn transpose(columns: &[&[f32]], out: &mut [f32], stride: usize, at: usize, len: usize) {
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if let (Ok(columns), true) = (<&[&[f32]; LINE]>::try_from(columns), cpu::level() >= Level::Avx512) {
        assert!(columns.iter().all(|column| column.len() >= len) && stride >= at + LINE && out.len() >= len * stride);
        done = len / LINE * LINE;
        // SAFETY: the CPU has AVX-512, the columns have so many entries, and `out` has as many rows of 16, as asserted above.
        unsafe { transpose_avx512(&columns.map(<[f32]>::as_ptr), done, out.as_mut_ptr().wrapping_add(at), stride) };
    }
    for p in done..len {
        let row = &mut out[p * stride + at..][..columns.len()];
        row.iter_mut().zip(columns).for_each(|(x, column)| *x = column[p]);
    }
}

/// Writes 16 columns of `len`, a multiple of 16, as rows that begin `stride` apart.
///
/// # Safety
/// The CPU must have AVX-512 F, each column `len` entries, and `out` as many rows of 16.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn transpose_avx512(columns: &[*const f32; LINE], len: usize, out: *mut f32, stride: usize) {
    use std::arch::x86_64::*;
    for p in (0..len).step_by(LINE) {
        let mut c = [_mm512_setzero_ps(); LINE];
        for i in 0..LINE {
            fetch(columns[i].wrapping_add(p + 4 * LINE));
            // SAFETY: 16 entries from `p` on.
            c[i] = unsafe { _mm512_loadu_ps(columns[i].add(p)) };
        }
        for (i, row) in transpose_registers(c).into_iter().enumerate() {
            // SAFETY: row `p + i` of `len`.
            unsafe { _mm512_storeu_ps(out.add((p + i) * stride), row) };
        }
    }
}

/// The transpose of 16 by 16: pairs, then fours, then the 128-bit lanes.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose_registers(c: [std::arch::x86_64::__m512; LINE]) -> [std::arch::x86_64::__m512; LINE] {
    use std::arch::x86_64::*;
    // Loops: a profile showed closures here as calls of their own, with registers going through memory.
    let mut pairs = c;
    let mut fours = c; // fours[4 g + j]: element j of each 128-bit lane, of columns 4 g to 4 g + 3
    let mut out = c;
    for i in (0..LINE).step_by(2) {
        pairs[i] = _mm512_unpacklo_ps(c[i], c[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_ps(c[i], c[i + 1]);
    }
    for g in (0..LINE).step_by(4) {
        for half in 0..2 {
            let (a, b) = (_mm512_castps_pd(pairs[g + half]), _mm512_castps_pd(pairs[g + half + 2]));
            fours[g + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            fours[g + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    for j in 0..4 {
        let (a, b, c, d) = (fours[j], fours[4 + j], fours[8 + j], fours[12 + j]);
        // Lanes 0 and 2, and lanes 1 and 3, of two columns' groups each.
        let (ab_even, ab_odd) = (_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
        let (cd_even, cd_odd) = (_mm512_shuffle_f32x4(c, d, 0x88), _mm512_shuffle_f32x4(c, d, 0xdd));
        out[j] = _mm512_shuffle_f32x4(ab_even, cd_even, 0x88);
        out[4 + j] = _mm512_shuffle_f32x4(ab_odd, cd_odd, 0x88);
        out[8 + j] = _mm512_shuffle_f32x4(ab_even, cd_even, 0xdd);
        out[12 + j] = _mm512_shuffle_f32x4(ab_odd, cd_odd, 0xdd);
    }
    out
}

/// Copies `mc` rows from `m0` and `kc` columns from `k0` of A into panels of 16 rows, of which [`row_panels`] says how many
/// count, each column by column: a kernel then reads them with one pointer. A single row stays as it is.
pub(super) fn pack_a<'a>(
    a: Mat<'_>,
    (m0, mc): (usize, usize),
    (k0, kc): (usize, usize),
    mr: usize,
    buffer: &'a mut Buffer,
) -> &'a [f32] {
    let out = buffer.take(mc.div_ceil(mr) * kc * LINE);
    let panels: Vec<(usize, usize)> = row_panels(mc, mr).collect();
    if a.row_major() || mc == 1 {
        for (panel, &(r0, rows)) in out.chunks_exact_mut(kc * LINE).zip(&panels) {
            fill_rows(a, (m0 + r0, rows), (k0, kc), panel);
        }
        return out;
    }
    // A column stands side by side: all panels of it before the next.
    for p in 0..kc {
        for (j, &(r0, rows)) in panels.iter().enumerate() {
            fill_column(a, (m0 + r0, rows), k0 + p, 3, &mut out[(j * kc + p) * LINE..][..LINE]);
        }
    }
    out
}

/// Packs one panel of A.
pub(super) fn fill_rows(a: Mat<'_>, (first, rows): (usize, usize), (k0, kc): (usize, usize), panel: &mut [f32]) {
    if rows == 1 {
        let line = &mut panel[..kc];
        match a.row_major() {
            true => line.copy_from_slice(a.row(first, k0, kc)),
            false => line.iter_mut().enumerate().for_each(|(p, x)| *x = a.at(first, k0 + p)),
        }
    } else if a.row_major() {
        // Places for rows beyond the last hold it once more; nobody reads them.
        let lines: [&[f32]; LINE] = std::array::from_fn(|r| a.row(first + r.min(rows - 1), k0, kc));
        transpose(&lines, panel, LINE, 0, kc);
    } else {
        for (p, to) in panel.as_chunks_mut::<LINE>().0.iter_mut().enumerate() {
            fill_column(a, (first, rows), k0 + p, AHEAD, to);
        }
    }
}

/// Copies a column of a panel of A, and fetches the one `ahead` columns behind it. Places beyond `rows` may hold anything.
#[inline(always)]
fn fill_column(a: Mat<'_>, (first, rows): (usize, usize), column: usize, ahead: usize, to: &mut [f32]) {
    let wide = if first + LINE <= a.rows() { LINE } else { rows };
    let from = a.col(first, column, wide);
    fetch(from.as_ptr().wrapping_add(ahead * a.stride()));
    match (<&[f32; LINE]>::try_from(from), <&mut [f32; LINE]>::try_from(&mut *to)) {
        (Ok(from), Ok(to)) => *to = *from, // a few moves, where a copy of any length would be a call
        _ => to[..wide].copy_from_slice(from),
    }
}

/// Cuts rows into the fewest panels of at most `mr` rows, nearly equal: (first, rows).
pub(crate) fn row_panels(rows: usize, mr: usize) -> impl Iterator<Item = (usize, usize)> {
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
    kind: Kind,
}

/// What a packed matrix is made of.
#[derive(Clone, Copy)]
enum Kind {
    /// Numbers of a precision, for products of that precision.
    Same(Precision),
    /// bf16, for products of f32.
    Bf16Weights,
}

impl Packed {
    /// Packs a matrix for f32 products.
    pub fn new(b: Mat<'_>) -> Self {
        Self::with_precision(b, Precision::F32)
    }

    /// Packs a matrix for products of a precision, which has to be [`Precision::available`]. Products in bf16 of at most 8
    /// rows round the weights alone, and multiply them by A as it is.
    pub fn with_precision(b: Mat<'_>, precision: Precision) -> Self {
        Self::of(b, Kind::Same(precision))
    }

    /// Packs a matrix whose numbers are held as bf16, to the nearest of which they are rounded, in half of the memory. Products
    /// are those of f32 with what they are rounded to, on every CPU.
    pub fn bf16_weights(b: Mat<'_>) -> Self {
        Self::of(b, Kind::Bf16Weights)
    }

    fn of(b: Mat<'_>, kind: Kind) -> Self {
        let mut packed = Self { buffer: Buffer::new(), rows: b.rows(), cols: b.cols(), kind };
        packed.refill(b);
        packed
    }

    /// Packs another matrix of the same size.
    pub fn refill(&mut self, b: Mat<'_>) {
        assert_eq!((b.rows(), b.cols()), (self.rows, self.cols));
        pack(b, self.way(usize::MAX), team::threads(), &mut self.buffer);
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes that it takes in memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.buffer.data)
    }

    /// What its products are computed in.
    pub fn precision(&self) -> Precision {
        match self.kind {
            Kind::Same(precision) => precision,
            Kind::Bf16Weights => Precision::F32,
        }
    }

    /// How products of `m` rows are computed.
    pub(super) fn way(&self, m: usize) -> Way {
        match self.kind {
            Kind::Same(Precision::F32) => Way::Sums,
            Kind::Same(Precision::Bf16) => Way::bf16(m),
            Kind::Bf16Weights if m <= halves::FEW => Way::Few,
            Kind::Bf16Weights => Way::Widened,
        }
    }

    pub(super) fn buffer(&self) -> &Buffer {
        &self.buffer
    }
}

impl Right for Packed {
    fn block<'s>(
        &'s self,
        (k0, kc): (usize, usize),
        (col, n): (usize, usize),
        nr: usize,
        buffer: &'s mut Buffer,
    ) -> &'s [f32] {
        match self.kind {
            Kind::Same(_) => &self.buffer.get()[k0 * self.cols.next_multiple_of(nr) + col * kc..],
            Kind::Bf16Weights => {
                let widened = halves::Widened { pairs: self.buffer.get_pairs(), depth: self.rows };
                widened.block((k0, kc), (col, n), nr, buffer);
                buffer.get()
            }
        }
    }
}
