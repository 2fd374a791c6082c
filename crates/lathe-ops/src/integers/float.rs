//! Products of integer weights with activations that are not rounded. Few rows: codes become f32 in registers, and the
//! products of a group are summed before its scale multiplies them. Many rows: codes become the weights that
//! [`Integers::read`](super::Integers::read) gives, in panels of f32, whose products are those of f32.

use super::kernel::{Numbers, Place, Task};
use super::panels::{self, BLOCK, LANES, LINE};
use super::product::Job;
use crate::gemm::{Buffer, Right};
use crate::wide::{Wide, wide};

/// The most rows whose weights are not worth to become f32 in memory.
pub(super) const FEW: usize = 8;
/// The most rows of a task.
pub(super) const ROWS: usize = 4;

/// How many bytes before they are read codes are fetched.
const AHEAD: usize = 4096;

wide! {
    /// Computes the results of as many rows as C has, at most [`ROWS`].
    ///
    /// # Safety
    /// The task must hold what so many rows need, activations as f32.
    pub(super) fn task<W>(middle: u8, task: &Task<'_>, place: &Place<'_>) {
        // SAFETY: the caller's.
        unsafe {
            match (task.bits, place.rows()) {
                (4, 1) => rows::<W, 4, 1>(middle, task, place),
                (4, 2) => rows::<W, 4, 2>(middle, task, place),
                (4, 3) => rows::<W, 4, 3>(middle, task, place),
                (4, 4) => rows::<W, 4, 4>(middle, task, place),
                (6, 1) => rows::<W, 6, 1>(middle, task, place),
                (6, 2) => rows::<W, 6, 2>(middle, task, place),
                (6, 3) => rows::<W, 6, 3>(middle, task, place),
                (6, 4) => rows::<W, 6, 4>(middle, task, place),
                (_, 1) => rows::<W, 8, 1>(middle, task, place),
                (_, 2) => rows::<W, 8, 2>(middle, task, place),
                (_, 3) => rows::<W, 8, 3>(middle, task, place),
                (_, 4) => rows::<W, 8, 4>(middle, task, place),
                _ => unreachable!("a task has at most {ROWS} rows"),
            }
        }
    }
}

#[inline(always)]
unsafe fn rows<W: Wide, const BITS: u32, const ROWS: usize>(middle: u8, task: &Task<'_>, place: &Place<'_>) {
    // Sums that wait for one another are slow: few rows have several each.
    let split = 4 / ROWS.next_power_of_two();
    let size = panels::block_bytes(BITS);
    let blocks = task.codes.len() / size;
    let mut codes = task.codes.as_ptr();
    let mut x = task.x.as_ptr().cast::<f32>();
    // SAFETY: there are so many blocks of codes, and of activations of each row.
    unsafe {
        let mut totals = [W::set(0.0); ROWS];
        for group in 0..task.x_groups {
            let mut sums = [[W::set(0.0); 4]; ROWS];
            for _ in 0..task.span.min(blocks - group * task.span) {
                (0..size / LINE).for_each(|line| crate::gemm::fetch(codes.wrapping_add(AHEAD + line * LINE)));
                let lines = W::codes(BITS, codes, middle);
                for line in 0..4 {
                    for i in 0..4 {
                        let weights = W::byte(lines[line], i);
                        for r in 0..ROWS {
                            let x = W::set(*x.add(r * task.stride + 4 * line + i));
                            sums[r][i % split] = x.fma(weights, sums[r][i % split]);
                        }
                    }
                }
                codes = codes.add(size);
                x = x.add(BLOCK);
            }
            let scaled = if task.groups == 1 { 0 } else { group };
            let scales = numbers::<W>(&task.numbers, scaled);
            for r in 0..ROWS {
                let [a, b, c, d] = sums[r];
                let sum = match split {
                    4 => a.add(b).add(c.add(d)),
                    2 => a.add(b),
                    _ => a,
                };
                totals[r] = sum.fma(scales, totals[r]);
            }
            if task.offset {
                // weight = scale * (code - middle) + (offset + scale * middle)
                let offsets = scales.fma(W::set(f32::from(middle)), numbers::<W>(&task.numbers, task.groups + scaled));
                for r in 0..ROWS {
                    totals[r] = W::set(task.side(r, group).sum).fma(offsets, totals[r]);
                }
            }
        }
        for r in 0..ROWS {
            let mut results = [0.0; LANES];
            totals[r].store(results.as_mut_ptr());
            place.store(r, &results);
        }
    }
}

/// The scales or offsets of a group.
#[inline(always)]
unsafe fn numbers<W: Wide>(numbers: &Numbers<'_>, group: usize) -> W {
    // SAFETY: the caller's: a group of the task.
    unsafe {
        match numbers {
            Numbers::Rows(numbers) => W::load(numbers.as_ptr().add(group * LANES)),
            Numbers::Groups(numbers) => W::load_f16(numbers.as_ptr().add(group * LANES)),
        }
    }
}

impl Right for Job<'_> {
    /// Weights as panels of f32: those of inputs k0 to k0 + kc, of `n` columns of C from `col` on.
    fn block<'s>(
        &'s self,
        (k0, kc): (usize, usize),
        (col, n): (usize, usize),
        nr: usize,
        buffer: &'s mut Buffer,
    ) -> &'s [f32] {
        let out = buffer.take(kc * n.next_multiple_of(nr));
        let (w, first) = (self.w, self.first + col);
        let (size, blocks) = (panels::block_bytes(w.format.bits), k0 / BLOCK..panels::blocks(k0 + kc));
        for panel in first / LANES..(first + n).div_ceil(LANES) {
            let codes = w.panel(panel);
            for b in blocks.clone() {
                let group = w.format.group.map_or(0, |group| b * BLOCK / group);
                let (numbers, codes) = (w.numbers(panel, 1), &codes[b * size..][..size]);
                let offset = w.format.offset.then_some(w.groups() + group);
                let decode = |out: &mut [f32], stride: usize| {
                    assert!(out.len() >= (BLOCK - 1) * stride + LANES);
                    // SAFETY: a block of codes, a group of the panel, and room for it.
                    unsafe { decode(w.format.bits, codes, w.format.middle(), &numbers, group, offset, out, stride) }
                };
                let rows = BLOCK.min(k0 + kc - b * BLOCK);
                // Outputs of the panel that C has, and the columns where they are.
                let lanes = first.max(panel * LANES) - panel * LANES..LANES.min(first + n - panel * LANES);
                let at = panel * LANES + lanes.start - first;
                let place = |c: usize| c / nr * kc * nr + (b * BLOCK - k0) * nr + c % nr;
                if rows == BLOCK && at.is_multiple_of(LANES) && lanes.start == 0 {
                    decode(&mut out[place(at)..], nr);
                    continue;
                }
                let mut weights = [0.0; LANES * BLOCK];
                decode(&mut weights, LANES);
                for (i, weights) in weights.as_chunks::<LANES>().0.iter().enumerate().take(rows) {
                    for (c, &weight) in (at..).zip(&weights[lanes.clone()]) {
                        out[place(c) + i * nr] = weight;
                    }
                }
            }
        }
        buffer.get()
    }
}

wide! {
    /// The weights of a block: rows of 16 outputs, `stride` apart.
    ///
    /// # Safety
    /// There must be a block of codes, the group among the numbers, and room for 16 rows.
    fn decode<W>(
        bits: u32,
        codes: &[u8],
        middle: u8,
        scales: &Numbers<'_>,
        group: usize,
        offset: Option<usize>,
        out: &mut [f32],
        stride: usize,
    ) {
        // SAFETY: the caller's.
        unsafe {
            let lines = W::codes(bits, codes.as_ptr(), middle);
            let scale = numbers::<W>(scales, group);
            for line in 0..4 {
                for i in 0..4 {
                    let centred = W::byte(lines[line], i);
                    let weights = match offset {
                        None => centred.mul(scale),
                        Some(offset) => {
                            let code = centred.add(W::set(f32::from(middle)));
                            code.mul(scale).add(numbers::<W>(scales, offset))
                        }
                    };
                    weights.store(out.as_mut_ptr().add((4 * line + i) * stride));
                }
            }
        }
    }
}
