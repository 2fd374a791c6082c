//! Multi-head self-attention, `s`.
//!
//! With A = heads * head width:
//!
//! - `gpt2` (Radford et al., 2019): softmax(q k^T / sqrt(K)) v over T tokens; q, k, v and the output
//!   projection with bias.
//! - `transformer_xl` (Dai et al., 2019): keys and values over memory and segment, M + T, and a score
//!   (q + u) k^T + (q + v) r^T with projected relative positions r; no bias, but u and v per layer.
//!
//! | | parameters | FLOPs of one sequence |
//! |---|---|---|
//! | gpt2 | 4 D A + 3 A + D | 2 T 4 D A + 2 * 2 T T A |
//! | transformer_xl | 5 D A + 2 A | 2 D A (2 T + 3 (M + T)) + 3 * 2 T (M + T) A |

use super::{BYTES, Build, DEVIATION, Names, memory_bytes, norm_deviation, output_deviation};
use crate::composed::Graph;
use crate::layer::{Cache, LayerState, NormParams, Pass, Saved, Sublayer};
use crate::params::{Builder, Grads, Init, Layout, Linear, ParamId, Params};
use candle_core::Tensor;
use lathe_core::{Block, BlockKind, Cost, Domain, Error, Frame, Knob, MAX_WIDTH, Positions, Result, Setting};
use lathe_ops::Precision;
use lathe_ops::attention::{self, Gradients, Inputs, Mask, Relative, RelativeGradients, Rows, Shape};
use lathe_ops::buffer::Buf;
use lathe_ops::gemm::MatMut;

pub(super) struct Attention;

const HEADS: usize = 0;
const D_HEAD: usize = 1;
/// The widest A, which keeps every count within its integer.
const MAX_A: u64 = 1 << 20;

/// Heads, and the width of each.
fn shape(block: &Block, frame: &Frame) -> (u32, u32) {
    let heads = block.get(HEADS).unwrap_or(frame.heads);
    let d_head = block.get(D_HEAD).or(frame.d_head).unwrap_or(frame.d_model / heads);
    (heads, d_head)
}

impl BlockKind for Attention {
    fn key(&self) -> &'static str {
        "attention"
    }

    fn letter(&self) -> Option<char> {
        Some('s')
    }

    fn knobs(&self) -> &'static [Knob] {
        const DOMAIN: Domain = Domain::Int { min: 1, max: MAX_WIDTH };
        &[
            Knob { name: "heads", mark: Some(""), domain: DOMAIN },
            Knob { name: "d_head", mark: Some("d"), domain: DOMAIN },
        ]
    }

    fn resolve(&self, block: &Block, frame: &Frame) -> Block {
        let (heads, d_head) = shape(block, frame);
        let mut block = *block;
        block.set(HEADS, heads);
        block.set(D_HEAD, d_head);
        block
    }

    fn check(&self, block: &Block, frame: &Frame) -> Result<()> {
        let (heads, d_head) = shape(block, frame);
        let wrong = |found: String, expected: String| Err(Error::value("heads", found, expected));
        if heads > frame.d_model {
            return wrong(heads.to_string(), format!("at most d_model, which is {}", frame.d_model));
        }
        if u64::from(heads) * u64::from(d_head) > MAX_A {
            return wrong(format!("{heads} heads of width {d_head}"), format!("heads * d_head of at most {MAX_A}"));
        }
        Ok(())
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        let (heads, d_head) = shape(block, frame);
        let d = u64::from(frame.d_model);
        let a = u64::from(heads) * u64::from(d_head);
        let params = match frame.backbone.positions {
            Positions::Relative => 5 * d * a + 2 * a,
            Positions::Learned => 4 * d * a + 3 * a + d,
        };

        let (b, t, m) = (u128::from(setting.batch), u128::from(setting.tgt_len), u128::from(setting.mem_len));
        let (h, wide_a, wide_d) = (u128::from(heads), u128::from(a), u128::from(d));
        // Per sequence: multiply-adds of the projections and of the products, and floats written.
        let (projections, products, floats, state) = match frame.backbone.positions {
            Positions::Relative => {
                let all = m + t;
                let projections = wide_d * wide_a * (2 * t + 3 * all);
                let products = 3 * t * all * wide_a;
                // norm, q, [k, v, r], probabilities, context, output
                let floats = t * wide_d + t * wide_a + 3 * all * wide_a + h * t * all + t * wide_a + t * wide_d;
                (projections, products, floats, memory_bytes(frame, setting.mem_len))
            }
            Positions::Learned => {
                let projections = wide_d * wide_a * 4 * t;
                let products = 2 * t * t * wide_a;
                let floats = t * wide_d + 3 * t * wide_a + h * t * t + t * wide_a + t * wide_d;
                (projections, products, floats, 2 * wide_a * BYTES * u128::from(frame.max_len))
            }
        };
        Cost {
            params,
            norm_params: 2 * d,
            flops: b * 2 * (projections + products),
            activation_bytes: b * BYTES * floats,
            state_bytes: state,
        }
    }
}

impl Build for Attention {
    fn build(
        &self,
        block: &Block,
        frame: &Frame,
        names: &Names,
        builder: &mut Builder,
    ) -> Option<(Box<dyn Sublayer>, NormParams)> {
        let (heads, d_head) = shape(block, frame);
        let (heads, d_head, d) = (heads as usize, d_head as usize, frame.d_model as usize);
        let a = heads * d_head;
        let layer = &names.layer;
        let salt = names.salt(2);
        if frame.backbone.positions == Positions::Learned {
            let norm = NormParams::new(builder, &format!("{layer}.ln_1"), d, norm_deviation(frame));
            let mut linear = |name: &str, inputs: usize, outputs: usize, deviation: f32| {
                let weight = builder.param(
                    format!("{layer}.attn.{name}.weight"),
                    &[inputs, outputs],
                    Init::Normal(0.0, deviation),
                );
                let bias = builder.param(format!("{layer}.attn.{name}.bias"), &[outputs], Init::Constant(0.0));
                Linear::new(weight, Some(bias), Layout::InOut, inputs, outputs)
            };
            let qkv = linear("c_attn", d, 3 * a, DEVIATION);
            let out = linear("c_proj", a, d, output_deviation(frame, names));
            return Some((
                Box::new(AbsoluteAttention {
                    qkv,
                    out,
                    heads,
                    d_head,
                    max_len: frame.max_len as usize,
                    salt,
                    precision: Precision::F32,
                }),
                norm,
            ));
        }
        let norm = NormParams::new(builder, &format!("{layer}.dec_attn.layer_norm"), d, norm_deviation(frame));
        let mut param = |name: &str, shape: &[usize]| {
            builder.param(format!("{layer}.dec_attn.{name}"), shape, Init::Normal(0.0, DEVIATION))
        };
        let qkv = Linear::new(param("qkv_net.weight", &[3 * a, d]), None, Layout::OutIn, d, 3 * a);
        let out = Linear::new(param("o_net.weight", &[d, a]), None, Layout::OutIn, a, d);
        let r = Linear::new(param("r_net.weight", &[a, d]), None, Layout::OutIn, d, a);
        let (u, v) = (param("r_w_bias", &[heads, d_head]), param("r_r_bias", &[heads, d_head]));
        let mask = if frame.same_length { Mask::Window(frame.mem_len as usize) } else { Mask::Causal };
        let (q, kv) = (qkv.part(0, a), qkv.part(a, 2 * a));
        let mem_len = frame.mem_len as usize;
        Some((
            Box::new(RelativeAttention {
                q,
                kv,
                r,
                out,
                u,
                v,
                heads,
                d_head,
                d,
                mem_len,
                mask,
                salt,
                precision: Precision::F32,
            }),
            norm,
        ))
    }
}

/// Attention of a gpt2.
struct AbsoluteAttention {
    qkv: Linear,
    out: Linear,
    heads: usize,
    d_head: usize,
    max_len: usize,
    salt: u64,
    precision: Precision,
}

struct AbsoluteSaved {
    qkv: Buf,
    probabilities: Buf,
    context: Buf,
}

impl AbsoluteAttention {
    fn shape(&self, pass: &Pass<'_>, keys: usize) -> Shape {
        Shape {
            batch: pass.batch,
            queries: pass.len,
            keys,
            heads: self.heads,
            kv_heads: self.heads,
            d_head: self.d_head,
            mask: Mask::Causal,
            dropout: pass.dropout[1].with(self.salt),
            precision: self.precision,
        }
    }

    /// Queries, keys and values side by side, [B * T, 3 A].
    fn inputs<'a>(&self, pass: &Pass<'_>, qkv: &'a [f32]) -> Inputs<'a> {
        let a = self.heads * self.d_head;
        let rows = |first: usize| Rows { data: &qkv[first * a..], stride: 3 * a, batch_stride: 3 * a * pass.len };
        Inputs { q: rows(0), k: rows(1), v: rows(2), relative: None, padding: None }
    }
}

impl Sublayer for AbsoluteAttention {
    fn forward(&self, pass: &Pass<'_>, input: &[f32], state: &mut LayerState) -> (Buf, Saved) {
        let a = self.heads * self.d_head;
        let mut qkv = Buf::any(pass.rows() * 3 * a);
        self.qkv.forward(pass.params, input, &mut qkv);
        let mut context = Buf::any(pass.rows() * a);
        let mut probabilities = Buf::any(if pass.keep { self.heads * pass.rows() * pass.len } else { 0 });
        let inputs = self.inputs(pass, &qkv);
        match state {
            LayerState::Cache(cache) => {
                let first = cache.append(pass.batch, 2 * a, &qkv, 3 * a, a);
                let (k, v) = cache.keys_and_values(first, a);
                attention::forward(&self.shape(pass, cache.len), &Inputs { k, v, ..inputs }, &mut context, None);
            }
            _ => attention::forward(
                &self.shape(pass, pass.len),
                &inputs,
                &mut context,
                pass.keep.then_some(&mut *probabilities),
            ),
        }
        let mut out = Buf::any(input.len());
        self.out.forward(pass.params, &context, &mut out);
        (out, Box::new(AbsoluteSaved { qkv, probabilities, context }))
    }

    fn backward(&self, pass: &Pass<'_>, input: &[f32], saved: Saved, dout: &[f32], grads: &mut Grads) -> Buf {
        let AbsoluteSaved { qkv, probabilities, context } = *saved.downcast().expect("what this layer saved");
        let a = self.heads * self.d_head;
        let mut dcontext = Buf::any(context.len());
        self.out.backward_input(pass.params, dout, &mut dcontext, false);
        self.out.backward_params(&context, dout, grads);
        let mut dqkv = Buf::any(qkv.len());
        let rows = pass.rows();
        let parts = MatMut::new(&mut dqkv, rows, 3 * a).split(&[rows], &[a, 2 * a, 3 * a]);
        let [dq, dk, dv] =
            <[_; 3]>::try_from(parts).unwrap_or_else(|_| unreachable!("three parts")).map(|(_, _, part)| part);
        let gradients = Gradients { dq, dk, dv, relative: None };
        attention::backward(
            &self.shape(pass, pass.len),
            &self.inputs(pass, &qkv),
            &probabilities,
            &dcontext,
            gradients,
        );
        let mut dinput = Buf::any(input.len());
        self.qkv.backward_input(pass.params, &dqkv, &mut dinput, false);
        self.qkv.backward_params(input, &dqkv, grads);
        dinput
    }

    fn composed(&self, graph: &Graph<'_>, input: &Tensor) -> candle_core::Result<Tensor> {
        let a = self.heads * self.d_head;
        let qkv = self.qkv.composed(graph, input)?.reshape((graph.batch, graph.len, 3 * a))?;
        let [q, k, v] = [0, 1, 2].map(|i| qkv.narrow(2, i * a, a));
        let context = attention::composed(self.heads, self.heads, Mask::Causal, None, [&q?, &k?, &v?], None)?;
        self.out.composed(graph, &context.reshape(((), a))?)
    }

    fn linears(&mut self) -> Vec<&mut Linear> {
        vec![&mut self.qkv, &mut self.out]
    }

    fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
        self.linears().into_iter().for_each(|linear| linear.set_precision(precision));
    }

    fn cache(&self, pass: &Pass<'_>, _: &[f32]) -> LayerState {
        LayerState::Cache(Cache::new(pass.batch, 2 * self.heads * self.d_head, self.max_len, self.max_len))
    }
}

/// Attention of a transformer_xl.
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
    probabilities: Buf,
    context: Buf,
}

impl RelativeAttention {
    fn shape(&self, pass: &Pass<'_>, keys: usize) -> Shape {
        Shape {
            batch: pass.batch,
            queries: pass.len,
            keys,
            heads: self.heads,
            kv_heads: self.heads,
            d_head: self.d_head,
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
        let distances = pass.distances.expect("a transformer_xl has distances");
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
        let mut probabilities = Buf::any(if pass.keep { self.heads * pass.rows() * keys } else { 0 });
        let shape = self.shape(pass, keys);
        let r = if let LayerState::Cache(cache) = state {
            let first = cache.append(pass.batch, 2 * a, &kv, 2 * a, 0);
            if cache.positions.as_ref().is_none_or(|(known, _)| *known != keys) {
                cache.positions = Some((keys, self.project_distances(pass, keys)));
            }
            let r = &cache.positions.as_ref().expect("just made").1;
            let (k, v) = cache.keys_and_values(first, a);
            let inputs = Inputs { q: queries, k, v, relative: Some(self.relative(pass.params, r)), padding: None };
            attention::forward(&shape, &inputs, &mut context, None);
            cache.forget();
            Buf::default()
        } else {
            let r = self.project_distances(pass, keys);
            let (k, v) = self.keys_and_values(keys, &kv);
            let inputs = Inputs { q: queries, k, v, relative: Some(self.relative(pass.params, &r)), padding: None };
            attention::forward(&shape, &inputs, &mut context, pass.keep.then_some(&mut *probabilities));
            r
        };
        let mut out = Buf::any(pass.rows() * self.d);
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
        let inputs =
            Inputs { q: self.queries(pass, &q), k, v, relative: Some(self.relative(pass.params, &r)), padding: None };
        let [du, dv_bias] = grads.add_two(self.u, self.v);
        let relative = Some(RelativeGradients { dr: &mut dr, du, dv: dv_bias });
        let gradients = Gradients { dq: MatMut::new(&mut dq, pass.rows(), a), dk, dv, relative };
        attention::backward(&self.shape(pass, keys), &inputs, &probabilities, &dcontext, gradients);

        let distances = pass.distances.expect("a transformer_xl has distances");
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
        let distances = graph.distances.as_ref().expect("a transformer_xl has distances");
        let r = self.r.composed(graph, &distances.narrow(0, distances.dim(0)? - keys, keys)?)?;
        let (to_keys, to_positions) = (graph.var(self.u).flatten_all()?, graph.var(self.v).flatten_all()?);
        let context = attention::composed(
            self.heads,
            self.heads,
            self.mask,
            None,
            [&q, &k, &v],
            Some([&r, &to_keys, &to_positions]),
        )?;
        self.out.composed(graph, &context.reshape(((), a))?)
    }

    fn linears(&mut self) -> Vec<&mut Linear> {
        vec![&mut self.q, &mut self.kv, &mut self.r, &mut self.out]
    }

    fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
        self.linears().into_iter().for_each(|linear| linear.set_precision(precision));
    }

    fn memory(&self, batch: usize) -> LayerState {
        LayerState::Memory(Buf::zeros(batch * self.mem_len * self.d))
    }

    fn cache(&self, pass: &Pass<'_>, memory: &[f32]) -> LayerState {
        let a = self.heads * self.d_head;
        let mut kv = Buf::any(memory.len() / self.d * 2 * a);
        self.kv.forward(pass.params, memory, &mut kv);
        let mut cache = Cache::new(pass.batch, 2 * a, self.mem_len, 2 * self.mem_len + pass.len);
        cache.append(pass.batch, 2 * a, &kv, 2 * a, 0);
        LayerState::Cache(cache)
    }
}
