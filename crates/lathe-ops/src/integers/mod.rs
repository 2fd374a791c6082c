//! Weights as integers: a matrix [outputs, inputs] of codes of 4, 6 or 8 bits, with a scale for each row or for each group
//! of its inputs, and products with it. A weight is scale * code + offset; without offsets of its own a format has
//! offset = -scale * 2^(bits - 1). Scales may be negative.
//!
//! Codes are packed once, in the order in which kernels read them (`panels`), and nothing else of the matrix is kept. In a
//! file they are plain rows: [`Parts`].
//!
//! Activations are rounded to integers as well, or stay as they are: [`Activations`].

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod float;
mod format;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod many;
#[cfg(target_arch = "x86_64")]
mod pairs;
mod panels;
mod product;
mod quantize;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tiles;
#[cfg(target_arch = "x86_64")]
mod vnni;

pub use format::{FORMATS, Format};
pub(crate) use panels::{block_bytes, unpack};
pub use product::{Activations, Part, product, products};
pub(crate) use product::{Job, Left, run};

use crate::gemm::Mat;
use crate::parallel;
use crate::storage::f16;
use panels::{BLOCK, LANES, Lines};

/// Bytes behind the last panel: kernels may read that far beyond it, where activations are 0.
const TAIL: usize = 1024;

/// A matrix [outputs, inputs] of codes with scales, packed for products.
#[derive(Clone)]
pub struct Integers {
    format: Format,
    outputs: usize,
    inputs: usize,
    /// By panel, then by block: see [`panels`].
    codes: Lines,
    sides: Sides,
}

/// By panel, then by group, 16 scales, then as many offsets of the same panel where the format has them.
#[derive(Clone)]
enum Sides {
    Rows(Vec<f32>),
    /// Bits of f16.
    Groups(Vec<u16>),
}

/// A matrix as a file has it, row by row, numbers little endian. Codes are a stream of bits, the lowest first, that begins
/// anew with each row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parts {
    /// [outputs, [`Format::row_bytes`]]
    pub codes: Vec<u8>,
    /// [outputs, [`Format::groups`]] of f32 where a row has one scale, of f16 where it has groups.
    pub scales: Vec<u8>,
    /// As the scales; empty where the format has none.
    pub offsets: Vec<u8>,
}

impl Integers {
    /// Rounds a matrix [outputs, inputs], which may have any strides: scales from the smallest and the largest weight
    /// of each row or group, codes to the nearest. Groups of zeros have a scale of 0. Where a weight is not finite, the scale
    /// of its group is not a number, and so are products with it.
    pub fn quantize(format: Format, w: Mat<'_>) -> Self {
        let (outputs, inputs) = (w.rows(), w.cols());
        Self::build(format, outputs, inputs, |o, codes, scales, offsets| {
            let row: Vec<f32> = (0..inputs).map(|i| w.at(o, i)).collect();
            quantize::row(format, &row, codes, scales, offsets);
        })
    }

    /// The matrix of a file. Bits that fill up a row's last byte count for nothing.
    pub fn from_parts(
        format: Format,
        outputs: usize,
        inputs: usize,
        codes: &[u8],
        scales: &[u8],
        offsets: &[u8],
    ) -> Result<Self, String> {
        let key = format.key();
        if outputs == 0 || inputs == 0 {
            return Err(format!("{key}: a matrix of {outputs} by {inputs}; expected at least 1 by 1"));
        }
        let check = |what: &str, bytes: &[u8], row: Option<usize>| match row.and_then(|row| row.checked_mul(outputs)) {
            Some(expected) if bytes.len() == expected => Ok(()),
            Some(expected) => {
                let found = bytes.len();
                Err(format!("{key}: {found} bytes of {what} for {outputs} by {inputs}; expected {expected}"))
            }
            None => Err(format!("{key}: {outputs} by {inputs} is more than there can be")),
        };
        let groups = format.groups(inputs);
        let side = groups.checked_mul(format.scale_bytes());
        check("codes", codes, Some(format.row_bytes(inputs)))?;
        check("scales", scales, side)?;
        check("offsets", offsets, if format.offset { side } else { Some(0) })?;
        let floats = |what: &str, bytes: &[u8]| {
            let floats = from_bytes(format, bytes);
            match floats.iter().position(|x| !x.is_finite()) {
                None => Ok(floats),
                Some(i) => Err(format!(
                    "{key}: the {what} of row {}, group {} is {}; expected finite numbers",
                    i / groups,
                    i % groups,
                    floats[i]
                )),
            }
        };
        let (scales, offsets) = (floats("scale", scales)?, floats("offset", offsets)?);
        let bytes = format.row_bytes(inputs);
        Ok(Self::build(format, outputs, inputs, |o, row, row_scales, row_offsets| {
            panels::from_stream(format.bits, &codes[o * bytes..][..bytes], row);
            row_scales.copy_from_slice(&scales[o * groups..][..groups]);
            if format.offset {
                row_offsets.copy_from_slice(&offsets[o * groups..][..groups]);
            }
        }))
    }

    /// A matrix without outputs yet, with room for so many: [`Self::push_rows`] adds them.
    pub fn with_room(format: Format, outputs: usize, inputs: usize) -> Self {
        let panels = outputs.div_ceil(LANES);
        let codes = Lines::with_room(panels.saturating_mul(panel_bytes(format, inputs)) + TAIL);
        let room = panels.saturating_mul(side_len(format, inputs));
        let sides = match format.group {
            None => Sides::Rows(Vec::with_capacity(room)),
            Some(_) => Sides::Groups(Vec::with_capacity(room)),
        };
        Self { format, outputs: 0, inputs, codes, sides }
    }

    /// Adds outputs of a file, as [`Self::from_parts`] takes them. Outputs come in sixteens; only the last may be fewer.
    pub fn push_rows(&mut self, outputs: usize, codes: &[u8], scales: &[u8], offsets: &[u8]) -> Result<(), String> {
        assert!(self.outputs.is_multiple_of(LANES), "only the last rows may be fewer than {LANES}");
        let more = Self::from_parts(self.format, outputs, self.inputs, codes, scales, offsets)?;
        let used = self.outputs / LANES * panel_bytes(self.format, self.inputs);
        self.codes.replace_from(used, &more.codes);
        match (&mut self.sides, more.sides) {
            (Sides::Rows(all), Sides::Rows(more)) => all.extend(more),
            (Sides::Groups(all), Sides::Groups(more)) => all.extend(more),
            _ => unreachable!("one format has one kind of scales"),
        }
        self.outputs += outputs;
        Ok(())
    }

    /// A matrix of codes, one byte each, row by row, with scales and, where the format has them, offsets, one for
    /// each row or group. These are rounded as they are stored, so round them by [`Format::stored`] before the codes.
    pub fn from_codes(
        format: Format,
        outputs: usize,
        inputs: usize,
        codes: &[u8],
        scales: &[f32],
        offsets: &[f32],
    ) -> Self {
        let groups = format.groups(inputs);
        assert_eq!(codes.len(), outputs * inputs, "codes of {outputs} by {inputs}");
        assert_eq!(scales.len(), outputs * groups, "scales of {outputs} by {groups}");
        assert_eq!(offsets.len(), if format.offset { scales.len() } else { 0 }, "offsets of {outputs} by {groups}");
        assert!(
            codes.iter().all(|&code| code <= format.largest()),
            "codes of {format} are at most {}",
            format.largest()
        );
        Self::build(format, outputs, inputs, |o, row, row_scales, row_offsets| {
            row.copy_from_slice(&codes[o * inputs..][..inputs]);
            row_scales.copy_from_slice(&scales[o * groups..][..groups]);
            if format.offset {
                row_offsets.copy_from_slice(&offsets[o * groups..][..groups]);
            }
        })
    }

    /// Packs rows on all threads: `row(output, codes, scales, offsets)` fills one.
    fn build(
        format: Format,
        outputs: usize,
        inputs: usize,
        row: impl Fn(usize, &mut [u8], &mut [f32], &mut [f32]) + Sync,
    ) -> Self {
        let groups = format.groups(inputs);
        let panels = outputs.div_ceil(LANES);
        let (panel, side) = (panel_bytes(format, inputs), side_len(format, inputs));
        let mut codes = Lines::zeros(panels * panel + TAIL);
        let mut sides = vec![0.0; panels * side];
        let parts = codes.bytes_mut()[..panels * panel].chunks_exact_mut(panel.max(1));
        parallel::each(parts.zip(sides.chunks_exact_mut(side.max(1))).collect(), |p, (panel, side)| {
            let lanes = LANES.min(outputs - p * LANES);
            let mut rows = vec![0; lanes * inputs];
            let (mut scales, mut offsets) = (vec![0.0; groups], vec![0.0; groups]);
            for (lane, codes) in rows.chunks_exact_mut(inputs).enumerate() {
                row(p * LANES + lane, codes, &mut scales, &mut offsets);
                scales.iter().enumerate().for_each(|(g, &scale)| side[g * LANES + lane] = scale);
                if format.offset {
                    let to = &mut side[groups * LANES..];
                    offsets.iter().enumerate().for_each(|(g, &offset)| to[g * LANES + lane] = offset);
                }
            }
            panels::pack_panel(format.bits, &rows, inputs, panel);
        });
        let sides = match format.group {
            None => Sides::Rows(sides),
            Some(_) => Sides::Groups(sides.into_iter().map(|x| f16::to_bits(format.stored(x))).collect()),
        };
        Self { format, outputs, inputs, codes, sides }
    }

    /// The matrix as a file has it: what [`Self::from_parts`] reads.
    pub fn to_parts(&self) -> Parts {
        let Self { format, outputs, inputs, .. } = *self;
        let bytes = format.row_bytes(inputs);
        let mut codes = vec![0; outputs * bytes];
        parallel::each(codes.chunks_exact_mut(bytes.max(1)).collect(), |o, out| {
            let mut row = vec![0; inputs];
            panels::unpack_row(format.bits, self.panel(o / LANES), o % LANES, &mut row);
            panels::to_stream(format.bits, &row, out);
        });
        let floats = |values: Vec<f32>| to_bytes(format, &values);
        Parts { codes, scales: floats(self.scales()), offsets: floats(self.offsets()) }
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Bytes that it takes in memory.
    pub fn bytes(&self) -> usize {
        self.codes.bytes().len()
            + match &self.sides {
                Sides::Rows(sides) => size_of_val(&**sides),
                Sides::Groups(sides) => size_of_val(&**sides),
            }
    }

    /// The weights of one output.
    pub fn row(&self, output: usize, out: &mut [f32]) {
        assert!(output < self.outputs && out.len() == self.inputs, "row {output} of {}", self.outputs);
        let (panel, lane) = (self.panel(output / LANES), output % LANES);
        let (size, group) = (panels::block_bytes(self.format.bits), self.format.group.unwrap_or(usize::MAX));
        let middle = f32::from(self.format.middle());
        for (b, (from, out)) in panel.chunks_exact(size).zip(out.chunks_mut(BLOCK)).enumerate() {
            let mut codes = [0; BLOCK];
            panels::unpack_row(self.format.bits, from, lane, &mut codes);
            let (scale, offset) = self.side(output, b * BLOCK / group);
            for (out, &code) in out.iter_mut().zip(&codes) {
                *out = match offset {
                    Some(offset) => scale * f32::from(code) + offset,
                    None => scale * (f32::from(code) - middle),
                };
            }
        }
    }

    /// The codes of one output.
    pub fn codes(&self, output: usize, out: &mut [u8]) {
        assert!(output < self.outputs && out.len() == self.inputs, "row {output} of {}", self.outputs);
        panels::unpack_row(self.format.bits, self.panel(output / LANES), output % LANES, out);
    }

    /// All weights, row by row.
    pub fn read(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.outputs * self.inputs];
        parallel::rows(&mut out, self.inputs, |o, row| self.row(o, row));
        out
    }

    /// The scales, [outputs, groups].
    pub fn scales(&self) -> Vec<f32> {
        self.sides_of(false)
    }

    /// The offsets, [outputs, groups]; empty where the format has none.
    pub fn offsets(&self) -> Vec<f32> {
        if self.format.offset { self.sides_of(true) } else { Vec::new() }
    }

    /// Replaces the scales, [outputs, groups]; in groups they are rounded to f16.
    pub fn set_scales(&mut self, scales: &[f32]) {
        self.set_sides(scales, false);
    }

    /// Replaces the offsets, [outputs, groups], of a format that has them; in groups they are rounded to f16.
    pub fn set_offsets(&mut self, offsets: &[f32]) {
        assert!(self.format.offset, "{} has no offsets", self.format);
        self.set_sides(offsets, true);
    }

    fn groups(&self) -> usize {
        self.format.groups(self.inputs)
    }

    /// The codes of a panel.
    fn panel(&self, panel: usize) -> &[u8] {
        self.panels(panel, 1)
    }

    /// The codes of so many panels.
    fn panels(&self, first: usize, panels: usize) -> &[u8] {
        let bytes = panel_bytes(self.format, self.inputs);
        &self.codes.bytes()[first * bytes..][..panels * bytes]
    }

    /// Where the scale of an output's group is, or its offset.
    fn side_at(&self, output: usize, group: usize, offset: bool) -> usize {
        let first = output / LANES * side_len(self.format, self.inputs);
        first + (group + if offset { self.groups() } else { 0 }) * LANES + output % LANES
    }

    fn side_value(&self, at: usize) -> f32 {
        match &self.sides {
            Sides::Rows(sides) => sides[at],
            Sides::Groups(sides) => f16::from_bits(sides[at]),
        }
    }

    /// The scale of an output's group, and its offset where the format has them.
    fn side(&self, output: usize, group: usize) -> (f32, Option<f32>) {
        let offset = self.format.offset.then(|| self.side_value(self.side_at(output, group, true)));
        (self.side_value(self.side_at(output, group, false)), offset)
    }

    fn sides_of(&self, offset: bool) -> Vec<f32> {
        let groups = self.groups();
        let all = (0..self.outputs).flat_map(|o| (0..groups).map(move |g| (o, g)));
        all.map(|(o, g)| self.side_value(self.side_at(o, g, offset))).collect()
    }

    fn set_sides(&mut self, values: &[f32], offset: bool) {
        let groups = self.groups();
        assert_eq!(values.len(), self.outputs * groups, "{} by {groups}", self.outputs);
        for (i, &value) in values.iter().enumerate() {
            let at = self.side_at(i / groups, i % groups, offset);
            match &mut self.sides {
                Sides::Rows(sides) => sides[at] = value,
                Sides::Groups(sides) => sides[at] = f16::to_bits(self.format.stored(value)),
            }
        }
    }
}

/// Bytes of a panel.
fn panel_bytes(format: Format, inputs: usize) -> usize {
    panels::blocks(inputs) * panels::block_bytes(format.bits)
}

/// Scales and offsets of a panel.
fn side_len(format: Format, inputs: usize) -> usize {
    format.groups(inputs) * LANES * if format.offset { 2 } else { 1 }
}

fn to_bytes(format: Format, values: &[f32]) -> Vec<u8> {
    match format.group {
        None => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Some(_) => values.iter().flat_map(|&x| f16::to_bits(x).to_le_bytes()).collect(),
    }
}

fn from_bytes(format: Format, bytes: &[u8]) -> Vec<f32> {
    match format.group {
        None => bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
        Some(_) => bytes.as_chunks().0.iter().map(|&b| f16::from_bits(u16::from_le_bytes(b))).collect(),
    }
}
