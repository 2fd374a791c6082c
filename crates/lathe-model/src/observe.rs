//! What a pass shows to somebody who looks: how large the inputs are of the matrices by which units write, and how far
//! each slot turns the hidden states. Nothing of it is computed where nobody looks.

use crate::context::{Reports, Shared};
use crate::linear::Linear;
use crate::params::ParamId;

/// Stands in a pass's context while somebody looks.
pub(crate) struct Observe;

impl Shared for Observe {
    fn fill(&mut self, _: f32) {}
}

/// The inputs of a weight matrix in a pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Activity {
    /// The matrix.
    pub param: ParamId,
    /// Sum of |x| over all tokens, for each input.
    pub sums: Vec<f64>,
    /// Tokens.
    pub rows: usize,
}

impl Activity {
    /// Of the inputs [N, inputs] of a linear layer.
    pub(crate) fn new(linear: &Linear, x: &[f32]) -> Self {
        let mut sums = vec![0.0; linear.inputs()];
        for row in x.chunks_exact(linear.inputs()) {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(x.abs()));
        }
        Self { param: linear.matrix.weight(), sums, rows: x.len() / linear.inputs() }
    }
}

/// How far a slot turns the hidden states in a pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn {
    /// Counted from the bottom.
    pub slot: usize,
    /// Sum over all tokens of 1 - cos(x, y), with x what enters and y what leaves; infinite where these differ in
    /// shape.
    pub sum: f64,
    /// Tokens.
    pub rows: usize,
}

impl Turn {
    /// From hidden states [N, D] to others.
    pub(crate) fn new(slot: usize, rows: usize, x: &[f32], y: &[f32]) -> Self {
        if x.len() != y.len() {
            return Self { slot, sum: f64::INFINITY, rows };
        }
        let width = x.len() / rows.max(1);
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let turn = |(x, y): (&[f32], &[f32])| {
            let lengths = (dot(x, x) * dot(y, y)).sqrt();
            if lengths > 0.0 { 1.0 - dot(x, y) / lengths } else { 0.0 }
        };
        Self { slot, sum: x.chunks_exact(width).zip(y.chunks_exact(width)).map(turn).sum(), rows }
    }
}

/// All that a pass showed, from the bottom.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// Of matrices by which units write.
    pub activities: Vec<Activity>,
    /// Of all slots.
    pub turns: Vec<Turn>,
}

impl Observation {
    pub(crate) fn of(reports: &Reports) -> Self {
        Self { activities: reports.take(), turns: reports.take() }
    }
}
