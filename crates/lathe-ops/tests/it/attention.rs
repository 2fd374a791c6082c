//! Attention with absolute and relative scores, with and without a memory, under every mask.

use crate::{close, graph, numbers, same_bits};
use lathe_ops::Precision;
use lathe_ops::attention::{
    self, ComposedPositions, Gradients, Inputs, KEPT_AS, Kept, KeptAs, KeptRows, Mask, Relative, RelativeGradients,
    Rows, Shape,
};
use lathe_ops::dropout::Dropout;
use lathe_ops::gemm::MatMut;

/// What positions have to do with scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Positions {
    Nothing,
    Relative,
    Distances,
}
use Positions::{Distances, Nothing};

const POSITIONS: [Positions; 3] = [Nothing, Positions::Relative, Distances];

/// q, k, v, r, u, v of relative scores, and biases by distance.
type Arrays = [Vec<f32>; 7];

fn arrays(shape: &Shape) -> Arrays {
    let a = shape.heads * shape.d_head;
    let (queries, keys) = (shape.batch * shape.queries * a, shape.batch * shape.keys * shape.kv_heads * shape.d_head);
    let numbers = |len: usize, seed: u64| numbers(len, seed).iter().map(|x| 2.0 * x).collect();
    let distances = numbers(shape.heads * (shape.queries - 1 + shape.keys), 8);
    let [q, k, v, r] = [(queries, 1), (keys, 2), (keys, 3), (shape.keys * a, 4)].map(|(len, seed)| numbers(len, seed));
    [q, k, v, r, numbers(a, 5), numbers(a, 6), distances]
}

/// The output and all gradients.
fn fused(shape: &Shape, arrays: &Arrays, positions: Positions, dout: &[f32]) -> Vec<Vec<f32>> {
    padded(shape, arrays, positions, None, dout)
}

/// As [`fused`], where some keys are padding.
fn padded(
    shape: &Shape,
    [q, k, v, r, u, bias, by_distance]: &Arrays,
    positions: Positions,
    padding: Option<&[bool]>,
    dout: &[f32],
) -> Vec<Vec<f32>> {
    let Shape { batch, queries, keys, heads, kv_heads, d_head, .. } = *shape;
    let (a, kv) = (heads * d_head, kv_heads * d_head);
    fn rows(data: &[f32], stride: usize, len: usize) -> Rows<'_> {
        Rows { data, stride, batch_stride: stride * len }
    }
    let relative = (positions == Positions::Relative).then_some(Relative { r, u, v: bias });
    let distances = (positions == Distances).then_some(&by_distance[..]);
    let inputs = Inputs {
        q: rows(q, a, queries),
        k: rows(k, kv, keys),
        v: rows(v, kv, keys),
        relative,
        distances,
        padding,
        lengths: None,
    };
    let mut out = vec![0.0; q.len()];
    let mut probabilities = vec![f32::NAN; batch * heads * queries * keys];
    attention::forward(shape, &inputs, &mut out, Some(&mut probabilities));
    let mut without = vec![0.0; q.len()];
    attention::forward(shape, &inputs, &mut without, None);
    assert_eq!(out, without, "kept probabilities change nothing");

    let mut gradients = [q, k, v, r, u, bias, by_distance].map(|x| vec![0.0; x.len()]);
    let [dq, dk, dv, dr, du, dbias, ddistances] = &mut gradients;
    let to = Gradients {
        dq: MatMut::new(dq, batch * queries, a),
        dk: MatMut::new(dk, batch * keys, kv),
        dv: MatMut::new(dv, batch * keys, kv),
        relative: relative.is_some().then_some(RelativeGradients { dr, du, dv: dbias }),
        distances: distances.map(|_| &mut ddistances[..]),
    };
    attention::backward(shape, &inputs, &probabilities, dout, to);
    [vec![out], gradients.to_vec()].concat()
}

fn composed(
    shape: &Shape,
    arrays: &Arrays,
    positions: Positions,
    padding: Option<&[bool]>,
    dout: &[f32],
) -> Vec<Vec<f32>> {
    let Shape { batch, queries, keys, heads, kv_heads, d_head, mask, .. } = *shape;
    let a = heads * d_head;
    let [q, k, v, r, u, bias, distances] = arrays;
    let (of_distances, one) = ([heads, queries - 1 + keys], [a]);
    let (queries, keys_shape) = ([batch, queries, a], [batch, keys, kv_heads * d_head]);
    let inputs: [(&[f32], &[usize]); 7] = [
        (q, &queries),
        (k, &keys_shape),
        (v, &keys_shape),
        (r, &[keys, a]),
        (u, &one),
        (bias, &one),
        (distances, &of_distances),
    ];
    let (out, gradients) = graph(inputs, dout, |[q, k, v, r, u, bias, distances]| {
        let positions = match positions {
            Nothing => ComposedPositions::None,
            Positions::Relative => ComposedPositions::Relative([r, u, bias]),
            Distances => ComposedPositions::Distances(distances),
        };
        attention::composed(heads, kv_heads, mask, padding, [q, k, v], positions)
    });
    [vec![out], gradients.to_vec()].concat()
}

fn shape(batch: usize, queries: usize, keys: usize, heads: usize, d_head: usize, mask: Mask) -> Shape {
    let (dropout, precision) = (Dropout::NONE, Precision::F32);
    Shape { batch, queries, keys, heads, kv_heads: heads, d_head, mask, dropout, precision }
}

/// Fused in f32 and in bf16 against composed.
fn check(shape: &Shape, positions: Positions, padding: Option<&[bool]>) {
    let arrays = arrays(shape);
    let dout = numbers(arrays[0].len(), 7);
    let expected = composed(shape, &arrays, positions, padding, &dout);
    // bf16 rounds scores of up to 4 K / sqrt(K) and what follows from them.
    for (precision, tolerance) in [(Precision::F32, 1e-5), (Precision::Bf16, 0.03)] {
        let found = padded(&Shape { precision, ..*shape }, &arrays, positions, padding, &dout);
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            close(&format!("{precision} {shape:?} {positions:?} {i}"), found, expected, tolerance);
        }
    }
}

#[test]
fn fused_is_composed() {
    let sizes = [
        (1, 1, 1, 1, 1),
        (2, 3, 3, 1, 3),
        (1, 3, 5, 2, 1),
        (1, 1, 17, 3, 5),
        (2, 17, 17, 3, 5),
        (2, 17, 82, 1, 3),
        (1, 65, 65, 2, 17),
        (2, 65, 130, 2, 3),
        (1, 193, 258, 1, 17),
    ];
    for (batch, queries, keys, heads, d_head) in sizes {
        for mask in [Mask::Full, Mask::Causal, Mask::Window(1), Mask::Window(5), Mask::Window(70)] {
            for positions in POSITIONS {
                check(&shape(batch, queries, keys, heads, d_head, mask), positions, None);
            }
        }
    }
}

/// Heads of queries that share heads of keys and values, down to one for all.
#[test]
fn shared_keys_are_composed() {
    let sizes = [
        (1, 1, 1, (2, 1), 1),
        (2, 3, 3, (2, 1), 3),
        (1, 1, 17, (6, 2), 5),
        (2, 17, 33, (6, 3), 5),
        (1, 65, 65, (4, 1), 17),
        (2, 130, 193, (4, 2), 3),
    ];
    for (batch, queries, keys, (heads, kv_heads), d_head) in sizes {
        for mask in [Mask::Full, Mask::Causal, Mask::Window(5)] {
            for positions in POSITIONS {
                check(&Shape { kv_heads, ..shape(batch, queries, keys, heads, d_head, mask) }, positions, None);
            }
        }
    }
}

/// Queries may look at a text of another length, which may be shorter than their own.
#[test]
fn more_queries_than_keys() {
    for (batch, queries, keys, heads, d_head) in [(2, 6, 5, 2, 4), (1, 130, 65, 2, 17), (2, 70, 1, 1, 3)] {
        for padding in paddings(batch, keys).into_iter().map(Some).chain([None]) {
            check(&shape(batch, queries, keys, heads, d_head, Mask::Full), Nothing, padding.as_deref());
        }
    }
}

/// The same as if each head of queries had a copy of its keys and values, whose gradients are summed.
#[test]
fn shared_keys_are_copies() {
    let few = Shape { kv_heads: 2, ..shape(2, 70, 70, 6, 5, Mask::Causal) };
    let many = Shape { kv_heads: 6, ..few };
    let shared = arrays(&few);
    let copies = |x: &[f32]| -> Vec<f32> { x.chunks_exact(5).flat_map(|head| [head; 3]).flatten().copied().collect() };
    let mut copied = shared.clone();
    [copied[1], copied[2]] = [copies(&shared[1]), copies(&shared[2])];
    let dout = numbers(shared[0].len(), 7);
    let (found, expected) =
        (fused(&few, &shared, Positions::Relative, &dout), fused(&many, &copied, Positions::Relative, &dout));
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        if let 2 | 3 = i {
            let sum = |heads: &[f32]| -> Vec<f32> { (0..5).map(|c| heads.iter().skip(c).step_by(5).sum()).collect() };
            let sums: Vec<f32> = expected.chunks_exact(15).flat_map(sum).collect();
            close("gradients of keys and values", found, &sums, 1e-6);
        } else {
            assert_eq!(found, expected, "{i}");
        }
    }
}

/// Which keys are real, as several patterns: all, some in no order, the first, the last, and in one sequence none.
fn paddings(batch: usize, keys: usize) -> Vec<Vec<bool>> {
    let pattern = |real: &dyn Fn(usize, usize) -> bool| (0..batch * keys).map(|i| real(i / keys, i % keys)).collect();
    let scattered = numbers(batch * keys, 9);
    vec![
        pattern(&|_, _| true),
        pattern(&|b, j| scattered[b * keys + j] > 0.0),
        pattern(&|b, j| j < keys.div_ceil(b + 2)),
        pattern(&|b, j| j >= keys / (b + 2)),
        pattern(&|b, _| b + 1 < batch),
    ]
}

#[test]
fn padding_is_composed() {
    let sizes = [
        (1, 1, 1, (1, 1), 1),
        (2, 3, 3, (2, 1), 3),
        (3, 1, 17, (3, 3), 5),
        (2, 17, 33, (4, 2), 5),
        (2, 65, 65, (1, 1), 17),
        (2, 70, 193, (2, 1), 3),
    ];
    for (batch, queries, keys, (heads, kv_heads), d_head) in sizes {
        for mask in [Mask::Full, Mask::Causal, Mask::Window(5), Mask::Window(70)] {
            for (positions, padding) in
                paddings(batch, keys).into_iter().flat_map(|p| POSITIONS.map(|positions| (positions, p.clone())))
            {
                let shape = Shape { kv_heads, ..shape(batch, queries, keys, heads, d_head, mask) };
                check(&shape, positions, Some(&padding));
            }
        }
    }
}

/// Padding changes no bit of anything else, has no gradient, and a query that sees nothing has zeros.
#[test]
fn padding_does_not_matter() {
    for (queries, keys) in [(1, 65), (3, 3), (70, 70), (70, 193)] {
        for (mask, positions) in
            [(Mask::Full, Distances), (Mask::Causal, Positions::Relative), (Mask::Window(20), Nothing)]
        {
            for padding in paddings(2, keys) {
                let shape = Shape { kv_heads: 1, ..shape(2, queries, keys, 2, 5, mask) };
                let arrays = arrays(&shape);
                let dout = numbers(arrays[0].len(), 7);
                let found = padded(&shape, &arrays, positions, Some(&padding), &dout);
                assert!(found.iter().flatten().all(|x| x.is_finite()));
                let mut other = arrays.clone();
                for (array, factor) in [(1, -1e4), (2, 1e6)] {
                    for (row, _) in padding.iter().enumerate().filter(|(_, real)| !**real) {
                        other[array][row * 5..][..5].iter_mut().for_each(|x| *x = factor * (*x + 3.0));
                        for gradients in [&found[2], &found[3]] {
                            assert!(gradients[row * 5..][..5].iter().all(|x| *x == 0.0));
                        }
                    }
                }
                assert_eq!(found, padded(&shape, &other, positions, Some(&padding), &dout));
                let blind = |row: usize| {
                    let (b, place) = (row / queries, keys - queries + row % queries);
                    !(0..keys).any(|j| {
                        let seen = match mask {
                            Mask::Full => true,
                            Mask::Causal => j <= place,
                            Mask::Window(width) => j <= place && place < j + width,
                        };
                        seen && padding[b * keys + j]
                    })
                };
                for row in (0..2 * queries).filter(|&row| blind(row)) {
                    for zeros in [&found[0], &found[1]] {
                        assert!(zeros[row * 10..][..10].iter().all(|x| *x == 0.0));
                    }
                }
            }
        }
    }
}

/// Where nothing is padding, saying so gives the same bits.
#[test]
fn no_padding_is_no_padding() {
    for queries in [1, 70] {
        let shape = shape(2, queries, 130, 2, 17, Mask::Causal);
        let arrays = arrays(&shape);
        let dout = numbers(arrays[0].len(), 7);
        let found = padded(&shape, &arrays, Nothing, Some(&[true; 2 * 130]), &dout);
        assert_eq!(found, fused(&shape, &arrays, Nothing, &dout));
    }
}

#[test]
fn same_on_any_number_of_threads() {
    for (positions, precision) in POSITIONS.into_iter().flat_map(|p| [(p, Precision::F32), (p, Precision::Bf16)]) {
        let dropout = Dropout { probability: 0.1, key: 3 };
        let shape = Shape { dropout, precision, ..shape(3, 65, 193, 3, 17, Mask::Causal) };
        for shape in [shape, Shape { kv_heads: 1, ..shape }] {
            let arrays = arrays(&shape);
            let dout = numbers(arrays[0].len(), 7);
            same_bits("attention", || fused(&shape, &arrays, positions, &dout));
            let padding = &paddings(3, 193)[1];
            same_bits("padded attention", || padded(&shape, &arrays, positions, Some(padding), &dout));
        }
    }
}

/// What a loss makes of probabilities themselves reaches queries and keys.
#[test]
fn maps_have_gradients() {
    use candle_core::Tensor;
    for mask in [Mask::Causal, Mask::Full, Mask::Window(3)] {
        let shape = shape(1, 5, 5, 1, 4, mask);
        let [q, k, v, ..] = arrays(&shape);
        let maps = numbers(25, 8);
        let seen = |i: usize, j: usize| match mask {
            Mask::Full => true,
            Mask::Causal => j <= i,
            Mask::Window(width) => j <= i && j + width > i,
        };
        let hidden = (0..25).map(|at| if seen(at / 5, at % 5) { 0.0 } else { -1e9f32 }).collect::<Vec<_>>();
        let (expected, [dq, dk]) = graph([(&q, &[5, 4]), (&k, &[5, 4])], &maps, |[q, k]| {
            let hidden = Tensor::from_slice(&hidden, (5, 5), q.device())?.to_dtype(q.dtype())?;
            lathe_ops::loss::composed_log_softmax(&((q.matmul(&k.t()?)? / 2.0)? + hidden)?)?.exp()
        });
        let rows = |data| Rows { data, stride: 4, batch_stride: 20 };
        let inputs = Inputs {
            q: rows(&q),
            k: rows(&k),
            v: rows(&v),
            relative: None,
            distances: None,
            padding: None,
            lengths: None,
        };
        let (mut out, mut probabilities) = (vec![0.0; 20], vec![0.0; 25]);
        attention::forward(&shape, &inputs, &mut out, Some(&mut probabilities));
        close("probabilities", &probabilities, &expected, 1e-5);
        let mut gradients = [vec![0.0; 20], vec![0.0; 20], vec![0.0; 20]];
        let [to_q, to_k, to_v] = gradients.each_mut().map(|gradient| MatMut::new(gradient, 5, 4));
        let to = Gradients { dq: to_q, dk: to_k, dv: to_v, relative: None, distances: None };
        attention::backward_with_maps(&shape, &inputs, (&probabilities, Some(&maps)), &[0.0; 20], to);
        close(&format!("{mask:?} queries"), &gradients[0], &dq, 1e-5);
        close(&format!("{mask:?} keys"), &gradients[1], &dk, 1e-5);
        assert!(gradients[2].iter().all(|dv| *dv == 0.0));
    }
}

/// Keys and values that are kept are those that were written, rounded, and attention reads them so: one query or many, a cache
/// that was moved or copied or not.
#[test]
fn kept_keys_and_values_are_rounded() {
    let (batch, keys, heads, kv_heads, d_head) = (2, 70, 6, 2, 20);
    let (g, places) = (kv_heads * d_head, keys + 3);
    for &(name, kind) in KEPT_AS {
        assert_eq!((name.parse(), kind.to_string()), (Ok(kind), name.to_string()));
        let mut kept = Kept::new(kind, d_head, batch * places * 2 * g);
        let mut rounded = vec![0.0; batch * keys * 2 * g];
        for (i, row) in rounded.chunks_exact_mut(2 * g).enumerate() {
            let written: Vec<f32> = numbers(2 * g, i as u64).iter().map(|x| x * (1 + i % 5) as f32).collect();
            let at = (i / keys * places + 3 + i % keys) * 2 * g;
            kept.write(at, &written);
            kept.read(at, row);
            for (head, row) in written.chunks_exact(d_head).zip(row.chunks_exact(d_head)) {
                let most = head.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                for (x, y) in head.iter().zip(row) {
                    let allowed = match kind {
                        KeptAs::F32 => 0.0,
                        KeptAs::Bf16 => x.abs() / 256.0,
                        KeptAs::Int8 => most * 0.5001 / 127.0,
                    };
                    assert!((x - y).abs() <= allowed, "{kind}: {x} is kept as {y}");
                }
            }
        }
        assert_eq!(kept.bytes() as f64 / (4.0 * kept.len() as f64), [1.0, 0.5, 0.25 + 1.0 / 20.0][kind as usize]);
        let mut moved = kept.zeros(kept.len());
        moved.copy(0, &kept, 0..kept.len());
        for b in 0..batch {
            let first = b * places * 2 * g;
            moved.copy_within(first + 3 * 2 * g..first + places * 2 * g, first);
        }
        for queries in [1, keys - 1] {
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
            let q = numbers(batch * queries * heads * d_head, 9);
            let q = Rows { data: &q, stride: heads * d_head, batch_stride: queries * heads * d_head };
            let rows = |first: usize| Rows { data: &rounded[first..], stride: 2 * g, batch_stride: keys * 2 * g };
            let inputs =
                Inputs { q, k: rows(0), v: rows(g), relative: None, distances: None, padding: None, lengths: None };
            let mut expected = vec![0.0; batch * queries * heads * d_head];
            attention::forward(&shape, &inputs, &mut expected, None);
            for (kept, first) in [(&kept, 3 * 2 * g), (&moved, 0)] {
                let rows = KeptRows { kept, first, values: g, stride: 2 * g, batch_stride: places * 2 * g };
                let mut found = vec![0.0; expected.len()];
                attention::forward_kept(&shape, q, &rows, &mut found);
                close(&format!("{kind}, {queries} queries"), &found, &expected, 1e-6);
            }
        }
    }
    assert!("int4".parse::<KeptAs>().unwrap_err().contains("int4"));
}

/// Sequences of lengths of their own, one after the other: each gets what it gets alone, forward and backward, and their
/// biases by distance are those of the middle.
#[test]
fn sequences_of_any_lengths_get_what_they_get_alone() {
    let lengths = [5, 0, 66, 1, 17];
    let (longest, rows) = (66, 89);
    for (heads, kv_heads, mask) in [(3, 3, Mask::Full), (4, 2, Mask::Causal)] {
        let d_head = 3;
        let whole = Shape { kv_heads, ..shape(lengths.len(), longest, longest, heads, d_head, mask) };
        let (a, kv) = (heads * d_head, kv_heads * d_head);
        let [q, k, v, dout] = [(a, 1), (kv, 2), (kv, 3), (a, 4)].map(|(width, seed)| numbers(rows * width, seed));
        let by_distance = numbers(heads * (2 * longest - 1), 5);
        // Output, gradients of queries, keys, values and biases.
        let run = |shape: &Shape, lengths: Option<&[usize]>, [q, k, v, dout]: [&[f32]; 4], biases: &[f32]| {
            let rows = |data, stride| Rows { data, stride, batch_stride: 0 };
            let (q_rows, k_rows, v_rows) = (rows(q, a), rows(k, kv), rows(v, kv));
            let (relative, distances, padding) = (None, Some(biases), None);
            let inputs = Inputs { q: q_rows, k: k_rows, v: v_rows, relative, distances, padding, lengths };
            let maps = lengths.map_or(heads * shape.queries * shape.keys, |all| attention::maps_of_lengths(heads, all));
            let mut probabilities = vec![f32::NAN; maps];
            let [mut out, mut without] = [(); 2].map(|()| vec![f32::NAN; q.len()]);
            attention::forward(shape, &inputs, &mut out, Some(&mut probabilities));
            attention::forward(shape, &inputs, &mut without, None);
            assert_eq!(out, without, "kept probabilities change nothing");
            let [mut dq, mut dk, mut dv] = [q, k, v].map(|x| vec![f32::NAN; x.len()]);
            let mut dbiases = vec![0.0; biases.len()];
            let (count, relative) = (q.len() / a, None);
            let (dq_to, dk_to) = (MatMut::new(&mut dq, count, a), MatMut::new(&mut dk, count, kv));
            let (dv_to, distances) = (MatMut::new(&mut dv, count, kv), Some(&mut dbiases[..]));
            let to = Gradients { dq: dq_to, dk: dk_to, dv: dv_to, relative, distances };
            attention::backward(shape, &inputs, &probabilities, dout, to);
            [out, dq, dk, dv, dbiases]
        };
        let found = run(&whole, Some(&lengths), [&q, &k, &v, &dout], &by_distance);
        same_bits("ragged attention", || run(&whole, Some(&lengths), [&q, &k, &v, &dout], &by_distance).to_vec());
        let mut dbiases = vec![0.0; by_distance.len()];
        let (mut first, width) = (0, 2 * longest - 1);
        for len in lengths.into_iter().filter(|&len| len > 0) {
            let part = |x: &[f32], width: usize| x[first * width..(first + len) * width].to_vec();
            let middle = |h: usize| h * width + longest - len..h * width + longest + len - 1;
            let biases: Vec<f32> = (0..heads).flat_map(|h| by_distance[middle(h)].to_vec()).collect();
            let alone = Shape { batch: 1, queries: len, keys: len, ..whole };
            let inputs = [part(&q, a), part(&k, kv), part(&v, kv), part(&dout, a)];
            let expected = run(&alone, None, [&inputs[0], &inputs[1], &inputs[2], &inputs[3]], &biases);
            for (i, width) in [a, a, kv, kv].into_iter().enumerate() {
                assert_eq!(part(&found[i], width), expected[i], "array {i} of the sequence of {len}");
            }
            for (h, of_head) in expected[4].chunks_exact(2 * len - 1).enumerate() {
                dbiases[middle(h)].iter_mut().zip(of_head).for_each(|(sum, d)| *sum += d);
            }
            first += len;
        }
        close("biases by distance", &found[4], &dbiases, 1e-6);
    }
}
