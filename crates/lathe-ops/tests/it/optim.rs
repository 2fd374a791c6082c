//! Optimiser steps against plain loops in f64.

use crate::{close, numbers, same_bits};
use lathe_ops::optim::{AdamW, Lamb, LambKind, Sgd};

/// Sizes of one tensor, the last in more than one piece.
const SIZES: [usize; 6] = [1, 3, 17, 65, 193, 70_001];
const STEPS: i32 = 4;
const SCALE: f32 = 0.7;

/// Weights after some steps, of which each has other gradients.
fn after(len: usize, mut step: impl FnMut(i32, &mut [f32], &[f32])) -> Vec<f32> {
    let mut w = numbers(len, 1);
    (1..=STEPS).for_each(|i| step(i, &mut w, &numbers(len, 10 + i as u64)));
    w
}

/// The same by a loop in f64, where `update` gives the new weights from the scaled gradients and two moments.
fn plain(len: usize, mut update: impl FnMut(i32, &mut [f64], &[f64], &mut [f64], &mut [f64])) -> Vec<f32> {
    let wide =
        |x: Vec<f32>, scale: f32| -> Vec<f64> { x.into_iter().map(|x| f64::from(x) * f64::from(scale)).collect() };
    let (mut w, mut m, mut v) = (wide(numbers(len, 1), 1.0), vec![0.0; len], vec![0.0; len]);
    (1..=STEPS).for_each(|i| update(i, &mut w, &wide(numbers(len, 10 + i as u64), SCALE), &mut m, &mut v));
    w.into_iter().map(|w| w as f32).collect()
}

const ADAMW: AdamW = AdamW { lr: 0.01, betas: (0.9, 0.95), eps: 1e-6, weight_decay: 0.1 };

fn fused_adamw(len: usize) -> Vec<f32> {
    let (mut m, mut v) = (vec![0.0; len], vec![0.0; len]);
    after(len, |i, w, g| ADAMW.step(i, SCALE, w, g, &mut m, &mut v))
}

#[test]
fn adamw_is_a_plain_loop() {
    for len in SIZES {
        let expected = plain(len, |step, w, g, m, v| {
            for i in 0..len {
                m[i] = 0.9 * m[i] + 0.1 * g[i];
                v[i] = 0.95 * v[i] + 0.05 * g[i] * g[i];
                let (m, v) = (m[i] / (1.0 - 0.9f64.powi(step)), v[i] / (1.0 - 0.95f64.powi(step)));
                w[i] -= 0.01 * 0.1 * w[i];
                w[i] -= 0.01 * m / (v.sqrt() + 1e-6);
            }
        });
        close("adamw", &fused_adamw(len), &expected, 1e-6);
    }
}

const LAMB: Lamb = Lamb { kind: LambKind::Published, lr: 0.01, betas: (0.9, 0.999), eps: 1e-6, weight_decay: 0.1 };

fn fused_lamb(kind: LambKind, len: usize) -> Vec<f32> {
    let lamb = Lamb { kind, ..LAMB };
    let (mut m, mut v) = (vec![0.0; len], vec![0.0; len]);
    after(len, |i, w, g| lamb.step(i, SCALE, w, g, &mut m, &mut v))
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// You et al., algorithm 2. NVLAMB is the same with gradients divided by their global norm, which `scale` is for.
#[test]
fn lamb_is_a_plain_loop() {
    for len in SIZES {
        let expected = plain(len, |step, w, g, m, v| {
            let mut update = vec![0.0; len];
            for i in 0..len {
                m[i] = 0.9 * m[i] + 0.1 * g[i];
                v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
                let (m, v) = (m[i] / (1.0 - 0.9f64.powi(step)), v[i] / (1.0 - 0.999f64.powi(step)));
                update[i] = m / (v.sqrt() + 1e-6) + 0.1 * w[i];
            }
            let ratio = norm(w) / norm(&update);
            w.iter_mut().zip(update).for_each(|(w, update)| *w -= 0.01 * ratio * update);
        });
        close("lamb", &fused_lamb(LambKind::Published, len), &expected, 2e-6);
    }
}

/// NVIDIA's Transformer-XL: no correction, the norm of weights at most 10, epsilon in the ratio too.
#[test]
fn jit_lamb_is_a_plain_loop() {
    for len in SIZES {
        let expected = plain(len, |_, w, g, m, v| {
            let mut update = vec![0.0; len];
            for i in 0..len {
                m[i] = 0.9 * m[i] + 0.1 * g[i];
                v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
                update[i] = m[i] / (v[i].sqrt() + 1e-6) + 0.1 * w[i];
            }
            let ratio = norm(w).min(10.0) / (norm(&update) + 1e-6);
            w.iter_mut().zip(update).for_each(|(w, update)| *w -= 0.01 * ratio * update);
        });
        close("jit", &fused_lamb(LambKind::Jit, len), &expected, 2e-6);
    }
}

/// Where weights or updates are 0, the ratio is 1.
#[test]
fn lamb_begins_from_zero() {
    for kind in [LambKind::Published, LambKind::Jit] {
        let lamb = Lamb { kind, weight_decay: 0.0, ..LAMB };
        let (mut w, mut m, mut v) = ([0.0; 3], [0.0; 3], [0.0; 3]);
        lamb.step(1, 1.0, &mut w, &[0.0; 3], &mut m, &mut v);
        assert_eq!(w, [0.0; 3]);
        (m, v) = ([0.0; 3], [0.0; 3]);
        let mut plain = AdamW { lr: lamb.lr, betas: lamb.betas, eps: lamb.eps, weight_decay: 0.0 };
        if kind == LambKind::Jit {
            // Uncorrected: m / sqrt(v) = 0.1 / sqrt(0.001) times the corrected one.
            plain.lr *= 0.1 / 0.001f32.sqrt();
        }
        let (mut expected, mut other_m, mut other_v) = ([0.0; 3], [0.0; 3], [0.0; 3]);
        lamb.step(1, 1.0, &mut w, &[1.0, -2.0, 0.5], &mut m, &mut v);
        plain.step(1, 1.0, &mut expected, &[1.0, -2.0, 0.5], &mut other_m, &mut other_v);
        close("ratio 1", &w, &expected, 1e-4);
    }
}

fn fused_sgd(len: usize) -> Vec<f32> {
    let sgd = Sgd { lr: 0.1, momentum: 0.9, weight_decay: 0.01 };
    let mut m = vec![0.0; len];
    after(len, |_, w, g| sgd.step(SCALE, w, g, &mut m))
}

#[test]
fn sgd_is_a_plain_loop() {
    for len in SIZES {
        let expected = plain(len, |_, w, g, m, _| {
            for i in 0..len {
                m[i] = 0.9 * m[i] + g[i] + 0.01 * w[i];
                w[i] -= 0.1 * m[i];
            }
        });
        close("sgd", &fused_sgd(len), &expected, 1e-6);
    }
}

#[test]
fn same_on_any_number_of_threads() {
    let len = 200_003;
    same_bits("steps", || {
        vec![fused_adamw(len), fused_lamb(LambKind::Published, len), fused_lamb(LambKind::Jit, len), fused_sgd(len)]
    });
}

/// Twenty steps as PyTorch takes them: `oracles/optimizers.py`.
#[test]
fn twenty_steps_are_those_of_pytorch() {
    let bytes = include_bytes!("fixtures/optimizers.safetensors");
    let file = safetensors::SafeTensors::deserialize(bytes).expect("the fixture");
    let read = |name: String| -> Vec<f32> {
        let bytes = file.tensor(&name).unwrap_or_else(|_| panic!("{name} in the fixture")).data();
        bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
    };
    const NAMES: [&str; 2] = ["matrix", "vector"];
    let (lr, betas, eps, weight_decay) = (0.02, (0.9, 0.98), 1e-6, 0.05);
    let adamw = AdamW { lr, betas, eps, weight_decay };
    let lamb = |kind| Lamb { kind, lr, betas, eps, weight_decay };
    for rule in ["adamw", "lamb", "jitlamb", "nvlamb"] {
        let mut state = NAMES.map(|name| {
            let w = read(format!("w.{name}"));
            (vec![0.0; w.len()], vec![0.0; w.len()], w)
        });
        let grads = NAMES.map(|name| read(format!("g.{name}")));
        let expected = NAMES.map(|name| read(format!("{rule}.{name}")));
        for step in 0..20 {
            let part = |values: &[f32]| -> Vec<f32> {
                let len = values.len() / 20;
                values[step * len..][..len].to_vec()
            };
            let squares: f64 = grads.iter().map(|grad| lathe_ops::optim::squared_length(&part(grad))).sum();
            let scale = if rule == "nvlamb" { squares.sqrt().recip() as f32 } else { 1.0 };
            for i in 0..NAMES.len() {
                let ((m, v, w), g) = (&mut state[i], part(&grads[i]));
                let count = step as i32 + 1;
                match rule {
                    "adamw" => adamw.step(count, scale, w, &g, m, v),
                    "jitlamb" => lamb(LambKind::Jit).step(count, scale, w, &g, m, v),
                    _ => lamb(LambKind::Published).step(count, scale, w, &g, m, v),
                }
                close(&format!("{rule}, step {count}"), w, &part(&expected[i]), 1e-5);
            }
        }
    }
}

#[test]
fn squared_lengths_are_sums_of_squares() {
    for len in SIZES {
        let x = numbers(len, 3);
        let expected: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        let found = lathe_ops::optim::squared_length(&x);
        assert!((found - expected).abs() <= 1e-6 * expected, "{found} is not {expected}");
    }
}
