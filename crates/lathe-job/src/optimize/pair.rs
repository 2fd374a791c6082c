//! Two models measured side by side: one pass of each in turn, so that whatever the machine does hits both.

use crate::Result;
use lathe_core::{Model, Registry};
use lathe_model::folder;
use lathe_search::measure::Times;
use lathe_search::profile::Interval;
use lathe_search::workload::{Pass, Workload};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// What two models take.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pair {
    /// Milliseconds of the first.
    pub first_ms: Interval,
    /// Milliseconds of the second.
    pub second_ms: Interval,
    /// How many times faster the second is: the ratio of the medians.
    pub speedup: f64,
    /// 95 % interval, by the ratios of neighbouring passes.
    pub interval: [f64; 2],
    /// Passes of each.
    pub passes: usize,
    /// The latency of the second as a share of the first's: the median ratio of neighbouring passes, which a load that comes
    /// and goes moves less than the medians. To choose by.
    #[serde(skip)]
    pub share: f64,
    /// Milliseconds of every pass of each, in the order taken.
    #[serde(skip)]
    pub raw_ms: [Vec<f64>; 2],
}

/// Fewest passes of each.
const LEAST: usize = 11;

/// Measures two models with random weights for so long.
pub fn measure(first: &Model, second: &Model, workload: &Workload, time: Duration) -> Result<Pair> {
    let whole = |model: &Model| -> Result<Pass> { Ok(workload.whole(workload.model(model)?, 0)?) };
    Ok(measure_jobs([whole(first)?, whole(second)?], time))
}

/// Measures two models that are trained, in these folders.
pub fn measure_trained(folders: [&Path; 2], workload: &Workload, time: Duration, registry: &Registry) -> Result<Pair> {
    let job = |folder: &Path| -> Result<Pass> {
        let model = workload.model(&folder::load_model(folder, registry)?)?;
        Ok(workload.passes(folder::load_as(folder, model)?, 0))
    };
    Ok(measure_jobs([job(folders[0])?, job(folders[1])?], time))
}

/// Measures two jobs for so long.
pub fn measure_jobs(jobs: [Pass; 2], time: Duration) -> Pair {
    measure_until(jobs, time, |_| true)
}

/// Intervals of the ratio that are narrower than this, relative to it, are tight.
const TIGHT: f64 = 0.03;
/// A measurement goes on for so many times as long until its interval is.
const PATIENCE: u32 = 8;

/// Measures two jobs for so long, and longer until the interval of their ratio is tight.
pub fn measure_tight(jobs: [Pass; 2], time: Duration) -> Pair {
    let begin = Instant::now();
    measure_until(jobs, time, |times| {
        begin.elapsed() > PATIENCE * time || {
            let pair = Pair::of(times.clone());
            (pair.interval[1] - pair.interval[0]) <= TIGHT * pair.speedup
        }
    })
}

/// Measures two jobs for so long, and on until it is enough.
fn measure_until(mut jobs: [Pass; 2], time: Duration, enough: impl Fn(&[Times; 2]) -> bool) -> Pair {
    for _ in 0..2 {
        jobs.iter_mut().for_each(|job| job());
    }
    let mut times = [Times { raw: Vec::new() }, Times { raw: Vec::new() }];
    let begin = Instant::now();
    for round in 0.. {
        if round >= LEAST && begin.elapsed() >= time && enough(&times) {
            break;
        }
        // Whoever goes first changes from round to round.
        for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let start = Instant::now();
            jobs[side]();
            times[side].raw.push(1e3 * start.elapsed().as_secs_f64());
        }
    }
    Pair::of(times)
}

impl Pair {
    /// Of the milliseconds of as many passes of each, taken in turn.
    fn of(times: [Times; 2]) -> Self {
        let [first, second] = &times;
        let ratios = |a: &Times, b: &Times| Times { raw: a.raw.iter().zip(&b.raw).map(|(a, b)| a / b).collect() };
        let forth = ratios(first, second);
        let ((low, high), back) = (forth.interval(), ratios(second, first).interval());
        let speedup = first.median() / second.median();
        Self {
            first_ms: Interval::from(first),
            second_ms: Interval::from(second),
            speedup,
            // Whoever is called the first: the other way round it is the inverse.
            interval: [low.min(1.0 / back.1).min(speedup), high.max(1.0 / back.0).max(speedup)],
            passes: first.raw.len(),
            share: 1.0 / forth.median(),
            raw_ms: times.map(|times| times.raw),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swapped_pair_is_the_inverse() {
        for n in [11, 12, 40, 41] {
            let times = |factor: f64| Times { raw: (0..n).map(|i| factor + f64::from(i * 7 % 5) * 0.1).collect() };
            let pair = Pair::of([times(4.0), times(1.5)]);
            let swapped = Pair::of([times(1.5), times(4.0)]);
            assert!(pair.interval[0] <= pair.speedup && pair.speedup <= pair.interval[1], "{pair:?}");
            assert!(pair.interval[0] > 1.0, "{pair:?}");
            for (a, b) in [
                (pair.speedup, swapped.speedup),
                (pair.interval[0], swapped.interval[1]),
                (pair.interval[1], swapped.interval[0]),
            ] {
                assert!((a * b - 1.0).abs() < 1e-12, "{a} and {b}");
            }
            assert_eq!((pair.passes, pair.raw_ms[1].len()), (n as usize, n as usize));
        }
    }
}
