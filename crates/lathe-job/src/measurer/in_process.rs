//! Measuring in this process. Latency is what it is in a process of its own; peak memory is what the program's
//! allocator counts while the model is there, and unknown where that does not count.

use super::{Beside, Measurement, Measurer, Request, reference};
use crate::Result;
use lathe_core::Registry;
use lathe_model::folder;
use lathe_ops::allocator;
use lathe_search::measure::{self, Budget, Times};
use lathe_search::profile::Interval;
use lathe_search::workload::Pass;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Measures in this process, one model at a time.
pub struct InProcess {
    registry: Registry,
    /// Two models that run at the same time would measure each other.
    turn: Mutex<()>,
}

impl InProcess {
    /// A measurer.
    pub fn new(registry: &Registry) -> Self {
        Self { registry: *registry, turn: Mutex::new(()) }
    }
}

impl Measurer for InProcess {
    fn measure(&self, request: &Request<'_>) -> Result<Measurement> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let before = allocator::in_use();
        allocator::restart_peak();
        run(request, &self.registry, || counted(before))
    }
}

/// Bytes above those in use before, where the allocator counts.
fn counted(before: usize) -> Option<u64> {
    let above = allocator::peak().saturating_sub(before);
    (above > 0).then_some(above as u64)
}

/// Measures; `peak` tells the most memory so far.
pub(super) fn run(request: &Request<'_>, registry: &Registry, peak: impl Fn() -> Option<u64>) -> Result<Measurement> {
    let limit = Duration::from_secs_f64(request.seconds.clamp(0.0, 3600.0));
    let model = request.model.clone();
    let mut job = match request.weights {
        Some(folder) => request.workload.passes(folder::load_as(folder, model)?, request.seed),
        None => request.workload.whole(model, request.seed)?,
    };
    if request.beside {
        (0..2).for_each(|_| job());
        let peak_bytes = peak(); // before there is anything else
        return beside(limit, job, reference(request.workload, registry)?, peak_bytes);
    }
    let times = measure::measure(Budget { limit, tight: 0.01 }, job);
    let times = Times { raw: times.raw.iter().map(|seconds| 1000.0 * seconds).collect() };
    Ok(Measurement { latency_ms: Interval::from(&times), peak_bytes: peak(), raw_ms: times.raw, beside: None })
}

fn beside(limit: Duration, job: Pass, reference: Pass, peak_bytes: Option<u64>) -> Result<Measurement> {
    let [ratios, others] = measure::measure_beside(limit, job, reference);
    let beside = Beside { ratio: ratios.median(), reference_ms: 1000.0 * others.median() };
    let times = Times { raw: ratios.raw.iter().map(|ratio| ratio * beside.reference_ms).collect() };
    Ok(Measurement { latency_ms: Interval::from(&times), peak_bytes, raw_ms: times.raw, beside: Some(beside) })
}
