//! Rounding a matrix so that its products stay, rather than its weights: the error of each rounded weight is taken up by
//! those of the same row that are not rounded yet (Frantar et al., 2023, "GPTQ"; Frantar and Alistarh, 2022).
//!
//! With H = X^T X of the inputs, the best correction of the rest of a row for an error in column i is a row of the
//! Cholesky factor U of H's inverse, H^-1 = U^T U.

/// What is added to H's diagonal, as a share of its mean: it makes H invertible.
const DAMPING: f64 = 0.01;

/// The Cholesky factor U of the inverse of H + damping, upper triangular, row-major. Inputs that are always 0 are left alone.
pub fn inverse_factor(h: &[f32], n: usize) -> Vec<f32> {
    let diagonal = |i: usize| f64::from(h[i * n + i]);
    let damping = DAMPING * (0..n).map(diagonal).sum::<f64>() / n.max(1) as f64;
    // With the order of rows and columns reversed, H = L L^T, and U is the inverse of L reversed again.
    let mut l = vec![0.0f64; n * n];
    for i in 0..n {
        for k in 0..=i {
            l[i * n + k] = f64::from(h[(n - 1 - i) * n + n - 1 - k]);
        }
        let on = &mut l[i * n + i];
        *on = if *on == 0.0 { 1.0 } else { *on + damping };
    }
    cholesky(&mut l, n);
    let inverse = inverse(&l, n);
    let mut u = vec![0.0f32; n * n];
    for i in 0..n {
        for k in i..n {
            u[i * n + k] = inverse[(n - 1 - i) * n + n - 1 - k] as f32;
        }
    }
    u
}

/// L of A = L L^T in the place of A's lower triangle.
fn cholesky(a: &mut [f64], n: usize) {
    for i in 0..n {
        let (above, row) = a.split_at_mut(i * n);
        for k in 0..i {
            let other = &above[k * n..];
            row[k] = (row[k] - dot(&row[..k], &other[..k])) / other[k];
        }
        // Rounding can take a tiny pivot below 0.
        row[i] = (row[i] - dot(&row[..i], &row[..i])).max(1e-12).sqrt();
    }
}

/// The inverse of a lower triangular matrix.
fn inverse(l: &[f64], n: usize) -> Vec<f64> {
    let mut out = vec![0.0; n * n];
    for i in 0..n {
        let (done, row) = out.split_at_mut(i * n);
        let row = &mut row[..n];
        for k in 0..i {
            let factor = l[i * n + k];
            row[..=k].iter_mut().zip(&done[k * n..]).for_each(|(x, y)| *x -= factor * y);
        }
        row[i] = 1.0;
        let pivot = l[i * n + i];
        row[..=i].iter_mut().for_each(|x| *x /= pivot);
    }
    out
}

/// A sum of products in eight parts, which a CPU adds side by side.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    for (a, b) in a.iter().zip(b) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

/// Adds to the rest of a row what makes up for the error of column i.
pub fn spread(row: &mut [f32], i: usize, error: f32, u: &[f32]) {
    let n = row.len();
    let factors = &u[i * n..][..n];
    let share = error / factors[i];
    row[i + 1..].iter_mut().zip(&factors[i + 1..]).for_each(|(x, factor)| *x -= share * factor);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_is_that_of_the_inverse() {
        let n = 5;
        let x: Vec<f32> = (0..8 * n).map(|i| ((i * 37 % 23) as f32 - 11.0) / 7.0).collect();
        let mut h = vec![0.0f32; n * n];
        for row in x.chunks_exact(n) {
            (0..n * n).for_each(|at| h[at] += row[at / n] * row[at % n]);
        }
        let u = inverse_factor(&h, n);
        let damping = DAMPING as f32 * (0..n).map(|i| h[i * n + i]).sum::<f32>() / n as f32;
        (0..n).for_each(|i| h[i * n + i] += damping);
        // H (U^T U) = 1
        for i in 0..n {
            for k in 0..n {
                let inverse = |j: usize| (0..n).map(|m| u[m * n + j] * u[m * n + k]).sum::<f32>();
                let product: f32 = (0..n).map(|j| h[i * n + j] * inverse(j)).sum();
                assert!((product - f32::from(i == k)).abs() < 1e-3, "{i} {k}: {product}");
                assert!(k >= i || u[i * n + k] == 0.0);
            }
        }
    }
}
