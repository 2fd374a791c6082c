//! When what is trained: in rounds, each first its weight steps and then its architecture steps, so that where a search
//! is, is one number, the *tick*: how many steps of either kind are done.

use super::settings::SearchSettings;

/// One step of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Of the weights, counted from 0 over the whole search.
    Weights {
        /// Which.
        step: u32,
    },
    /// Of the architecture, counted from 0 in its round.
    Architecture {
        /// Which.
        step: u32,
    },
}

/// The order of all steps.
#[derive(Debug, Clone)]
pub struct StepPlan {
    /// For each round, its first tick and its first weight step; then the ends.
    rounds: Vec<(u32, u32)>,
    /// Rounds without architecture steps.
    off: u32,
    temperature: f64,
    annealing: f64,
    floor: f64,
}

impl StepPlan {
    /// Whether a round leaves the architecture alone.
    pub fn is_off(&self, round: u32) -> bool {
        round < self.off
    }

    /// The plan for so many weight steps.
    pub fn new(settings: &SearchSettings, steps: u32) -> Self {
        let count = settings.rounds.min(steps).max(1);
        // The last round always trains the architecture.
        let off = ((settings.arch_off * f64::from(count)).ceil() as u32).min(count - 1);
        let first = |round: u32| (u64::from(round) * u64::from(steps) / u64::from(count)) as u32;
        let mut rounds = Vec::with_capacity(count as usize + 1);
        let mut tick = 0;
        for round in 0..count {
            rounds.push((tick, first(round)));
            let weights = first(round + 1) - first(round);
            let architecture = match round >= off && settings.arch_share > 0.0 {
                true => ((settings.arch_share * f64::from(weights)).round() as u32).max(1),
                false => 0,
            };
            tick += weights + architecture;
        }
        rounds.push((tick, steps));
        let (temperature, annealing, floor) = (settings.temperature, settings.annealing, settings.temperature_floor);
        Self { rounds, off, temperature, annealing, floor }
    }

    /// All ticks.
    pub fn ticks(&self) -> u32 {
        self.rounds[self.rounds.len() - 1].0
    }

    /// All architecture steps.
    pub fn architecture_steps(&self) -> u32 {
        let (ticks, steps) = self.rounds[self.rounds.len() - 1];
        ticks - steps
    }

    /// Rounds.
    pub fn rounds(&self) -> u32 {
        self.rounds.len() as u32 - 1
    }

    /// The round that a tick is in.
    pub fn round(&self, tick: u32) -> u32 {
        (self.rounds.partition_point(|&(first, _)| first <= tick) as u32 - 1).min(self.rounds() - 1)
    }

    /// The tick after the last of a round.
    pub fn end(&self, round: u32) -> u32 {
        self.rounds[round as usize + 1].0
    }

    /// What a tick does.
    pub fn at(&self, tick: u32) -> Step {
        let round = self.round(tick) as usize;
        let ((tick_of, step_of), (_, next)) = (self.rounds[round], self.rounds[round + 1]);
        let within = tick - tick_of;
        match within.checked_sub(next - step_of) {
            None => Step::Weights { step: step_of + within },
            Some(step) => Step::Architecture { step },
        }
    }

    /// The temperature of a round: falling from the first on in which the architecture is trained, to a floor.
    pub fn temperature(&self, round: u32) -> f64 {
        let annealed = round.saturating_sub(self.off).min(i32::MAX as u32) as i32;
        (self.temperature * self.annealing.powi(annealed)).max(self.floor.min(self.temperature))
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::Preset;
    use super::*;

    fn settings() -> SearchSettings {
        SearchSettings { rounds: 4, arch_off: 0.25, ..SearchSettings::preset(Preset::Planer, None) }
    }

    #[test]
    fn weights_come_first_in_each_round_and_the_architecture_waits() {
        let plan = StepPlan::new(&settings(), 42);
        let steps: Vec<Step> = (0..plan.ticks()).map(|tick| plan.at(tick)).collect();
        let weights: Vec<u32> = steps
            .iter()
            .filter_map(|step| if let Step::Weights { step } = step { Some(*step) } else { None })
            .collect();
        assert_eq!(weights, (0..42).collect::<Vec<_>>());
        let shown: String =
            steps.iter().map(|step| if matches!(step, Step::Weights { .. }) { 'w' } else { 'a' }).collect();
        let (ten, eleven) = ("w".repeat(10), "w".repeat(11));
        assert_eq!(shown, format!("{ten}{eleven}aa{ten}aa{eleven}aa"));
        assert_eq!(steps[plan.ticks() as usize - 1], Step::Architecture { step: 1 });
        assert_eq!((plan.architecture_steps(), plan.round(0), plan.round(10), plan.round(22)), (6, 0, 1, 1));
        assert_eq!((plan.round(plan.ticks()), plan.end(3)), (3, plan.ticks()));
    }

    #[test]
    fn temperatures_fall_to_the_floor() {
        let plan = StepPlan::new(&settings(), 42);
        let found: Vec<f64> = (0..4).map(|round| plan.temperature(round)).collect();
        assert_eq!(found, [5.0, 5.0, 3.0, 5.0 * 0.6f64.powi(2)]);
        let plan = StepPlan::new(&SearchSettings { rounds: 20, ..settings() }, 42);
        assert_eq!(plan.temperature(19), 0.5);
    }

    /// Iterations * batch * length / tokens of the text, and the printed annealing.
    #[test]
    fn presets_take_turns_as_often_as_the_papers_have_epochs() {
        let (wikitext, enwik8) = (103_227_021.0, 90e6);
        for (preset, epochs, annealing) in [
            (Preset::Planer, 40_000.0 * 256.0 * 192.0 / wikitext, 0.6),
            (Preset::PlanerEnwik8, 120_000.0 * 64.0 * 512.0 / enwik8, 0.7),
            (Preset::Par, 40_000.0 * 128.0 * 192.0 / wikitext, 1.0),
        ] {
            let settings = SearchSettings::preset(preset, None);
            assert!((f64::from(settings.rounds) - epochs).abs() < 1.0, "{preset:?}: {epochs}");
            assert_eq!(settings.annealing, annealing, "{preset:?}");
        }
    }

    #[test]
    fn more_rounds_than_steps_are_as_many() {
        let plan = StepPlan::new(&SearchSettings { rounds: 100, arch_off: 1.0, ..settings() }, 3);
        assert_eq!((plan.rounds(), plan.ticks(), plan.architecture_steps()), (3, 4, 1));
    }
}
