//! Attention by dot products: softmax(q k^T / sqrt(K)) v, causal or full, with padding; queries, keys and values from one
//! matrix or three, heads of keys and values shared by groups of queries, queries and keys normed by head and rotated by
//! their places, as the backbone has it.

mod onnx;

use super::{Buckets, Heads, ROLE, Rotary};
use crate::build::Site;
use crate::composed::Graph;
use crate::layer::{Cache, CacheKind, Layer, LayerState, Pass, Saved, Slice, Sublayer, Units};
use crate::linear::{Linear, Matrix};
use crate::norm::NormParams;
use crate::onnx::OnnxPass;
use crate::params::{Builder, Grads, ParamId};
use crate::ragged::PartPlace;
use crate::taps::AttentionMap;
use crate::unpadded::Unpadded;
use candle_core::Tensor;
use lathe_core::Frame;
use lathe_onnx::Value;
use lathe_ops::Precision;
use lathe_ops::attention::{self, ComposedPositions, Gradients, Inputs, KeptAs, KeptPart, Mask, Rows, Shape};
use lathe_ops::buffer::Buf;
use lathe_ops::gemm::{Mat, MatMut};
use lathe_ops::rope::Rope;
use std::sync::Arc;

/// The layer of so many heads.
pub(super) fn build(
    sizes: Heads,
    (causal, rotary): (bool, Option<Rotary>),
    frame: &Frame,
    site: &Site<'_>,
    builder: &mut Builder,
) -> Option<Box<dyn Layer>> {
    let style = site.attention();
    let (d, a, g) = (frame.d_model as usize, sizes.a() as usize, sizes.g() as usize);
    let d_head = sizes.d_head as usize;
    let norm = site.norm(builder, ROLE, "attn.norm");
    let mut linear = |part: &str, sizes: [usize; 2], deviation: f32, bias: bool| {
        site.linear(builder, &site.name(ROLE, part), sizes, deviation, bias)
    };
    let qkv = match style.fused {
        true => vec![linear("attn.qkv", [d, a + 2 * g], site.style.deviation, style.qkv_bias)],
        false => [("attn.q", a), ("attn.k", g), ("attn.v", g)]
            .map(|(part, width)| linear(part, [d, width], site.style.deviation, style.qkv_bias))
            .into(),
    };
    let out = linear("attn.out", [a, d], site.style.output_deviation, style.out_bias);
    let head_norms = style.head_norm.map(|kind| {
        ["attn.q_norm", "attn.k_norm"]
            .map(|part| NormParams::new(builder, &site.name(ROLE, part), kind, d_head, site.style.norm_deviation))
    });
    let sublayer = DotAttention {
        qkv,
        out,
        head_norms,
        buckets: style.buckets.map(|buckets| (buckets, buckets.param(frame, builder))),
        rope: rotary.map(|rotary| Rope::new(d_head, rotary.theta, rotary.scaling)),
        heads: sizes.heads as usize,
        kv_heads: sizes.kv_heads as usize,
        d_head,
        mask: if causal { Mask::Causal } else { Mask::Full },
        max_len: frame.max_len as usize,
        salt: site.salt(2),
        precision: Precision::F32,
    };
    site.residual(sublayer, norm)
}

/// Attention at work.
struct DotAttention {
    /// One matrix for queries, keys and values, or one each.
    qkv: Vec<Linear>,
    out: Linear,
    /// Of queries and of keys.
    head_norms: Option<[NormParams; 2]>,
    /// Biases by distance, and their table.
    buckets: Option<(Buckets, ParamId)>,
    rope: Option<Rope>,
    heads: usize,
    kv_heads: usize,
    d_head: usize,
    mask: Mask,
    max_len: usize,
    salt: u64,
    precision: Precision,
}

struct DotSaved {
    /// As attention reads them, [B * T, A + 2 G].
    qkv: Buf,
    /// Queries and keys before their norms, with the norms' statistics.
    heads: Vec<(Buf, Buf)>,
    probabilities: Arc<Buf>,
    context: Buf,
}

impl DotAttention {
    fn a(&self) -> usize {
        self.heads * self.d_head
    }

    fn g(&self) -> usize {
        self.kv_heads * self.d_head
    }

    /// A + 2 G
    fn width(&self) -> usize {
        self.a() + 2 * self.g()
    }

    /// Where queries, keys and values end in a row of all three.
    fn ends(&self) -> [usize; 3] {
        [self.a(), self.a() + self.g(), self.width()]
    }

    /// Of as many keys as queries, or of so many.
    fn shape(&self, pass: &Pass<'_>, keys: Option<usize>) -> Shape {
        let (batch, queries) = pass.sequences();
        Shape {
            batch,
            queries,
            keys: keys.unwrap_or(queries),
            heads: self.heads,
            kv_heads: self.kv_heads,
            d_head: self.d_head,
            mask: self.mask,
            dropout: pass.dropout[1].with(self.salt),
            precision: self.precision,
        }
    }

    /// Biases by distance, [H, 2 T - 1], where there are any.
    fn distances(&self, pass: &Pass<'_>) -> Option<Buf> {
        let (_, len) = pass.sequences();
        self.buckets.map(|(buckets, table)| buckets.by_distance(pass.params.get(table), self.heads, len))
    }

    /// Queries, keys and values side by side, [B * T, A + 2 G].
    fn inputs<'a>(&self, pass: &Pass<'a>, qkv: &'a [f32], distances: Option<&'a [f32]>) -> Inputs<'a> {
        let width = self.width();
        let rows = |first: usize| Rows { data: &qkv[first..], stride: width, batch_stride: width * pass.len };
        let [k, v, _] = self.ends();
        let lengths = pass.unpadded.map(Unpadded::lengths);
        Inputs { q: rows(0), k: rows(k), v: rows(v), relative: None, distances, padding: pass.mask, lengths }
    }

    /// Queries, keys and values of an input, as they come from their matrices.
    fn project(&self, pass: &Pass<'_>, input: &[f32]) -> Buf {
        let rows = pass.rows();
        let mut qkv = Buf::any(rows * self.width());
        match &self.qkv[..] {
            [all] => all.forward(pass.params, input, &mut qkv),
            parts => {
                let x = Mat::new(input, rows, input.len() / rows);
                let columns = MatMut::new(&mut qkv, rows, self.width()).split(&[rows], &self.ends());
                Linear::forward_parts(parts, pass.params, x, columns.into_iter().map(|(_, _, y)| y).collect());
            }
        }
        qkv
    }

    /// Turns queries and keys by their places, where the backbone does that.
    fn rotate(&self, pass: &Pass<'_>, qkv: &mut [f32], positions: &[usize]) {
        let Some(rope) = &self.rope else { return };
        for (first, count) in self.rotated() {
            rope.forward(MatMut::with_stride(&mut qkv[first..], pass.rows(), count, self.width()), positions);
        }
    }

    /// First column and number of columns of queries, and of keys.
    fn rotated(&self) -> [(usize, usize); 2] {
        [(0, self.a()), (self.a(), self.g())]
    }

    /// Norms queries and keys by head, in place. Returns what the way back needs.
    fn norm_heads(&self, pass: &Pass<'_>, qkv: &mut [f32]) -> Vec<(Buf, Buf)> {
        let norms = self.head_norms.iter().flatten().zip(self.rotated());
        let each = norms.map(|(norm, columns)| {
            let before = take_columns(qkv, self.width(), columns);
            let (after, stats) = norm.forward(pass.params, &before);
            put_columns(&after, qkv, self.width(), columns);
            (before, stats)
        });
        each.collect()
    }
}

/// The places of `len` tokens after `before` others.
fn positions(before: usize, len: usize) -> Vec<usize> {
    (before..before + len).collect()
}

/// Some columns of a matrix of a width, as a matrix of their own.
fn take_columns(from: &[f32], width: usize, (first, count): (usize, usize)) -> Buf {
    let mut to = Buf::any(from.len() / width * count);
    for (to, from) in to.chunks_exact_mut(count).zip(from.chunks_exact(width)) {
        to.copy_from_slice(&from[first..first + count]);
    }
    to
}

/// The way back of [`take_columns`].
fn put_columns(from: &[f32], to: &mut [f32], width: usize, (first, count): (usize, usize)) {
    for (to, from) in to.chunks_exact_mut(width).zip(from.chunks_exact(count)) {
        to[first..first + count].copy_from_slice(from);
    }
}

impl Sublayer for DotAttention {
    fn forward(&self, pass: &Pass<'_>, input: &[f32], state: &mut LayerState) -> (Buf, Saved) {
        let (a, g) = (self.a(), self.g());
        let mut qkv = self.project(pass, input);
        let heads = self.norm_heads(pass, &mut qkv);
        self.rotate(pass, &mut qkv, &pass.positions());
        let mut context = Buf::any(pass.rows() * a);
        let mut probabilities = pass.room_for_maps(self.heads, pass.len);
        let distances = self.distances(pass);
        let inputs = self.inputs(pass, &qkv, distances.as_deref());
        match state {
            LayerState::Cache(cache) => {
                let first = cache.append(pass.batch, 2 * g, &qkv, self.width(), a);
                let kept = cache.keys_and_values(first, g);
                attention::forward_kept(&self.shape(pass, Some(cache.len)), inputs.q, &kept, &mut context);
            }
            _ => attention::forward(
                &self.shape(pass, None),
                &inputs,
                &mut context,
                (!probabilities.is_empty()).then_some(&mut *probabilities),
            ),
        }
        let probabilities = Arc::new(probabilities);
        if pass.map.is_wanted() {
            pass.reports.add(AttentionMap { heads: self.heads, probabilities: probabilities.clone() });
        }
        let mut out = Buf::any(input.len());
        pass.show(&self.out, &context);
        self.out.forward(pass.params, &context, &mut out);
        (out, Box::new(DotSaved { qkv, heads, probabilities, context }))
    }

    fn forward_ragged(
        &self,
        pass: &Pass<'_>,
        input: &[f32],
        parts: &[PartPlace],
        states: &mut [&mut LayerState],
    ) -> Option<Buf> {
        let (a, g, width) = (self.a(), self.g(), self.width());
        if !states.iter().all(|state| matches!(state, LayerState::Cache(_))) {
            return None;
        }
        let mut qkv = self.project(pass, input);
        self.norm_heads(pass, &mut qkv);
        let places: Vec<usize> = parts.iter().flat_map(|part| positions(part.position, part.len)).collect();
        self.rotate(pass, &mut qkv, &places);
        let mut context = Buf::any(pass.rows() * a);
        let (mut rest, mut out, mut kept) = (&qkv[..], &mut context[..], Vec::new());
        for (part, state) in parts.iter().zip(states) {
            let LayerState::Cache(cache) = &mut **state else { return None };
            let (own, rest_after) = rest.split_at(part.len * width);
            let (own_out, out_after) = out.split_at_mut(part.len * a);
            let first = cache.append(1, 2 * g, own, width, a);
            let shape = Shape { batch: 1, queries: part.len, ..self.shape(pass, Some(cache.len)) };
            let q = Rows { data: own, stride: width, batch_stride: own.len() };
            kept.push(KeptPart { shape, q, rows: cache.keys_and_values(first, g), out: own_out });
            (rest, out) = (rest_after, out_after);
        }
        attention::forward_kept_parts(kept);
        let mut y = Buf::any(input.len());
        self.out.forward(pass.params, &context, &mut y);
        Some(y)
    }

    fn takes_unpadded(&self) -> bool {
        true
    }

    fn backward(&self, pass: &Pass<'_>, input: &[f32], saved: Saved, dout: &[f32], grads: &mut Grads) -> Buf {
        let DotSaved { qkv, heads, probabilities, context } = *saved.downcast().expect("what this layer saved");
        let mut dcontext = Buf::any(context.len());
        self.out.backward_input(pass.params, dout, &mut dcontext, false);
        self.out.backward_params(&context, dout, grads);
        let mut dqkv = Buf::any(qkv.len());
        let (rows, width) = (pass.rows(), self.width());
        let parts = MatMut::new(&mut dqkv, rows, width).split(&[rows], &self.ends());
        let [dq, dk, dv] =
            <[_; 3]>::try_from(parts).unwrap_or_else(|_| unreachable!("three parts")).map(|(_, _, part)| part);
        let distances = self.distances(pass);
        let mut ddistances = distances.as_ref().map(|all| Buf::zeros(all.len()));
        let gradients =
            Gradients { dq, dk, dv, relative: None, distances: ddistances.as_mut().map(|all| &mut all[..]) };
        let inputs = self.inputs(pass, &qkv, distances.as_deref());
        let maps = (&**probabilities, pass.map.gradient());
        attention::backward_with_maps(&self.shape(pass, None), &inputs, maps, &dcontext, gradients);
        if let (Some((buckets, table)), Some(ddistances)) = (&self.buckets, ddistances) {
            buckets.backward(&ddistances, self.heads, pass.sequences().1, grads.add(*table));
        }
        if let Some(rope) = &self.rope {
            for (first, count) in self.rotated() {
                let columns = MatMut::with_stride(&mut dqkv[first..], rows, count, width);
                rope.backward(columns, &pass.positions());
            }
        }
        let norms = self.head_norms.iter().flatten().zip(self.rotated()).zip(&heads);
        for ((norm, columns), (before, stats)) in norms {
            let dafter = take_columns(&dqkv, width, columns);
            let mut dbefore = Buf::zeros(dafter.len());
            norm.backward(pass.params, before, stats, &dafter, &mut dbefore, grads);
            put_columns(&dbefore, &mut dqkv, width, columns);
        }
        let mut dinput = Buf::any(input.len());
        match &self.qkv[..] {
            [all] => {
                all.backward_input(pass.params, &dqkv, &mut dinput, false);
                all.backward_params(input, &dqkv, grads);
            }
            parts => {
                let (x, all) = (Mat::new(input, rows, input.len() / rows), Mat::new(&dqkv, rows, width));
                let mut first = 0;
                for (i, linear) in parts.iter().enumerate() {
                    let dy = all.cols_from(first, linear.outputs());
                    linear.backward_input_from(pass.params, dy, &mut dinput, i > 0);
                    linear.backward_params_from(x, dy, grads);
                    first += linear.outputs();
                }
            }
        }
        dinput
    }

    fn composed(&self, graph: &Graph<'_>, input: &Tensor) -> candle_core::Result<Tensor> {
        let parts =
            self.qkv.iter().map(|linear| linear.composed(graph, input)).collect::<candle_core::Result<Vec<_>>>()?;
        let qkv = Tensor::cat(&parts, 1)?;
        let [k, v, _] = self.ends();
        let columns = [(0, self.a()), (k, self.g()), (v, self.g())];
        let mut each = Vec::new();
        for (i, (first, count)) in columns.into_iter().enumerate() {
            let mut x = qkv.narrow(1, first, count)?.contiguous()?;
            if let (Some(norms), true) = (&self.head_norms, i < 2) {
                x = norms[i].composed(graph, &x.reshape(((), self.d_head))?)?.reshape(((), count))?;
            }
            x = x.reshape((graph.batch, graph.len, count))?;
            if let (Some(rope), true) = (&self.rope, i < 2) {
                x = rope.composed(&x, &positions(graph.position, graph.len))?;
            }
            each.push(x);
        }
        let distances = match &self.buckets {
            Some((buckets, table)) => {
                let (table, buckets) = (graph.var(*table), buckets.of_text(graph.len));
                let columns = table.dim(1)?;
                let rows: Vec<u32> = buckets.into_iter().map(|bucket| bucket as u32).collect();
                let heads: Vec<u32> = (0..self.heads).map(|h| (h % columns) as u32).collect();
                let index = |list: Vec<u32>| Tensor::new(list, table.device());
                Some(table.index_select(&index(rows)?, 0)?.index_select(&index(heads)?, 1)?.t()?.contiguous()?)
            }
            None => None,
        };
        let positions = distances.as_ref().map_or(ComposedPositions::None, ComposedPositions::Distances);
        let context = attention::composed(
            self.heads,
            self.kv_heads,
            self.mask,
            graph.mask.as_deref(),
            [&each[0], &each[1], &each[2]],
            positions,
        )?;
        self.out.composed(graph, &context.reshape(((), self.a()))?)
    }

    fn onnx(&self, pass: &mut OnnxPass<'_>, input: &Value) -> Result<Value, String> {
        Ok(self.nodes(pass, input))
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        self.qkv.iter_mut().chain([&mut self.out]).map(|linear| &mut linear.matrix).collect()
    }

    fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
        self.matrices().into_iter().for_each(|matrix| matrix.set_precision(precision));
    }

    fn init_cache(&self, pass: &Pass<'_>, _: &[f32]) -> LayerState {
        match self.mask {
            Mask::Causal => {
                let kind = pass.context.get::<CacheKind>().map_or(KeptAs::F32, |kind| kind.0);
                let sizes = (2 * self.g(), self.d_head);
                LayerState::Cache(Cache::new(pass.batch, sizes, self.max_len, self.max_len, kind))
            }
            _ => LayerState::None, // nothing to decode one token at a time
        }
    }

    /// Heads, or groups of them where they share keys and values; none where each has biases in a table of all layers.
    fn units(&self) -> Vec<Units> {
        if self.buckets.is_some() {
            return Vec::new();
        }
        let group = self.heads / self.kv_heads * self.d_head;
        let of_qkv: Vec<Slice> = match &self.qkv[..] {
            [all] => Slice::outputs(all, 3, self.d_head).collect(),
            [q, k, v] => Slice::outputs(q, 1, group)
                .chain(Slice::outputs(k, 1, self.d_head))
                .chain(Slice::outputs(v, 1, self.d_head))
                .collect(),
            _ => return Vec::new(),
        };
        if self.qkv.len() == 1 && self.heads != self.kv_heads {
            return Vec::new();
        }
        let slices = of_qkv.into_iter().chain([Slice::inputs(&self.out, 1, group)]).collect();
        let knobs = vec![("heads", (self.heads / self.kv_heads) as u32), ("kv_heads", 1)];
        vec![Units { knobs, count: self.kv_heads, slices }]
    }
}
