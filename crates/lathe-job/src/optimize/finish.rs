//! A recovered model as it is given: its weights stored, by what flows through them.

use super::decide::Point;
use super::job::{FOUND, Job};
use super::menu::Menu;
use super::scores::rounding;
use crate::quantize::choose_activations;
use crate::{Event, Result, Watch};
use lathe_model::quantize::{self, Tuner, Tuning};
use lathe_model::{Network, folder};
use std::path::PathBuf;

/// Formats of at most so many bits are tuned.
const TUNED_BITS: u32 = 4;
/// Most steps, sequences of a step, and how much a step may change a scale.
const TUNING: (u32, usize, f32) = (60, 8, 0.003);

impl Job<'_> {
    /// Stores the weights of a model of the frontier. Returns its folder.
    pub(super) fn finish(&self, menu: &Menu, point: &Point, watch: Watch<'_>) -> Result<PathBuf> {
        let out = match point.name.as_str() {
            FOUND => self.path(FOUND),
            name => self.path("frontier").join(name),
        };
        if out.join("config.json").exists() {
            return Ok(out);
        }
        let mut network = folder::load(&point.candidate.folder, self.context.registry)?;
        self.store(menu, point, &mut network, watch)?;
        folder::save(&network, &out)?;
        self.tokenizer.save(&out)?;
        crate::prune::vocabulary::carry_token_ids(self.teacher_folder(), &out, None)?;
        Ok(out)
    }

    /// Stores the weights of a network as an architecture says.
    fn store(&self, menu: &Menu, point: &Point, network: &mut Network, watch: Watch<'_>) -> Result<()> {
        let (choices, architecture) = (&menu.choices, &point.candidate.architecture);
        let settings = rounding(choices, architecture);
        let formats: Vec<_> = settings.slots.iter().copied().chain([settings.output]).collect();
        if formats.iter().any(Option::is_some) {
            let sequences = self.calibration()?;
            quantize::calibrated(network, &settings, &sequences, &mut |done, total| {
                watch(Event::Steps { what: "rounding", note: &point.name, done: done as u64, total: total as u64 });
            });
            watch(Event::Done);
            let few_bits = formats.iter().flatten().any(|format| format.bits() <= TUNED_BITS);
            if few_bits && !network.log_probabilities() && network.has_head() {
                let original = folder::load(&point.candidate.folder, self.context.registry)?;
                let (most, batch, rate) = TUNING;
                let steps = (2 * self.plan.amounts.first_steps).clamp(8, most);
                let tuning = Tuning { steps, batch, rate, seed: self.plan.asked.seed.into() };
                let mut tuner = Tuner::new(network, tuning);
                while tuner.steps() < steps {
                    let note = format!("KL {:.4}", tuner.step(network, &original, &sequences));
                    let (done, total) = (tuner.steps().into(), steps.into());
                    watch(Event::Steps { what: "tuning scales", note: &note, done, total });
                }
                tuner.end(network);
                watch(Event::Done);
            }
            choose_activations(network, &sequences);
        }
        for (at, slot) in choices.slots(architecture).into_iter().enumerate() {
            let storage = choices.storages[architecture.storages[slot]];
            if storage.format().is_none() {
                network.set_slot_storage(at, storage);
            }
        }
        let storage = choices.storages[architecture.frame];
        if storage.format().is_none() {
            network.set_frame_storage(storage);
        }
        Ok(())
    }
}
