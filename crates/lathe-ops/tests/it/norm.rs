//! Layer norm and RMS norm.

use crate::{close, graph, numbers, same_bits};
use lathe_ops::norm::{Norm, NormKind};

const KINDS: [NormKind; 2] = [NormKind::LAYER, NormKind { norm: Norm::Rms, eps: 1e-6 }];

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
    let beta = if kind.norm == Norm::Layer { width } else { 0 };
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
                    Norm::Layer => {
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
