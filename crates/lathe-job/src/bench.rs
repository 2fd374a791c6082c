//! How long a model takes on this machine, and how much memory.

use crate::measurer::{Measurement, Request};
use crate::{Context, Event, Result, Watch};
use lathe_search::profile::{Interval, cpu};
use serde::Serialize;

/// Intervals may be so wide, relative to the median, before the machine counts as noisy.
const NOISY: f64 = 0.1;

/// What was measured of a model.
#[derive(Debug, Clone, Serialize)]
pub struct Benchmark {
    /// Median and interval of a pass.
    pub latency_ms: Interval,
    /// By the median.
    pub tokens_per_s: f64,
    /// The most memory, if that is known.
    pub peak_bytes: Option<u64>,
    /// Threads that computed.
    pub threads: usize,
    /// Name of the CPU.
    pub cpu: String,
    /// Instructions of the kernels.
    pub instructions: &'static str,
    /// What products were computed in.
    pub precision: String,
    /// Passes.
    pub repetitions: usize,
    /// Each of them.
    pub raw_ms: Vec<f64>,
}

/// Measures a model, whose lengths are those of the workload.
pub fn run(context: &Context<'_>, request: &Request<'_>, watch: Watch<'_>) -> Result<Benchmark> {
    let workload = request.workload;
    let Measurement { latency_ms, peak_bytes, raw_ms, .. } = context.measurer.measure(request)?;
    if let Some(warning) = workload.precision.warning() {
        watch(Event::Warning(warning));
    }
    if latency_ms.spread() > NOISY {
        let percent = 100.0 * latency_ms.spread();
        watch(Event::Warning(format!("the machine is noisy: the interval is {percent:.0} % of the median")));
    }
    Ok(Benchmark {
        latency_ms,
        tokens_per_s: 1000.0 * workload.tokens(request.model) as f64 / latency_ms.median,
        peak_bytes,
        threads: rayon::current_num_threads(),
        cpu: cpu(),
        instructions: lathe_ops::cpu::level().name(),
        precision: workload.precision.available().to_string(),
        repetitions: raw_ms.len(),
        raw_ms,
    })
}
