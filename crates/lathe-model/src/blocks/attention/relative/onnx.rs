//! Attention with relative positions as nodes of ONNX.

use super::{Distances, RelativeAttention};
use crate::build;
use crate::onnx::OnnxPass;
use lathe_onnx::{Tensor, Value};
use lathe_ops::attention::Mask;
use lathe_ops::dropout::Dropout;

/// Tokens of a run that a file has distances for, unless the model is made for more.
const LONGEST: u32 = 1024;

impl RelativeAttention {
    /// The output [B, T, D] for an input behind its memory, [B, S, D].
    pub(super) fn nodes(&self, pass: &mut OnnxPass<'_>, input: &Value) -> Value {
        let (heads, width) = (self.heads as i64, self.d_head as i64);
        let (axis, last) = (pass.graph.ints(&[1]), ("axis", (-1).into()));
        let memory = pass.graph.ints(&[self.mem_len as i64]);
        let end = pass.graph.ints(&[i64::MAX]);
        let present = pass.graph.node("Slice", &[input, &memory, &end, &axis], &[]);
        let q = self.q.onnx(pass, &present);
        let kv = self.kv.onnx(pass, input);
        let [k, v] = pass.parts(&kv, [self.heads * self.d_head; 2]);
        let [q, k, v] = [q, k, v].map(|x| pass.reshape(&x, &[0, 0, heads, width])); // (B, T, A) -> (B, T, H, K)
        let keys = pass.size(input, 1);
        let distances = self.distances(pass, &keys); // [1, S, D]
        let r = self.r.onnx(pass, &distances);
        let r = pass.reshape(&r, &[-1, heads, width]);

        let turned = |pass: &mut OnnxPass<'_>, x: &Value, axes: &[i64]| {
            pass.graph.node("Transpose", &[x], &[("perm", axes.into())])
        };
        let [to_keys, to_places] = [self.u, self.v].map(|bias| {
            let bias = pass.vector(bias);
            let q = pass.graph.node("Add", &[&q, &bias], &[]);
            turned(pass, &q, &[0, 2, 1, 3]) // (B, H, T, K)
        });
        let (k, r, v) =
            (turned(pass, &k, &[0, 2, 3, 1]), turned(pass, &r, &[1, 2, 0]), turned(pass, &v, &[0, 2, 1, 3]));
        let by_keys = pass.graph.node("MatMul", &[&to_keys, &k], &[]);
        let by_places = pass.graph.node("MatMul", &[&to_places, &r], &[]);
        let by_places = shifted(pass, &by_places);
        let scores = pass.graph.node("Add", &[&by_keys, &by_places], &[]);
        let scale = pass.graph.float(1.0 / (self.d_head as f32).sqrt());
        let scores = pass.graph.node("Mul", &[&scores, &scale], &[]);
        let bias = self.unseen(pass, &keys);
        let scores = pass.graph.node("Add", &[&scores, &bias], &[]);
        let probabilities = pass.graph.node("Softmax", &[&scores], &[last]);
        let context = pass.graph.node("MatMul", &[&probabilities, &v], &[]);
        let context = turned(pass, &context, &[0, 2, 1, 3]);
        let context = pass.reshape(&context, &[0, 0, heads * width]);
        self.out.onnx(pass, &context)
    }

    /// The embedded distances of so many keys, farthest first: the last of those for the longest run.
    fn distances(&self, pass: &mut OnnxPass<'_>, keys: &Value) -> Value {
        let (frame, keys) = (&pass.model.frame, keys.clone());
        pass.once(format!("distances {}", self.d), |pass| {
            let longest = frame.tgt_len.max(LONGEST) as usize;
            let context = build::of_backbone(frame.backbone).context(frame, longest, Dropout::NONE);
            let values = &super::distances(context.get::<Distances>());
            let all = Tensor::floats(&[values.len() / self.d, self.d], values);
            let all = pass.graph.numbers("distances", all);
            let (zero, end) = (pass.graph.ints(&[0]), pass.graph.ints(&[i64::MAX]));
            let first = pass.graph.node("Sub", &[&zero, &keys], &[]);
            let own = pass.graph.node("Slice", &[&all, &first, &end, &zero], &[]);
            pass.graph.node("Unsqueeze", &[&own, &zero], &[])
        })
    }

    /// What is added to scores [T, S] of keys that a query does not see.
    fn unseen(&self, pass: &mut OnnxPass<'_>, keys: &Value) -> Value {
        let (keys, window) = (
            keys.clone(),
            match self.mask {
                Mask::Window(width) => Some(width),
                _ => None,
            },
        );
        pass.once(format!("unseen {window:?} {}", self.mem_len), |pass| {
            let len = pass.len();
            let (queries, keys) = (pass.count_to(&len), pass.count_to(&keys));
            let (memory, last) = (pass.graph.int(self.mem_len as i64), pass.graph.ints(&[1]));
            let places = pass.graph.node("Add", &[&queries, &memory], &[]);
            let places = pass.graph.node("Unsqueeze", &[&places, &last], &[]); // [T, 1]
            let mut seen = pass.graph.node("LessOrEqual", &[&keys, &places], &[]);
            if let Some(width) = window {
                let width = pass.graph.int(width as i64);
                let before = pass.graph.node("Sub", &[&places, &width], &[]);
                let near = pass.graph.node("Less", &[&before, &keys], &[]);
                seen = pass.graph.node("And", &[&seen, &near], &[]);
            }
            pass.hidden_where_not(&seen)
        })
    }
}

/// Scores [B, H, T, S] by distance, farthest first, as scores by key: row t moves T - 1 - t places to the left. What comes in
/// from the right is of keys that are not seen.
fn shifted(pass: &mut OnnxPass<'_>, scores: &Value) -> Value {
    let (zero, one, axis) = (pass.graph.ints(&[0]), pass.graph.ints(&[1]), pass.graph.ints(&[-1]));
    let column = pass.graph.node("Slice", &[scores, &zero, &one, &axis], &[]);
    let wider = pass.graph.node("Concat", &[&column, scores], &[("axis", (-1).into())]); // (B, H, T, S + 1)
    let (len, kept) = (pass.len(), pass.graph.ints(&[0, 0, -1]));
    let shape = pass.graph.node("Concat", &[&kept, &len], &[("axis", 0.into())]);
    let turned = pass.graph.node("Reshape", &[&wider, &shape], &[]); // (B, H, S + 1, T)
    let (end, rows) = (pass.graph.ints(&[i64::MAX]), pass.graph.ints(&[2]));
    let below = pass.graph.node("Slice", &[&turned, &one, &end, &rows], &[]);
    let shape = pass.graph.node("Shape", &[scores], &[]);
    pass.graph.node("Reshape", &[&below, &shape], &[])
}
