//! Eigenvalues and determinants of the small matrices that compare sequences with each other.

/// The eigenvalues of a symmetric n x n matrix, by Jacobi's rotations until nothing is left beside the diagonal.
pub(super) fn eigenvalues(mut a: Vec<f64>, n: usize) -> Vec<f64> {
    const SWEEPS: usize = 60;
    for _ in 0..SWEEPS {
        let beside: f64 = (0..n * n).filter(|at| at / n != at % n).map(|at| a[at] * a[at]).sum();
        if beside < 1e-28 * n as f64 {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                rotate(&mut a, n, p, q);
            }
        }
    }
    (0..n).map(|i| a[i * n + i]).collect()
}

/// Makes a[p, q] zero.
fn rotate(a: &mut [f64], n: usize, p: usize, q: usize) {
    let apq = a[p * n + q];
    if apq == 0.0 {
        return;
    }
    let theta = (a[q * n + q] - a[p * n + p]) / (2.0 * apq);
    let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
    let c = 1.0 / (t * t + 1.0).sqrt();
    let s = t * c;
    for k in 0..n {
        let (akp, akq) = (a[k * n + p], a[k * n + q]);
        (a[k * n + p], a[k * n + q]) = (c * akp - s * akq, s * akp + c * akq);
    }
    for k in 0..n {
        let (apk, aqk) = (a[p * n + k], a[q * n + k]);
        (a[p * n + k], a[q * n + k]) = (c * apk - s * aqk, s * apk + c * aqk);
    }
}

/// log | det | of an n x n matrix, by elimination with the largest pivot.
pub(super) fn log_abs_det(mut a: Vec<f64>, n: usize) -> f64 {
    let mut sum = 0.0;
    for col in 0..n {
        let largest = (col..n).max_by(|&i, &j| a[i * n + col].abs().total_cmp(&a[j * n + col].abs()));
        let pivot = largest.expect("at least one row is left");
        (0..n).for_each(|k| a.swap(col * n + k, pivot * n + k));
        let head = a[col * n + col];
        sum += head.abs().ln();
        for row in col + 1..n {
            let factor = a[row * n + col] / head;
            (col..n).for_each(|k| a[row * n + k] -= factor * a[col * n + k]);
        }
        if head == 0.0 {
            return f64::NEG_INFINITY;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eigenvalues_of_known_matrices() {
        let mut found = eigenvalues(vec![2.0, 1.0, 1.0, 2.0], 2);
        found.sort_by(f64::total_cmp);
        assert!((found[0] - 1.0).abs() < 1e-12 && (found[1] - 3.0).abs() < 1e-12, "{found:?}");
        // The second difference matrix has the eigenvalues 2 - 2 cos(k pi / (n + 1)).
        let n = 9;
        let a = (0..n * n).map(|at: usize| match (at / n).abs_diff(at % n) {
            0 => 2.0,
            1 => -1.0,
            _ => 0.0,
        });
        let a: Vec<f64> = a.collect();
        let mut found = eigenvalues(a.clone(), n);
        found.sort_by(f64::total_cmp);
        for (k, found) in found.iter().enumerate() {
            let expected = 2.0 - 2.0 * ((k + 1) as f64 * std::f64::consts::PI / (n + 1) as f64).cos();
            assert!((found - expected).abs() < 1e-12, "{k}: {found} {expected}");
        }
        // Its determinant is n + 1.
        assert!((log_abs_det(a, n) - (n as f64 + 1.0).ln()).abs() < 1e-12);
    }

    #[test]
    fn determinants() {
        assert!((log_abs_det(vec![0.0, 2.0, 3.0, 0.0], 2) - 6f64.ln()).abs() < 1e-12, "needs a swap");
        assert_eq!(log_abs_det(vec![1.0, 2.0, 2.0, 4.0], 2), f64::NEG_INFINITY);
    }
}
