//! What every measurer promises. Nothing here depends on how fast a machine is.

use super::{Measurement, Measurer, Request};
use lathe_core::{Model, Registry, Setting, Spec};
use lathe_model::count;
use lathe_search::workload::{Memory, Mode, Workload};

/// Checks a measurer with small models of a registry that has gpt2, transformer_xl, `s` and `f`.
///
/// # Panics
/// With what is wrong, where the measurer breaks a promise.
pub fn conformance(measurer: &dyn Measurer, registry: &Registry) {
    let small = model("gpt2", "(sf)x1", 32, registry);
    let relative = model("transformer_xl", "(sf)x1", 32, registry);
    for mode in [Mode::Infer, Mode::Decode, Mode::Prompt, Mode::Train] {
        for model in [&small, &relative] {
            let workload = Workload { mode, batch: 2, ..Workload::default() };
            plain(&measure(measurer, model, &workload, false));
        }
    }
    for memory in [Memory::Cached, Memory::Reproject, Memory::None] {
        plain(&measure(measurer, &relative, &Workload { memory, seq: Some(8), ..Workload::default() }, false));
    }
    beside(measurer, &small);
    memory(measurer, registry);
    at_once(measurer, &small);
}

fn model(backbone: &str, layers: &str, d_model: u32, registry: &Registry) -> Model {
    let text = format!(
        "backbone='{backbone}'\nlayers='{layers}'\nd_model={d_model}\nvocab=64\nheads=2\n\
         tgt_len=16\nmem_len=16\nmax_len=16"
    );
    Spec::from_toml(&text, registry).and_then(|spec| spec.model(registry)).expect("a model of the registry")
}

fn measure(measurer: &dyn Measurer, model: &Model, workload: &Workload, beside: bool) -> Measurement {
    let model = workload.model(model).expect("lengths that fit");
    let request = Request { beside, ..Request::new(&model, workload, 0.01) };
    measurer.measure(&request).unwrap_or_else(|error| panic!("{workload}: {error}"))
}

/// A median lies within its interval, and both within what was measured.
fn plain(found: &Measurement) {
    let interval = found.latency_ms;
    assert!(0.0 < interval.low && interval.low <= interval.median && interval.median <= interval.high, "{interval:?}");
    assert!(found.raw_ms.len() >= 3, "few passes: {}", found.raw_ms.len());
    let (least, most) = found.raw_ms.iter().fold((f64::MAX, 0.0f64), |(low, high), &ms| (low.min(ms), high.max(ms)));
    assert!(least <= interval.low && interval.high <= most, "{interval:?} beyond {least} to {most}");
    assert!(found.beside.is_none());
}

/// Beside the reference there is a ratio, and latencies are told at the reference's speed.
fn beside(measurer: &dyn Measurer, model: &Model) {
    let found = measure(measurer, model, &Workload::default(), true);
    let beside = found.beside.expect("a measurement beside the reference");
    assert!(beside.ratio > 0.0 && beside.reference_ms > 0.0, "{beside:?}");
    let told = beside.ratio * beside.reference_ms;
    assert!((found.latency_ms.median / told - 1.0).abs() < 1e-9, "{} is not {told}", found.latency_ms.median);
}

/// Where peak memory is known, it has room for the weights, and a much larger model has a higher one.
fn memory(measurer: &dyn Measurer, registry: &Registry) {
    let sizes = [64, 1024].map(|d_model| {
        let model = model("gpt2", "(sf)x2", d_model, registry);
        let weights = count(&model, &Setting::of(&model)).weight_bytes();
        let peak = measure(measurer, &model, &Workload::default(), false).peak_bytes;
        assert!(peak.is_none_or(|peak| u128::from(peak) >= weights), "{peak:?} for {weights} bytes of weights");
        peak
    });
    let [small, large] = sizes;
    assert_eq!(small.is_some(), large.is_some());
    assert!(small <= large, "{small:?} {large:?}");
}

/// Two requests at once are both answered.
fn at_once(measurer: &dyn Measurer, model: &Model) {
    std::thread::scope(|scope| {
        let asked = [(); 2].map(|()| scope.spawn(|| measure(measurer, model, &Workload::default(), false)));
        asked.into_iter().for_each(|found| plain(&found.join().expect("a measurement")));
    });
}
