//! A quick measurement of single blocks on this machine: one-block networks in inference, interleaved so that whatever
//! slows the machine down slows all of them, the median of each. The only clock of the search but for its throughput.

use super::costs::Costs;
use crate::Result;
use lathe_core::{Block, Frame, Model, Positions};
use lathe_model::{Network, Precision, State};
use std::time::Instant;

/// What is measured.
#[derive(Debug, Clone, Copy)]
pub struct Conditions {
    /// B
    pub batch: u32,
    /// T
    pub seq: u32,
    /// Precision of products.
    pub precision: Precision,
    /// How often each block runs.
    pub rounds: u32,
}

/// The smallest vocabulary that shows a block and little else.
const VOCAB: u32 = 2;
const WARM: usize = 2;

/// A network that runs again and again over the same tokens.
struct Runner {
    network: Network,
    ids: Vec<u32>,
    batch: usize,
    state: State,
    times_us: Vec<f64>,
}

impl Runner {
    fn new(frame: Frame, blocks: Vec<Block>, conditions: Conditions) -> Result<Self> {
        let (batch, len) = (conditions.batch as usize, conditions.seq as usize);
        let vocab = frame.vocab;
        let mut network = Network::new(Model::new(frame, blocks)?, 0)?;
        network.set_precision(conditions.precision);
        network.freeze();
        let ids: Vec<u32> = (0..batch * len).map(|i| i as u32 % vocab).collect();
        let mut state = network.memory(batch);
        if network.model.frame.backbone.positions == Positions::Relative {
            // A memory of real hidden states, already projected.
            network.logits(&ids, batch, &mut state);
            state = network.cache(batch, len, &state);
        }
        Ok(Self { network, ids, batch, state, times_us: Vec::new() })
    }

    fn run(&mut self) {
        if self.network.model.frame.backbone.positions == Positions::Learned {
            self.state = self.network.memory(self.batch);
        }
        let start = Instant::now();
        self.network.logits(&self.ids, self.batch, &mut self.state);
        self.times_us.push(1e6 * start.elapsed().as_secs_f64());
    }

    /// The median of what came after warming up.
    fn median_us(&self) -> f64 {
        let mut times = self.times_us[WARM..].to_vec();
        times.sort_by(f64::total_cmp);
        (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0
    }
}

/// Measures each different block of these, and the frame without any.
pub fn measure_options(frame: &Frame, blocks: &[Block], conditions: Conditions) -> Result<Costs> {
    let frame = Frame { tgt_len: conditions.seq, ..frame.clone() };
    // Embedding and output of a network that is to show one block are as small as can be.
    let narrow = Frame { vocab: VOCAB, cutoffs: Vec::new(), d_embed: frame.d_model, div_val: 1, ..frame.clone() };
    let mut different: Vec<Block> = Vec::new();
    for block in blocks.iter().map(|block| block.kind.resolve(block, &frame)) {
        if !different.contains(&block) {
            different.push(block);
        }
    }
    let mut runners =
        vec![Runner::new(frame.clone(), Vec::new(), conditions)?, Runner::new(narrow.clone(), Vec::new(), conditions)?];
    for block in &different {
        runners.push(Runner::new(narrow.clone(), vec![*block], conditions)?);
    }
    for _ in 0..WARM + conditions.rounds.max(1) as usize {
        runners.iter_mut().for_each(Runner::run);
    }
    let medians: Vec<f64> = runners.iter().map(Runner::median_us).collect();
    let (frame_us, empty_us) = (medians[0], medians[1]);
    let costs = medians[2..].iter().map(|median| (median - empty_us).max(0.0));
    Ok(Costs { blocks: different.into_iter().zip(costs).collect(), frame_us })
}
