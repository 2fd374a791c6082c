//! Softmax cross-entropy, in place: logits go in, their gradient comes out, and there is no second array.

pub mod divergence;
pub mod soft;
pub mod states;

use crate::parallel;
use crate::simd::{exp, max, simd, sum};
use candle_core::{D, Result, Tensor};

/// A token whose loss does not count.
pub const IGNORE: u32 = u32::MAX;

/// Per row: `-log softmax(logits)[target]` into `losses` (0 where ignored), and the gradient of
/// `scale` * its sum in the place of the logits.
pub fn cross_entropy(logits: &mut [f32], width: usize, targets: &[u32], scale: f32, losses: &mut [f32]) {
    rows(logits, width, losses, |row, logits| {
        let target = targets[row];
        if target == IGNORE {
            logits.fill(0.0);
            return 0.0;
        }
        let at_target = logits[target as usize];
        let (most, log_sum) = softmax_row(logits, scale);
        logits[target as usize] -= scale;
        most - at_target + log_sum
    });
}

/// Per row: `-log softmax(logits)[target]`; the logits stay.
pub fn negative_log_likelihood(logits: &mut [f32], width: usize, targets: &[u32], losses: &mut [f32]) {
    rows(logits, width, losses, |row, logits| match targets[row] {
        IGNORE => 0.0,
        target => {
            let (most, log_sum) = log_sum_exp(logits);
            most - logits[target as usize] + log_sum
        }
    });
}

/// Turns logits into log-probabilities, per row.
pub fn log_softmax(logits: &mut [f32], width: usize) {
    parallel::rows(logits, width, |_, logits| {
        let (most, log_sum) = log_sum_exp(logits);
        logits.iter_mut().for_each(|x| *x = *x - most - log_sum);
    });
}

/// Turns the logits of an adaptive softmax into log-probabilities, per row. Its clusters end at `ends`; `of_tails` are the
/// logits of each cluster after the first, which stand beside the tokens of the first.
pub fn adaptive_log_softmax(logits: &mut [f32], ends: &[usize], of_tails: &mut [f32]) {
    let (tails, width) = (ends.len() - 1, ends[ends.len() - 1]);
    parallel::zip_rows((logits, width), (of_tails, tails), |_, logits, of_tails| {
        let (first, mut rest) = logits.split_at_mut(ends[0]);
        let (most_of_first, log_sum) = log_sum_exp(first);
        let most = of_tails.iter().copied().fold(most_of_first, f32::max);
        let total = (most_of_first - most + log_sum).exp() + of_tails.iter().map(|x| (x - most).exp()).sum::<f32>();
        let log_total = total.ln();
        first.iter_mut().for_each(|x| *x = *x - most - log_total);
        for (cluster, of_tail) in ends.windows(2).zip(of_tails) {
            let tail = rest.split_off_mut(..cluster[1] - cluster[0]).expect("clusters fill the row");
            let (most_of_tail, log_sum) = log_sum_exp(tail);
            let of_tail = *of_tail - most - log_total;
            tail.iter_mut().for_each(|x| *x = *x - most_of_tail - log_sum + of_tail);
        }
    });
}

/// [`cross_entropy`] as a graph: the losses `[N]` of logits `[N, V]`.
pub fn composed(logits: &Tensor, targets: &[u32]) -> Result<Tensor> {
    let (device, width) = (logits.device(), logits.dim(1)?);
    let column = |target: u32| if target == IGNORE { 0 } else { target };
    let places = targets.iter().enumerate().map(|(row, &target)| (row * width) as u32 + column(target));
    let counts = targets.iter().map(|&target| if target == IGNORE { 0f32 } else { -1.0 });
    let places = Tensor::from_iter(places, device)?;
    let counts = Tensor::from_iter(counts, device)?.to_dtype(logits.dtype())?;
    // Unlike gather, index_select can be differentiated twice.
    composed_log_softmax(logits)?.flatten_all()?.index_select(&places, 0)? * counts
}

/// [`log_softmax`] as a graph, over the last dimension.
pub fn composed_log_softmax(logits: &Tensor) -> Result<Tensor> {
    let below = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?.detach())?;
    below.broadcast_sub(&below.exp()?.sum_keepdim(D::Minus1)?.log()?)
}

/// Calls `work` for each row, on all threads, and keeps its results.
fn rows(data: &mut [f32], width: usize, results: &mut [f32], work: impl Fn(usize, &mut [f32]) -> f32 + Sync) {
    assert_eq!(data.len(), results.len() * width);
    parallel::zip_rows((data, width), (results, 1), |row, data, result| result[0] = work(row, data));
}

simd! {
    /// scale * softmax in place; gives what [`log_sum_exp`] does.
    fn softmax_row(x: &mut [f32], scale: f32) -> (f32, f32) {
        let most = max(x);
        for x in x.iter_mut() {
            *x = exp::<FUSED>(*x - most);
        }
        let total = sum(x, |x| x);
        let factor = scale / total;
        for x in x.iter_mut() {
            *x *= factor;
        }
        (most, total.ln())
    }
}

simd! {
    /// log sum exp of a row in two parts, the greatest number and the rest: their sum would round the rest away where
    /// numbers are large.
    fn log_sum_exp(x: &[f32]) -> (f32, f32) {
        let most = max(x);
        (most, sum(x, |x| exp::<FUSED>(x - most)).ln())
    }
}
