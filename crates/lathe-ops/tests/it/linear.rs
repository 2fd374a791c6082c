//! Linear layers in both layouts of the weights.

use crate::{close, graph, numbers, same_bits};
use lathe_ops::Precision;
use lathe_ops::activation::{self, Act};
use lathe_ops::gemm::{Mat, MatMut, Packed, Rhs, gemm};
use lathe_ops::linear;

/// y, dx, dW as [in, out] and dbias, where W is stored as [in, out] or transposed.
fn fused(x: &[f32], w: &[f32], bias: &[f32], dy: &[f32], transposed: bool, precision: Precision) -> Vec<Vec<f32>> {
    let (inputs, outputs) = (w.len() / bias.len(), bias.len());
    let rows = dy.len() / outputs;
    let stored = Mat::new(w, inputs, outputs);
    let copy: Vec<f32> = (0..w.len()).map(|i| stored.at(i % inputs, i / inputs)).collect();
    let w = if transposed { Mat::new(&copy, outputs, inputs).t() } else { stored };
    let (x, dy) = (Mat::new(x, rows, inputs), Mat::new(dy, rows, outputs));
    let mut y = vec![0.0; rows * outputs];
    linear::forward(x, Rhs::new(w, precision), Some(bias), MatMut::new(&mut y, rows, outputs), false);
    let mut packed = vec![0.0; rows * outputs];
    let packed_w = Packed::with_precision(w, precision.available());
    linear::forward(x, &packed_w, Some(bias), MatMut::new(&mut packed, rows, outputs), false);
    assert_eq!(y, packed, "packing changes nothing");
    let (mut dx, mut dw, mut dbias) = (vec![0.0; rows * inputs], vec![0.0; inputs * outputs], vec![0.0; outputs]);
    gemm(MatMut::new(&mut dx, rows, inputs), dy, Rhs::new(w.t(), precision), false);
    gemm(MatMut::new(&mut dw, inputs, outputs), x.t(), Rhs::new(dy, precision), false);
    linear::bias_backward(dy, &mut dbias);
    vec![y, dx, dw, dbias]
}

#[test]
fn fused_is_composed() {
    for rows in [1, 3, 65, 193] {
        for inputs in [1, 17, 193] {
            for outputs in [1, 3, 65, 193] {
                let (x, w) = (numbers(rows * inputs, 1), numbers(inputs * outputs, 2));
                let (bias, dy) = (numbers(outputs, 3), numbers(rows * outputs, 4));
                let of_graph: [(&[f32], &[usize]); 3] =
                    [(&x, &[rows, inputs]), (&w, &[inputs, outputs]), (&bias, &[outputs])];
                let (y, gradients) = graph(of_graph, &dy, |[x, w, bias]| linear::composed(x, w, Some(bias)));
                for transposed in [false, true] {
                    for (precision, tolerance) in [(Precision::F32, 5e-6), (Precision::Bf16, 1.0 / 32.0)] {
                        let found = fused(&x, &w, &bias, &dy, transposed, precision);
                        for (found, expected) in found.iter().zip([vec![y.clone()], gradients.to_vec()].concat()) {
                            close(&format!("{precision} {rows} {inputs} {outputs}"), found, &expected, tolerance);
                        }
                    }
                }
            }
        }
    }
}

/// z = act(x W + b) V, with the activation and its gradient inside the products.
#[test]
fn with_an_activation() {
    for (rows, inputs, inner, outputs) in [(1, 3, 5, 2), (65, 17, 193, 9), (193, 65, 300, 65)] {
        let (x, w, bias) = (numbers(rows * inputs, 1), numbers(inputs * inner, 2), numbers(inner, 3));
        let (v, dz) = (numbers(inner * outputs, 4), numbers(rows * outputs, 5));
        for act in [Act::Relu, Act::Gelu, Act::GeluTanh, Act::Silu] {
            let of_graph: [(&[f32], &[usize]); 4] =
                [(&x, &[rows, inputs]), (&w, &[inputs, inner]), (&bias, &[inner]), (&v, &[inner, outputs])];
            let (z, gradients) = graph(of_graph, &dz, |[x, w, bias, v]| {
                activation::composed(act, false, &linear::composed(x, w, Some(bias))?)?.matmul(v)
            });
            let (x, w, v) = (Mat::new(&x, rows, inputs), Mat::new(&w, inputs, inner), Mat::new(&v, inner, outputs));
            let (mut h, mut y) = (vec![0.0; rows * inner], vec![0.0; rows * inner]);
            linear::forward_act(x, w, Some(&bias), act, &mut h, &mut y);
            let mut found = vec![0.0; z.len()];
            gemm(MatMut::new(&mut found, rows, outputs), Mat::new(&y, rows, inner), v, false);
            close("z", &found, &z, 5e-6);

            let mut dh = vec![0.0; rows * inner];
            linear::backward_act(Mat::new(&dz, rows, outputs), v.t(), act, &mut h, &mut dh);
            assert_eq!(h, y, "the activation again");
            let (mut dx, mut dbias) = (vec![0.0; rows * inputs], vec![0.0; inner]);
            gemm(MatMut::new(&mut dx, rows, inputs), Mat::new(&dh, rows, inner), w.t(), false);
            linear::bias_backward(Mat::new(&dh, rows, inner), &mut dbias);
            close("dx", &dx, &gradients[0], 5e-6);
            close("dbias", &dbias, &gradients[2], 5e-6);
        }
    }
}

#[test]
fn sums_onto_what_is_there() {
    for len in [1, 193, 9000] {
        let (mut y, x) = (numbers(len, 1), numbers(len, 2));
        let expected: Vec<f32> = y.iter().zip(&x).map(|(y, x)| y + x).collect();
        linear::add(&mut y, &x);
        assert_eq!(y, expected);
    }
    let (x, w, y) = (numbers(6, 1), numbers(12, 2), numbers(8, 3));
    let (x, w) = (Mat::new(&x, 2, 3), Mat::new(&w, 3, 4));
    let (mut sum, mut product) = (y.clone(), vec![0.0; 8]);
    linear::forward(x, w, None, MatMut::new(&mut product, 2, 4), false);
    linear::forward(x, w, None, MatMut::new(&mut sum, 2, 4), true);
    let expected: Vec<f32> = y.iter().zip(&product).map(|(y, product)| y + product).collect();
    close("accumulated", &sum, &expected, 1e-6);
}

#[test]
fn same_on_any_number_of_threads() {
    let (x, w) = (numbers(193 * 257, 1), numbers(257 * 321, 2));
    let (bias, dy) = (numbers(321, 3), numbers(193 * 321, 4));
    for transposed in [false, true] {
        for precision in [Precision::F32, Precision::Bf16] {
            same_bits("linear", || fused(&x, &w, &bias, &dy, transposed, precision));
        }
    }
}
