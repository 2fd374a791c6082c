//! Many rows by two panels at a time: all panels of a piece for some rows, then for the next ones. Codes of 4 and 6 bits
//! become bytes first, once for all rows.

use super::activations::Kind;
use super::kernel::{Place, Task};
use super::panels::{self, LANES, Lines};
use super::product::Job;
use super::{TAIL, tiles, vnni};
use crate::cpu;
use crate::gemm::tiles::Tiles;
use crate::gemm::{MatMut, row_panels};
use std::cell::RefCell;

/// The fewest rows that are worth tiles.
const MIN_TILE_ROWS: usize = 16;
/// Rows of two tiles.
const TILE_ROWS: usize = 2 * tiles::ROWS;

thread_local! {
    static BYTES: RefCell<Lines> = RefCell::new(Lines::zeros(0));
}

/// What activations have to be for so many rows and groups to be computed here; nothing where they should not.
pub(super) fn kind(rows: usize, groups: usize) -> Option<Kind> {
    match groups {
        _ if rows <= vnni::FEW || !cpu::vnni() => None,
        1 if rows >= MIN_TILE_ROWS && cpu::byte_tiles() => Some(Kind::Tiles),
        1 => Some(Kind::Panels(vnni::WHOLE)),
        _ => Some(Kind::Panels(vnni::GROUPED)),
    }
}

/// Computes the part of C that begins at (row, col).
pub(super) fn part(job: &Job<'_>, mut c: MatMut<'_>, row: usize, col: usize) {
    let (w, data) = (job.w, job.left.data());
    let (rows, cols) = (c.rows(), c.cols());
    let (first, lane) = ((job.first + col) / LANES, (job.first + col) % LANES);
    let count = (lane + cols).div_ceil(LANES);
    let packed = w.panels(first, count);
    let tiles = data.kind == Kind::Tiles;
    // SAFETY: activations are for tiles where there are those of bytes.
    let _tiles = tiles.then(|| unsafe { Tiles::new() });
    let blocks: Vec<(usize, usize)> = match data.kind {
        Kind::Panels(most) => row_panels(rows, most).collect(),
        _ => (0..rows).step_by(TILE_ROWS).map(|first| (first, TILE_ROWS.min(rows - first))).collect(),
    };
    BYTES.with_borrow_mut(|bytes| {
        let panel = panels::blocks(w.inputs) * panels::block_bytes(8);
        let codes = match w.format.bits {
            8 => packed,
            bits => {
                if bytes.bytes().len() < count * panel + TAIL {
                    *bytes = Lines::zeros(count * panel + TAIL);
                }
                // SAFETY: VNNI comes with AVX-512; whole blocks, and as many of bytes.
                unsafe { vnni::unpack(bits, packed, &mut bytes.bytes_mut()[..count * panel]) };
                &bytes.bytes()[..count * panel]
            }
        };
        for (r0, rows) in blocks {
            for p in (0..count).step_by(2) {
                let two = 2.min(count - p);
                let (from, to) = ((p * LANES).max(lane) - lane, ((p + two) * LANES - lane).min(cols));
                let c = c.block(r0, from, rows, to - from);
                c.fetch();
                let place = Place::new(c, if p == 0 { lane } else { 0 }, job.accumulate);
                let (codes, numbers) = (&codes[p * panel..(p + two) * panel], w.numbers(first + p, two));
                let task = Task { bits: 8, codes, numbers, ..job.task(first, row + r0) };
                task.check(rows, two);
                match tiles {
                    true => by_tiles(&task, two, &place),
                    // SAFETY: the CPU has VNNI; the task holds what so many rows need, as just checked, and so does C.
                    false => unsafe { vnni::many(rows, two, &task, &place) },
                }
            }
            job.finish(&mut c, (r0, rows), row, col);
        }
    });
}

/// One or two panels in tiles of up to 32 rows.
fn by_tiles(task: &Task<'_>, count: usize, place: &Place<'_>) {
    let mut sums = [[0; 2 * LANES]; 32];
    let panel = task.codes.len() / count;
    let (steps, row_tiles) = (panel.div_ceil(LANES * tiles::DEPTH), place.rows().div_ceil(tiles::ROWS));
    assert!(steps * tiles::DEPTH <= task.stride && task.x.len() >= row_tiles * tiles::ROWS * task.stride);
    // Where there is no second panel the first is computed twice.
    let second = if count == 2 { panel } else { 0 };
    // SAFETY: this thread has tiles; activations have so many rows of 64 `steps`, as asserted. Codes of a panel end less than
    // a step before, and behind the last there are `TAIL` bytes more: what is read there meets activations that are 0.
    unsafe {
        tiles::product(row_tiles, steps, task.x.as_ptr(), task.stride, task.codes.as_ptr(), second, &mut sums);
        vnni::scale(place.rows(), count, task, &sums, place);
    }
}
