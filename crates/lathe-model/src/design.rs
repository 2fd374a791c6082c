//! Design rules: stacks that need no search.

use lathe_core::{Error, Result};

/// PAR (Mandava et al., 2020): of n blocks, round(n / p) are attention, spread evenly over the first two
/// thirds; the rest is feed-forward. `(sff)x5 (f)x9` for n = 24, p = 5.
pub fn par(blocks: usize, p: f64) -> Result<String> {
    check_blocks(blocks)?;
    let wrong = |expected: String| Error::Value { place: "p".into(), found: p.to_string(), expected };
    if !(p.is_finite() && p > 0.0) {
        return Err(wrong("a number above 0".into()));
    }
    let count = (blocks as f64 / p + 0.5).floor();
    let first = 2 * blocks / 3;
    if count > first as f64 {
        return Err(wrong(format!(
            "a p that leaves at most {first} of {blocks} blocks to attention (two thirds), not {count}"
        )));
    }
    let count = count as usize;
    let mut stack = vec!['f'; blocks];
    for i in 0..count {
        stack[i * first / count] = 's';
    }
    Ok(stack.into_iter().collect())
}

/// Sandwich (Press et al., 2020): k attention blocks, interleaved blocks, k feed-forward blocks.
pub fn sandwich(blocks: usize, k: usize) -> Result<String> {
    check_blocks(blocks)?;
    if !blocks.is_multiple_of(2) {
        return Err(Error::Value {
            place: "blocks".into(),
            found: blocks.to_string(),
            expected: "an even number".into(),
        });
    }
    if k > blocks / 2 {
        let expected = format!("at most half of the {blocks} blocks");
        return Err(Error::Value { place: "k".into(), found: k.to_string(), expected });
    }
    Ok(format!("{}{}{}", "s".repeat(k), "sf".repeat(blocks / 2 - k), "f".repeat(k)))
}

/// A stack of layers of the baseline's widths: what one gets by choosing depth alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scaled {
    /// The stack.
    pub layers: String,
    /// D.
    pub d_model: u32,
    /// Heads of each attention block.
    pub heads: u32,
    /// F.
    pub inner: u32,
}

/// Layer-scaled baseline: `(sf)xN` of Transformer-XL Base's or GPT-2 small's widths.
pub fn scaled(backbone: &str, layers: usize) -> Result<Scaled> {
    check_blocks(2 * layers.min(lathe_core::MAX_BLOCKS))?;
    let (d_model, heads, inner) = match backbone {
        "transformer_xl" => (512, 8, 2048),
        "gpt2" => (768, 12, 3072),
        other => {
            return Err(Error::Value {
                place: "backbone".into(),
                found: format!("`{other}`"),
                expected: "transformer_xl, gpt2".into(),
            });
        }
    };
    Ok(Scaled { layers: "sf".repeat(layers), d_model, heads, inner })
}

fn check_blocks(blocks: usize) -> Result<()> {
    let max = lathe_core::MAX_BLOCKS;
    if (1..=max).contains(&blocks) {
        return Ok(());
    }
    Err(Error::Value { place: "blocks".into(), found: blocks.to_string(), expected: format!("1 to {max}") })
}
