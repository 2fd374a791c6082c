//! Cross-entropy and log-softmax.

use crate::{close, graph, numbers, same_bits};
use candle_core::Tensor;
use lathe_ops::loss::{self, IGNORE};

const SCALE: f32 = 0.37;

/// Targets, of which every fourth does not count.
fn targets(rows: usize, width: usize) -> Vec<u32> {
    (0..rows).map(|row| if row % 4 == 2 { IGNORE } else { (row * 7919 % width) as u32 }).collect()
}

/// Losses and the gradient of the logits.
fn fused(logits: &[f32], width: usize, targets: &[u32]) -> Vec<Vec<f32>> {
    let (mut dlogits, mut losses) = (logits.to_vec(), vec![0.0; targets.len()]);
    loss::cross_entropy(&mut dlogits, width, targets, SCALE, &mut losses);
    vec![losses, dlogits]
}

#[test]
fn fused_is_composed() {
    for rows in [1, 3, 17, 65] {
        for width in [1, 3, 17, 65, 193, 1025] {
            let logits: Vec<f32> = numbers(rows * width, 1).iter().map(|x| 9.0 * x).collect();
            let targets = targets(rows, width);
            let shape = [rows, width];
            let (losses, [dlogits]) =
                graph([(&logits, &shape)], &vec![SCALE; rows], |[logits]| loss::composed(logits, &targets));
            let what = format!("{rows} {width}");
            let found = fused(&logits, width, &targets);
            close(&what, &found[0], &losses, 1e-6);
            close(&what, &found[1], &dlogits, 2e-6);
            let (mut same, mut alone) = (logits.clone(), vec![0.0; rows]);
            loss::negative_log_likelihood(&mut same, width, &targets, &mut alone);
            close(&what, &alone, &losses, 1e-6);
            assert_eq!(same, logits);

            let (expected, _) =
                graph([(&logits, &shape)], &vec![1.0; rows * width], |[logits]| loss::composed_log_softmax(logits));
            loss::log_softmax(&mut same, width);
            close(&what, &same, &expected, 1e-6);
        }
    }
}

/// Probabilities of a cluster's tokens are its own among the first cluster's, times theirs within it.
#[test]
fn adaptive_is_composed() {
    for rows in [1, 3, 65] {
        for ends in [&[5, 9][..], &[1, 18, 193], &[700, 800, 801, 1500]] {
            let (tails, width) = (ends.len() - 1, ends[ends.len() - 1]);
            let of_tails: Vec<f32> = numbers(rows * tails, 2).iter().map(|x| 20.0 * x).collect();
            let logits: Vec<f32> = numbers(rows * width, 1).iter().map(|x| 9.0 * x).collect();
            let inputs = [(&logits[..], &[rows, width][..]), (&of_tails[..], &[rows, tails][..])];
            let (expected, _) = graph(inputs, &vec![1.0; rows * width], |[logits, of_tails]| {
                let first = Tensor::cat(&[logits.narrow(1, 0, ends[0])?, of_tails.clone()], 1)?;
                let first = loss::composed_log_softmax(&first)?;
                let mut parts = vec![first.narrow(1, 0, ends[0])?];
                for (i, cluster) in ends.windows(2).enumerate() {
                    let within = logits.narrow(1, cluster[0], cluster[1] - cluster[0])?;
                    let of_tail = first.narrow(1, ends[0] + i, 1)?;
                    parts.push(loss::composed_log_softmax(&within)?.broadcast_add(&of_tail)?);
                }
                Tensor::cat(&parts, 1)
            });
            let (mut found, mut of_tails) = (logits.clone(), of_tails.clone());
            loss::adaptive_log_softmax(&mut found, ends, &mut of_tails);
            close(&format!("{rows} {ends:?}"), &found, &expected, 2e-6);
        }
    }
}

/// Large logits neither overflow nor lose the small ones.
#[test]
fn large_logits() {
    let logits = [1e4f32, 1e4 - 3.0, -1e4, 0.0];
    for (target, expected) in [(0, 0.048_587_35), (1, 3.048_587_3), (2, 20_000.049)] {
        let (value, _) = graph([(&logits, &[1, 4])], &[1.0], |[logits]| loss::composed(logits, &[target]));
        close("composed", &value, &[expected], 1e-6);
        close("fused", &fused(&logits, 4, &[target])[0], &[expected], 1e-6);
    }
}

#[test]
fn same_on_any_number_of_threads() {
    let logits = numbers(193 * 257, 1);
    let targets = targets(193, 257);
    same_bits("cross-entropy", || fused(&logits, 257, &targets));
}
