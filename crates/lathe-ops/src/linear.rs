//! Linear layers: y = x W + b, with W read in either layout, and their gradients.

use crate::activation::{self, Act};
use crate::gemm::{Mat, MatMut, Rhs, gemm, gemm_beside, gemm_finish};
use crate::parallel;
pub use crate::simd::add_row;
use candle_core::{Result, Tensor};

/// y = x W (+ b) (+ what is in y, where `accumulate`). W is [in, out] as a right-hand side.
pub fn forward<'w>(x: Mat<'_>, w: impl Into<Rhs<'w>>, bias: Option<&[f32]>, y: MatMut<'_>, accumulate: bool) {
    match bias {
        None => gemm(y, x, w, accumulate),
        Some(bias) => gemm_finish(y, x, w, accumulate, &|_, col, y| add_row(y, &bias[col..])),
    }
}

/// h = x W (+ b) and y = act(h), part by part while h is in the cache.
pub fn forward_act<'w>(
    x: Mat<'_>,
    w: impl Into<Rhs<'w>>,
    bias: Option<&[f32]>,
    act: Act,
    h: &mut [f32],
    y: &mut [f32],
) {
    let rows = x.rows();
    let h = MatMut::new(h, rows, y.len() / rows.max(1));
    gemm_beside(h, x, w, y, &|col, h, y| {
        if let Some(bias) = bias {
            add_row(h, &bias[col..]);
        }
        activation::forward_row(act, h, y);
    });
}

/// dh = dy W^T * act'(h), and h becomes act(h), which the gradient of the next weights needs.
pub fn backward_act<'w>(dy: Mat<'_>, transposed: impl Into<Rhs<'w>>, act: Act, h: &mut [f32], dh: &mut [f32]) {
    let rows = dy.rows();
    let dh = MatMut::new(dh, rows, h.len() / rows.max(1));
    gemm_beside(dh, dy, transposed, h, &|_, dh, h| activation::backward_in_place(act, h, dh));
}

/// dbias += sum of the rows of dy.
pub fn bias_backward(dy: Mat<'_>, dbias: &mut [f32]) {
    assert_eq!(dy.cols(), dbias.len());
    parallel::sum_rows(dy.rows(), dbias, |row, sum| {
        add_row(sum, dy.row(row, 0, dy.cols()));
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
    parallel::rows(whole, WIDTH, |row, y| add_row(y, &x[row * WIDTH..]));
    add_row(rest, &x[done..]);
}
