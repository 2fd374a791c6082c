//! Operators that work number by number, stretched to a common shape.

use super::array::{Places, common};
use super::{Array, Call, Data, Reason};
use crate::graph::Attr;
use crate::tensor::Kind;

impl Call<'_> {
    /// Each number by itself.
    pub(super) fn map(&self, each: impl Fn(f32) -> f32) -> Result<Array, Reason> {
        Ok(Array::of_floats(&self.input(0)?.shape, self.floats(0)?.iter().map(|&x| each(x)).collect()))
    }

    pub(super) fn gelu(&self) -> Result<Array, Reason> {
        let tanh = matches!(self.attribute("approximate"), Some(Attr::Text(word)) if word == "tanh");
        self.map(|x| {
            let x = f64::from(x);
            let half = match tanh {
                true => (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh(),
                false => erf(x * std::f64::consts::FRAC_1_SQRT_2),
            };
            (0.5 * x * (1.0 + half)) as f32
        })
    }

    /// The places of two inputs for each number of their common shape.
    fn pairs(&self) -> Result<(Vec<usize>, Places, Places), Reason> {
        let (a, b) = (self.input(0)?, self.input(1)?);
        let shape = common(&a.shape, &b.shape)?;
        let places = |array: &Array| {
            let strides = array.stretched(&shape).ok_or_else(|| format!("{:?} for {shape:?}", array.shape))?;
            Ok::<_, Reason>(Places::new(&shape, strides, 0))
        };
        let (a, b) = (places(a)?, places(b)?);
        Ok((shape, a, b))
    }

    /// Two inputs of one type.
    pub(super) fn both(
        &self,
        floats: impl Fn(f32, f32) -> f32,
        ints: impl Fn(i64, i64) -> i64,
    ) -> Result<Array, Reason> {
        let (shape, left, right) = self.pairs()?;
        let data = match (&self.input(0)?.data, &self.input(1)?.data) {
            (Data::F32(a), Data::F32(b)) => Data::F32(left.zip(right).map(|(i, j)| floats(a[i], b[j])).collect()),
            (Data::I64(a), Data::I64(b)) => Data::I64(left.zip(right).map(|(i, j)| ints(a[i], b[j])).collect()),
            _ => return Err("inputs of different types".into()),
        };
        Ok(Array::new(&shape, data))
    }

    /// Two inputs of bytes.
    pub(super) fn bytes(&self, each: impl Fn(u8, u8) -> u8) -> Result<Array, Reason> {
        let (shape, left, right) = self.pairs()?;
        match (&self.input(0)?.data, &self.input(1)?.data) {
            (Data::U8(a), Data::U8(b)) => {
                Ok(Array::new(&shape, Data::U8(left.zip(right).map(|(i, j)| each(a[i], b[j])).collect())))
            }
            _ => Err("inputs that are no bytes".into()),
        }
    }

    pub(super) fn compare(
        &self,
        floats: impl Fn(f32, f32) -> bool,
        ints: impl Fn(i64, i64) -> bool,
    ) -> Result<Array, Reason> {
        let (shape, left, right) = self.pairs()?;
        let data = match (&self.input(0)?.data, &self.input(1)?.data) {
            (Data::F32(a), Data::F32(b)) => left.zip(right).map(|(i, j)| floats(a[i], b[j]).into()).collect(),
            (Data::I64(a), Data::I64(b)) => left.zip(right).map(|(i, j)| ints(a[i], b[j]).into()).collect(),
            _ => return Err("inputs of different types".into()),
        };
        Ok(Array::of_ints(&shape, data))
    }

    pub(super) fn choose(&self) -> Result<Array, Reason> {
        let (when, a, b) = (self.input(0)?, self.input(1)?, self.input(2)?);
        let shape = common(&when.shape, &common(&a.shape, &b.shape)?)?;
        let places = |array: &Array| Places::new(&shape, array.stretched(&shape).unwrap_or_default(), 0);
        let when = places(when).map(|i| self.ints(0).map(|when| when[i] != 0)).collect::<Result<Vec<_>, _>>()?;
        let places = when.iter().zip(places(a).zip(places(b)));
        let data = match (&a.data, &b.data) {
            (Data::F32(a), Data::F32(b)) => {
                Data::F32(places.map(|(&when, (i, j))| if when { a[i] } else { b[j] }).collect())
            }
            (Data::I64(a), Data::I64(b)) => {
                Data::I64(places.map(|(&when, (i, j))| if when { a[i] } else { b[j] }).collect())
            }
            _ => return Err("inputs of different types".into()),
        };
        Ok(Array::new(&shape, data))
    }

    pub(super) fn cast(&self) -> Result<Array, Reason> {
        let array = self.input(0)?;
        let to = i32::try_from(self.int("to", 0)).ok().and_then(Kind::of_id);
        let data = match to {
            Some(Kind::F32) => Data::F32(array.to_floats()),
            Some(Kind::I64 | Kind::I32) => match &array.data {
                Data::I64(data) => Data::I64(data.clone()),
                _ => Data::I64(array.to_floats().into_iter().map(|x| x as i64).collect()),
            },
            Some(Kind::Bool) => Data::I64(array.to_floats().into_iter().map(|x| (x != 0.0).into()).collect()),
            _ => return Err(format!("to type {}", self.int("to", 0))),
        };
        Ok(Array::new(&array.shape, data))
    }
}

/// The error function: a series near 0, a continued fraction elsewhere.
fn erf(x: f64) -> f64 {
    let size = x.abs();
    let value = if size < 2.5 {
        let mut term = size;
        let mut sum = size;
        for n in 1..64 {
            term *= -size * size / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        let fraction = (1..60).rev().fold(size, |rest, n| size + f64::from(n) / 2.0 / rest);
        1.0 - (-size * size).exp() / fraction * 0.5 * std::f64::consts::FRAC_2_SQRT_PI
    };
    value.copysign(x)
}
