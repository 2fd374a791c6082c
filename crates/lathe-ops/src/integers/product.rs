//! C = A W^T for integer weights W.

use super::activations::{Data, Kind, Memory};
use super::kernel::{self, Place, Task};
use super::panels::LANES;
use super::{Integers, float};
use crate::gemm::{self, Finish, FinishGrouped, Mat, MatMut, row_panels, shrinking, split};
use crate::{flops, parallel, team};

/// What becomes of activations in products with integer weights.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Activations {
    /// Rounded to 8 bits, with a scale for each row of A and each group of inputs that share one in the weights (all
    /// inputs, up to 65,536, where a row of weights has one scale). Sums of products are exact in whole numbers, and results
    /// are the same bit for bit on every CPU and on any number of threads.
    #[default]
    Int8,
    /// As they are: the weights alone are rounded, and products are those of f32.
    Float,
}

/// The most outputs of a piece of work, and the most inputs and outputs together: codes of a piece, a byte each, stay in the
/// second-level cache while all rows pass by.
const MOST: usize = 192;
const MOST_CODES: usize = 1 << 19;

/// C = A W^T, or C += A W^T where `accumulate`, for the outputs of W from `first` on, of which C has as many columns; with
/// `finish` applied to every part of C, as in [`gemm_finish`](crate::gemm::gemm_finish), on so many threads.
pub fn product(
    c: MatMut<'_>,
    a: Mat<'_>,
    w: &Integers,
    first: usize,
    activations: Activations,
    accumulate: bool,
    finish: Option<Finish<'_>>,
    threads: usize,
) {
    flops::add(1, [c.rows(), c.cols(), a.cols()]);
    run(c, a, w, first, activations, accumulate, finish, threads);
}

/// As [`product`], not counted.
pub(crate) fn run(
    c: MatMut<'_>,
    a: Mat<'_>,
    w: &Integers,
    first: usize,
    activations: Activations,
    accumulate: bool,
    finish: Option<Finish<'_>>,
    threads: usize,
) {
    let (m, n, k) = (c.rows(), c.cols(), a.cols());
    assert!(
        a.rows() == m && k == w.inputs && first + n <= w.outputs,
        "[{m}, {n}] = [{}, {k}] by outputs {first} to {} of [{}, {}]",
        a.rows(),
        first + n,
        w.outputs,
        w.inputs
    );
    if m == 0 || n == 0 {
        return;
    }
    let threads = enough(threads, m, n, k);
    let left = Left::new(a, w, activations, threads);
    let job = Job { w, first, left: &left, accumulate, finish };
    let parts = c.split(&job.row_ends(m, n, threads), &job.ends(n, threads, most_outputs(k)));
    match threads {
        1 => parts.into_iter().for_each(|(row, col, part)| job.part(part, row, col)),
        _ => parallel::each(parts, |_, (row, col, part)| job.part(part, row, col)),
    }
}

/// One of several products with the same A: C = A W^T for the outputs of W from `first` on, of which C has as many columns.
#[allow(missing_docs)]
pub struct Part<'a> {
    pub c: MatMut<'a>,
    pub w: &'a Integers,
    pub first: usize,
}

/// Several products with the same A, which is rounded once, as one piece of work. All W have the same format and as many
/// inputs. `finish` gets the number of the product first.
pub fn products(parts: Vec<Part<'_>>, a: Mat<'_>, activations: Activations, finish: Option<FinishGrouped<'_>>) {
    let (m, k) = (a.rows(), a.cols());
    let Some(Part { w, .. }) = parts.first() else { return };
    let total: usize = parts.iter().map(|part| part.c.cols()).sum();
    if m == 0 || total == 0 {
        return;
    }
    let threads = enough(team::threads(), m, total, k);
    let (format, left) = (w.format, Left::new(a, w, activations, threads));
    let (most, mut before, mut pieces) = (most_outputs(k), 0, Vec::new());
    for (i, Part { c, w, first }) in parts.into_iter().enumerate() {
        flops::add(1, [m, c.cols(), k]);
        assert!(
            c.rows() == m && w.inputs == k && w.format == format && first + c.cols() <= w.outputs,
            "product {i} of several: [{}, {}] = [{m}, {k}] by outputs from {first} of {format} [{}, {}]",
            c.rows(),
            c.cols(),
            w.outputs,
            w.inputs
        );
        before += c.cols();
        let job = Job { w, first, left: &left, accumulate: false, finish: None };
        // Only the last ones have to become smaller.
        let ends = match before < total {
            true => job.even_ends(c.cols(), c.cols().div_ceil(most)),
            false => job.ends(c.cols(), threads, most),
        };
        pieces.extend(c.split(&job.row_ends(m, total, threads), &ends).into_iter().map(|piece| (i, job, piece)));
    }
    let work = |_: usize, (i, job, (row, col, c)): (usize, Job<'_>, (usize, usize, MatMut<'_>))| {
        let of_product = |row: usize, col: usize, values: &mut [f32]| {
            if let Some(finish) = finish {
                finish(i, row, col, values);
            }
        };
        let finish: Option<Finish<'_>> = finish.is_some().then_some(&of_product);
        Job { finish, ..job }.part(c, row, col);
    };
    match threads {
        1 => pieces.into_iter().for_each(|piece| work(0, piece)),
        _ => parallel::each(pieces, work),
    }
}

/// Threads that are worth so much work: below, a second one costs more than it saves.
fn enough(threads: usize, m: usize, n: usize, k: usize) -> usize {
    threads.min(2 * m * n * k / 800_000 + 1)
}

/// The most outputs of a piece of work.
fn most_outputs(k: usize) -> usize {
    (MOST_CODES / k.max(1) / LANES * LANES).clamp(2 * LANES, MOST)
}

/// Activations, ready for products with weights.
pub(crate) enum Left {
    /// For the kernels here.
    Rows(Memory),
    /// For those of f32.
    Floats(gemm::Left),
}

impl Left {
    pub fn new(a: Mat<'_>, w: &Integers, activations: Activations, threads: usize) -> Self {
        let kind = match activations {
            Activations::Int8 => rounded_kind(a, w),
            Activations::Float if a.rows() > float::FEW => return Self::Floats(gemm::Left::new(a)),
            Activations::Float => Kind::Floats,
        };
        Self::Rows(Memory::new(a, w.format, kind, threads))
    }

    pub(super) fn data(&self) -> &Data {
        match self {
            Self::Rows(memory) => memory.data(),
            Self::Floats(_) => unreachable!("products of f32 have kernels of their own"),
        }
    }
}

/// What rounded activations have to be.
fn rounded_kind(a: Mat<'_>, w: &Integers) -> Kind {
    let alone = kernel::best(w.format.bits).kind;
    #[cfg(target_arch = "x86_64")]
    let alone = super::pairs::kind(a.rows(), super::activations::groups(w.format, w.inputs)).unwrap_or(alone);
    let _ = a;
    alone
}

/// A product.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub w: &'a Integers,
    pub first: usize,
    pub left: &'a Left,
    pub accumulate: bool,
    pub finish: Option<Finish<'a>>,
}

impl Job<'_> {
    /// Outputs that pieces have multiples of: kernels for many rows take two panels at a time, and as long for one.
    fn unit(&self) -> usize {
        match self.left {
            #[cfg(target_arch = "x86_64")]
            Left::Rows(memory) if matches!(memory.data().kind, Kind::Tiles | Kind::Panels(_)) => 2 * LANES,
            _ => LANES,
        }
    }

    /// Ends of pieces of C's columns that end where panels do, and become smaller, so that all threads end at nearly
    /// the same time.
    pub fn ends(&self, n: usize, threads: usize, most: usize) -> Vec<usize> {
        let (before, unit) = (self.first % LANES, self.unit());
        shrinking(before + n, threads, unit, (unit, most)).into_iter().map(|end| end - before).collect()
    }

    /// Ends of so many nearly equal pieces, or of one for each panel.
    pub fn even_ends(&self, n: usize, parts: usize) -> Vec<usize> {
        let (before, unit) = (self.first % LANES, self.unit());
        let parts = parts.min((before + n).div_ceil(unit));
        split(before + n, parts, unit).into_iter().map(|end| end - before).collect()
    }

    /// Ends of pieces of C's rows: all of them, unless so few outputs would not keep the threads busy alike.
    fn row_ends(&self, rows: usize, outputs: usize, threads: usize) -> Vec<usize> {
        match self.left {
            #[cfg(target_arch = "x86_64")]
            Left::Rows(memory) if threads > 1 && self.unit() > LANES => {
                let parts = (8 * threads).div_ceil(outputs.div_ceil(self.unit()));
                super::pairs::row_ends(memory.data(), parts)
            }
            _ => {
                let _ = (outputs, threads);
                vec![rows]
            }
        }
    }

    /// Computes the part of C that begins at (row, col).
    pub fn part(&self, mut c: MatMut<'_>, row: usize, col: usize) {
        let (rows, cols) = (c.rows(), c.cols());
        if let Left::Floats(left) = self.left {
            assert_eq!(row, 0, "a piece has all rows");
            return left.piece(self, c, col, self.accumulate, self.finish);
        }
        #[cfg(target_arch = "x86_64")]
        if matches!(self.left.data().kind, Kind::Tiles | Kind::Panels(_)) {
            return super::pairs::part(self, c, row, col);
        }
        let mut from = 0;
        while from < cols {
            let (panel, lane) = ((self.first + col + from) / LANES, (self.first + col + from) % LANES);
            let count = (LANES - lane).min(cols - from);
            self.panel(c.block(0, from, rows, count), row, panel, lane);
            from += count;
        }
        self.finish(&mut c, (0, rows), row, col);
    }

    /// Applies `finish` to rows of a part of C that begins at (row, col).
    pub(super) fn finish(&self, c: &mut MatMut<'_>, (first, rows): (usize, usize), row: usize, col: usize) {
        if let Some(finish) = self.finish {
            let cols = c.cols();
            (first..first + rows).for_each(|r| finish(row + r, col, c.row(r, 0, cols)));
        }
    }

    /// Computes some of a panel's outputs, from `lane` on.
    fn panel(&self, mut c: MatMut<'_>, row: usize, panel: usize, lane: usize) {
        let floats = self.left.data().kind == Kind::Floats;
        let kernel = kernel::best(self.w.format.bits);
        let most = if floats { float::ROWS } else { kernel.rows };
        let mut task = self.task(panel, row);
        for (r0, count) in row_panels(c.rows(), most) {
            let cols = c.cols();
            let place = Place::new(c.block(r0, 0, count, cols), lane, self.accumulate);
            match floats {
                true => {
                    task.check(count);
                    // SAFETY: the task holds what so many rows need, as just checked.
                    unsafe { float::task(self.w.format.middle(), &task, &place) };
                }
                false => kernel.task(&task, &place),
            }
            task.skip(count);
        }
    }

    /// A panel and the rows of A from `row` on.
    pub(super) fn task(&self, panel: usize, row: usize) -> Task<'_> {
        let (w, data) = (self.w, self.left.data());
        Task {
            bits: w.format.bits,
            codes: w.panel(panel),
            numbers: w.numbers(panel, 1),
            offset: w.format.offset,
            groups: w.groups(),
            x: data.bytes_from(row),
            kind: data.kind,
            stride: data.stride,
            sides: data.sides_from(row),
            x_groups: data.groups,
            span: data.span,
        }
    }
}
