//! Fewer layers: as many whole layers as fit, the first ones or evenly spaced ones with the first and the last (DistilBERT),
//! whichever is better as assembled. A layer is a block that mixes tokens and what follows it.

use super::{Bench, Proposer};
use crate::optimize::architecture::Architecture;
use crate::optimize::menu::Limits;
use crate::{Result, Watch};
use lathe_core::Role;

pub struct FewerLayers;

impl Proposer for FewerLayers {
    fn key(&self) -> &'static str {
        "fewer_layers"
    }

    fn about(&self) -> &'static str {
        "as many layers as fit, the first or evenly spaced ones"
    }

    fn propose(&self, bench: &Bench<'_>, limits: Limits, _: Watch<'_>) -> Result<Option<Architecture>> {
        let blocks = &bench.menu.choices.blocks;
        if (0..blocks.len()).any(|slot| bench.skip(slot).is_none() && blocks[slot][0].kind.role() != Role::Identity) {
            return Ok(None);
        }
        let mut layers: Vec<Vec<usize>> = Vec::new();
        for (slot, options) in blocks.iter().enumerate() {
            match layers.last_mut() {
                Some(layer) if options[0].kind.role() != Role::MixesTokens => layer.push(slot),
                _ => layers.push(vec![slot]),
            }
        }
        let n = layers.len();
        for count in (1..=n).rev() {
            let first: Vec<usize> = (0..count).collect();
            let spaced = (0..count).map(|i| if count == 1 { 0 } else { (i * (n - 1) + (count - 1) / 2) / (count - 1) });
            let found = [first, spaced.collect()].into_iter().filter_map(|kept: Vec<usize>| {
                let mut options = vec![0; blocks.len()];
                let gone = (0..n).filter(|layer| !kept.contains(layer)).flat_map(|layer| layers[layer].clone());
                gone.for_each(|slot| options[slot] = bench.skip(slot).unwrap_or(0));
                bench.menu.stored(&options, limits)
            });
            if let Some(best) = bench.best(found.collect()) {
                return Ok(Some(best));
            }
        }
        Ok(None)
    }
}
