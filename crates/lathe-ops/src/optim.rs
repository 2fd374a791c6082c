//! Fused optimiser steps: one pass over weights, gradients and moments.

use crate::simd::simd;
use rayon::prelude::*;

/// AdamW (Loshchilov and Hutter, 2019) with its hyperparameters.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct AdamW {
    pub lr: f32,
    pub betas: (f32, f32),
    pub eps: f32,
    pub weight_decay: f32,
}

impl AdamW {
    /// One step: `step` counts from 1; gradients are multiplied by `scale` (of clipping) first.
    pub fn step(&self, step: i32, scale: f32, w: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32]) {
        const PIECE: usize = 1 << 16;
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
        let pieces =
            w.par_chunks_mut(PIECE).zip(g.par_chunks(PIECE)).zip(m.par_chunks_mut(PIECE)).zip(v.par_chunks_mut(PIECE));
        pieces.for_each(|(((w, g), m), v)| adamw(hyper, w, g, m, v));
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
