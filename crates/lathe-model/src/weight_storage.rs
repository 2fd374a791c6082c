//! What the matrices of a block, or of what stands around the blocks, are held and saved as: floats of some width, or
//! integers with scales.

use crate::params::Param;
use lathe_ops::integers::Format;
use lathe_ops::storage::{self, F32, STORAGES, Storage};
use std::fmt;
use std::str::FromStr;

/// What matrices are held and saved as.
#[derive(Clone, Copy)]
pub enum WeightStorage {
    /// As floats.
    Floats(&'static dyn Storage),
    /// As integers with scales.
    Integers(Format),
}

impl WeightStorage {
    /// What training needs, and what a fresh network has.
    pub const F32: Self = Self::Floats(&F32);

    /// The format of integers.
    pub fn format(self) -> Option<Format> {
        match self {
            Self::Floats(_) => None,
            Self::Integers(format) => Some(format),
        }
    }

    /// Rounds the values of a parameter to what can be stored. Of vectors, and of matrices that have to be exact, nothing
    /// becomes an integer.
    pub fn apply(self, param: &mut Param) {
        match self {
            Self::Floats(storage) => param.set_storage(storage),
            Self::Integers(format) => param.set_format(format),
        }
    }
}

impl fmt::Display for WeightStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Floats(storage) => f.write_str(storage.key()),
            Self::Integers(format) => f.write_str(&format.key()),
        }
    }
}

impl fmt::Debug for WeightStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for WeightStorage {
    type Err = String;

    fn from_str(key: &str) -> Result<Self, String> {
        if let Some(storage) = storage::find(key) {
            return Ok(Self::Floats(storage));
        }
        let floats = || STORAGES.iter().map(|storage| storage.key()).collect::<Vec<_>>().join(", ");
        Format::parse(key).map(Self::Integers).map_err(|error| format!("{error}; or {}", floats()))
    }
}

impl PartialEq for WeightStorage {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for WeightStorage {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for key in ["f32", "bf16", "f16", "int8", "int4_g32", "int4_g32_offset"] {
            assert_eq!(key.parse::<WeightStorage>().unwrap().to_string(), key);
        }
        let error = "int5".parse::<WeightStorage>().unwrap_err();
        assert!(error.contains("int5") && error.ends_with("or f32, bf16, f16"), "{error}");
    }
}
