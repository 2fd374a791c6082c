//! Block influence (Men et al., 2024, "ShortGPT"): the blocks that turn the hidden states least are left out, as few as it
//! takes.

use super::{Bench, Proposer};
use crate::optimize::architecture::Architecture;
use crate::optimize::menu::Limits;
use crate::{Result, Watch};

pub struct Influence;

impl Proposer for Influence {
    fn key(&self) -> &'static str {
        "influence"
    }

    fn about(&self) -> &'static str {
        "without the blocks that turn the hidden states least"
    }

    fn propose(&self, bench: &Bench<'_>, limits: Limits, _: Watch<'_>) -> Result<Option<Architecture>> {
        let mut order: Vec<usize> = (0..bench.menu.slots()).filter(|&slot| bench.skip(slot).is_some()).collect();
        order.sort_by(|&a, &b| bench.influence[a].total_cmp(&bench.influence[b]).then(a.cmp(&b)));
        let mut options = vec![0; bench.menu.slots()];
        let mut next = order.into_iter();
        loop {
            if let Some(found) = bench.menu.stored(&options, limits) {
                return Ok(Some(found));
            }
            let Some(slot) = next.next() else { return Ok(None) };
            options[slot] = bench.skip(slot).expect("a slot that can be left out");
        }
    }
}
