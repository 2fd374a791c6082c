//! Attention with relative positions (Dai et al., 2019): keys and values over memory and segment, M + T, and a score
//! ((q + u) k^T + (q + v) r^T) / sqrt(K) with projected distances r; no bias, but u and v per layer.

mod onnx;

use super::ROLE;
use crate::build::Site;
use crate::composed::Graph;
use crate::context::Shared;
use crate::layer::{Cache, Layer, LayerState, Pass, Saved, Slice, Sublayer, Units};
use crate::linear::{Linear, Matrix};
use crate::onnx::OnnxPass;
use crate::params::{Builder, Grads, Init, ParamId, Params};
use crate::taps::AttentionMap;
use candle_core::Tensor;
use lathe_core::Frame;
use lathe_onnx::Value;
use lathe_ops::Precision;
use lathe_ops::attention::{
    self, ComposedPositions, Gradients, Inputs, KeptAs, KeptRows, Mask, Relative, RelativeGradients, Rows, Shape,
};
use lathe_ops::buffer::Buf;
use lathe_ops::gemm::MatMut;
use std::sync::Arc;

/// The embedded distances [M + T, D], farthest first, which a backbone of relative positions computes once per pass.
pub struct Distances(pub Buf);

impl Shared for Distances {
    fn fill(&mut self, value: f32) {
        self.0.fill(value);
    }
}

/// Parameters of a layer of `a` = heads * width.
pub(super) fn params(d: u64, a: u64) -> u64 {
    5 * d * a + 2 * a
}

/// The layer of so many heads of a width.
pub(super) fn build(
    (heads, d_head): (usize, usize),
    frame: &Frame,
    site: &Site<'_>,
    builder: &mut Builder,
) -> Option<Box<dyn Layer>> {
    let (d, a, deviation) = (frame.d_model as usize, heads * d_head, site.style.deviation);
    let norm = site.norm(builder, ROLE, "attn.norm");
    let name = |part: &str| site.name(ROLE, part);
    let qkv = site.linear(builder, &name("attn.qkv"), [d, 3 * a], deviation, false);
    let out = site.linear(builder, &name("attn.out"), [a, d], deviation, false);
    let r = site.linear(builder, &name("attn.r"), [d, a], deviation, false);
    let mut bias = |part: &str| builder.param(name(part), &[heads, d_head], Init::Normal(0.0, deviation));
    let (u, v) = (bias("attn.u"), bias("attn.v"));
    let mask = if frame.same_length { Mask::Window(frame.mem_len as usize) } else { Mask::Causal };
    let (q, kv) = (qkv.part(0, a), qkv.part(a, 2 * a));
    let mem_len = frame.mem_len as usize;
    let (salt, precision) = (site.salt(2), Precision::F32);
    site.residual(RelativeAttention { q, kv, r, out, u, v, heads, d_head, d, mem_len, mask, salt, precision }, norm)
}

/// Attention at work.
struct RelativeAttention {
    q: Linear,
    kv: Linear,
    r: Linear,
    out: Linear,
    u: ParamId,
    v: ParamId,
    heads: usize,
    d_head: usize,
    d: usize,
    mem_len: usize,
    mask: Mask,
    salt: u64,
    precision: Precision,
}

struct RelativeSaved {
    /// The inputs that are not memory, [B * T, D].
    present: Buf,
    q: Buf,
    kv: Buf,
    r: Buf,
    probabilities: Arc<Buf>,
    context: Buf,
}

impl RelativeAttention {
    fn shape(&self, pass: &Pass<'_>, keys: usize) -> Shape {
        Shape {
            batch: pass.batch,
            queries: pass.len,
            keys,
            heads: self.heads,
            d_head: self.d_head,
            kv_heads: self.heads,
            mask: self.mask,
            dropout: pass.dropout[1].with(self.salt),
            precision: self.precision,
        }
    }

    fn queries<'a>(&self, pass: &Pass<'_>, q: &'a [f32]) -> Rows<'a> {
        let a = self.heads * self.d_head;
        Rows { data: q, stride: a, batch_stride: a * pass.len }
    }

    /// Keys and values side by side, [B * S, 2 A].
    fn keys_and_values<'a>(&self, keys: usize, kv: &'a [f32]) -> (Rows<'a>, Rows<'a>) {
        let a = self.heads * self.d_head;
        let rows = |data: &'a [f32]| Rows { data, stride: 2 * a, batch_stride: 2 * a * keys };
        (rows(kv), rows(&kv[a..]))
    }

    fn relative<'a>(&self, params: &'a Params, r: &'a [f32]) -> Relative<'a> {
        Relative { r, u: params.get(self.u), v: params.get(self.v) }
    }

    /// The projected distances of so many keys.
    fn project_distances(&self, pass: &Pass<'_>, keys: usize) -> Buf {
        let distances = distances(pass.context.get());
        let all = distances.len() / self.d;
        let mut r = Buf::any(keys * self.heads * self.d_head);
        self.r.forward(pass.params, &distances[(all - keys) * self.d..], &mut r);
        r
    }
}

impl Sublayer for RelativeAttention {
    fn forward(&self, pass: &Pass<'_>, input: &[f32], state: &mut LayerState) -> (Buf, Saved) {
        let a = self.heads * self.d_head;
        let rows = input.len() / self.d; // B * S, or B * T with a cache
        let mut kv = Buf::any(rows * 2 * a);
        self.kv.forward(pass.params, input, &mut kv);
        let behind = rows / pass.batch - pass.len;
        let mut present = Buf::any(pass.rows() * self.d);
        for (present, input) in
            present.chunks_exact_mut(pass.len * self.d).zip(input.chunks_exact((behind + pass.len) * self.d))
        {
            present.copy_from_slice(&input[behind * self.d..]);
        }
        let mut q = Buf::any(pass.rows() * a);
        self.q.forward(pass.params, &present, &mut q);
        let mut context = Buf::any(pass.rows() * a);
        let queries = self.queries(pass, &q);
        let keys = match state {
            LayerState::Cache(cache) => cache.len + pass.len,
            _ => behind + pass.len,
        };
        let mut probabilities = pass.room_for_maps(self.heads, keys);
        let shape = self.shape(pass, keys);
        let r = if let LayerState::Cache(cache) = state {
            let first = cache.append(pass.batch, 2 * a, &kv, 2 * a, 0);
            if cache.positions.as_ref().is_none_or(|(known, _)| *known != keys) {
                cache.positions = Some((keys, self.project_distances(pass, keys)));
            }
            let r = &cache.positions.as_ref().expect("just made").1;
            let KeptRows { kept, first, values, stride, batch_stride } = cache.keys_and_values(first, a);
            let data = kept.floats().expect("kept as they are");
            let rows = |first: usize| Rows { data: &data[first..], stride, batch_stride };
            let (k, v) = (rows(first), rows(first + values));
            let inputs = Inputs {
                q: queries,
                k,
                v,
                relative: Some(self.relative(pass.params, r)),
                distances: None,
                padding: None,
                lengths: None,
            };
            attention::forward(&shape, &inputs, &mut context, None);
            cache.forget();
            Buf::default()
        } else {
            let r = self.project_distances(pass, keys);
            let (k, v) = self.keys_and_values(keys, &kv);
            let inputs = Inputs {
                q: queries,
                k,
                v,
                relative: Some(self.relative(pass.params, &r)),
                distances: None,
                padding: None,
                lengths: None,
            };
            let kept = (!probabilities.is_empty()).then_some(&mut *probabilities);
            attention::forward(&shape, &inputs, &mut context, kept);
            r
        };
        let probabilities = Arc::new(probabilities);
        if pass.map.is_wanted() {
            pass.reports.add(AttentionMap { heads: self.heads, probabilities: probabilities.clone() });
        }
        let mut out = Buf::any(pass.rows() * self.d);
        pass.show(&self.out, &context);
        self.out.forward(pass.params, &context, &mut out);
        (out, Box::new(RelativeSaved { present, q, kv, r, probabilities, context }))
    }

    fn backward(&self, pass: &Pass<'_>, input: &[f32], saved: Saved, dout: &[f32], grads: &mut Grads) -> Buf {
        let RelativeSaved { present, q, kv, r, probabilities, context } =
            *saved.downcast().expect("what this layer saved");
        let a = self.heads * self.d_head;
        let rows = input.len() / self.d;
        let keys = rows / pass.batch;
        let mut dcontext = Buf::any(context.len());
        self.out.backward_input(pass.params, dout, &mut dcontext, false);
        self.out.backward_params(&context, dout, grads);
        let (mut dq, mut dkv, mut dr) = (Buf::any(q.len()), Buf::any(kv.len()), Buf::any(r.len()));
        let parts = MatMut::new(&mut dkv, rows, 2 * a).split(&[rows], &[a, 2 * a]);
        let [dk, dv] = <[_; 2]>::try_from(parts).unwrap_or_else(|_| unreachable!("two parts")).map(|(_, _, part)| part);
        let (k, v) = self.keys_and_values(keys, &kv);
        let inputs = Inputs {
            q: self.queries(pass, &q),
            k,
            v,
            relative: Some(self.relative(pass.params, &r)),
            distances: None,
            padding: None,
            lengths: None,
        };
        let [du, dv_bias] = grads.add_two(self.u, self.v);
        let relative = Some(RelativeGradients { dr: &mut dr, du, dv: dv_bias });
        let gradients = Gradients { dq: MatMut::new(&mut dq, pass.rows(), a), dk, dv, relative, distances: None };
        let maps = (&**probabilities, pass.map.gradient());
        attention::backward_with_maps(&self.shape(pass, keys), &inputs, maps, &dcontext, gradients);

        let distances = distances(pass.context.get());
        self.r.backward_params(&distances[distances.len() - keys * self.d..], &dr, grads);
        self.q.backward_params(&present, &dq, grads);
        self.kv.backward_params(input, &dkv, grads);
        let mut dinput = Buf::any(input.len());
        self.kv.backward_input(pass.params, &dkv, &mut dinput, false);
        let mut dpresent = Buf::any(present.len());
        self.q.backward_input(pass.params, &dq, &mut dpresent, false);
        let behind = (keys - pass.len) * self.d;
        for (dinput, dpresent) in dinput.chunks_exact_mut(keys * self.d).zip(dpresent.chunks_exact(pass.len * self.d)) {
            dinput[behind..].iter_mut().zip(dpresent).for_each(|(to, from)| *to += from);
        }
        dinput
    }

    fn composed(&self, graph: &Graph<'_>, input: &Tensor) -> candle_core::Result<Tensor> {
        let a = self.heads * self.d_head;
        let keys = input.dim(0)? / graph.batch;
        let present = input.reshape((graph.batch, keys, self.d))?.narrow(1, keys - graph.len, graph.len)?;
        let q = self.q.composed(graph, &present.reshape(((), self.d))?)?.reshape((graph.batch, graph.len, a))?;
        let kv = self.kv.composed(graph, input)?.reshape((graph.batch, keys, 2 * a))?;
        let (k, v) = (kv.narrow(2, 0, a)?, kv.narrow(2, a, a)?);
        let distances = graph.rows(distances(graph.get()), self.d)?;
        let r = self.r.composed(graph, &distances.narrow(0, distances.dim(0)? - keys, keys)?)?;
        let (to_keys, to_positions) = (graph.var(self.u).flatten_all()?, graph.var(self.v).flatten_all()?);
        let context = attention::composed(
            self.heads,
            self.heads,
            self.mask,
            None,
            [&q, &k, &v],
            ComposedPositions::Relative([&r, &to_keys, &to_positions]),
        )?;
        self.out.composed(graph, &context.reshape(((), a))?)
    }

    fn onnx(&self, pass: &mut OnnxPass<'_>, input: &Value) -> Result<Value, String> {
        Ok(self.nodes(pass, input))
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        [&mut self.q, &mut self.kv, &mut self.r, &mut self.out].map(|linear| &mut linear.matrix).into()
    }

    fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
        self.matrices().into_iter().for_each(|matrix| matrix.set_precision(precision));
    }

    fn init_memory(&self, batch: usize) -> LayerState {
        LayerState::Memory(Buf::zeros(batch * self.mem_len * self.d))
    }

    fn init_cache(&self, pass: &Pass<'_>, memory: &[f32]) -> LayerState {
        let a = self.heads * self.d_head;
        let mut kv = Buf::any(memory.len() / self.d * 2 * a);
        self.kv.forward(pass.params, memory, &mut kv);
        let mut cache =
            Cache::new(pass.batch, (2 * a, self.d_head), self.mem_len, 2 * self.mem_len + pass.len, KeptAs::F32);
        cache.append(pass.batch, 2 * a, &kv, 2 * a, 0);
        LayerState::Cache(cache)
    }

    fn units(&self) -> Vec<Units> {
        let width = self.d_head;
        let slices = Slice::outputs(&self.q, 3, width).chain([Slice::inputs(&self.out, 1, width)]);
        let biases = [self.u, self.v].map(|param| Slice { param, axis: 0, repeats: 1, width: 1, writes: false });
        let slices = slices.chain(Slice::outputs(&self.r, 1, width)).chain(biases).collect();
        vec![Units { knobs: vec![("heads", 1)], count: self.heads, slices }]
    }
}

/// The distances that a pass must have.
fn distances(context: Option<&Distances>) -> &[f32] {
    &context.expect("a backbone of relative positions has distances").0
}
