//! What products are computed in. Weights, sums, norms, softmax, losses and optimisers are f32 either way.

use crate::cpu::{self, Level};
use std::fmt;
use std::str::FromStr;

/// The numbers that products multiply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Both sides rounded to bfloat16 (8 bits of mantissa), summed in f32.
    Bf16,
}

/// Every precision with its name.
pub const PRECISIONS: &[(&str, Precision)] = &[("f32", Precision::F32), ("bf16", Precision::Bf16)];

impl Precision {
    /// What this CPU computes in where this is asked for: f32 where it has no instructions for bf16.
    pub fn available(self) -> Self {
        if cpu::level() >= Level::Avx512Bf16 { self } else { Self::F32 }
    }

    /// What trains fastest here: bf16 where there are tiles for it.
    pub fn fastest() -> Self {
        if cpu::level() == Level::Amx { Self::Bf16 } else { Self::F32 }
    }

    /// A word to the user where [`Self::available`] is something else.
    pub fn warning(self) -> Option<String> {
        (self.available() != self).then(|| {
            let level = cpu::level().name();
            format!("products run in f32: {self} needs AMX or AVX512-BF16, and this CPU, or LATHE_CPU, gives {level}")
        })
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = PRECISIONS.iter().find(|(_, precision)| precision == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = PRECISIONS.iter().find(|(known, _)| *known == name);
        found.map(|(_, precision)| *precision).ok_or_else(|| format!("found \"{name}\"; expected f32 or bf16"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_printed() {
        for (name, precision) in PRECISIONS {
            assert_eq!((name.parse(), precision.to_string()), (Ok(*precision), name.to_string()));
        }
        assert!("fp8".parse::<Precision>().unwrap_err().contains("fp8"));
        assert_eq!(Precision::F32.warning(), None);
    }
}
