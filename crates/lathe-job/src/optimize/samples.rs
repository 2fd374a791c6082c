//! What is judged by: sequences of a text or of examples, and the losses that a model has on them.

use lathe_model::{Input, Network, Objective, State, SuperNet, stack_choice};
use lathe_ops::loss::IGNORE;
use lathe_train::data::Batch;
use lathe_train::tasks::{Sequences, Task};

/// Sequences to judge by.
pub struct Samples {
    /// What is wanted of them.
    pub task: &'static dyn Task,
    /// Sequences side by side, padded behind where they are documents or examples.
    pub batches: Vec<Batch>,
    /// Tokens, or examples, that are scored.
    pub tokens: u64,
    /// Bytes of text that they stand for; of examples, how many there are.
    pub bytes: f64,
}

/// Something that predicts.
pub trait Predictor {
    /// The memory to begin with.
    fn memory(&self, batch: usize) -> State;
    /// The losses of an objective.
    fn losses(&self, input: &Input<'_>, objective: &dyn Objective, state: &mut State) -> Vec<f32>;
}

impl Predictor for Network {
    fn memory(&self, batch: usize) -> State {
        self.init_memory(batch)
    }

    fn losses(&self, input: &Input<'_>, objective: &dyn Objective, state: &mut State) -> Vec<f32> {
        self.loss(input, objective, state)
    }
}

/// One option of each slot of a super net.
pub struct Assembled<'a>(pub &'a SuperNet, pub &'a [usize]);

impl Predictor for Assembled<'_> {
    fn memory(&self, batch: usize) -> State {
        self.0.init_memory(batch)
    }

    fn losses(&self, input: &Input<'_>, objective: &dyn Objective, state: &mut State) -> Vec<f32> {
        self.0.loss(input, objective, state, &stack_choice(self.1))
    }
}

impl Samples {
    /// Calls `each` with every batch, its number and the state to compute it with.
    pub fn visit(&self, of: &dyn Predictor, mut each: impl FnMut(usize, &Sequences<'_>, &mut State)) {
        let mut state: Option<State> = None;
        for (i, batch) in self.batches.iter().enumerate() {
            if batch.fresh || state.is_none() {
                state = Some(of.memory(batch.rows));
            }
            let sequences = Sequences::new(batch.input(batch.rows), &batch.targets);
            each(i, &sequences, state.as_mut().expect("just made"));
        }
    }

    /// Nats per token; of examples, the task's loss of one.
    pub fn loss(&self, of: &dyn Predictor) -> f64 {
        let mut nats = 0.0;
        self.visit(of, |_, sequences, state| {
            let losses = of.losses(&sequences.input, &*self.task.objective(*sequences), state);
            nats += losses.iter().copied().map(f64::from).sum::<f64>();
        });
        nats / self.tokens as f64
    }

    /// Bits per byte of a loss; of examples, bits for each.
    pub fn bits_per_byte(&self, loss: f64) -> f64 {
        loss * self.tokens as f64 / std::f64::consts::LN_2 / self.bytes
    }

    /// Single sequences, or single examples with all their texts, to look at a network with.
    pub fn singles(&self, most: usize) -> Vec<Batch> {
        let of_examples = self.task.of_examples().is_some();
        let of_batch = |batch: &Batch| -> Vec<Batch> {
            let len = batch.ids.len() / batch.rows;
            // Texts after the first of an example have no target.
            let begins = |row: &usize| !of_examples || batch.targets[row * len] != IGNORE;
            let first: Vec<usize> = (0..batch.rows).filter(begins).chain([batch.rows]).collect();
            first.windows(2).map(|pair| single(batch, len, pair[0]..pair[1], of_examples)).collect()
        };
        self.batches.iter().flat_map(of_batch).take(most).collect()
    }
}

/// Some rows of a batch; those of examples without the padding that they do not need.
fn single(batch: &Batch, len: usize, rows: std::ops::Range<usize>, of_examples: bool) -> Batch {
    let real =
        |row: usize| batch.mask.get(row * len..(row + 1) * len).map_or(len, |mask| mask.iter().filter(|&&x| x).count());
    let longest = rows.clone().map(real).max().unwrap_or(len);
    let places = || rows.clone().flat_map(|row| row * len..row * len + longest);
    let take = |values: &[u32]| places().filter_map(|at| values.get(at)).copied().collect();
    Batch {
        rows: rows.len(),
        ids: take(&batch.ids),
        targets: take(&batch.targets),
        segments: take(&batch.segments),
        // Which tokens are there is told of all examples.
        mask: if of_examples {
            places().map(|at| batch.mask.get(at).is_none_or(|&real| real)).collect()
        } else {
            Vec::new()
        },
        fresh: true,
        ..Batch::default()
    }
}
