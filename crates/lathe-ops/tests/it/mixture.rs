//! Mixtures of outputs.

use crate::{close, graph, numbers, same_bits};
use lathe_ops::mixture;

/// y, dp, and the gradient of each output.
fn fused(p: &[f32], outputs: &[Vec<f32>], dy: &[f32]) -> Vec<Vec<f32>> {
    let mut y = vec![0.0; dy.len()];
    mixture::forward(p, outputs.iter().map(Vec::as_slice), &mut y);
    let dp = outputs.iter().map(|output| mixture::dot(dy, output) as f32).collect();
    let douts = p.iter().map(|&p| mixture::scaled(p, dy).to_vec());
    [y, dp].into_iter().chain(douts).collect()
}

#[test]
fn fused_is_composed() {
    for len in [1, 17, 60, 4097, 20_000] {
        let p = numbers(3, 1);
        let outputs: Vec<Vec<f32>> = (2..5).map(|seed| numbers(len, seed)).collect();
        let dy = numbers(len, 9);
        let [a, b, c] = [0, 1, 2].map(|i| (outputs[i].as_slice(), [len]));
        let inputs: [(&[f32], &[usize]); 4] = [(&p, &[3]), (a.0, &a.1), (b.0, &b.1), (c.0, &c.1)];
        let (y, gradients) = graph(inputs, &dy, |[p, a, b, c]| mixture::composed(p, &[a, b, c]));
        let found = fused(&p, &outputs, &dy);
        close(&format!("y of {len}"), &found[0], &y, 1e-6);
        for (found, expected) in found[1..].iter().zip(&gradients) {
            close(&format!("gradients of {len}"), found, expected, 1e-5);
        }
    }
}

#[test]
fn one_weight_among_zeros_gives_the_output_itself() {
    let outputs = [numbers(5000, 1), vec![f32::NAN; 5000]];
    assert_eq!(fused(&[1.0, 0.0], &outputs, &numbers(5000, 2))[0], outputs[0]);
}

#[test]
fn the_same_bits_on_any_number_of_threads() {
    let outputs: Vec<Vec<f32>> = (2..5).map(|seed| numbers(100_000, seed)).collect();
    let (p, dy) = (numbers(3, 1), numbers(100_000, 9));
    same_bits("a mixture", || fused(&p, &outputs, &dy));
}
