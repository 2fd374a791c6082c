//! The price of the wrong device: what a frontier that was found on one device costs on another.
//!
//! Of the device to run on, every point of its own frontier (latency there, quality) is compared with the fastest model, on
//! that device, of the other's frontier that is at least as good. The price is how much more time that takes, the mean over
//! points that the other frontier reaches.
//!
//! - **A model that was not measured there is predicted**: milliseconds = a + b * blocks + c * FLOPs of blocks that mix tokens +
//!   d * FLOPs of other blocks + e * FLOPs of the whole output, fitted to all models that were measured there by
//!   least squares of relative errors. It is then compared with what is predicted of the point, so that lucky
//!   measurements of the point do not count as a price. `error` is the median relative error of predicting each measured model
//!   from the others; a price below it is none.
//! - **Frontiers have gaps.** The next model that is as good is somewhat better and slower, on the right device too.
//!   `spacing` is the price of the device's own frontier where no point may stand for itself, so it is what a price holds that is
//!   not the device's.

use crate::pareto::frontier;
use crate::profile::{least_squares, median};
use crate::ranking::bootstrap;
use lathe_core::{Identify, Model, Role, Setting};
use lathe_model::{count, of_blocks};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// A model that was measured on a device.
#[derive(Debug, Clone)]
pub struct Point {
    /// The architecture.
    pub model: Model,
    /// Higher is better.
    pub quality: f64,
    /// One pass there.
    pub latency_ms: f64,
}

/// The price of one device's frontier on another.
#[derive(Debug, Clone, PartialEq)]
pub struct Price {
    /// Mean share of latency that the other frontier takes more.
    pub more: f64,
    /// Its 95 % interval, by resampling points.
    pub interval: [f64; 2],
    /// The same of the own frontier where no point stands for itself; none where no point has another as good.
    pub spacing: Option<f64>,
    /// Points of the own frontier that were compared.
    pub points: usize,
    /// Points of it that nothing of the other is as good as.
    pub unreached: usize,
    /// How many of the models that were compared with them had been measured here, too.
    pub measured: usize,
    /// Median relative error of predictions, where there were any.
    pub error: Option<f64>,
}

/// Resamples for an interval.
const RESAMPLES: usize = 1000;
/// What the latency of a model is predicted by.
const FEATURES: usize = 5;

/// What the frontier of models measured on one device, `from`, costs on the device on which `to` were measured. `None` where
/// it reaches no point there.
pub fn price(from: &[Point], to: &[Point]) -> Option<Price> {
    let device = Device::new(to);
    let (own, foreign) = (frontier_of(to), frontier_of(from));
    let foreign: Vec<(f64, Found)> = foreign.iter().map(|point| (point.quality, device.find(&point.model))).collect();
    let mut shares = Vec::new();
    let mut measured = 0;
    for point in &own {
        // Both as measured, or both as predicted.
        let here = |found: &Found| {
            found.latency_ms / if found.measured { point.latency_ms } else { device.predict(&point.model) }
        };
        let as_good = foreign.iter().filter(|(quality, _)| *quality >= point.quality);
        let best = as_good.map(|(_, found)| (here(found), found.measured)).min_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((ratio, was_measured)) = best {
            shares.push(ratio - 1.0);
            measured += usize::from(was_measured);
        }
    }
    let gaps = own.iter().filter_map(|point| {
        let others = own.iter().filter(|other| other.quality >= point.quality && !std::ptr::eq(**other, *point));
        let least = others.map(|other| other.latency_ms).min_by(f64::total_cmp)?;
        Some(least / point.latency_ms - 1.0)
    });
    let gaps: Vec<f64> = gaps.collect();
    let mean = |numbers: &[f64]| (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64);
    let of = |places: &[usize]| mean(&places.iter().map(|&i| shares[i]).collect::<Vec<_>>());
    Some(Price {
        more: mean(&shares)?,
        interval: bootstrap(shares.len(), RESAMPLES, &mut ChaCha8Rng::seed_from_u64(0), of)?,
        spacing: mean(&gaps),
        points: shares.len(),
        unreached: own.len() - shares.len(),
        measured,
        error: (measured < shares.len()).then(|| device.error()),
    })
}

/// The models that no other beats in latency and quality.
fn frontier_of(points: &[Point]) -> Vec<&Point> {
    let costs: Vec<[f64; 2]> = points.iter().map(|point| [point.latency_ms, -point.quality]).collect();
    frontier(&costs).into_iter().map(|i| &points[i]).collect()
}

/// What is known of a model on a device.
struct Found {
    latency_ms: f64,
    measured: bool,
}

/// A device by what was measured on it.
struct Device<'a> {
    points: &'a [Point],
    rows: Vec<([f64; FEATURES], f64)>,
    weights: [f64; FEATURES],
}

impl<'a> Device<'a> {
    fn new(points: &'a [Point]) -> Self {
        let rows: Vec<_> = points.iter().map(|point| (features(&point.model), point.latency_ms)).collect();
        Self { points, weights: least_squares(&rows, [0.0; FEATURES]), rows }
    }

    fn find(&self, model: &Model) -> Found {
        let identity = model.identity();
        match self.points.iter().find(|point| point.model.identity() == identity) {
            Some(point) => Found { latency_ms: point.latency_ms, measured: true },
            None => Found { latency_ms: self.predict(model), measured: false },
        }
    }

    fn predict(&self, model: &Model) -> f64 {
        apply(&self.weights, &features(model))
    }

    fn error(&self) -> f64 {
        let off = |left_out: usize| {
            let mut others = self.rows.clone();
            let (x, latency_ms) = others.remove(left_out);
            (apply(&least_squares(&others, [0.0; FEATURES]), &x) / latency_ms - 1.0).abs()
        };
        median((0..self.rows.len()).map(off).collect())
    }
}

fn apply(weights: &[f64; FEATURES], x: &[f64; FEATURES]) -> f64 {
    weights.iter().zip(x).map(|(w, x)| w * x).sum()
}

/// 1, blocks, and GFLOPs: of blocks that mix tokens, of other blocks, of the whole output.
fn features(model: &Model) -> [f64; FEATURES] {
    let setting = Setting::of(model);
    let mixing = model.blocks.iter().zip(of_blocks(model, &setting));
    let mixing: u128 =
        mixing.filter(|(block, _)| block.kind.role() == Role::MixesTokens).map(|(_, cost)| cost.flops).sum();
    let counts = count(model, &setting);
    let giga = |flops: u128| flops as f64 / 1e9;
    let others = giga(counts.blocks.flops - mixing);
    [1.0, model.blocks.len() as f64, giga(mixing), others, giga(counts.output_full_flops)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_core::Spec;
    use lathe_model::REGISTRY;

    fn model(layers: usize, inner: u32) -> Model {
        let text =
            format!("backbone='gpt2'\nlayers='(s f{inner})x{layers}'\nd_model=64\nheads=2\nvocab=50\ntgt_len=16");
        Spec::from_toml(&text, &REGISTRY).and_then(|spec| spec.model(&REGISTRY)).unwrap()
    }

    fn point(layers: usize, inner: u32, quality: f64, latency_ms: f64) -> Point {
        Point { model: model(layers, inner), quality, latency_ms }
    }

    #[test]
    fn prices_by_hand() {
        // Here b is as good as a and 1.5 times as slow, and nothing there is as good as the best here.
        let here = [point(1, 64, 1.0, 2.0), point(2, 64, 2.0, 4.0), point(1, 128, 1.0, 3.0), point(2, 128, 2.0, 5.0)];
        let there = [point(1, 128, 1.0, 1.0), point(1, 64, 1.0, 9.0)];
        let found = price(&there, &here).unwrap();
        assert!((found.more - 0.5).abs() < 1e-12, "{found:?}");
        assert_eq!((found.points, found.unreached, found.measured, found.error), (1, 1, 1, None));
        assert!((found.spacing.unwrap() - 1.0).abs() < 1e-12, "the next is twice as slow");
        let own = price(&here, &here).unwrap();
        assert_eq!((own.more, own.interval, own.points), (0.0, [0.0, 0.0], 2));
        assert_eq!(price(&[point(1, 64, 0.0, 1.0)], &here), None);
        assert_eq!(price(&here, &[]), None);
    }

    /// Where latency is what predictions take it to be, an unmeasured model costs what it would be measured to.
    #[test]
    fn what_was_not_measured_is_predicted() {
        let latency = |model: &Model| apply(&[0.5, 0.1, 300.0, 100.0, 50.0], &features(model));
        let measured = |layers: usize, inner: u32, quality: f64| {
            let model = model(layers, inner);
            Point { latency_ms: latency(&model), quality, model }
        };
        let here: Vec<Point> =
            (1..7).flat_map(|n| [64, 128, 256].map(|inner| measured(n, inner, (n as u32 * inner).into()))).collect();
        let other = [point(4, 200, 1e9, 1.0)];
        let found = price(&other, &here).unwrap();
        let best: Vec<&Point> = frontier_of(&here);
        let expected: f64 = best.iter().map(|point| latency(&other[0].model) / point.latency_ms - 1.0).sum();
        assert!((found.more - expected / best.len() as f64).abs() < 0.02 * found.more.abs(), "{found:?} {expected}");
        assert!(found.error.unwrap() < 0.01 && found.measured == 0, "{found:?}");
        assert!(found.interval[0] < found.more && found.more < found.interval[1]);
    }
}
