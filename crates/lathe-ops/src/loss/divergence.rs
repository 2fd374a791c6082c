//! How far two distributions of the next token are from each other, by their logits, in double precision.

use crate::simd::simd;

/// KL(p || q) = sum p log(p / q) of the softmaxes of two rows of logits, which may be log-probabilities, in nats.
///
/// With d = log q - log p up to a constant and e = d - E(d), the mean over p, it is log E(exp e), which is
/// log(1 + E(exp e - 1 - e)).
/// No term is negative, so that nothing cancels however little p and q differ, and nothing is left where they do not.
pub fn kl(p: &[f32], q: &[f32]) -> f64 {
    let most = greatest(p);
    let [total, along, least, greatest] = means(p, q, most);
    let mean = along / total;
    if greatest - mean > FAR || mean - least > FAR {
        return far(p, q);
    }
    (excesses(p, q, most, mean) / total).ln_1p()
}

/// Differences beyond it are nothing that could cancel, and their exponentials might be too large.
const FAR: f64 = 30.0;

/// By the definition.
fn far(p: &[f32], q: &[f32]) -> f64 {
    let [of_p, of_q] = [p, q].map(log_sum);
    apart(p, q, of_p, of_q).max(0.0)
}

/// log sum exp of a row.
pub fn log_sum(row: &[f32]) -> f64 {
    let most = greatest(row);
    most + total(row, most).ln()
}

/// The most probable place of a row of logits, of equals the first.
pub fn top(row: &[f32]) -> usize {
    let most = crate::simd::greatest(row);
    row.iter().position(|&x| x == most).unwrap_or(0)
}

fn greatest(row: &[f32]) -> f64 {
    f64::from(crate::simd::greatest(row))
}

/// Partial sums that run side by side.
const LANES: usize = 16;

/// Calls `each` with every pair of elements and the number of its lane.
#[inline(always)]
fn pairs(a: &[f32], b: &[f32], mut each: impl FnMut(usize, f64, f64)) {
    let n = a.len().min(b.len());
    let whole = n / LANES * LANES;
    for (a, b) in a[..whole].chunks_exact(LANES).zip(b[..whole].chunks_exact(LANES)) {
        for i in 0..LANES {
            each(i, f64::from(a[i]), f64::from(b[i]));
        }
    }
    for (i, (&a, &b)) in a[whole..n].iter().zip(&b[whole..n]).enumerate() {
        each(i, f64::from(a), f64::from(b));
    }
}

/// Sums a function of pairs of elements, in an order that depends on their number alone.
#[inline(always)]
fn sum(a: &[f32], b: &[f32], f: impl Fn(f64, f64) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    pairs(a, b, |i, a, b| lanes[i] += f(a, b));
    lanes.into_iter().sum()
}

/// a b + c, in one instruction where `FUSED`.
#[inline(always)]
fn fma<const FUSED: bool>(a: f64, b: f64, c: f64) -> f64 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// n, r and s of e^x = 2^n (1 + r + s), s = r^2 / 2 + r^3 / 6 + ..., for x from -700 to 700: r is x where that is small.
#[inline(always)]
fn exp_parts<const FUSED: bool>(x: f64) -> (f64, f64, f64) {
    const MAGIC: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52: adding it rounds to a whole number
    let shifted = fma::<FUSED>(x, std::f64::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    // ln 2 in two parts, of which the first times n is exact.
    let r = fma::<FUSED>(n, -1.908_214_929_270_587_7e-10, fma::<FUSED>(n, -0.693_147_180_369_123_8, x));
    let mut s = 1.0 / 6_227_020_800.0;
    for factorial in
        [479_001_600.0, 39_916_800.0, 3_628_800.0, 362_880.0, 40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0]
    {
        s = fma::<FUSED>(s, r, 1.0 / factorial);
    }
    let two_to_n = f64::from_bits((shifted.to_bits().wrapping_sub(MAGIC.to_bits()).wrapping_add(1023)) << 52);
    (two_to_n, r, s * r * r)
}

/// e^x, for x of at most 0; nothing below -700.
#[inline(always)]
fn exp<const FUSED: bool>(x: f64) -> f64 {
    let (two_to_n, r, s) = exp_parts::<FUSED>(x.max(-700.0));
    if x < -700.0 { 0.0 } else { two_to_n * (1.0 + r + s) }
}

/// e^x - 1 - x, also for small x.
#[inline(always)]
fn excess<const FUSED: bool>(x: f64) -> f64 {
    let (two_to_n, r, s) = exp_parts::<FUSED>(x);
    if two_to_n == 1.0 { s } else { two_to_n * (r + s) + (two_to_n - 1.0) - x }
}

simd! {
    /// Sums of w and w d, and the least and the greatest d, with w = e^(p - most) and d = q - p.
    fn means(p: &[f32], q: &[f32], most: f64) -> [f64; 4] {
        let (mut total, mut along) = ([0.0; LANES], [0.0; LANES]);
        let (mut least, mut greatest) = ([f64::INFINITY; LANES], [f64::NEG_INFINITY; LANES]);
        pairs(p, q, |i, p, q| {
            let (w, d) = (exp::<FUSED>(p - most), q - p);
            total[i] += w;
            along[i] += w * d;
            least[i] = if d < least[i] { d } else { least[i] };
            greatest[i] = if d > greatest[i] { d } else { greatest[i] };
        });
        let least = least.into_iter().fold(f64::INFINITY, f64::min);
        let greatest = greatest.into_iter().fold(f64::NEG_INFINITY, f64::max);
        [total.into_iter().sum(), along.into_iter().sum(), least, greatest]
    }
}

simd! {
    /// The sum of w (e^e - 1 - e), with w = e^(p - most) and e = q - p - mean.
    fn excesses(p: &[f32], q: &[f32], most: f64, mean: f64) -> f64 {
        sum(p, q, |p, q| exp::<FUSED>(p - most) * excess::<FUSED>(q - p - mean))
    }
}

simd! {
    /// The sum of e^(x - most).
    fn total(row: &[f32], most: f64) -> f64 {
        sum(row, row, |x, _| exp::<FUSED>(x - most))
    }
}

simd! {
    /// The sum of p (log p - log q), given log sum exp of both.
    fn apart(p: &[f32], q: &[f32], of_p: f64, of_q: f64) -> f64 {
        sum(p, q, |p, q| {
            let (log_p, log_q) = (p - of_p, q - of_q);
            let p = exp::<FUSED>(log_p);
            if p > 0.0 { p * (log_p - log_q) } else { 0.0 }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn softmax(row: &[f64]) -> Vec<f64> {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        row.iter().map(|x| x.exp() / sum).collect()
    }

    fn exponentials_are_exact<const FUSED: bool>() {
        for i in -70_000..=3_000 {
            let x = f64::from(i) * 0.01;
            let exact = x.exp();
            if x <= 0.0 {
                assert!((exp::<FUSED>(x) - exact).abs() <= 4e-16 * exact, "exp {x}");
            }
            if x.abs() <= 31.0 {
                // By the series where a difference would cancel.
                let series = |x: f64| (2..30).rev().fold(0.0, |sum, k| (sum + 1.0) * x / f64::from(k)) * x;
                let exact = if x.abs() < 1.0 { series(x) } else { x.exp_m1() - x };
                assert!((excess::<FUSED>(x) - exact).abs() <= 2e-15 * exact, "excess {x}: {}", excess::<FUSED>(x));
            }
        }
        assert_eq!((exp::<FUSED>(-701.0), exp::<FUSED>(f64::NEG_INFINITY), exp::<FUSED>(0.0)), (0.0, 0.0, 1.0));
        assert_eq!(excess::<FUSED>(0.0), 0.0);
        let tiny = excess::<FUSED>(1e-9);
        assert!((tiny / 5e-19 - 1.0).abs() < 1e-8, "{tiny}");
    }

    #[test]
    fn exponentials_are_exact_either_way() {
        exponentials_are_exact::<true>();
        exponentials_are_exact::<false>();
    }

    #[test]
    fn divergences_are_those_of_the_definition() {
        // Also more than there are lanes, and differences beyond what could cancel.
        let long: Vec<f32> = (0..101).map(|i| (i as f32 * 0.7).sin() * 4.0).collect();
        let other: Vec<f32> = (0..101).map(|i| (i as f32 * 1.3).cos() * 5.0).collect();
        let wild: Vec<f32> = other.iter().map(|x| 9.0 * x).collect();
        let rows: [(&[f32], &[f32]); 6] = [
            (&[0.1, 0.2, -3.0, 2.0], &[1.0, -1.0, 0.5, 2.5]),
            (&[5.0, -5.0, 0.0, 1.0], &[-5.0, 5.0, 2.0, 1.0]),
            (&[0.0, 0.0], &[0.0078125, 0.015625]),
            (&[-7.0, -0.5, -1.1], &[-6.0, -0.4, -1.3]),
            (&long, &other),
            (&long, &wild),
        ];
        for (p, q) in rows {
            let wide = |row: &[f32]| softmax(&row.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
            let expected: f64 = wide(p).iter().zip(wide(q)).map(|(p, q)| p * (p / q).ln()).sum();
            assert!((kl(p, q) - expected).abs() < 1e-14 + 1e-12 * expected, "{} is not {expected}", kl(p, q));
            assert!((far(p, q) - expected).abs() < 1e-14 + 1e-14 * expected);
            assert_eq!(kl(p, p), 0.0);
            // A constant changes no softmax.
            let moved: Vec<f32> = q.iter().map(|x| x + 64.0).collect();
            assert!((kl(p, &moved) - expected).abs() < 1e-4 * expected, "{p:?} {q:?}");
        }
    }

    /// Half the variance of the difference is all that is left of two distributions that hardly differ.
    #[test]
    fn tiny_differences_are_exact() {
        let p = [1.0f32, 2.0, 0.5, -1.0, 1.5];
        let mut q = p;
        q[1] = f32::from_bits(q[1].to_bits() + 1);
        q[4] = f32::from_bits(q[4].to_bits() - 3);
        let of_p = softmax(&p.map(f64::from));
        let d: Vec<f64> = p.iter().zip(q).map(|(&p, q)| f64::from(q) - f64::from(p)).collect();
        let mean: f64 = of_p.iter().zip(&d).map(|(p, d)| p * d).sum();
        let half: f64 = of_p.iter().zip(&d).map(|(p, d)| p * (d - mean) * (d - mean) / 2.0).sum();
        let found = kl(&p, &q);
        assert!(half > 1e-16 && half < 1e-12, "{half}");
        assert!((found / half - 1.0).abs() < 1e-6, "{found} is not {half}");
    }

    #[test]
    fn far_apart_is_finite() {
        let found = kl(&[0.0, -800.0, 3.0], &[900.0, 0.0, -300.0]);
        let p = softmax(&[0.0, 3.0]);
        assert!((found - (p[0] * p[0].ln() + p[1] * (p[1].ln() + 1200.0))).abs() < 1e-9, "{found}");
        assert_eq!((top(&[1.0, 3.0, 3.0, -1.0]), top(&[f32::NAN])), (1, 0));
    }
}
