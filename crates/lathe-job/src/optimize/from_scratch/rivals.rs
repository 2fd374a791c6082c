//! Other ways to a faster model, trained and measured beside what was found.

use super::race::Chosen;
use super::stages::{BASELINE, CHOOSING, COMPARED, OptimizeJob};
use crate::input::{read_json, write_json};
use crate::optimize::pair::{self, Pair};
use crate::{Event, Result, Watch};
use lathe_core::{Model, Sampling};
use lathe_model::design;
use lathe_search::profile::ProfileTable;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// What was measured of them.
const MEASURED: &str = "compared.json";
/// Random architectures among the rivals.
const RANDOM: usize = 2;
/// Draws for each of them, of which the one that comes closest to the latency is taken.
const DRAWS: usize = 2000;

/// Another way to a faster model.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Compared {
    pub name: String,
    pub layers: String,
    pub pair: Pair,
}

impl OptimizeJob {
    /// Names and layers of other ways: the others of the race, which are of about the same latency, the papers' rules, and random
    /// architectures of the latency of what was found.
    pub fn rivals(&self, table: &ProfileTable, chosen: &Chosen) -> Result<Vec<(String, String)>> {
        let costs = self.costs(table)?;
        let sum = |model: &Model| self.sum(&costs, &model.blocks);
        let limit = sum(&self.model(&chosen.layers)?);
        let n = self.baseline.blocks.len();
        let mut rivals: Vec<_> = chosen.race.iter().map(|one| (one.name.clone(), one.layers.clone())).collect();
        if let Ok(layers) = design::par(n, 5.0, None) {
            rivals.push(("par".to_string(), layers));
        }
        if let Ok(layers) = design::sandwich(n, n / 6) {
            rivals.push(("sandwich".to_string(), layers));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.plan.seed.into());
        for i in 1..=RANDOM {
            let drawn = (0..DRAWS).map(|_| self.space.model(&self.space.sample(Sampling::Choices, &mut rng)));
            let fits = drawn.map(|model| (sum(&model), model)).filter(|(sum, _)| *sum <= limit);
            if let Some((_, model)) = fits.max_by(|a, b| a.0.total_cmp(&b.0)) {
                rivals.push((format!("random-{i}"), model.layers()));
            }
        }
        rivals.retain(|(_, layers)| *layers != chosen.layers);
        Ok(rivals)
    }

    /// Whether other ways were measured before: they then stay in the report.
    pub fn has_compared(&self) -> bool {
        self.out.join(MEASURED).exists()
    }

    /// Measures them, trained, beside the baseline.
    pub fn compare(&self, rivals: &[(String, String)], watch: Watch<'_>) -> Result<Vec<Compared>> {
        let path = self.out.join(MEASURED);
        if rivals.is_empty() || path.exists() {
            return if rivals.is_empty() { Ok(Vec::new()) } else { read_json(&path) };
        }
        let mut compared = Vec::new();
        for (name, layers) in rivals {
            let (done, total) = (compared.len() as u64, rivals.len() as u64);
            watch(Event::Steps { what: "measuring other ways", note: layers, done, total });
            let folders = [BASELINE.to_string(), format!("{COMPARED}/{name}")].map(|name| self.out.join(name));
            let pair =
                pair::measure_trained([&folders[0], &folders[1]], &self.plan.workload, CHOOSING, &self.registry)?;
            compared.push(Compared { name: name.clone(), layers: layers.clone(), pair });
        }
        watch(Event::Done);
        write_json(&path, &compared)?;
        Ok(compared)
    }
}
