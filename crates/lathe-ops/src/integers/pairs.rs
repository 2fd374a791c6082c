//! Many rows by two panels at a time. Codes of 4 and 6 bits become bytes first, once for all rows.

use super::kernel::{Lane, Task};
use super::panels::{self, LANES, Lines};
use super::product::Job;
use super::{TAIL, tiles, vnni};
use crate::cpu;
use crate::gemm::tiles::Tiles;
use crate::gemm::{MatMut, row_panels};
use std::cell::RefCell;

/// The fewest rows that are worth tiles.
const MIN_TILE_ROWS: usize = 16;

thread_local! {
    static BYTES: RefCell<Lines> = RefCell::new(Lines::zeros(0));
}

/// Whether so many rows are better computed here.
pub(super) fn worth(rows: usize) -> bool {
    rows > vnni::FEW && cpu::vnni()
}

/// Computes the outputs of two panels, from `panel` on, for all rows of a part of C, which begins at `lane` of the first
/// and may end before the second does.
pub(super) fn panels(job: &Job<'_>, c: &mut MatMut<'_>, row: usize, panel: usize, lane: usize) {
    let (w, data) = (job.w, job.left.data());
    let size = panels::blocks(w.inputs) * panels::block_bytes(8);
    let packed = w.panels(panel, 2);
    BYTES.with_borrow_mut(|bytes| {
        let codes = match w.format.bits {
            8 => packed,
            bits => {
                if bytes.bytes().len() < 2 * size + TAIL {
                    *bytes = Lines::zeros(2 * size + TAIL);
                }
                // SAFETY: VNNI comes with AVX-512; whole blocks, and as many of bytes.
                unsafe { vnni::unpack(bits, packed, &mut bytes.bytes_mut()[..2 * size]) };
                &bytes.bytes()[..2 * size]
            }
        };
        let task = |r: usize| Task { bits: 8, codes, numbers: w.numbers(panel, 2), ..job.task(panel, row + r) };
        if data.groups == 1 && c.rows() >= MIN_TILE_ROWS && cpu::byte_tiles() {
            return by_tiles(job, c, lane, task);
        }
        let most = if data.groups == 1 { vnni::WHOLE } else { vnni::GROUPED };
        let mut out = [[Lane::default(); 2]; vnni::WHOLE];
        for (r0, rows) in row_panels(c.rows(), most) {
            let task = task(r0);
            task.check(rows, 2);
            // SAFETY: the CPU has VNNI, and the task holds what so many rows need, as just checked.
            unsafe { vnni::many(rows, &task, &mut out) };
            (0..rows).for_each(|r| job.store(c, r0 + r, &out[r].as_flattened()[lane..]));
        }
    });
}

/// As [`panels`], in tiles of 32 rows.
fn by_tiles<'a>(job: &Job<'_>, c: &mut MatMut<'_>, lane: usize, task: impl Fn(usize) -> Task<'a>) {
    // SAFETY: there are tiles of bytes, as the caller found.
    let _tiles = unsafe { Tiles::new() };
    let mut sums = [[0; 2 * LANES]; 32];
    for r0 in (0..c.rows()).step_by(32) {
        let task = task(r0);
        let rows = 32.min(c.rows() - r0);
        let panel = task.codes.len() / 2;
        let (steps, row_tiles) = (panel.div_ceil(LANES * tiles::DEPTH), rows.div_ceil(tiles::ROWS));
        task.check(rows, 2);
        assert!(steps * tiles::DEPTH <= task.stride && task.x.len() >= row_tiles * tiles::ROWS * task.stride);
        // SAFETY: activations have so many rows of 64 `steps`, as asserted. Codes of a panel end less than a step before,
        // and behind the last there are `TAIL` bytes more: what is read there meets activations that are 0.
        unsafe {
            tiles::product(row_tiles, steps, task.x.as_ptr(), task.stride, task.codes.as_ptr(), panel, &mut sums);
        }
        for (r, sums) in sums.iter().enumerate().take(rows) {
            let mut out = [Lane::default(); 2];
            // SAFETY: where there is AMX there is AVX-512.
            unsafe { vnni::scale(&task, r, sums, &mut out) };
            job.store(c, r0 + r, &out.as_flattened()[lane..]);
        }
    }
}
