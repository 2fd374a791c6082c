//! Measuring parts as hyperfine would: warmed up, interleaved in random order, repeated until the interval is tight.
//!
//! Each round runs every part of a group once, in a new random order, so that drift hits all alike and a part finds
//! its weights as cold as it will in a model, where every other layer runs between two of its passes. A group is as many
//! parts as fit into memory; every sweep groups them anew.

use super::machine::Load;
use super::table::{Entry, Interval, Part};
use crate::Result;
use crate::measure::Times;
use crate::workload::{Resident, Workload};
use lathe_core::{Model, Setting};
use lathe_model::count;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::time::{Duration, Instant};

/// How long to measure.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How often all parts are gone through.
    pub sweeps: u32,
    /// Fewest and most rounds of a sweep.
    pub rounds: (usize, usize),
    /// The width of an interval, relative to the median, that is tight enough.
    pub tight: f64,
    /// Most bytes of weights at a time.
    pub bytes: u64,
    /// After this time, rounds are as few as allowed.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sweeps: 2, rounds: (5, 20), tight: 0.02, bytes: 1 << 29, time: Duration::from_secs(150) }
    }
}

/// What is told while measuring: parts done, of all.
pub type ProfileProgress<'a> = &'a mut dyn FnMut(u64, u64);

/// How the machine behaved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// The share of all cores that other processes took, where the system tells.
    pub others: Option<f64>,
}

/// Parts with more weights than this are large.
const LARGE: u64 = 1 << 25;

/// Measures parts.
pub fn measure(
    parts: &[Part],
    workload: &Workload,
    limits: &Limits,
    rng: &mut ChaCha8Rng,
    progress: ProfileProgress<'_>,
) -> Result<(Vec<Entry>, Noise)> {
    let (begin, load) = (Instant::now(), Load::now());
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); parts.len()];
    let mut bytes: Vec<(u64, u64)> = vec![(0, 0); parts.len()];
    let total = parts.len() as u64 * u64::from(limits.sweeps);
    let mut done = 0;
    for sweep in 0..limits.sweeps {
        // Building a large part takes longer than measuring it: those are gone through once.
        let large = |part: &Part| weight_bytes(part) > LARGE;
        let mut order: Vec<usize> = (0..parts.len()).filter(|&at| sweep == 0 || !large(&parts[at])).collect();
        done += (parts.len() - order.len()) as u64;
        order.shuffle(rng);
        for group in groups(&order, parts, limits.bytes) {
            let late = begin.elapsed() > limits.time;
            let most = if late { limits.rounds.0 } else { limits.rounds.1 };
            measure_group(group, parts, workload, (limits.rounds.0, most), limits.tight, rng, &mut times, &mut bytes)?;
            done += group.len() as u64;
            progress(done, total);
        }
    }
    let entry = |((part, raw), (held, peak)): ((&Part, Vec<f64>), (u64, u64))| {
        let raw_us: Vec<f64> = raw.iter().map(|seconds| 1e6 * seconds).collect();
        let times = Times { raw: raw_us };
        Entry {
            name: part.name.clone(),
            d_model: part.frame.d_model,
            batch: workload.batch,
            seq: part.frame.tgt_len,
            latency_us: Interval::from(&times),
            outliers: times.outliers(),
            peak_bytes: peak,
            held_bytes: held,
            raw_us: times.raw,
        }
    };
    let entries = parts.iter().zip(times).zip(bytes).map(entry).collect();
    Ok((entries, Noise { others: load.and_then(Load::others_since) }))
}

/// Cuts an order into groups whose weights fit into memory together; each has one part at least.
fn groups<'a>(order: &'a [usize], parts: &[Part], limit: u64) -> Vec<&'a [usize]> {
    let mut groups = Vec::new();
    let (mut start, mut sum) = (0, 0);
    for (at, &part) in order.iter().enumerate() {
        let weights = weight_bytes(&parts[part]);
        if at > start && sum + weights > limit {
            groups.push(&order[start..at]);
            (start, sum) = (at, 0);
        }
        sum += weights;
    }
    groups.push(&order[start..]);
    groups
}

fn weight_bytes(part: &Part) -> u64 {
    match part.block {
        Some(block) => 4 * block.kind.cost(&block, &part.frame, &Setting { batch: 1, tgt_len: 1, mem_len: 0 }).params,
        None => {
            let model = Model { frame: part.frame.clone(), blocks: Vec::new() };
            count(&model, &Setting::of(&model)).weight_bytes() as u64
        }
    }
}

#[allow(clippy::too_many_arguments)]
fn measure_group(
    group: &[usize],
    parts: &[Part],
    workload: &Workload,
    rounds: (usize, usize),
    tight: f64,
    rng: &mut ChaCha8Rng,
    times: &mut [Vec<f64>],
    bytes: &mut [(u64, u64)],
) -> Result<()> {
    let mut jobs: Vec<(usize, Resident)> = Vec::new();
    for &at in group {
        let part = &parts[at];
        let held = Workload::held(|| match &part.block {
            Some(block) => workload.block(block, &part.frame, part.storage, 0),
            None => workload.frame(&part.frame, part.storage, 0),
        })?;
        bytes[at] = (held.bytes as u64, (held.bytes + held.transient) as u64);
        jobs.push((at, held));
    }
    let mut here: Vec<Times> = jobs.iter().map(|_| Times { raw: Vec::new() }).collect();
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    for round in 0..rounds.1 {
        order.shuffle(rng);
        let mut open = false;
        for &i in &order {
            if round >= rounds.0 && here[i].spread() <= tight {
                continue;
            }
            open = true;
            let start = Instant::now();
            (jobs[i].1.job)();
            here[i].raw.push(start.elapsed().as_secs_f64());
        }
        if !open {
            break;
        }
    }
    for ((at, _), here) in jobs.iter().zip(here) {
        times[*at].extend(here.raw);
    }
    Ok(())
}
