//! A run's teacher at work: what it is asked in a step, what of the student learns from it, and what is learnt beside the
//! student.

use super::cache::{About, Cache};
use super::objective::{Lesson, NAMES, Source};
use super::plan::{Pair, Plan, Segment, Stage};
use super::settings::Distill;
use super::{Opening, check};
use crate::data::{Batch, fingerprint};
use crate::gradient::Part;
use crate::optimizer::{Optimizer, Pace};
use crate::settings::Settings;
use crate::tasks::{Sequences, Task};
use crate::{Error, Result};
use lathe_model::folder::{Tensor, TensorFile};
use lathe_model::head::classifier_dropout;
use lathe_model::{
    Grads, Input, Local, LocalTraining, MoeStats, Network, Param, Projections, Seen, State, Taps, Training,
};
use lathe_ops::dropout::Dropout;
use lathe_ops::loss::soft::{self, Terms};
use lathe_ops::loss::states::Measure;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

/// Rows of logits of the teacher that exist at the same time.
const ROWS: usize = 512;

/// A student's lessons: the teacher, what it is asked, and what is learnt beside the student.
pub(crate) struct Distiller {
    terms: Terms,
    weights: [f64; 2],
    measure: Measure,
    plan: Plan,
    pub teacher: Network,
    task: &'static dyn Task,
    /// The teacher's memory of each part of the batch.
    states: RefCell<Vec<State>>,
    projections: Projections,
    grads: RefCell<Grads>,
    optimizer: Optimizer,
    cache: Option<(Cache, usize)>,
    /// Of the step so far.
    sums: [f64; NAMES.len()],
    settings: Settings,
}

impl Distiller {
    /// Checks that a student can learn from a teacher, and prepares it.
    pub fn open(distill: &Distill, mut teacher: Network, opening: &Opening<'_>) -> Result<Self> {
        let Opening { settings, student, task, texts, len, folder } = *opening;
        check(distill, &teacher, opening)?;
        let plan = Plan::new(distill, student, &teacher, len, settings.steps)?;
        teacher.set_precision(settings.precision()?);
        teacher.freeze();
        let (own, theirs) = (student.model.frame.d_model as usize, teacher.model.frame.d_model as usize);
        let projections = Projections::new(plan.hidden.iter().map(|_| (own, theirs)), settings.seed.into());
        let rows = (settings.batch / settings.accumulate) as usize;
        let cache = match distill.cache_logits {
            0 => None,
            k => {
                let about = About {
                    teacher: fingerprint_of(Path::new(&distill.teacher))?,
                    tokens: texts.train.tokens()?.header().key.clone(),
                    task: task.key().into(),
                    batch: settings.batch,
                    accumulate: settings.accumulate,
                    seq: len as u32,
                    seed: settings.seed,
                    temperature: distill.temperature,
                    k,
                    precision: settings.precision.clone(),
                };
                let own = folder.join("data").join("logits");
                let place = if distill.cache.is_empty() { own } else { distill.cache.clone().into() };
                Some((Cache::open(&place, &about)?, k as usize))
            }
        };
        Ok(Self {
            terms: distill.terms(),
            weights: [distill.hidden, distill.attention_maps],
            measure: distill.measure()?,
            plan,
            states: RefCell::new((0..settings.accumulate).map(|_| teacher.init_memory(rows)).collect()),
            grads: RefCell::new(Grads::new(projections.params())),
            optimizer: Optimizer::new(settings.rule()?, settings, projections.params()),
            projections,
            teacher,
            task,
            cache,
            sums: [0.0; NAMES.len()],
            settings: settings.clone(),
        })
    }

    /// The number of the batch of a step, which is counted from 0: where logits are kept, every epoch has the same batches.
    pub fn batch_of(&self, step: u64, steps_per_epoch: u64) -> u64 {
        if self.cache.is_some() { step % steps_per_epoch.max(1) } else { step }
    }

    /// Whether something else is learnt from a step on.
    pub fn begins_stage(&self, step: u32) -> bool {
        self.plan.stage(step).first + 1 == step
    }

    /// The learning rate of a step: each stage has a schedule of its own.
    pub fn rate(&self, step: u32) -> Result<f64> {
        let stage = self.plan.stage(step);
        Ok(self.settings.schedule_over(stage.steps)?.rate(step - stage.first))
    }

    /// Begins a step.
    pub fn clear(&mut self) {
        self.grads.borrow_mut().clear();
        self.sums = [0.0; NAMES.len()];
    }

    /// One step of the optimiser, of the student and of what is learnt beside it. Returns as [`Optimizer::step`] does.
    pub fn step<'a>(
        &mut self,
        optimizer: &mut Optimizer,
        params: impl Iterator<Item = &'a mut Param>,
        grads: &mut Grads,
        step: u32,
        lr: f64,
    ) -> f64 {
        let norm = optimizer.step_paced(params, grads, &self.plan.paces(step), lr);
        let stage = self.plan.stage(step);
        let places = stage.hidden.clone().filter_map(|pair| self.projections.place(pair));
        let paces: Vec<Pace> =
            places.map(|at| Pace { params: at..at + 1, step: step - stage.first, rate: 1.0 }).collect();
        if norm.is_finite() && !paces.is_empty() {
            self.optimizer.step_paced(self.projections.params_mut(), self.grads.get_mut(), &[paces], lr);
        }
        norm
    }

    /// The gradients of a part of a batch. Returns the sum of its losses, over which the batch's targets are averaged, and
    /// what experts did.
    pub fn pass(
        &mut self,
        network: &Network,
        (batch, number): (&Batch, u64),
        part: &Part,
        state: &mut State,
        training: &Training,
        grads: &mut Grads,
    ) -> Result<(f64, Vec<MoeStats>)> {
        let input = batch.part(part.places.clone(), part.rows);
        if batch.fresh || !self.teacher.model.frame.has_memory() {
            self.states.get_mut()[part.index] = self.teacher.init_memory(part.rows);
        }
        if !self.plan.segments.is_empty() {
            return Ok(self.pass_blocks(network, batch, part, &input, state, training, grads));
        }
        let stage = self.plan.stage(part.step).clone();
        let targets = &batch.targets[part.places.clone()];
        let (source, seen) = self.ask(&stage, &input, targets, (number, part.index))?;
        let pairs = |list: &[Pair]| list.iter().map(|pair| pair.student).collect::<Vec<_>>();
        let count = |weight: f64, pairs: usize| (weight / pairs.max(1) as f64) as f32;
        let key = training.dropout_key.unwrap_or_default();
        let dropout = Dropout { probability: classifier_dropout(&network.model.frame), key };
        let lesson = Lesson {
            targets,
            examples: self.task.of_examples().map(|task| (task, Sequences { input, targets, dropout })),
            real: input.mask,
            batch: part.rows,
            terms: self.terms,
            source,
            taps: Taps {
                hidden: pairs(&self.plan.hidden[stage.hidden.clone()]),
                maps: pairs(&self.plan.maps[stage.maps.clone()]),
                from: self.plan.from(&stage),
                until: (!stage.logits).then_some(stage.slots.end),
            },
            teacher: seen,
            first_pair: stage.hidden.start,
            weights: [count(self.weights[0], stage.hidden.len()), count(self.weights[1], stage.maps.len())],
            measure: self.measure,
            share: batch.counted().max(1) as f32 / batch.tokens() as f32,
            projections: &self.projections,
            grads: &self.grads,
            sums: RefCell::default(),
        };
        let outcome = network.train(&input, &lesson, state, training, grads);
        let sums = lesson.sums.into_inner();
        self.sums.iter_mut().zip(sums).for_each(|(sum, own)| *sum += own);
        Ok((outcome.losses.iter().copied().map(f64::from).sum(), outcome.experts))
    }

    /// What the teacher says of some tokens in a stage.
    fn ask(
        &self,
        stage: &Stage,
        input: &Input<'_>,
        targets: &[u32],
        (batch, part): (u64, usize),
    ) -> Result<(Source<'_>, Seen)> {
        let with_logits = stage.logits && (self.terms.kl > 0.0 || self.terms.mse > 0.0);
        let hidden: Vec<usize> = self.plan.hidden[stage.hidden.clone()].iter().map(|pair| pair.teacher).collect();
        let maps: Vec<usize> = self.plan.maps[stage.maps.clone()].iter().map(|pair| pair.teacher).collect();
        let highest = hidden.iter().copied().chain(maps.iter().map(|slot| slot + 1)).max().unwrap_or(0);
        let until = (!with_logits).then_some(highest);
        if until == Some(0) && hidden.is_empty() {
            return Ok((Source::None, Seen::default()));
        }
        let taps = Taps { hidden, maps, from: 0, until };
        let (teacher, state) = (&self.teacher, &mut self.states.borrow_mut()[part]);
        if let Some((cache, k)) = &self.cache {
            let rows = Lesson::rows(targets);
            let top = cache.get(batch, part, rows.len(), || {
                top_of(teacher, &teacher.hidden(input, state), &rows, *k, self.terms.temperature)
            })?;
            return Ok((Source::Top(top), Seen::default()));
        }
        let (last, seen) = teacher.look(input, state, &taps);
        Ok((last.map_or(Source::None, |last| Source::Network(teacher, last)), seen))
    }

    /// Each block by itself, from the teacher's input to its output.
    #[allow(clippy::too_many_arguments)] // each is one thing
    fn pass_blocks(
        &mut self,
        network: &Network,
        batch: &Batch,
        part: &Part,
        input: &Input<'_>,
        state: &mut State,
        training: &Training,
        grads: &mut Grads,
    ) -> (f64, Vec<MoeStats>) {
        let segments = &self.plan.segments;
        let hidden: Vec<usize> = segments.iter().flat_map(|segment| [segment.teacher.0, segment.teacher.1]).collect();
        let until = hidden.iter().copied().max();
        let taps = Taps { hidden, until, ..Taps::NONE };
        let (_, seen) = self.teacher.look(input, &mut self.states.get_mut()[part.index], &taps);
        let local = |(segment, seen): (&Segment, &[Option<std::sync::Arc<_>>])| {
            let of = |i: usize| seen[i].clone().expect("the pass came there");
            Local { slots: segment.slots.clone(), input: of(0), wanted: of(1) }
        };
        let locals: Vec<Local> = segments.iter().zip(seen.hidden.chunks_exact(2)).map(local).collect();
        let tokens = batch.tokens();
        let training = Training { scale: 1.0 / tokens as f32, ..*training };
        let how = LocalTraining { training, measure: self.measure, first: 0 };
        let (losses, experts) = network.train_local(input, &locals, state, &how, grads);
        let sum: f64 = losses.iter().sum();
        self.sums[NAMES.len() - 2] += sum;
        // A mean over the blocks, as a sum over targets.
        (sum / losses.len() as f64 * batch.counted() as f64 / tokens as f64, experts)
    }

    /// The mean of each term in this step, without its weight.
    pub fn record(&self, step: u32, batch: &Batch) -> BTreeMap<&'static str, f64> {
        let stage = self.plan.stage(step);
        let (counted, tokens) = (batch.counted().max(1) as f64, batch.tokens() as f64);
        let hidden = stage.hidden.len().max(self.plan.segments.len());
        let teacher = self.terms.kl > 0.0 || self.terms.mse > 0.0;
        let over = [
            stage.logits.then_some(counted),
            (stage.logits && teacher).then_some(counted),
            (stage.logits && self.terms.mse > 0.0).then_some(counted),
            (hidden > 0).then_some(tokens * hidden as f64),
            (!stage.maps.is_empty()).then_some(tokens * stage.maps.len() as f64),
        ];
        let terms = NAMES.into_iter().zip(self.sums).zip(over);
        terms.filter_map(|((name, sum), over)| Some((name, sum / over?))).collect()
    }

    /// What a checkpoint has of it.
    pub fn tensors(&mut self) -> Vec<Tensor<'_>> {
        let mut tensors = Vec::new();
        for param in self.projections.params().iter() {
            tensors.push(Tensor::f32(param.name.clone(), &param.shape, &param.data));
        }
        for (i, moments) in self.optimizer.moments().iter().enumerate() {
            for (param, values) in self.projections.params().iter().zip(moments) {
                tensors.push(Tensor::f32(format!("moment.{i}.{}", param.name), &param.shape, values));
            }
        }
        for (part, state) in self.states.get_mut().iter().enumerate() {
            for (layer, values) in state.memories().enumerate() {
                tensors.push(Tensor::f32(format!("teacher_memory.{part}.{layer}"), &[values.len()], values));
            }
        }
        tensors
    }

    /// Goes back to a checkpoint.
    pub fn restore(&mut self, file: &mut TensorFile) -> Result<()> {
        for param in self.projections.params_mut() {
            param.data = file.floats(&param.name, &param.shape)?;
        }
        for (i, moments) in self.optimizer.moments_mut().iter_mut().enumerate() {
            for (param, values) in self.projections.params().iter().zip(moments) {
                *values = file.floats(&format!("moment.{i}.{}", param.name), &param.shape)?;
            }
        }
        for (part, state) in self.states.get_mut().iter_mut().enumerate() {
            for (layer, memory) in state.memories_mut().enumerate() {
                memory.copy_from_slice(&file.floats(&format!("teacher_memory.{part}.{layer}"), &[memory.len()])?);
            }
        }
        Ok(())
    }
}

/// The largest log-probabilities of the rows that count.
fn top_of(teacher: &Network, hidden: &[f32], rows: &[usize], k: usize, temperature: f32) -> soft::TopK {
    let frame = &teacher.model.frame;
    let (d, vocab) = (frame.d_model as usize, frame.vocab as usize);
    let mut all = soft::TopK { k: k.min(vocab), ids: Vec::new(), log_p: Vec::new(), log_rest: Vec::new() };
    for rows in rows.chunks(ROWS) {
        let states: Vec<f32> = rows.iter().flat_map(|&row| &hidden[row * d..][..d]).copied().collect();
        let top = soft::top_k(&teacher.outputs(&states), vocab, k, temperature);
        all.ids.extend(top.ids);
        all.log_p.extend(top.log_p);
        all.log_rest.extend(top.log_rest);
    }
    all
}

/// Paths, sizes and times of all files of a teacher.
fn fingerprint_of(folder: &Path) -> Result<String> {
    let entries = std::fs::read_dir(folder).map_err(Error::io(folder))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "safetensors"));
    paths.sort();
    paths.iter().map(|path| fingerprint(path)).collect::<Result<_, _>>().map_err(Into::into)
}
