//! A search for the frontier of a space: proposals, evaluated one after the other, and the frontier of all of them.

use crate::objective::Objective;
use crate::pareto::{frontier, lower_hull};
use crate::profile::Prediction;
use crate::record::Record;
use crate::searchers::{Candidate, Entry, Novelty, Sizes};
use crate::{Error, Result};
use lathe_core::{Genome, Model, Sampling, Space};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::HashSet;

/// What to search for, and how.
pub struct SearchPlan {
    /// Who proposes.
    pub searcher: &'static Entry,
    /// Numbers of architectures.
    pub sizes: Sizes,
    /// Rounds of proposals after the first, random one.
    pub iterations: u32,
    /// Of all that is random.
    pub seed: u64,
    /// B of the counted objectives.
    pub batch: u32,
    /// What is wanted.
    pub objectives: Vec<&'static Objective>,
    /// The most milliseconds of a pass.
    pub max_latency_ms: f64,
    /// The most memory.
    pub max_peak_bytes: f64,
}

impl SearchPlan {
    /// Whether something that costs so much is within the bounds.
    pub fn allows(&self, cost: &Prediction) -> bool {
        cost.latency_ms <= self.max_latency_ms && cost.peak_bytes <= self.max_peak_bytes
    }
}

/// An architecture that was evaluated and keeps the bounds.
#[derive(Debug, Clone)]
pub struct Evaluated {
    /// What it is.
    pub model: Model,
    /// What it costs on the machine.
    pub cost: Prediction,
    /// The values of the objectives, in their order.
    pub values: Vec<f64>,
}

/// Finds out what a model costs on the machine.
pub type Evaluate<'a> = &'a mut dyn FnMut(&Model) -> Result<Prediction>;
/// Hears of iterations done and architectures evaluated.
pub type Watch<'a> = &'a mut dyn FnMut(u32, usize);

/// Finds out what architectures cost, and whether they keep the bounds.
struct Judge<'a> {
    space: &'a Space,
    record: &'a mut Record,
    evaluate: Evaluate<'a>,
    /// The least latency and memory of anything, for a word to the user.
    least: (f64, f64),
}

/// Searches. Returns every architecture within the bounds, in the order evaluated.
pub fn search<'a>(
    space: &'a Space,
    plan: &SearchPlan,
    record: &'a mut Record,
    evaluate: Evaluate<'a>,
    watch: Watch<'_>,
) -> Result<Vec<Evaluated>> {
    let mut rng = ChaCha8Rng::seed_from_u64(plan.seed);
    let mut searcher = (plan.searcher.new)(plan.sizes);
    let mut judge = Judge { space, record, evaluate, least: (f64::INFINITY, f64::INFINITY) };
    let (mut candidates, mut evaluated) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for iteration in 0..=plan.iterations {
        let mut allows = |genome: &Genome| Ok(plan.allows(&judge.cost(genome)?.1));
        let mut new = Novelty::new(space, &mut seen, &mut allows);
        let found = match iteration {
            0 => new.draw(plan.sizes.population, |space| space.sample(Sampling::Choices, &mut rng))?,
            _ => searcher.propose(&candidates, &mut new, &mut rng)?,
        };
        for genome in found {
            let (model, cost) = judge.cost(&genome)?; // known by now
            let one = Evaluated::new(model, cost, plan);
            candidates.push(Candidate { genome, costs: one.costs(plan) });
            evaluated.push(one);
        }
        watch(iteration, seen.len());
        if candidates.is_empty() {
            return Err(judge.nothing_fits(seen.len()));
        }
    }
    Ok(evaluated)
}

impl Judge<'_> {
    /// An architecture, and what it costs.
    fn cost(&mut self, genome: &Genome) -> Result<(Model, Prediction)> {
        let model = self.space.model(genome);
        let cost = match self.record.get(&model) {
            Some(cost) => cost,
            None => {
                let cost = (self.evaluate)(&model)?;
                self.record.add(&model, cost)?;
                cost
            }
        };
        self.least = (self.least.0.min(cost.latency_ms), self.least.1.min(cost.peak_bytes));
        Ok((model, cost))
    }

    fn nothing_fits(&self, tried: usize) -> Error {
        let (latency, memory) = (self.least.0, self.least.1 / (1 << 20) as f64);
        let found = format!("no architecture within the bounds among {tried} random ones");
        let expected =
            format!("higher bounds: the least that any of them takes is {latency:.3} ms, and {memory:.1} MB");
        Error::setting("max_latency_ms, max_memory_mb", found, expected)
    }
}

impl Evaluated {
    /// A model that costs so much.
    pub fn new(model: Model, cost: Prediction, plan: &SearchPlan) -> Self {
        let values = plan.objectives.iter().map(|objective| objective.value(&model, plan.batch, &cost)).collect();
        Self { model, cost, values }
    }

    /// The values, each as something to be made small.
    pub fn costs(&self, plan: &SearchPlan) -> Vec<f64> {
        plan.objectives.iter().zip(&self.values).map(|(objective, &value)| objective.cost(value)).collect()
    }
}

/// The frontier of architectures, or only what of it is on the lower convex hull.
pub fn best(evaluated: &[Evaluated], plan: &SearchPlan, hull: bool) -> Vec<usize> {
    let costs: Vec<Vec<f64>> = evaluated.iter().map(|one| one.costs(plan)).collect();
    if hull { lower_hull(&costs) } else { frontier(&costs) }
}

/// What the frontier saves against one other model at equal quality or better: the share of its latency and of its memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saving {
    /// By the fastest that is at least as good.
    pub latency: f64,
    /// By the smallest that is at least as good.
    pub memory: f64,
}

/// What a frontier saves against a model, where it has anything as good. Quality is the first objective.
pub fn saving(frontier: &[&Evaluated], against: &Evaluated, plan: &SearchPlan) -> Option<Saving> {
    let quality = |one: &Evaluated| one.costs(plan)[0];
    let as_good: Vec<&&Evaluated> = frontier.iter().filter(|one| quality(one) <= quality(against)).collect();
    let least = |of: fn(&Evaluated) -> f64| as_good.iter().map(|one| of(one)).min_by(f64::total_cmp);
    Some(Saving {
        latency: 1.0 - least(|one| one.cost.latency_ms)? / against.cost.latency_ms,
        memory: 1.0 - least(|one| one.cost.peak_bytes)? / against.cost.peak_bytes,
    })
}
