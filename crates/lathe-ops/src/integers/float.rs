//! Products of integer weights with activations that are not rounded: codes become f32 in registers, and the products
//! of a group are summed before its scale multiplies them.

use super::kernel::{Lane, Place, Task};
use super::panels::{self, BLOCK, LANES};
use crate::simd::{fma, simd};

/// The most rows of a task.
pub(super) const ROWS: usize = 4;

/// Computes the results of as many rows as C has.
pub(super) fn task(middle: u8, task: &Task<'_>, place: &Place<'_>) {
    let mut out = [Lane::default(); ROWS];
    let out = &mut out;
    match place.rows() {
        1 => one(middle, task, out),
        2 => two(middle, task, out),
        3 => three(middle, task, out),
        4 => four(middle, task, out),
        _ => unreachable!("a task has at most {ROWS} rows"),
    }
    out.iter().enumerate().take(place.rows()).for_each(|(r, out)| place.store(r, out));
}

simd! {
    fn one(middle: u8, task: &Task<'_>, out: &mut [Lane]) {
        sums::<1, FUSED>(middle, task, out)
    }
}

simd! {
    fn two(middle: u8, task: &Task<'_>, out: &mut [Lane]) {
        sums::<2, FUSED>(middle, task, out)
    }
}

simd! {
    fn three(middle: u8, task: &Task<'_>, out: &mut [Lane]) {
        sums::<3, FUSED>(middle, task, out)
    }
}

simd! {
    fn four(middle: u8, task: &Task<'_>, out: &mut [Lane]) {
        sums::<4, FUSED>(middle, task, out)
    }
}

#[inline(always)]
fn sums<const ROWS: usize, const FUSED: bool>(middle: u8, task: &Task<'_>, out: &mut [Lane]) {
    match task.bits {
        4 => of_bits::<ROWS, 4, FUSED>(middle, task, out),
        6 => of_bits::<ROWS, 6, FUSED>(middle, task, out),
        _ => of_bits::<ROWS, 8, FUSED>(middle, task, out),
    }
}

#[inline(always)]
fn of_bits<const ROWS: usize, const BITS: u32, const FUSED: bool>(middle: u8, task: &Task<'_>, out: &mut [Lane]) {
    let size = panels::block_bytes(BITS);
    let mut totals = [[0.0f32; LANES]; ROWS];
    for (group, codes) in task.codes.chunks(task.span * size).enumerate() {
        let mut sums = [[0.0f32; LANES]; ROWS];
        for (block, codes) in codes.chunks_exact(size).enumerate() {
            let codes = panels::unpack(BITS, codes);
            let first = (group * task.span + block) * BLOCK;
            for (line, codes) in codes.iter().enumerate() {
                for i in 0..4 {
                    let mut weights = [0.0; LANES];
                    for lane in 0..LANES {
                        weights[lane] = (i32::from(codes[4 * lane + i]) - i32::from(middle)) as f32;
                    }
                    for r in 0..ROWS {
                        let at = 4 * (r * task.stride + first + 4 * line + i);
                        let x = f32::from_ne_bytes(task.x[at..at + 4].try_into().expect("four bytes"));
                        for lane in 0..LANES {
                            sums[r][lane] = fma::<FUSED>(x, weights[lane], sums[r][lane]);
                        }
                    }
                }
            }
        }
        let group_of_scale = if task.groups == 1 { 0 } else { group };
        let scales = task.numbers.get(group_of_scale);
        for r in 0..ROWS {
            for lane in 0..LANES {
                totals[r][lane] = fma::<FUSED>(sums[r][lane], scales[lane], totals[r][lane]);
            }
        }
        if task.offset {
            let offsets = task.numbers.get(task.groups + group_of_scale);
            for r in 0..ROWS {
                let sum = task.sides[r * task.x_groups + group].sum;
                for lane in 0..LANES {
                    let offset = fma::<FUSED>(scales[lane], f32::from(middle), offsets[lane]);
                    totals[r][lane] = fma::<FUSED>(offset, sum, totals[r][lane]);
                }
            }
        }
    }
    out[..ROWS].copy_from_slice(&totals);
}
