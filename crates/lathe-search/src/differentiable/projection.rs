//! The most probable architecture that meets a target: the most probable options of all slots together may cost more
//! than the mixture they stand for.
//!
//! Maximise sum over slots of ln P_i, subject to fixed + sum of Lat_i <= limit: a knapsack with one pick per slot.
//! Slot by slot the partial architectures are kept that nothing cheaper beats in probability, so that the result is
//! exact; partial ones that cannot meet the limit any more, or cannot beat an architecture that is known, are let go.
//! Only where more than `MOST` are left are they thinned out, and the result says that it is no longer exact.

use super::latency::CostTable;

/// The most partial architectures that are kept.
const MOST: usize = 200_000;

/// The most probable architecture within a limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Projected {
    /// The option of each slot.
    pub choice: Vec<usize>,
    /// Whether none within the limit is more probable.
    pub exact: bool,
}

/// A partial architecture.
#[derive(Clone, Copy)]
struct Partial {
    cost: f64,
    log_p: f64,
    /// Where its last option and what went before stand.
    option: usize,
    before: usize,
}

/// The most probable architecture, by ln P of each option, that costs at most `limit`; `None` where there is none.
pub fn project(log_p: &[Vec<f64>], table: &CostTable, limit: f64) -> Option<Projected> {
    project_keeping(log_p, table, limit, MOST)
}

fn project_keeping(log_p: &[Vec<f64>], table: &CostTable, limit: f64, most: usize) -> Option<Projected> {
    // A sum in another order may differ in its last bits.
    let limit = limit + 1e-9 * limit.abs();
    let least = |list: &Vec<f64>| list.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = |list: &Vec<f64>| list.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // What the slots from here on cost at least, and how probable they are at most.
    let mut rest = vec![(0.0, 0.0)];
    for (costs, log_p) in table.slots.iter().zip(log_p).rev() {
        let (cost, best) = rest[rest.len() - 1];
        rest.push((cost + least(costs), best + greatest(log_p)));
    }
    rest.reverse();
    if table.fixed + rest[0].0 > limit {
        return None;
    }
    let fallback = known(log_p, table, limit)?;
    let known: f64 = fallback.iter().zip(log_p).map(|(&option, log_p)| log_p[option]).sum();
    let mut exact = true;
    let mut levels: Vec<Vec<Partial>> = vec![vec![Partial { cost: table.fixed, log_p: 0.0, option: 0, before: 0 }]];
    for (s, (costs, log_p)) in table.slots.iter().zip(log_p).enumerate() {
        let (cost_left, log_p_left) = rest[s + 1];
        let mut next = Vec::new();
        for (before, partial) in levels[s].iter().enumerate() {
            for (option, (cost, log_p)) in costs.iter().zip(log_p).enumerate() {
                let (cost, log_p) = (partial.cost + cost, partial.log_p + log_p);
                // Sums that differ only in their last bits may be the known one itself.
                if cost + cost_left <= limit && log_p + log_p_left >= known - 1e-9 * known.abs() {
                    next.push(Partial { cost, log_p, option, before });
                }
            }
        }
        levels.push(thin(frontier(next), most, &mut exact));
    }
    let last = &levels[levels.len() - 1];
    let best = (0..last.len()).max_by(|&a, &b| last[a].log_p.total_cmp(&last[b].log_p).then(b.cmp(&a)));
    // Thinning may have lost what the known one is made of.
    let Some(mut at) = best else { return Some(Projected { choice: fallback, exact: false }) };
    let mut choice = vec![0; table.slots.len()];
    for (s, level) in levels.iter().enumerate().skip(1).rev() {
        choice[s - 1] = level[at].option;
        at = level[at].before;
    }
    Some(Projected { choice, exact })
}

/// Those that nothing cheaper, or as cheap, beats or equals in probability, by cost.
fn frontier(mut partials: Vec<Partial>) -> Vec<Partial> {
    partials.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(b.log_p.total_cmp(&a.log_p)));
    let mut best = f64::NEG_INFINITY;
    partials.retain(|partial| {
        let keep = partial.log_p > best;
        best = best.max(partial.log_p);
        keep
    });
    partials
}

/// At most so many: the cheapest, and of each range of costs the most probable.
fn thin(partials: Vec<Partial>, most: usize, exact: &mut bool) -> Vec<Partial> {
    if partials.len() <= most {
        return partials;
    }
    *exact = false;
    let (low, high) = (partials[0].cost, partials[partials.len() - 1].cost);
    let range = |partial: &Partial| ((partial.cost - low) / (high - low) * most as f64) as usize;
    // By cost they are also by probability, so that the last of a range is its most probable.
    let last = |i: &usize| *i == 0 || i + 1 == partials.len() || range(&partials[*i]) != range(&partials[i + 1]);
    (0..partials.len()).filter(last).map(|i| partials[i]).collect()
}

/// An architecture within the limit: from the most probable one on, the exchange that saves most for what it loses,
/// until it fits.
fn known(log_p: &[Vec<f64>], table: &CostTable, limit: f64) -> Option<Vec<usize>> {
    let mut choice: Vec<usize> = log_p.iter().map(|log_p| super::gumbel::argmax(log_p)).collect();
    while table.of(&choice) > limit {
        let mut best: Option<(f64, usize, usize)> = None;
        for (s, costs) in table.slots.iter().enumerate() {
            for (option, cost) in costs.iter().enumerate().filter(|(_, cost)| **cost < costs[choice[s]]) {
                let price = (log_p[s][choice[s]] - log_p[s][option]) / (costs[choice[s]] - cost);
                if best.is_none_or(|(least, _, _)| price < least) {
                    best = Some((price, s, option));
                }
            }
        }
        let (_, slot, option) = best?;
        choice[slot] = option;
    }
    Some(choice)
}

#[cfg(test)]
mod tests {
    use super::super::gumbel::softmax;
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Tries every architecture.
    fn by_trying(log_p: &[Vec<f64>], table: &CostTable, limit: f64) -> Option<f64> {
        let mut best: Option<f64> = None;
        let all: usize = table.slots.iter().map(Vec::len).product();
        for mut index in 0..all {
            let digit = |costs: &Vec<f64>| {
                let digit = index % costs.len();
                index /= costs.len();
                digit
            };
            let choice: Vec<usize> = table.slots.iter().map(digit).collect();
            if table.of(&choice) <= limit {
                let sum: f64 = choice.iter().zip(log_p).map(|(&option, log_p)| log_p[option]).sum();
                best = Some(best.map_or(sum, |best| best.max(sum)));
            }
        }
        best
    }

    fn random(slots: usize, options: usize, rng: &mut ChaCha8Rng) -> (Vec<Vec<f64>>, CostTable) {
        let mut numbers = |scale: f64| -> Vec<f64> { (0..options).map(|_| scale * rng.random::<f64>()).collect() };
        let slots: Vec<(Vec<f64>, Vec<f64>)> = (0..slots).map(|_| (numbers(4.0), numbers(10.0))).collect();
        let (alphas, costs): (Vec<_>, Vec<_>) = slots.into_iter().unzip();
        let log_p = alphas.iter().map(|alpha| softmax(alpha, 1.0).into_iter().map(f64::ln).collect()).collect();
        (log_p, CostTable { slots: costs, fixed: 1.0, baseline: 1.0 })
    }

    #[test]
    fn it_is_what_trying_all_finds() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for _ in 0..40 {
            let (log_p, table) = random(5, 4, &mut rng);
            for limit in [2.0, 5.0, 12.0, 20.0, 60.0] {
                let found = project(&log_p, &table, limit);
                let sum = found.as_ref().map(|found| {
                    assert!(found.exact && table.of(&found.choice) <= limit * (1.0 + 1e-8));
                    found.choice.iter().zip(&log_p).map(|(&option, log_p)| log_p[option]).sum::<f64>()
                });
                let expected = by_trying(&log_p, &table, limit);
                assert_eq!(sum.is_some(), expected.is_some());
                assert!((sum.unwrap_or(0.0) - expected.unwrap_or(0.0)).abs() < 1e-9, "{sum:?} is not {expected:?}");
            }
        }
    }

    #[test]
    fn without_a_limit_it_is_the_most_probable_of_each_slot() {
        let (log_p, table) = random(32, 8, &mut ChaCha8Rng::seed_from_u64(6));
        let found = project(&log_p, &table, f64::MAX).unwrap();
        assert!(found.choice.iter().zip(&log_p).all(|(&option, log_p)| log_p.iter().all(|&p| p <= log_p[option])));
    }

    #[test]
    fn as_large_as_the_papers_spaces() {
        let (log_p, table) = random(32, 8, &mut ChaCha8Rng::seed_from_u64(7));
        let found = project(&log_p, &table, 90.0).unwrap();
        assert!(found.exact && table.of(&found.choice) <= 90.0);
    }

    #[test]
    fn thinned_out_it_still_meets_the_limit() {
        let (log_p, table) = random(12, 6, &mut ChaCha8Rng::seed_from_u64(8));
        let found = project_keeping(&log_p, &table, 45.0, 10).unwrap();
        assert!(!found.exact && table.of(&found.choice) <= 45.0);
        assert_eq!(project(&log_p, &table, 0.5), None);
    }
}
