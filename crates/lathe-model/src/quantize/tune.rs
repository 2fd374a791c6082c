//! Scales and offsets trained after rounding, so that the model's output probabilities become those of the original again.
//! Codes stay as they are: each weight is scale * code + offset, so the gradient of a scale is a sum over its group, and a few
//! hundred steps are enough.

use crate::head::{LogitLoss, Top};
use crate::network::Network;
use crate::objective::Objective;
use crate::params::{Grads, Params, Place};
use crate::stem::Input;
use crate::{Training, quantize::rounded};
use lathe_ops::buffer::Buf;
use lathe_ops::integers::{Activations, Integers};
use lathe_ops::loss::soft::{self, LOSSES, Terms};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

/// How scales are trained.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Steps of the optimiser.
    pub steps: u32,
    /// Sequences of a step.
    pub batch: usize,
    /// The most that a step changes a scale by, as a share of it; falls to 0 in the end.
    pub rate: f32,
    /// Of the order of the sequences.
    pub seed: u64,
}

/// Trains the scales and offsets of all matrices of a network that are held as integers, by the divergence of its output
/// probabilities from a teacher's on sequences of tokens.
pub struct Tuner {
    tuning: Tuning,
    matrices: Vec<Option<Tuned>>,
    grads: Grads,
    /// Steps done.
    step: u32,
    /// An epoch, and the order of the sequences in it.
    order: (u64, Vec<usize>),
}

impl Tuner {
    /// Begins: until [`Self::end`], the network has weights that gradients can be computed of.
    pub fn new(network: &mut Network, tuning: Tuning) -> Self {
        let matrices = begin(network);
        let grads = Grads::new(network.params());
        Self { tuning, matrices, grads, step: 0, order: (u64::MAX, Vec::new()) }
    }

    /// Steps done.
    pub fn steps(&self) -> u32 {
        self.step
    }

    /// The sequence at a place of all epochs one after the other, each in an order of its own.
    fn place(&mut self, at: u64, count: usize) -> usize {
        let epoch = at / count as u64;
        if self.order.0 != epoch {
            let mut rng = ChaCha8Rng::seed_from_u64(self.tuning.seed);
            rng.set_stream(epoch);
            let mut order: Vec<usize> = (0..count).collect();
            (1..count).for_each(|i| order.swap(i, rng.random_range(0..=i)));
            self.order = (epoch, order);
        }
        self.order.1[(at % count as u64) as usize]
    }

    /// A step; returns the mean divergence before it.
    pub fn step(&mut self, network: &mut Network, teacher: &Network, sequences: &[Vec<u32>]) -> f64 {
        if sequences.is_empty() {
            self.step += 1;
            return 0.0;
        }
        let size = self.tuning.batch.min(sequences.len());
        let first = u64::from(self.step) * size as u64;
        let batch: Vec<&[u32]> =
            (first..first + size as u64).map(|at| &sequences[self.place(at, sequences.len())][..]).collect();
        self.step += 1;
        self.grads.clear();
        let tokens: usize = batch.iter().map(|ids| ids.len()).sum();
        let mut sum = 0.0;
        for ids in batch {
            let input = Input::tokens(ids, 1);
            let hidden = teacher.hidden(&input, &mut teacher.init_memory(1));
            let objective = Divergence { teacher, hidden, rows: ids.len() };
            let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 / tokens as f32 };
            let outcome = network.train(&input, &objective, &mut network.init_memory(1), &training, &mut self.grads);
            sum += outcome.losses.iter().copied().map(f64::from).sum::<f64>();
        }
        let rate = self.tuning.rate * (1.0 - (self.step - 1) as f32 / self.tuning.steps as f32);
        let reached = self.grads.finish();
        for (matrix, param) in self.matrices.iter_mut().zip(network.params_mut()) {
            let Some(matrix) = matrix else { continue };
            matrix.step(&reached[matrix.at], self.step as i32, rate);
            param.data = matrix.values();
        }
        sum / tokens.max(1) as f64
    }

    /// Scales and offsets, and the first and second moments of their gradients, of all matrices one after the other.
    pub fn state(&self) -> [Vec<f32>; 3] {
        let mut state = [const { Vec::new() }; 3];
        for matrix in self.matrices.iter().flatten() {
            for (sides, moments) in matrix.sides.iter().zip(&matrix.moments) {
                let parts = [sides, &moments[0], &moments[1]];
                state.iter_mut().zip(parts).for_each(|(all, part)| all.extend_from_slice(part));
            }
        }
        state
    }

    /// Goes on after so many steps, from what [`Self::state`] was then.
    pub fn go_on(&mut self, network: &mut Network, step: u32, state: &[Vec<f32>; 3]) {
        let mut at = 0;
        for matrix in self.matrices.iter_mut().flatten() {
            for (sides, moments) in matrix.sides.iter_mut().zip(&mut matrix.moments) {
                let [first, second] = moments;
                let range = at..at + sides.len();
                let parts = [sides, first, second];
                parts.into_iter().zip(state).for_each(|(part, all)| part.copy_from_slice(&all[range.clone()]));
                at = range.end;
            }
            matrix.set_sides();
        }
        for (matrix, param) in self.matrices.iter().zip(network.params_mut()) {
            if let Some(matrix) = matrix {
                param.data = matrix.values();
            }
        }
        self.step = step;
    }

    /// Gives the network its integers back, with the scales as they are now.
    pub fn end(self, network: &mut Network) {
        network.set_rounded_inputs(&|_| None);
        for (matrix, param) in self.matrices.into_iter().zip(network.params_mut()) {
            if let Some(matrix) = matrix {
                param.set_integers(matrix.integers);
                param.set_activations(matrix.activations);
            }
        }
    }
}

/// Gives each matrix of integers values that gradients can be computed of.
fn begin(network: &mut Network) -> Vec<Option<Tuned>> {
    let mut matrices = Vec::new();
    for (at, param) in network.params_mut().enumerate() {
        let Some(place) = rounded(param).filter(|_| !param.integers().is_empty()) else {
            matrices.push(None);
            continue;
        };
        let integers: Vec<Integers> = param.integers().iter().map(|integers| Integers::clone(integers)).collect();
        let tuned = Tuned::new(at, place, integers, param.activations());
        param.set_data(tuned.values());
        matrices.push(Some(tuned));
    }
    let formats: Vec<_> = matrices.iter().map(|matrix| matrix.as_ref().and_then(Tuned::rounds)).collect();
    network.set_rounded_inputs(&|at| formats[at]);
    matrices
}

/// The matrices of a parameter whose scales are trained.
struct Tuned {
    /// Which parameter.
    at: usize,
    place: Place,
    integers: Vec<Integers>,
    activations: Activations,
    /// Scales, then offsets, of each matrix.
    sides: Vec<Vec<f32>>,
    /// First and second moments of their gradients.
    moments: Vec<[Vec<f32>; 2]>,
}

const BETAS: [f32; 2] = [0.9, 0.99];

impl Tuned {
    fn new(at: usize, place: Place, integers: Vec<Integers>, activations: Activations) -> Self {
        let sides: Vec<Vec<f32>> = integers.iter().map(|matrix| [matrix.scales(), matrix.offsets()].concat()).collect();
        let moments = sides.iter().map(|sides| [vec![0.0; sides.len()], vec![0.0; sides.len()]]).collect();
        Self { at, place, integers, activations, sides, moments }
    }

    /// What its inputs are rounded as.
    fn rounds(&self) -> Option<lathe_ops::integers::Format> {
        (self.activations == Activations::Int8).then(|| self.integers[0].format())
    }

    fn values(&self) -> Vec<f32> {
        self.place.values(self.integers.iter().map(Integers::read))
    }

    /// A step of Adam, relative to the size of each scale.
    fn step(&mut self, gradient: &[f32], step: i32, rate: f32) {
        for (i, matrix) in self.integers.iter().enumerate() {
            let (sides, moments) = (&mut self.sides[i], &mut self.moments[i]);
            let scales = sides.len() / if matrix.format().offset() { 2 } else { 1 };
            let dsides = gradient_of_sides(matrix, &self.place, gradient, i);
            let sizes = sides[..scales].to_vec();
            let [first, second] = moments;
            for (at, side) in sides.iter_mut().enumerate() {
                // Of the logarithm of a scale, and of an offset in units of its scale.
                let size = sizes[at % scales];
                let d = dsides[at] * size;
                first[at] = BETAS[0] * first[at] + (1.0 - BETAS[0]) * d;
                second[at] = BETAS[1] * second[at] + (1.0 - BETAS[1]) * d * d;
                let mean = first[at] / (1.0 - BETAS[0].powi(step));
                let root = (second[at] / (1.0 - BETAS[1].powi(step))).sqrt();
                if root > 0.0 {
                    *side -= rate * size * mean / root;
                }
            }
        }
        self.set_sides();
    }

    /// Gives the integers their scales and offsets.
    fn set_sides(&mut self) {
        for (matrix, sides) in self.integers.iter_mut().zip(&self.sides) {
            let scales = sides.len() / if matrix.format().offset() { 2 } else { 1 };
            matrix.set_scales(&sides[..scales]);
            if matrix.format().offset() {
                matrix.set_offsets(&sides[scales..]);
            }
        }
    }
}

/// The gradients of scales, and then of offsets, from that of the weights.
fn gradient_of_sides(matrix: &Integers, place: &Place, gradient: &[f32], i: usize) -> Vec<f32> {
    let (format, inputs) = (matrix.format(), matrix.inputs());
    let (groups, group) = (format.groups(inputs), format.group().unwrap_or(inputs));
    let d = place.mat(gradient, i);
    let middle = if format.offset() { 0.0 } else { f32::from(format.middle()) };
    let of_row = |o: usize| {
        let mut codes = vec![0; inputs];
        matrix.codes(o, &mut codes);
        let (mut scales, mut offsets) = (vec![0.0f32; groups], vec![0.0f32; groups]);
        for (c, &code) in codes.iter().enumerate() {
            let d = d.at(o, c);
            scales[c / group] += d * (f32::from(code) - middle);
            offsets[c / group] += d;
        }
        (scales, offsets)
    };
    let rows: Vec<(Vec<f32>, Vec<f32>)> = (0..matrix.outputs()).into_par_iter().map(of_row).collect();
    let (scales, offsets): (Vec<Vec<f32>>, Vec<Vec<f32>>) = rows.into_iter().unzip();
    match format.offset() {
        true => [scales.concat(), offsets.concat()].concat(),
        false => scales.concat(),
    }
}

/// How far output probabilities are from a teacher's, in nats per token.
struct Divergence<'a> {
    teacher: &'a Network,
    /// The teacher's last hidden states.
    hidden: Buf,
    rows: usize,
}

impl Objective for Divergence<'_> {
    fn loss(
        &self,
        top: &Top,
        params: &Params,
        hidden: &[f32],
        gradients: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>) {
        let head = top.head.as_ref().expect("a model with an output layer");
        let rows: Vec<usize> = (0..self.rows).collect();
        head.logit_loss(params, hidden, &rows, self, gradients).expect("a plain softmax, which was looked for")
    }
}

impl LogitLoss for Divergence<'_> {
    fn rows(&self, rows: &[usize], logits: &mut [f32], scale: f32, losses: &mut [f32]) {
        let (width, d) = (logits.len() / rows.len(), self.hidden.len() / self.rows);
        let states: Vec<f32> = rows.iter().flat_map(|&row| &self.hidden[row * d..][..d]).copied().collect();
        let wanted = self.teacher.outputs(&states);
        let terms = Terms { ce: 0.0, kl: 1.0, mse: 0.0, temperature: 1.0 };
        let mut each = vec![0.0; rows.len() * LOSSES];
        let targets = vec![0; rows.len()];
        soft::against_logits(logits, width, &wanted, &targets, &terms, scale, &mut each);
        losses.iter_mut().zip(each.chunks_exact(LOSSES)).for_each(|(loss, each)| *loss = terms.total(each));
    }
}
