//! Differentiable searches over the library: PLANER's, PAR's, and ours that mends what goes wrong where weights are trained
//! already. The most probable architecture within limits is proposed; its weights are the library's, as everybody's.

use super::{Bench, Proposer};
use crate::optimize::architecture::Architecture;
use crate::optimize::menu::Limits;
use crate::{Event, Result, Watch};
use lathe_search::differentiable::latency::{CostTable, Target};
use lathe_search::differentiable::run;
use lathe_search::differentiable::settings::{Preset, SearchSettings};
use lathe_search::differentiable::task::Task;

/// A search by a preset.
pub struct Differentiable {
    key: &'static str,
    about: &'static str,
    preset: Preset,
}

pub const MENDED: Differentiable = Differentiable {
    key: "mended",
    about: "a differentiable search with the architecture trained on held-out text",
    preset: Preset::Mended,
};
pub const PLANER: Differentiable =
    Differentiable { key: "planer", about: "PLANER's differentiable search", preset: Preset::Planer };
pub const PAR: Differentiable =
    Differentiable { key: "par", about: "PAR's differentiable search", preset: Preset::Par };

impl Proposer for Differentiable {
    fn key(&self) -> &'static str {
        self.key
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn trains(&self) -> bool {
        true
    }

    fn propose(&self, bench: &Bench<'_>, limits: Limits, watch: Watch<'_>) -> Result<Option<Architecture>> {
        let (menu, training) = (bench.menu, &bench.training);
        let folder = training.folder.join(format!("{}-{:.0}", self.key, limits.us));
        let mut told = |event: run::Event<'_>| {
            if let run::Event::Step(done, total, _) = event {
                watch(Event::Steps { what: "searching", note: self.key, done: done.into(), total: total.into() });
            }
        };
        let outcome = match folder.join("search.json").exists() {
            true => run::resume(&folder, training.registry, &mut told)?,
            false => run::begin(&self.task(bench, limits), &folder, training.registry, &mut told)?,
        };
        watch(Event::Done);
        let surprise = |slot: &Vec<(String, f64)>| slot.iter().map(|(_, p)| -p.max(1e-300).ln()).collect();
        let losses: Vec<Vec<f64>> = outcome.probabilities.iter().map(surprise).collect();
        Ok(menu.best_of(limits, &losses, |_, _| true))
    }
}

impl Differentiable {
    fn task(&self, bench: &Bench<'_>, limits: Limits) -> Task {
        let (menu, training) = (bench.menu, &bench.training);
        // Whatever storage is fastest: bits are chosen after blocks.
        let least = |costs: &Vec<f64>| costs.iter().copied().fold(f64::INFINITY, f64::min);
        let slots: Vec<Vec<f64>> = menu.us.slots.iter().map(|slot| slot.iter().map(least).collect()).collect();
        let fixed = least(&menu.us.frame);
        let baseline = fixed + slots.iter().map(|slot| slot[0]).sum::<f64>();
        let limit = (limits.us - menu.correction.offset) / menu.correction.factor;
        let target = (self.preset != Preset::Par).then_some(Target::Absolute(limit.min(baseline)));
        let choices = &menu.choices;
        Task {
            frame: choices.frame.clone(),
            slots: choices.blocks.clone(),
            baseline: choices.blocks.iter().map(|slot| slot[0]).collect(),
            table: CostTable { slots, fixed, baseline },
            training: training.settings.clone(),
            settings: SearchSettings::preset(self.preset, target),
            options: Some(training.options.clone()),
        }
    }
}
