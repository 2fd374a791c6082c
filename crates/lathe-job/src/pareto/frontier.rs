//! From what was evaluated to a frontier that was measured.

use super::Request;
use super::device::Device;
use crate::event::steps;
use crate::{Error, Event, Result, Watch};
use lathe_core::{Model, Setting};
use lathe_model::count;
use lathe_search::pareto::most_dominant;
use lathe_search::profile::Prediction;
use lathe_search::record::Record;
use lathe_search::search::{Evaluated, SearchPlan, best};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// The frontier of what was evaluated, or as much of it as is to be measured, those that dominate most.
pub(super) fn most_dominant_of<'a>(
    evaluated: &'a [Evaluated],
    plan: &SearchPlan,
    request: &Request,
) -> Vec<&'a Evaluated> {
    let mut found = best(evaluated, plan, request.hull);
    if request.most_measured > 0 && found.len() > request.most_measured {
        let costs: Vec<Vec<f64>> = found.iter().map(|&i| evaluated[i].costs(plan)).collect();
        let mut kept = most_dominant(&costs, request.most_measured);
        // The best quality, which dominates little, is what large baselines are compared with.
        let best = (0..found.len()).min_by(|&a, &b| costs[a][0].total_cmp(&costs[b][0])).unwrap_or(0);
        if !kept.contains(&best) {
            kept.pop();
            kept.push(best);
        }
        found = kept.into_iter().map(|i| found[i]).collect();
    }
    found.into_iter().map(|i| &evaluated[i]).collect()
}

/// What models cost. What counts is measured whole: the frontier, and the baselines beside it, in a random order, so
/// that a machine that becomes slower meanwhile does so for both. What the record knows is not measured again.
pub(super) fn measure(
    device: &Device<'_>,
    request: &Request,
    models: &[&Model],
    record: &mut Record,
    watch: Watch<'_>,
) -> Result<Vec<Prediction>> {
    let mut order: Vec<usize> = (0..models.len()).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(request.seed));
    let mut costs = vec![None; models.len()];
    for (done, at) in order.into_iter().enumerate() {
        watch(steps("measuring the frontier", done, models.len()));
        let model = request.workload.model(models[at])?;
        costs[at] = Some(match record.get(&model) {
            _ if request.no_measure => device.cost(&model)?,
            Some(known) => known,
            None => {
                let cost = device.whole().cost(&model)?;
                record.add(&model, cost)?;
                cost
            }
        });
    }
    watch(Event::Done);
    Ok(costs.into_iter().map(|cost| cost.expect("every model was measured")).collect())
}

/// Points as measured, each with what was predicted of it.
pub(super) type Points = Vec<(Evaluated, Prediction)>;

/// Those that keep the bounds and are on the frontier as measured, the fewest decoder parameters first. Measured anew,
/// some points may turn out to be beyond the bounds, or worse than others.
pub(super) fn keep(mut points: Points, plan: &SearchPlan, hull: bool, watch: Watch<'_>) -> Result<Points> {
    let found = points.len();
    points.retain(|(point, _)| plan.allows(&point.cost));
    if points.len() < found {
        let beyond = found - points.len();
        let message = format!("{beyond} of {found} points were measured to be beyond the bounds, and are left out");
        watch(Event::Message(message));
    }
    if points.is_empty() {
        let found = "nothing within the bounds, once all that the search found was measured";
        return Err(Error::setting("max_latency_ms, max_memory_mb", found, "higher bounds"));
    }
    let as_measured: Vec<Evaluated> = points.iter().map(|(point, _)| point.clone()).collect();
    let mut frontier: Points = best(&as_measured, plan, hull).into_iter().map(|i| points[i].clone()).collect();
    let decoder = |model: &Model| count(model, &Setting::of(model)).decoder_params();
    frontier.sort_by_key(|(one, _)| decoder(&one.model)); // in what is printed, in the figures and in model files
    Ok(frontier)
}
