//! Products of matrices, of floats and of integers, and the rounding before the latter.

use super::array::{Places, common};
use super::{Array, Call, Data, Reason, Rounding};

/// The largest code of activations that are rounded with a sign.
const LARGEST: f32 = 127.0;

impl Call<'_> {
    pub(super) fn matmul(&self) -> Result<Array, Reason> {
        let (a, b) = (self.input(0)?, self.input(1)?);
        product(&a.shape, self.floats(0)?, &b.shape, self.floats(1)?)
    }

    /// (a - its zero point) times its scale, times codes with a scale for each column.
    pub(super) fn matmul_integer_scaled(&self) -> Result<Array, Reason> {
        let zero = self.optional(4).map_or(0.0, |zero| zero.to_floats().first().copied().unwrap_or_default());
        let scale = *self.floats(2)?.first().ok_or("no scale")?;
        let a = self.input(0)?.to_floats().into_iter().map(|x| (x - zero) * scale).collect();
        self.by_codes(Array::of_floats(&self.input(0)?.shape, a), self.floats(3)?, self.optional(6))
    }

    /// a rounded to bytes by one scale, times codes with a scale for each column.
    pub(super) fn dynamic_matmul(&self) -> Result<Array, Reason> {
        let mut a = self.input(0)?.clone();
        if self.rounding == Rounding::Nearest {
            let (codes, scale, zero) = Self::rounded_dynamically(self.floats(0)?);
            a = Array::of_floats(
                &a.shape,
                codes.map(|code| (code.round_ties_even().clamp(-zero, 255.0 - zero)) * scale).collect(),
            );
        }
        self.by_codes(a, self.floats(2)?, self.optional(4))
    }

    /// Floats times codes with a scale for each column, and a bias.
    fn by_codes(&self, a: Array, scales: &[f32], bias: Option<&Array>) -> Result<Array, Reason> {
        let b = self.input(1)?;
        let mut y = product(&a.shape, a.floats().unwrap_or_default(), &b.shape, &b.to_floats())?;
        let width = y.shape.last().copied().unwrap_or_default().max(1);
        let bias = bias.map(|bias| bias.floats().unwrap_or_default());
        if scales.len() != width || bias.is_some_and(|bias| bias.len() != width) {
            return Err(format!("{} scales for {width} columns", scales.len()));
        }
        if let Data::F32(values) = &mut y.data {
            for (i, y) in values.iter_mut().enumerate() {
                *y = *y * scales[i % width] + bias.map_or(0.0, |bias| bias[i % width]);
            }
        }
        Ok(y)
    }

    /// a times weights [N, K] of few bits, in blocks of K that have a scale each. With accuracy level 4 each block of a is
    /// rounded to 8 bits, too.
    pub(super) fn matmul_bits(&self) -> Result<Array, Reason> {
        let attribute = |name: &str| usize::try_from(self.int(name, 0)).unwrap_or_default();
        let (k, n, bits, block) = (attribute("K"), attribute("N"), attribute("bits"), attribute("block_size"));
        let (a, scales) = (self.input(0)?, self.floats(2)?);
        let Data::U8(codes) = &self.input(1)?.data else { return Err("codes that are no bytes".into()) };
        let blocks = k.div_ceil(block.max(1));
        let fits = matches!(bits, 4 | 8) && block > 0 && codes.len() == n * blocks * block * bits / 8;
        if !fits || scales.len() != n * blocks || a.shape.last() != Some(&k) {
            return Err(format!("{k} by {n} of {bits} bits in blocks of {block}"));
        }
        let zero = (1 << (bits - 1)) as f32;
        let mut weights = vec![0.0; k * n]; // [K, N]
        for (row, codes) in codes.chunks_exact(blocks * block * bits / 8).enumerate() {
            for i in 0..k {
                let code = if bits == 8 { codes[i] } else { codes[i / 2] >> (i % 2 * 4) & 15 };
                weights[i * n + row] = (f32::from(code) - zero) * scales[row * blocks + i / block];
            }
        }
        let mut values = self.floats(0)?.to_vec();
        if self.rounding == Rounding::Nearest && self.int("accuracy_level", 0) == 4 {
            values.chunks_mut(k).flat_map(|row| row.chunks_mut(block)).for_each(round);
        }
        product(&a.shape, &values, &[k, n], &weights)
    }

    /// x / scale + zero point, rounded to bytes; a scale for each row, or one for all.
    pub(super) fn quantize(&self) -> Result<Array, Reason> {
        let (array, scales) = (self.input(0)?, self.floats(1)?);
        let zeros = self.input(2)?.to_floats();
        let inner: usize = match array.shape.first() {
            Some(&rows) if scales.len() == rows && self.int("axis", 1) == 0 => array.shape[1..].iter().product(),
            _ if scales.len() == 1 => array.data.len(),
            _ => return Err(format!("{} scales for {:?}", scales.len(), array.shape)),
        };
        if zeros.len() != scales.len() {
            return Err(format!("{} zero points for {} scales", zeros.len(), scales.len()));
        }
        let rows = self.floats(0)?.chunks(inner.max(1)).zip(scales.iter().zip(&zeros));
        let values = rows.flat_map(|(row, (scale, zero))| row.iter().map(move |x| (x / scale, *zero)));
        Ok(self.bytes_of(&array.shape, values))
    }

    /// Numbers by a scale and a zero point that follow from the smallest and the largest of all: the numbers over the
    /// scale, scale and zero point.
    fn rounded_dynamically<'a>(values: &'a [f32]) -> (impl Iterator<Item = f32> + use<'a>, f32, f32) {
        let least = values.iter().copied().fold(0.0, f32::min);
        let most = values.iter().copied().fold(0.0, f32::max);
        let scale = if most > least { (most - least) / 255.0 } else { 1.0 };
        let zero = (-least / scale).round_ties_even().clamp(0.0, 255.0);
        (values.iter().map(move |x| x / scale), scale, zero)
    }

    /// Bytes of scaled numbers and their zero points, or these numbers where nothing is rounded.
    fn bytes_of(&self, shape: &[usize], values: impl Iterator<Item = (f32, f32)>) -> Array {
        let data = match self.rounding {
            Rounding::Nearest => {
                Data::U8(values.map(|(x, zero)| (x.round_ties_even() + zero).clamp(0.0, 255.0) as u8).collect())
            }
            Rounding::None => Data::F32(values.map(|(x, zero)| x + zero).collect()),
        };
        Array::new(shape, data)
    }
}

/// Rounds numbers to 8 bits with one scale.
fn round(block: &mut [f32]) {
    let scale = block.iter().fold(0.0f32, |most, x| most.max(x.abs())) / LARGEST;
    if scale > 0.0 {
        block.iter_mut().for_each(|x| *x = (*x / scale).round_ties_even() * scale);
    }
}

/// Products of the matrices of the last two axes, of all others stretched to a common shape.
fn product(a_shape: &[usize], a: &[f32], b_shape: &[usize], b: &[f32]) -> Result<Array, Reason> {
    let wrong = || format!("{a_shape:?} times {b_shape:?}");
    let ([a_outer @ .., m, k], [b_outer @ .., inner, n]) = (a_shape, b_shape) else { return Err(wrong()) };
    if k != inner {
        return Err(wrong());
    }
    let outer = common(a_outer, b_outer)?;
    let places = |shape: &[usize]| {
        let ones = Array::of_ints(shape, vec![0; shape.iter().product()]);
        ones.stretched(&outer).map(|strides| Places::new(&outer, strides, 0)).ok_or_else(wrong)
    };
    let mut out = vec![0.0f32; outer.iter().product::<usize>() * m * n];
    let matrices = places(a_outer)?.zip(places(b_outer)?);
    for (out, (i, j)) in out.chunks_exact_mut((m * n).max(1)).zip(matrices) {
        let (a, b) = (&a[i * m * k..][..m * k], &b[j * k * n..][..k * n]);
        for (out, a) in out.chunks_exact_mut((*n).max(1)).zip(a.chunks_exact((*k).max(1))) {
            for (x, b) in a.iter().zip(b.chunks_exact((*n).max(1))) {
                out.iter_mut().zip(b).for_each(|(out, b)| *out += x * b);
            }
        }
    }
    Ok(Array::of_floats(&[&outer[..], &[*m, *n]].concat(), out))
}
