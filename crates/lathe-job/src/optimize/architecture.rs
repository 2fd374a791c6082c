//! An architecture out of a library: an option and a storage of each slot, and what stands around them.

use lathe_core::{Block, Frame, Model, Role};
use lathe_model::prune::blocks::without;
use lathe_model::{Network, SuperNet, WeightStorage};
use serde::{Deserialize, Serialize};

/// Which option and which storage each slot has.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Architecture {
    /// The option of each slot; 0 is the trained block.
    pub options: Vec<usize>,
    /// The storage of each slot.
    pub storages: Vec<usize>,
    /// The storage of embedding and output.
    pub frame: usize,
}

impl Architecture {
    /// The trained blocks as they are.
    pub fn own(slots: usize) -> Self {
        Self { options: vec![0; slots], storages: vec![0; slots], frame: 0 }
    }

    /// Whether every block is the trained one.
    pub fn is_whole(&self) -> bool {
        self.options.iter().all(|&option| option == 0)
    }
}

/// The options that architectures are made of.
#[derive(Debug, Clone)]
pub struct Choices {
    /// What stands around the slots.
    pub frame: Frame,
    /// The options of each slot, the trained block first.
    pub blocks: Vec<Vec<Block>>,
    /// What weights may be stored as; the first is what the trained model has.
    pub storages: Vec<WeightStorage>,
}

impl Choices {
    /// Whether a slot is left out.
    fn is_skipped(&self, architecture: &Architecture, slot: usize) -> bool {
        self.blocks[slot][architecture.options[slot]].kind.role() == Role::Identity
    }

    /// The slots that something computes in.
    pub fn slots(&self, architecture: &Architecture) -> Vec<usize> {
        (0..self.blocks.len()).filter(|&slot| !self.is_skipped(architecture, slot)).collect()
    }

    /// The model without the slots that are left out.
    pub fn model(&self, architecture: &Architecture) -> Model {
        let block = |slot: usize| self.blocks[slot][architecture.options[slot]];
        let blocks = self.slots(architecture).into_iter().map(block).collect();
        Model { frame: self.frame.clone(), blocks }
    }

    /// A network whose weights repeat, stored as they are to be: for measurements.
    pub fn for_measuring(&self, architecture: &Architecture, model: Model) -> crate::Result<Network> {
        let mut network = Network::for_measuring(model, 0)?;
        self.store(architecture, &mut network);
        Ok(network)
    }

    /// Stores the weights of an architecture's network, rounded plainly.
    pub fn store(&self, architecture: &Architecture, network: &mut Network) {
        for (at, slot) in self.slots(architecture).into_iter().enumerate() {
            network.set_slot_storage(at, self.storages[architecture.storages[slot]]);
        }
        network.set_frame_storage(self.storages[architecture.frame]);
    }

    /// The network of an architecture in f32, with the weights of a super net.
    pub fn network(&self, architecture: &Architecture, net: &SuperNet) -> crate::Result<Network> {
        let network = net.network(&architecture.options)?;
        let gone: Vec<usize> = (0..self.blocks.len()).filter(|&slot| self.is_skipped(architecture, slot)).collect();
        Ok(if gone.is_empty() { network } else { without(&network, &gone)? })
    }
}
