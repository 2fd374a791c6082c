//! Block-local distillation of a super net: every option of every slot learns to give the teacher's output of that slot
//! for the teacher's input, all of them in one pass of the teacher. No option knows of another: what one becomes does
//! not depend on which others there are.

use crate::checkpoint;
use crate::gradient::{Part, gradient};
use crate::optimizer::{Optimizer, Pace};
use crate::resumable::{self, Next, Resumable};
use crate::settings::Settings;
use crate::tasks::Batches;
use crate::{Error, Result};
use lathe_model::folder::{Tensor, TensorFile, write_tensors};
use lathe_model::{Grads, Local, LocalTraining, Network, State, SuperNet, Taps, Training};
use lathe_ops::loss::states::Measure;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Losses of so many steps make the loss of an option.
const RECENT: usize = 100;

/// What options learn from, and how.
pub struct OptionTraining<'a> {
    /// The teacher, with as many slots as the super net, in its precision.
    pub teacher: &'a Network,
    /// What is read.
    pub batches: &'a dyn Batches,
    /// Steps, batch, optimiser, learning rate, seed and checkpoints; all else has no meaning here.
    pub settings: &'a Settings,
    /// How far hidden states are from the teacher's.
    pub measure: Measure,
    /// The first option of each slot that learns: those before it stay as they are.
    pub first: usize,
    /// Where checkpoints are kept.
    pub folder: &'a Path,
}

/// The mean loss of each option of each slot over the last steps.
pub type OptionLosses = Vec<Vec<f64>>;

/// Trains all options, or goes on from the last checkpoint in the folder. `watch` hears of steps done and their losses.
pub fn train_options(
    how: &OptionTraining<'_>,
    net: SuperNet,
    watch: &mut dyn FnMut(u32, &OptionLosses),
) -> Result<(SuperNet, OptionLosses)> {
    std::fs::create_dir_all(how.folder).map_err(Error::io(how.folder))?;
    let _lock = resumable::lock(how.folder)?;
    let mut work = Work::new(how, net)?;
    resumable::take_up(&mut work, how.folder, &mut |_| ())?;
    work.net.set_precision(how.settings.precision()?);
    resumable::to_end(&mut work, how.folder, |work| work.advance(watch))?;
    let losses = work.losses();
    Ok((work.net, losses))
}

#[derive(Serialize, Deserialize)]
struct Progress {
    step: u32,
}

/// Training at work.
struct Work<'a> {
    how: &'a OptionTraining<'a>,
    net: SuperNet,
    grads: Grads,
    optimizer: Optimizer,
    /// Of each part of a batch: the super net's memory and the teacher's.
    states: Vec<State>,
    of_teacher: Vec<State>,
    /// The losses of all options in each of the last steps.
    recent: Vec<Vec<f32>>,
    step: u32,
}

impl<'a> Work<'a> {
    fn new(how: &'a OptionTraining<'a>, net: SuperNet) -> Result<Self> {
        let (slots, expected) = (net.options().len(), how.teacher.layers().len());
        if slots != expected {
            return Err(Error::setting("slots", slots, format!("{expected}, as many as the teacher has")));
        }
        let (width, expected) = (net.frame.d_model, how.teacher.model.frame.d_model);
        if width != expected {
            return Err(Error::setting("d_model", width, format!("{expected}, the teacher's")));
        }
        // Where a slot changes width or length, it has one option.
        let first = net.model(&vec![0; slots]);
        if let Some(model) = [&first, &how.teacher.model].into_iter().find(|model| !model.keeps_shape()) {
            let found = lathe_core::shorten(&model.layers());
            return Err(Error::setting("slots", found, "blocks that keep width and length"));
        }
        let settings = how.settings;
        let rows = (settings.batch / settings.accumulate) as usize;
        Ok(Self {
            grads: Grads::new(net.params()),
            optimizer: Optimizer::new(settings.rule()?, settings, net.params()),
            states: (0..settings.accumulate).map(|_| net.init_memory(rows)).collect(),
            of_teacher: (0..settings.accumulate).map(|_| how.teacher.init_memory(rows)).collect(),
            recent: Vec::new(),
            step: 0,
            how,
            net,
        })
    }

    /// The mean of the last losses, by slot and option.
    fn losses(&self) -> OptionLosses {
        let mut flat = (0..).map(|i| {
            let sum: f64 = self.recent.iter().map(|losses| f64::from(losses[i])).sum();
            sum / self.recent.len().max(1) as f64
        });
        self.net.options().map(|count| flat.by_ref().take(count).collect()).collect()
    }

    fn advance(&mut self, watch: &mut dyn FnMut(u32, &OptionLosses)) -> Result<Next> {
        let settings = self.how.settings;
        if self.step >= settings.steps {
            return Ok(Next::Ended);
        }
        let step = self.step + 1;
        let Self { how, net, grads, optimizer, states, of_teacher, recent, .. } = self;
        let batch = how.batches.batch(u64::from(step - 1))?;
        let (tokens, slots) = (batch.tokens(), net.options().len());
        let mut sums = vec![0.0; net.options().sum()];
        let pass = |part: &Part, state: &mut State, training: &Training, grads: &mut Grads| {
            let teacher = &mut of_teacher[part.index];
            if batch.fresh || !net.frame.has_memory() {
                *state = net.init_memory(part.rows);
            }
            if batch.fresh || !how.teacher.model.frame.has_memory() {
                *teacher = how.teacher.init_memory(part.rows);
            }
            let input = batch.part(part.places.clone(), part.rows);
            let taps = Taps { hidden: (0..=slots).collect(), until: Some(slots), ..Taps::NONE };
            let (_, seen) = how.teacher.look(&input, teacher, &taps);
            let hidden: Vec<_> = seen.hidden.into_iter().map(|seen| seen.expect("the pass came there")).collect();
            let local = |slot: usize| Local {
                slots: slot..slot + 1,
                input: hidden[slot].clone(),
                wanted: hidden[slot + 1].clone(),
            };
            let locals: Vec<Local> = (0..slots).map(local).collect();
            let training = Training { scale: 1.0 / tokens as f32, ..*training };
            let local = LocalTraining { training, measure: how.measure, first: how.first };
            let losses = net.train_local(&input, &locals, state, &local, grads);
            sums.iter_mut().zip(losses.into_iter().flatten()).for_each(|(sum, loss)| *sum += loss);
            Ok((0.0, Vec::new()))
        };
        gradient(states, &batch, settings, step, grads, pass)?;
        let means: Vec<f32> = sums.into_iter().map(|sum| (sum / tokens as f64) as f32).collect();
        let options = net.options().enumerate().flat_map(|(slot, count)| (0..count).map(move |option| (slot, option)));
        let learn = options.filter(|(_, option)| *option >= how.first);
        let groups = learn.map(|(slot, option)| net.option_params(slot, option)).filter(|params| !params.is_empty());
        let groups: Vec<Vec<Pace>> = groups.map(|params| vec![Pace { params, step, rate: 1.0 }]).collect();
        let lr = settings.schedule()?.rate(step);
        let norm = optimizer.step_paced(net.params_mut(), grads, &groups, lr);
        if !norm.is_finite() {
            let loss = means.iter().copied().fold(0.0, f32::max);
            return Err(Error::Diverged { step, loss, highest: f32::MAX, checkpoint: None });
        }
        recent.push(means);
        recent.drain(..recent.len().saturating_sub(RECENT));
        self.step = step;
        watch(step, &self.losses());
        Ok(Next::Step { checkpoint: step == settings.steps || step.is_multiple_of(settings.checkpoint_every()) })
    }
}

impl Resumable for Work<'_> {
    type Error = Error;

    fn step(&self) -> u32 {
        self.step
    }

    fn write(&mut self, folder: &Path) -> Result<()> {
        let mut tensors = Vec::new();
        for param in self.net.params().iter() {
            tensors.push(Tensor::f32(format!("weight.{}", param.name), &param.shape, &param.data));
        }
        for (i, moments) in self.optimizer.moments().iter().enumerate() {
            for (param, values) in self.net.params().iter().zip(moments) {
                tensors.push(Tensor::f32(format!("moment.{i}.{}", param.name), &param.shape, values));
            }
        }
        for (kind, states) in [("memory", &self.states), ("teacher_memory", &self.of_teacher)] {
            for (part, state) in states.iter().enumerate() {
                for (layer, values) in state.memories().enumerate() {
                    tensors.push(Tensor::f32(format!("{kind}.{part}.{layer}"), &[values.len()], values));
                }
            }
        }
        let recent = self.recent.concat();
        tensors.push(Tensor::f32("recent", &[recent.len()], &recent));
        write_tensors(&folder.join(checkpoint::TRAINING), &tensors)?;
        checkpoint::write_json(&folder.join(checkpoint::PROGRESS), &Progress { step: self.step })
    }

    fn restore(&mut self, folder: &Path) -> Result<()> {
        let path = folder.join(checkpoint::PROGRESS);
        let text = std::fs::read(&path).map_err(Error::io(&path))?;
        let progress: Progress =
            serde_json::from_slice(&text).map_err(|error| Error::data(path.display(), error, "a run's progress"))?;
        let mut file = TensorFile::open(&folder.join(checkpoint::TRAINING))?;
        for param in self.net.params_mut() {
            param.data = file.floats(&format!("weight.{}", param.name), &param.shape)?;
        }
        for (i, moments) in self.optimizer.moments_mut().iter_mut().enumerate() {
            for (param, values) in self.net.params().iter().zip(moments) {
                *values = file.floats(&format!("moment.{i}.{}", param.name), &param.shape)?;
            }
        }
        for (kind, states) in [("memory", &mut self.states), ("teacher_memory", &mut self.of_teacher)] {
            for (part, state) in states.iter_mut().enumerate() {
                for (layer, memory) in state.memories_mut().enumerate() {
                    memory.copy_from_slice(&file.floats(&format!("{kind}.{part}.{layer}"), &[memory.len()])?);
                }
            }
        }
        let shape = file.shape("recent").unwrap_or_default().to_vec();
        let options = self.net.options().sum::<usize>().max(1);
        self.recent = file.floats("recent", &shape)?.chunks_exact(options).map(<[f32]>::to_vec).collect();
        self.step = progress.step;
        Ok(())
    }

    fn keep(&self) -> (u32, Option<u32>) {
        (self.how.settings.keep, None)
    }
}
