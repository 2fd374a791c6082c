//! Fewer blocks: which turn the hidden states least, and the network without them.
//!
//! The influence of a block is 1 - cos(x, y) on average over tokens, with x what enters it and y what leaves it (Men et
//! al., 2024, "ShortGPT"). A block that is taken away leaves no gap: the one above gets what the one below gives.

use crate::derive::derive;
use crate::observe::Observation;
use crate::{Network, build};
use lathe_core::{Error, Model, Result, Role};

/// How far each block turns the hidden states, added up over samples.
#[derive(Debug, Clone, Default)]
pub struct Influence {
    /// Sum and tokens of each slot.
    slots: Vec<(f64, usize)>,
}

impl Influence {
    /// Adds what a pass showed.
    pub fn add(&mut self, observation: &Observation) {
        for turn in &observation.turns {
            if self.slots.len() <= turn.slot {
                self.slots.resize(turn.slot + 1, (0.0, 0));
            }
            let (sum, rows) = &mut self.slots[turn.slot];
            (*sum, *rows) = (*sum + turn.sum, *rows + turn.rows);
        }
    }

    /// 1 - cos of each slot.
    pub fn scores(&self) -> Vec<f64> {
        self.slots.iter().map(|&(sum, rows)| sum / rows.max(1) as f64).collect()
    }
}

/// The blocks of least influence, from the bottom. Skips, which cost nothing, are not among them; one block stays.
pub fn least(network: &Network, scores: &[f64], count: usize) -> Result<Vec<usize>> {
    let blocks = &network.model.blocks;
    let mut order: Vec<usize> = (0..blocks.len()).filter(|&slot| blocks[slot].kind.role() != Role::Identity).collect();
    if count == 0 || count >= order.len() {
        let expected = format!("1 to {}, fewer than the blocks of {}", order.len().max(1) - 1, network.model.layers());
        return Err(Error::value("blocks", count, expected));
    }
    order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]).then(a.cmp(&b)));
    order.truncate(count);
    order.sort_unstable();
    Ok(order)
}

/// The network without some of its blocks.
pub fn without(network: &Network, gone: &[usize]) -> Result<Network> {
    let Model { frame, blocks } = &network.model;
    if build::shares(frame) {
        return Err(Error::value("blocks", "layers that share their weights", "layers with weights of their own"));
    }
    let slots: Vec<usize> = (0..blocks.len()).filter(|slot| !gone.contains(slot)).collect();
    let model = Model::new(frame.clone(), slots.iter().map(|&slot| blocks[slot]).collect())?;
    let slots: Vec<Option<usize>> = slots.into_iter().map(Some).collect();
    let (mut shorter, _) = derive(network, model, &slots, 0, &mut |_, _, _| unreachable!("blocks stay whole"))?;
    super::store_as(&mut shorter, network);
    Ok(shorter)
}
