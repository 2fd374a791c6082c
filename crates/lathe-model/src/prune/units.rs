//! Fewer heads, or a narrower inner width: which units matter least, and the network without them.
//!
//! - By gradients (Michel et al., 2019, "Are Sixteen Heads Really Better than One?"): with a gate xi = 1 on what a unit
//!   writes, I = E_x |dL(x) / dxi| over samples x. As a unit writes y = xi h W, dL/dxi is the sum of W dL/dW over the
//!   weights it writes by, which every backward pass has.
//! - By activations: the sum over the unit's inputs h_j of the matrix W it writes by, of mean |h_j| * ||W_j||; for a
//!   neuron that is one product.
//!
//! Scores of a slot are divided by their length (l2), as in the paper, so that slots can be compared.

use crate::derive::{derive, with_units};
use crate::layer::Units;
use crate::observe::Observation;
use crate::params::Param;
use crate::{Network, build};
use lathe_core::{Error, Model, Result};

/// The units that a knob counts, of each slot; `None` where a block has none. An error where there are none at all.
pub fn units(network: &Network, knob: &str) -> Result<Vec<Option<Units>>> {
    let frame = &network.model.frame;
    if build::shares(frame) {
        return Err(Error::value(knob, "layers that share their weights", "layers with weights of their own"));
    }
    let of_slot = |slot: usize| network.slot(slot).units.into_iter().find(|units| units.counted_by(knob));
    let units: Vec<Option<Units>> = (0..network.model.blocks.len()).map(of_slot).collect();
    if units.iter().flatten().all(|units| units.count < 2) {
        let found = format!("no block of {} with more than one to spare", network.model.layers());
        return Err(Error::value(knob, found, "blocks that have several, which can go one by one"));
    }
    Ok(units)
}

/// How important units are, added up over samples.
pub struct Importance {
    units: Vec<Option<Units>>,
    sums: Vec<Vec<f64>>,
    /// For each slot its matrices by which units write: where the parameter stands, and the length of its weights of
    /// each input.
    writes: Vec<Vec<(usize, Vec<f64>)>>,
}

impl Importance {
    /// Of the units that a knob counts, nothing known yet.
    pub fn new(network: &Network, knob: &str) -> Result<Self> {
        let units = units(network, knob)?;
        let params: Vec<&Param> = network.params().iter().collect();
        let lengths = |units: &Units| {
            let writing = units.slices.iter().filter(|slice| slice.writes);
            let of = |slice: &crate::layer::Slice| (slice.param.0, lengths(params[slice.param.0], slice.axis));
            writing.map(of).collect()
        };
        let writes = units.iter().map(|units| units.as_ref().map_or_else(Vec::new, lengths)).collect();
        let sums = units.iter().map(|units| vec![0.0; units.as_ref().map_or(0, |units| units.count)]).collect();
        Ok(Self { units, sums, writes })
    }

    /// Adds |dL/dxi| of a sample: from the gradients of the parameters of its loss alone.
    pub fn add_gradients(&mut self, network: &Network, grads: &[Vec<f32>]) {
        let params: Vec<&Param> = network.params().iter().collect();
        for (units, sums) in self.units.iter().zip(&mut self.sums) {
            let Some(units) = units else { continue };
            let mut of_gates = vec![0.0f64; units.count];
            for slice in units.slices.iter().filter(|slice| slice.writes) {
                let param = params[slice.param.0];
                let inner = param.shape[slice.axis + 1..].iter().product::<usize>() * slice.width;
                let weights = param.read();
                let parts = weights.chunks_exact(inner).zip(grads[slice.param.0].chunks_exact(inner));
                for (i, (w, g)) in parts.enumerate() {
                    let dot = |(w, g): (&f32, &f32)| f64::from(*w) * f64::from(*g);
                    of_gates[i % units.count] += w.iter().zip(g).map(dot).sum::<f64>();
                }
            }
            sums.iter_mut().zip(of_gates).for_each(|(sum, gate)| *sum += gate.abs());
        }
    }

    /// Adds mean |h| ||W|| of a sample.
    pub fn add_activations(&mut self, observation: &Observation) {
        for ((units, sums), writes) in self.units.iter().zip(&mut self.sums).zip(&self.writes) {
            let Some(units) = units else { continue };
            for slice in units.slices.iter().filter(|slice| slice.writes) {
                let shown = observation.activities.iter().find(|activity| activity.param == slice.param);
                let lengths = writes.iter().find(|(param, _)| *param == slice.param.0);
                let Some((shown, (_, lengths))) = shown.zip(lengths) else { continue };
                for (j, (sum, length)) in shown.sums.iter().zip(lengths).enumerate() {
                    sums[j / slice.width % units.count] += sum / shown.rows as f64 * length;
                }
            }
        }
    }

    /// The scores of each slot's units, of length 1; empty where a slot has none.
    pub fn scores(&self) -> Vec<Vec<f64>> {
        let unit = |sums: &Vec<f64>| {
            let length = sums.iter().map(|sum| sum * sum).sum::<f64>().sqrt();
            sums.iter().map(|sum| if length > 0.0 { sum / length } else { 0.0 }).collect()
        };
        self.sums.iter().map(unit).collect()
    }
}

/// The length of a parameter's weights at each place of an axis.
fn lengths(param: &Param, axis: usize) -> Vec<f64> {
    let inner: usize = param.shape[axis + 1..].iter().product();
    let mut squares = vec![0.0f64; param.shape[axis]];
    for (i, weights) in param.read().chunks_exact(inner).enumerate() {
        squares[i % param.shape[axis]] += weights.iter().map(|&w| f64::from(w) * f64::from(w)).sum::<f64>();
    }
    squares.into_iter().map(f64::sqrt).collect()
}

/// How many units go, and from where.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The share of all units that goes.
    pub share: f64,
    /// Whether every slot gives the same share; else those units go whose scores are lowest, wherever they are.
    pub evenly: bool,
    /// So many stay in each slot, or as many as it has.
    pub least: usize,
}

/// The units that stay in each slot, in order. No more go than the least that stay allow.
pub fn choose(scores: &[Vec<f64>], spread: &Spread) -> Vec<Vec<usize>> {
    let count = |units: usize| (spread.share * units as f64).round() as usize;
    let most: Vec<usize> = scores.iter().map(|scores| scores.len().saturating_sub(spread.least.max(1))).collect();
    let mut gone: Vec<Vec<bool>> = scores.iter().map(|scores| vec![false; scores.len()]).collect();
    let mut counts = vec![0; scores.len()];
    let mut order: Vec<(usize, usize)> =
        scores.iter().enumerate().flat_map(|(slot, scores)| (0..scores.len()).map(move |unit| (slot, unit))).collect();
    order.sort_by(|&a, &b| scores[a.0][a.1].total_cmp(&scores[b.0][b.1]).then(a.cmp(&b)));
    let mut left = count(order.len());
    for (slot, unit) in order {
        let wanted = if spread.evenly { count(scores[slot].len()).min(most[slot]) } else { most[slot] };
        if counts[slot] < wanted && (spread.evenly || left > 0) {
            gone[slot][unit] = true;
            counts[slot] += 1;
            left = left.saturating_sub(1);
        }
    }
    gone.iter().map(|gone| (0..gone.len()).filter(|&unit| !gone[unit]).collect()).collect()
}

/// The network with these units of each slot alone; slots without such units stay as they are.
pub fn keep(network: &Network, knob: &str, kept: &[Vec<usize>]) -> Result<Network> {
    let frame = &network.model.frame;
    let units = units(network, knob)?;
    let of_slot = |(slot, units): (usize, &Option<Units>)| match units {
        Some(units) if kept[slot].len() < units.count => {
            with_units(&network.model.blocks[slot], frame, units, kept[slot].len())
        }
        _ => network.model.blocks[slot],
    };
    let blocks = units.iter().enumerate().map(of_slot).collect();
    let model = Model::new(frame.clone(), blocks)?;
    let slots: Vec<Option<usize>> = (0..kept.len()).map(Some).collect();
    let (mut smaller, _) = derive(network, model, &slots, 0, &mut |slot, _, _| kept[slot].clone())?;
    super::store_as(&mut smaller, network);
    Ok(smaller)
}
