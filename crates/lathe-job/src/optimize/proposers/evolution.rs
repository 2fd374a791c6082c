//! Evolution over assembled models: from the best by scores on, one or two slots change at a time, and every child is
//! evaluated whole.

use super::blockwise::near_best;
use super::{Bench, Proposer};
use crate::optimize::architecture::Architecture;
use crate::optimize::menu::Limits;
use crate::{Event, Result, Watch};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Architectures that live at a time.
const POPULATION: usize = 8;
/// Draws for a child that is within limits.
const DRAWS: usize = 40;

pub struct Evolution;

impl Proposer for Evolution {
    fn key(&self) -> &'static str {
        "evolution"
    }

    fn about(&self) -> &'static str {
        "from the best by scores on, children evaluated whole"
    }

    fn propose(&self, bench: &Bench<'_>, limits: Limits, watch: Watch<'_>) -> Result<Option<Architecture>> {
        let mut living: Vec<(f64, Architecture)> = near_best(bench, limits, POPULATION, watch)
            .into_iter()
            .map(|architecture| (bench.loss(&architecture), architecture))
            .collect();
        let mut rng = ChaCha8Rng::seed_from_u64(bench.seed ^ 1);
        for i in 0..bench.evaluations {
            let Some((_, parent)) = living.choose(&mut rng).cloned() else { return Ok(None) };
            let Some((_, other)) = living.choose(&mut rng).cloned() else { return Ok(None) };
            let Some(child) = child(bench, limits, [&parent, &other], &mut rng) else { continue };
            if living.iter().any(|(_, one)| one.options == child.options) {
                continue;
            }
            living.push((bench.loss(&child), child));
            living.sort_by(|a, b| a.0.total_cmp(&b.0));
            living.truncate(POPULATION);
            let note = format!("loss {:.4}", living[0].0);
            let (done, total) = (i as u64 + 1, bench.evaluations as u64);
            watch(Event::Steps { what: "evolving", note: &note, done, total });
        }
        watch(Event::Done);
        living.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(living.into_iter().next().map(|(_, architecture)| architecture))
    }
}

/// An architecture within limits that uses most of them: a parent with two slots changed, or with slots of another.
fn child(
    bench: &Bench<'_>,
    limits: Limits,
    [parent, other]: [&Architecture; 2],
    rng: &mut ChaCha8Rng,
) -> Option<Architecture> {
    let blocks = &bench.menu.choices.blocks;
    for _ in 0..DRAWS {
        let mut options = parent.options.clone();
        if rng.random_bool(0.3) {
            options.iter_mut().zip(&other.options).for_each(|(own, other)| {
                if rng.random_bool(0.5) {
                    *own = *other;
                }
            });
        }
        for _ in 0..rng.random_range(1..=3) {
            let slot = rng.random_range(0..options.len());
            options[slot] = rng.random_range(0..blocks[slot].len());
        }
        if let Some(child) = bench.menu.stored(&options, limits)
            && bench.menu.estimate_us(&child) >= 0.9 * limits.us.min(bench.menu.estimate_us(parent))
        {
            return Some(child);
        }
    }
    None
}
