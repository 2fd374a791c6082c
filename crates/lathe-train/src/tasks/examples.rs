//! Tasks that learn from examples: what is the same in all of them.
//!
//! A model gives numbers for each text, or for each of its tokens. A task says how examples become texts, what the loss
//! of numbers is, and what they predict.

use super::{Batches, Cut, Sequences, Task};
use crate::data::{Data, Tokenizer};
use crate::evaluate::{Evaluation, Options};
use crate::examples::encoded::{self, Encoder, Grouped, Unit};
use crate::examples::scores::Metric;
use crate::examples::{Example, Examples, table};
use crate::{Error, Result};
use lathe_core::Frame;
use lathe_model::head::Top;
use lathe_model::{Grads, Network, Objective, Params};
use lathe_ops::buffer::Buf;
use lathe_ops::loss::IGNORE;
use rayon::prelude::*;
use std::ops::Range;

/// Tokens computed at once, padding included.
const AT_ONCE: usize = 4096;

/// What a model says of an example.
#[derive(Debug, Clone, PartialEq)]
pub enum Prediction {
    /// One of several labels or choices, with the probability of each.
    One {
        /// Its number.
        index: usize,
        /// Of each.
        probabilities: Vec<f32>,
    },
    /// A number.
    Value(f64),
    /// A vector.
    Vector(Vec<f32>),
    /// A part of the second text.
    Part {
        /// Its bytes.
        bytes: Range<usize>,
        /// The probability among the parts that were looked at, and no answer.
        probability: f32,
        /// Whether it is likelier that the text does not tell.
        none: bool,
    },
}

/// Numbers of the texts of a batch or a part of it.
pub struct Numbers<'a> {
    /// For each row: what is wanted; [`IGNORE`] for rows that go on with the one before, or where nobody says.
    pub targets: Vec<u32>,
    /// T
    pub len: usize,
    /// [B, T], false for padding; `None` where there is none.
    pub mask: Option<&'a [bool]>,
}

/// Some of the numbers of texts, by their places, and the row of the batch that they are of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The row that their loss is the loss of.
    pub row: usize,
    /// Their places among all numbers of the batch.
    pub places: Vec<usize>,
}

impl Group {
    /// So many numbers of rows, each with all that it has.
    pub fn rows(count: usize, rows: usize) -> impl Iterator<Item = Self> {
        let width = count / rows.max(1);
        (0..rows).map(move |row| Self { row, places: (row * width..(row + 1) * width).collect() })
    }
}

/// The losses of rows for their numbers, and in the place of these the gradient of a scale times the losses' sum.
pub type NumberLoss<'a> = &'a dyn Fn(&Numbers<'_>, &mut [f32], f32, &mut [f32]);

/// A task that learns from examples.
pub trait ExampleTask: Sync {
    /// Name in run files and flags.
    fn key(&self) -> &'static str;
    /// One line for lists.
    fn about(&self) -> &'static str;
    /// Whether models of a frame can be trained for it.
    fn check(&self, frame: &Frame) -> Result<()> {
        check_head(frame, self.key())
    }
    /// Whether the numbers of models of a frame can be compared with those of a teacher's.
    fn check_teacher(&self, frame: &Frame, teacher: &Frame) -> Result<()> {
        if frame.words("labels") == teacher.words("labels") {
            return Ok(());
        }
        let expected = format_args!("{}, the teacher's", teacher.words("labels").join(", "));
        Err(Error::setting("labels", frame.words("labels").join(", "), expected))
    }
    /// Whether models give vectors, which can be compared where nobody says what is right.
    fn gives_vectors(&self) -> bool {
        false
    }
    /// The metrics of examples whose benchmark names none.
    fn metrics(&self) -> &'static [Metric];
    /// The texts of an example as they are trained on, each unit with what is right for it.
    fn units(&self, frame: &Frame, encoder: &Encoder<'_>, example: &Example) -> Result<Vec<Unit>> {
        Ok(vec![self.unit(frame, encoder, example)?])
    }
    /// The texts of an example as they are judged.
    fn unit(&self, frame: &Frame, encoder: &Encoder<'_>, example: &Example) -> Result<Unit> {
        let mut unit = Unit { target: self.target(frame, encoder, example)?, ..Unit::default() };
        for text in &example.texts {
            let (text, tokens) = encoder.encode(example.line, text)?;
            unit.cut = unit.cut.or((tokens > encoder.max_len).then_some((example.line, tokens)));
            unit.texts.push(text);
        }
        Ok(unit)
    }
    /// What is right for an example, as a number; [`IGNORE`] where nobody says.
    fn target(&self, frame: &Frame, encoder: &Encoder<'_>, example: &Example) -> Result<u32>;
    /// The numbers for hidden states; none where a model has none of the kind.
    fn numbers(&self, network: &Network, sequences: &Sequences<'_>, hidden: &[f32]) -> Option<Buf> {
        network.task_outputs(hidden, sequences.input.batch)
    }
    /// The losses that `loss` makes of the numbers of a batch, one for each row, and with gradients those of the hidden
    /// states.
    fn losses(
        &self,
        sequences: &Sequences<'_>,
        (top, params): (&Top, &Params),
        hidden: &[f32],
        loss: NumberLoss<'_>,
        gradients: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>) {
        let outputs = top.outputs(params, hidden, sequences.input.batch, sequences.dropout);
        let mut outputs = outputs.expect("a model with an output layer for the task, which was looked for");
        let numbers = numbers_of(sequences);
        let mut losses = vec![0.0; numbers.targets.len()];
        let scale = gradients.as_ref().map_or(0.0, |(scale, _)| *scale);
        loss(&numbers, &mut outputs.values, scale, &mut losses);
        let dhidden = gradients.map(|(_, grads)| {
            let dvalues = std::mem::replace(&mut outputs.values, Buf::zeros(0));
            top.outputs_backward(params, hidden, &outputs, &dvalues, sequences.dropout, grads)
        });
        (losses, dhidden)
    }
    /// The losses of rows for their numbers, and in the place of these the gradient of `scale` times the losses' sum.
    fn loss(&self, numbers: &Numbers<'_>, values: &mut [f32], scale: f32, losses: &mut [f32]);
    /// The numbers that are logits of one distribution, for each that there is; none where numbers are no logits.
    fn distributions(&self, _numbers: &Numbers<'_>, _count: usize) -> Vec<Group> {
        Vec::new()
    }
    /// A target of a row, for measurements.
    fn any_target(&self, _row: usize) -> u32 {
        0
    }
    /// What the numbers of an example's texts say, which stand one after the other.
    fn predict(&self, example: &Example, unit: &Unit, values: &[f32]) -> Prediction;
    /// The metrics of predictions.
    fn score(&self, frame: &Frame, metrics: &[Metric], judged: &[(&Example, Prediction)]) -> Vec<(Metric, f64)>;
}

/// An error where a model has no output layer of a name.
pub(super) fn check_head(frame: &Frame, key: &str) -> Result<()> {
    let found = match frame.word("head") {
        Some(head) if head == key => return Ok(()),
        Some(head) => format!("`{}` with head {head}", frame.backbone.key()),
        None => format!("`{}`, which has no output layers for tasks", frame.backbone.key()),
    };
    Err(Error::setting("backbone", found, format_args!("an encoder with head {key}")))
}

pub(crate) fn numbers_of<'a>(sequences: &Sequences<'a>) -> Numbers<'a> {
    let len = sequences.input.len();
    let targets = sequences.targets.iter().copied().step_by(len.max(1)).collect();
    Numbers { targets, len, mask: sequences.input.mask }
}

/// Probabilities of scores.
pub(super) fn softmax(scores: &[f32]) -> Vec<f32> {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = scores.iter().map(|x| (x - most).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// The most probable of several.
pub(super) fn most_probable(scores: &[f32]) -> Prediction {
    let probabilities = softmax(scores);
    let best = probabilities.iter().enumerate().rev().max_by(|a, b| a.1.total_cmp(b.1));
    Prediction::One { index: best.map_or(0, |(i, _)| i), probabilities }
}

/// What a model says of examples.
pub struct Judge<'a> {
    /// The task.
    pub task: &'a dyn ExampleTask,
    /// The model.
    pub network: &'a Network,
    /// Its tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Most tokens of a text.
    pub max_len: usize,
}

/// Predictions in the order of the examples, and what they cost.
pub struct Judged {
    /// Of each example.
    pub predictions: Vec<Prediction>,
    /// Sum of the losses of the texts of which it is known what is right, and how many these are.
    pub loss: (f64, u64),
    /// Tokens read.
    pub tokens: u64,
    /// What a user should know of the examples.
    pub note: Option<String>,
}

impl Judge<'_> {
    /// Predicts; `watch` is told how many examples are done.
    pub fn judge(&self, examples: &Examples, watch: &mut dyn FnMut(u64, u64)) -> Result<Judged> {
        let frame = &self.network.model.frame;
        let encoder = Encoder { tokenizer: self.tokenizer, max_len: self.max_len, path: &examples.path };
        let all = examples.examples.as_slice();
        let units: Vec<Unit> =
            all.par_iter().map(|example| self.task.unit(frame, &encoder, example)).collect::<Result<_>>()?;
        let note = encoded::cut_note(&units, &encoder);
        let mut judged = Judged { predictions: Vec::new(), loss: (0.0, 0), tokens: 0, note };
        let mut predictions: Vec<Option<Prediction>> = vec![None; units.len()];
        let (pad, mut done) = (self.tokenizer.specials().pad.unwrap_or(0), 0);
        for group in encoded::by_length(&units, AT_ONCE) {
            watch(done, all.len() as u64);
            let of_group: Vec<&Unit> = group.iter().map(|&i| &units[i]).collect();
            let batch = encoded::batch(&of_group, pad);
            let input = batch.input(batch.rows);
            let sequences = Sequences::new(input, &batch.targets);
            let hidden = self.network.hidden(&input, &mut self.network.init_memory(batch.rows));
            let Some(mut values) = self.task.numbers(self.network, &sequences, &hidden) else {
                let expected = format!("a model with an output layer for {}", self.task.key());
                return Err(Error::setting("model", "none", expected));
            };
            let per_row = values.len() / batch.rows;
            let mut first = 0;
            for (&i, unit) in group.iter().zip(&of_group) {
                let of_unit = &values[first * per_row..][..unit.texts.len() * per_row];
                predictions[i] = Some(self.task.predict(&all[i], unit, of_unit));
                first += unit.texts.len();
            }
            let mut losses = vec![0.0; batch.rows];
            self.task.loss(&numbers_of(&sequences), &mut values, 0.0, &mut losses);
            judged.loss.0 += losses.iter().copied().map(f64::from).sum::<f64>();
            judged.loss.1 += numbers_of(&sequences).targets.iter().filter(|&&target| target != IGNORE).count() as u64;
            judged.tokens += batch.tokens() as u64;
            done += group.len() as u64;
        }
        watch(done, all.len() as u64);
        judged.predictions = predictions.into_iter().flatten().collect();
        Ok(judged)
    }
}

impl<T: ExampleTask> Task for T {
    fn key(&self) -> &'static str {
        ExampleTask::key(self)
    }

    fn about(&self) -> &'static str {
        ExampleTask::about(self)
    }

    fn check(&self, frame: &Frame) -> Result<()> {
        ExampleTask::check(self, frame)
    }

    fn of_examples(&self) -> Option<&dyn ExampleTask> {
        Some(self)
    }

    fn batches(&self, frame: &Frame, data: &Data, cut: &Cut<'_>) -> Result<Box<dyn Batches>> {
        let examples = data.examples()?;
        let encoder = Encoder { tokenizer: cut.tokenizer, max_len: cut.len, path: &examples.path };
        let units = examples.examples.par_iter().map(|example| match example.target.is_none() {
            true => Err(Error::data(encoder.place(example.line), "no label", "one, to learn from")),
            false => self.units(frame, &encoder, example),
        });
        let units: Vec<Unit> = units.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        if units.is_empty() {
            return Err(Error::data(examples.path.display(), "no examples", "at least one"));
        }
        let (pad, note) = (cut.tokenizer.specials().pad.unwrap_or(0), encoded::cut_note(&units, &encoder));
        Ok(Box::new(Grouped::new(units, cut.batch, cut.seed, pad, note)))
    }

    fn objective<'a>(&'a self, sequences: Sequences<'a>) -> Box<dyn Objective + 'a> {
        Box::new(OfTexts { task: self, sequences })
    }

    fn any_targets(&self, _: &Frame, random: Vec<u32>, len: usize) -> Vec<u32> {
        (0..random.len()).map(|i| if i % len == 0 { self.any_target(i / len) } else { IGNORE }).collect()
    }

    /// A batch may be a single example: no loss of one says that training leads nowhere.
    fn chance(&self, _: &Frame) -> f32 {
        f32::INFINITY
    }

    fn evaluate(
        &self,
        network: &Network,
        data: &Data,
        options: &Options<'_>,
        watch: &mut dyn FnMut(u64, u64),
    ) -> Result<Evaluation> {
        let frame = &network.model.frame;
        let mut examples = data.examples()?.clone();
        if options.limit > 0 {
            // About so many tokens.
            let bytes = |example: &Example| {
                example.texts.iter().map(|(a, b)| a.len() + b.as_ref().map_or(0, String::len)).sum::<usize>() as u64
            };
            let within = |sum: &mut u64, example: &Example| {
                *sum += bytes(example) / 4;
                Some(*sum)
            };
            let count = examples.examples.iter().scan(0, within).take_while(|sum| *sum <= options.limit).count();
            if count < examples.examples.len() {
                let examples = std::sync::Arc::make_mut(&mut examples);
                examples.examples.truncate(count.max(1));
            }
        }
        if let Some(example) = examples.examples.iter().find(|example| example.target.is_none()) {
            let place = table::place(&examples.path, example.line);
            return Err(Error::data(place, "no label", "one, to judge a model by"));
        }
        let judge = Judge { task: self, network, tokenizer: options.tokenizer, max_len: options.window_of(frame) };
        let judged = judge.judge(&examples, watch)?;
        let pairs: Vec<(&Example, Prediction)> = examples.examples.iter().zip(judged.predictions).collect();
        let metrics = if examples.metrics.is_empty() { self.metrics() } else { &examples.metrics };
        let (tokens, note, count) = (judged.tokens, judged.note, Some(pairs.len() as u64));
        let mut evaluation = Evaluation { tokens, note, examples: count, ..Evaluation::NONE };
        if judged.loss.1 > 0 {
            evaluation.loss = judged.loss.0 / judged.loss.1 as f64;
        }
        let scores = self.score(frame, metrics, &pairs);
        if !examples.metrics.is_empty() && scores.len() == metrics.len() {
            // What a benchmark calls the score of a task.
            let mean = scores.iter().map(|(_, value)| value).sum::<f64>() / scores.len() as f64;
            evaluation.scores.insert("score".into(), mean);
        }
        for (metric, value) in scores {
            match metric {
                Metric::Accuracy => evaluation.accuracy = Some(value),
                metric => drop(evaluation.scores.insert(metric.name().into(), value)),
            }
        }
        Ok(evaluation)
    }
}

/// The objective of a batch of texts.
struct OfTexts<'a> {
    task: &'a dyn ExampleTask,
    sequences: Sequences<'a>,
}

impl Objective for OfTexts<'_> {
    fn loss(
        &self,
        top: &Top,
        params: &Params,
        hidden: &[f32],
        gradients: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>) {
        let loss = |numbers: &Numbers<'_>, values: &mut [f32], scale, losses: &mut [f32]| {
            self.task.loss(numbers, values, scale, losses);
        };
        self.task.losses(&self.sequences, (top, params), hidden, &loss, gradients)
    }
}
