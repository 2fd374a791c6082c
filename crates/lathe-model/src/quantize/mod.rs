//! Weights rounded to integers after training.
//!
//! Without text, each group of weights is rounded to a grid of its own ([`Range`]). With text, a network is rounded from the
//! bottom up: the inputs of a block are those that the rounded blocks below it produce, and each matrix is rounded so
//! that its outputs for those inputs stay ([`compensate`]).

pub mod compensate;
mod grid;
mod tune;

pub use grid::{Grid, Range};
pub use tune::{Tuner, Tuning};

use crate::network::Network;
use crate::params::{Observer, Param, ParamId, Place};
use crate::stem::Input;
use lathe_ops::gemm::{Mat, MatMut, Rhs, gemm};
use lathe_ops::integers::{Activations, Format, Integers};
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// How a network is rounded.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the matrices of each slot become; `None` leaves them.
    pub slots: Vec<Option<Format>>,
    /// What embedding and output layer become; `None` leaves them.
    pub output: Option<Format>,
    /// How the range of a group is found.
    pub range: Range,
    /// Whether later weights of a row make up for the errors of earlier ones, where there is text.
    pub compensate: bool,
}

/// Sums of products of inputs, X^T X, of each matrix that is watched.
#[derive(Default)]
struct Grams {
    sums: Mutex<HashMap<(ParamId, usize), Vec<f32>>>,
}

impl Observer for Grams {
    fn inputs(&self, weight: ParamId, matrix: usize, x: Mat<'_>) {
        let n = x.cols();
        let key = (weight, matrix);
        let taken = self.sums.lock().expect("nobody panics with it").remove(&key);
        let mut sum = taken.unwrap_or_else(|| vec![0.0; n * n]);
        gemm(MatMut::new(&mut sum, n, n), x.t(), x, true);
        self.sums.lock().expect("nobody panics with it").insert(key, sum);
    }
}

/// Rounds a matrix [outputs, inputs]. `gram` is X^T X of its inputs, where they are known.
pub fn matrix(w: Mat<'_>, format: Format, range: Range, gram: Option<&[f32]>, compensate: bool) -> Integers {
    let (outputs, inputs) = (w.rows(), w.cols());
    let importance: Option<Vec<f32>> = gram.map(|gram| (0..inputs).map(|i| gram[i * inputs + i]).collect());
    let factor = gram.filter(|_| compensate).map(|gram| compensate::inverse_factor(gram, inputs));
    let group = format.group().unwrap_or(inputs).max(1);
    let groups = format.groups(inputs);
    let mut codes = vec![0u8; outputs * inputs];
    let (mut scales, mut offsets) = (vec![0.0f32; outputs * groups], vec![0.0f32; outputs * groups]);
    let rows = codes.par_chunks_mut(inputs).zip(scales.par_chunks_mut(groups).zip(offsets.par_chunks_mut(groups)));
    rows.enumerate().for_each(|(o, (codes, (scales, offsets)))| {
        let mut row: Vec<f32> = (0..inputs).map(|i| w.at(o, i)).collect();
        for (g, start) in (0..inputs).step_by(group).enumerate() {
            let end = (start + group).min(inputs);
            let importance = importance.as_ref().map(|importance| &importance[start..end]);
            let grid = Grid::choose(format, range, &row[start..end], importance);
            (scales[g], offsets[g]) = (grid.scale, grid.offset);
            for i in start..end {
                let code = grid.code(row[i]);
                codes[i] = code as u8;
                if let Some(u) = &factor {
                    let error = row[i] - grid.value(code);
                    compensate::spread(&mut row, i, error, u);
                }
            }
        }
    });
    if !format.offset() {
        offsets.clear();
    }
    Integers::from_codes(format, outputs, inputs, &codes, &scales, &offsets)
}

/// Rounds a parameter's matrices.
fn round(param: &mut Param, format: Format, settings: &Settings, gram: impl Fn(usize) -> Option<Vec<f32>>) {
    let Some(place) = rounded(param) else { return };
    let values = param.read();
    let of = |i: usize| matrix(place.mat(&values, i), format, settings.range, gram(i).as_deref(), settings.compensate);
    let integers = (0..place.count).map(of).collect();
    drop(values);
    param.set_integers(integers);
}

/// How the matrices of a parameter that is to be rounded lie.
fn rounded(param: &Param) -> Option<Place> {
    param.place().filter(|place| !place.exact)
}

/// Rounds a network without looking at any text.
pub fn plainly(network: &mut Network, settings: &Settings) {
    let blocks = network.blocks_params();
    let ranges: Vec<_> = (0..settings.slots.len()).map(|slot| network.slot(slot).params).collect();
    for (at, param) in network.params_mut().enumerate() {
        let slot = ranges.iter().position(|range| range.contains(&at));
        let format =
            slot.map_or_else(|| settings.output.filter(|_| !blocks.contains(&at)), |slot| settings.slots[slot]);
        if let Some(format) = format {
            round(param, format, settings, |_| None);
        }
    }
}

/// Rounds a network from the bottom up, by what flows through it for sequences of tokens. `done` is told after each slot
/// and after the rest, with their number.
pub fn calibrated(
    network: &mut Network,
    settings: &Settings,
    sequences: &[Vec<u32>],
    done: &mut dyn FnMut(usize, usize),
) {
    let slots = network.model.blocks.len();
    let mut streams: Vec<_> = sequences.iter().map(|ids| network.enter(&Input::tokens(ids, 1))).collect();
    for slot in 0..slots {
        let params = network.slot(slot).params;
        if let (Some(format), false) = (settings.slots[slot], params.is_empty()) {
            let grams = observed(network, |network| {
                for (ids, stream) in sequences.iter().zip(&streams) {
                    network.run_slot(slot, &Input::tokens(ids, 1), stream.clone());
                }
            });
            for (at, param) in network.params_mut().enumerate().filter(|(at, _)| params.contains(at)) {
                round(param, format, settings, |i| grams.get(&(ParamId(at), i)).cloned());
            }
        }
        for (ids, stream) in sequences.iter().zip(&mut streams) {
            *stream = network.run_slot(slot, &Input::tokens(ids, 1), stream.clone());
        }
        done(slot + 1, slots + 1);
    }
    if let Some(format) = settings.output {
        round_outside(network, format, settings, streams);
    }
    done(slots + 1, slots + 1);
}

/// Rounds what no block has: embeddings plainly, for whose rows are read as they are; an output layer of its own by its
/// inputs.
fn round_outside(network: &mut Network, format: Format, settings: &Settings, streams: Vec<crate::layer::Stream>) {
    let tables: Vec<usize> = network.body.stem.reads().into_iter().map(|id| id.0).collect();
    let own = network.has_head() && network.body.head_weights().iter().any(|id| !tables.contains(&id.0));
    let grams = match own {
        false => HashMap::new(),
        true => observed(network, |network| {
            for stream in streams {
                let hidden = network.leave(stream);
                network.outputs(&hidden);
            }
        }),
    };
    let blocks = network.blocks_params();
    for (at, param) in network.params_mut().enumerate().filter(|(at, _)| !blocks.contains(at)) {
        let gram = |i: usize| grams.get(&(ParamId(at), i)).filter(|_| !tables.contains(&at)).cloned();
        round(param, format, settings, gram);
    }
}

/// What enters products while something runs.
fn observed(network: &mut Network, run: impl FnOnce(&Network)) -> HashMap<(ParamId, usize), Vec<f32>> {
    let grams = Arc::new(Grams::default());
    network.set_observer(Some(grams.clone()));
    run(network);
    network.set_observer(None);
    std::mem::take(&mut *grams.sums.lock().expect("nobody panics with it"))
}

/// How much rounding activations to 8 bits changes the outputs of each matrix that is held as integers: the share of their
/// squares, the largest first.
pub fn activation_errors(network: &mut Network, sequences: &[Vec<u32>]) -> Vec<(usize, f64)> {
    let integers = network.params().iter().map(|param| param.integers().to_vec()).collect();
    let errors = Arc::new(ActivationErrors { integers, sums: Mutex::default() });
    network.set_observer(Some(errors.clone()));
    for ids in sequences {
        let hidden = network.hidden(&Input::tokens(ids, 1), &mut network.init_memory(1));
        if network.has_head() {
            network.outputs(&hidden);
        }
    }
    network.set_observer(None);
    let sums = errors.sums.lock().expect("nobody panics with it");
    let mut shares: Vec<(usize, f64)> = sums.iter().map(|(&at, &[error, all])| (at, error / all.max(1e-30))).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    shares
}

/// Rows of each product that are compared.
const ROWS: usize = 32;

struct ActivationErrors {
    integers: Vec<Vec<Arc<Integers>>>,
    /// Squares of differences, and of outputs.
    sums: Mutex<HashMap<usize, [f64; 2]>>,
}

impl Observer for ActivationErrors {
    fn inputs(&self, weight: ParamId, matrix: usize, x: Mat<'_>) {
        let Some(w) = self.integers[weight.0].get(matrix) else { return };
        let (rows, outputs) = (x.rows().min(ROWS), w.outputs());
        let x = x.rows_from(0, rows);
        let product = |activations| {
            let mut y = vec![0.0; rows * outputs];
            gemm(MatMut::new(&mut y, rows, outputs), x, Rhs::Integers { w, first: 0, outputs, activations }, false);
            y
        };
        let (rounded, exact) = (product(Activations::Int8), product(Activations::Float));
        let square = |x: f32| f64::from(x) * f64::from(x);
        let error: f64 = rounded.iter().zip(&exact).map(|(a, b)| square(a - b)).sum();
        let mut sums = self.sums.lock().expect("nobody panics with it");
        let [errors, all] = sums.entry(weight.0).or_default();
        *errors += error;
        *all += exact.iter().map(|&y| square(y)).sum::<f64>();
    }
}
