//! The optimiser of a run: a rule, its hyperparameters, and the moments of every parameter.

use crate::settings::Settings;
use lathe_model::{Grads, Param, Params};
use lathe_ops::optim::{AdamW, Lamb, LambKind, Sgd, squared_length};
use std::ops::Range;

/// How weights move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// AdamW (Loshchilov and Hutter, 2019).
    AdamW,
    /// LAMB as published (You et al., 2020).
    Lamb,
    /// LAMB as NVIDIA trains Transformer-XL, and so PLANER.
    JitLamb,
    /// LAMB after all gradients together were made of length 1.
    NvLamb,
    /// Stochastic gradient descent with momentum.
    Sgd,
}

const RULES: &[(&str, Rule)] = &[
    ("adamw", Rule::AdamW),
    ("lamb", Rule::Lamb),
    ("jitlamb", Rule::JitLamb),
    ("nvlamb", Rule::NvLamb),
    ("sgd", Rule::Sgd),
];

impl Rule {
    /// The rule of a name.
    pub fn named(name: &str) -> Option<Self> {
        RULES.iter().find(|(known, _)| *known == name).map(|&(_, rule)| rule)
    }

    /// All names.
    pub fn names() -> String {
        RULES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// Moments per parameter.
    fn moments(self) -> usize {
        if self == Self::Sgd { 1 } else { 2 }
    }

    fn eps(self) -> f64 {
        match self {
            Self::Lamb | Self::JitLamb | Self::NvLamb => 1e-6,
            Self::AdamW | Self::Sgd => 1e-8,
        }
    }
}

/// How some parameters move in a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    /// Which, in the order of all.
    pub params: Range<usize>,
    /// The number of the step for these, counted from 1: how often they moved, this time included.
    pub step: u32,
    /// Their learning rate, as a share of the step's.
    pub rate: f64,
}

/// A rule with its state.
pub struct Optimizer {
    rule: Rule,
    betas: (f32, f32),
    eps: f32,
    weight_decay: f32,
    /// The longest gradient; 0 for no limit.
    clip: f64,
    /// The first moments of all parameters in their order, then the second.
    moments: Vec<Vec<Vec<f32>>>,
}

impl Optimizer {
    /// The optimiser of a run's settings, for these parameters.
    pub fn new(rule: Rule, settings: &Settings, params: &Params) -> Self {
        let zeros = || params.iter().map(|param| vec![0.0; param.data.len()]).collect();
        Self {
            rule,
            betas: (settings.beta1 as f32, settings.beta2 as f32),
            eps: if settings.eps == 0.0 { rule.eps() } else { settings.eps } as f32,
            weight_decay: settings.weight_decay as f32,
            clip: settings.clip,
            moments: (0..rule.moments()).map(|_| zeros()).collect(),
        }
    }

    /// The moments, for a checkpoint.
    pub fn moments(&self) -> &[Vec<Vec<f32>>] {
        &self.moments
    }

    /// The moments, to be read from a checkpoint.
    pub fn moments_mut(&mut self) -> &mut [Vec<Vec<f32>>] {
        &mut self.moments
    }

    /// One step, counted from 1. Returns the length of the gradient; where that is not finite, nothing was changed.
    pub fn step<'a>(
        &mut self,
        params: impl Iterator<Item = &'a mut Param>,
        grads: &mut Grads,
        step: u32,
        lr: f64,
    ) -> f64 {
        self.apply(params, grads.finish(), |_| Some((step, lr, 0)))
    }

    /// One step in which parameters move at different paces; those of which nothing is said keep their values and moments.
    /// The gradients of a group are clipped together. Returns as [`Self::step`] does.
    pub fn step_paced<'a>(
        &mut self,
        params: impl Iterator<Item = &'a mut Param>,
        grads: &mut Grads,
        groups: &[Vec<Pace>],
        lr: f64,
    ) -> f64 {
        let grads = grads.finish();
        let mut of_param = vec![None; grads.len()];
        for (group, paces) in groups.iter().enumerate() {
            for pace in paces {
                of_param[pace.params.clone()].fill(Some((pace.step, pace.rate * lr, group)));
            }
        }
        self.apply(params, grads, |i| of_param[i])
    }

    /// One step of those parameters that the gradients reached; the others, which took no part, keep their values and
    /// moments. `steps` counts the steps of each parameter. Returns as [`Self::step`] does.
    pub fn step_reached<'a>(
        &mut self,
        params: impl Iterator<Item = &'a mut Param>,
        grads: &mut Grads,
        steps: &mut [u32],
        lr: f64,
    ) -> f64 {
        let reached = grads.reached().to_vec();
        let norm = self.apply(params, grads.as_reached(), |i| reached[i].then_some((steps[i] + 1, lr, 0)));
        if norm.is_finite() {
            steps.iter_mut().zip(reached).for_each(|(steps, reached)| *steps += u32::from(reached));
        }
        norm
    }

    /// What the gradients of a group of a length are multiplied by.
    fn scale(&self, norm: f64) -> f32 {
        (match self.rule {
            Rule::NvLamb if norm > 0.0 => 1.0 / norm,
            Rule::NvLamb => 1.0,
            _ if self.clip > 0.0 && norm > self.clip => self.clip / norm,
            _ => 1.0,
        }) as f32
    }

    /// Steps the parameters for which `pace_of` gives the number of the step, the learning rate and the group.
    fn apply<'a>(
        &mut self,
        params: impl Iterator<Item = &'a mut Param>,
        grads: &[Vec<f32>],
        pace_of: impl Fn(usize) -> Option<(u32, f64, usize)>,
    ) -> f64 {
        let mut squares: Vec<f64> = Vec::new();
        for (grad, (.., group)) in grads.iter().enumerate().filter_map(|(i, grad)| Some((grad, pace_of(i)?))) {
            squares.resize(squares.len().max(group + 1), 0.0);
            squares[group] += squared_length(grad);
        }
        let norm = squares.iter().sum::<f64>().sqrt();
        if !norm.is_finite() {
            return norm;
        }
        let scales: Vec<f32> = squares.iter().map(|square| self.scale(square.sqrt())).collect();
        let (first, second) = self.moments.split_at_mut(1);
        for (i, (param, g)) in params.zip(grads).enumerate() {
            let Some((step, lr, group)) = pace_of(i) else { continue };
            let (step, lr, scale) = (step as i32, lr as f32, scales[group]);
            // Biases, norms and other vectors are few and have no scale to be kept small.
            let weight_decay = if param.shape.len() > 1 { self.weight_decay } else { 0.0 };
            let (betas, eps) = (self.betas, self.eps);
            let (w, m) = (&mut param.data, &mut first[0][i]);
            match self.rule {
                Rule::AdamW => {
                    AdamW { lr, betas, eps, weight_decay }.step(step, scale, w, g, m, &mut second[0][i]);
                }
                Rule::Lamb | Rule::NvLamb | Rule::JitLamb => {
                    let kind = if self.rule == Rule::JitLamb { LambKind::Jit } else { LambKind::Published };
                    Lamb { kind, lr, betas, eps, weight_decay }.step(step, scale, w, g, m, &mut second[0][i]);
                }
                Rule::Sgd => Sgd { lr, momentum: betas.0, weight_decay }.step(scale, w, g, m),
            }
        }
        norm
    }
}
