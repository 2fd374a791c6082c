//! Mixture of experts: which tokens go to which expert, and the way back.

use crate::simd::{add_scaled, exp, max, simd, sum};
use crate::{loss, parallel};
use candle_core::{DType, Result, Tensor};

/// Who goes where: assignments sorted by expert, and within an expert by token.
#[derive(Debug, Clone, Default)]
pub struct Routing {
    /// Probabilities of all experts, [N, E].
    pub probabilities: Vec<f32>,
    /// The token of each assignment.
    pub tokens: Vec<u32>,
    /// The expert of each assignment.
    pub experts: Vec<u32>,
    /// The weight of each assignment.
    pub weights: Vec<f32>,
    /// Where each expert's assignments begin; one more at the end.
    pub starts: Vec<usize>,
    /// For each token, its assignments, in the order of probability: [N, top_k].
    pub places: Vec<u32>,
    top_k: usize,
    renormalise: bool,
}

simd! {
    fn softmax(x: &mut [f32]) {
        let most = max(x);
        for x in x.iter_mut() {
            *x = exp::<FUSED>(*x - most);
        }
        let factor = 1.0 / sum(x, |x| x);
        for x in x.iter_mut() {
            *x *= factor;
        }
    }
}

impl Routing {
    /// Routes tokens by the logits of their gate, [N, experts].
    pub fn new(mut logits: Vec<f32>, experts: usize, top_k: usize, renormalise: bool) -> Self {
        parallel::rows(&mut logits, experts, |_, row| softmax(row));
        let probabilities = logits;
        let count = probabilities.len() / experts;
        // The top_k experts of each token; of equal ones the first.
        let mut chosen = Vec::with_capacity(count * top_k);
        for row in probabilities.chunks_exact(experts) {
            let first = chosen.len();
            for _ in 0..top_k {
                let free = (0..experts as u32).filter(|e| !chosen[first..].contains(e));
                let best = free.fold(None, |best: Option<u32>, e| match best {
                    Some(b) if row[b as usize] >= row[e as usize] => Some(b),
                    _ => Some(e),
                });
                chosen.push(best.expect("top_k is at most the number of experts"));
            }
        }
        let mut starts = vec![0; experts + 1];
        chosen.iter().for_each(|&e| starts[e as usize + 1] += 1);
        for e in 0..experts {
            starts[e + 1] += starts[e];
        }
        let mut next = starts.clone();
        let mut routing = Self {
            tokens: vec![0; chosen.len()],
            experts: vec![0; chosen.len()],
            weights: vec![0.0; chosen.len()],
            places: vec![0; chosen.len()],
            probabilities,
            starts,
            top_k,
            renormalise,
        };
        for (i, &expert) in chosen.iter().enumerate() {
            let token = i / top_k;
            let place = next[expert as usize];
            next[expert as usize] += 1;
            let row = &routing.probabilities[token * experts..][..experts];
            let total: f32 =
                if renormalise { chosen[token * top_k..][..top_k].iter().map(|&e| row[e as usize]).sum() } else { 1.0 };
            routing.tokens[place] = token as u32;
            routing.experts[place] = expert;
            routing.weights[place] = row[expert as usize] / total;
            routing.places[i] = place as u32;
        }
        routing
    }

    /// Number of experts.
    pub fn experts(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many assignments each expert has.
    pub fn loads(&self) -> Vec<usize> {
        self.starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// The balance loss of Switch: experts * sum of f_i P_i, with f_i the share of assignments and P_i the mean
    /// probability; 1 when uniform.
    pub fn balance(&self) -> f32 {
        let experts = self.experts();
        let tokens = (self.probabilities.len() / experts).max(1) as f32;
        let share = |load: usize| load as f32 / self.tokens.len().max(1) as f32;
        let mean = |e: usize| self.probabilities[e..].iter().step_by(experts).sum::<f32>() / tokens;
        experts as f32 * self.loads().into_iter().enumerate().map(|(e, load)| share(load) * mean(e)).sum::<f32>()
    }

    /// `out[a] = x[token of a]`: the rows of the assignments.
    pub fn gather(&self, x: &[f32], width: usize, out: &mut [f32]) {
        parallel::rows(out, width, |a, out| out.copy_from_slice(&x[self.tokens[a] as usize * width..][..width]));
    }

    /// `out[t]` = sum over t's assignments of `weight * y[a]`.
    pub fn combine(&self, y: &[f32], width: usize, out: &mut [f32]) {
        parallel::rows(out, width, |t, out| {
            out.fill(0.0);
            for &a in &self.places[t * self.top_k..][..self.top_k] {
                let (weight, y) = (self.weights[a as usize], &y[a as usize * width..][..width]);
                add_scaled(out, weight, y);
            }
        });
    }

    /// `dy[a] = weight * dout[token of a]`
    pub fn combine_backward(&self, dout: &[f32], width: usize, dy: &mut [f32]) {
        parallel::rows(dy, width, |a, dy| {
            let (weight, dout) = (self.weights[a], &dout[self.tokens[a] as usize * width..][..width]);
            dy.iter_mut().zip(dout).for_each(|(dy, dout)| *dy = weight * dout);
        });
    }

    /// `dx[t]` = sum over t's assignments of `drows[a]`: the backward of [`Self::gather`].
    pub fn gather_backward(&self, drows: &[f32], width: usize, dx: &mut [f32]) {
        parallel::rows(dx, width, |t, dx| {
            dx.fill(0.0);
            for &a in &self.places[t * self.top_k..][..self.top_k] {
                dx.iter_mut().zip(&drows[a as usize * width..]).for_each(|(dx, drow)| *dx += drow);
            }
        });
    }

    /// The gradient of the gate's logits from those of the weights, dot(dout, y), and from `balance` times the balance
    /// loss.
    pub fn logits_backward(&self, dout: &[f32], y: &[f32], width: usize, balance: f32) -> Vec<f32> {
        let experts = self.experts();
        let count = self.probabilities.len() / experts;
        let shares: Vec<f32> = self.loads().iter().map(|&load| load as f32 / self.tokens.len().max(1) as f32).collect();
        let mut dlogits = vec![0.0; self.probabilities.len()];
        parallel::rows(&mut dlogits, experts, |t, dlogits| {
            let p = &self.probabilities[t * experts..][..experts];
            let places = &self.places[t * self.top_k..][..self.top_k];
            let dout = &dout[t * width..][..width];
            let dweight = |a: u32| -> f32 { dout.iter().zip(&y[a as usize * width..]).map(|(d, y)| d * y).sum() };
            let total: f32 = places.iter().map(|&a| p[self.experts[a as usize] as usize]).sum();
            // Renormalised weights w = p / total: dp = (dw - sum of w dw) / total.
            let along: f32 = if self.renormalise {
                places.iter().map(|&a| self.weights[a as usize] * dweight(a)).sum()
            } else {
                0.0
            };
            for (d, share) in dlogits.iter_mut().zip(&shares) {
                *d = balance * experts as f32 * share / count as f32;
            }
            for &a in places {
                let scale = if self.renormalise { total } else { 1.0 };
                dlogits[self.experts[a as usize] as usize] += (dweight(a) - along) / scale;
            }
            let mean: f32 = dlogits.iter().zip(p).map(|(d, p)| d * p).sum();
            dlogits.iter_mut().zip(p).for_each(|(d, p)| *d = p * (*d - mean));
        });
        dlogits
    }
}

/// The whole mixture as a graph: the output for x [N, D] and the gate's logits [N, experts], where `expert` gives an
/// expert's output for some rows; and the balance loss. Who goes where has no gradient.
pub fn composed(
    x: &Tensor,
    logits: &Tensor,
    top_k: usize,
    renormalise: bool,
    expert: impl Fn(usize, &Tensor) -> Result<Tensor>,
) -> Result<(Tensor, Tensor)> {
    let (count, experts) = logits.dims2()?;
    let device = x.device();
    let numbers = logits.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
    let routing = Routing::new(numbers, experts, top_k, renormalise);
    let probabilities = loss::composed_log_softmax(logits)?.exp()?;

    // Unlike gather, index_select can be differentiated twice.
    let chosen = routing.places.iter().map(|&a| a as usize);
    let chosen = chosen.map(|a| routing.tokens[a] * experts as u32 + routing.experts[a]);
    let chosen = Tensor::from_iter(chosen, device)?;
    let mut weights = probabilities.flatten_all()?.index_select(&chosen, 0)?.reshape((count, top_k))?;
    if renormalise {
        weights = weights.broadcast_div(&weights.sum_keepdim(1)?)?;
    }
    let mut outputs = Vec::new();
    for (e, range) in routing.starts.windows(2).enumerate().filter(|(_, range)| range[0] < range[1]) {
        let tokens = Tensor::new(&routing.tokens[range[0]..range[1]], device)?;
        outputs.push(expert(e, &x.index_select(&tokens, 0)?)?);
    }
    // (N * top_k, D), by expert -> (N, top_k, D)
    let places = Tensor::new(routing.places.as_slice(), device)?;
    let outputs = Tensor::cat(&outputs, 0)?.index_select(&places, 0)?.reshape((count, top_k, ()))?;
    let out = outputs.broadcast_mul(&weights.unsqueeze(2)?)?.sum(1)?;

    let share = |load: usize| load as f64 / routing.tokens.len() as f64;
    let shares: Vec<f64> = routing.loads().into_iter().map(share).collect();
    let shares = Tensor::new(shares, device)?.to_dtype(logits.dtype())?;
    let balance = ((probabilities.mean(0)? * shares)?.sum_all()? * experts as f64)?;
    Ok((out, balance))
}
