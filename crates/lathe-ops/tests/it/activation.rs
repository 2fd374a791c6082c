//! The non-linearities, plain and gated.

use crate::{close, graph, numbers, same_bits};
use lathe_ops::activation::{self, Act};

const ACTS: [Act; 4] = [Act::Relu, Act::Gelu, Act::GeluTanh, Act::Silu];

/// y, y again and dh.
fn fused(act: Act, gated: bool, h: &[f32], dy: &[f32], width: usize) -> Vec<Vec<f32>> {
    let (mut y, mut again, mut dh) = (vec![0.0; dy.len()], dy.to_vec(), vec![0.0; h.len()]);
    activation::forward(act, gated, h, &mut y, width);
    activation::backward(act, gated, h, &mut again, &mut dh, width);
    vec![y, again, dh]
}

#[test]
fn fused_is_composed() {
    for act in ACTS {
        for gated in [false, true] {
            for rows in [1, 3, 65] {
                for width in [1, 3, 17, 65, 193] {
                    let wide = if gated { 2 * width } else { width };
                    let h: Vec<f32> = numbers(rows * wide, 1).iter().map(|x| 4.0 * x).collect();
                    let dy = numbers(rows * width, 2);
                    let found = fused(act, gated, &h, &dy, width);
                    let (y, [dh]) = graph([(&h, &[rows, wide])], &dy, |[h]| activation::composed(act, gated, h));
                    let what = format!("{act:?} {gated} {rows} {width}");
                    close(&what, &found[0], &y, 1e-5);
                    close(&what, &found[1], &y, 1e-5);
                    close(&what, &found[2], &dh, 2e-5);
                    if !gated {
                        let mut row = h.clone();
                        activation::row(act, &mut row);
                        assert_eq!(row, found[0], "{what}");
                    }
                }
            }
        }
    }
}

/// relu'(0) = 0 in both.
#[test]
fn slope_of_relu_at_zero() {
    let found = fused(Act::Relu, false, &[0.0, -0.0], &[1.0, 1.0], 2);
    let vars = candle_core::Var::new(&[0f32, -0.0], &candle_core::Device::Cpu).unwrap();
    let y = activation::composed(Act::Relu, false, &vars).unwrap();
    let gradient = y.backward().unwrap().get(&vars).unwrap().to_vec1::<f32>().unwrap();
    assert_eq!((found[2].as_slice(), gradient.as_slice()), ([0.0, 0.0].as_slice(), [0.0, 0.0].as_slice()));
}

#[test]
fn same_on_any_number_of_threads() {
    for act in ACTS {
        for gated in [false, true] {
            let (h, dy) = (numbers(203 * 193 * (1 + usize::from(gated)), 1), numbers(203 * 193, 2));
            same_bits("activation", || fused(act, gated, &h, &dy, 193));
        }
    }
}
