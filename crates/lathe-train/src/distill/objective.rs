//! What a part of a batch is trained for where there is a teacher: a weighted sum of terms of logits (cross-entropy, KL,
//! squared error), of hidden states and of attention maps. All of it is by token; terms of hidden states and maps count all
//! tokens, those of logits the ones that the task asks for.

use super::numbers;
use crate::tasks::{ExampleTask, Numbers, Sequences};
use lathe_model::head::{LogitLoss, Top};
use lathe_model::{AttentionMap, Grads, Network, Objective, Params, Projections, Seen, TapGradients, Taps};
use lathe_ops::buffer::Buf;
use lathe_ops::loss::IGNORE;
use lathe_ops::loss::soft::{self, LOSSES, Terms, TopK};
use lathe_ops::loss::states::{self, Maps, Measure};
use std::cell::RefCell;

/// The names of terms in records.
pub const NAMES: [&str; 5] = ["ce", "kl", "mse", "hidden", "attention_maps"];
const HIDDEN: usize = 3;
const ATTENTION: usize = 4;

/// Where the teacher's logits come from.
pub enum Source<'a> {
    /// Nowhere: only the text counts.
    None,
    /// From its last hidden states, row by row as they are needed.
    Network(&'a Network, Buf),
    /// From a disk: those of the rows that count, in their order.
    Top(TopK),
}

/// What a student learns from a teacher in a part of a batch.
pub struct Lesson<'a> {
    /// What the task wants of each token.
    pub targets: &'a [u32],
    /// Of a task that learns from examples: it, and the texts.
    pub examples: Option<(&'a dyn ExampleTask, Sequences<'a>)>,
    /// [B, T], false for padding, which nothing is learnt of; `None` where there is none.
    pub real: Option<&'a [bool]>,
    /// B
    pub batch: usize,
    /// Weights of the terms of logits.
    pub terms: Terms,
    /// The teacher's logits.
    pub source: Source<'a>,
    /// What the student is looked at.
    pub taps: Taps,
    /// What the teacher had there.
    pub teacher: Seen,
    /// Which pair of hidden states the first of these is among all.
    pub first_pair: usize,
    /// Weights of hidden states and of attention maps, of each pair of layers.
    pub weights: [f32; 2],
    /// How far hidden states are from each other.
    pub measure: Measure,
    /// Losses that count by all tokens of the batch: what makes means over all tokens of sums that are divided by the former.
    pub share: f32,
    /// To the teacher's width, of all pairs.
    pub projections: &'a Projections,
    /// The gradients of the projections, added to.
    pub grads: &'a RefCell<Grads>,
    /// Sums of the losses of each term, without weights.
    pub sums: RefCell<[f64; NAMES.len()]>,
}

impl Lesson<'_> {
    /// The rows that the task asks for.
    pub fn rows(targets: &[u32]) -> Vec<usize> {
        (0..targets.len()).filter(|&row| targets[row] != IGNORE).collect()
    }

    /// Notes the losses of a term.
    fn note(&self, term: usize, losses: impl Iterator<Item = f32>) {
        self.sums.borrow_mut()[term] += losses.map(f64::from).sum::<f64>();
    }

    /// Adds losses of tokens to those of their rows, which are tokens themselves or texts.
    fn add(losses: &mut [f32], of_tokens: &[f32], weight: f32) {
        let per_row = of_tokens.len() / losses.len();
        let rows = of_tokens.chunks_exact(per_row);
        losses.iter_mut().zip(rows).for_each(|(loss, tokens)| *loss += weight * tokens.iter().sum::<f32>());
    }

    /// The gradient of the student's hidden states of a pair.
    fn hidden(&self, i: usize, x: &[f32], wanted: &[f32], losses: &mut [f32], scale: f32) -> Buf {
        let pair = self.first_pair + i;
        let projected = self.projections.forward(pair, x);
        let y = projected.as_deref().unwrap_or(x);
        let (mut own, mut dy) = (vec![0.0; self.targets.len()], Buf::any(y.len()));
        let (weight, how) = (self.weights[0] * self.share, (self.measure, self.real));
        states::squared_error(y, wanted, y.len() / own.len(), how, scale * weight, &mut own, &mut dy);
        Self::add(losses, &own, weight);
        self.note(HIDDEN, own.into_iter());
        self.projections.backward(pair, x, dy, &mut self.grads.borrow_mut())
    }

    /// The gradient of the student's attention maps of a pair.
    fn map(&self, student: &AttentionMap, teacher: &AttentionMap, losses: &mut [f32], scale: f32) -> Buf {
        let weight = self.weights[1] * self.share;
        let mut own = vec![0.0; self.targets.len()];
        let of = |map: &AttentionMap| map.heads;
        let sizes = (self.batch, own.len() / self.batch);
        let gradient = states::attention_kl(
            Maps { probabilities: &student.probabilities, heads: of(student) },
            Maps { probabilities: &teacher.probabilities, heads: of(teacher) },
            sizes,
            self.real,
            scale * weight,
            &mut own,
        );
        Self::add(losses, &own, weight);
        self.note(ATTENTION, own.into_iter());
        gradient
    }
}

impl Lesson<'_> {
    /// The losses of texts.
    fn of_examples(
        &self,
        task: &dyn ExampleTask,
        sequences: &Sequences<'_>,
        (top, params): (&Top, &Params),
        hidden: &[f32],
        gradients: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>) {
        let wanted = match &self.source {
            Source::Network(teacher, last) => task.numbers(teacher, sequences, last),
            Source::None | Source::Top(_) => None,
        };
        let loss = |numbers: &Numbers<'_>, values: &mut [f32], scale: f32, losses: &mut [f32]| {
            let mut each = vec![0.0; losses.len() * LOSSES];
            let own = values.to_vec();
            // Without a teacher there is only what is right.
            let teacher = wanted.as_deref().unwrap_or(&own);
            losses.copy_from_slice(&numbers::loss(task, numbers, (values, teacher), (&self.terms, scale), &mut each));
            for term in 0..LOSSES {
                self.note(term, each.iter().skip(term).step_by(LOSSES).copied());
            }
        };
        task.losses(sequences, (top, params), hidden, &loss, gradients)
    }
}

impl Objective for Lesson<'_> {
    fn loss(
        &self,
        top: &Top,
        params: &Params,
        hidden: &[f32],
        gradients: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>) {
        if let Some((task, sequences)) = &self.examples {
            return self.of_examples(*task, sequences, (top, params), hidden, gradients);
        }
        let head = top.head.as_ref().expect("a model with an output layer");
        if let Source::None = self.source {
            let gradients = gradients.map(|(scale, grads)| (scale * self.terms.ce, grads));
            let (mut losses, dhidden) = head.loss(params, hidden, self.targets, gradients);
            self.note(0, losses.iter().copied());
            losses.iter_mut().for_each(|loss| *loss *= self.terms.ce);
            return (losses, dhidden);
        }
        let rows = Self::rows(self.targets);
        head.logit_loss(params, hidden, &rows, self, gradients).expect("a plain softmax, which was looked for")
    }

    fn taps(&self) -> Taps {
        self.taps.clone()
    }

    fn inside(&self, seen: Seen, losses: &mut [f32], scale: f32) -> TapGradients {
        let both = seen.hidden.iter().zip(&self.teacher.hidden).enumerate();
        let hidden = both.map(|(i, (own, wanted))| {
            let (own, wanted) = own.as_ref().zip(wanted.as_ref())?;
            Some(self.hidden(i, own, wanted, losses, scale))
        });
        let hidden = hidden.collect();
        let both = seen.maps.iter().zip(&self.teacher.maps);
        let maps = both.map(|(own, wanted)| Some(self.map(own.as_ref()?, wanted.as_ref()?, losses, scale)));
        TapGradients { hidden, maps: maps.collect() }
    }
}

impl LogitLoss for Lesson<'_> {
    fn rows(&self, rows: &[usize], logits: &mut [f32], scale: f32, losses: &mut [f32]) {
        let width = logits.len() / rows.len();
        let targets: Vec<u32> = rows.iter().map(|&row| self.targets[row]).collect();
        let mut each = vec![0.0; rows.len() * LOSSES];
        match &self.source {
            Source::Network(teacher, hidden) => {
                let d = hidden.len() / self.targets.len();
                let states: Vec<f32> = rows.iter().flat_map(|&row| &hidden[row * d..][..d]).copied().collect();
                let wanted = teacher.outputs(&states);
                soft::against_logits(logits, width, &wanted, &targets, &self.terms, scale, &mut each);
            }
            Source::Top(top) => {
                let counted = Self::rows(self.targets);
                let places: Vec<usize> = rows.iter().filter_map(|row| counted.binary_search(row).ok()).collect();
                let top = top.select(&places);
                soft::against_top(logits, width, &top, &targets, &self.terms, scale, &mut each);
            }
            Source::None => unreachable!("without a teacher there is only the text"),
        }
        for term in 0..LOSSES {
            self.note(term, each.iter().skip(term).step_by(LOSSES).copied());
        }
        losses.iter_mut().zip(each.chunks_exact(LOSSES)).for_each(|(loss, each)| *loss = self.terms.total(each));
    }
}
