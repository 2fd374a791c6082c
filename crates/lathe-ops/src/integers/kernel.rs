//! Kernels: a few rows of activations by a panel of 16 outputs, over all inputs.
//!
//! With rounded activations, the products of a group are summed as whole numbers, which is exact. A sum D of a group
//! becomes a part of the result in one way on every CPU: result = fma(f32(D) * scale, scale of the activations,
//! result), and then, where there are offsets, result = fma(offset, sum of the activations, result). So the results of all
//! kernels are the same, bit for bit.

use super::activations::{Kind, Side};
use super::panels::{self, BLOCK, LANES};
use super::{Integers, Sides};
#[cfg(target_arch = "x86_64")]
use crate::cpu::{self, Level};
use crate::gemm::MatMut;
use crate::storage::f16;
use std::marker::PhantomData;

/// A kernel.
pub(super) struct Kernel {
    /// The most rows of a task.
    pub rows: usize,
    /// What it takes activations as.
    pub kind: Kind,
    /// Computes a task of so many rows.
    run: unsafe fn(usize, &Task<'_>, &Place<'_>),
}

/// The results of a row for a panel.
pub(super) type Lane = [f32; LANES];

/// Where results go: a part of C whose first column is that of an output inside a panel, and whose last one may be.
pub(super) struct Place<'a> {
    c: *mut f32,
    stride: usize,
    rows: usize,
    /// The first output of the panel that C has.
    lane: usize,
    cols: usize,
    accumulate: bool,
    owner: PhantomData<&'a mut f32>,
}

impl<'a> Place<'a> {
    pub fn new(mut c: MatMut<'a>, lane: usize, accumulate: bool) -> Self {
        assert!(lane < LANES && lane + c.cols() <= 2 * LANES);
        let (rows, cols, (pointer, stride)) = (c.rows(), c.cols(), c.raw());
        Self { c: pointer, stride, rows, lane, cols, accumulate, owner: PhantomData }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// One of the rows.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    #[inline(always)]
    pub fn row(&self, row: usize) -> Place<'_> {
        assert!(row < self.rows);
        Place { c: self.c.wrapping_add(row * self.stride), rows: 1, ..*self }
    }

    /// For a panel (0 or 1): where its first output would be in the first row, how far rows are apart, and which outputs
    /// there are.
    #[inline(always)]
    pub fn lines(&self, panel: usize) -> (*mut f32, usize, u16) {
        let mask = (((1u64 << self.cols) - 1) << self.lane) >> (panel * LANES);
        (self.c.wrapping_add(panel * LANES).wrapping_sub(self.lane), self.stride, mask as u16)
    }

    /// Whether results are added to what is there.
    #[inline(always)]
    pub fn accumulate(&self) -> bool {
        self.accumulate
    }

    /// Stores or adds the results of a row for the first panel.
    pub fn store(&self, row: usize, results: &Lane) {
        assert!(row < self.rows);
        let (c, stride, mask) = self.lines(0);
        for (lane, result) in results.iter().enumerate().filter(|(lane, _)| mask >> lane & 1 == 1) {
            // SAFETY: C has this row and this output, and is borrowed uniquely.
            unsafe {
                let c = c.wrapping_add(row * stride + lane);
                *c = if self.accumulate { *c + result } else { *result };
            }
        }
    }
}

/// One row or more of activations by one panel.
pub(super) struct Task<'a> {
    pub bits: u32,
    /// The panel's codes.
    pub codes: &'a [u8],
    /// The panel's scales, and behind them its offsets.
    pub numbers: Numbers<'a>,
    pub offset: bool,
    /// Groups of scales: as many as of activations, or one for all.
    pub groups: usize,
    /// Activations of the rows, `stride` apart.
    pub x: &'a [u8],
    pub kind: Kind,
    pub stride: usize,
    /// What goes with them: `x_groups` for each row.
    pub sides: &'a [Side],
    pub x_groups: usize,
    /// Blocks of a group.
    pub span: usize,
}

impl Task<'_> {
    /// Asserts that everything is there for so many rows.
    pub fn check(&self, rows: usize) {
        let blocks = self.codes.len() / panels::block_bytes(self.bits);
        assert!(self.stride >= blocks * BLOCK && self.x.len() >= rows * self.stride * self.kind.bytes());
        assert!(self.sides.len() >= rows * self.x_groups && self.x_groups * self.span >= blocks);
        assert!(self.groups == 1 || self.groups == self.x_groups);
        let numbers = match self.numbers {
            Numbers::Rows(numbers) => numbers.len(),
            Numbers::Groups(numbers) => numbers.len(),
        };
        assert!(numbers >= self.groups * LANES * if self.offset { 2 } else { 1 });
    }

    /// Goes on to the rows behind so many.
    pub fn skip(&mut self, rows: usize) {
        self.x = self.x.get(rows * self.stride * self.kind.bytes()..).unwrap_or_default();
        self.sides = self.sides.get(rows * self.x_groups..).unwrap_or_default();
    }

    /// What goes with a group of a row of activations.
    #[inline(always)]
    pub fn side(&self, row: usize, group: usize) -> &Side {
        &self.sides[row * self.x_groups + group]
    }
}

/// Scales and offsets as they are stored.
#[derive(Clone, Copy)]
pub(super) enum Numbers<'a> {
    Rows(&'a [f32]),
    Groups(&'a [u16]),
}

impl Numbers<'_> {
    /// Those of a group for all outputs of the panel.
    #[inline(always)]
    pub fn get(&self, group: usize) -> Lane {
        match self {
            Self::Rows(numbers) => std::array::from_fn(|lane| numbers[group * LANES + lane]),
            Self::Groups(numbers) => std::array::from_fn(|lane| f16::from_bits(numbers[group * LANES + lane])),
        }
    }
}

impl Integers {
    /// The scales of so many panels, each with its offsets behind them.
    pub(super) fn numbers(&self, first: usize, panels: usize) -> Numbers<'_> {
        let len = super::side_len(self.format, self.inputs);
        let range = first * len..(first + panels) * len;
        match &self.sides {
            Sides::Rows(sides) => Numbers::Rows(&sides[range]),
            Sides::Groups(sides) => Numbers::Groups(&sides[range]),
        }
    }
}

static PORTABLE: Kernel = Kernel { rows: 4, kind: Kind::Bytes, run: portable };

/// The kernel for this CPU, rounded activations and codes of so many bits.
pub(super) fn best(bits: u32) -> &'static Kernel {
    #[cfg(target_arch = "x86_64")]
    {
        use super::{avx2, vnni};
        static VNNI: Kernel = Kernel { rows: vnni::FEW, kind: Kind::Bytes, run: vnni::few };
        static BYTES: Kernel = Kernel { rows: avx2::ROWS, kind: Kind::Bytes, run: avx2::run };
        static WORDS: Kernel = Kernel { rows: avx2::ROWS, kind: Kind::Words, run: avx2::run };
        if cpu::vnni() {
            return &VNNI;
        }
        if cpu::level() >= Level::Avx2 {
            return if bits == 8 { &WORDS } else { &BYTES };
        }
    }
    let _ = bits;
    &PORTABLE
}

impl Kernel {
    /// Computes the results of as many rows as C has.
    pub fn task(&self, task: &Task<'_>, place: &Place<'_>) {
        assert!((1..=self.rows).contains(&place.rows));
        task.check(place.rows);
        // SAFETY: the CPU can run this kernel, since `best` chose it; the task holds what the rows need, as just checked.
        unsafe { (self.run)(place.rows, task, place) }
    }
}

/// Adds the sums of a group to the results of a row.
#[inline(always)]
fn add(task: &Task<'_>, sums: &[i32; LANES], side: &Side, group: usize, out: &mut Lane) {
    let group = if task.groups == 1 { 0 } else { group };
    let scales = task.numbers.get(group);
    for lane in 0..LANES {
        out[lane] = (sums[lane] as f32 * scales[lane]).mul_add(side.scale, out[lane]);
    }
    if task.offset {
        let offsets = task.numbers.get(task.groups + group);
        for lane in 0..LANES {
            out[lane] = offsets[lane].mul_add(side.sum, out[lane]);
        }
    }
}

unsafe fn portable(rows: usize, task: &Task<'_>, place: &Place<'_>) {
    let mut results = [[0.0; LANES]; 4];
    let size = panels::block_bytes(task.bits);
    for (group, codes) in task.codes.chunks(task.span * size).enumerate() {
        let mut sums = [[0; LANES]; 4];
        for (r, sums) in sums.iter_mut().enumerate().take(rows) {
            *sums = [task.side(r, group).start; LANES];
        }
        for (block, codes) in codes.chunks_exact(size).enumerate() {
            let codes = panels::unpack(task.bits, codes);
            let first = (group * task.span + block) * BLOCK;
            for (r, sums) in sums.iter_mut().enumerate().take(rows) {
                let x: &[[u8; 4]; 4] =
                    task.x[r * task.stride + first..].as_chunks().0[..4].try_into().expect("a block");
                for (line, x) in codes.iter().zip(x) {
                    let x = x.map(|x| i32::from(x as i8));
                    for (sum, codes) in sums.iter_mut().zip(line.as_chunks::<4>().0) {
                        let codes = codes.map(i32::from);
                        let terms = codes[0] * x[0] + codes[1] * x[1] + codes[2] * x[2] + codes[3] * x[3];
                        *sum = sum.wrapping_add(terms);
                    }
                }
            }
        }
        for (r, (sums, results)) in sums.iter().zip(&mut results).enumerate().take(rows) {
            add(task, sums, task.side(r, group), group, results);
        }
    }
    results.iter().enumerate().take(rows).for_each(|(r, results)| place.store(r, results));
}
