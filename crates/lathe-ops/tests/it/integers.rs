//! Integer weights: formats, parts of files, and products against plain loops over whole numbers.

use crate::{close, equal, numbers, same_bits};
use lathe_ops::gemm::{Mat, MatMut, Packed, Product, Rhs, gemm, gemm_beside, gemm_finish, gemm_grouped, gemm_serial};
use lathe_ops::integers::{Activations, FORMATS, Format, Integers, Part, product, products};

/// Every format there is.
fn formats() -> Vec<Format> {
    let mut formats = Vec::new();
    for bits in [4, 6, 8] {
        for group in [None, Some(16), Some(32), Some(64), Some(128)] {
            formats.extend([false, true].map(|offset| Format::new(bits, group, offset).unwrap()));
        }
    }
    formats
}

fn quantized(format: Format, outputs: usize, inputs: usize, seed: u64) -> Integers {
    Integers::quantize(format, Mat::new(&numbers(outputs * inputs, seed), outputs, inputs))
}

/// The codes of a matrix, read from the bits of its parts one by one.
fn codes(w: &Integers) -> Vec<u8> {
    let (format, parts) = (w.format(), w.to_parts());
    let (bits, bytes) = (format.bits() as usize, format.row_bytes(w.inputs()));
    let bit = |row: &[u8], i: usize| row[i / 8] >> (i % 8) & 1;
    let rows = parts.codes.chunks_exact(bytes);
    let code = |row: &[u8], i: usize| (0..bits).rev().fold(0, |code, b| code << 1 | bit(row, i * bits + b));
    rows.flat_map(|row| (0..w.inputs()).map(|i| code(row, i)).collect::<Vec<_>>()).collect()
}

/// Activations of a group as whole numbers, and what each is worth.
fn rounded(x: &[f32]) -> (Vec<i32>, f32) {
    let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    if most == 0.0 {
        return (vec![0; x.len()], 0.0);
    }
    (x.iter().map(|x| (x * (127.0 / most)).round_ties_even() as i32).collect(), most / 127.0)
}

/// The product with rounded activations, as it is defined: sums of whole numbers for each group, in i64.
fn expected(a: Mat<'_>, w: &Integers) -> Vec<f32> {
    let (format, outputs, inputs) = (w.format(), w.outputs(), w.inputs());
    let (codes, scales, offsets) = (codes(w), w.scales(), w.offsets());
    let groups = format.groups(inputs);
    let middle = if format.offset() { 0 } else { 1 << (format.bits() - 1) };
    let mut c = Vec::new();
    for r in 0..a.rows() {
        let x: Vec<f32> = (0..inputs).map(|i| a.at(r, i)).collect();
        let sides: Vec<_> = x.chunks(format.group().unwrap_or(1 << 16)).map(rounded).collect();
        for o in 0..outputs {
            let mut result = 0.0f32;
            let mut first = 0;
            for (g, (x, worth)) in sides.iter().enumerate() {
                let g = if groups == 1 { 0 } else { g };
                let codes = &codes[o * inputs + first..][..x.len()];
                let sum: i64 = codes.iter().zip(x).map(|(&u, &x)| (i64::from(u) - middle) * i64::from(x)).sum();
                result = (sum as f32 * scales[o * groups + g]).mul_add(*worth, result);
                if format.offset() {
                    let sum = x.iter().sum::<i32>() as f32 * worth;
                    result = offsets[o * groups + g].mul_add(sum, result);
                }
                first += x.len();
            }
            c.push(result);
        }
    }
    c
}

/// Columns from `first` on, so many, of rows of `width`.
fn columns(c: &[f32], width: usize, first: usize, count: usize) -> Vec<f32> {
    c.chunks_exact(width).flat_map(|row| row[first..first + count].to_vec()).collect()
}

#[test]
fn formats_have_names() {
    for format in formats() {
        assert_eq!(Format::parse(&format.key()), Ok(format));
        assert_eq!(format.to_string(), format.key());
    }
    let keys: Vec<String> = FORMATS.iter().map(Format::key).collect();
    assert_eq!(keys, ["int8_g32", "int8", "int6_g64", "int4_g32_offset", "int4_g32", "int4_g64", "int4_g128"]);
    for wrong in
        ["", "int", "int5", "int8_g33", "int8_g", "int8_offset_g32", "int4_g32_g32", "int4_", "int4_g32_", "f16"]
    {
        assert!(Format::parse(wrong).unwrap_err().contains(&format!("found \"{wrong}\"; expected int4")), "{wrong}");
    }
    assert!(Format::new(5, None, false).unwrap_err().contains("5 bits; expected 4, 6 or 8"));
    assert!(Format::new(4, Some(0), false).unwrap_err().contains("groups of 0; expected 16"));
}

#[test]
fn a_file_comes_back() {
    for format in formats() {
        for (outputs, inputs) in [(1, 1), (3, 5), (16, 16), (17, 33), (40, 130), (5, 131)] {
            let w = quantized(format, outputs, inputs, 1);
            let parts = w.to_parts();
            assert_eq!(parts.codes.len() + parts.scales.len() + parts.offsets.len(), format.bytes(outputs, inputs));
            let again =
                Integers::from_parts(format, outputs, inputs, &parts.codes, &parts.scales, &parts.offsets).unwrap();
            assert_eq!(again.to_parts(), parts, "{format} {outputs} {inputs}");
            let from_codes = Integers::from_codes(format, outputs, inputs, &codes(&w), &w.scales(), &w.offsets());
            assert_eq!(from_codes.to_parts(), parts, "{format} {outputs} {inputs}");
            assert_eq!(w.clone().read(), again.read());
            assert!(w.bytes() >= parts.codes.len() && (again.outputs(), again.inputs()) == (outputs, inputs));
        }
    }
}

/// A file's bytes mean what the format says, worked out by hand.
#[test]
fn parts_of_a_file() {
    let read = |key: &str, inputs: usize, codes: &[u8], scales: &[u8], offsets: &[u8]| {
        let w = Integers::from_parts(Format::parse(key).unwrap(), 1, inputs, codes, scales, offsets).unwrap();
        let mut row = vec![f32::NAN; inputs];
        w.row(0, &mut row);
        assert_eq!(w.read(), row);
        row
    };
    let (half, one_f16) = (0.5f32.to_le_bytes(), 0x3c00u16.to_le_bytes());
    assert_eq!(read("int8", 3, &[0, 128, 255], &half, &[]), [-64.0, 0.0, 63.5]);
    assert_eq!(read("int8_offset", 3, &[0, 128, 255], &half, &(-1.0f32).to_le_bytes()), [-1.0, 63.0, 126.5]);
    // Two codes a byte, the first in the low half.
    assert_eq!(read("int4_g16", 3, &[0x1f, 0x08], &one_f16, &[]), [7.0, -7.0, 0.0]);
    // Four codes in three bytes: 63, 0, 33, 2 from the lowest bits on, and a fifth in a byte of its own.
    let stream = (63u32 | 33 << 12 | 2 << 18).to_le_bytes();
    assert_eq!(
        read("int6_g16", 5, &[stream[0], stream[1], stream[2], 32], &one_f16, &[]),
        [31.0, -32.0, 1.0, -30.0, 0.0]
    );
    // A short last group, of scale 2 and offset 1.
    let scales = [0x00, 0x3c, 0x00, 0x40];
    let found = read("int4_g16_offset", 17, &[0, 0, 0, 0, 0, 0, 0, 0, 3], &scales, &[0, 0, 0x00, 0x3c]);
    assert_eq!((found[0], found[16]), (0.0, 7.0));
}

#[test]
fn wrong_parts_are_refused() {
    let format = Format::parse("int4_g32_offset").unwrap();
    let parts = quantized(format, 3, 40, 1).to_parts();
    let open = |outputs, inputs, codes: &[u8], scales: &[u8], offsets: &[u8]| {
        Integers::from_parts(format, outputs, inputs, codes, scales, offsets).err().unwrap_or_default()
    };
    let (codes, scales, offsets) = (&parts.codes[..], &parts.scales[..], &parts.offsets[..]);
    assert_eq!(open(3, 40, codes, scales, offsets), "");
    assert!(open(3, 40, &codes[1..], scales, offsets).contains("59 bytes of codes for 3 by 40; expected 60"));
    assert!(open(3, 40, codes, &scales[2..], offsets).contains("10 bytes of scales for 3 by 40; expected 12"));
    assert!(open(3, 40, codes, scales, &[]).contains("0 bytes of offsets for 3 by 40; expected 12"));
    for (outputs, inputs) in [(0, 40), (3, 0), (0, 0)] {
        assert!(open(outputs, inputs, &[], &[], &[]).contains("at least 1 by 1"));
    }
    for (outputs, inputs) in [(usize::MAX, 40), (3, usize::MAX), (usize::MAX, usize::MAX), (1 << 60, 1), (1, 1 << 60)] {
        assert!(!open(outputs, inputs, codes, scales, offsets).is_empty());
        assert!(!open(outputs, inputs, &[], &[], &[]).is_empty());
    }
    let mut wrong = scales.to_vec();
    wrong[6..8].copy_from_slice(&0x7c00u16.to_le_bytes());
    assert!(open(3, 40, codes, &wrong, offsets).contains("the scale of row 1, group 1 is inf; expected finite"));
    wrong[6..8].copy_from_slice(&0x7e00u16.to_le_bytes());
    assert!(open(3, 40, codes, scales, &wrong).contains("the offset of row 1, group 1 is NaN; expected finite"));
    let without = Format::parse("int4_g32").unwrap();
    let error = Integers::from_parts(without, 3, 40, codes, scales, offsets).err().unwrap();
    assert!(error.contains("12 bytes of offsets for 3 by 40; expected 0"), "{error}");
}

/// Weights come back to within half of a step, but for one of the opposite sign that is as large as the largest,
/// for which there is no code: to within one step.
#[test]
fn rounding_to_the_nearest() {
    for format in formats() {
        for (outputs, inputs) in [(3, 5), (17, 130)] {
            let w = numbers(outputs * inputs, 7);
            let transposed: Vec<f32> = (0..w.len()).map(|i| w[i % outputs * inputs + i / outputs]).collect();
            let found = Integers::quantize(format, Mat::new(&w, outputs, inputs));
            let turned = Integers::quantize(format, Mat::new(&transposed, inputs, outputs).t());
            assert_eq!(found.to_parts(), turned.to_parts(), "any strides");
            let (scales, read, groups) = (found.scales(), found.read(), format.groups(inputs));
            let (mut worst, mut square) = (0.0f32, 0.0);
            for (i, (&w, &found)) in w.iter().zip(&read).enumerate() {
                let scale = scales[i / inputs * groups + i % inputs / format.group().unwrap_or(inputs)];
                let steps = (w - found).abs() / scale.abs();
                worst = worst.max(steps);
                square += steps * steps / read.len() as f32;
            }
            let most = if format.offset() { 0.51 } else { 1.01 };
            assert!(worst <= most && square < 0.12, "{format} {outputs} {inputs}: {worst} {square}");
        }
    }
}

#[test]
fn extreme_weights() {
    for format in formats() {
        let quantize = |w: &[f32]| Integers::quantize(format, Mat::new(w, 1, w.len()));
        assert_eq!(quantize(&[0.0; 20]).read(), [0.0; 20], "{format}");
        for x in [1e-30f32, 1e30, 1e38, -1e38, 1e-45] {
            let read = quantize(&[x, 0.0, x, -x / 2.0]).read();
            assert!(read.iter().all(|w| w.is_finite()), "{format} {x}: {read:?}");
            if format.group().is_none() && x.abs() > 1e-35 {
                close("large", &[read[0] / x, read[3] / x], &[1.0, -0.5], 0.07);
            }
        }
        for x in [f32::NAN, f32::INFINITY, -f32::INFINITY] {
            assert!(quantize(&[1.0, x]).scales()[0].is_nan(), "{format} {x}");
        }
        assert!(quantize(&[]).read().is_empty());
    }
}

#[test]
fn scales_can_be_tuned() {
    for format in formats() {
        let mut w = quantized(format, 5, 70, 1);
        let (scales, before) = (w.scales(), w.read());
        w.set_scales(&scales.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
        assert_eq!(w.scales(), scales.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
        if format.offset() {
            let offsets = w.offsets();
            w.set_offsets(&offsets.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
            assert_eq!(w.offsets(), offsets.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
        }
        assert_eq!(w.read(), before.iter().map(|x| 2.0 * x).collect::<Vec<_>>(), "{format}");
    }
}

/// Products are those of plain loops, bit for bit, whatever the shape: full and short panels and groups, few rows and
/// many, parts of the outputs, onto what is there, with something done to each part.
#[test]
fn products_are_exact() {
    for format in formats() {
        for (m, n, k) in [
            (1, 1, 1),
            (1, 40, 70),
            (2, 17, 16),
            (3, 33, 129),
            (5, 16, 64),
            (8, 50, 100),
            (13, 37, 260),
            (40, 35, 67),
            (71, 97, 130), // threads share its rows, too
        ] {
            let w = quantized(format, n, k, 1);
            let x = numbers(m * k, 2);
            let x = Mat::new(&x, m, k);
            let all = expected(x, &w);
            for (first, outputs) in [(0, n), (n / 3, n - n / 3), (n - 1, 1), (n / 2, n / 4)] {
                let what = format!("{format} {m} {n} {k} from {first}, {outputs}");
                let right = Rhs::Integers { w: &w, first, outputs, activations: Activations::Int8 };
                let plain = columns(&all, n, first, outputs);
                let [mut c, mut serial] = [vec![f32::NAN; m * outputs], vec![f32::NAN; m * outputs]];
                gemm(MatMut::new(&mut c, m, outputs), x, right, false);
                equal(&what, &c, &plain);
                gemm_serial(MatMut::new(&mut serial, m, outputs), x, right, false);
                equal(&format!("{what} on one thread"), &serial, &plain);
                let start = numbers(m * outputs, 3);
                let mut c = start.clone();
                gemm_finish(MatMut::new(&mut c, m, outputs), x, right, true, &|row, col, values| {
                    values.iter_mut().enumerate().for_each(|(i, v)| *v += (row * outputs + col + i) as f32);
                });
                let sums = plain.iter().zip(&start).enumerate().map(|(i, (c, start))| c + start + i as f32);
                equal(&format!("{what} onto what is there"), &c, &sums.collect::<Vec<_>>());
            }
        }
    }
}

/// Where scales are powers of two and activations whole numbers, products are exactly those of whole numbers.
#[test]
fn whole_numbers_stay_whole() {
    for format in formats() {
        let (m, n, k) = (7, 21, 200);
        let groups = format.groups(k);
        let codes: Vec<u8> = (0..n * k).map(|i| (i * 7919 % 251) as u8 & format.largest()).collect();
        let (scales, offsets) = (vec![0.5; n * groups], vec![3.0; if format.offset() { n * groups } else { 0 }]);
        let w = Integers::from_codes(format, n, k, &codes, &scales, &offsets);
        let x: Vec<f32> = (0..m * k).map(|i| if i % 8 == 0 { 127.0 } else { (i * 31 % 201) as f32 - 100.0 }).collect();
        let mut c = vec![0.0; m * n];
        product(MatMut::new(&mut c, m, n), Mat::new(&x, m, k), &w, 0, Activations::Int8, false, None, 2);
        for (i, &c) in c.iter().enumerate() {
            let (x, u) = (&x[i / n * k..][..k], &codes[i % n * k..][..k]);
            let offset = if format.offset() { 3.0 } else { -0.5 * f64::from(format.middle()) };
            let sum: f64 = x.iter().zip(u).map(|(&x, &u)| f64::from(x) * (0.5 * f64::from(u) + offset)).sum();
            assert_eq!(f64::from(c), sum, "{format}");
        }
    }
}

/// Rows so long that sums of one scale go beyond 32 bits.
#[test]
fn sums_do_not_overflow() {
    for key in ["int8", "int8_offset", "int4"] {
        let format = Format::parse(key).unwrap();
        let k = 140_000;
        let codes = vec![format.largest(); 3 * k];
        let offsets: &[f32] = if format.offset() { &[1.0; 3] } else { &[] };
        let w = Integers::from_codes(format, 3, k, &codes, &[1.0; 3], offsets);
        for sign in [1.0, -1.0] {
            let x = vec![sign * 127.0; 2 * k];
            let mut c = vec![0.0; 6];
            gemm(MatMut::new(&mut c, 2, 3), Mat::new(&x, 2, k), right(&w, Activations::Int8), false);
            let weight = if format.offset() { 256.0 } else { f32::from(format.largest() - format.middle()) };
            close(key, &c, &[sign * weight * 127.0 * k as f32; 6], 1e-6);
        }
    }
}

fn right(w: &Integers, activations: Activations) -> Rhs<'_> {
    Rhs::Integers { w, first: 0, outputs: w.outputs(), activations }
}

/// Activations that stay as they are: products of f32 with the weights as they read.
#[test]
fn weights_alone() {
    for format in formats() {
        for (m, n, k) in
            [(1, 40, 70), (3, 17, 16), (4, 5, 129), (9, 50, 100), (40, 35, 67), (70, 130, 600), (620, 20, 90)]
        {
            let w = quantized(format, n, k, 1);
            let (x, read) = (numbers(m * k, 2), w.read());
            let x = Mat::new(&x, m, k);
            let mut plain = vec![0.0; m * n];
            gemm(MatMut::new(&mut plain, m, n), x, &Packed::new(Mat::new(&read, n, k).t()), false);
            for (first, outputs) in [(0, n), (n / 3, n / 2)] {
                let mut c = vec![f32::NAN; m * outputs];
                let part = Rhs::Integers { w: &w, first, outputs, activations: Activations::Float };
                gemm(MatMut::new(&mut c, m, outputs), x, part, false);
                close(&format!("{format} {m} {n} {k}"), &c, &columns(&plain, n, first, outputs), 2e-6);
                if m > 8 {
                    equal(&format!("{format} {m} {n} {k}, as f32"), &c, &columns(&plain, n, first, outputs));
                }
                let mut twice = c.clone();
                gemm(MatMut::new(&mut twice, m, outputs), x, part, true);
                close(&format!("{format} twice"), &twice, &c.iter().map(|c| c + c).collect::<Vec<_>>(), 2e-6);
            }
        }
    }
}

/// Groups of products, some with integer weights, some of no rows, and arrays beside them.
#[test]
fn every_kind_of_product_takes_them() {
    let format = Format::parse("int4_g32_offset").unwrap();
    let sizes = [(17, 65, 33), (0, 5, 3), (5, 1, 3), (1, 40, 64), (29, 40, 70)];
    for activations in [Activations::Int8, Activations::Float] {
        let inputs = sizes.map(|(m, n, k)| (numbers(m * k, 1), quantized(format, n, k, 2), numbers(k * n, 3)));
        let mut expected = Vec::new();
        for ((m, n, k), (x, w, plain)) in sizes.iter().zip(&inputs).map(|(&size, inputs)| (size, inputs)) {
            let (mut c, mut d) = (vec![1.0; m * n], vec![1.0; m * n]);
            gemm(MatMut::new(&mut c, m, n), Mat::new(x, m, k), right(w, activations), true);
            gemm(MatMut::new(&mut d, m, n), Mat::new(x, m, k), Mat::new(plain, k, n), true);
            expected.extend([c, d]);
        }
        let mut found: Vec<Vec<f32>> = expected.iter().map(|c| vec![1.0; c.len()]).collect();
        let mut products = Vec::new();
        for (i, c) in found.iter_mut().enumerate() {
            let ((m, n, k), (x, w, plain)) = (sizes[i / 2], &inputs[i / 2]);
            let b = if i % 2 == 0 { right(w, activations) } else { Mat::new(plain, k, n).into() };
            products.push(Product { c: MatMut::new(c, m, n), a: Mat::new(x, m, k), b, accumulate: true });
        }
        let finish = |product: usize, row: usize, col: usize, values: &mut [f32]| {
            let first = row * sizes[product / 2].1 + col;
            values.iter_mut().enumerate().for_each(|(i, v)| *v += (first + i) as f32);
        };
        gemm_grouped(products, Some(&finish));
        for (c, expected) in found.iter().zip(&expected) {
            assert!(c.iter().zip(expected).enumerate().all(|(i, (c, e))| *c == e + i as f32), "{activations:?}");
        }

        let ((m, n, k), (x, w, _)) = (sizes[0], &inputs[0]);
        let (mut c, mut beside) = (vec![0.0; m * n], numbers(m * n, 4));
        let product = |c: &mut [f32]| gemm(MatMut::new(c, m, n), Mat::new(x, m, k), right(w, activations), false);
        product(&mut c);
        let sums: Vec<f32> = c.iter().zip(&beside).map(|(c, beside)| c + beside).collect();
        gemm_beside(
            MatMut::new(&mut c, m, n),
            Mat::new(x, m, k),
            right(w, activations),
            &mut beside,
            &|_, c, beside| {
                c.iter().zip(beside).for_each(|(c, beside)| *beside += c);
            },
        );
        assert_eq!(beside, sums);
    }
}

/// A left-hand side of any strides, rows of zeros, and numbers that are none.
#[test]
fn any_activations() {
    for key in ["int8", "int4_g32"] {
        let w = quantized(Format::parse(key).unwrap(), 20, 70, 1);
        let x = numbers(70 * 3, 2);
        let turned: Vec<f32> = (0..x.len()).map(|i| x[i % 3 * 70 + i / 3]).collect();
        for activations in [Activations::Int8, Activations::Float] {
            let run = |a: Mat<'_>| {
                let mut c = vec![f32::NAN; 60];
                gemm(MatMut::new(&mut c, 3, 20), a, right(&w, activations), false);
                c
            };
            let plain = run(Mat::new(&x, 3, 70));
            assert_eq!(run(Mat::new(&turned, 70, 3).t()), plain);
            let mut odd = x.clone();
            odd[..70].fill(0.0);
            odd[70 + 13] = f32::NAN;
            let found = run(Mat::new(&odd, 3, 70));
            assert_eq!(found[..20], [0.0; 20]);
            assert!(found[20..40].iter().all(|c| c.is_nan()));
            assert_eq!(found[40..], plain[40..]);
            odd[70..140].fill(1e-42);
            odd[140] = f32::INFINITY;
            let found = run(Mat::new(&odd, 3, 70));
            assert!(found[20..40].iter().all(|c| c.abs() < 1e-38));
            assert!(found[40..].iter().all(|c| !c.is_finite()));
        }
    }
}

/// Several products with the same activations have the bits of each by itself.
#[test]
fn products_together_are_products_apart() {
    for format in formats() {
        for (m, inputs) in [(1, 100), (7, 33), (20, 130), (75, 40)] {
            let a = numbers(m * inputs, 4);
            let a = Mat::new(&a, m, inputs);
            let weights = [(40, 1), (17, 2), (300, 3)].map(|(outputs, seed)| quantized(format, outputs, inputs, seed));
            for activations in [Activations::Int8, Activations::Float] {
                let firsts = [0, 3, 16];
                let mut expected = weights.each_ref().map(|w| vec![0.0; m * (w.outputs() - 16)]);
                for ((w, first), c) in weights.iter().zip(firsts).zip(&mut expected) {
                    let width = c.len() / m;
                    product(MatMut::new(c, m, width), a, w, first, activations, false, None, 2);
                    c.iter_mut().enumerate().for_each(|(i, c)| *c += (i % width) as f32);
                }
                let mut found = expected.each_ref().map(|c| vec![0.0; c.len()]);
                let parts = weights.iter().zip(firsts).zip(&mut found);
                let parts = parts.map(|((w, first), c)| {
                    let width = c.len() / m;
                    Part { c: MatMut::new(c, m, width), w, first }
                });
                let finish = |_: usize, _: usize, col: usize, c: &mut [f32]| {
                    c.iter_mut().enumerate().for_each(|(i, c)| *c += (col + i) as f32);
                };
                products(parts.collect(), a, activations, Some(&finish));
                assert!(found == expected, "{format}, {m} by {inputs}, {activations:?}");
            }
        }
    }
}

#[test]
fn same_on_any_number_of_threads() {
    for key in ["int8", "int6_g64", "int4_g32"] {
        for (m, n, k) in [(1, 1500, 700), (150, 400, 300)] {
            let (w, x) = (numbers(n * k, 1), numbers(m * k, 2));
            for activations in [Activations::Int8, Activations::Float] {
                same_bits(key, || {
                    let w = Integers::quantize(Format::parse(key).unwrap(), Mat::new(&w, n, k));
                    let mut c = vec![0.0; m * n];
                    gemm(MatMut::new(&mut c, m, n), Mat::new(&x, m, k), right(&w, activations), false);
                    vec![c, w.read()]
                });
            }
        }
    }
}

/// All of the above with every cap of instructions.
#[test]
fn on_every_level() {
    crate::on_every_level("integers::", "integers::products_are_exact");
}
