//! Two thin matrices in the place of one: the A [in, R] and B [R, out] for which A B is nearest to W [in, out], or for which
//! X A B is nearest to X W where inputs X are known.
//!
//! With V the R leading eigenvectors of W^T H W, where H = X^T X (or 1), that is A = W V and B = V^T (Eckart and Young,
//! 1936). V comes from subspace iteration in f64.

use candle_core::{DType, Device, Result, Tensor};

/// Rounds of the iteration, each of two products; errors shrink by the fourth power of a ratio of singular values in each.
const ROUNDS: usize = 6;
/// What is added to the diagonal of H, as a share of its mean: inputs that were not seen count a little.
const DAMPING: f64 = 1e-3;

/// A [in, R] and B [R, out] of W [in, out], whose sizes are shared evenly between them; for inputs [N, in], if there are any.
pub(super) fn factor(w: &[f32], sizes: [usize; 2], rank: usize, inputs: Option<&[f32]>) -> Result<[Vec<f32>; 2]> {
    let [width, outputs] = sizes;
    let w = Tensor::from_slice(w, (width, outputs), &Device::Cpu)?.to_dtype(DType::F64)?;
    let moments = inputs.map(|x| moments(x, width)).transpose()?;
    let back = |x: &Tensor| match &moments {
        Some(h) => x.matmul(h)?.matmul(&w),
        None => x.matmul(&w),
    };
    let turned = w.t()?.contiguous()?;
    let mut v = start(rank, outputs); // V^T: [R, out]
    for _ in 0..ROUNDS {
        let mut next = Tensor::from_vec(v, (rank, outputs), &Device::Cpu)?;
        for _ in 0..2 {
            next = back(&next.matmul(&turned)?)?; // V^T W^T H W
            next = (&next / largest(&next)?.max(f64::MIN_POSITIVE))?;
        }
        v = next.flatten_all()?.to_vec1()?;
        orthonormalise(&mut v, outputs);
    }
    let read = Tensor::from_slice(&v, (rank, outputs), &Device::Cpu)?.matmul(&turned)?; // A^T: [R, in]
    let mut read: Vec<f64> = read.flatten_all()?.to_vec1()?;
    for (a, b) in read.chunks_exact_mut(width).zip(v.chunks_exact_mut(outputs)) {
        let size = dot(a, a).sqrt().sqrt();
        if size > 0.0 {
            a.iter_mut().for_each(|x| *x /= size);
            b.iter_mut().for_each(|x| *x *= size);
        }
    }
    let a = (0..width).flat_map(|i| read[i..].iter().step_by(width)).map(|&x| x as f32).collect();
    Ok([a, v.into_iter().map(|x| x as f32).collect()])
}

/// X^T X, with something on its diagonal.
fn moments(x: &[f32], width: usize) -> Result<Tensor> {
    let x = Tensor::from_slice(x, (x.len() / width, width), &Device::Cpu)?.to_dtype(DType::F64)?;
    let mut h: Vec<f64> = x.t()?.matmul(&x)?.flatten_all()?.to_vec1()?;
    let diagonal = h.iter().step_by(width + 1).sum::<f64>() / width as f64;
    let damping = if diagonal > 0.0 { DAMPING * diagonal } else { 1.0 };
    h.iter_mut().step_by(width + 1).for_each(|x| *x += damping);
    Tensor::from_vec(h, (width, width), &Device::Cpu)
}

fn largest(x: &Tensor) -> Result<f64> {
    x.abs()?.flatten_all()?.max(0)?.to_scalar()
}

/// Rows that look random, always the same ones.
fn start(rows: usize, width: usize) -> Vec<f64> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    };
    (0..rows * width).map(|_| next()).collect()
}

/// Makes rows orthogonal and of length 1; those that depend on others become 0. Twice, since once leaves rounding.
fn orthonormalise(rows: &mut [f64], width: usize) {
    for i in 0..rows.len() / width {
        let (done, row) = rows.split_at_mut(i * width);
        let row = &mut row[..width];
        let before = dot(row, row).sqrt();
        for _ in 0..2 {
            for other in done.chunks_exact(width) {
                let along = dot(row, other);
                row.iter_mut().zip(other).for_each(|(x, y)| *x -= along * y);
            }
        }
        let length = dot(row, row).sqrt();
        let factor = if length > 1e-13 * before { 1.0 / length } else { 0.0 };
        row.iter_mut().for_each(|x| *x *= factor);
    }
}

/// A sum of products in eight parts, which a CPU adds side by side.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    for (a, b) in a.iter().zip(b) {
        (0..8).for_each(|i| sums[i] += a[i] * b[i]);
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..count).map(|_| next()).collect()
    }

    fn product(a: &[f32], b: &[f32], [rows, depth, cols]: [usize; 3]) -> Vec<f64> {
        let at =
            |i: usize, j: usize| (0..depth).map(|k| f64::from(a[i * depth + k]) * f64::from(b[k * cols + j])).sum();
        (0..rows * cols).map(|at_| at(at_ / cols, at_ % cols)).collect()
    }

    fn distance(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>()
    }

    /// Singular values 1, 1/2, 1/4, ... between orthonormal rows: what is lost is the sum of squares of those left out.
    #[test]
    fn what_is_lost_is_the_smallest_singular_values() {
        let [inputs, outputs, count] = [12, 20, 10];
        let rows = |width: usize, seed: u32| {
            let mut rows: Vec<f64> = values(count * width, seed).into_iter().map(f64::from).collect();
            orthonormalise(&mut rows, width);
            rows
        };
        let (left, right) = (rows(inputs, 3), rows(outputs, 4));
        let size = |i: usize| 0.5f64.powi(i as i32);
        let at = |i: usize, j: usize| {
            (0..count).map(|k| size(k) * left[k * inputs + i] * right[k * outputs + j]).sum::<f64>()
        };
        let w: Vec<f32> = (0..inputs * outputs).map(|n| at(n / outputs, n % outputs) as f32).collect();
        let whole: Vec<f64> = w.iter().map(|&x| f64::from(x)).collect();
        for rank in [1, 3, 7, 12] {
            let [a, b] = factor(&w, [inputs, outputs], rank, None).unwrap();
            let lost = distance(&product(&a, &b, [inputs, rank, outputs]), &whole);
            let expected: f64 = (rank..count).map(|i| size(i).powi(2)).sum();
            assert!((lost - expected).abs() < 1e-3 * expected + 1e-9, "{rank}: {lost} and {expected}");
        }
    }

    /// For given inputs the products are nearer than those of the nearest matrix; no change of B makes them nearer still.
    #[test]
    fn products_of_known_inputs_stay() {
        let [rows, inputs, outputs, rank] = [40, 9, 7, 3];
        let w = values(inputs * outputs, 1);
        let mut x = values(rows * inputs, 2);
        x.iter_mut().enumerate().for_each(|(i, x)| *x *= [4.0, 0.2, 1.0][i % inputs % 3]);
        let lost = |[a, b]: &[Vec<f32>; 2]| {
            let thin: Vec<f32> = product(a, b, [inputs, rank, outputs]).into_iter().map(|x| x as f32).collect();
            distance(&product(&x, &thin, [rows, inputs, outputs]), &product(&x, &w, [rows, inputs, outputs]))
        };
        let plain = factor(&w, [inputs, outputs], rank, None).unwrap();
        let fitted = factor(&w, [inputs, outputs], rank, Some(&x)).unwrap();
        assert!(lost(&fitted) < 0.9 * lost(&plain), "{} and {}", lost(&fitted), lost(&plain));
        for at in 0..rank * outputs {
            for step in [-0.05, 0.05] {
                let mut other = fitted.clone();
                other[1][at] += step;
                assert!(lost(&other) > lost(&fitted) * 0.999, "{at}");
            }
        }
    }
}
