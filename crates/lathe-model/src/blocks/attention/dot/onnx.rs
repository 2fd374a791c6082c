//! Attention by dot products as nodes of ONNX.

use super::DotAttention;
use crate::linear::Linear;
use crate::onnx::OnnxPass;
use lathe_onnx::{Kind, Tensor, Value};
use lathe_ops::attention::Mask;
use lathe_ops::rope::Rope;

impl DotAttention {
    /// The output [B, T, D] for an input [B, T, D].
    pub(super) fn nodes(&self, pass: &mut OnnxPass<'_>, input: &Value) -> Value {
        let [q, k, v] = match &self.qkv[..] {
            [all] => {
                let all = all.onnx(pass, input);
                pass.parts(&all, [self.a(), self.g(), self.g()])
            }
            parts => Linear::onnx_parts(parts, pass, input).try_into().expect("queries, keys and values"),
        };
        let heads = |pass: &mut OnnxPass<'_>, x: &Value, heads: usize| {
            pass.reshape(x, &[0, 0, heads as i64, self.d_head as i64]) // (B, T, A) -> (B, T, H, K)
        };
        let mut turned = [heads(pass, &q, self.heads), heads(pass, &k, self.kv_heads)];
        let v = heads(pass, &v, self.kv_heads);
        for (i, x) in turned.iter_mut().enumerate() {
            if let Some(norms) = &self.head_norms {
                *x = norms[i].onnx(pass, x);
            }
            if let Some(rope) = &self.rope {
                *x = rotated(pass, rope, x);
            }
        }
        let [q, k] = turned;
        let by_head = |pass: &mut OnnxPass<'_>, x: &Value| order(pass, x, &[0, 2, 1, 3]);
        let own = [by_head(pass, &k), by_head(pass, &v)]; // (B, G, T, K)
        let [mut k, mut v] = pass.behind_cache(own, self.kv_heads, self.d_head); // (B, G, S, K)

        // Heads of queries that share one of keys and values stand on an axis of their own.
        let groups = self.heads / self.kv_heads;
        let (mut q, rank) = (q, if groups > 1 { 5 } else { 4 });
        if groups > 1 {
            q = pass.reshape(&q, &[0, 0, self.kv_heads as i64, groups as i64, self.d_head as i64]);
            q = order(pass, &q, &[0, 2, 3, 1, 4]); // (B, G, H / G, T, K)
            let axis = pass.graph.ints(&[2]);
            [k, v] = [k, v].map(|x| pass.graph.node("Unsqueeze", &[&x, &axis], &[]));
        } else {
            q = by_head(pass, &q);
        }
        let scale = pass.graph.float(1.0 / (self.d_head as f32).sqrt());
        q = pass.graph.node("Mul", &[&q, &scale], &[]);
        let turned = if groups > 1 { &[0, 1, 2, 4, 3][..] } else { &[0, 1, 3, 2] };
        let k = order(pass, &k, turned);
        let mut scores = pass.graph.node("MatMul", &[&q, &k], &[]);
        if let Some(bias) = pass.bias(self.mask == Mask::Causal, rank) {
            scores = pass.graph.node("Add", &[&scores, &bias], &[]);
        }
        let probabilities = pass.graph.node("Softmax", &[&scores], &[("axis", (-1).into())]);
        let context = pass.graph.node("MatMul", &[&probabilities, &v], &[]);
        let context = order(pass, &context, if groups > 1 { &[0, 3, 1, 2, 4] } else { &[0, 2, 1, 3] });
        let context = pass.reshape(&context, &[0, 0, self.a() as i64]);
        self.out.onnx(pass, &context)
    }
}

/// Another order of axes.
fn order(pass: &mut OnnxPass<'_>, x: &Value, axes: &[i64]) -> Value {
    pass.graph.node("Transpose", &[x], &[("perm", axes.into())])
}

/// Heads [B, T, H, K] turned by the places of their tokens.
fn rotated(pass: &mut OnnxPass<'_>, rope: &Rope, x: &Value) -> Value {
    let half = rope.frequencies().len();
    // Layers whose heads turn alike share the angles.
    let key = format!("rotary {:?}", rope.frequencies());
    let [cos, sin] = ["Cos", "Sin"].map(|op| {
        pass.once(format!("{op} {key}"), |pass| {
            let angles = pass.once(key.clone(), |pass| {
                let frequencies = Tensor::floats(&[half], rope.frequencies());
                let frequencies = pass.graph.numbers("frequencies", frequencies);
                let positions = pass.positions();
                let places = pass.graph.node("Cast", &[&positions], &[("to", (Kind::F32 as i64).into())]);
                let axes = pass.graph.ints(&[-2, -1]);
                let places = pass.graph.node("Unsqueeze", &[&places, &axes], &[]); // [T, 1, 1] or [B, T, 1, 1]
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
