//! Attention by dot products as nodes of ONNX.

use super::{Buckets, DotAttention};
use crate::linear::Linear;
use crate::onnx::OnnxPass;
use crate::params::ParamId;
use lathe_onnx::{Kind, Tensor, Value};
use lathe_ops::attention::Mask;
use lathe_ops::rope::Rope;

/// Cosines that a file may have: beyond, they are computed when they are needed.
const MOST_ANGLES: usize = 1 << 22;

impl DotAttention {
    /// The output [B, T, D] for an input [B, T, D].
    pub(super) fn nodes(&self, pass: &mut OnnxPass<'_>, input: &Value) -> Value {
        let qkv = match &self.qkv[..] {
            [all] => {
                let all = all.onnx(pass, input);
                pass.parts_of(&all, &[self.a(), self.g(), self.g()])
            }
            parts => Linear::onnx_parts(parts, pass, input),
        };
        let mut by_head = qkv.into_iter().enumerate().map(|(i, x)| {
            let heads = if i == 0 { self.heads } else { self.kv_heads };
            let mut x = pass.reshape(&x, &[0, 0, heads as i64, self.d_head as i64]); // (B, T, A) -> (B, T, H, K)
            if let Some(norm) = self.head_norms.as_ref().and_then(|norms| norms.get(i)) {
                x = norm.onnx(pass, &x);
            }
            x = order(pass, &x, &[0, 2, 1, 3]); // (B, H, T, K)
            match &self.rope {
                Some(rope) if i < 2 => rotated(pass, rope, &x),
                _ => x,
            }
        });
        let mut next = || by_head.next().expect("queries, keys and values");
        let (mut q, own) = (next(), [next(), next()]);
        drop(by_head);
        let [mut k, mut v] = pass.behind_cache(own, self.kv_heads, self.d_head); // (B, G, S, K)

        // Heads of queries that share one of keys and values stand on an axis of their own.
        let groups = self.heads / self.kv_heads;
        let shared = groups > 1;
        if shared {
            q = pass.reshape(&q, &[0, self.kv_heads as i64, groups as i64, -1, self.d_head as i64]);
            let axis = pass.graph.ints(&[2]);
            [k, v] = [k, v].map(|x| pass.graph.node("Unsqueeze", &[&x, &axis], &[]));
        }
        let scale = pass.graph.float(1.0 / (self.d_head as f32).sqrt());
        q = pass.graph.node("Mul", &[&q, &scale], &[]);
        let k = order(pass, &k, if shared { &[0, 1, 2, 4, 3] } else { &[0, 1, 3, 2] });
        let mut scores = pass.graph.node("MatMul", &[&q, &k], &[]);
        if let Some(bias) = pass.bias(self.mask == Mask::Causal, if shared { 5 } else { 4 }) {
            scores = pass.graph.node("Add", &[&scores, &bias], &[]);
        }
        if let Some((buckets, table)) = &self.buckets {
            let bias = by_distance(pass, buckets, *table, self.heads);
            scores = pass.graph.node("Add", &[&scores, &bias], &[]);
        }
        let probabilities = pass.graph.node("Softmax", &[&scores], &[("axis", (-1).into())]);
        let context = pass.graph.node("MatMul", &[&probabilities, &v], &[]);
        let context = order(pass, &context, if shared { &[0, 3, 1, 2, 4] } else { &[0, 2, 1, 3] });
        let context = pass.reshape(&context, &[0, 0, self.a() as i64]);
        self.out.onnx(pass, &context)
    }
}

/// Biases [H, T, T] by distance: of a table [H, 2 L - 1] of all distances that the longest text has. Layers of as many heads share
/// them.
fn by_distance(pass: &mut OnnxPass<'_>, buckets: &Buckets, table: ParamId, heads: usize) -> Value {
    let longest = pass.model.frame.max_len as usize;
    let name = format!("{}.{heads}", buckets.table);
    pass.once(format!("{name} of a text"), |pass| {
        let all = buckets.by_distance(pass.params.get(table), heads, longest);
        let all = pass.constant(&name, &[heads, 2 * longest - 1], &all);
        let len = pass.len();
        let (places, last, own) = (pass.count_to(&len), pass.graph.ints(&[1]), pass.graph.int(longest as i64 - 1));
        let queries = pass.graph.node("Unsqueeze", &[&places, &last], &[]);
        let later = pass.graph.node("Sub", &[&places, &queries], &[]); // [T, T]
        let columns = pass.graph.node("Add", &[&later, &own], &[]);
        pass.graph.node("Gather", &[&all, &columns], &[("axis", 1.into())])
    })
}

/// Another order of axes.
fn order(pass: &mut OnnxPass<'_>, x: &Value, axes: &[i64]) -> Value {
    pass.graph.node("Transpose", &[x], &[("perm", axes.into())])
}

/// Heads [B, H, T, K] turned by the places of their tokens. Layers whose heads turn alike share the angles.
fn rotated(pass: &mut OnnxPass<'_>, rope: &Rope, x: &Value) -> Value {
    let (half, longest) = (rope.frequencies().len(), pass.model.frame.max_len as usize);
    let key = format!("{:?}", rope.frequencies());
    if pass.is_for_runtime() && longest * half <= MOST_ANGLES {
        let mut table = |name: &str, function: fn(f32) -> f32| {
            pass.once(format!("{name} {key}"), |pass| {
                let angles = (0..longest).flat_map(|p| rope.frequencies().iter().map(move |f| p as f32 * f));
                let values: Vec<f32> = angles.map(function).collect();
                pass.graph.numbers(name, Tensor::floats(&[longest, half], &values))
            })
        };
        let (cos, sin) = (table("cosines", f32::cos), table("sines", f32::sin));
        let places = pass.positions_or_start();
        return pass.graph.contributed("RotaryEmbedding", &[x, &places, &cos, &sin], &[("interleaved", 0.into())]);
    }
    let [cos, sin] = ["Cos", "Sin"].map(|op| {
        pass.once(format!("{op} {key}"), |pass| {
            let angles = pass.once(key.clone(), |pass| {
                let frequencies = pass.graph.numbers("frequencies", Tensor::floats(&[half], rope.frequencies()));
                let positions = pass.positions();
                let places = pass.graph.node("Cast", &[&positions], &[("to", (Kind::F32 as i64).into())]);
                // [T, 1], or [B, 1, T, 1].
                let axes = if pass.has_cache() { pass.graph.ints(&[1, 3]) } else { pass.graph.ints(&[1]) };
                let places = pass.graph.node("Unsqueeze", &[&places, &axes], &[]);
                pass.graph.node("Mul", &[&places, &frequencies], &[])
            });
            pass.graph.node(op, &[&angles], &[])
        })
    });
    let [first, second] = pass.parts(x, [half; 2]);
    let mut product = |a: &Value, b: &Value| pass.graph.node("Mul", &[a, b], &[]);
    let products = [product(&first, &cos), product(&second, &sin), product(&second, &cos), product(&first, &sin)];
    let low = pass.graph.node("Sub", &[&products[0], &products[1]], &[]);
    let high = pass.graph.node("Add", &[&products[2], &products[3]], &[]);
    pass.graph.node("Concat", &[&low, &high], &[("axis", (-1).into())])
}
