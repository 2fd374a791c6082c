//! Losses of logits against those of a teacher, in place: logits go in, their gradient comes out. With z the logits, t the
//! teacher's, p = softmax(t / T) and q = softmax(z / T):
//!
//! - cross-entropy: `-log softmax(z)[target]`
//! - KL (Hinton et al., 2015): T^2 sum p (log p - log q), with the gradient T (q - p)
//! - squared error (Ba and Caruana, 2014): the mean of (z - t)^2 over the vocabulary
//!
//! Of a teacher that was kept on a disk there are the K largest log p and the logarithm of what the rest has together. KL
//! is then that of these K + 1 outcomes, and its gradient for a token j of the rest is T (q_j / q_rest) (q_rest - p_rest).

use super::{IGNORE, log_sum_exp};
use crate::parallel;
use crate::simd::{exp, max, simd, sum, sum2};
use candle_core::{D, Result, Tensor};

/// What each term counts, and the temperature of KL.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// Weight of the cross-entropy.
    pub ce: f32,
    /// Weight of KL, which has the factor T^2 in any case.
    pub kl: f32,
    /// Weight of the squared error.
    pub mse: f32,
    /// T
    pub temperature: f32,
}

/// The losses of a row that [`against_logits`] and [`against_top`] give: cross-entropy, KL times T^2, squared error.
pub const LOSSES: usize = 3;

impl Terms {
    /// The weighted sum of the losses of a row.
    pub fn total(&self, losses: &[f32]) -> f32 {
        self.ce * losses[0] + self.kl * losses[1] + self.mse * losses[2]
    }
}

/// The K largest log-probabilities of each of a number of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct TopK {
    /// K
    pub k: usize,
    /// Their tokens, [N, K]: of a row the most probable first.
    pub ids: Vec<u32>,
    /// [N, K]
    pub log_p: Vec<f32>,
    /// `[N]`: the logarithm of what all other tokens have together, minus infinity where there is no other.
    pub log_rest: Vec<f32>,
}

impl TopK {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.log_rest.len()
    }

    /// Some of the rows.
    pub fn select(&self, rows: &[usize]) -> Self {
        let k = self.k;
        Self {
            k,
            ids: rows.iter().flat_map(|&row| &self.ids[row * k..][..k]).copied().collect(),
            log_p: rows.iter().flat_map(|&row| &self.log_p[row * k..][..k]).copied().collect(),
            log_rest: rows.iter().map(|&row| self.log_rest[row]).collect(),
        }
    }
}

/// The K largest log-probabilities of logits at a temperature; equal ones in the order of their tokens.
pub fn top_k(logits: &[f32], width: usize, k: usize, temperature: f32) -> TopK {
    let (rows, k) = (logits.len() / width, k.min(width));
    let mut top = TopK { k, ids: vec![0; rows * k], log_p: vec![0.0; rows * k], log_rest: vec![0.0; rows] };
    let places = top.ids.chunks_mut(k).zip(top.log_p.chunks_mut(k)).zip(&mut top.log_rest);
    parallel::each(logits.chunks_exact(width).zip(places).collect(), |_, (logits, ((ids, log_p), log_rest))| {
        let mut order: Vec<u32> = (0..width as u32).collect();
        let larger = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
        if k < width {
            order.select_nth_unstable_by(k, larger);
        }
        order[..k].sort_unstable_by(larger);
        ids.copy_from_slice(&order[..k]);
        let of = |ids: &[u32]| ids.iter().map(|&id| logits[id as usize]).collect::<Vec<_>>();
        let (first, rest) = (of(&order[..k]), of(&order[k..]));
        let most = first[0];
        let in_first = soft_sum(&first, most, 1.0 / temperature);
        let in_rest = soft_sum(&rest, most, 1.0 / temperature);
        let log_total = (in_first + in_rest).ln();
        log_p.iter_mut().zip(&first).for_each(|(log_p, x)| *log_p = (x - most) / temperature - log_total);
        *log_rest = in_rest.ln() - log_total;
    });
    top
}

/// Per row: the [`LOSSES`] of logits against a teacher's, and in the place of the logits the gradient of `scale` times
/// their weighted sum. A target of [`IGNORE`] has no cross-entropy.
pub fn against_logits(
    logits: &mut [f32],
    width: usize,
    teacher: &[f32],
    targets: &[u32],
    terms: &Terms,
    scale: f32,
    losses: &mut [f32],
) {
    assert_eq!((logits.len(), losses.len()), (teacher.len(), targets.len() * LOSSES));
    let inverse = 1.0 / terms.temperature;
    parallel::zip_rows((logits, width), (losses, LOSSES), |row, z, losses| {
        let t = &teacher[row * width..][..width];
        let target = targets[row];
        let (most_z, most_t) = (most_of(z), most_of(t));
        let [total_q, total_p, along, square] = sums(z, t, [most_z, most_t, inverse]);
        let (hard, at_target) = hard_loss(z, target, &mut losses[0]);
        losses[1] = (along / total_p - total_p.ln() + total_q.ln()) * terms.temperature * terms.temperature;
        losses[2] = square / width as f32;
        let soft = scale * terms.kl * terms.temperature;
        let factors = [soft / total_q, soft / total_p, scale * terms.mse * 2.0 / width as f32];
        gradient(z, t, [most_z, most_t, inverse], factors, hard * scale * terms.ce);
        if let Some(target) = at_target {
            z[target] -= scale * terms.ce;
        }
    });
}

/// As [`against_logits`], of the K largest probabilities of a teacher at this temperature. There is no squared error.
pub fn against_top(
    logits: &mut [f32],
    width: usize,
    teacher: &TopK,
    targets: &[u32],
    terms: &Terms,
    scale: f32,
    losses: &mut [f32],
) {
    assert_eq!((logits.len(), losses.len()), (targets.len() * width, targets.len() * LOSSES));
    assert_eq!(teacher.rows(), targets.len());
    assert!(terms.mse == 0.0, "a squared error needs all logits of the teacher");
    let (k, inverse) = (teacher.k, 1.0 / terms.temperature);
    parallel::zip_rows((logits, width), (losses, LOSSES), |row, z, losses| {
        let (ids, log_p) = (&teacher.ids[row * k..][..k], &teacher.log_p[row * k..][..k]);
        let log_rest = teacher.log_rest[row];
        let target = targets[row];
        let most = most_of(z);
        let (hard, at_target) = hard_loss(z, target, &mut losses[0]);
        let hard = hard * scale * terms.ce;
        // The logits of the rest stay, those of the first are taken out.
        let first: Vec<f32> = ids.iter().map(|&id| std::mem::replace(&mut z[id as usize], f32::NEG_INFINITY)).collect();
        let in_first = soft_sum(&first, most, inverse);
        let most_of_rest = most_of(z);
        // What the rest has together, and its logarithm relative to `most`.
        let (in_rest, log_in_rest) = match k < width {
            true => {
                let sum = soft_sum(z, most_of_rest, inverse);
                (sum, sum.ln() + (most_of_rest - most) * inverse)
            }
            false => (1.0, f32::NEG_INFINITY),
        };
        let log_total = (in_first + log_in_rest.exp()).ln();
        let mut kl = 0.0;
        for (x, log_p) in first.iter().zip(log_p) {
            kl += log_p.exp() * (log_p - ((x - most) * inverse - log_total));
        }
        let (p_rest, q_rest) = (log_rest.exp(), (log_in_rest - log_total).exp());
        if p_rest > 0.0 {
            kl += p_rest * (log_rest - (log_in_rest - log_total));
        }
        losses[1] = kl * terms.temperature * terms.temperature;
        losses[2] = 0.0;
        let soft = scale * terms.kl * terms.temperature;
        gradient_of_rest(z, [most, most_of_rest, inverse], soft * (q_rest - p_rest) / in_rest, hard);
        for ((&id, x), log_p) in ids.iter().zip(first).zip(log_p) {
            let q = ((x - most) * inverse - log_total).exp();
            z[id as usize] = soft * (q - log_p.exp()) + hard * (x - most).exp();
        }
        if let Some(target) = at_target {
            z[target] -= scale * terms.ce;
        }
    });
}

/// The cross-entropy of a row, what the exponentials of its logits below the greatest are to be multiplied by to be
/// probabilities, and the place of the target, if it has one.
fn hard_loss(z: &[f32], target: u32, loss: &mut f32) -> (f32, Option<usize>) {
    if target == IGNORE {
        *loss = 0.0;
        return (0.0, None);
    }
    let (most, log_sum) = log_sum_exp(z);
    *loss = most - z[target as usize] + log_sum;
    ((-log_sum).exp(), Some(target as usize))
}

simd! {
    fn most_of(x: &[f32]) -> f32 {
        max(x)
    }
}

simd! {
    /// sum exp((x - most) / T)
    fn soft_sum(x: &[f32], most: f32, inverse: f32) -> f32 {
        sum(x, |x| exp::<FUSED>((x - most) * inverse))
    }
}

simd! {
    /// With a = (z - most_z) / T and b = (t - most_t) / T: the sums of e^a, e^b, e^b (b - a) and (z - t)^2.
    fn sums(z: &[f32], t: &[f32], with: [f32; 3]) -> [f32; 4] {
        let [most_z, most_t, inverse] = with;
        [
            sum(z, |z| exp::<FUSED>((z - most_z) * inverse)),
            sum(t, |t| exp::<FUSED>((t - most_t) * inverse)),
            sum2(z, t, |z, t| {
                let b = (t - most_t) * inverse;
                exp::<FUSED>(b) * (b - (z - most_z) * inverse)
            }),
            sum2(z, t, |z, t| (z - t) * (z - t)),
        ]
    }
}

simd! {
    /// z = q e^a - p e^b + m (z - t) + hard e^(z - most_z), with a and b as [`sums`] has them.
    fn gradient(z: &mut [f32], t: &[f32], with: [f32; 3], factors: [f32; 3], hard: f32) {
        let [most_z, most_t, inverse] = with;
        let [q, p, m] = factors;
        if hard == 0.0 {
            for (z, &t) in z.iter_mut().zip(t) {
                *z = q * exp::<FUSED>((*z - most_z) * inverse) - p * exp::<FUSED>((t - most_t) * inverse) + m * (*z - t);
            }
            return;
        }
        for (z, &t) in z.iter_mut().zip(t) {
            let soft = q * exp::<FUSED>((*z - most_z) * inverse) - p * exp::<FUSED>((t - most_t) * inverse);
            *z = soft + m * (*z - t) + hard * exp::<FUSED>(*z - most_z);
        }
    }
}

simd! {
    /// z = r e^((z - most_of_rest) / T) + hard e^(z - most)
    fn gradient_of_rest(z: &mut [f32], with: [f32; 3], r: f32, hard: f32) {
        let [most, most_of_rest, inverse] = with;
        for z in z.iter_mut() {
            *z = r * exp::<FUSED>((*z - most_of_rest) * inverse) + hard * exp::<FUSED>(*z - most);
        }
    }
}

/// KL times T^2 of [`against_logits`] as a graph: `[N]` of logits [N, V] and a teacher's.
pub fn composed_kl(logits: &Tensor, teacher: &Tensor, temperature: f64) -> Result<Tensor> {
    let log_q = super::composed_log_softmax(&(logits / temperature)?)?;
    let log_p = super::composed_log_softmax(&(teacher / temperature)?)?;
    (log_p.exp()? * (log_p - log_q)?)?.sum(D::Minus1)? * (temperature * temperature)
}

/// The squared error of [`against_logits`] as a graph.
pub fn composed_mse(logits: &Tensor, teacher: &Tensor) -> Result<Tensor> {
    (logits - teacher)?.sqr()?.mean(D::Minus1)
}

/// KL times T^2 of [`against_top`] as a graph.
pub fn composed_top(logits: &Tensor, teacher: &TopK, temperature: f64) -> Result<Tensor> {
    let (rows, width) = logits.dims2()?;
    let (device, dtype, k) = (logits.device(), logits.dtype(), teacher.k);
    let log_q = super::composed_log_softmax(&(logits / temperature)?)?;
    let places = teacher.ids.iter().enumerate().map(|(i, &id)| (i / k * width) as u32 + id);
    let places: Vec<u32> = places.collect();
    let mut others = vec![1f32; rows * width];
    places.iter().for_each(|&place| others[place as usize] = 0.0);
    let of_first = log_q.flatten_all()?.index_select(&Tensor::new(places, device)?, 0)?.reshape((rows, k))?;
    let log_p = Tensor::from_slice(&teacher.log_p, (rows, k), device)?.to_dtype(dtype)?;
    let kl = (log_p.exp()? * (log_p - of_first)?)?.sum(D::Minus1)?;
    if k == width {
        return kl * (temperature * temperature);
    }
    let others = Tensor::from_vec(others, (rows, width), device)?.to_dtype(dtype)?;
    let log_q_rest = (log_q.exp()? * others)?.sum(D::Minus1)?.log()?;
    let log_rest = Tensor::from_slice(&teacher.log_rest, rows, device)?.to_dtype(dtype)?;
    (kl + (log_rest.exp()? * (log_rest - log_q_rest)?)?)? * (temperature * temperature)
}
