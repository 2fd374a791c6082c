//! Many rows: all panels of a piece, two at a time, for some rows, then for the next ones. Codes of 4 and 6 bits become
//! bytes first, and scales f32, once for all rows.

use super::activations::{Data, Kind};
use super::kernel::{Numbers, Place};
use super::many::{self, Pair};
use super::panels::{self, BLOCK, LANES, Lines};
use super::product::Job;
use super::{TAIL, side_len, tiles, vnni};
use crate::cpu;
use crate::gemm::tiles::Tiles;
use crate::gemm::{MatMut, row_panels};
use crate::simd::simd;
use crate::storage::f16;
use std::cell::RefCell;

/// The fewest rows that are worth tiles.
const MIN_TILE_ROWS: usize = 16;
/// The fewest rows of a piece, where all rows are not one: codes come from the cache once for all of them.
const MIN_ROWS: usize = 32;
/// Rows of two tiles.
const TILE_ROWS: usize = 2 * tiles::ROWS;

thread_local! {
    /// Codes and scales of a piece.
    static SCRATCH: RefCell<(Lines, Vec<f32>)> = RefCell::new((Lines::zeros(0), Vec::new()));
}

/// What activations have to be for so many rows and groups to be computed here; nothing where they should not.
pub(super) fn kind(rows: usize, groups: usize) -> Option<Kind> {
    match groups {
        _ if rows <= vnni::FEW || !cpu::vnni() => None,
        1 if rows >= MIN_TILE_ROWS && cpu::byte_tiles() => Some(Kind::Tiles),
        1 => Some(Kind::Panels(many::WHOLE)),
        _ => Some(Kind::Panels(many::GROUPED)),
    }
}

/// Rows that are computed together: (first, rows).
fn row_parts(data: &Data) -> Vec<(usize, usize)> {
    match data.kind {
        Kind::Panels(most) => row_panels(data.rows, most).collect(),
        _ => (0..data.rows).step_by(TILE_ROWS).map(|first| (first, TILE_ROWS.min(data.rows - first))).collect(),
    }
}

/// Ends of so many nearly equal pieces of the rows, or of fewer: none has less than [`MIN_ROWS`], and none is cut where rows
/// are computed together.
pub(super) fn row_ends(data: &Data, parts: usize) -> Vec<usize> {
    let all = row_parts(data);
    let parts = parts.min(data.rows / MIN_ROWS).clamp(1, all.len());
    (1..=parts).map(|i| all[all.len() * i / parts - 1]).map(|(first, rows)| first + rows).collect()
}

/// Computes the part of C that begins at (row, col), whose rows are those of one or more [`row_parts`].
pub(super) fn part(job: &Job<'_>, mut c: MatMut<'_>, row: usize, col: usize) {
    let (w, data) = (job.w, job.left.data());
    let (rows, cols) = (c.rows(), c.cols());
    let (first, lane) = ((job.first + col) / LANES, (job.first + col) % LANES);
    let count = (lane + cols).div_ceil(LANES);
    let tiles = data.kind == Kind::Tiles;
    // SAFETY: activations are for tiles where there are those of bytes.
    let _tiles = tiles.then(|| unsafe { Tiles::new() });
    let parts: Vec<_> = row_parts(data).into_iter().filter(|part| (row..row + rows).contains(&part.0)).collect();
    let (blocks, groups) = (panels::blocks(w.inputs), w.groups());
    let (panel, side) = (blocks * panels::block_bytes(8), side_len(w.format, w.inputs));
    let ends = parts.first().zip(parts.last()).map(|(first, last)| (first.0, last.0 + last.1));
    assert_eq!(ends, Some((row, row + rows)), "a piece has rows that are computed together");
    assert!(
        data.stride >= blocks * BLOCK && data.groups * data.span >= blocks && (groups == 1 || groups == data.groups)
    );
    SCRATCH.with_borrow_mut(|(bytes, floats)| {
        let codes = bytes_of(job, first, count, bytes);
        let numbers = floats_of(job, first, count, floats);
        assert!(codes.len() == count * panel && numbers.len() == count * side);
        for p in (0..count).step_by(2) {
            let two = 2.min(count - p);
            for &(r0, rows) in &parts {
                let (from, to) = ((p * LANES).max(lane) - lane, ((p + two) * LANES - lane).min(cols));
                let c = c.block(r0 - row, from, rows, to - from);
                c.fetch();
                let place = Place::new(c, if p == 0 { lane } else { 0 }, job.accumulate);
                let pair = Pair {
                    codes: codes[p * panel..].as_ptr(),
                    second: (two - 1) * panel,
                    scales: numbers[p * side..].as_ptr(),
                    second_scales: (two - 1) * side,
                    step: if groups == 1 { 0 } else { LANES },
                    offsets: w.format.offset.then_some(groups * LANES),
                    x: data.bytes_from(r0).as_ptr(),
                    sides: data.sides_from(r0).as_ptr(),
                    groups: data.groups,
                    span: data.span,
                    blocks,
                };
                // SAFETY: the CPU has VNNI, and tiles where activations are for them. There are so many rows of
                // activations, and panels, and both are as deep as asserted above.
                unsafe {
                    match tiles {
                        true => by_tiles(rows, &pair, data.stride, &place),
                        false => many::many(rows, &pair, &place),
                    }
                }
            }
        }
        job.finish(&mut c, (0, rows), row, col);
    });
}

/// Codes of panels, a byte each; behind them there are [`TAIL`] bytes more.
fn bytes_of<'a>(job: &'a Job<'_>, first: usize, count: usize, scratch: &'a mut Lines) -> &'a [u8] {
    let packed = job.w.panels(first, count);
    let bits = job.w.format.bits;
    if bits == 8 {
        return packed;
    }
    let len = packed.len() / panels::block_bytes(bits) * panels::block_bytes(8);
    if scratch.bytes().len() < len + TAIL {
        *scratch = Lines::zeros(len + TAIL);
    }
    // SAFETY: VNNI comes with AVX-512; whole blocks, and as many of bytes.
    unsafe { vnni::unpack(bits, packed, &mut scratch.bytes_mut()[..len]) };
    &scratch.bytes()[..len]
}

/// Scales and offsets of panels as f32.
fn floats_of<'a>(job: &'a Job<'_>, first: usize, count: usize, scratch: &'a mut Vec<f32>) -> &'a [f32] {
    match job.w.numbers(first, count) {
        Numbers::Rows(numbers) => numbers,
        Numbers::Groups(numbers) => {
            scratch.resize(numbers.len(), 0.0);
            widen(numbers, scratch);
            scratch
        }
    }
}

simd! {
    fn widen(from: &[u16], to: &mut [f32]) {
        from.iter().zip(to).for_each(|(from, to)| *to = f16::from_bits(*from));
    }
}

/// One or two panels in tiles of up to 32 rows, which are `stride` bytes apart.
///
/// # Safety
/// This thread must have tiles of bytes, and the pair so many rows, or a multiple of 16.
unsafe fn by_tiles(rows: usize, pair: &Pair, stride: usize, place: &Place<'_>) {
    let mut sums = [[0; 2 * LANES]; TILE_ROWS];
    let (steps, row_tiles) = ((pair.blocks * BLOCK).div_ceil(tiles::DEPTH), rows.div_ceil(tiles::ROWS));
    debug_assert!(steps * tiles::DEPTH <= stride);
    // SAFETY: activations have so many rows of 64 `steps`, filled up with zeros. Codes of a panel end less than a step before,
    // and behind the last there are `TAIL` bytes more: what is read there meets zeros.
    unsafe {
        tiles::product(row_tiles, steps, pair.x, stride, pair.codes, pair.second, &mut sums);
        many::scale(rows, pair, &sums, place);
    }
}
