//! Identity by content: a hash of what a value is, not of how it was written.
//!
//! A value is first brought into a [`Canonical`] form: maps have their keys in order, numbers are exact (`1` and `1.0`
//! are one number), absent entries of maps are left out, and a model's blocks have every knob set. [`Identity`] is the
//! first half of the SHA-256 of that form, in which every part is preceded by its kind and its length, so that no two
//! forms run together. It is the same in every process and on every machine.

use crate::model::Value;
use crate::{Block, Frame, Model, Spec};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;

/// What tells a value from all others. Prints as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity([u8; 16]);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({self})")
    }
}

/// A value without anything that depends on how it was written.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Canonical {
    Null,
    Flag(bool),
    Int(i128),
    /// A whole number is the same as an [`Self::Int`] of that number.
    Real(f64),
    Word(String),
    List(Vec<Canonical>),
    Map(BTreeMap<String, Canonical>),
}

impl Canonical {
    /// A map; entries that are [`Self::Null`] are as good as absent.
    pub fn map<K: Into<String>>(entries: impl IntoIterator<Item = (K, Canonical)>) -> Self {
        let present = entries.into_iter().filter(|(_, value)| *value != Self::Null);
        Self::Map(present.map(|(key, value)| (key.into(), value)).collect())
    }

    /// The identity of this form.
    pub fn identity(&self) -> Identity {
        let mut hasher = Sha256::new();
        self.feed(&mut hasher);
        let digest = hasher.finalize();
        Identity(std::array::from_fn(|i| digest[i]))
    }

    fn feed(&self, hasher: &mut Sha256) {
        let word = |hasher: &mut Sha256, text: &str| {
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        };
        match self {
            Self::Null => hasher.update(b"0"),
            Self::Flag(flag) => hasher.update([b'b', u8::from(*flag)]),
            Self::Int(number) => {
                hasher.update(b"i");
                hasher.update(number.to_le_bytes());
            }
            Self::Real(number) => match whole(*number) {
                Some(number) => Self::Int(number).feed(hasher),
                None => {
                    let bits = if number.is_nan() { f64::NAN.to_bits() } else { number.to_bits() };
                    hasher.update(b"r");
                    hasher.update(bits.to_le_bytes());
                }
            },
            Self::Word(text) => {
                hasher.update(b"w");
                word(hasher, text);
            }
            Self::List(items) => {
                hasher.update(b"l");
                hasher.update((items.len() as u64).to_le_bytes());
                items.iter().for_each(|item| item.feed(hasher));
            }
            Self::Map(entries) => {
                hasher.update(b"m");
                hasher.update((entries.len() as u64).to_le_bytes());
                for (key, value) in entries {
                    word(hasher, key);
                    value.feed(hasher);
                }
            }
        }
    }
}

/// A number without a fraction, as an integer.
fn whole(number: f64) -> Option<i128> {
    const LARGEST: f64 = 9_007_199_254_740_992.0; // beyond it, not every whole number is an f64
    (number.fract() == 0.0 && number.abs() <= LARGEST).then_some(number as i128)
}

/// Something that has an identity.
pub trait Identify {
    /// Its canonical form.
    fn canonical(&self) -> Canonical;

    /// What tells it from all others.
    fn identity(&self) -> Identity {
        self.canonical().identity()
    }
}

impl Identify for Value {
    fn canonical(&self) -> Canonical {
        match self {
            Self::Int(number) => Canonical::Int((*number).into()),
            Self::Real(number) => Canonical::Real(*number),
            Self::Flag(flag) => Canonical::Flag(*flag),
            Self::Word(word) => Canonical::Word(word.clone()),
            Self::Ints(list) => Canonical::List(list.iter().map(|&number| Canonical::Int(number.into())).collect()),
            Self::Words(list) => Canonical::List(list.iter().cloned().map(Canonical::Word).collect()),
        }
    }
}

/// The keys that are set, as they were set.
impl Identify for Spec {
    fn canonical(&self) -> Canonical {
        Canonical::map(self.iter().map(|(name, value)| (name, value.canonical())))
    }
}

/// The frame, and the blocks with every knob set: two spellings of one architecture are one architecture.
impl Identify for Model {
    fn canonical(&self) -> Canonical {
        let frame = Model { frame: self.frame.clone(), blocks: Vec::new() }.spec().canonical();
        let blocks = self.blocks.iter().map(|block| block_in(block, &self.frame)).collect();
        Canonical::map([("frame", frame), ("blocks", Canonical::List(blocks))])
    }
}

fn block_in(block: &Block, frame: &Frame) -> Canonical {
    let resolved = block.kind.resolve(block, frame);
    let knobs = resolved.knobs().filter_map(|(_, knob, value)| Some((knob.name, Canonical::Int(value?.into()))));
    Canonical::map([("block", Canonical::Word(block.kind.key().into())), ("knobs", Canonical::map(knobs))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;

    const EMPTY: Registry = Registry { blocks: &[], backbones: &[] };

    fn word(text: &str) -> Canonical {
        Canonical::Word(text.into())
    }

    #[test]
    fn the_order_of_keys_and_the_writing_of_numbers_do_not_matter() {
        let one = Spec::from_toml("d_model = 64\nvocab = 9\ndropout = 0.5\ncutoffs = [1, 2]", &EMPTY).unwrap();
        let other = Spec::from_toml("cutoffs = [ 1,2 ]\ndropout = 5e-1\nvocab = 9\nd_model = 6_4", &EMPTY).unwrap();
        assert_eq!(one.identity(), other.identity());
        let different = Spec::from_toml("d_model = 64\nvocab = 9\ndropout = 0.5\ncutoffs = [2, 1]", &EMPTY).unwrap();
        assert_ne!(one.identity(), different.identity());
        let numbers = [1.0, -0.0, 2f64.powi(60)].map(|x| Canonical::Real(x).identity());
        assert_eq!(numbers[..2], [1, 0].map(|n| Canonical::Int(n).identity()));
        assert_ne!(numbers[2], Canonical::Int(1 << 60).identity(), "such an f64 may stand for other numbers");
    }

    #[test]
    fn parts_do_not_run_together() {
        let list = |items: &[&str]| Canonical::List(items.iter().map(|item| word(item)).collect()).identity();
        assert_ne!(list(&["ab", "c"]), list(&["a", "bc"]));
        assert_ne!(list(&[]), Canonical::Map(BTreeMap::new()).identity());
        assert_ne!(word("1").identity(), Canonical::Int(1).identity());
        let nested = Canonical::List(vec![Canonical::List(vec![word("a")]), word("b")]).identity();
        assert_ne!(nested, Canonical::List(vec![Canonical::List(vec![word("a"), word("b")])]).identity());
    }

    #[test]
    fn what_is_absent_is_as_good_as_null() {
        let with = Canonical::map([("a", word("x")), ("b", Canonical::Null)]);
        assert_eq!(with.identity(), Canonical::map([("a", word("x"))]).identity());
    }

    #[test]
    fn identities_stay_what_they_are() {
        // Names of files depend on it.
        let value =
            Canonical::map([("a", Canonical::Int(1)), ("b", Canonical::List(vec![word("x"), Canonical::Real(0.5)]))]);
        assert_eq!(value.identity().to_string(), "9a7a8bd9a55c1bef2572d3f1d5a59a85");
    }
}
