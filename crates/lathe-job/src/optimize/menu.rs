//! What every option of every slot costs here, measured, and the best architecture within limits.
//!
//! Costs are sums over slots, corrected by whole models that were measured: a + b times the sum. Scores are sums, too: what
//! is lost with one block replaced. The best architecture within a limit of latency is then a knapsack with one pick a
//! slot, which is solved exactly; a limit of memory is a price on bytes, the least that it takes.

use super::architecture::{Architecture, Choices};
use crate::{Error, Result};
use lathe_core::Frame;
use lathe_model::WeightStorage;
use lathe_search::differentiable::latency::CostTable;
use lathe_search::differentiable::projection::project;
use lathe_search::profile::{Part, ProfileTable};
use lathe_search::workload::Workload;
use serde::{Deserialize, Serialize};

/// Costs of one kind: of each slot, option and storage, and of what stands around them in each storage.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Costs {
    pub slots: Vec<Vec<Vec<f64>>>,
    pub frame: Vec<f64>,
}

/// What is lost: of each option of each slot, of each storage of each slot, and of each storage around them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Losses {
    pub options: Vec<Vec<f64>>,
    pub storages: Vec<Vec<f64>>,
    pub frame: Vec<f64>,
}

/// What the sum of an architecture's parts has to become to be what it takes whole.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Correction {
    /// Microseconds that no part has.
    pub offset: f64,
    /// Of the sum.
    pub factor: f64,
}

impl Correction {
    /// Nothing is corrected.
    pub const NONE: Self = Self { offset: 0.0, factor: 1.0 };

    /// The least squares of relative errors over pairs of a sum and what was measured; a factor alone where there are few or
    /// where a line would make no sense: below 0 it would make the smallest models take no time at all.
    pub fn fit(pairs: &[(f64, f64)]) -> Self {
        let mut ratios: Vec<f64> = pairs.iter().map(|(sum, whole)| whole / sum).collect();
        ratios.sort_by(f64::total_cmp);
        let plain = Self { offset: 0.0, factor: ratios.get(ratios.len() / 2).copied().unwrap_or(1.0) };
        if pairs.len() < 4 {
            return plain;
        }
        // Minimise sum ((a + b s - w) / w)^2.
        let (mut s11, mut s12, mut s22, mut t1, mut t2) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &(s, w) in pairs {
            let (x, y) = (1.0 / w, s / w);
            (s11, s12, s22, t1, t2) = (s11 + x * x, s12 + x * y, s22 + y * y, t1 + x, t2 + y);
        }
        let det = s11 * s22 - s12 * s12;
        if det <= 1e-9 * s11 * s22 {
            return plain;
        }
        let fitted = Self { offset: (t1 * s22 - t2 * s12) / det, factor: (t2 * s11 - t1 * s12) / det };
        let least = pairs.iter().map(|pair| pair.1).fold(f64::INFINITY, f64::min);
        let sane = (0.0..0.7 * least).contains(&fitted.offset) && fitted.factor > 0.3;
        if sane { fitted } else { plain }
    }

    /// What a sum becomes.
    pub fn of(self, sum: f64) -> f64 {
        self.offset + self.factor * sum
    }
}

/// What an architecture may cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Microseconds of a pass.
    pub us: f64,
    /// Bytes at the peak.
    pub bytes: f64,
}

/// All that choosing goes by.
pub struct Menu {
    /// What there is to choose from.
    pub choices: Choices,
    /// Microseconds.
    pub us: Costs,
    /// Bytes that are held between passes.
    pub bytes: Costs,
    /// Bytes that the greediest part takes while it runs.
    pub transient: f64,
    /// Of sums of microseconds.
    pub correction: Correction,
    /// Nats per token that are lost.
    pub losses: Losses,
}

/// The parts that have to be measured.
pub fn parts(choices: &Choices, workload: &Workload) -> Result<Vec<Part>> {
    let frame = placed(choices, workload)?;
    let mut parts: Vec<Part> = Vec::new();
    for &storage in &choices.storages {
        parts.push(Part::frame(&frame).stored(storage));
        for block in choices.blocks.iter().flatten() {
            parts.push(Part::block(block, &frame).stored(storage));
        }
    }
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    parts.dedup_by(|a, b| a.name == b.name);
    Ok(parts)
}

/// The frame with the lengths of a setting.
fn placed(choices: &Choices, workload: &Workload) -> Result<Frame> {
    Ok(workload.model(&choices.model(&Architecture::own(choices.blocks.len())))?.frame)
}

impl Menu {
    /// The costs of a table that has all [`parts`]; nothing is lost yet.
    pub fn new(choices: Choices, table: &ProfileTable, workload: &Workload) -> Result<Self> {
        let frame = placed(&choices, workload)?;
        let mut transient = 0.0f64;
        let mut cost = |part: Part, storage: WeightStorage| -> Result<(f64, f64)> {
            let part = part.stored(storage);
            let missing = || Error::data("table of costs", format!("no {}", part.name.block), "every option");
            let entry = table.get(&part.name).ok_or_else(missing)?;
            let (held, takes) = table.bytes_of(entry);
            transient = transient.max(takes);
            Ok((entry.latency_us.median, held))
        };
        let (mut us, mut bytes) = (Costs::default(), Costs::default());
        for &storage in &choices.storages {
            let (time, held) = cost(Part::frame(&frame), storage)?;
            us.frame.push(time);
            bytes.frame.push(held);
        }
        for slot in &choices.blocks {
            let (mut of_us, mut of_bytes) = (Vec::new(), Vec::new());
            for block in slot {
                let both = choices.storages.iter().map(|&storage| cost(Part::block(block, &frame), storage));
                let (time, held): (Vec<f64>, Vec<f64>) = both.collect::<Result<Vec<_>>>()?.into_iter().unzip();
                of_us.push(time);
                of_bytes.push(held);
            }
            us.slots.push(of_us);
            bytes.slots.push(of_bytes);
        }
        Ok(Self { choices, us, bytes, transient, correction: Correction::NONE, losses: Losses::default() })
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.choices.blocks.len()
    }

    fn sum(&self, costs: &Costs, architecture: &Architecture) -> f64 {
        let of = |slot: usize| costs.slots[slot][architecture.options[slot]][architecture.storages[slot]];
        costs.frame[architecture.frame] + (0..self.slots()).map(of).sum::<f64>()
    }

    /// The sum of what its parts take, microseconds.
    pub fn sum_us(&self, architecture: &Architecture) -> f64 {
        self.sum(&self.us, architecture)
    }

    /// What it takes, corrected, microseconds.
    pub fn estimate_us(&self, architecture: &Architecture) -> f64 {
        self.correction.of(self.sum_us(architecture))
    }

    /// Bytes at the peak.
    pub fn estimate_bytes(&self, architecture: &Architecture) -> f64 {
        self.sum(&self.bytes, architecture) + self.transient
    }

    /// Nats per token that are lost by storages alone.
    pub fn lost_by_storage(&self, architecture: &Architecture) -> f64 {
        let of = |slot: usize| self.losses.storages[slot][architecture.storages[slot]];
        self.losses.frame[architecture.frame] + (0..self.slots()).map(of).sum::<f64>()
    }

    /// Nats per token that are lost, if losses add up.
    pub fn lost(&self, architecture: &Architecture) -> f64 {
        let of = |slot: usize| self.losses.options[slot][architecture.options[slot]];
        self.lost_by_storage(architecture) + (0..self.slots()).map(of).sum::<f64>()
    }

    /// The best architecture within limits by the sum of losses; `None` where there is none.
    pub fn best(&self, limits: Limits) -> Option<Architecture> {
        self.best_of(limits, &self.losses.options, |_, _| true)
    }

    /// The best storages within limits for options that are fixed.
    pub fn stored(&self, options: &[usize], limits: Limits) -> Option<Architecture> {
        self.best_of(limits, &self.losses.options, |slot, option| options[slot] == option)
    }

    /// The same with other losses of options, and some options alone.
    pub fn best_of(
        &self,
        limits: Limits,
        losses: &[Vec<f64>],
        allowed: impl Fn(usize, usize) -> bool,
    ) -> Option<Architecture> {
        let within = |architecture: &Architecture| self.estimate_bytes(architecture) <= limits.bytes;
        let solve = |price: f64| self.solve(limits.us, losses, &allowed, price);
        let free = solve(0.0)?;
        if within(&free) {
            return Some(free);
        }
        // The least price of a byte at which it fits.
        let unit = 1.0 / self.estimate_bytes(&free).max(1.0);
        let (mut low, mut high) = (0.0, unit);
        while !within(&solve(high)?) {
            (low, high) = (high, 4.0 * high);
            if high > 1e9 * unit {
                return None;
            }
        }
        for _ in 0..16 {
            let middle = (low + high) / 2.0;
            if within(&solve(middle)?) { high = middle } else { low = middle }
        }
        solve(high)
    }

    fn solve(
        &self,
        us: f64,
        losses: &[Vec<f64>],
        allowed: &impl Fn(usize, usize) -> bool,
        price: f64,
    ) -> Option<Architecture> {
        let storages = self.choices.storages.len();
        // Each slot's picks that nothing cheaper beats: option and storage, microseconds, value.
        let mut picks: Vec<Vec<(usize, usize, f64, f64)>> = Vec::new();
        for (slot, losses) in losses.iter().enumerate() {
            let mut list = Vec::new();
            for option in (0..losses.len()).filter(|&option| allowed(slot, option)) {
                for storage in 0..storages {
                    let lost = losses[option] + self.losses.storages[slot][storage];
                    let value = -lost - price * self.bytes.slots[slot][option][storage];
                    list.push((option, storage, self.us.slots[slot][option][storage], value));
                }
            }
            picks.push(undominated(list));
        }
        let value = |i: usize| -self.losses.frame[i] - price * self.bytes.frame[i];
        picks.push(undominated((0..storages).map(|i| (0, i, self.us.frame[i], value(i))).collect()));
        if picks.iter().any(Vec::is_empty) {
            return None;
        }
        let column = |of: fn(&(usize, usize, f64, f64)) -> f64| -> Vec<Vec<f64>> {
            picks.iter().map(|list| list.iter().map(of).collect()).collect()
        };
        let table = CostTable { slots: column(|pick| pick.2), fixed: 0.0, baseline: 1.0 };
        let limit = (us - self.correction.offset) / self.correction.factor;
        let found = project(&column(|pick| pick.3), &table, limit)?;
        let chosen: Vec<_> = found.choice.iter().zip(&picks).map(|(&at, list)| list[at]).collect();
        let (frame, slots) = chosen.split_last()?;
        Some(Architecture {
            options: slots.iter().map(|pick| pick.0).collect(),
            storages: slots.iter().map(|pick| pick.1).collect(),
            frame: frame.1,
        })
    }

    /// The cheapest architecture of all.
    pub fn cheapest(&self) -> Architecture {
        self.cheapest_of(|_, _| true)
    }

    /// The cheapest of some options of each slot.
    fn cheapest_of(&self, allowed: impl Fn(usize, usize) -> bool) -> Architecture {
        let least = |costs: &[f64]| (0..costs.len()).fold(0, |best, i| if costs[i] < costs[best] { i } else { best });
        let (mut options, mut storages) = (Vec::new(), Vec::new());
        for (slot, of_options) in self.us.slots.iter().enumerate() {
            let list = (0..of_options.len()).filter(|&option| allowed(slot, option));
            let best = list.map(|option| (option, least(&of_options[option])));
            let cost = |&(option, storage): &(usize, usize)| of_options[option][storage];
            let (option, storage) = best.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or_default();
            options.push(option);
            storages.push(storage);
        }
        Architecture { options, storages, frame: least(&self.us.frame) }
    }

    /// The same options in fewer bits, in this share of the time that they take by the table or as near as bits come to it.
    /// `None` where they are as fast as bits make them.
    pub fn fewer_bits(&self, own: &Architecture, share: f64, bytes: f64) -> Option<Architecture> {
        let fastest = self.cheapest_of(|slot, option| own.options[slot] == option);
        let us = (share * self.estimate_us(own)).max((1.0 + 1e-9) * self.estimate_us(&fastest));
        let found = self.stored(&own.options, Limits { us, bytes });
        found.filter(|found| self.estimate_us(found) < self.estimate_us(own))
    }
}

/// Those that nothing as cheap beats in value.
fn undominated(mut picks: Vec<(usize, usize, f64, f64)>) -> Vec<(usize, usize, f64, f64)> {
    picks.sort_by(|a, b| a.2.total_cmp(&b.2).then(b.3.total_cmp(&a.3)));
    let mut best = f64::NEG_INFINITY;
    picks.retain(|pick| {
        let keep = pick.3 > best;
        best = best.max(pick.3);
        keep
    });
    picks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_fitted_where_it_makes_sense() {
        let fitted = Correction::fit(&[(100.0, 130.0), (200.0, 230.0), (300.0, 330.0), (400.0, 430.0)]);
        assert!((fitted.offset - 30.0).abs() < 1e-6 && (fitted.factor - 1.0).abs() < 1e-6, "{fitted:?}");
        // As measured beside another process: no model takes less than no time.
        let noisy = [(6078.0, 15267.0), (4177.0, 10113.0), (3057.0, 6981.0), (2960.0, 7281.0), (1980.0, 3988.0)];
        let fitted = Correction::fit(&noisy);
        assert_eq!((fitted.offset, fitted.factor), (0.0, 10113.0 / 4177.0));
    }

    #[test]
    fn fewer_bits_go_as_far_as_they_have_to_and_can() {
        let file = "backbone = 'gpt2'\nlayers = 'sf'\nd_model = 8\nheads = 2\nvocab = 11\nmax_len = 8";
        let model = lathe_core::Spec::from_toml(file, &lathe_model::REGISTRY).unwrap();
        let model = model.model(&lathe_model::REGISTRY).unwrap();
        let storages = ["f32", "bf16", "int8"].map(|key| key.parse().unwrap());
        let blocks = model.blocks.iter().map(|block| vec![*block]).collect();
        let menu = Menu {
            choices: Choices { frame: model.frame, blocks, storages: storages.into() },
            us: Costs { slots: vec![vec![vec![40.0, 30.0, 20.0]], vec![vec![50.0, 40.0, 25.0]]], frame: vec![10.0; 3] },
            bytes: Costs { slots: vec![vec![vec![4.0, 2.0, 1.0]]; 2], frame: vec![4.0, 2.0, 1.0] },
            transient: 0.0,
            correction: Correction::NONE,
            losses: Losses {
                options: vec![vec![0.0]; 2],
                storages: vec![vec![0.0, 0.1, 0.3], vec![0.0, 0.2, 0.9]],
                frame: vec![0.0; 3],
            },
        };
        let own = Architecture::own(2);
        let storages = |share: f64| menu.fewer_bits(&own, share, f64::INFINITY).map(|found| found.storages);
        assert_eq!(storages(0.95), Some(vec![1, 0]), "the cheapest loss that is enough");
        assert_eq!(storages(0.8), Some(vec![2, 0]));
        assert_eq!(storages(0.1), Some(vec![2, 2]), "as near as they come");
        let least = Architecture { storages: vec![2, 2], ..own.clone() };
        assert_eq!(menu.fewer_bits(&least, 0.9, f64::INFINITY), None);
    }
}
