//! Attention as a graph of candle's operators.

use super::Mask;
use crate::loss;
use candle_core::{D, Result, Tensor};

/// [`forward`](super::forward) as a graph: [B, T, A] from q [B, T, A], k and v [B, S, A], and for relative scores r [S, A], u and v
/// `[A]`; with fewer heads of keys and values, k and v are [B, S, kv_heads * K]. Every query has to see a key.
pub fn composed(
    heads: usize,
    kv_heads: usize,
    mask: Mask,
    [q, k, v]: [&Tensor; 3],
    relative: Option<[&Tensor; 3]>,
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
    let scores = match relative {
        None => split(q)?.matmul(&transposed(k)?)?,
        Some([r, u, v]) => {
            let content = split(&q.broadcast_add(u)?)?.matmul(&transposed(k)?)?;
            let r = transposed(&r.unsqueeze(0)?)?.broadcast_as((batch, heads, d_head, keys))?.contiguous()?;
            (content + shift(&split(&q.broadcast_add(v)?)?.matmul(&r)?)?)?
        }
    };
    let seen = (0..queries).flat_map(|i| {
        let (from, to) = mask.range(keys - queries + i, keys);
        (0..keys).map(move |j| if (from..to).contains(&j) { 0.0 } else { f32::NEG_INFINITY })
    });
    let seen = Tensor::from_iter(seen, q.device())?.to_dtype(q.dtype())?.reshape((queries, keys))?;
    let scores = (scores / (d_head as f64).sqrt())?.broadcast_add(&seen)?;
    let context = loss::composed_log_softmax(&scores)?.exp()?.matmul(&split(v)?)?;
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
