//! What a job may change about a model.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// A way to make a model faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lever {
    /// Blocks are left out.
    Blocks,
    /// Fewer heads, narrower feed-forwards.
    Width,
    /// Feed-forwards become mixtures of experts.
    Experts,
    /// Matrices become products of thin ones.
    Rank,
    /// Weights have fewer bits.
    Bits,
    /// Tokens that the text never uses are left out.
    Vocab,
}

/// Every lever by its name, with a line for lists.
pub const LEVERS: &[(&str, Lever, &str)] = &[
    ("blocks", Lever::Blocks, "leave blocks out"),
    ("width", Lever::Width, "fewer heads, narrower feed-forwards"),
    ("experts", Lever::Experts, "feed-forwards become mixtures of experts"),
    ("rank", Lever::Rank, "matrices become products of thin ones"),
    ("bits", Lever::Bits, "weights in bf16 and integers"),
    ("vocab", Lever::Vocab, "leave tokens out that the text never uses"),
];

/// The levers of a list with commas; all of them where it is empty.
pub fn levers(list: &str) -> Result<Vec<Lever>> {
    if list.trim().is_empty() {
        return Ok(LEVERS.iter().map(|&(_, lever, _)| lever).collect());
    }
    let names = || LEVERS.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ");
    let of = |name: &str| {
        let found = LEVERS.iter().find(|(known, ..)| *known == name.trim());
        let (_, lever, _) = found.ok_or_else(|| Error::setting("levers", format!("`{}`", name.trim()), names()))?;
        Ok(*lever)
    };
    let mut levers = list.split(',').map(of).collect::<Result<Vec<_>>>()?;
    levers.dedup();
    Ok(levers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_levers() {
        assert_eq!(levers("").unwrap().len(), LEVERS.len());
        assert_eq!(levers("bits, vocab").unwrap(), [Lever::Bits, Lever::Vocab]);
        assert!(levers("speed").unwrap_err().to_string().contains("blocks, width, experts, rank, bits, vocab"));
    }
}
