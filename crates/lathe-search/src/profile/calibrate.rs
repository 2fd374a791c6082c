//! From the sum of a table to a whole model: a few whole models are measured, a correction is fitted, and what remains
//! is reported.
//!
//! latency = a * blocks + b * frame + c * number of blocks, peak memory = d + e * (what parts add + the most that one takes): each by
//! least squares of relative errors, drawn a little towards the plain sum, so that a few models suffice.

use super::table::{ProfileTable, Sum};
use crate::{Error, Result};
use lathe_core::Model;
use serde::{Deserialize, Serialize};

/// What a whole model was measured to cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Median and its interval.
    pub latency_ms: super::table::Interval,
    /// The high-water mark of its process.
    pub peak_bytes: u64,
}

/// What a model is predicted to cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// One pass.
    pub latency_ms: f64,
    /// The high-water mark of its process.
    pub peak_bytes: f64,
}

/// A correction of sums.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// a, b, c: of the blocks' microseconds, the frame's, and per block.
    pub latency: [f64; 3],
    /// d in bytes, and e.
    pub memory: [f64; 2],
    /// How many models it was fitted to.
    pub models: usize,
    /// Median relative errors of predicting each of them from the others.
    pub latency_error: f64,
    /// The same for memory.
    pub memory_error: f64,
}

impl Calibration {
    /// No correction: the plain sum.
    pub const NONE: Self =
        Self { latency: [1.0, 1.0, 0.0], memory: [0.0, 1.0], models: 0, latency_error: 0.0, memory_error: 0.0 };

    /// Fits the correction to measured models.
    pub fn fit(table: &ProfileTable, models: &[(Model, Measured)]) -> Result<Self> {
        let mut rows = Vec::new();
        for (model, measured) in models {
            let sum = table.sum(model).ok_or_else(|| not_in_table(model))?;
            rows.push((sum, 1000.0 * measured.latency_ms.median, measured.peak_bytes as f64));
        }
        let mut fitted = Self::of_rows(&rows);
        let mut errors = (Vec::new(), Vec::new());
        for left_out in 0..rows.len() {
            let mut others = rows.clone();
            let (sum, latency_us, peak) = others.remove(left_out);
            let prediction = Self::of_rows(&others).of_sum(&sum);
            errors.0.push((1000.0 * prediction.latency_ms / latency_us - 1.0).abs());
            errors.1.push((prediction.peak_bytes / peak - 1.0).abs());
        }
        (fitted.latency_error, fitted.memory_error) = (median(errors.0), median(errors.1));
        Ok(fitted)
    }

    fn of_rows(rows: &[(Sum, f64, f64)]) -> Self {
        let latency: Vec<([f64; 3], f64)> =
            rows.iter().map(|(sum, us, _)| ([sum.blocks_us, sum.frame_us, sum.count], *us)).collect();
        let memory: Vec<([f64; 2], f64)> = rows.iter().map(|(sum, _, peak)| ([1e8, sum.peak_bytes], *peak)).collect();
        let [d, e] = least_squares(&memory, [0.0, 1.0]);
        Self {
            latency: least_squares(&latency, [1.0, 1.0, 0.0]),
            memory: [1e8 * d, e],
            models: rows.len(),
            ..Self::NONE
        }
    }

    fn of_sum(&self, sum: &Sum) -> Prediction {
        let [a, b, c] = self.latency;
        Prediction {
            latency_ms: (a * sum.blocks_us + b * sum.frame_us + c * sum.count) / 1000.0,
            peak_bytes: self.memory[0] + self.memory[1] * sum.peak_bytes,
        }
    }
}

impl ProfileTable {
    /// What a model is predicted to cost: the sum of its parts, corrected where the table has a correction.
    pub fn predict(&self, model: &Model) -> Result<Prediction> {
        let sum = self.sum(model).ok_or_else(|| not_in_table(model))?;
        Ok(self.calibration.as_ref().unwrap_or(&Calibration::NONE).of_sum(&sum))
    }
}

fn not_in_table(model: &Model) -> Error {
    Error::data(model.layers(), "a block that the table does not have", "a table of this space, in this setting")
}

/// Minimises sum ((x w - y) / y)^2 + |scaled (w - prior)|^2.
pub(crate) fn least_squares<const N: usize>(rows: &[([f64; N], f64)], prior: [f64; N]) -> [f64; N] {
    /// What a whole change of a correction by its own size costs, in squared relative errors.
    const PULL: f64 = 1e-3;
    let mut matrix = [[0.0; N]; N];
    let mut right = [0.0; N];
    for (x, y) in rows {
        let x = x.map(|x| x / y);
        let error = 1.0 - x.iter().zip(prior).map(|(x, w)| x * w).sum::<f64>();
        for i in 0..N {
            right[i] += x[i] * error;
            for j in 0..N {
                matrix[i][j] += x[i] * x[j];
            }
        }
    }
    for (i, row) in matrix.iter_mut().enumerate() {
        row[i] = row[i] * (1.0 + PULL) + 1e-12;
    }
    let change = solve(matrix, right);
    std::array::from_fn(|i| prior[i] + change[i])
}

/// Gauss with pivots, for a matrix that is positive definite.
fn solve<const N: usize>(mut a: [[f64; N]; N], mut b: [f64; N]) -> [f64; N] {
    for i in 0..N {
        let pivot = (i..N).max_by(|&x, &y| a[x][i].abs().total_cmp(&a[y][i].abs())).expect("rows are left");
        a.swap(i, pivot);
        b.swap(i, pivot);
        for row in i + 1..N {
            let (factor, above) = (a[row][i] / a[i][i], a[i]);
            a[row].iter_mut().zip(above).for_each(|(x, above)| *x -= factor * above);
            b[row] -= factor * b[i];
        }
    }
    for i in (0..N).rev() {
        let known: f64 = (i + 1..N).map(|column| a[i][column] * b[column]).sum();
        b[i] = (b[i] - known) / a[i][i];
    }
    b
}

/// The median of numbers; 0 of none.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => 0.0,
        n => (numbers[(n - 1) / 2] + numbers[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_systems_are_solved() {
        let x = solve([[0.0, 2.0, 1.0], [4.0, 1.0, 0.0], [1.0, 1.0, 3.0]], [7.0, 6.0, 12.0]);
        // 2y + z = 7, 4x + y = 6, x + y + 3z = 12
        for (x, expected) in x.into_iter().zip([1.0, 2.0, 3.0]) {
            assert!((x - expected).abs() < 1e-12, "{x} {expected}");
        }
    }

    #[test]
    fn a_known_correction_is_found() {
        let rows: Vec<(Sum, f64, f64)> = (1..12)
            .map(|i| {
                let (blocks_us, frame_us, count) =
                    (100.0 * f64::from(i * i % 7 + 1), 50.0 * f64::from(i), f64::from(i % 5 + 2));
                let peak_bytes = 1e7 * f64::from(i);
                let sum = Sum { blocks_us, frame_us, count, peak_bytes };
                (sum, 0.9 * blocks_us + 1.1 * frame_us + 3.0 * count, 2e7 + 1.05 * peak_bytes)
            })
            .collect();
        let fitted = Calibration::of_rows(&rows);
        for (sum, us, peak) in &rows {
            let prediction = fitted.of_sum(sum);
            assert!((1000.0 * prediction.latency_ms / us - 1.0).abs() < 0.01, "{prediction:?} {us}");
            assert!((prediction.peak_bytes / peak - 1.0).abs() < 0.01, "{prediction:?} {peak}");
        }
    }

    #[test]
    fn nothing_measured_is_the_plain_sum() {
        let fitted = Calibration::of_rows(&[]);
        assert_eq!((fitted.latency, fitted.memory), (Calibration::NONE.latency, Calibration::NONE.memory));
    }

    #[test]
    fn medians() {
        assert_eq!((median(vec![]), median(vec![3.0, 1.0]), median(vec![5.0, 1.0, 2.0])), (0.0, 2.0, 2.0));
    }
}
