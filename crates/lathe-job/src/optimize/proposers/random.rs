//! Random architectures: of many that are drawn within limits, the one that uses the limit best.

use super::{Bench, Proposer};
use crate::optimize::architecture::Architecture;
use crate::optimize::menu::Limits;
use crate::{Result, Watch};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Draws of options.
const DRAWS: usize = 300;

pub struct Random;

impl Proposer for Random {
    fn key(&self) -> &'static str {
        "random"
    }

    fn about(&self) -> &'static str {
        "drawn at random within the limit"
    }

    fn propose(&self, bench: &Bench<'_>, limits: Limits, _: Watch<'_>) -> Result<Option<Architecture>> {
        let mut rng = ChaCha8Rng::seed_from_u64(bench.seed ^ 2);
        let blocks = &bench.menu.choices.blocks;
        // Few uniform draws come near a limit: the share of blocks that stay whole is drawn as well.
        let draw = |rng: &mut ChaCha8Rng| -> Vec<usize> {
            let whole: f64 = rng.random();
            let option = |options: &Vec<lathe_core::Block>, rng: &mut ChaCha8Rng| {
                if rng.random_bool(whole) { 0 } else { rng.random_range(0..options.len()) }
            };
            blocks.iter().map(|options| option(options, rng)).collect()
        };
        let drawn = (0..DRAWS).filter_map(|_| bench.menu.stored(&draw(&mut rng), limits));
        let used = drawn.map(|found| (bench.menu.estimate_us(&found), found));
        Ok(used.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, found)| found))
    }
}
