//! Attention as a graph of candle's operators.

use super::Mask;
use crate::loss;
use candle_core::{D, Result, Tensor};

/// What positions have to do with scores.
#[derive(Clone, Copy)]
pub enum ComposedPositions<'a> {
    /// Nothing.
    None,
    /// r [S, A], u and v `[A]` of relative scores.
    Relative([&'a Tensor; 3]),
    /// Biases by distance, [H, T - 1 + S].
    Distances(&'a Tensor),
}

/// [`forward`](super::forward) as a graph: [B, T, A] from q [B, T, A], k and v [B, S, A]; with fewer heads of keys and values, k and v are [B, S, kv_heads * K]. `padding`
/// is that of [`Inputs`](super::Inputs); without it, every query has to see a key.
pub fn composed(
    heads: usize,
    kv_heads: usize,
    mask: Mask,
    padding: Option<&[bool]>,
    [q, k, v]: [&Tensor; 3],
    positions: ComposedPositions<'_>,
) -> Result<Tensor> {
    let (batch, queries, a) = q.dims3()?;
    let keys = k.dim(1)?;
    let d_head = a / heads;
    let (k, v) = (&repeat(k, kv_heads, heads / kv_heads)?, &repeat(v, kv_heads, heads / kv_heads)?);
    let split = |x: &Tensor| {
        // (B, T, A) -> (B, H, T, K)
        x.reshape((x.dim(0)?, x.dim(1)?, heads, d_head))?.transpose(1, 2)?.contiguous()
    };
    let transposed = |x: &Tensor| split(x)?.t()?.contiguous();
    let scores = match positions {
        ComposedPositions::None | ComposedPositions::Distances(_) => split(q)?.matmul(&transposed(k)?)?,
        ComposedPositions::Relative([r, u, v]) => {
            let content = split(&q.broadcast_add(u)?)?.matmul(&transposed(k)?)?;
            let r = transposed(&r.unsqueeze(0)?)?.broadcast_as((batch, heads, d_head, keys))?.contiguous()?;
            (content + shift(&split(&q.broadcast_add(v)?)?.matmul(&r)?)?)?
        }
    };
    // The keys that query i of sequence b sees; without padding all sequences are alike.
    let seen = |b: usize, i: usize| {
        let (from, to) = mask.range(keys.saturating_sub(queries) + i, keys);
        let real = padding.map(|real| &real[b * keys..][..keys]);
        (0..keys).map(move |j| (from..to).contains(&j) && real.is_none_or(|real| real[j]))
    };
    let alike = if padding.is_some() { batch } else { 1 };
    let rows = || (0..alike * queries).map(|row| (row / queries, row % queries));
    // A query that sees nothing looks at everything, so that nothing is NaN, and forgets it.
    let blind: Vec<bool> = rows().map(|(b, i)| padding.is_some() && !seen(b, i).any(|seen| seen)).collect();
    let hidden = rows()
        .zip(&blind)
        .flat_map(|((b, i), &blind)| seen(b, i).map(move |seen| if seen || blind { 0.0 } else { f32::NEG_INFINITY }));
    let tensor = |x: Vec<f32>| Tensor::new(x, q.device())?.to_dtype(q.dtype())?.reshape((alike, 1, queries, ()));
    let mut scores = (scores / (d_head as f64).sqrt())?.broadcast_add(&tensor(hidden.collect())?)?;
    if let ComposedPositions::Distances(distances) = positions {
        let places: Vec<u32> = (0..queries * keys).map(|i| (queries - 1 - i / keys + i % keys) as u32).collect();
        let biases = distances.index_select(&Tensor::new(places, q.device())?, 1)?;
        scores = scores.broadcast_add(&biases.reshape((1, heads, queries, keys))?)?;
    }
    let mut context = loss::composed_log_softmax(&scores)?.exp()?.matmul(&split(v)?)?;
    if padding.is_some() {
        let sighted = blind.iter().map(|&blind| if blind { 0.0 } else { 1.0 });
        context = context.broadcast_mul(&tensor(sighted.collect())?)?;
    }
    context.transpose(1, 2)?.reshape((batch, queries, a))
}

/// Each head `times` times: (B, S, H K) -> (B, S, H * times * K).
fn repeat(x: &Tensor, heads: usize, times: usize) -> Result<Tensor> {
    if times == 1 {
        return Ok(x.clone());
    }
    let (batch, keys, width) = x.dims3()?;
    let d_head = width / heads;
    x.reshape((batch, keys, heads, 1, d_head))?.broadcast_as((batch, keys, heads, times, d_head))?.reshape((
        batch,
        keys,
        times * width,
    ))
}

/// Moves row i of (B, H, T, S) to the left by T - 1 - i; zeros come after.
fn shift(x: &Tensor) -> Result<Tensor> {
    let (batch, heads, queries, keys) = x.dims4()?;
    let wide = keys + queries;
    // A row that is one shorter begins one later in the next.
    x.pad_with_zeros(D::Minus1, 0, queries)?
        .reshape((batch, heads, queries * wide))?
        .narrow(2, queries - 1, queries * (wide - 1))?
        .reshape((batch, heads, queries, wide - 1))?
        .narrow(3, 0, keys)
}
