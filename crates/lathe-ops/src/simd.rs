//! Loops that the compiler turns into the widest instructions of the CPU it runs on.
//!
//! [`simd!`] compiles a function once per level of [`crate::cpu`] and chooses at run time. Sums go through
//! [`sum2`], since the compiler may not reorder additions by itself, and products that are added through [`fma`], since it
//! may not fuse them either: in the body of such a function `FUSED` says whether the CPU has an instruction for it.

/// Compiles a function once for each level of instructions and calls the best one.
macro_rules! simd {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$attribute])*
        #[allow(clippy::too_many_arguments)]
        $visibility fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body<const FUSED: bool>($($argument: $type),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                #[allow(clippy::too_many_arguments)]
                fn avx512($($argument: $type),*) $(-> $result)? { body::<true>($($argument),*) }
                #[target_feature(enable = "avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn avx2($($argument: $type),*) $(-> $result)? { body::<true>($($argument),*) }
                match $crate::cpu::level() {
                    $crate::cpu::Level::Portable => {}
                    // SAFETY: the level says that the CPU has these features.
                    $crate::cpu::Level::Avx2 => return unsafe { avx2($($argument),*) },
                    // SAFETY: as above.
                    _ => return unsafe { avx512($($argument),*) },
                }
            }
            body::<{ cfg!(target_arch = "aarch64") }>($($argument),*)
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

simd! {
    /// [`max`] as a function of its own.
    pub(crate) fn greatest(a: &[f32]) -> f32 {
        max(a)
    }
}

/// a b + c, in one instruction where `FUSED`.
#[inline(always)]
pub(crate) fn fma<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// e^x to about 1e-7 relative, without branches (Cephes' polynomial).
#[inline(always)]
pub(crate) fn exp<const FUSED: bool>(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to a whole number
    let x = x.clamp(-87.0, 87.0);
    let shifted = fma::<FUSED>(x, std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = fma::<FUSED>(n, 2.121_944_4e-4, fma::<FUSED>(n, -0.693_359_4, x));
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5.000_000_3e-1] {
        p = fma::<FUSED>(p, r, c);
    }
    let value = fma::<FUSED>(p * r, r, r + 1.0);
    let exponent = (shifted.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
    value * f32::from_bits(((exponent + 127) << 23) as u32)
}

/// 1 / x to about 1e-7 relative for x from 1 to e^87: Newton's steps from a guess in the bits, several times as fast as
/// a division.
#[inline(always)]
fn reciprocal<const FUSED: bool>(x: f32) -> f32 {
    let mut r = f32::from_bits(0x7ef3_11c7u32.wrapping_sub(x.to_bits()));
    for _ in 0..3 {
        r = fma::<FUSED>(r, fma::<FUSED>(-x, r, 1.0), r);
    }
    r
}

/// 1 / (1 + e^-x) to about 2e-7 relative.
#[inline(always)]
pub(crate) fn sigmoid<const FUSED: bool>(x: f32) -> f32 {
    reciprocal::<FUSED>(1.0 + exp::<FUSED>(-x))
}

/// The error function to about 1.5e-7 absolute (Abramowitz and Stegun 7.1.26).
#[inline(always)]
pub(crate) fn erf<const FUSED: bool>(x: f32) -> f32 {
    let t = reciprocal::<FUSED>(fma::<FUSED>(x.abs(), 0.327_591_1, 1.0));
    let mut poly = 1.061_405_4;
    for c in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6, 0.0] {
        poly = fma::<FUSED>(poly, t, c);
    }
    fma::<FUSED>(-poly, exp::<FUSED>(-x * x), 1.0).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions_are_accurate<const FUSED: bool>() {
        for i in -8600..=8600 {
            let x = i as f32 * 0.01;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp::<FUSED>(x)) - exact).abs() <= 4e-7 * exact, "exp {x}");
            let exact = 1.0 / (1.0 + f64::from(-x).exp());
            assert!((f64::from(sigmoid::<FUSED>(x)) - exact).abs() <= 6e-7 * exact, "sigmoid {x}");
        }
        for (x, exact) in
            [(0.0, 0.0), (0.5, 0.520_499_9), (1.0, 0.842_700_8), (2.0, 0.995_322_3), (-1.5, -0.966_105_15), (4.0, 1.0)]
        {
            assert!((erf::<FUSED>(x) - exact).abs() < 3e-7, "erf {x}");
        }
        assert_eq!(exp::<FUSED>(-1000.0), exp::<FUSED>(-87.0));
        assert!(exp::<FUSED>(1000.0).is_finite() && sigmoid::<FUSED>(-1000.0) >= 0.0);
        assert!(sigmoid::<FUSED>(f32::NAN).is_nan() && erf::<FUSED>(f32::NAN).is_nan());
    }

    #[test]
    fn functions_are_accurate_either_way() {
        functions_are_accurate::<true>();
        functions_are_accurate::<false>();
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
