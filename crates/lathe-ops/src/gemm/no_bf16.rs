//! In the place of [`bf16`](super::bf16) where the CPU never has it, so that nothing here is called.

use super::Job;
use super::matrix::{Mat, MatMut};
use super::pack::Buffer;

pub(super) const PANEL: usize = 32;

pub(super) fn worth_splitting(_: usize, _: usize, _: usize) -> bool {
    false
}

pub(super) fn pack_b(_: Mat<'_>, _: usize, _: usize, _: &mut Buffer) {
    unreachable!("Precision::available gives f32 here")
}

pub(super) fn part(_: &Job<'_>, _: usize, _: MatMut<'_>, _: usize, _: usize, _: &mut Buffer) {
    unreachable!("Precision::available gives f32 here")
}

pub(super) fn grid(_: usize, _: usize, _: usize, _: usize, _: usize) -> (usize, usize) {
    unreachable!("Precision::available gives f32 here")
}
