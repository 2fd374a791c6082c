//! The race: what the search gave and plain ways to the same latency, in short trainings, and those that come out close in whole
//! ones. A search as short as these is a guess, and a guess is worth a test.

use super::stages::{CHOOSING, COMPARED, FOUND, OptimizeJob, Searched, Try, share_of};
use crate::input::{read_json, write_json};
use crate::optimize::pair;
use crate::{Error, Event, Result, Watch};
use lathe_core::{Block, Role, notation};
use lathe_search::profile::ProfileTable;
use lathe_train::run;
use lathe_train::settings::Settings;
use serde::{Deserialize, Serialize};

/// What the search found, in the race.
const SEARCHED: &str = "searched";
/// Steps of a short training, as a share of a whole one's.
const SHARE: f64 = 0.25;
/// Losses of short trainings that lie so close to the best, relative to it, decide nothing: that much they vary by chance.
const DRAW: f64 = 0.02;
/// The most that are trained to the end.
const FINALISTS: usize = 2;

/// An architecture in the race.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Runner {
    /// Where it comes from.
    pub name: String,
    /// The architecture.
    pub layers: String,
    /// Its measured latency as a share of the baseline's.
    pub measured: f64,
    /// The loss on the text to validate on after a short training; none for what was too slow to run.
    pub loss: Option<f64>,
    /// What that training took.
    pub seconds: f64,
    /// The training to the end, of those that had one.
    pub whole: Option<Whole>,
}

/// A training to the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Whole {
    /// The loss on the text to validate on.
    pub loss: f64,
    /// What it took.
    pub seconds: f64,
}

/// The architecture that is given, and how it was come by.
#[derive(Debug, Clone, Serialize)]
pub struct Chosen {
    /// The architecture.
    pub layers: String,
    /// Where it comes from.
    pub name: String,
    /// The target as a share of the baseline's latency.
    pub target: f64,
    /// Everything that was measured on the way to what the search gave.
    pub tries: Vec<Try>,
    /// What the search itself gave, by the table alone.
    pub estimated: f64,
    /// Who was tried.
    pub race: Vec<Runner>,
    /// Steps of each short training.
    pub race_steps: u32,
}

impl OptimizeJob {
    /// Short trainings of what the search gave and of plain ways to the same latency, if they meet the target.
    pub fn race(&self, table: &ProfileTable, searched: &Searched, watch: Watch<'_>) -> Result<Vec<Runner>> {
        let path = self.out.join("race.json");
        if !path.exists() {
            write_json(&path, &self.runners(table, searched)?)?; // what was measured stays so, whenever this is killed
        }
        let mut race: Vec<Runner> = read_json(&path)?;
        for runner in race.iter_mut().filter(|one| one.measured <= searched.target || one.name == SEARCHED) {
            let outcome = self.try_out(runner, watch)?;
            runner.loss = outcome.valid.map(|valid| valid.loss);
            runner.seconds = outcome.seconds;
        }
        watch(Event::Done);
        Ok(race)
    }

    /// Who runs, all different, with their latencies.
    fn runners(&self, table: &ProfileTable, searched: &Searched) -> Result<Vec<Runner>> {
        let mut race: Vec<Runner> = Vec::new();
        let found = (SEARCHED.to_string(), searched.layers.clone());
        for (name, layers) in std::iter::once(found).chain(self.plain(table, searched.estimated_us)?) {
            if race.iter().any(|one| one.layers == layers) {
                continue;
            }
            let measured = match searched.tries.iter().find(|one| one.layers == layers) {
                Some(one) => one.measured,
                None => {
                    let model = self.model(&layers)?;
                    pair::measure(&self.baseline, &model, &self.plan.workload, CHOOSING / 2)?.share
                }
            };
            race.push(Runner { name, layers, measured, loss: None, seconds: 0.0, whole: None });
        }
        Ok(race)
    }

    fn try_out(&self, runner: &Runner, watch: Watch<'_>) -> Result<run::Outcome> {
        let place = format!("race/{}", runner.name);
        let steps = share_of(self.plan.steps, SHARE);
        let settings = self.training(&self.out.join(&place));
        let settings = Settings { steps, eval_every: steps, patience: 0, ..settings };
        let what = format!("trying {}", runner.name);
        self.train_as(&place, settings, &runner.layers, true, &mut |event| {
            if let run::Event::Step(step) = event {
                let (done, total) = (step.step.into(), step.steps.into());
                watch(Event::Steps { what: &what, note: &runner.layers, done, total });
            }
        })
    }

    /// Trains whoever won the race to the end, and where it was close the second as well; the better one is what was found.
    pub fn finals(&self, searched: &Searched, race: &[Runner], watch: Watch<'_>) -> Result<(Chosen, run::Outcome)> {
        let mut race = race.to_vec();
        let mut best: Option<(usize, run::Outcome)> = None;
        let loss = |outcome: &run::Outcome| outcome.valid.as_ref().map_or(f64::INFINITY, |valid| valid.loss);
        for i in finalists(&race, searched.target) {
            let Runner { name, layers, .. } = &race[i];
            watch(Event::Part(format!("train {name}, {layers}")));
            let outcome = self.train(&format!("{COMPARED}/{name}"), layers, watch)?;
            race[i].whole = Some(Whole { loss: loss(&outcome), seconds: outcome.seconds });
            if best.as_ref().is_none_or(|(_, before)| loss(&outcome) < loss(before)) {
                best = Some((i, outcome));
            }
        }
        let (i, outcome) = best.ok_or_else(|| Error::data("race", "nobody", "somebody who ran"))?;
        let Runner { name, layers, .. } = race[i].clone();
        self.adopt(&self.out.join(COMPARED).join(&name), FOUND)?;
        let chosen = Chosen {
            layers,
            name,
            target: searched.target,
            tries: searched.tries.clone(),
            estimated: searched.estimated,
            race,
            race_steps: share_of(self.plan.steps, SHARE),
        };
        write_json(&self.out.join("chosen.json"), &chosen)?;
        Ok((chosen, outcome))
    }

    /// Plain ways to a latency: fewer layers, and narrower ones.
    fn plain(&self, table: &ProfileTable, limit_us: f64) -> Result<Vec<(String, String)>> {
        let costs = self.costs(table)?;
        let sum = |blocks: &[Block]| self.sum(&costs, blocks);
        let mut ways = Vec::new();
        // The most layers of the baseline that take no longer, or one block where even that does.
        let n = self.baseline.blocks.len();
        let length = (1..=n).rev().find(|&length| sum(&self.baseline.blocks[..length]) <= limit_us).unwrap_or(1);
        ways.push(("layer-scaled".to_string(), notation::print(&self.baseline.blocks[..length])));
        // All layers, with fewer heads and a narrower inner width, whatever uses the time best.
        let of_role = |role: Role| self.slots[0].iter().filter(move |option| is(option, role)).copied();
        let mut narrow: Option<(f64, Vec<Block>)> = None;
        for mixing in of_role(Role::MixesTokens) {
            for per_token in of_role(Role::PerToken) {
                let swap = |block: &Block| match block {
                    block if is(block, Role::MixesTokens) => mixing,
                    block if is(block, Role::PerToken) => per_token,
                    block => *block,
                };
                let blocks: Vec<Block> = self.baseline.blocks.iter().map(swap).collect();
                let cost = sum(&blocks);
                if cost <= limit_us && narrow.as_ref().is_none_or(|(most, _)| cost > *most) {
                    narrow = Some((cost, blocks));
                }
            }
        }
        ways.extend(narrow.map(|(_, blocks)| ("narrower".to_string(), notation::print(&blocks))));
        Ok(ways)
    }
}

/// Whether a block of reference implementations has a role.
fn is(block: &Block, role: Role) -> bool {
    block.kind.in_references() && block.kind.role() == role
}

/// Who is trained to the end: of those that meet the target the best and whoever is close to it; where nobody does, the fastest.
fn finalists(race: &[Runner], target: f64) -> Vec<usize> {
    let loss = |i: usize| race[i].loss.unwrap_or(f64::INFINITY);
    let mut meet: Vec<usize> = (0..race.len()).filter(|&i| race[i].measured <= target).collect();
    meet.sort_by(|&a, &b| loss(a).total_cmp(&loss(b)));
    match meet.first() {
        Some(&best) => meet.into_iter().filter(|&i| loss(i) <= (1.0 + DRAW) * loss(best)).take(FINALISTS).collect(),
        None => (0..race.len()).min_by(|&a, &b| race[a].measured.total_cmp(&race[b].measured)).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_are_fast_and_close_are_trained_to_the_end() {
        let runner = |(measured, loss): (f64, f64)| Runner {
            name: String::new(),
            layers: String::new(),
            measured,
            loss: Some(loss),
            seconds: 0.0,
            whole: None,
        };
        let finals = |race: &[(f64, f64)]| finalists(&race.iter().copied().map(runner).collect::<Vec<_>>(), 0.5);
        assert_eq!(finals(&[(0.49, 2.1), (0.48, 2.0), (0.47, 2.2)]), [1]);
        assert_eq!(finals(&[(0.49, 2.03), (0.48, 2.0), (0.47, 2.02)]), [1, 2]);
        assert_eq!(finals(&[(0.51, 1.0), (0.5, 2.0), (0.4, 2.03)]), [1, 2]);
        assert_eq!(finals(&[(0.7, 1.0), (0.6, 2.0), (0.65, 1.5)]), [1]);
    }
}
