//! The left-hand side of a product with integer weights: activations as kernels read them, row by row, filled up with
//! zeros.
//!
//! Rounded, an activation x of a group is the whole number nearest to x * (127 / m), where m is the largest size of the
//! group and ties go to the even one: from -127 to 127, and worth m / 127 each. This is computed in the same way on
//! every CPU. Where m is below 1e-30 the group is 0, and where it is not finite its scale is not a number, nor then are
//! products.

use super::Format;
use super::panels::{BLOCK, Lines};
use crate::gemm::{Mat, row_panels};
use crate::parallel;
use crate::simd::{simd, sum};
use std::sync::Mutex;

/// The most inputs whose products with codes are summed as one whole number, which has 32 bits: 255 * 127 for each.
/// Longer rows that have one scale are rounded in groups of so many.
const LONGEST: usize = 1 << 16;

/// Inputs that are rounded together.
fn span(format: Format) -> usize {
    format.group().unwrap_or(LONGEST)
}

/// Groups of a row of activations.
pub(super) fn groups(format: Format, inputs: usize) -> usize {
    inputs.div_ceil(span(format))
}

/// What activations are for a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// i8, in order.
    Bytes,
    /// i16, of four neighbours the first, third, second and fourth.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Words,
    /// i8, in order, for tiles.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Tiles,
    /// i8, of up to so many rows at a time, as many as [`row_panels`] says: four of the first, four of the second, and so on.
    /// What goes with groups is for each group that of each row.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    Panels(usize),
    /// f32, in order, not rounded.
    Floats,
}

impl Kind {
    pub fn bytes(self) -> usize {
        match self {
            Self::Bytes | Self::Tiles | Self::Panels(_) => 1,
            Self::Words => 2,
            Self::Floats => 4,
        }
    }
}

/// What goes with a group of a row of activations.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Side {
    /// What a rounded activation is worth.
    pub scale: f32,
    /// What sums of products begin with: -2^(bits - 1) times the sum of the group, where weights have no offsets.
    pub start: i32,
    /// The sum of the group, times the scale: what offsets are multiplied with.
    pub sum: f32,
}

/// Activations [rows, inputs].
pub(crate) struct Data {
    pub kind: Kind,
    lines: Lines,
    sides: Vec<Side>,
    pub rows: usize,
    /// From a row to the next.
    pub stride: usize,
    /// Groups of a row.
    pub groups: usize,
    /// Blocks of a group.
    pub span: usize,
}

/// Data that no product uses at the moment.
static FREE: Mutex<Vec<Data>> = Mutex::new(Vec::new());

/// Activations, whose memory is kept for later ones.
pub(crate) struct Memory(Option<Data>);

impl Memory {
    pub fn new(a: Mat<'_>, format: Format, kind: Kind, threads: usize) -> Self {
        let free = FREE.lock().expect("nothing panics while it holds the pool").pop();
        let mut data = free.unwrap_or_else(|| Data {
            kind,
            lines: Lines::zeros(0),
            sides: Vec::new(),
            rows: 0,
            stride: 0,
            groups: 0,
            span: 0,
        });
        data.fill(a, format, kind, threads);
        Self(Some(data))
    }

    pub fn data(&self) -> &Data {
        self.0.as_ref().expect("there is data until it is dropped")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        FREE.lock().expect("nothing panics while it holds the pool").extend(self.0.take());
    }
}

impl Data {
    fn fill(&mut self, a: Mat<'_>, format: Format, kind: Kind, threads: usize) {
        let (rows, inputs) = (a.rows(), a.cols());
        let (span, groups) = (span(format), groups(format, inputs));
        // Tiles have a depth of 64, and 16 rows, of which the last may be anything. An odd number of cache lines keeps
        // neighbouring rows from competing for the same places of the cache.
        let stride = inputs.div_ceil(64) * 64;
        let stride = if stride / 64 % 2 == 0 { stride + 64 } else { stride };
        let bytes = stride * kind.bytes();
        let all = rows.next_multiple_of(16) * bytes;
        if self.lines.bytes().len() < all {
            self.lines = Lines::zeros(all);
        }
        self.sides.resize(self.sides.len().max(rows * groups), Side::default());
        (self.kind, self.rows, self.stride, self.groups, self.span) = (kind, rows, stride, groups, span / BLOCK);
        let middle = if format.offset() { 0 } else { i32::from(format.middle()) };
        if bytes * groups == 0 {
            return;
        }
        let fill = |(first, lines, sides): (usize, &mut [u8], &mut [Side])| {
            for (r, (line, sides)) in lines.chunks_exact_mut(bytes).zip(sides.chunks_exact_mut(groups)).enumerate() {
                let copy: Vec<f32>;
                let row = if a.row_major() {
                    a.row(first + r, 0, inputs)
                } else {
                    copy = (0..inputs).map(|i| a.at(first + r, i)).collect();
                    &copy
                };
                fill_row(row, kind, span, middle, line, sides);
            }
            if let Kind::Panels(_) = kind {
                interleave(lines, stride);
                transpose(sides, groups);
            }
        };
        let most = if let Kind::Panels(most) = kind { most } else { 8 };
        let (mut lines, mut sides) = (&mut self.lines.bytes_mut()[..rows * bytes], &mut self.sides[..rows * groups]);
        let parts = row_panels(rows, most).map(|(first, rows)| {
            let part = (first, lines.split_off_mut(..rows * bytes), sides.split_off_mut(..rows * groups));
            (part.0, part.1.expect("so many rows"), part.2.expect("so many rows"))
        });
        if threads == 1 || rows * inputs < 1 << 15 {
            return parts.for_each(fill);
        }
        parallel::each(parts.collect(), |_, part| fill(part));
    }

    /// The bytes of a row and of those behind it.
    pub fn bytes_from(&self, row: usize) -> &[u8] {
        &self.lines.bytes()[row * self.stride * self.kind.bytes()..]
    }

    /// What goes with the groups of a row and of those behind it.
    pub fn sides_from(&self, row: usize) -> &[Side] {
        &self.sides[row * self.groups..]
    }
}

fn fill_row(row: &[f32], kind: Kind, span: usize, middle: i32, line: &mut [u8], sides: &mut [Side]) {
    let width = if kind == Kind::Floats { size_of::<f32>() } else { 1 };
    line[row.len() * width..].fill(0);
    if kind == Kind::Floats {
        let floats = line.as_chunks_mut().0.iter_mut().zip(row);
        floats.for_each(|(to, from): (&mut [u8; 4], &f32)| *to = from.to_ne_bytes());
        for (x, side) in row.chunks(span).zip(sides) {
            *side = Side { scale: 1.0, start: 0, sum: total(x) };
        }
    } else {
        for (g, (x, side)) in row.chunks(span).zip(sides).enumerate() {
            let first = g * span;
            let most = f32::from_bits(largest(x));
            let scale = match most {
                most if !most.is_finite() => f32::NAN,
                most if most < 1e-30 => 0.0,
                most => most / 127.0,
            };
            let factor = if scale > 0.0 { 127.0 / most } else { 0.0 };
            let codes = &mut line[first..][..x.len()];
            let sum = if factor == 0.0 { zero(codes) } else { round(x, factor, codes) };
            *side = Side { scale, start: -middle * sum, sum: scale * sum as f32 };
        }
    }
    if kind == Kind::Words {
        widen(line);
    }
}

simd! {
    fn total(x: &[f32]) -> f32 {
        sum(x, |x| x)
    }
}

simd! {
    /// The bits of the largest size; those of infinity and of what is not a number are larger than all others.
    fn largest(x: &[f32]) -> u32 {
        x.iter().fold(0, |most, x| most.max(x.to_bits() & 0x7fff_ffff))
    }
}

fn zero(codes: &mut [u8]) -> i32 {
    codes.fill(0);
    0
}

simd! {
    /// Rounds a group to whole numbers of 8 bits, whose sum it returns.
    fn round(x: &[f32], factor: f32, codes: &mut [u8]) -> i32 {
        const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: what is added to it is rounded to a whole number, ties to even
        let mut sum = 0;
        for (x, code) in x.iter().zip(codes) {
            let rounded = (x * factor + MAGIC).to_bits() as u8;
            *code = rounded;
            sum += i32::from(rounded as i8);
        }
        sum
    }
}

/// Turns rows into four bytes of each in turn.
fn interleave(lines: &mut [u8], stride: usize) {
    let copy = lines.to_vec();
    let rows = lines.len() / stride;
    let (quads, from) = (lines.as_chunks_mut::<4>().0, copy.as_chunks::<4>().0);
    for r in 0..rows {
        let row = &from[r * stride / 4..][..stride / 4];
        quads[r..].iter_mut().step_by(rows).zip(row).for_each(|(to, from)| *to = *from);
    }
}

/// Turns what goes with the groups of each row into what goes with the rows of each group.
fn transpose(sides: &mut [Side], groups: usize) {
    let (copy, rows) = (sides.to_vec(), sides.len() / groups);
    sides.iter_mut().enumerate().for_each(|(i, side)| *side = copy[i % rows * groups + i / rows]);
}

/// Spreads the bytes of the first half over all of the line, as words in the order of [`Kind::Words`].
fn widen(line: &mut [u8]) {
    let (quads, _) = line.as_chunks_mut::<8>();
    for i in (0..quads.len()).rev() {
        let half = &quads[i / 2][i % 2 * 4..][..4];
        let [a, b, c, d] = [half[0], half[1], half[2], half[3]].map(|x| i16::from(x as i8).to_ne_bytes());
        quads[i] = [a[0], a[1], c[0], c[1], b[0], b[1], d[0], d[1]];
    }
}
