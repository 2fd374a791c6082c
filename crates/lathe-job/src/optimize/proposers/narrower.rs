//! Narrower layers: all blocks stay, each with the same share of its heads or of its inner width, whatever uses the limit
//! best.

use super::{Bench, Proposer};
use crate::optimize::architecture::Architecture;
use crate::optimize::menu::Limits;
use crate::{Result, Watch};
use lathe_core::Role;

pub struct Narrower;

impl Proposer for Narrower {
    fn key(&self) -> &'static str {
        "narrower"
    }

    fn about(&self) -> &'static str {
        "all layers, with the same share of heads and of inner width in each"
    }

    fn propose(&self, bench: &Bench<'_>, limits: Limits, _: Watch<'_>) -> Result<Option<Architecture>> {
        let blocks = &bench.menu.choices.blocks;
        // Options of a block's own kind are narrower ones, from the widest to the narrowest.
        let narrower = |slot: usize| -> usize {
            let own = blocks[slot][0].kind.key();
            blocks[slot].iter().take_while(|block| block.kind.key() == own).count()
        };
        let most = (0..blocks.len()).map(narrower).max().unwrap_or(1);
        let mut found: Vec<Architecture> = Vec::new();
        for mixing in 0..most {
            for per_token in 0..most {
                let option = |slot: usize| {
                    let wanted = if blocks[slot][0].kind.role() == Role::MixesTokens { mixing } else { per_token };
                    wanted.min(narrower(slot) - 1)
                };
                let options: Vec<usize> = (0..blocks.len()).map(option).collect();
                found.extend(bench.menu.stored(&options, limits));
            }
        }
        // Of those that no other is wider than in everything, the best as assembled.
        let wider = |a: &Architecture, b: &Architecture| {
            a.options != b.options && a.options.iter().zip(&b.options).all(|(a, b)| a <= b)
        };
        let widest: Vec<Architecture> =
            found.iter().filter(|one| !found.iter().any(|other| wider(other, one))).cloned().collect();
        Ok(bench.best(widest))
    }
}
