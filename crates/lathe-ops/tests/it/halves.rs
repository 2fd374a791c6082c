//! Weights held as bf16 and multiplied in f32.

use crate::{close, numbers, same_bits};
use lathe_ops::Precision;
use lathe_ops::gemm::{Mat, MatMut, Packed, Product, Rhs, gemm, gemm_finish, gemm_grouped};
use lathe_ops::storage::{Bf16, Storage};

/// What weights are rounded to.
fn rounded(w: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; w.len()];
    Bf16.decode(&Bf16.encode(w), &mut out);
    out
}

fn product(x: Mat<'_>, w: &Packed, accumulate: bool) -> Vec<f32> {
    let mut c = numbers(x.rows() * w.cols(), 9);
    gemm(MatMut::new(&mut c, x.rows(), w.cols()), x, w, accumulate);
    c
}

/// Few rows are those of f32 but for the last bits, many rows are the same bit for bit.
#[test]
fn products_are_those_of_the_rounded_weights() {
    for m in [1, 2, 3, 5, 8, 9, 40, 650] {
        for (n, k) in [(1, 1), (16, 32), (33, 31), (40, 65), (130, 600), (70, 0)] {
            let (x, w) = (numbers(m * k, 1), numbers(k * n, 2));
            let plain = rounded(&w);
            for (a_t, w_t) in [(false, false), (true, false), (false, true), (true, true)] {
                let x = if a_t { Mat::new(&x, k, m).t() } else { Mat::new(&x, m, k) };
                let turn = |w| if w_t { Mat::new(w, n, k).t() } else { Mat::new(w, k, n) };
                let (held, f32s) = (Packed::bf16_weights(turn(&w)), Packed::new(turn(&plain)));
                assert_eq!((held.precision(), held.rows(), held.cols()), (Precision::F32, k, n));
                for accumulate in [false, true] {
                    let (found, expected) = (product(x, &held, accumulate), product(x, &f32s, accumulate));
                    close(&format!("{m} {n} {k}"), &found, &expected, 2e-6);
                    assert!(m <= 8 || found == expected, "{m} {n} {k}: many rows are as f32");
                    // Where the matrix is bf16 already, nothing is rounded.
                    assert_eq!(product(x, &Packed::bf16_weights(turn(&plain)), accumulate), found);
                }
            }
        }
    }
}

/// Products in bf16 of few rows read the same weights, and do not round the rows.
#[test]
fn few_rows_of_bf16_products_are_not_rounded() {
    if Precision::Bf16.warning().is_some() {
        return; // not on this CPU
    }
    for m in [1, 4, 8] {
        let (x, w) = (numbers(m * 70, 1), numbers(70 * 50, 2));
        let (x, w) = (Mat::new(&x, m, 70), Mat::new(&w, 70, 50));
        let held = product(x, &Packed::bf16_weights(w), false);
        assert_eq!(product(x, &Packed::with_precision(w, Precision::Bf16), false), held);
        let mut c = vec![0.0; m * 50];
        gemm(MatMut::new(&mut c, m, 50), x, Rhs::new(w, Precision::Bf16), false);
        assert_eq!(c, held);
    }
}

#[test]
fn half_of_the_memory() {
    let w = numbers(256 * 640, 1);
    let w = Mat::new(&w, 256, 640);
    assert!(2 * Packed::bf16_weights(w).bytes() < Packed::new(w).bytes() + 1000);
}

/// Whatever holds the weights: finished, in a group, refilled.
#[test]
fn every_kind_of_product_takes_them() {
    for m in [3, 50] {
        let (n, k) = (300, 90);
        let (x, w) = (numbers(m * k, 1), numbers(k * n, 2));
        let x = Mat::new(&x, m, k);
        let mut held = Packed::bf16_weights(Mat::new(&numbers(k * n, 3), k, n));
        held.refill(Mat::new(&w, k, n));
        let plain = product(x, &held, false);
        let mut c = vec![0.0; m * n];
        gemm_finish(MatMut::new(&mut c, m, n), x, &held, false, &|row, col, values| {
            values.iter_mut().enumerate().for_each(|(i, v)| *v += (row * n + col + i) as f32);
        });
        assert!(c.iter().zip(&plain).enumerate().all(|(i, (c, plain))| *c == plain + i as f32));
        let mut c = [vec![0.0; m * n], vec![0.0; m * n]];
        let products =
            c.iter_mut().map(|c| Product { c: MatMut::new(c, m, n), a: x, b: Rhs::Packed(&held), accumulate: false });
        let finish = |i: usize, row: usize, col: usize, values: &mut [f32]| {
            values.iter_mut().enumerate().for_each(|(j, v)| *v += (i + row * n + col + j) as f32);
        };
        gemm_grouped(products.collect(), Some(&finish));
        for (p, c) in c.iter().enumerate() {
            assert!(c.iter().zip(&plain).enumerate().all(|(i, (c, plain))| *c == plain + (p + i) as f32), "{m} {p}");
        }
    }
}

#[test]
fn same_on_any_number_of_threads() {
    for m in [1, 7, 130] {
        let (x, w) = (numbers(m * 700, 1), numbers(700 * 900, 2));
        same_bits("bf16 weights", || {
            vec![product(Mat::new(&x, m, 700), &Packed::bf16_weights(Mat::new(&w, 700, 900)), true)]
        });
    }
}

/// All of the above with every cap of instructions.
#[test]
fn on_every_level() {
    crate::on_every_level("halves::", "halves::products_are_those_of_the_rounded_weights");
}
