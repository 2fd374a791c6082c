//! Cross-entropy and log-softmax.

use crate::{close, graph, numbers, same_bits};
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
