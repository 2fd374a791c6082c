//! Matrix products: C = A B or C += A B, any strides, several threads, in f32 or in `bf16` with sums in f32. Where the CPU
//! has tiles, large products of f32 whose right-hand side was not packed before are computed there too, each number as three bf16.
//!
//! The scheme is Goto's: B is packed into panels of `nr` columns that a register tile reads one row at a
//! time, and A into panels of 16 rows that it reads one column at a time. Threads own disjoint parts of
//! C, and each entry of C is summed in one fixed order, so the result does not depend on timing.

#[cfg_attr(not(target_arch = "x86_64"), path = "no_bf16.rs")]
mod bf16;
mod columns;
#[cfg(target_arch = "x86_64")]
mod dots;
mod halves;
mod kernel;
mod matrix;
mod pack;
#[cfg(target_arch = "x86_64")]
mod pairs;
#[cfg(target_arch = "x86_64")]
pub(crate) mod tiles;

pub(crate) use columns::{Left, Right};
pub use matrix::{Mat, MatMut};
pub use pack::Packed;
pub(crate) use pack::{Buffer, fetch, row_panels};

use crate::integers::{self, Activations, Integers};
use crate::{Precision, flops, parallel, team};
use kernel::Kernel;
use std::cell::RefCell;
use std::marker::PhantomData;

/// Depth of a block: how many columns of A and rows of B a tile goes through at a time.
const KC: usize = 512;
/// The most rows of A that a piece of work has: with their depth they fit into the second-level cache.
const MC: usize = 168;
/// The fewest rows that are worth a piece of their own.
const MIN_ROWS: usize = 42;
/// Columns of B that all rows of a piece go through before the next ones: beside A in the second-level cache.
const NC: usize = 256;

/// The right-hand side of a product: a matrix, or one that was packed before.
#[derive(Clone, Copy)]
pub enum Rhs<'a> {
    /// Packed as the product goes.
    Mat(Mat<'a>),
    /// Rounded to bf16 and packed as the product goes.
    Bf16(Mat<'a>),
    /// Packed once for many products.
    Packed(&'a Packed),
    /// The transpose of integer weights: their outputs from `first` on, so many.
    #[allow(missing_docs)]
    Integers { w: &'a Integers, first: usize, outputs: usize, activations: Activations },
}

impl<'a> Rhs<'a> {
    /// A matrix for a product in a precision.
    pub fn new(b: Mat<'a>, precision: Precision) -> Self {
        match precision.available() {
            Precision::F32 => Self::Mat(b),
            Precision::Bf16 => Self::Bf16(b),
        }
    }

    /// How a product of `m` rows is computed.
    fn way(&self, m: usize) -> Way {
        match self {
            Self::Mat(b) if bf16::worth_splitting(m, b.cols(), b.rows()) => Way::Tiles { parts: 3 },
            Self::Mat(_) => Way::Sums,
            Self::Bf16(_) => Way::bf16(m),
            Self::Packed(b) => b.way(m),
            Self::Integers { .. } => unreachable!("integer weights have kernels of their own"),
        }
    }

    fn rows(&self) -> usize {
        match self {
            Self::Mat(b) | Self::Bf16(b) => b.rows(),
            Self::Packed(b) => b.rows(),
            Self::Integers { w, .. } => w.inputs(),
        }
    }

    fn cols(&self) -> usize {
        match self {
            Self::Mat(b) | Self::Bf16(b) => b.cols(),
            Self::Packed(b) => b.cols(),
            Self::Integers { outputs, .. } => *outputs,
        }
    }
}

/// How a product is computed.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// By multiplying and adding f32.
    Sums,
    /// In tiles of bf16, of which a number is one or three.
    Tiles { parts: usize },
    /// By multiplying f32 by what was packed as bf16, as it is read.
    Few,
    /// By multiplying and adding f32, once what was packed as bf16 is f32.
    Widened,
}

impl Way {
    /// Products in bf16 of `m` rows.
    fn bf16(m: usize) -> Self {
        if m <= halves::FEW { Self::Few } else { Self::Tiles { parts: 1 } }
    }
}

impl<'a> From<Mat<'a>> for Rhs<'a> {
    fn from(b: Mat<'a>) -> Self {
        Self::Mat(b)
    }
}

impl<'a> From<&'a Packed> for Rhs<'a> {
    fn from(b: &'a Packed) -> Self {
        Self::Packed(b)
    }
}

/// What happens to a part of a row of C once it is complete: (row, first column, values).
pub type Finish<'a> = &'a (dyn Fn(usize, usize, &mut [f32]) + Sync);

/// C = A B, or C += A B where `accumulate`, on all threads of the pool.
pub fn gemm<'b>(c: MatMut<'_>, a: Mat<'_>, b: impl Into<Rhs<'b>>, accumulate: bool) {
    run(c, a, b.into(), accumulate, None, team::threads());
}

/// As [`gemm`], with `finish` applied to every part of C while it is still in the cache.
pub fn gemm_finish<'b>(c: MatMut<'_>, a: Mat<'_>, b: impl Into<Rhs<'b>>, accumulate: bool, finish: Finish<'_>) {
    run(c, a, b.into(), accumulate, Some(finish), team::threads());
}

/// As [`Finish`], with the same part of an array beside C: (first column, values of C, values beside).
pub type FinishBeside<'a> = &'a (dyn Fn(usize, &mut [f32], &mut [f32]) + Sync);

/// C = A B, with `finish` applied to every part of C and of an array beside it.
pub fn gemm_beside<'b>(c: MatMut<'_>, a: Mat<'_>, b: impl Into<Rhs<'b>>, beside: &mut [f32], finish: FinishBeside<'_>) {
    let beside = Beside::new(beside, &c);
    let c = c.beside(beside.data);
    let finish = |row: usize, col: usize, values: &mut [f32]| {
        // SAFETY: each part of C is finished once.
        finish(col, values, unsafe { beside.part(row, col, values.len()) });
    };
    run(c, a, b.into(), false, Some(&finish), team::threads());
}

/// An array of the shape of C that is read and written while parts of C are finished.
struct Beside<'a> {
    data: *mut f32,
    len: usize,
    width: usize,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: threads get disjoint parts, as the caller of `part` promises.
unsafe impl Sync for Beside<'_> {}

impl<'a> Beside<'a> {
    fn new(data: &'a mut [f32], c: &MatMut<'_>) -> Self {
        assert_eq!(data.len(), c.rows() * c.cols(), "an array beside C has its shape");
        Self { data: data.as_mut_ptr(), len: data.len(), width: c.cols(), owner: PhantomData }
    }

    /// `len` entries of a row.
    ///
    /// # Safety
    /// No entry may be asked for twice.
    #[allow(clippy::mut_from_ref)]
    unsafe fn part(&self, row: usize, col: usize, len: usize) -> &mut [f32] {
        assert!(col + len <= self.width && row * self.width + col + len <= self.len);
        // SAFETY: the entries lie inside the array, which is borrowed uniquely, and nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(row * self.width + col), len) }
    }
}

/// As [`gemm`], on this thread alone: for products inside a parallel loop.
pub fn gemm_serial<'b>(c: MatMut<'_>, a: Mat<'_>, b: impl Into<Rhs<'b>>, accumulate: bool) {
    run(c, a, b.into(), accumulate, None, 1);
}

/// As [`gemm_serial`], for a part of a product whose operations its caller counts.
pub(crate) fn gemm_part(c: MatMut<'_>, a: Mat<'_>, b: Rhs<'_>, accumulate: bool) {
    compute(c, a, b, accumulate, None, 1);
}

/// As [`Finish`], with the number of the product first.
pub type FinishGrouped<'a> = &'a (dyn Fn(usize, usize, usize, &mut [f32]) + Sync);

/// One product of a group: C = A B, or added to C.
#[allow(missing_docs)]
pub struct Product<'a> {
    pub c: MatMut<'a>,
    pub a: Mat<'a>,
    pub b: Rhs<'a>,
    pub accumulate: bool,
}

/// Several products at once: all are cut into pieces, which the threads share, so that neither many small ones nor
/// one large one leaves a thread without work.
pub fn gemm_grouped(products: Vec<Product<'_>>, finish: Option<FinishGrouped<'_>>) {
    let terms = |p: &Product<'_>| p.c.rows() * p.c.cols() * p.a.cols();
    products.iter().for_each(|p| flops::add(1, [p.c.rows(), p.c.cols(), p.a.cols()]));
    let piece = (products.iter().map(terms).sum::<usize>() / (6 * team::threads())).max(1 << 16);
    let mut sides: Vec<(pack::Borrowed, Option<integers::Left>)> =
        products.iter().map(|_| (pack::Borrowed::new(), None)).collect();
    let to_pack: Vec<(Mat<'_>, Rhs<'_>)> = products.iter().map(|p| (p.a, p.b)).collect();
    parallel::each(to_pack.into_iter().zip(&mut sides).collect(), |_, ((a, b), (buffer, left))| match b {
        _ if a.rows() == 0 => {}
        Rhs::Mat(mat) | Rhs::Bf16(mat) => pack::pack(mat, b.way(a.rows()), 1, buffer),
        Rhs::Packed(_) => {}
        Rhs::Integers { w, activations, .. } => *left = Some(integers::Left::new(a, w, activations, 1)),
    });
    let mut pieces = Vec::new();
    for ((i, product), (buffer, left)) in products.into_iter().enumerate().zip(&sides) {
        let (m, n, k) = (product.c.rows(), product.c.cols(), product.a.cols());
        if m == 0 || n == 0 {
            continue;
        }
        let Product { c, a, b, accumulate } = product;
        assert!(a.rows() == m && b.rows() == k && b.cols() == n, "gemm: product {i} of a group");
        let parts = (m * n * k).div_ceil(piece).max(1);
        if let (Rhs::Integers { w, first, .. }, Some(left)) = (b, left) {
            let job = integers::Job { w, first, left, accumulate, finish: None };
            let parts = c.split(&[m], &job.even_ends(n, parts));
            pieces.extend(parts.into_iter().map(|part| (i, Work::Integers(job), part)));
            continue;
        }
        let way = b.way(m);
        let (tall, wide) = units(way);
        let across = parts.min(n.div_ceil(4 * wide));
        let down = parts.div_ceil(across).min(m.div_ceil(MIN_ROWS));
        let panels = match b {
            Rhs::Packed(b) => b.buffer(),
            _ => buffer,
        };
        let job = Job { a, panels, way, n, accumulate, finish: None };
        let parts = c.split(&split(m, down, tall), &split(n, across, wide));
        pieces.extend(parts.into_iter().map(|part| (i, Work::Floats(job), part)));
    }
    parallel::each(pieces, |_, (i, work, (row, col, part))| {
        let of_product = |row: usize, col: usize, values: &mut [f32]| {
            if let Some(finish) = finish {
                finish(i, row, col, values);
            }
        };
        let finish: Option<Finish<'_>> = finish.is_some().then_some(&of_product);
        match work {
            Work::Floats(job) => Job { finish, ..job }.part(part, row, col),
            Work::Integers(job) => integers::Job { finish, ..job }.part(part, row, col),
        }
    });
}

/// A product of a group, by what it multiplies.
enum Work<'a> {
    Floats(Job<'a>),
    Integers(integers::Job<'a>),
}

/// A product, counted.
fn run(c: MatMut<'_>, a: Mat<'_>, b: Rhs<'_>, accumulate: bool, finish: Option<Finish<'_>>, threads: usize) {
    flops::add(1, [c.rows(), c.cols(), a.cols()]);
    compute(c, a, b, accumulate, finish, threads);
}

fn compute(c: MatMut<'_>, a: Mat<'_>, b: Rhs<'_>, accumulate: bool, finish: Option<Finish<'_>>, threads: usize) {
    let (m, n, k) = (c.rows(), c.cols(), a.cols());
    assert!(
        a.rows() == m && b.rows() == k && b.cols() == n,
        "gemm: [{m}, {n}] = [{}, {k}] [{}, {}]",
        a.rows(),
        b.rows(),
        b.cols()
    );
    if m == 0 || n == 0 {
        return;
    }
    if let Rhs::Integers { w, first, activations, .. } = b {
        return integers::run(c, a, w, first, activations, accumulate, finish, threads);
    }
    let way = b.way(m);
    // Below this much work a second thread costs more than it saves.
    let threads = threads.min(2 * m * n * k / 400_000 + 1);
    if let (1, Rhs::Mat(b) | Rhs::Bf16(b)) = (threads, b) {
        // On this thread alone, its own buffer is the one that is in the cache.
        return B_BUFFER.with_borrow_mut(|panels| {
            pack::pack(b, way, 1, panels);
            Job { a, panels, way, n, accumulate, finish }.part(c, 0, 0);
        });
    }
    if way == Way::Widened || way == Way::Sums && m <= n.min(columns::MOST_ROWS) && k > 0 {
        return columns::run(c, a, b, accumulate, finish, threads);
    }
    let mut buffer = pack::Borrowed::new();
    let panels = match b {
        Rhs::Packed(b) => b.buffer(),
        Rhs::Mat(b) | Rhs::Bf16(b) => {
            pack::pack(b, way, threads, &mut buffer);
            &*buffer
        }
        Rhs::Integers { .. } => unreachable!("computed above"),
    };
    let job = Job { a, panels, way, n, accumulate, finish };
    if way == Way::Few {
        let ends = shrinking(n, threads, halves::PANEL, (halves::PANEL, NC));
        return parallel::each(c.split(&[m], &ends), |_, (row, col, part)| job.part(part, row, col));
    }
    let (down, across) = match way {
        Way::Tiles { parts } => bf16::grid(parts, m, n, k, threads),
        _ => grid(m, n, k, threads),
    };
    if down * across == 1 {
        return job.part(c, 0, 0);
    }
    let (tall, wide) = units(way);
    let row_ends = match way {
        Way::Sums if down >= 4 * threads => shrinking(m, threads, kernel::best().mr, (MIN_ROWS, MC)),
        _ => split(m, down, tall),
    };
    let parts = c.split(&row_ends, &split(n, across, wide));
    parallel::each(parts, |_, (row, col, part)| job.part(part, row, col));
}

/// Cuts C into `down` by `across` pieces, several for each thread, so that one that is slowed down by others does less.
/// Pieces are rows first, since a piece copies its rows of A but only reads B.
fn grid(m: usize, n: usize, k: usize, threads: usize) -> (usize, usize) {
    let by_cache = m.div_ceil(MC);
    if threads == 1 {
        return (by_cache, 1);
    }
    let wanted = (2 * m * n * k / 2_000_000).clamp(threads, 6 * threads);
    let down = wanted.min(m / MIN_ROWS).max(by_cache);
    let across = wanted.div_ceil(down).min(n.div_ceil(2 * kernel::best().nr));
    (down, across)
}

/// Ends of pieces, multiples of `unit`, that become smaller from `most` to `least`, so that all threads end at nearly
/// the same time.
pub(crate) fn shrinking(total: usize, threads: usize, unit: usize, (least, most): (usize, usize)) -> Vec<usize> {
    let mut ends = vec![0];
    while let left @ 1.. = total - ends[ends.len() - 1] {
        let piece = (left / (2 * threads)).clamp(least, most) / unit * unit;
        ends.push(total - left + piece.clamp(1, left));
    }
    ends.split_off(1)
}

/// The rows and columns of which pieces of C are multiples.
fn units(way: Way) -> (usize, usize) {
    match way {
        Way::Sums => (1, kernel::best().nr),
        Way::Tiles { .. } => (bf16::PANEL, bf16::PANEL),
        Way::Few | Way::Widened => (1, halves::PANEL),
    }
}

/// Ends of `parts` nearly equal parts of `total`, each but the last a multiple of `unit`.
pub(crate) fn split(total: usize, parts: usize, unit: usize) -> Vec<usize> {
    let units = total.div_ceil(unit);
    (1..=parts).map(|i| (units * i / parts * unit).min(total)).collect()
}

#[derive(Clone, Copy)]
struct Job<'a> {
    a: Mat<'a>,
    /// B, packed.
    panels: &'a pack::Buffer,
    way: Way,
    /// Columns of B.
    n: usize,
    accumulate: bool,
    finish: Option<Finish<'a>>,
}

thread_local! {
    static A_BUFFER: RefCell<pack::Buffer> = const { RefCell::new(pack::Buffer::new()) };
    static B_BUFFER: RefCell<pack::Buffer> = const { RefCell::new(pack::Buffer::new()) };
}

impl Job<'_> {
    /// Computes the part of C that begins at (row, col).
    fn part(&self, mut c: MatMut<'_>, row: usize, col: usize) {
        A_BUFFER.with_borrow_mut(|buffer| match self.way {
            Way::Sums => self.part_with(kernel::best(), &mut c, row, col, buffer),
            Way::Tiles { parts } => bf16::part(self, parts, c, row, col, buffer),
            Way::Few => halves::part(self, c, row, col, buffer),
            Way::Widened => {
                let right = halves::Widened { pairs: self.panels.get_pairs(), depth: self.a.cols() };
                let finish = |r: usize, col: usize, values: &mut [f32]| {
                    if let Some(finish) = self.finish {
                        finish(row + r, col, values);
                    }
                };
                columns::Left::new(self.a.rows_from(row, c.rows())).piece(
                    &right,
                    c,
                    col,
                    self.accumulate,
                    Some(&finish),
                );
            }
        });
    }

    fn part_with(&self, kernel: &Kernel, c: &mut MatMut<'_>, row: usize, col: usize, buffer: &mut pack::Buffer) {
        let rows = c.rows();
        for m0 in (0..rows).step_by(MC) {
            self.rows(kernel, c, (m0, MC.min(rows - m0)), row, col, buffer);
        }
    }

    /// Computes `mc` rows of a part from `m0` on.
    fn rows(
        &self,
        kernel: &Kernel,
        c: &mut MatMut<'_>,
        (m0, mc): (usize, usize),
        row: usize,
        col: usize,
        buffer: &mut pack::Buffer,
    ) {
        let (n, k) = (c.cols(), self.a.cols());
        let width = self.n.next_multiple_of(kernel.nr);
        for k0 in (0..k).step_by(KC) {
            let kc = KC.min(k - k0);
            let a = pack::pack_a(self.a, (row + m0, mc), (k0, kc), kernel.mr, buffer);
            for n0 in (0..n).step_by(NC) {
                let nc = NC.min(n - n0);
                let b = &self.panels.get()[k0 * width + (col + n0) * kc..];
                let panels = pack::row_panels(mc, kernel.mr);
                let share = |i: usize| (i, mc.div_ceil(kernel.mr));
                for (i, ((r0, rows), a)) in panels.zip(a.chunks_exact(kc * pack::LINE)).enumerate() {
                    let r0 = m0 + r0;
                    kernel.row(a, b, kc, c.block(r0, n0, rows, nc), self.accumulate || k0 > 0, share(i));
                    if k0 + kc == k {
                        self.finish(c, (r0, rows), (n0, nc), row, col);
                    }
                }
            }
        }
        if k == 0 {
            // A product over nothing is 0.
            if !self.accumulate {
                c.block(m0, 0, mc, n).fill(0.0);
            }
            self.finish(c, (m0, mc), (0, n), row, col);
        }
    }

    /// Applies `finish` to a block that is complete.
    fn finish(&self, c: &mut MatMut<'_>, (m0, mc): (usize, usize), (n0, nc): (usize, usize), row: usize, col: usize) {
        if let Some(finish) = self.finish {
            for r in m0..m0 + mc {
                finish(row + r, col + n0, c.row(r, n0, nc));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that differ from place to place and are exact in f32.
    fn numbers(n: usize, seed: usize) -> Vec<f32> {
        (0..n).map(|i| (((i + seed) * 7919 + seed * 31) % 23) as f32 - 11.0).collect()
    }

    /// Integer matrices, so that every order of summation gives the same bits.
    fn check(m: usize, n: usize, k: usize, transpose_a: bool, transpose_b: bool, packed: bool, accumulate: bool) {
        let (a, b, c0) = (numbers(m * k, 1), numbers(k * n, 2), numbers(m * n, 3));
        let a_mat = if transpose_a { Mat::new(&a, k, m).t() } else { Mat::new(&a, m, k) };
        let b_mat = if transpose_b { Mat::new(&b, n, k).t() } else { Mat::new(&b, k, n) };
        let mut expected = c0.clone();
        for i in 0..m {
            for j in 0..n {
                let sum: f32 = (0..k).map(|p| a_mat.at(i, p) * b_mat.at(p, j)).sum();
                expected[i * n + j] = if accumulate { expected[i * n + j] + sum } else { sum };
            }
        }
        let mut c = c0.clone();
        let prepacked = packed.then(|| Packed::new(b_mat));
        let rhs = prepacked.as_ref().map_or(Rhs::Mat(b_mat), Rhs::Packed);
        gemm(MatMut::new(&mut c, m, n), a_mat, rhs, accumulate);
        assert!(c == expected, "{m} {n} {k} {transpose_a} {transpose_b} {packed} {accumulate}");
        let mut c = c0;
        gemm_finish(MatMut::new(&mut c, m, n), a_mat, rhs, accumulate, &|row, col, values| {
            values.iter_mut().enumerate().for_each(|(i, v)| *v += (row * n + col + i) as f32);
        });
        assert!(c.iter().zip(&expected).enumerate().all(|(i, (c, e))| *c == e + i as f32), "finish {m} {n} {k}");
    }

    #[test]
    fn odd_shapes() {
        for m in [1, 3, 14, 17, 65, 193] {
            for n in [1, 3, 17, 32, 65, 193] {
                for k in [0, 1, 3, 17, 65, 193, 600] {
                    for flags in 0..16 {
                        check(m, n, k, flags & 1 > 0, flags & 2 > 0, flags & 4 > 0, flags & 8 > 0);
                    }
                }
            }
        }
        check(400, 1300, 70, false, true, false, false);
    }

    #[test]
    fn every_kernel_of_this_cpu_agrees() {
        for kernel in kernel::available() {
            for (m, n, k) in [(1, 1, 1), (17, 65, 33), (29, 40, 530)] {
                let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
                let (a, b) = (Mat::new(&a, m, k), Mat::new(&b, k, n));
                for a_t in [false, true] {
                    let storage: Vec<f32> = (0..k * m).map(|i| a.at(i % m, i / m)).collect();
                    let a_view = if a_t { Mat::new(&storage, k, m).t() } else { a };
                    let mut c = vec![0.0; m * n];
                    let mut buffer = pack::Buffer::new();
                    pack::pack_b(b, kernel.nr, 1, &mut buffer);
                    let job = Job { a: a_view, panels: &buffer, way: Way::Sums, n, accumulate: false, finish: None };
                    job.part_with(kernel, &mut MatMut::new(&mut c, m, n), 0, 0, &mut pack::Buffer::new());
                    for (i, &value) in c.iter().enumerate() {
                        let sum: f32 = (0..k).map(|p| a.at(i / n, p) * b.at(p, i % n)).sum();
                        assert_eq!(value, sum, "{}", kernel.name);
                    }
                }
            }
        }
    }

    /// A group with products of no rows, no columns and over nothing.
    #[test]
    fn grouped_products_of_any_size() {
        for accumulate in [false, true] {
            let sizes = [(17, 65, 33), (0, 5, 3), (5, 0, 3), (29, 40, 0), (1, 1, 1), (193, 300, 70)];
            let inputs = sizes.map(|(m, n, k)| (numbers(m * k, 1), numbers(k * n, 2)));
            let mut outputs = sizes.map(|(m, n, _)| numbers(m * n, 3));
            let mut expected = outputs.clone();
            for (((m, n, k), (a, b)), c) in sizes.into_iter().zip(&inputs).zip(&mut expected) {
                gemm(MatMut::new(c, m, n), Mat::new(a, m, k), Mat::new(b, k, n), accumulate);
                c.iter_mut().enumerate().for_each(|(i, c)| *c += i as f32);
            }
            let products = sizes.into_iter().zip(&inputs).zip(&mut outputs);
            let products = products.map(|(((m, n, k), (a, b)), c)| Product {
                c: MatMut::new(c, m, n),
                a: Mat::new(a, m, k),
                b: Mat::new(b, k, n).into(),
                accumulate,
            });
            let finish = |product: usize, row: usize, col: usize, values: &mut [f32]| {
                let first = row * sizes[product].1 + col;
                values.iter_mut().enumerate().for_each(|(i, v)| *v += (first + i) as f32);
            };
            gemm_grouped(products.collect(), Some(&finish));
            assert!(outputs == expected, "{accumulate}");
        }
    }

    /// bf16 products against sums in f64 of what the sides are rounded to: small whole numbers, which are bf16, and
    /// numbers that are not.
    #[test]
    fn products_in_bf16() {
        if Precision::Bf16.warning().is_some() {
            return; // not on this CPU
        }
        let round = |x: f32| f64::from(f32::from_bits((x.to_bits() + 0x7fff + (x.to_bits() >> 16 & 1)) & 0xffff_0000));
        for (m, n, k) in
            [(1, 1, 1), (3, 17, 65), (17, 193, 3), (65, 40, 193), (33, 32, 64), (193, 65, 17), (300, 290, 540)]
        {
            let [a, b, c0] = [(m * k, 1), (k * n, 2), (m * n, 3)].map(|(len, seed)| {
                numbers(len, seed)
                    .into_iter()
                    .enumerate()
                    .map(|(i, x)| x * (1.0 + i as f32 / 4099.0))
                    .collect::<Vec<_>>()
            });
            for flags in 0..16 {
                let [a_t, b_t, packed, accumulate] = [1, 2, 4, 8].map(|bit| flags & bit > 0);
                let a = if a_t { Mat::new(&a, k, m).t() } else { Mat::new(&a, m, k) };
                let b = if b_t { Mat::new(&b, n, k).t() } else { Mat::new(&b, k, n) };
                let prepacked = packed.then(|| Packed::with_precision(b, Precision::Bf16));
                let rhs = prepacked.as_ref().map_or(Rhs::new(b, Precision::Bf16), Rhs::Packed);
                let [mut c, mut finished] = [c0.clone(), c0.clone()];
                gemm(MatMut::new(&mut c, m, n), a, rhs, accumulate);
                gemm_finish(MatMut::new(&mut finished, m, n), a, rhs, accumulate, &|row, col, values| {
                    values.iter_mut().enumerate().for_each(|(i, v)| *v += (row * n + col + i) as f32);
                });
                for (i, &c) in c.iter().enumerate() {
                    // Few rows of A are not rounded.
                    let left = |x: f32| if m <= halves::FEW { f64::from(x) } else { round(x) };
                    let terms = (0..k).map(|p| left(a.at(i / n, p)) * round(b.at(p, i % n)));
                    let start = if accumulate { f64::from(c0[i]) } else { 0.0 };
                    let (sum, size) = terms.fold((start, start.abs()), |(sum, size), x| (sum + x, size + x.abs()));
                    assert!((f64::from(c) - sum).abs() <= 1e-5 * size, "{m} {n} {k} {flags:b} {i}: {c} for {sum}");
                    assert_eq!(finished[i], c + i as f32);
                }
            }
        }
    }

    /// Large products of f32, which may be computed in three parts, are about as near to sums in f64 as multiplying and
    /// adding f32 is, for numbers of any size and sign: nearer for most, and farther only for long sums of one sign.
    #[test]
    fn products_in_parts_are_as_exact_as_in_f32() {
        use rand::{RngExt, SeedableRng};
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(0);
        for (m, n, k) in [(256, 290, 64), (300, 256, 700), (257, 261, 1999)] {
            for (least, spread) in [(-1.0f32, 0.0f32), (0.0, 0.0), (-1.0, 12.0)] {
                let mut numbers = |len: usize| -> Vec<f32> {
                    (0..len).map(|_| rng.random_range(least..1.0) * (spread * rng.random::<f32>()).exp2()).collect()
                };
                let (a, b) = (numbers(m * k), numbers(k * n));
                let (a, b) = (Mat::new(&a, m, k), Mat::new(&b, k, n));
                let [mut parts, mut sums] = [const { Vec::new() }; 2].map(|_: Vec<f32>| vec![0.0; m * n]);
                gemm(MatMut::new(&mut parts, m, n), a, b, false);
                let mut panels = pack::Buffer::new();
                pack::pack(b, Way::Sums, 1, &mut panels);
                let job = Job { a, panels: &panels, way: Way::Sums, n, accumulate: false, finish: None };
                job.part(MatMut::new(&mut sums, m, n), 0, 0);
                let exact =
                    |i: usize| -> f64 { (0..k).map(|p| f64::from(a.at(i / n, p)) * f64::from(b.at(p, i % n))).sum() };
                let mut errors = [0.0f64; 2];
                for i in (0..m * n).step_by(7) {
                    let exact = exact(i);
                    errors[0] += (f64::from(parts[i]) - exact).powi(2);
                    errors[1] += (f64::from(sums[i]) - exact).powi(2);
                }
                let [parts, sums] = errors.map(f64::sqrt);
                let most = if least < 0.0 || k < 1000 { 1.0 } else { 1.5 };
                assert!(parts <= most * sums, "{m} {n} {k} {least} {spread}: {parts} against {sums}");
            }
        }
    }

    /// The bits are the same on one thread and on several, whole and in a group.
    #[test]
    fn bf16_does_not_depend_on_threads() {
        let (m, n, k) = (330, 420, 700);
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        let [a, b] = [a, b].map(|x| x.into_iter().map(|x| x / 7.0).collect::<Vec<_>>());
        let (a, b) = (Mat::new(&a, m, k), Rhs::new(Mat::new(&b, k, n), Precision::Bf16));
        let [mut one, mut all, mut group] = [const { Vec::new() }; 3].map(|_: Vec<f32>| numbers(m * n, 3));
        gemm_serial(MatMut::new(&mut one, m, n), a, b, true);
        gemm(MatMut::new(&mut all, m, n), a, b, true);
        gemm_grouped(vec![Product { c: MatMut::new(&mut group, m, n), a, b, accumulate: true }], None);
        assert!(one == all && one == group);
    }

    #[test]
    fn parts_of_larger_matrices() {
        let (a, b) = (numbers(20 * 50, 1), numbers(30 * 70, 2));
        let mut c = vec![5.0; 20 * 90];
        let (a, b) = (Mat::new(&a, 20, 50).cols_from(7, 30), Mat::new(&b, 30, 70).cols_from(11, 40));
        gemm(MatMut::with_stride(&mut c[3..], 20, 40, 90), a, b, false);
        for i in 0..20 {
            for j in 0..90 {
                let inside = (3..43).contains(&j);
                let expected = if inside { (0..30).map(|p| a.at(i, p) * b.at(p, j - 3)).sum() } else { 5.0 };
                assert_eq!(c[i * 90 + j], expected);
            }
        }
    }
}
