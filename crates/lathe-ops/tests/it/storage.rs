//! Storages of weights.

use crate::{numbers, same_bits};
use candle_core::{DType, Device, Tensor};
use lathe_ops::storage::{self, Bf16, F16, F32, STORAGES, Storage};

fn decoded(storage: &dyn Storage, bytes: &[u8], values: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; values];
    storage.decode(bytes, &mut out);
    out
}

/// candle's conversion to a type and back.
fn rounded(values: &[f32], dtype: DType) -> Vec<f32> {
    let tensor = Tensor::new(values, &Device::Cpu).unwrap().to_dtype(dtype).unwrap();
    tensor.to_dtype(DType::F32).unwrap().to_vec1().unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn found_by_their_keys() {
    assert_eq!(STORAGES.iter().map(|s| s.key()).collect::<Vec<_>>(), ["f32", "bf16", "f16"]);
    for storage in STORAGES {
        assert_eq!(storage::find(storage.key()).unwrap().dtype(), storage.dtype());
        assert_eq!(storage.dtype(), storage.key().to_uppercase());
        for values in [0, 1, 3, 70_001] {
            assert_eq!(storage.encode(&numbers(values, 1)).len(), storage.bytes(values));
        }
    }
    assert!(storage::find("f64").is_none());
}

/// All 65,536 patterns: what they mean, and that they come back.
#[test]
fn every_pattern_of_16_bits() {
    let patterns: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for (storage, exponent_bits, mantissa_bits) in [(&Bf16 as &dyn Storage, 8u32, 7u32), (&F16, 5, 10)] {
        let values = decoded(storage, &patterns, 1 << 16);
        let again = storage.encode(&values);
        for (i, &value) in values.iter().enumerate() {
            let mantissa = (i & ((1 << mantissa_bits) - 1)) as f64 / f64::from(1 << mantissa_bits);
            let exponent = (i >> mantissa_bits & ((1 << exponent_bits) - 1)) as i32;
            let bias = (1 << (exponent_bits - 1)) - 1;
            let sign = if i >> 15 == 1 { -1.0 } else { 1.0 };
            let found = u16::from_le_bytes([again[2 * i], again[2 * i + 1]]);
            if exponent == (1 << exponent_bits) - 1 && mantissa > 0.0 {
                let exponent_of_found = found >> mantissa_bits & ((1 << exponent_bits) - 1);
                assert!(value.is_nan() && i32::from(exponent_of_found) == exponent, "{i:x} {found:x}");
                assert!(found & ((1 << mantissa_bits) - 1) != 0, "{i:x} {found:x}");
                continue;
            }
            let expected = match exponent {
                0 => sign * mantissa * f64::from(1 - bias).exp2(),
                e if e == (1 << exponent_bits) - 1 => sign * f64::INFINITY,
                e => sign * (1.0 + mantissa) * f64::from(e - bias).exp2(),
            };
            assert_eq!(f64::from(value).to_bits(), expected.to_bits(), "{} {i:x}", storage.key());
            assert_eq!(usize::from(found), i, "{}", storage.key());
        }
    }
}

/// Halfway between neighbours goes to the even one, a little beside it to the nearer one.
#[test]
fn rounds_to_nearest_even() {
    let patterns: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for (storage, last) in [(&Bf16 as &dyn Storage, 0x7f7f), (&F16, 0x7bffu16)] {
        let values = decoded(storage, &patterns, 1 << 16);
        for sign in [0, 0x8000u16] {
            for low in 0..last {
                let (low, high) = (sign | low, sign | (low + 1));
                let middle = (f64::from(values[usize::from(low)]) + f64::from(values[usize::from(high)])) / 2.0;
                let middle = middle as f32; // exact
                let beside = |step: i32| f32::from_bits(middle.to_bits().wrapping_add_signed(step));
                let bytes = storage.encode(&[middle, beside(-1), beside(1)]);
                let found: Vec<u16> = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
                let even = if low & 1 == 0 { low } else { high };
                assert_eq!(found, [even, low, high], "{} {middle}", storage.key());
            }
        }
    }
}

#[test]
fn extremes() {
    let inf = f32::INFINITY;
    let special = [inf, -inf, 0.0, -0.0, f32::MAX, f32::MIN, 65504.0, 65519.9, 65520.0, -1e5];
    let in_f16 = [inf, -inf, 0.0, -0.0, inf, -inf, 65504.0, 65504.0, inf, -inf];
    assert_eq!(bits(&decoded(&F32, &F32.encode(&special), 10)), bits(&special));
    assert_eq!(bits(&decoded(&F16, &F16.encode(&special), 10)), bits(&in_f16));
    let most_bf16 = f32::from_bits(0x7f7f_0000);
    assert_eq!(decoded(&Bf16, &Bf16.encode(&[f32::MAX, most_bf16]), 2), [inf, most_bf16]);
    // Not a number stays so, whatever its bits.
    for pattern in [0x7f80_0001, 0x7f80_1fff, 0x7fff_ffff, 0xff80_0001, 0xffff_ffffu32] {
        let nan = f32::from_bits(pattern);
        assert_eq!(F32.encode(&[nan]), pattern.to_le_bytes());
        for storage in STORAGES {
            assert!(decoded(*storage, &storage.encode(&[nan]), 1)[0].is_nan(), "{} {pattern:x}", storage.key());
        }
    }
}

/// Numbers of every size against candle's conversions.
#[test]
fn rounds_as_candle_does() {
    let scales = numbers(70_001, 2);
    let values: Vec<f32> = numbers(70_001, 1).iter().zip(&scales).map(|(x, s)| x * (s * 40.0).exp2()).collect();
    for (storage, dtype) in [(&F32 as &dyn Storage, DType::F32), (&Bf16, DType::BF16), (&F16, DType::F16)] {
        let found = decoded(storage, &storage.encode(&values), values.len());
        assert_eq!(bits(&found), bits(&rounded(&values, dtype)), "{}", storage.key());
    }
}

#[test]
fn same_on_any_number_of_threads() {
    let values = numbers(100_003, 1);
    for storage in STORAGES {
        same_bits(storage.key(), || vec![decoded(*storage, &storage.encode(&values), values.len())]);
    }
}
