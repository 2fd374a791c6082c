//! Hidden states and attention maps against a teacher's.

use crate::{close, graph, numbers, same_bits};
use candle_core::{Device, Tensor};
use lathe_ops::loss;
use lathe_ops::loss::states::{self, Maps, Measure};

const SCALE: f32 = 0.37;

#[test]
fn hidden_states_are_composed() {
    for rows in [1, 3, 33] {
        for width in [1, 3, 16, 65] {
            for &(name, measure) in Measure::NAMES {
                let (x, wanted) = (numbers(rows * width, 1), numbers(rows * width, 2));
                let teacher = Tensor::from_slice(&wanted, (rows, width), &Device::Cpu).unwrap();
                let (expected, [gradient]) = graph([(&x, &[rows, width])], &vec![SCALE; rows], |[x]| {
                    states::composed_squared_error(x, &teacher.to_dtype(x.dtype())?, measure)
                });
                let (mut losses, mut dx) = (vec![0.0; rows], vec![0.0; x.len()]);
                let how = (measure, None);
                states::squared_error(&x, &wanted, width, how, SCALE, &mut losses, &mut dx);
                let what = format!("{rows} {width} {name}");
                close(&what, &losses, &expected, 1e-6);
                close(&what, &dx, &gradient, 1e-6);
                let real: Vec<bool> = (0..rows).map(|row| row % 2 == 1).collect();
                let how = (measure, Some(&real[..]));
                states::squared_error(&x, &wanted, width, how, SCALE, &mut losses, &mut dx);
                for (row, real) in real.iter().enumerate() {
                    let of_row = &dx[row * width..][..width];
                    assert_eq!(losses[row] != 0.0, *real, "{what}: padding counts nothing");
                    assert_eq!(of_row.iter().any(|dx| *dx != 0.0), *real, "{what}");
                }
            }
        }
    }
}

/// Probabilities of some scores, [B, H, T, S].
fn maps(shape: [usize; 4], seed: u64) -> Vec<f32> {
    let mut scores: Vec<f32> = numbers(shape.iter().product(), seed).iter().map(|x| 3.0 * x).collect();
    loss::log_softmax(&mut scores, shape[3]);
    scores.iter().map(|x| x.exp()).collect()
}

#[test]
fn attention_maps_are_composed() {
    for (heads, of_teacher) in [(1, 1), (3, 3), (2, 4), (4, 1)] {
        for (batch, queries, keys) in [(1, 1, 2), (2, 3, 5), (3, 17, 33)] {
            let shape = [batch, heads, queries, keys];
            let (q, p) = (maps(shape, 1), maps([batch, of_teacher, queries, keys], 2));
            let teacher = Tensor::from_slice(&p, (batch, of_teacher, queries, keys), &Device::Cpu).unwrap();
            let (expected, [gradient]) = graph([(&q, &shape)], &vec![SCALE; batch * queries], |[q]| {
                states::composed_attention_kl(&q.log()?, &teacher.to_dtype(q.dtype())?)
            });
            let mut losses = vec![0.0; batch * queries];
            let (student, teacher) = (Maps { probabilities: &q, heads }, Maps { probabilities: &p, heads: of_teacher });
            let dq = states::attention_kl(student, teacher, (batch, queries), None, SCALE, &mut losses);
            let what = format!("{heads} {of_teacher} {batch} {queries} {keys}");
            close(&what, &losses, &expected, 2e-6);
            close(&what, &dq, &gradient, 2e-6);
        }
    }
}

/// What a query does not see has no part in it, and equal maps are no loss.
#[test]
fn unseen_keys_and_equal_maps() {
    let p = [1.0, 0.0, 0.25, 0.75];
    let q = [1.0, 0.0, 0.5, 0.5];
    let of = |probabilities| Maps { probabilities, heads: 1 };
    let mut losses = [9.0; 2];
    let dq = states::attention_kl(of(&q), of(&p), (1, 2), None, 1.0, &mut losses);
    close("losses", &losses, &[0.0, 0.25 * 0.5f32.ln() + 0.75 * 1.5f32.ln()], 1e-6);
    close("gradient", &dq, &[-1.0, 0.0, -0.5, -1.5], 1e-6);
    states::attention_kl(of(&p), of(&p), (1, 2), None, 1.0, &mut losses);
    assert_eq!(losses, [0.0; 2]);
    let dq = states::attention_kl(of(&q), of(&p), (1, 2), Some(&[true, false]), 1.0, &mut losses);
    assert_eq!((losses[1], dq[2], dq[3]), (0.0, 0.0, 0.0), "padding counts nothing");
}

#[test]
fn same_on_any_number_of_threads() {
    let (q, p) = (maps([5, 4, 33, 65], 1), maps([5, 2, 33, 65], 2));
    same_bits("attention maps", || {
        let mut losses = vec![0.0; 5 * 33];
        let (student, teacher) = (Maps { probabilities: &q, heads: 4 }, Maps { probabilities: &p, heads: 2 });
        let dq = states::attention_kl(student, teacher, (5, 33), None, SCALE, &mut losses).to_vec();
        vec![losses, dq]
    });
}
