//! Design rules: stacks that need no search.

use crate::blocks::BLOCKS;
use lathe_core::{Backbone, BaseWidths, Error, MAX_BLOCKS, Registry, Result, Role};

/// The letters of the blocks that reference implementations have: the one that mixes tokens, and the one that works per
/// token.
fn letters() -> [char; 2] {
    [Role::MixesTokens, Role::PerToken].map(|role| {
        let kind = BLOCKS.iter().find(|kind| kind.in_references() && kind.role() == role);
        kind.and_then(|kind| kind.letter()).expect("a block with a letter for each role")
    })
}

/// A layer of the reference implementations in the notation: `sf`.
pub fn layer() -> String {
    letters().iter().collect()
}

/// PAR (Mandava et al., 2020): of n blocks, round(n / p) are attention, spread over the first two thirds; the rest is
/// feed-forward.
///
/// - With `every`, each attention block stands so many places after the one before, as in every stack that the paper
///   prints: `(sff)x5 (f)x9` for n = 24, p = 5, every 3. Its Base and Large, 32 and 36 blocks with p = 5, are every 4.
/// - Without, the rule in the paper's words, uniformly within the first two thirds: the i-th of c at
///   floor(i * floor(2 n / 3) / c). For n = 24, p = 5 that is the same; for 32 blocks distances of 3 and 4 take turns.
pub fn par(blocks: usize, p: f64, every: Option<usize>) -> Result<String> {
    check("blocks", blocks, MAX_BLOCKS)?;
    let wrong = |expected: String| Error::value("p", p, expected);
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
    let [mixing, per_token] = letters();
    let mut stack = vec![per_token; blocks];
    let place = |i: usize| every.map_or_else(|| i * first / count, |every| i.saturating_mul(every));
    if let Some(every) = every
        && (every == 0 || place(count.saturating_sub(1)) >= blocks)
    {
        let most = (blocks - 1) / (count.max(2) - 1);
        return Err(Error::value("every", every, format!("1 to {most}, for {count} attention blocks among {blocks}")));
    }
    for i in 0..count {
        stack[place(i)] = mixing;
    }
    Ok(stack.into_iter().collect())
}

/// Sandwich (Press et al., 2020): k attention blocks, interleaved blocks, k feed-forward blocks.
pub fn sandwich(blocks: usize, k: usize) -> Result<String> {
    check("blocks", blocks, MAX_BLOCKS)?;
    if !blocks.is_multiple_of(2) {
        return Err(Error::value("blocks", blocks, "an even number"));
    }
    if k > blocks / 2 {
        return Err(Error::value("k", k, format!("at most half of the {blocks} blocks")));
    }
    let [mixing, per_token] = letters().map(String::from);
    Ok(format!("{}{}{}", mixing.repeat(k), layer().repeat(blocks / 2 - k), per_token.repeat(k)))
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

/// Layer-scaled baseline: `(sf)xN` of Transformer-XL Base's or GPT-2 small's widths, or of those that LTS prints for the
/// family, whose GPT-2 has 12 heads in a width of 1024.
pub fn scaled(backbone: &str, layers: usize, as_printed: bool, registry: &Registry) -> Result<Scaled> {
    check("layers", layers, MAX_BLOCKS / 2)?;
    let widths = |known: &dyn Backbone| if as_printed { known.printed_widths() } else { known.base_widths() };
    let Some(BaseWidths { d_model, heads, inner }) = registry.backbone(backbone).and_then(widths) else {
        let known = registry.backbones.iter().filter(|known| known.base_widths().is_some()).map(|known| known.key());
        let expected = known.collect::<Vec<_>>().join(", ");
        return Err(Error::value("backbone", format!("`{backbone}`"), expected));
    };
    Ok(Scaled { layers: layer().repeat(layers), d_model, heads, inner })
}

fn check(name: &str, number: usize, max: usize) -> Result<()> {
    if (1..=max).contains(&number) { Ok(()) } else { Err(Error::value(name, number, format!("1 to {max}"))) }
}
