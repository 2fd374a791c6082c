//! Embedding: rows of a table by token, and their gradient.

use crate::parallel;
use candle_core::{Result, Tensor};

/// `out[i] = table[ids[i]] * scale`
pub fn gather(table: &[f32], width: usize, ids: &[u32], scale: f32, out: &mut [f32]) {
    parallel::rows(out, width, |row, out| {
        let from = &table[ids[row] as usize * width..][..width];
        out.iter_mut().zip(from).for_each(|(out, from)| *out = scale * from);
    });
}

/// `dtable[ids[i]] += dout[i] * scale`, in the order of the tokens.
pub fn scatter(dout: &[f32], width: usize, ids: &[u32], scale: f32, dtable: &mut [f32]) {
    for (row, &id) in ids.iter().enumerate() {
        let from = &dout[row * width..][..width];
        let to = &mut dtable[id as usize * width..][..width];
        to.iter_mut().zip(from).for_each(|(to, from)| *to += scale * from);
    }
}

/// [`gather`] as a graph.
pub fn composed(table: &Tensor, ids: &[u32], scale: f32) -> Result<Tensor> {
    table.index_select(&Tensor::new(ids, table.device())?, 0)? * f64::from(scale)
}

/// x[b, t] += table[t + first]: learned positions.
pub fn add_positions(table: &[f32], width: usize, len: usize, first: usize, x: &mut [f32]) {
    parallel::rows(x, width, |row, x| {
        let from = &table[(first + row % len) * width..][..width];
        x.iter_mut().zip(from).for_each(|(x, from)| *x += from);
    });
}

/// `x[i] += table[places[i]]`: learned positions of rows that are anywhere.
pub fn add_rows(table: &[f32], width: usize, places: &[u32], x: &mut [f32]) {
    parallel::rows(x, width, |row, x| {
        let from = &table[places[row] as usize * width..][..width];
        x.iter_mut().zip(from).for_each(|(x, from)| *x += from);
    });
}

/// dtable[t + first] += sum over b of dx[b, t].
pub fn positions_backward(dx: &[f32], width: usize, len: usize, first: usize, dtable: &mut [f32]) {
    parallel::rows(&mut dtable[first * width..][..len * width], width, |t, to| {
        for from in dx[t * width..].chunks(len * width) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
    });
}
