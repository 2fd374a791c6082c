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

/// Random rounds to find as many architectures within the bounds as the population has.
const FIRST_ROUNDS: usize = 20;

struct Search<'a> {
    space: &'a Space,
    plan: &'a SearchPlan,
    record: &'a mut Record,
    candidates: Vec<Candidate>,
    evaluated: Vec<Evaluated>,
    /// The least latency and memory of anything, for a word to the user.
    least: (f64, f64),
}

/// Searches. Returns every architecture within the bounds, in the order evaluated.
pub fn search(
    space: &Space,
    plan: &SearchPlan,
    record: &mut Record,
    evaluate: Evaluate<'_>,
    watch: Watch<'_>,
) -> Result<Vec<Evaluated>> {
    let mut rng = ChaCha8Rng::seed_from_u64(plan.seed);
    let mut searcher = (plan.searcher.new)(plan.sizes);
    let least = (f64::INFINITY, f64::INFINITY);
    let (candidates, evaluated) = (Vec::new(), Vec::new());
    let mut search = Search { space, plan, record, candidates, evaluated, least };
    let mut new = Novelty::new(space);
    for _ in 0..FIRST_ROUNDS {
        let missing = plan.sizes.population.saturating_sub(search.candidates.len());
        if missing == 0 {
            break;
        }
        for _ in 0..missing {
            if let Some(genome) = new.draw(|space| space.sample(Sampling::Choices, &mut rng)) {
                search.evaluate(genome, evaluate)?;
            }
        }
        watch(0, new.count());
    }
    if search.candidates.is_empty() {
        return Err(search.nothing_fits(new.count()));
    }
    for iteration in 1..=plan.iterations {
        for genome in searcher.propose(&search.candidates, &mut new, &mut rng) {
            search.evaluate(genome, evaluate)?;
        }
        watch(iteration, new.count());
    }
    Ok(search.evaluated)
}

impl Search<'_> {
    /// Evaluates an architecture, and keeps it where it is within the bounds.
    fn evaluate(&mut self, genome: Genome, evaluate: Evaluate<'_>) -> Result<()> {
        let model = self.space.model(&genome);
        let cost = match self.record.get(&model) {
            Some(cost) => cost,
            None => {
                let cost = evaluate(&model)?;
                self.record.add(&model, cost)?;
                cost
            }
        };
        self.least = (self.least.0.min(cost.latency_ms), self.least.1.min(cost.peak_bytes));
        if !self.plan.allows(&cost) {
            return Ok(());
        }
        let evaluated = Evaluated::new(model, cost, self.plan);
        let costs = evaluated.costs(self.plan);
        self.candidates.push(Candidate { genome, costs });
        self.evaluated.push(evaluated);
        Ok(())
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
