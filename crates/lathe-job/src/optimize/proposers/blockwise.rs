//! Block by block (Puzzle; Bercovich et al., 2024): the exact best by the sum of scores, and architectures that are best by
//! scores which differ a little, all of them checked whole.

use super::{Bench, Proposer};
use crate::event::steps;
use crate::optimize::architecture::Architecture;
use crate::optimize::menu::Limits;
use crate::{Event, Result, Watch};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Architectures that are checked whole.
const CHECKED: usize = 20;
/// How much scores differ, as a share of each.
const NOISE: f64 = 0.5;

pub struct Blockwise;

impl Proposer for Blockwise {
    fn key(&self) -> &'static str {
        "blockwise"
    }

    fn about(&self) -> &'static str {
        "the exact best by the scores of single blocks, checked whole"
    }

    fn propose(&self, bench: &Bench<'_>, limits: Limits, watch: Watch<'_>) -> Result<Option<Architecture>> {
        let found = near_best(bench, limits, CHECKED.min(bench.evaluations.max(1)), watch);
        Ok(bench.best(found))
    }
}

/// The best by scores, and others that are best by scores that differ a little.
pub(super) fn near_best(bench: &Bench<'_>, limits: Limits, count: usize, watch: Watch<'_>) -> Vec<Architecture> {
    let Some(best) = bench.menu.best(limits) else { return Vec::new() };
    let mut found = vec![best];
    let mut rng = ChaCha8Rng::seed_from_u64(bench.seed);
    for _ in 1..4 * count {
        if found.len() == count {
            break;
        }
        let vary = |score: &f64, rng: &mut ChaCha8Rng| score * (1.0 + NOISE * (2.0 * rng.random::<f64>() - 1.0));
        let losses = bench.menu.losses.options.iter();
        let losses: Vec<Vec<f64>> =
            losses.map(|slot| slot.iter().map(|score| vary(score, &mut rng)).collect()).collect();
        let next = bench.menu.best_of(limits, &losses, |_, _| true);
        if let Some(next) = next.filter(|next| found.iter().all(|one| one.options != next.options)) {
            found.push(next);
        }
    }
    for (i, architecture) in found.iter().enumerate() {
        bench.loss(architecture);
        watch(steps("checking whole models", i + 1, found.len()));
    }
    watch(Event::Done);
    found
}
