//! Layer norm, RMS norm, and none of them.

use crate::{close, graph, numbers, same_bits};
use lathe_ops::norm::{Norm, NormKind};

const KINDS: [NormKind; 3] =
    [NormKind::LAYER, NormKind { norm: Norm::Rms, eps: 1e-6 }, NormKind { norm: Norm::Scale, eps: 0.0 }];

/// y, dx, dgamma and dbeta; RMS norm has no beta.
fn fused(kind: NormKind, x: &[f32], gamma: &[f32], beta: &[f32], dy: &[f32]) -> Vec<Vec<f32>> {
    let (mut y, mut stats) = (vec![0.0; x.len()], vec![0.0; 2 * x.len() / gamma.len()]);
    kind.forward(x, gamma, beta, &mut y, &mut stats);
    let (mut dx, mut dgamma, mut dbeta) = (vec![0.0; x.len()], vec![0.0; gamma.len()], vec![0.0; beta.len()]);
    kind.backward(x, gamma, &stats, dy, &mut dx, &mut dgamma, &mut dbeta);
    vec![y, dx, dgamma, dbeta]
}

fn inputs(kind: NormKind, rows: usize, width: usize) -> [Vec<f32>; 4] {
    let x = numbers(rows * width, 1).iter().map(|x| 3.0 * x + 0.5).collect();
    let beta = if kind.norm == Norm::Rms { 0 } else { width };
    [x, numbers(width, 2), numbers(beta, 3), numbers(rows * width, 4)]
}

#[test]
fn fused_is_composed() {
    for kind in KINDS {
        for rows in [1, 3, 65, 193] {
            for width in [1, 3, 17, 65, 193] {
                let [x, gamma, beta, dy] = inputs(kind, rows, width);
                let found = fused(kind, &x, &gamma, &beta, &dy);
                let (xs, widths): (&[usize], &[usize]) = (&[rows, width], &[width]);
                let (y, gradients) = match kind.norm {
                    Norm::Layer | Norm::Scale => {
                        let inputs = [(&*x, xs), (&*gamma, widths), (&*beta, widths)];
                        let (y, gradients) = graph(inputs, &dy, |[x, g, b]| kind.composed(x, g, Some(b)));
                        (y, gradients.to_vec())
                    }
                    Norm::Rms => {
                        let (y, gradients) =
                            graph([(&*x, xs), (&*gamma, widths)], &dy, |[x, g]| kind.composed(x, g, None));
                        (y, gradients.to_vec())
                    }
                };
                let what = format!("{kind:?} {rows} {width}");
                close(&what, &found[0], &y, 1e-5);
                found[1..].iter().zip(&gradients).for_each(|(a, b)| close(&what, a, b, 1e-5));
            }
        }
    }
}

#[test]
fn same_on_any_number_of_threads() {
    for kind in KINDS {
        let [x, gamma, beta, dy] = inputs(kind, 403, 193);
        same_bits("norm", || fused(kind, &x, &gamma, &beta, &dy));
    }
}

/// RMS norm with nothing for beta, from no epsilon to a large one: y, y again from its statistics, and gradients.
#[test]
fn rms_norm_has_no_beta() {
    for eps in [0.0, 1e-12, 1e-6, 1e-5, 0.5] {
        let kind = NormKind { norm: Norm::Rms, eps };
        let (rows, width) = (65, 17);
        let [x, gamma, beta, dy] = inputs(kind, rows, width);
        assert!(beta.is_empty());
        let found = fused(kind, &x, &gamma, &[], &dy);
        let shapes: [&[usize]; 2] = [&[rows, width], &[width]];
        let (y, [dx, dgamma]) =
            graph([(&*x, shapes[0]), (&*gamma, shapes[1])], &dy, |[x, g]| kind.composed(x, g, None));
        for (found, expected) in found.iter().zip([y, dx, dgamma, vec![]]) {
            close(&format!("eps {eps}"), found, &expected, 1e-5);
        }
        let (mut first, mut again, mut stats) = (vec![0.0; x.len()], vec![0.0; x.len()], vec![0.0; 2 * rows]);
        kind.forward(&x, &gamma, &[], &mut first, &mut stats);
        kind.recompute(&x, &gamma, &[], &stats, &mut again);
        assert_eq!(first, again);
    }
}

/// The norm of each head (Qwen3's of queries and keys): [N, H * K] is [N * H, K] with one gamma `[K]`.
#[test]
fn each_head_is_a_row() {
    for kind in KINDS {
        for (rows, heads, d_head) in [(1, 1, 1), (3, 2, 5), (67, 3, 17), (130, 4, 64)] {
            let [x, gamma, beta, dy] = inputs(kind, rows * heads, d_head);
            let found = fused(kind, &x, &gamma, &beta, &dy);
            let mut expected: Vec<Vec<f32>> = found.iter().map(|found| vec![0.0; found.len()]).collect();
            for h in 0..heads {
                let of_head = |i: &usize| i / d_head % heads == h;
                let places: Vec<usize> = (0..x.len()).filter(of_head).collect();
                let head = |x: &[f32]| -> Vec<f32> { places.iter().map(|&i| x[i]).collect() };
                let parts = fused(kind, &head(&x), &gamma, &beta, &head(&dy));
                for (to, part) in expected[..2].iter_mut().zip(&parts) {
                    places.iter().zip(part).for_each(|(&i, x)| to[i] = *x);
                }
                for (to, part) in expected[2..].iter_mut().zip(&parts[2..]) {
                    to.iter_mut().zip(part).for_each(|(to, x)| *to += x);
                }
            }
            assert_eq!(found[..2], expected[..2], "rows do not depend on each other");
            for (found, expected) in found[2..].iter().zip(&expected[2..]) {
                close("one gamma for all heads", found, expected, 2e-6);
            }
        }
    }
}
