//! Rotary positions.

use crate::{close, graph, numbers, same_bits};
use lathe_ops::gemm::MatMut;
use lathe_ops::rope::{Rope, Scaling};

const LLAMA3: Scaling =
    Scaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_len: 8192 };

/// The columns from `first` on of x [rows, stride] forward, and of dy backward.
fn fused(rope: &Rope, [x, dy]: [&[f32]; 2], stride: usize, columns: (usize, usize), at: &[usize]) -> Vec<Vec<f32>> {
    let [mut y, mut dx] = [x, dy].map(<[f32]>::to_vec);
    let (first, cols) = columns;
    fn part(data: &mut [f32], first: usize, cols: usize, stride: usize) -> MatMut<'_> {
        let rows = data.len() / stride;
        MatMut::with_stride(&mut data[first..], rows, cols, stride)
    }
    rope.forward(part(&mut y, first, cols, stride), at);
    rope.backward(part(&mut dx, first, cols, stride), at);
    vec![y, dx]
}

#[test]
fn fused_is_composed() {
    for scaling in [Scaling::None, Scaling::Linear { factor: 4.0 }, LLAMA3] {
        for (batch, len, heads, d_head) in [(1, 1, 1, 2), (2, 3, 2, 6), (1, 17, 3, 34), (3, 65, 2, 64)] {
            let rope = Rope::new(d_head, 10_000.0, scaling);
            let shape = [batch, len, heads * d_head];
            let (x, dy) = (numbers(shape.iter().product(), 1), numbers(shape.iter().product(), 2));
            let one_sequence: Vec<usize> = (5..5 + len).collect();
            let each_row: Vec<usize> = (0..batch * len).map(|i| i * i * 31 % 997).collect();
            for at in [one_sequence, each_row] {
                let (y, [dx]) = graph([(&x, &shape)], &dy, |[x]| rope.composed(x, &at));
                let found = fused(&rope, [&x, &dy], shape[2], (0, shape[2]), &at);
                close("turned", &found[0], &y, 1e-6);
                close("turned back", &found[1], &dx, 1e-6);
            }
        }
    }
}

/// Queries and keys beside values, which stay as they are.
#[test]
fn columns_of_a_wider_matrix() {
    let (rows, heads, kv_heads, d_head) = (34, 4, 2, 6);
    let stride = (heads + 2 * kv_heads) * d_head;
    let rope = Rope::new(d_head, 10_000.0, Scaling::None);
    let (x, dy) = (numbers(rows * stride, 1), numbers(rows * stride, 2));
    let at: Vec<usize> = (3..20).collect();
    for columns in [(0, heads * d_head), (heads * d_head, kv_heads * d_head), (0, (heads + kv_heads) * d_head)] {
        let inside = columns.0..columns.0 + columns.1;
        let found = fused(&rope, [&x, &dy], stride, columns, &at);
        for (found, from) in found.iter().zip([&x, &dy]) {
            let alone: Vec<f32> = from.chunks_exact(stride).flat_map(|row| &row[inside.clone()]).copied().collect();
            let turned = fused(&rope, [&alone, &alone], columns.1, (0, columns.1), &at);
            let direction = usize::from(from == &dy);
            for (r, (found, from)) in found.chunks_exact(stride).zip(from.chunks_exact(stride)).enumerate() {
                assert_eq!(found[inside.clone()], turned[direction][r * columns.1..][..columns.1]);
                assert_eq!(found[..inside.start], from[..inside.start]);
                assert_eq!(found[inside.end..], from[inside.end..]);
            }
        }
    }
}

/// Scores of turned queries and keys depend on how far they are apart, and turning back undoes a turn.
#[test]
fn scores_depend_on_distance() {
    let d_head = 32;
    let rope = Rope::new(d_head, 500_000.0, LLAMA3);
    let (q, k) = (numbers(d_head, 1), numbers(d_head, 2));
    let turned = |x: &[f32], at: usize| fused(&rope, [x, x], d_head, (0, d_head), &[at]).swap_remove(0);
    let score = |i: usize, j: usize| turned(&q, i).iter().zip(turned(&k, j)).map(|(a, b)| a * b).sum::<f32>();
    close("scores", &[score(7, 3), score(1007, 1003)], &[score(4, 0), score(4, 0)], 1e-4);
    let there = turned(&q, 77);
    close("there and back", &fused(&rope, [&q, &there], d_head, (0, d_head), &[77])[1], &q, 1e-6);
    assert_eq!(turned(&q, 0), q, "position 0 turns nothing");
}

/// A table that grew has the same entries as one that was long from the beginning.
#[test]
fn tables_grow() {
    let (grown, long) = (Rope::new(6, 10_000.0, Scaling::None), Rope::new(6, 10_000.0, Scaling::None));
    let x = numbers(6, 1);
    let turned = |rope: &Rope, at: usize| fused(rope, [&x, &x], 6, (0, 6), &[at]);
    turned(&long, 5000);
    for at in [0, 1, 2, 63, 64, 65, 4096] {
        assert_eq!(turned(&grown, at), turned(&long, at));
    }
}

/// Frequencies against the formulas of transformers, in f64.
#[test]
fn frequencies_are_those_of_the_formulas() {
    for (d_head, theta) in [(64usize, 500_000.0f64), (128, 500_000.0), (64, 10_000.0), (6, 1e6)] {
        let plain = |i: usize| theta.powf(-2.0 * i as f64 / d_head as f64);
        let llama3 = |i: usize| {
            let (f, factor, low, high, len) = (plain(i), 32.0, 1.0, 4.0, 8192.0);
            let wave = 2.0 * std::f64::consts::PI / f;
            let smooth = (len / wave - low) / (high - low);
            match wave {
                _ if wave < len / high => f,
                _ if wave > len / low => f / factor,
                _ => (1.0 - smooth) * f / factor + smooth * f,
            }
        };
        let Scaling::Llama3 { low_freq_factor, high_freq_factor, original_max_len, .. } = LLAMA3 else {
            unreachable!("the constant is of this kind")
        };
        let scaled = Scaling::Llama3 { factor: 32.0, low_freq_factor, high_freq_factor, original_max_len };
        for i in 0..d_head / 2 {
            for (scaling, exact) in
                [(Scaling::None, plain(i)), (Scaling::Linear { factor: 3.0 }, plain(i) / 3.0), (scaled, llama3(i))]
            {
                let found = f64::from(Rope::new(d_head, theta, scaling).frequencies()[i]);
                assert!((found / exact - 1.0).abs() < 2e-6, "{scaling:?} {d_head} {theta} {i}: {found} for {exact}");
            }
        }
    }
}

#[test]
fn same_on_any_number_of_threads() {
    let (x, dy) = (numbers(403 * 256, 1), numbers(403 * 256, 2));
    let at: Vec<usize> = (0..403).collect();
    same_bits("rope", || fused(&Rope::new(64, 10_000.0, LLAMA3), [&x, &dy], 256, (64, 192), &at));
}
