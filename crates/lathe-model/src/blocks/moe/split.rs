//! Experts out of a trained feed-forward (Zhang et al., 2022, "MoEfication").
//!
//! Neurons that fire for the same inputs become one expert: a k-means with groups of equal size, on the weights by which
//! neurons read, or on what they gave where somebody looked. The gate's column of an expert is the mean of its neurons'
//! reading weights, or the linear fit of how much its neurons say. An expert writes as its neurons did: their weights are
//! divided by what the gate gives to a chosen expert on average, or by what least squares say, so that with all experts chosen
//! and an equal gate the mixture is the feed-forward. (Chosen ones scaled up to the expected sum of all would be right on
//! average and farther away for each token: in stories15M, 1 of 4 experts then misses by 3.8 times what the feed-forward adds,
//! and as it is by 0.58.)

use crate::blocks::ffn::{Dense, Flow};
use crate::quantize::compensate::inverse_factor;
use lathe_ops::gemm::{Mat, MatMut, gemm};
use lathe_ops::moe::Routing;

/// How far the gate's logits of a token deviate from each other at first. Experts are chosen by any difference; large ones
/// make some experts louder than their neurons were, and small ones are forgotten in the first steps of training.
const SPREAD: f64 = 0.3;
/// The same where it is not known what enters: how large logits are is then a guess.
const GUESSED_SPREAD: f64 = 0.1;
/// The most rounds of the k-means.
const ROUNDS: usize = 30;

/// What the mixture looks like.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub experts: usize,
    pub top_k: usize,
    /// Neurons of each expert.
    pub inner: usize,
    pub renormalise: bool,
}

/// Gate, and per expert what its neurons read and write, in the order of the mixture's parameters after its norm. Weights are
/// [D, E], [E, D, F] (gate and value side by side where it is gated), [E, F], [E, F, D], [E, D].
pub(super) fn split(dense: &Dense, shape: Shape, flow: Option<&Flow>) -> Option<Vec<Vec<f32>>> {
    let Shape { experts, inner, .. } = shape;
    let d = dense.width;
    if inner > dense.inner {
        return None;
    }
    let features = Features::new(dense, flow);
    let groups = groups(&features, shape, &importance(dense, flow));
    let mut gate: Vec<f32> = match flow {
        Some(flow) => fitted_gate(dense, flow, &groups),
        None => groups.iter().flat_map(|group| reading(dense, group)).collect(), // [E, D]
    };
    centre(&mut gate, d);
    let spread = if flow.is_some() { SPREAD } else { GUESSED_SPREAD };
    let logits_size = size_of_logits(dense, &gate, flow);
    if logits_size > 0.0 {
        gate.iter_mut().for_each(|x| *x = (f64::from(*x) * spread / logits_size) as f32);
    }
    let (scale, bias) = match flow {
        Some(flow) => fitted_scale(dense, flow, shape, &groups, &gate),
        None => {
            // Where experts share neurons, what is chosen may have some twice.
            let shared = dense.inner as f64 / (shape.top_k * inner) as f64;
            let weight = usual_weight(shape);
            let bias = dense.down_bias.iter().map(|&b| (f64::from(b) / weight / shape.top_k as f64) as f32);
            (shared.min(1.0) / weight, bias.collect())
        }
    };

    let mut up = Vec::with_capacity(experts * d * dense.up.len() * inner);
    let mut down = Vec::with_capacity(experts * inner * d);
    for group in &groups {
        for i in 0..d {
            up.extend(dense.up.iter().flat_map(|up| group.iter().map(move |&j| up[j * d + i]))); // [D, F]
        }
        for &j in group {
            down.extend(dense.down[j * d..][..d].iter().map(|&w| (f64::from(w) * scale) as f32));
        }
    }
    let gate = (0..d).flat_map(|i| gate[i..].iter().step_by(d).copied()).collect(); // [D, E]
    let mut made = vec![gate, up];
    if dense.up.len() == 1 {
        let up_bias = |&j: &usize| dense.up_bias.get(j).copied().unwrap_or(0.0);
        made.push(groups.iter().flatten().map(up_bias).collect());
    }
    made.push(down);
    if dense.up.len() == 1 {
        made.push(if bias.is_empty() { vec![0.0; experts * d] } else { bias.repeat(experts) });
    }
    Some(made)
}

/// What a chosen expert's weight is on average where it is not known what enters, for logits that are spread as a normal distribution.
fn usual_weight(shape: Shape) -> f64 {
    if shape.renormalise {
        return 1.0 / shape.top_k as f64;
    }
    let logit = |i: usize| GUESSED_SPREAD * normal_quantile((i as f64 + 0.5) / shape.experts as f64);
    let all: Vec<f64> = (0..shape.experts).rev().map(|i| logit(i).exp()).collect();
    all[..shape.top_k].iter().sum::<f64>() / all.iter().sum::<f64>() / shape.top_k as f64
}

/// Where the normal distribution has this share below (Tukey's lambda, to three digits).
fn normal_quantile(share: f64) -> f64 {
    (share.powf(0.135) - (1.0 - share).powf(0.135)) / 0.1975
}

/// How much each neuron says: its mean |a| in use, or how long the weights are by which it reads; times those by which it
/// writes.
fn importance(dense: &Dense, flow: Option<&Flow>) -> Vec<f64> {
    let d = dense.width;
    let read = |j: usize| match flow {
        Some(flow) => flow.a[j..].iter().step_by(dense.inner).map(|a| f64::from(a.abs())).sum(),
        None => dense.up.iter().map(|up| length(&up[j * d..][..d])).product::<f64>(),
    };
    (0..dense.inner).map(|j| read(j) * length(&dense.down[j * d..][..d])).collect()
}

fn length(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// A direction for each neuron, by which they are alike or not.
struct Features {
    rows: Vec<f32>,
    width: usize,
}

impl Features {
    /// How much neurons gave in use, less their mean; or the weights by which they read, the gate's where there is one.
    fn new(dense: &Dense, flow: Option<&Flow>) -> Self {
        let (mut rows, width) = match flow {
            None => (dense.up[0].clone(), dense.width),
            Some(flow) => {
                let column = |j: usize| flow.a[j..].iter().step_by(dense.inner).map(|a| a.abs());
                ((0..dense.inner).flat_map(column).collect(), flow.a.len() / dense.inner)
            }
        };
        for row in rows.chunks_exact_mut(width) {
            if flow.is_some() {
                let mean = row.iter().sum::<f32>() / width as f32;
                row.iter_mut().for_each(|x| *x -= mean);
            }
            normalise(row);
        }
        Self { rows, width }
    }

    fn of(&self, neuron: usize) -> &[f32] {
        &self.rows[neuron * self.width..][..self.width]
    }
}

fn normalise(row: &mut [f32]) {
    let length = length(row);
    if length > 0.0 {
        row.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
}

/// The neurons of each expert, in order. The most important ones are kept where not all have room; where there is more room
/// than neurons, experts share those that are nearest to them.
fn groups(features: &Features, shape: Shape, importance: &[f64]) -> Vec<Vec<usize>> {
    let Shape { experts, inner, .. } = shape;
    let mut kept: Vec<usize> = (0..importance.len()).collect();
    kept.sort_by(|&a, &b| importance[b].total_cmp(&importance[a]).then(a.cmp(&b)));
    kept.truncate(experts * inner);
    let size = inner.min(kept.len().div_ceil(experts));
    let mut centres = first_centres(features, &kept, experts);
    kept.sort_unstable();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for _ in 0..ROUNDS {
        let alike = alike(features, &kept, &centres);
        let next = assign(&kept, &alike, experts, size);
        if next == groups {
            break;
        }
        groups = next;
        for (centre, group) in centres.chunks_exact_mut(features.width).zip(&groups) {
            centre.fill(0.0);
            for &neuron in group {
                centre.iter_mut().zip(features.of(neuron)).for_each(|(sum, x)| *sum += x);
            }
            normalise(centre);
        }
    }
    let alike = alike(features, &kept, &centres);
    for (e, group) in groups.iter_mut().enumerate() {
        let mut others: Vec<usize> = (0..kept.len()).filter(|&i| !group.contains(&kept[i])).collect();
        others.sort_by(|&a, &b| alike[b * experts + e].total_cmp(&alike[a * experts + e]).then(a.cmp(&b)));
        let missing = inner - group.len();
        group.extend(others[..missing].iter().map(|&i| kept[i]));
        group.sort_unstable();
    }
    groups
}

/// The first of the neurons, and then always the one that is least like those that are chosen; [E, width].
fn first_centres(features: &Features, neurons: &[usize], experts: usize) -> Vec<f32> {
    let mut nearest = vec![f64::NEG_INFINITY; neurons.len()];
    let mut next = 0;
    let mut centres = Vec::with_capacity(experts * features.width);
    for _ in 0..experts {
        let centre = features.of(neurons[next]);
        centres.extend_from_slice(centre);
        for (nearest, &neuron) in nearest.iter_mut().zip(neurons) {
            *nearest = nearest.max(dot(centre, features.of(neuron)));
        }
        nearest[next] = f64::INFINITY;
        next = (0..neurons.len()).min_by(|&a, &b| nearest[a].total_cmp(&nearest[b])).unwrap_or(0);
    }
    centres
}

/// How much alike neurons and centres are: cosines, [neurons, E].
fn alike(features: &Features, neurons: &[usize], centres: &[f32]) -> Vec<f64> {
    let of = |&neuron: &usize| centres.chunks_exact(features.width).map(move |c| dot(c, features.of(neuron)));
    neurons.iter().flat_map(of).collect()
}

/// Groups of at most a size, the most alike first.
fn assign(neurons: &[usize], alike: &[f64], experts: usize, size: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..alike.len()).collect();
    order.sort_by(|&a, &b| alike[b].total_cmp(&alike[a]).then(a.cmp(&b)));
    let mut groups = vec![Vec::with_capacity(size); experts];
    let mut placed = vec![false; neurons.len()];
    for at in order {
        let (i, e) = (at / experts, at % experts);
        if !placed[i] && groups[e].len() < size {
            placed[i] = true;
            groups[e].push(neurons[i]);
        }
    }
    groups.iter_mut().for_each(|group| group.sort_unstable());
    groups
}

/// The mean direction in which neurons read, weighted by how much they write, D long.
fn reading(dense: &Dense, group: &[usize]) -> Vec<f32> {
    let d = dense.width;
    let mut sum = vec![0.0f64; d];
    for &j in group {
        let read = &dense.up[0][j * d..][..d];
        let weight = length(&dense.down[j * d..][..d]) / length(read).max(1e-12) / group.len() as f64;
        sum.iter_mut().zip(read).for_each(|(sum, &x)| *sum += weight * f64::from(x));
    }
    sum.into_iter().map(|x| x as f32).collect()
}

/// Takes the mean over experts from a gate [E, D]: it chooses the same.
fn centre(gate: &mut [f32], d: usize) {
    let experts = gate.len() / d;
    for i in 0..d {
        let mean = gate[i..].iter().step_by(d).sum::<f32>() / experts as f32;
        gate[i..].iter_mut().step_by(d).for_each(|x| *x -= mean);
    }
}

/// How far a gate's logits [E, D] deviate: in use, or for inputs as the norm gives them.
fn size_of_logits(dense: &Dense, gate: &[f32], flow: Option<&Flow>) -> f64 {
    let d = dense.width;
    let experts = gate.len() / d;
    match flow {
        Some(flow) => {
            let logits = logits(flow, gate, d);
            length(&logits) / (logits.len() as f64).sqrt()
        }
        None => {
            let squares = gate.iter().zip(dense.norm[0].iter().cycle()).map(|(c, g)| f64::from(c * g).powi(2));
            (squares.sum::<f64>() / experts as f64).sqrt()
        }
    }
}

/// [N, E]
fn logits(flow: &Flow, gate: &[f32], d: usize) -> Vec<f32> {
    let (rows, experts) = (flow.x.len() / d, gate.len() / d);
    let mut logits = vec![0.0; rows * experts];
    let c = MatMut::new(&mut logits, rows, experts);
    gemm(c, Mat::new(&flow.x, rows, d), Mat::new(gate, experts, d).t(), false);
    logits
}

/// The gate whose logits are nearest to how much more than others each expert says: sum of |a| times the length of what a
/// neuron writes; by least squares, [E, D].
fn fitted_gate(dense: &Dense, flow: &Flow, groups: &[Vec<usize>]) -> Vec<f32> {
    let (d, experts) = (dense.width, groups.len());
    let rows = flow.x.len() / d;
    let writes: Vec<f32> = dense.down.chunks_exact(d).map(|row| length(row) as f32).collect();
    let mut said = Vec::with_capacity(rows * experts);
    for a in flow.a.chunks_exact(dense.inner) {
        let of_token: Vec<f32> =
            groups.iter().map(|group| group.iter().map(|&j| a[j].abs() * writes[j]).sum::<f32>()).collect();
        let mean = of_token.iter().sum::<f32>() / experts as f32;
        said.extend(of_token.iter().map(|x| x - mean));
    }
    // (X^T X)^-1 X^T S, with X^T X's inverse as U^T U
    let x = Mat::new(&flow.x, rows, d);
    let mut moments = vec![0.0; d * d];
    gemm(MatMut::new(&mut moments, d, d), x.t(), x, false);
    let u = inverse_factor(&moments, d);
    let mut sums = vec![0.0; experts * d];
    gemm(MatMut::new(&mut sums, experts, d), Mat::new(&said, rows, experts).t(), x, false);
    let mut half = vec![0.0; experts * d];
    gemm(MatMut::new(&mut half, experts, d), Mat::new(&sums, experts, d), Mat::new(&u, d, d).t(), false);
    gemm(MatMut::new(&mut sums, experts, d), Mat::new(&half, experts, d), Mat::new(&u, d, d), false);
    sums
}

/// The factor on what experts write for which the mixture is nearest to the feed-forward, and the bias that makes up for what
/// is missing on average.
fn fitted_scale(dense: &Dense, flow: &Flow, shape: Shape, groups: &[Vec<usize>], gate: &[f32]) -> (f64, Vec<f32>) {
    let (d, f) = (dense.width, dense.inner);
    let rows = flow.x.len() / d;
    let routing = Routing::new(logits(flow, gate, d), shape.experts, shape.top_k, shape.renormalise);
    let mut chosen = vec![0.0; flow.a.len()];
    for ((&token, &expert), &weight) in routing.tokens.iter().zip(&routing.experts).zip(&routing.weights) {
        for &j in &groups[expert as usize] {
            let at = token as usize * f + j;
            chosen[at] += weight * flow.a[at];
        }
    }
    let (mut found, mut wanted) = (dense.write(&chosen), dense.write(&flow.a));
    // With biases, both without their means: what is constant is the bias' part.
    let biased = dense.up.len() == 1;
    let take_mean = |y: &mut Vec<f32>| -> Vec<f64> {
        let mut means = vec![0.0f64; d];
        for row in y.chunks_exact(d).filter(|_| biased) {
            means.iter_mut().zip(row).for_each(|(mean, &x)| *mean += f64::from(x) / rows as f64);
        }
        y.chunks_exact_mut(d).for_each(|row| row.iter_mut().zip(&means).for_each(|(x, mean)| *x -= *mean as f32));
        means
    };
    let (of_found, of_wanted) = (take_mean(&mut found), take_mean(&mut wanted));
    let squares = dot(&found, &found);
    let scale = if squares > 0.0 { dot(&found, &wanted) / squares } else { 1.0 };
    let weight = routing.weights.iter().map(|&weight| f64::from(weight)).sum::<f64>() / rows as f64;
    let own = |i: usize| f64::from(dense.down_bias.get(i).copied().unwrap_or(0.0));
    let bias = (0..d).map(|i| ((own(i) + of_wanted[i] - scale * of_found[i]) / weight) as f32).collect();
    (scale, bias)
}
