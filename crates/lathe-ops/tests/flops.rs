//! Counts of operations against formulas. A binary of its own, with one test: counting needs the whole process.

use lathe_ops::activation::Act;
use lathe_ops::attention::{self, Gradients, Inputs, Mask, Relative, RelativeGradients, Rows, Shape};
use lathe_ops::dropout::Dropout;
use lathe_ops::flops::count;
use lathe_ops::gemm::{Mat, MatMut, Packed, Product, Rhs, gemm, gemm_grouped, gemm_serial};
use lathe_ops::{Precision, linear};

#[test]
fn counts_are_those_of_the_formulas() {
    // Few rows and many, few columns and many: every way in which products are computed.
    for (m, n, k) in [(1, 1, 1), (1, 700, 300), (3, 17, 5), (65, 300, 193), (300, 64, 700), (620, 620, 64)] {
        let expected = 2 * (m * n * k) as u128;
        let (x, w, bias) = (vec![0.5; m * k], vec![0.25; k * n], vec![1.0; n]);
        let (x, w) = (Mat::new(&x, m, k), Mat::new(&w, k, n));
        let [mut y, mut h] = [vec![0.0; m * n], vec![0.0; m * n]];
        let (packed, packed_bf16) = (Packed::new(w), Packed::with_precision(w, Precision::Bf16));
        let sides = [Rhs::Mat(w), Rhs::new(w, Precision::Bf16), Rhs::Packed(&packed), Rhs::Packed(&packed_bf16)];
        for w in sides {
            for bias in [None, Some(&*bias)] {
                let found = count(|| linear::forward(x, w, bias, MatMut::new(&mut y, m, n), false));
                assert_eq!(found, expected, "linear {m} {n} {k}");
            }
            assert_eq!(count(|| linear::forward_act(x, w, Some(&bias), Act::Relu, &mut h, &mut y)), expected);
            assert_eq!(count(|| gemm_serial(MatMut::new(&mut y, m, n), x, w, true)), expected, "serial {m} {n} {k}");
            let two = count(|| (0..2).for_each(|_| gemm(MatMut::new(&mut y, m, n), x, w, true)));
            assert_eq!(two, 2 * expected, "twice {m} {n} {k}");
        }
        let product = |c, b| Product { c: MatMut::new(c, m, n), a: x, b, accumulate: false };
        let [one, two] = [&mut y, &mut h];
        let found = count(|| gemm_grouped(vec![product(one, Rhs::Mat(w)), product(two, Rhs::Packed(&packed))], None));
        assert_eq!(found, 2 * expected, "grouped {m} {n} {k}");
    }
    assert_eq!(count(|| {}), 0);

    for (queries, keys) in [(1, 70), (70, 70), (70, 193)] {
        for relative in [false, true] {
            attention_counts(queries, keys, relative);
        }
    }

    let failed = std::panic::catch_unwind(|| count(|| panic!("work that fails")));
    assert!(failed.is_err());
    assert_eq!(count(|| {}), 0, "after work that failed");
}

/// The products of all pairs of places, whatever is masked.
fn attention_counts(queries: usize, keys: usize, relative: bool) {
    let (batch, heads, kv_heads, d_head) = (2, 4, 2, 5);
    let shape = Shape {
        batch,
        queries,
        keys,
        heads,
        kv_heads,
        d_head,
        mask: Mask::Causal,
        dropout: Dropout::NONE,
        precision: Precision::F32,
    };
    let (a, kv) = (heads * d_head, kv_heads * d_head);
    let (q, k, r) = (vec![0.5; batch * queries * a], vec![0.5; batch * keys * kv], vec![0.5; keys * a]);
    let inputs = Inputs {
        q: Rows { data: &q, stride: a, batch_stride: queries * a },
        k: Rows { data: &k, stride: kv, batch_stride: keys * kv },
        v: Rows { data: &k, stride: kv, batch_stride: keys * kv },
        relative: relative.then_some(Relative { r: &r, u: &r[..a], v: &r[..a] }),
        distances: None,
        padding: None,
        lengths: None,
    };
    let mut out = vec![0.0; q.len()];
    let mut probabilities = vec![0.0; batch * heads * queries * keys];
    let products = if relative { 3 } else { 2 };
    let expected = 2 * (products * batch * heads * queries * keys * d_head) as u128;
    let found = count(|| attention::forward(&shape, &inputs, &mut out, Some(&mut probabilities)));
    assert_eq!(found, expected, "{queries} {keys} {relative}");

    let [mut dq, mut dk, mut dv, mut dr] = [&q, &k, &k, &r].map(|x| vec![0.0; x.len()]);
    let [mut du, mut dbias] = [vec![0.0; a], vec![0.0; a]];
    let gradients = Gradients {
        dq: MatMut::new(&mut dq, batch * queries, a),
        dk: MatMut::new(&mut dk, batch * keys, kv),
        dv: MatMut::new(&mut dv, batch * keys, kv),
        relative: relative.then_some(RelativeGradients { dr: &mut dr, du: &mut du, dv: &mut dbias }),
        distances: None,
    };
    let found = count(|| attention::backward(&shape, &inputs, &probabilities, &out, gradients));
    assert_eq!(found, 2 * expected, "backward {queries} {keys} {relative}");
}
