//! Mixtures of experts, against the composed version and against a loop over tokens.

use crate::{close, graph, numbers, same_bits};
use candle_core::Tensor;
use lathe_ops::gemm::{Mat, MatMut, Product, gemm_grouped};
use lathe_ops::moe::{self, Routing};

const BALANCE: f32 = 0.3;

struct Case {
    tokens: usize,
    experts: usize,
    top_k: usize,
    width: usize,
    renormalise: bool,
    x: Vec<f32>,
    logits: Vec<f32>,
    /// A matrix per expert, [E, D, D].
    w: Vec<f32>,
    dout: Vec<f32>,
}

impl Case {
    fn new(tokens: usize, experts: usize, top_k: usize, renormalise: bool) -> Self {
        let width = 5;
        let logits = numbers(tokens * experts, 2).iter().map(|x| 3.0 * x).collect();
        let (x, w) = (numbers(tokens * width, 1), numbers(experts * width * width, 3));
        Self { tokens, experts, top_k, width, renormalise, x, logits, w, dout: numbers(tokens * width, 4) }
    }

    fn matrix(&self, expert: usize) -> &[f32] {
        &self.w[expert * self.width * self.width..][..self.width * self.width]
    }

    /// Output, balance loss, dx, dlogits and dW.
    fn fused(&self) -> Vec<Vec<f32>> {
        let d = self.width;
        let routing = Routing::new(self.logits.clone(), self.experts, self.top_k, self.renormalise);
        let assignments = routing.tokens.len();
        let mut rows = vec![0.0; assignments * d];
        routing.gather(&self.x, d, &mut rows);
        let part = |x: &'_ [f32], e: usize| x[routing.starts[e] * d..routing.starts[e + 1] * d].to_vec();
        let each = |x: &[f32], out: &mut [f32], backward: bool| {
            let parts: Vec<Vec<f32>> = (0..self.experts).map(|e| part(x, e)).collect();
            let outs = MatMut::new(out, assignments, d).split(&routing.starts[1..], &[d]);
            let products = outs.into_iter().enumerate().map(|(e, (_, _, c))| {
                let w = Mat::new(self.matrix(e), d, d);
                let b = if backward { w.t() } else { w }.into();
                Product { a: Mat::new(&parts[e], c.rows(), d), c, b, accumulate: false }
            });
            gemm_grouped(products.collect(), None);
        };
        let mut y = vec![0.0; assignments * d];
        each(&rows, &mut y, false);
        let mut out = vec![0.0; self.x.len()];
        routing.combine(&y, d, &mut out);

        let dlogits = routing.logits_backward(&self.dout, &y, d, BALANCE);
        let (mut dy, mut drows) = (vec![0.0; y.len()], vec![0.0; y.len()]);
        routing.combine_backward(&self.dout, d, &mut dy);
        each(&dy, &mut drows, true);
        let mut dx = vec![0.0; self.x.len()];
        routing.gather_backward(&drows, d, &mut dx);
        let mut dw = vec![0.0; self.w.len()];
        for a in 0..assignments {
            for (i, dw) in dw[routing.experts[a] as usize * d * d..][..d * d].iter_mut().enumerate() {
                *dw += rows[a * d + i / d] * dy[a * d + i % d];
            }
        }
        vec![out, vec![routing.balance()], dx, dlogits, dw]
    }

    /// The same from the graph, which gives the output with the balance loss as one more row.
    fn composed(&self) -> Vec<Vec<f32>> {
        let Self { tokens, experts, top_k, width, renormalise, .. } = *self;
        let inputs: [(&[f32], &[usize]); 3] =
            [(&self.x, &[tokens, width]), (&self.logits, &[tokens, experts]), (&self.w, &[experts, width, width])];
        // One number of that row counts.
        let weights = [self.dout.clone(), vec![BALANCE], vec![0.0; width - 1]].concat();
        let (all, [dx, dlogits, dw]) = graph(inputs, &weights, |[x, logits, w]| {
            let expert = |e: usize, rows: &Tensor| rows.matmul(&w.get(e)?);
            let (out, balance) = moe::composed(x, logits, top_k, renormalise, expert)?;
            Tensor::cat(&[&out, &balance.reshape((1, 1))?.broadcast_as((1, width))?], 0)
        });
        let (out, balance) = all.split_at(tokens * width);
        vec![out.to_vec(), vec![balance[0]], dx, dlogits, dw]
    }

    /// Output and balance loss, token by token.
    fn plain(&self) -> Vec<Vec<f32>> {
        let (mut out, d) = (vec![0.0; self.x.len()], self.width);
        let (mut loads, mut means) = (vec![0.0; self.experts], vec![0.0; self.experts]);
        for t in 0..self.tokens {
            let logits = &self.logits[t * self.experts..][..self.experts];
            let total: f32 = logits.iter().map(|x| x.exp()).sum();
            let p: Vec<f32> = logits.iter().map(|x| x.exp() / total).collect();
            let mut order: Vec<usize> = (0..self.experts).collect();
            order.sort_by(|&a, &b| p[b].total_cmp(&p[a]));
            let chosen = &order[..self.top_k];
            let share: f32 = if self.renormalise { chosen.iter().map(|&e| p[e]).sum() } else { 1.0 };
            for &e in chosen {
                loads[e] += 1.0 / (self.tokens * self.top_k) as f32;
                for j in 0..d {
                    let y: f32 = (0..d).map(|i| self.x[t * d + i] * self.matrix(e)[i * d + j]).sum();
                    out[t * d + j] += p[e] / share * y;
                }
            }
            means.iter_mut().zip(&p).for_each(|(mean, p)| *mean += p / self.tokens as f32);
        }
        let balance: f32 = loads.iter().zip(&means).map(|(load, mean)| load * mean).sum();
        vec![out, vec![self.experts as f32 * balance]]
    }

    fn check(&self) {
        let what = format!("{} tokens, {} of {}, {}", self.tokens, self.top_k, self.experts, self.renormalise);
        let found = self.fused();
        for (i, (found, expected)) in found.iter().zip(&self.composed()).enumerate() {
            close(&format!("{what}, {i}"), found, expected, 1e-5);
        }
        for (found, expected) in found.iter().zip(&self.plain()) {
            close(&format!("{what}, by token"), found, expected, 1e-5);
        }
    }
}

#[test]
fn fused_is_composed_and_a_loop_over_tokens() {
    for tokens in [1, 3, 17, 65, 193] {
        for (experts, top_k) in [(1, 1), (3, 1), (3, 2), (3, 3), (8, 2), (17, 1)] {
            for renormalise in [false, true] {
                Case::new(tokens, experts, top_k, renormalise).check();
            }
        }
    }
}

#[test]
fn all_tokens_on_one_expert() {
    for top_k in [1, 2] {
        for renormalise in [false, true] {
            let mut case = Case::new(65, 4, top_k, renormalise);
            case.logits.chunks_exact_mut(4).for_each(|row| row[2] += 9.0);
            case.check();
            let routing = Routing::new(case.logits.clone(), 4, top_k, renormalise);
            assert_eq!(routing.loads()[2], 65);
            assert!(top_k > 1 || routing.loads() == [0, 0, 65, 0]);
        }
    }
}

/// Of equal experts the first are chosen, the balance loss of equal loads is 1.
#[test]
fn ties_go_to_the_first() {
    let routing = Routing::new(vec![0.5; 12], 4, 2, false);
    assert_eq!((routing.loads(), routing.balance()), (vec![3, 3, 0, 0], 1.0));
}

#[test]
fn same_on_any_number_of_threads() {
    for renormalise in [false, true] {
        let case = Case::new(1031, 8, 2, renormalise);
        same_bits("moe", || case.fused());
    }
}
