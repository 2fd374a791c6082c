//! Dropout (Srivastava et al., 2014) without a stored mask: whether an element stays is a hash of a key and its
//! index, so the backward pass asks again, and neither threads nor order matter.

use crate::parallel;
use crate::simd::simd;

/// A dropout: how many elements go, and the key of this use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// Share of elements that become 0.
    pub probability: f32,
    /// Differs from use to use and from step to step.
    pub key: u64,
}

impl Dropout {
    /// No dropout.
    pub const NONE: Self = Self { probability: 0.0, key: 0 };

    /// Another use of the same step.
    pub fn with(self, salt: u64) -> Self {
        Self { key: mix(self.key ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)), ..self }
    }

    /// Whether nothing is dropped.
    pub fn is_none(self) -> bool {
        self.probability == 0.0
    }

    /// Sets elements to 0 or scales them up. The same call on a gradient is the backward pass.
    pub fn apply(self, x: &mut [f32]) {
        if !self.is_none() {
            const WIDTH: usize = 1 << 12;
            let (whole, rest) = x.split_at_mut(x.len() / WIDTH * WIDTH);
            parallel::rows(whole, WIDTH, |row, x| self.apply_from(x, row * WIDTH));
            self.apply_from(rest, whole.len());
        }
    }

    /// As [`Self::apply`] on this thread, for elements that begin at an index.
    pub fn apply_from(self, x: &mut [f32], start: usize) {
        if !self.is_none() {
            let limit = (f64::from(self.probability) * 4_294_967_296.0) as u32;
            drop_row(x, start as u32, self.key as u32, (self.key >> 32) as u32, limit, 1.0 / (1.0 - self.probability));
        }
    }
}

simd! {
    fn drop_row(x: &mut [f32], start: u32, key0: u32, key1: u32, limit: u32, scale: f32) {
        for (i, x) in x.iter_mut().enumerate() {
            let hash = hash(start.wrapping_add(i as u32), key0, key1);
            *x *= if hash < limit { 0.0 } else { scale };
        }
    }
}

/// A 32-bit hash of an index under a key (two rounds of a well-mixing multiply and shift).
#[inline(always)]
fn hash(index: u32, key0: u32, key1: u32) -> u32 {
    let mut h = index ^ key0;
    h = (h ^ (h >> 16)).wrapping_mul(0x7feb_352d);
    h = (h ^ (h >> 15)).wrapping_mul(0x846c_a68b);
    h = (h ^ (h >> 16)) ^ key1;
    h = (h ^ (h >> 16)).wrapping_mul(0x7feb_352d);
    h = (h ^ (h >> 15)).wrapping_mul(0x846c_a68b);
    h ^ (h >> 16)
}

/// The finaliser of SplitMix64: every bit of the result depends on every bit given; 0 stays 0.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_the_stated_share_and_repeats() {
        let dropout = Dropout { probability: 0.3, key: 7 };
        let mut x = vec![1.0; 100_000];
        dropout.apply(&mut x);
        let zeros = x.iter().filter(|x| **x == 0.0).count() as f64 / 1e5;
        assert!((zeros - 0.3).abs() < 0.01, "{zeros}");
        assert!(x.iter().all(|x| *x == 0.0 || (*x - 1.0 / 0.7).abs() < 1e-6));
        let mut again = vec![1.0; 100_000];
        dropout.apply_from(&mut again[..50_000], 0);
        dropout.apply_from(&mut again[50_000..], 50_000);
        assert_eq!(x, again);
        let mut other = vec![1.0; 100_000];
        dropout.with(1).apply(&mut other);
        let both = x.iter().zip(&other).filter(|(a, b)| **a == 0.0 && **b == 0.0).count() as f64 / 1e5;
        assert!((both - 0.09).abs() < 0.01, "uses are independent: {both}");
    }
}
