//! Rounding weights to codes: the scale from the smallest and the largest weight of a group, codes to the nearest. Scales
//! and offsets are rounded to what is stored first, so that codes are the best for those.

use super::Format;

/// Rounds a row: a code for each weight, a scale and an offset for each group.
pub(super) fn row(format: Format, w: &[f32], codes: &mut [u8], scales: &mut [f32], offsets: &mut [f32]) {
    let group = format.group().unwrap_or(w.len()).max(1);
    for (g, (w, codes)) in w.chunks(group).zip(codes.chunks_mut(group)).enumerate() {
        let (scale, offset) = if format.offset() { between(format, w) } else { around_zero(format, w) };
        (scales[g], offsets[g]) = (scale, offset);
        if scale == 0.0 {
            // Every code means the same: the one that does so at any scale.
            codes.fill(if format.offset() { 0 } else { format.middle() });
        } else {
            round(w, scale, offset, format.largest(), codes);
        }
    }
}

/// The scale at which the weight of the largest size is code 0, and the offset that makes 2^(bits - 1) the code of 0. There is
/// one more code below the middle than above it, so the scale has the sign that puts the largest there: against
/// scales that leave code 0 out, that makes the squared error of 4 bits a fifth smaller.
fn around_zero(format: Format, w: &[f32]) -> (f32, f32) {
    let most = w.iter().fold(0.0f32, |most, &x| if x.abs() > most.abs() || x.is_nan() { x } else { most });
    let middle = f32::from(format.middle());
    let scale = finite(format, w, -most / middle);
    (scale, -scale * middle)
}

/// The scale and the offset at which the smallest weight is code 0 and the largest the last code.
fn between(format: Format, w: &[f32]) -> (f32, f32) {
    let least = w.iter().copied().fold(f32::INFINITY, f32::min);
    let most = w.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let offset = format.stored(least);
    // From the offset as it is stored. Half of each first: the difference of two finite numbers may not be finite.
    let scale = (most * 0.5 - offset * 0.5) / (f32::from(format.largest()) * 0.5);
    (finite(format, w, scale), offset)
}

/// A scale as it is stored, or not a number where a weight is not finite: then so are products with it.
fn finite(format: Format, w: &[f32], scale: f32) -> f32 {
    if w.iter().all(|x| x.is_finite()) { format.stored(scale) } else { f32::NAN }
}

/// Codes, computed in f64, where the difference of two weights is finite.
fn round(w: &[f32], scale: f32, offset: f32, largest: u8, codes: &mut [u8]) {
    let (scale, offset) = (f64::from(scale), f64::from(offset));
    for (code, &w) in codes.iter_mut().zip(w) {
        let place = (f64::from(w) - offset) / scale;
        *code = place.round_ties_even().clamp(0.0, f64::from(largest)) as u8;
    }
}
