//! Linear layers: y = x W + b, with W read in either layout, and their gradients.

use crate::gemm::{Mat, MatMut, Rhs, gemm, gemm_finish};
use crate::parallel;
use candle_core::{Result, Tensor};

/// y = x W (+ b) (+ what is in y, where `accumulate`). W is [in, out] as a right-hand side.
pub fn forward<'w>(x: Mat<'_>, w: impl Into<Rhs<'w>>, bias: Option<&[f32]>, y: MatMut<'_>, accumulate: bool) {
    match bias {
        None => gemm(y, x, w, accumulate),
        Some(bias) => gemm_finish(y, x, w, accumulate, &|_, col, y| {
            let bias = &bias[col..col + y.len()];
            y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
        }),
    }
}

/// dbias += sum of the rows of dy.
pub fn bias_backward(dy: Mat<'_>, dbias: &mut [f32]) {
    assert_eq!(dy.cols(), dbias.len());
    parallel::sum_rows(dy.rows(), dbias, |row, sum| {
        sum.iter_mut().zip(dy.row(row, 0, dy.cols())).for_each(|(sum, dy)| *sum += dy);
    });
}

/// [`forward`] as a graph: x is [N, in] and W [in, out].
pub fn composed(x: &Tensor, w: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let y = x.matmul(w)?;
    match bias {
        Some(bias) => y.broadcast_add(bias),
        None => Ok(y),
    }
}

/// y += x, on all threads.
pub fn add(y: &mut [f32], x: &[f32]) {
    assert_eq!(x.len(), y.len());
    const WIDTH: usize = 1 << 12;
    let (whole, rest) = y.split_at_mut(y.len() / WIDTH * WIDTH);
    let done = whole.len();
    parallel::rows(whole, WIDTH, |row, y| y.iter_mut().zip(&x[row * WIDTH..]).for_each(|(y, x)| *y += x));
    rest.iter_mut().zip(&x[done..]).for_each(|(y, x)| *y += x);
}
