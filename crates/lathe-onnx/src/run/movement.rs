//! Operators that move numbers about.

use super::array::{Places, common, strides};
use super::{Array, Call, Data, Reason, place};
use crate::graph::Attr;

impl Call<'_> {
    pub(super) fn concat(&self) -> Result<Array, Reason> {
        let arrays = (0..self.inputs.len()).map(|i| self.input(i)).collect::<Result<Vec<_>, _>>()?;
        let first = *arrays.first().ok_or("no inputs")?;
        let axis = self.axis(0, first.rank())?;
        let mut shape = first.shape.clone();
        shape[axis] = 0;
        for array in &arrays {
            let fits = array.rank() == shape.len()
                && array.shape.iter().enumerate().all(|(i, &size)| i == axis || size == first.shape[i]);
            if !fits {
                return Err(format!("shapes {:?} and {:?}", first.shape, array.shape));
            }
            shape[axis] += array.shape[axis];
        }
        let mut data = first.data.empty();
        for outer in 0..shape[..axis].iter().product() {
            for array in &arrays {
                let run: usize = array.shape[axis..].iter().product();
                data.extend(&array.data, outer * run..(outer + 1) * run)?;
            }
        }
        Ok(Array::new(&shape, data))
    }

    pub(super) fn expand(&self) -> Result<Array, Reason> {
        let array = self.input(0)?;
        let shape = common(&array.shape, &sizes(self.ints(1)?)?)?;
        let strides = array.stretched(&shape).ok_or_else(|| format!("{:?} to {shape:?}", array.shape))?;
        Ok(Array::new(&shape, array.data.take(Places::new(&shape, strides, 0))))
    }

    pub(super) fn range(&self) -> Result<Array, Reason> {
        let number = |i: usize| self.ints(i)?.first().copied().ok_or_else(|| format!("input {i} is empty"));
        let (start, end, step) = (number(0)?, number(1)?, number(2)?);
        if step == 0 {
            return Err("a step of 0".into());
        }
        let numbers: Vec<i64> = std::iter::successors(Some(start), |x| x.checked_add(step))
            .take_while(|&x| if step > 0 { x < end } else { x > end })
            .collect();
        Ok(Array::of_ints(&[numbers.len()], numbers))
    }

    pub(super) fn reshape(&self) -> Result<Array, Reason> {
        let (array, wanted) = (self.input(0)?, self.ints(1)?);
        let wrong = || format!("{:?} to {wanted:?}", array.shape);
        let literal = self.int("allowzero", 0) == 1;
        let mut shape = Vec::new();
        for (i, &size) in wanted.iter().enumerate() {
            shape.push(match size {
                0 if !literal => *array.shape.get(i).ok_or_else(wrong)?,
                -1 => 1,
                size => usize::try_from(size).map_err(|_| wrong())?,
            });
        }
        if let Some(free) = wanted.iter().position(|&size| size == -1) {
            let others = shape.iter().product::<usize>().max(1);
            shape[free] = array.data.len() / others;
        }
        match shape.iter().product::<usize>() == array.data.len() {
            true => Ok(Array::new(&shape, array.data.clone())),
            false => Err(wrong()),
        }
    }

    pub(super) fn shape(&self) -> Result<Array, Reason> {
        let shape: Vec<i64> = self.input(0)?.shape.iter().map(|&size| size as i64).collect();
        Ok(Array::of_ints(&[shape.len()], shape))
    }

    pub(super) fn slice(&self) -> Result<Array, Reason> {
        let array = self.input(0)?;
        let (starts, ends) = (self.ints(1)?, self.ints(2)?);
        let axes = if self.optional(3).is_some() { self.ints(3)?.to_vec() } else { (0..starts.len() as i64).collect() };
        let steps = if self.optional(4).is_some() { self.ints(4)?.to_vec() } else { vec![1; starts.len()] };
        let mut shape = array.shape.clone();
        let mut strides: Vec<isize> = array.strides().iter().map(|&stride| stride as isize).collect();
        let mut first = 0;
        for (((&start, &end), &axis), &step) in starts.iter().zip(ends).zip(&axes).zip(&steps) {
            let axis = place(axis, array.rank())?;
            let size = array.shape[axis] as i64;
            let from_end = |at: i64| if at < 0 { at.saturating_add(size) } else { at };
            let (start, end, count) = match step {
                1.. => {
                    let (start, end) = (from_end(start).clamp(0, size), from_end(end).clamp(0, size));
                    (start, end, (end - start + step - 1) / step)
                }
                0 => return Err("a step of 0".into()),
                _ => {
                    let (start, end) = (from_end(start).clamp(-1, size - 1), from_end(end).clamp(-1, size - 1));
                    (start, end, (start - end - step - 1) / -step)
                }
            };
            let count = if (end - start) * step > 0 { count } else { 0 };
            shape[axis] = count as usize;
            first += start as isize * strides[axis];
            strides[axis] *= step as isize;
        }
        Ok(Array::new(&shape, array.data.take(Places::new(&shape, strides, first))))
    }

    pub(super) fn split(&self) -> Result<Vec<Array>, Reason> {
        let array = self.input(0)?;
        let axis = self.axis(0, array.rank())?;
        let outputs = self.node.outputs.len().max(1);
        let parts = match self.optional(1) {
            Some(_) => sizes(self.ints(1)?)?,
            None => vec![array.shape[axis] / outputs; outputs],
        };
        if parts.iter().sum::<usize>() != array.shape[axis] {
            return Err(format!("{:?} in parts of {parts:?}", array.shape));
        }
        let strides: Vec<isize> = array.strides().iter().map(|&stride| stride as isize).collect();
        let mut first = 0;
        let part = |size: usize| {
            let mut shape = array.shape.clone();
            shape[axis] = size;
            let places = Places::new(&shape, strides.clone(), first);
            first += size as isize * strides[axis];
            Array::new(&shape, array.data.take(places))
        };
        Ok(parts.into_iter().map(part).collect())
    }

    pub(super) fn squeeze(&self) -> Result<Array, Reason> {
        let array = self.input(0)?;
        let axes =
            self.ints(1)?.iter().map(|&axis| place(axis, array.rank())).collect::<Result<Vec<usize>, Reason>>()?;
        if axes.iter().any(|&axis| array.shape[axis] != 1) {
            return Err(format!("axes {axes:?} of {:?}", array.shape));
        }
        let kept = array.shape.iter().enumerate().filter(|(i, _)| !axes.contains(i));
        let shape: Vec<usize> = kept.map(|(_, &size)| size).collect();
        Ok(Array::new(&shape, array.data.clone()))
    }

    pub(super) fn unsqueeze(&self) -> Result<Array, Reason> {
        let array = self.input(0)?;
        let rank = array.rank() + self.ints(1)?.len();
        let axes = self.ints(1)?.iter().map(|&axis| place(axis, rank)).collect::<Result<Vec<usize>, Reason>>()?;
        let mut sizes = array.shape.iter();
        let size = |axis| if axes.contains(&axis) { Some(1) } else { sizes.next().copied() };
        let shape: Option<Vec<usize>> = (0..rank).map(size).collect();
        Ok(Array::new(&shape.ok_or_else(|| format!("axes {axes:?} twice"))?, array.data.clone()))
    }

    pub(super) fn transpose(&self) -> Result<Array, Reason> {
        let array = self.input(0)?;
        let order: Vec<usize> = match self.attribute("perm") {
            Some(Attr::Ints(order)) => {
                order.iter().map(|&axis| place(axis, array.rank())).collect::<Result<_, Reason>>()?
            }
            _ => (0..array.rank()).rev().collect(),
        };
        let mut axes = order.clone();
        axes.sort_unstable();
        if axes != (0..array.rank()).collect::<Vec<_>>() {
            return Err(format!("the order {order:?} for {:?}", array.shape));
        }
        let own = array.strides();
        let shape: Vec<usize> = order.iter().map(|&axis| array.shape[axis]).collect();
        let strides = order.iter().map(|&axis| own[axis] as isize).collect();
        Ok(Array::new(&shape, array.data.take(Places::new(&shape, strides, 0))))
    }

    /// Rows along an axis, by their numbers.
    pub(super) fn gather(&self) -> Result<Array, Reason> {
        let (array, rows) = (self.input(0)?, self.input(1)?);
        let axis = self.axis(0, array.rank())?;
        let size = array.shape[axis];
        let rows_at = self.ints(1)?.iter().map(|&row| place(row, size)).collect::<Result<Vec<usize>, Reason>>()?;
        let shape = [&array.shape[..axis], &rows.shape, &array.shape[axis + 1..]].concat();
        let inner: usize = array.shape[axis + 1..].iter().product();
        let mut data = array.data.empty();
        for outer in 0..array.shape[..axis].iter().product() {
            for row in &rows_at {
                let first = (outer * size + row) * inner;
                data.extend(&array.data, first..first + inner)?;
            }
        }
        Ok(Array::new(&shape, data))
    }

    /// Adds rows to those of some numbers, or puts them there.
    pub(super) fn scatter(&self) -> Result<Array, Reason> {
        let (array, at, updates) = (self.input(0)?, self.input(1)?, self.floats(2)?);
        let adds = matches!(self.attribute("reduction"), Some(Attr::Text(word)) if word == "add");
        let depth = *at.shape.last().ok_or("no indices")?;
        let mut values = self.floats(0)?.to_vec();
        let (own, places) = (strides(&array.shape), self.ints(1)?);
        if depth > array.rank() {
            return Err(format!("indices of {depth} axes for {:?}", array.shape));
        }
        let inner: usize = array.shape[depth..].iter().product();
        if depth == 0 || places.len() / depth * inner != updates.len() {
            return Err(format!("{} numbers for {} places", updates.len(), places.len()));
        }
        for (index, update) in places.chunks_exact(depth).zip(updates.chunks_exact(inner.max(1))) {
            let mut first = 0;
            for ((&index, &size), &stride) in index.iter().zip(&array.shape).zip(&own) {
                first += place(index, size)? * stride;
            }
            for (to, from) in values[first..first + inner].iter_mut().zip(update) {
                *to = if adds { *to + from } else { *from };
            }
        }
        Ok(Array::new(&array.shape, Data::F32(values)))
    }
}

/// Sizes that are given as numbers.
fn sizes(numbers: &[i64]) -> Result<Vec<usize>, Reason> {
    let sizes: Result<_, _> = numbers.iter().map(|&size| usize::try_from(size)).collect();
    sizes.map_err(|_| format!("sizes {numbers:?}"))
}
