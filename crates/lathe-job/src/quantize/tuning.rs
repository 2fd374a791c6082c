//! Tuning that survives being killed: checkpoints in the folder of the result, of which the first has the rounded model.

use lathe_core::Registry;
use lathe_model::Network;
use lathe_model::folder::{self, Tensor, TensorFile, write_tensors};
use lathe_model::quantize::{Tuner, Tuning};
use lathe_train::checkpoint;
use lathe_train::resumable::{self, Next, Resumable};
use lathe_train::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Steps between two checkpoints.
const EVERY: u32 = 20;

/// A network whose scales are being trained.
pub(super) struct Work<'a> {
    registry: &'a Registry,
    tuning: Tuning,
    network: Network,
    /// There from the first step on.
    tuner: Option<Tuner>,
}

#[derive(Serialize, Deserialize)]
struct Progress {
    step: u32,
}

/// The rounded network of a tuning that was stopped.
pub(super) fn rounded(folder: &Path, registry: &Registry) -> Option<Network> {
    let first = checkpoint::path(&resumable::checkpoints(folder), 0);
    checkpoint::verify(&first).ok()?;
    folder::load(&first, registry).ok()
}

impl<'a> Work<'a> {
    /// Trains the scales of a network, which was rounded just now or is that of [`rounded`], to the end. `told` hears of each
    /// step and of its divergence.
    pub fn run(
        network: Network,
        teacher: &Network,
        sequences: &[Vec<u32>],
        tuning: Tuning,
        (folder, registry): (&Path, &'a Registry),
        mut told: impl FnMut(u32, f64),
    ) -> Result<Network> {
        let mut work = Self { registry, tuning, network, tuner: None };
        resumable::take_up(&mut work, folder, &mut |_| {})?;
        if work.tuner.is_none() {
            resumable::save(&mut work, folder)?; // the rounded network, before it changes
            work.tuner = Some(Tuner::new(&mut work.network, tuning));
        }
        resumable::to_end(&mut work, folder, |work| {
            let Self { network, tuner: Some(tuner), tuning, .. } = work else { unreachable!("made above") };
            if tuner.steps() >= tuning.steps {
                return Ok::<_, Error>(Next::Ended);
            }
            let divergence = tuner.step(network, teacher, sequences);
            told(tuner.steps(), divergence);
            Ok(Next::Step { checkpoint: tuner.steps().is_multiple_of(EVERY) })
        })?;
        let Self { mut network, tuner, .. } = work;
        if let Some(tuner) = tuner {
            tuner.end(&mut network);
        }
        Ok(network)
    }
}

/// The names of the states of a tuner.
const STATES: [&str; 3] = ["sides", "first", "second"];

impl Resumable for Work<'_> {
    type Error = Error;

    fn step(&self) -> u32 {
        self.tuner.as_ref().map_or(0, Tuner::steps)
    }

    fn write(&mut self, checkpoint: &Path) -> Result<()> {
        let states = match &self.tuner {
            Some(tuner) => tuner.state(),
            None => {
                folder::save(&self.network, checkpoint)?;
                Default::default()
            }
        };
        let tensor = |(name, values): (&'static str, _)| {
            let values: &Vec<f32> = values;
            Tensor::f32(name, &[values.len()], values)
        };
        let tensors: Vec<Tensor<'_>> = STATES.into_iter().zip(&states).map(tensor).collect();
        write_tensors(&checkpoint.join(checkpoint::TRAINING), &tensors)?;
        checkpoint::write_json(&checkpoint.join(checkpoint::PROGRESS), &Progress { step: self.step() })
    }

    fn restore(&mut self, checkpoint: &Path) -> Result<()> {
        let path = checkpoint.join(checkpoint::PROGRESS);
        let text = std::fs::read(&path).map_err(Error::io(&path))?;
        let Progress { step } =
            serde_json::from_slice(&text).map_err(|error| Error::data(path.display(), error, "how far a tuning is"))?;
        let first = checkpoint::path(checkpoint.parent().unwrap_or(checkpoint), 0);
        checkpoint::verify(&first)?;
        self.network = folder::load(&first, self.registry)?;
        let mut tuner = Tuner::new(&mut self.network, self.tuning);
        if step > 0 {
            let mut file = TensorFile::open(&checkpoint.join(checkpoint::TRAINING))?;
            let mut states: [Vec<f32>; 3] = tuner.state();
            for (name, values) in STATES.into_iter().zip(&mut states) {
                *values = file.floats(name, &[values.len()])?;
            }
            tuner.go_on(&mut self.network, step, &states);
        }
        self.tuner = Some(tuner);
        Ok(())
    }

    fn keep(&self) -> (u32, Option<u32>) {
        (1, Some(0))
    }
}
