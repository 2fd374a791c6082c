//! Loops that the compiler turns into the widest instructions of the CPU it runs on.
//!
//! [`simd!`] compiles a function once per level of [`crate::cpu`] and chooses at run time. Sums go through
//! [`sum2`], since the compiler may not reorder additions by itself.

/// Compiles a function once for each level of instructions and calls the best one.
macro_rules! simd {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$attribute])*
        #[allow(clippy::too_many_arguments)]
        $visibility fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body($($argument: $type),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                #[allow(clippy::too_many_arguments)]
                fn avx512($($argument: $type),*) $(-> $result)? { body($($argument),*) }
                #[target_feature(enable = "avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn avx2($($argument: $type),*) $(-> $result)? { body($($argument),*) }
                match $crate::cpu::level() {
                    $crate::cpu::Level::Portable => {}
                    // SAFETY: the level says that the CPU has these features.
                    $crate::cpu::Level::Avx2 => return unsafe { avx2($($argument),*) },
                    // SAFETY: as above.
                    _ => return unsafe { avx512($($argument),*) },
                }
            }
            body($($argument),*)
        }
    };
}
pub(crate) use simd;

simd! {
    /// y += x
    pub fn add_row(y: &mut [f32], x: &[f32]) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
    }
}

simd! {
    /// y += factor * x
    pub fn add_scaled(y: &mut [f32], factor: f32, x: &[f32]) {
        y.iter_mut().zip(x).for_each(|(y, x)| *y += factor * x);
    }
}

/// How many partial sums run side by side.
const LANES: usize = 32;

/// Sums a function of the elements of two slices of equal length, in an order that depends on the length alone.
#[inline(always)]
pub(crate) fn sum2(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    let mut lanes = [0.0f32; LANES];
    let whole = n / LANES * LANES;
    for (a, b) in a[..whole].chunks_exact(LANES).zip(b[..whole].chunks_exact(LANES)) {
        for i in 0..LANES {
            lanes[i] += f(a[i], b[i]);
        }
    }
    for (i, (&a, &b)) in a[whole..].iter().zip(&b[whole..]).enumerate() {
        lanes[i] += f(a, b);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Sums a function of the elements.
#[inline(always)]
pub(crate) fn sum(a: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    sum2(a, a, |a, _| f(a))
}

/// The greatest element, or minus infinity.
#[inline(always)]
pub(crate) fn max(a: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut chunks = a.chunks_exact(LANES);
    for chunk in &mut chunks {
        for i in 0..LANES {
            lanes[i] = if chunk[i] > lanes[i] { chunk[i] } else { lanes[i] };
        }
    }
    for (lane, &a) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane = if a > *lane { a } else { *lane };
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// e^x to about 1e-7 relative, without branches (Cephes' polynomial).
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to a whole number
    let x = x.clamp(-87.0, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let r = x - n * 0.693_359_4 - n * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 5.000_000_3e-1;
    let value = p * r * r + r + 1.0;
    let exponent = (shifted.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
    value * f32::from_bits(((exponent + 127) << 23) as u32)
}

/// tanh x to about 1e-7 absolute.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    1.0 - 2.0 / (exp(2.0 * x) + 1.0)
}

/// The error function to about 1.5e-7 absolute (Abramowitz and Stegun 7.1.26).
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let poly = ((((1.061_405_4 * t - 1.453_152) * t + 1.421_413_7) * t - 0.284_496_74) * t + 0.254_829_6) * t;
    (1.0 - poly * exp(-x * x)).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_accurate() {
        for i in -2000..=2000 {
            let x = i as f32 * 0.01;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) - exact).abs() <= 2e-7 * exact, "exp {x}");
            assert!((f64::from(tanh(x)) - f64::from(x).tanh()).abs() < 3e-7, "tanh {x}");
        }
        for (x, exact) in
            [(0.0, 0.0), (0.5, 0.520_499_9), (1.0, 0.842_700_8), (2.0, 0.995_322_3), (-1.5, -0.966_105_15), (4.0, 1.0)]
        {
            assert!((erf(x) - exact).abs() < 3e-7, "erf {x}");
        }
        assert_eq!(exp(-1000.0), exp(-87.0));
        assert!(exp(1000.0).is_finite());
    }

    #[test]
    fn sums_take_every_element() {
        for n in [0usize, 1, 31, 32, 33, 100] {
            let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
            assert_eq!(sum(&a, |a| a), (n * n.saturating_sub(1) / 2) as f32);
            assert_eq!(max(&a), if n == 0 { f32::NEG_INFINITY } else { n as f32 - 1.0 });
        }
    }
}
