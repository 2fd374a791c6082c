//! Operators that tell places.

use super::{Array, Call, Reason};

impl Call<'_> {
    /// The largest numbers along the last axis, and where they are; of equal ones the first.
    pub(super) fn top_k(&self) -> Result<Vec<Array>, Reason> {
        let (array, count) = (self.input(0)?, self.ints(1)?);
        let axis = self.axis(-1, array.rank())?;
        let width = array.shape[axis];
        let count = count.first().and_then(|&count| usize::try_from(count).ok()).filter(|&count| count <= width);
        let (Some(count), true) = (count, axis + 1 == array.rank()) else {
            return Err(format!("of {:?} along axis {axis}", array.shape));
        };
        let (mut values, mut places) = (Vec::new(), Vec::new());
        for row in self.floats(0)?.chunks_exact(width.max(1)) {
            let mut order: Vec<usize> = (0..width).collect();
            order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
            values.extend(order[..count].iter().map(|&i| row[i]));
            places.extend(order[..count].iter().map(|&i| i as i64));
        }
        let mut shape = array.shape.clone();
        shape[axis] = count;
        Ok(vec![Array::of_floats(&shape, values), Array::of_ints(&shape, places)])
    }

    /// Heads [B, H, T, K] whose halves are turned by the angles of their places, [B, T] or one to begin with.
    pub(super) fn rotary(&self) -> Result<Array, Reason> {
        let (array, places, angles) = (self.input(0)?, self.ints(1)?, self.input(2)?);
        let (cos, sin, half) = (self.floats(2)?, self.floats(3)?, angles.shape.last().copied().unwrap_or_default());
        let &[batch, heads, len, width] = &array.shape[..] else { return Err(format!("{:?}", array.shape)) };
        if width != 2 * half || half == 0 || cos.len() != sin.len() || ![1, batch * len].contains(&places.len()) {
            return Err(format!("{:?} with {} places and angles {:?}", array.shape, places.len(), angles.shape));
        }
        let mut values = self.floats(0)?.to_vec();
        for (i, head) in values.chunks_exact_mut(width).enumerate() {
            let (b, t) = (i / (heads * len), i % len);
            let place = if places.len() == 1 { places[0] + t as i64 } else { places[b * len + t] };
            let row = super::place(place, cos.len() / half)? * half;
            let (low, high) = head.split_at_mut(half);
            for (j, (low, high)) in low.iter_mut().zip(high).enumerate() {
                let (cos, sin) = (cos[row + j], sin[row + j]);
                (*low, *high) = (*low * cos - *high * sin, *high * cos + *low * sin);
            }
        }
        Ok(Array::of_floats(&array.shape, values))
    }

    /// Where numbers are not 0: a column for each.
    pub(super) fn non_zero(&self) -> Result<Array, Reason> {
        let array = self.input(0)?;
        let found: Vec<usize> = self.ints(0)?.iter().enumerate().filter(|(_, x)| **x != 0).map(|(i, _)| i).collect();
        let axes = array.strides().into_iter().zip(&array.shape);
        let places =
            axes.flat_map(|(stride, &size)| found.iter().map(move |i| (i / stride % size) as i64)).collect::<Vec<_>>();
        Ok(Array::of_ints(&[array.rank(), found.len()], places))
    }
}
