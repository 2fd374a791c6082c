//! Two models measured side by side: one pass of each in turn, so that whatever the machine does hits both.

use anyhow::Result;
use lathe_core::Model;
use lathe_search::measure::Times;
use lathe_search::profile::Interval;
use lathe_search::workload::Workload;
use serde::{Deserialize, Serialize};
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
}

/// Fewest passes of each.
const LEAST: usize = 11;

/// Measures two models for so long.
pub fn measure(first: &Model, second: &Model, workload: &Workload, time: Duration) -> Result<Pair> {
    let mut jobs = [workload.whole(workload.model(first)?, 0)?, workload.whole(workload.model(second)?, 0)?];
    for _ in 0..2 {
        jobs.iter_mut().for_each(|job| job());
    }
    let mut times = [Times { raw: Vec::new() }, Times { raw: Vec::new() }];
    let begin = Instant::now();
    for round in 0.. {
        if round >= LEAST && begin.elapsed() >= time {
            break;
        }
        // Whoever goes first changes from round to round.
        for side in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let start = Instant::now();
            jobs[side]();
            times[side].raw.push(1e3 * start.elapsed().as_secs_f64());
        }
    }
    let [first, second] = &times;
    let ratios = Times { raw: first.raw.iter().zip(&second.raw).map(|(a, b)| a / b).collect() };
    let (low, high) = ratios.interval();
    let speedup = first.median() / second.median();
    Ok(Pair {
        first_ms: Interval::from(first),
        second_ms: Interval::from(second),
        speedup,
        interval: [low.min(speedup), high.max(speedup)],
        passes: first.raw.len(),
    })
}
