//! Fused optimiser steps: one pass over weights, gradients and moments.

use crate::parallel;
use crate::simd::simd;

/// AdamW (Loshchilov and Hutter, 2019) with its hyperparameters.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct AdamW {
    pub lr: f32,
    pub betas: (f32, f32),
    pub eps: f32,
    pub weight_decay: f32,
}

/// What a thread takes at a time.
const PIECE: usize = 1 << 16;

impl AdamW {
    /// One step: `step` counts from 1; gradients are multiplied by `scale` (of clipping) first.
    pub fn step(&self, step: i32, scale: f32, w: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32]) {
        let hyper = Hyper {
            decay: 1.0 - self.lr * self.weight_decay,
            beta1: self.betas.0,
            beta2: self.betas.1,
            // w -= lr * (m / c1) / (sqrt(v / c2) + eps)
            rate: self.lr / (1.0 - self.betas.0.powi(step)),
            root: 1.0 / (1.0 - self.betas.1.powi(step)).sqrt(),
            eps: self.eps,
            scale,
        };
        let pieces = w.chunks_mut(PIECE).zip(g.chunks(PIECE)).zip(m.chunks_mut(PIECE)).zip(v.chunks_mut(PIECE));
        parallel::each(pieces.collect(), |_, (((w, g), m), v)| adamw(hyper, w, g, m, v));
    }
}

#[derive(Clone, Copy)]
struct Hyper {
    decay: f32,
    beta1: f32,
    beta2: f32,
    rate: f32,
    root: f32,
    eps: f32,
    scale: f32,
}

simd! {
    fn adamw(h: Hyper, w: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32]) {
        for (((w, &g), m), v) in w.iter_mut().zip(g).zip(m).zip(v) {
            let g = g * h.scale;
            *m = h.beta1 * *m + (1.0 - h.beta1) * g;
            *v = h.beta2 * *v + (1.0 - h.beta2) * g * g;
            *w = *w * h.decay - h.rate * *m / ((*v).sqrt() * h.root + h.eps);
        }
    }
}

/// The sum of squares, in pieces whose order is fixed.
pub fn squared_length(x: &[f32]) -> f64 {
    let mut sums = vec![0.0; x.len().div_ceil(PIECE)];
    parallel::each(x.chunks(PIECE).zip(&mut sums).collect(), |_, (x, sum)| *sum = squares(x));
    sums.iter().sum()
}

simd! {
    fn squares(x: &[f32]) -> f64 {
        const LANES: usize = 32;
        // f32 sums of 128 numbers lose little; f64 adds them up.
        x.chunks(128 * LANES).map(|x| {
            let mut lanes = [0.0f32; LANES];
            for x in x.chunks(LANES) {
                lanes.iter_mut().zip(x).for_each(|(sum, x)| *sum += x * x);
            }
            lanes.iter().map(|&sum| f64::from(sum)).sum::<f64>()
        }).sum()
    }
}

/// LAMB (You et al., 2020) with its hyperparameters: Adam's update together with the decay,
/// u = m / (sqrt(v) + eps) + weight_decay * w, made as long as the weights of the tensor:
/// w -= lr * u * |w| / |u|, or w -= lr * u where either length is 0.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Lamb {
    pub kind: LambKind,
    pub lr: f32,
    pub betas: (f32, f32),
    pub eps: f32,
    pub weight_decay: f32,
}

/// Which LAMB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LambKind {
    /// As published, with corrected moments. With gradients that `scale` divides by the length of all of them
    /// together, this is NVLAMB.
    Published,
    /// As NVIDIA trains Transformer-XL (JITLamb): moments are not corrected, |w| counts as at most 10, and eps is
    /// added to |u|.
    Jit,
}

impl Lamb {
    /// One step of one tensor: `step` counts from 1; gradients are multiplied by `scale` first.
    pub fn step(&self, step: i32, scale: f32, w: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32]) {
        let correction = |beta: f32| match self.kind {
            LambKind::Published => 1.0 / (1.0 - beta.powi(step)),
            LambKind::Jit => 1.0,
        };
        let mut hyper = Hyper {
            decay: self.weight_decay,
            beta1: self.betas.0,
            beta2: self.betas.1,
            rate: correction(self.betas.0),
            root: correction(self.betas.1).sqrt(),
            eps: self.eps,
            scale,
        };
        let mut squares = vec![[0.0; 2]; w.len().div_ceil(PIECE)];
        let moments = g.chunks(PIECE).zip(m.chunks_mut(PIECE)).zip(v.chunks_mut(PIECE));
        let pieces = w.chunks(PIECE).zip(moments).zip(&mut squares);
        parallel::each(pieces.collect(), |_, ((w, ((g, m), v)), squares)| {
            *squares = lamb_moments(hyper, w, g, m, v);
        });
        let [weights, update] = [0, 1].map(|i| squares.iter().map(|s| f64::from(s[i])).sum::<f64>().sqrt());
        let ratio = match self.kind {
            _ if weights == 0.0 || update == 0.0 => 1.0,
            LambKind::Published => weights / update,
            LambKind::Jit => weights.min(10.0) / (update + f64::from(self.eps)),
        };
        hyper.scale = self.lr * ratio as f32;
        let pieces = w.chunks_mut(PIECE).zip(m.chunks(PIECE)).zip(v.chunks(PIECE));
        parallel::each(pieces.collect(), |_, ((w, m), v)| lamb_weights(hyper, w, m, v));
    }
}

#[inline(always)]
fn lamb_update(h: Hyper, w: f32, m: f32, v: f32) -> f32 {
    m * h.rate / (v.sqrt() * h.root + h.eps) + h.decay * w
}

simd! {
    /// Moves the moments on; returns the squared lengths of weights and update.
    fn lamb_moments(h: Hyper, w: &[f32], g: &[f32], m: &mut [f32], v: &mut [f32]) -> [f32; 2] {
        const LANES: usize = 32;
        let mut squares = [[0.0f32; LANES]; 2];
        let moments = m.chunks_mut(LANES).zip(v.chunks_mut(LANES));
        for ((w, g), (m, v)) in w.chunks(LANES).zip(g.chunks(LANES)).zip(moments) {
            for i in 0..w.len() {
                let g = g[i] * h.scale;
                m[i] = h.beta1 * m[i] + (1.0 - h.beta1) * g;
                v[i] = h.beta2 * v[i] + (1.0 - h.beta2) * g * g;
                let update = lamb_update(h, w[i], m[i], v[i]);
                squares[0][i] += w[i] * w[i];
                squares[1][i] += update * update;
            }
        }
        squares.map(|lanes| lanes.iter().sum())
    }
}

simd! {
    fn lamb_weights(h: Hyper, w: &mut [f32], m: &[f32], v: &[f32]) {
        for ((w, &m), &v) in w.iter_mut().zip(m).zip(v) {
            *w -= h.scale * lamb_update(h, *w, m, v);
        }
    }
}

/// Stochastic gradient descent with momentum (Polyak, 1964): m = momentum * m + g + weight_decay * w, w -= lr * m.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Sgd {
    pub lr: f32,
    pub momentum: f32,
    pub weight_decay: f32,
}

impl Sgd {
    /// One step; gradients are multiplied by `scale` first.
    pub fn step(&self, scale: f32, w: &mut [f32], g: &[f32], m: &mut [f32]) {
        let pieces = w.chunks_mut(PIECE).zip(g.chunks(PIECE)).zip(m.chunks_mut(PIECE));
        parallel::each(pieces.collect(), |_, ((w, g), m)| sgd(*self, scale, w, g, m));
    }
}

simd! {
    fn sgd(h: Sgd, scale: f32, w: &mut [f32], g: &[f32], m: &mut [f32]) {
        for ((w, &g), m) in w.iter_mut().zip(g).zip(m) {
            *m = h.momentum * *m + g * scale + h.weight_decay * *w;
            *w -= h.lr * *m;
        }
    }
}
