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

/// Trains the scales and offsets of all matrices that are held as integers, by the divergence of the network's output
/// probabilities from the teacher's on sequences of tokens. `done` is told the mean divergence of each step.
pub fn tune(
    network: &mut Network,
    teacher: &Network,
    sequences: &[Vec<u32>],
    tuning: &Tuning,
    done: &mut dyn FnMut(u32, f64),
) {
    let mut matrices = begin(network);
    let mut rng = ChaCha8Rng::seed_from_u64(tuning.seed);
    let mut order: Vec<usize> = Vec::new();
    let mut grads = Grads::new(network.params());
    for step in 1..=tuning.steps {
        grads.clear();
        let mut batch = Vec::new();
        while batch.len() < tuning.batch.min(sequences.len()) {
            let next = order.pop().unwrap_or_else(|| {
                order = (0..sequences.len()).collect();
                (1..order.len()).for_each(|i| order.swap(i, rng.random_range(0..=i)));
                order.pop().unwrap_or(0)
            });
            batch.push(&sequences[next]);
        }
        let tokens: usize = batch.iter().map(|ids| ids.len()).sum();
        let mut sum = 0.0;
        for ids in batch {
            let input = Input::tokens(ids, 1);
            let hidden = teacher.hidden(&input, &mut teacher.init_memory(1));
            let objective = Divergence { teacher, hidden, rows: ids.len() };
            let training = Training { dropout_key: None, balance: 0.0, scale: 1.0 / tokens as f32 };
            let outcome = network.train(&input, &objective, &mut network.init_memory(1), &training, &mut grads);
            sum += outcome.losses.iter().copied().map(f64::from).sum::<f64>();
        }
        let rate = tuning.rate * (1.0 - (step - 1) as f32 / tuning.steps as f32);
        let reached = grads.finish();
        for (matrix, param) in matrices.iter_mut().zip(network.params_mut()) {
            let Some(matrix) = matrix else { continue };
            matrix.step(&reached[matrix.at], step as i32, rate);
            param.data = matrix.values();
        }
        done(step, sum / tokens.max(1) as f64);
    }
    network.set_rounded_inputs(&|_| None);
    for (matrix, param) in matrices.into_iter().zip(network.params_mut()) {
        if let Some(matrix) = matrix {
            param.set_integers(matrix.integers);
            param.set_activations(matrix.activations);
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
        for (i, matrix) in self.integers.iter_mut().enumerate() {
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
