//! Neighbours vouch for each other: what a block is measured to take is drawn towards a line through blocks that are a
//! little narrower and a little wider.
//!
//! A search looks for architectures that are fast by the table, and so for blocks whose measurement was lucky: among
//! sixty widths it finds the three that happened to be measured 7 % too low. Where the distances from the line are what the
//! intervals of the measurements explain, the line counts; where they are larger, the step is real and the
//! measurement counts.

use super::table::{Entry, ProfileTable};
use lathe_core::{Block, Registry, notation};
use std::collections::BTreeMap;

/// Blocks whose knob is within this factor are neighbours.
const NEAR: f64 = 1.25;
/// The fewest points of a line, the block itself among them.
const LEAST: usize = 5;

impl ProfileTable {
    /// With latencies that neighbours agree on, for predictions. What has no neighbours stays as it was measured.
    pub fn smoothed(mut self, registry: &Registry) -> Self {
        // Blocks that differ in one knob stand in one row, by its value.
        let mut rows: BTreeMap<(String, String), Vec<(f64, usize)>> = BTreeMap::new();
        for (at, entry) in self.blocks.iter().enumerate() {
            let Some(block) = block_of(entry, registry) else { continue };
            for (knob, _, value) in block.knobs() {
                let Some(value) = value else { continue };
                let mut others = block;
                others.set(knob, 0);
                let row = (entry.name.frame.clone(), format!("{knob} {others:?}"));
                rows.entry(row).or_default().push((f64::from(value), at));
            }
        }
        let mut smooth = BTreeMap::new();
        for row in rows.values() {
            for &(x, at) in row {
                let near = |&&(other, _): &&(f64, usize)| other <= NEAR * x && x <= NEAR * other;
                let points: Vec<(f64, &Entry)> =
                    row.iter().filter(near).map(|&(x, at)| (x, &self.blocks[at])).collect();
                if points.len() >= LEAST {
                    smooth.insert(at, agreed(x, &self.blocks[at], &points));
                }
            }
        }
        for (at, median) in smooth {
            self.blocks[at].latency_us.median = median;
        }
        self
    }
}

fn block_of(entry: &Entry, registry: &Registry) -> Option<Block> {
    match notation::parse(&entry.name.block, registry).ok()?[..] {
        [block] => Some(block),
        _ => None,
    }
}

/// What the block at `x` takes by the line through its neighbours and by its own measurement.
fn agreed(x: f64, own: &Entry, points: &[(f64, &Entry)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: &dyn Fn(&(f64, &Entry)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (mean_x, mean_y) = (mean(&|p| p.0), mean(&|p| p.1.latency_us.median));
    let square = mean(&|p| (p.0 - mean_x).powi(2));
    let slope = mean(&|p| (p.0 - mean_x) * (p.1.latency_us.median - mean_y)) / square.max(f64::MIN_POSITIVE);
    let line = |x: f64| mean_y + slope * (x - mean_x);
    // A 95 % interval is 3.92 deviations wide; two of the points' freedoms are the line's.
    let noise = mean(&|p| ((p.1.latency_us.high - p.1.latency_us.low) / 3.92).powi(2));
    let apart = mean(&|p| (p.1.latency_us.median - line(p.0)).powi(2)) * n / (n - 2.0);
    let real = (1.0 - noise / apart.max(f64::MIN_POSITIVE)).max(0.0);
    line(x) + real * (own.latency_us.median - line(x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Interval, Part};
    use crate::workload::Workload;
    use lathe_core::Spec;
    use lathe_model::REGISTRY;

    /// A table of feed-forwards of a gpt2 with these latencies, each with such an interval.
    fn table(latency: impl Fn(u32) -> f64, width: f64) -> (ProfileTable, Vec<Part>) {
        let spec = Spec::from_toml("backbone='gpt2'\nlayers='f'\nd_model=64\nvocab=9", &REGISTRY).unwrap();
        let frame = spec.model(&REGISTRY).unwrap().frame;
        let parts: Vec<Part> = (16..=48)
            .map(|i| Part::block(&notation::parse(&format!("f{}", 64 * i), &REGISTRY).unwrap()[0], &frame))
            .collect();
        let entry = |(i, part): (u32, &Part)| {
            let median = latency(i);
            let latency_us = Interval { median, low: median * (1.0 - width), high: median * (1.0 + width) };
            let name = part.name.clone();
            let (outliers, peak_bytes, held_bytes, raw_us) = (0, 1, 1, vec![median]);
            Entry { name, d_model: 64, batch: 1, seq: 1, latency_us, outliers, peak_bytes, held_bytes, raw_us }
        };
        let mut table = ProfileTable::new(&Workload::default());
        table.extend((16..).zip(&parts).map(entry));
        (table, parts)
    }

    #[test]
    fn noise_goes_and_steps_stay() {
        let noisy = |i: u32| 10.0 * f64::from(i) * (1.0 + 0.08 * ((i * 7919 % 17) as f64 / 8.0 - 1.0));
        // Intervals as wide as the noise: the line counts.
        let (measured, parts) = table(noisy, 0.15);
        let smooth = measured.clone().smoothed(&REGISTRY);
        let error = |table: &ProfileTable| -> f64 {
            let of =
                |(i, part): (u32, &Part)| table.get(&part.name).unwrap().latency_us.median / f64::from(10 * i) - 1.0;
            (16..).zip(&parts).map(of).map(|error| error * error).sum::<f64>().sqrt()
        };
        assert!(error(&smooth) < 0.5 * error(&measured), "{} {}", error(&smooth), error(&measured));
        assert_eq!(measured.blocks[0].raw_us, smooth.blocks[0].raw_us);
        // Intervals much tighter than the distances: those are real.
        let (measured, _) = table(noisy, 0.001);
        for (before, after) in measured.blocks.iter().zip(measured.clone().smoothed(&REGISTRY).blocks) {
            assert!((after.latency_us.median / before.latency_us.median - 1.0).abs() < 1e-3);
        }
    }

    #[test]
    fn what_has_no_neighbours_stays() {
        let (measured, _) = table(f64::from, 0.1);
        let few = ProfileTable {
            blocks: measured.blocks.into_iter().step_by(8).collect(),
            ..ProfileTable::new(&Workload::default())
        };
        assert_eq!(few.clone().smoothed(&REGISTRY), few);
    }
}
