//! The non-linearities of feed-forward blocks, and their gated forms (Shazeer, 2020): act(a) * b, where a row holds
//! a and b side by side.

use crate::parallel;
use crate::simd::{erf, exp, fma, sigmoid, simd};
use candle_core::{D, Result, Tensor};

/// A non-linearity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Act {
    Relu,
    /// x * Phi(x), exactly.
    Gelu,
    /// Its approximation by tanh, as in GPT-2.
    GeluTanh,
    Silu,
}

/// The value and the derivative.
#[inline(always)]
fn both<const FUSED: bool>(act: Act, x: f32) -> (f32, f32) {
    match act {
        Act::Relu => (if x > 0.0 { x } else { 0.0 }, if x > 0.0 { 1.0 } else { 0.0 }),
        Act::Gelu => {
            let phi = fma::<FUSED>(0.5, erf::<FUSED>(x * std::f32::consts::FRAC_1_SQRT_2), 0.5);
            (x * phi, fma::<FUSED>(x * exp::<FUSED>(-0.5 * x * x), 0.398_942_3, phi))
        }
        Act::GeluTanh => {
            // (1 + tanh u) / 2 is the sigmoid of 2 u, and 2 u = x (A + B x^2).
            const A: f32 = 1.595_769; // 2 sqrt(2 / pi)
            const B: f32 = 0.044_715 * A;
            let square = x * x;
            let s = sigmoid::<FUSED>(x * fma::<FUSED>(square, B, A));
            let inner = fma::<FUSED>(square, 3.0 * B, A);
            (x * s, fma::<FUSED>(x * s * (1.0 - s), inner, s))
        }
        Act::Silu => {
            let s = sigmoid::<FUSED>(x);
            (x * s, s * fma::<FUSED>(x, 1.0 - s, 1.0))
        }
    }
}

/// Monomorphises a loop over the kind, so that the match is outside of it.
macro_rules! for_act {
    ($act:expr, |$a:ident| $body:expr) => {
        match $act {
            Act::Relu => {
                const $a: Act = Act::Relu;
                $body
            }
            Act::Gelu => {
                const $a: Act = Act::Gelu;
                $body
            }
            Act::GeluTanh => {
                const $a: Act = Act::GeluTanh;
                $body
            }
            Act::Silu => {
                const $a: Act = Act::Silu;
                $body
            }
        }
    };
}

simd! {
    /// y = act(x) in a row.
    pub fn row(act: Act, x: &mut [f32]) {
        for_act!(act, |A| for x in x.iter_mut() { *x = both::<FUSED>(A, *x).0; })
    }
}

simd! {
    pub(crate) fn forward_row(act: Act, h: &[f32], y: &mut [f32]) {
        for_act!(act, |A| for (y, &h) in y.iter_mut().zip(h) { *y = both::<FUSED>(A, h).0; })
    }
}

simd! {
    fn gated_row(act: Act, a: &[f32], b: &[f32], y: &mut [f32]) {
        for_act!(act, |A| for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) { *y = both::<FUSED>(A, a).0 * b; })
    }
}

simd! {
    fn backward_row(act: Act, h: &[f32], y: &mut [f32], dh: &mut [f32]) {
        for_act!(act, |A| for ((y, &h), dh) in y.iter_mut().zip(h).zip(dh) {
            let (value, slope) = both::<FUSED>(A, h);
            *y = value;
            *dh *= slope;
        })
    }
}

simd! {
    /// `h` becomes act(h), and `dh`, which comes in as the gradient of that, the gradient of h.
    pub(crate) fn backward_in_place(act: Act, h: &mut [f32], dh: &mut [f32]) {
        for_act!(act, |A| for (h, dh) in h.iter_mut().zip(dh) {
            let (value, slope) = both::<FUSED>(A, *h);
            *h = value;
            *dh *= slope;
        })
    }
}

simd! {
    fn gated_backward_row(act: Act, a: &[f32], b: &[f32], dy: &[f32], y: &mut [f32], da: &mut [f32], db: &mut [f32]) {
        for_act!(act, |A| for (i, &a) in a.iter().enumerate() {
            let (value, slope) = both::<FUSED>(A, a);
            y[i] = value * b[i];
            da[i] = dy[i] * b[i] * slope;
            db[i] = dy[i] * value;
        })
    }
}

/// y = act(h); gated: y = act(a) * b with rows of h twice as wide as those of y.
pub fn forward(act: Act, gated: bool, h: &[f32], y: &mut [f32], width: usize) {
    let wide = if gated { 2 * width } else { width };
    parallel::rows(y, width, |row, y| {
        let h = &h[row * wide..][..wide];
        match gated {
            false => forward_row(act, h, y),
            true => gated_row(act, &h[..width], &h[width..], y),
        }
    });
}

/// The gradient of h from `dy`, and y again, so that it need not be kept. `y` comes in as dy and goes out as y;
/// `dh` is overwritten.
pub fn backward(act: Act, gated: bool, h: &[f32], y: &mut [f32], dh: &mut [f32], width: usize) {
    if !gated {
        return parallel::zip_rows((y, width), (dh, width), |row, y, dh| {
            dh.copy_from_slice(y);
            backward_row(act, &h[row * width..][..width], y, dh);
        });
    }
    parallel::zip_rows((y, width), (dh, 2 * width), |row, y, dh| {
        let (a, b) = h[row * 2 * width..][..2 * width].split_at(width);
        let dy = y.to_vec();
        let (da, db) = dh.split_at_mut(width);
        gated_backward_row(act, a, b, &dy, y, da, db);
    });
}

/// [`forward`] as a graph.
pub fn composed(act: Act, gated: bool, h: &Tensor) -> Result<Tensor> {
    if gated {
        let width = h.dim(D::Minus1)? / 2;
        let (a, b) = (h.narrow(D::Minus1, 0, width)?, h.narrow(D::Minus1, width, width)?);
        return composed(act, false, &a)? * b;
    }
    match act {
        // candle's own has slope 1 at 0.
        Act::Relu => h * h.gt(0.0)?.to_dtype(h.dtype())?,
        Act::Gelu => (h * 0.5)? * ((h * std::f64::consts::FRAC_1_SQRT_2)?.erf()? + 1.0)?,
        Act::GeluTanh => {
            let inner = (h + (h.sqr()? * h)? * 0.044_715)?;
            (h * 0.5)? * ((inner * (2.0 / std::f64::consts::PI).sqrt())?.tanh()? + 1.0)?
        }
        Act::Silu => h.silu(),
    }
}
