//! A network as a graph of ONNX's operators: each part of it, from the stem to the output layer, adds itself to an
//! [`OnnxPass`], which knows what all of them share, as [`crate::layer::Pass`] does where they compute.
//!
//! | model | inputs | outputs |
//! |---|---|---|
//! | decoder | `input_ids` | `logits` |
//! | decoder with a cache | also `attention_mask`, `position_ids`, `past_key_values.N.key` and `.value` | also `present.N.key` and `.value` |
//! | decoder with a memory | also `mems.N`, zeros at first | also `new_mems.N` |
//! | encoder | `input_ids`, `attention_mask`, `token_type_ids` where there are several | `last_hidden_state`, `pooler_output`, `logits` of tokens or of a task, `pair_logits` beside those of tokens |

use crate::folder::FolderError;
use crate::head::PoolerAct;
use crate::network::Network;
use crate::params::{ParamId, Params};
use lathe_core::Model;
use lathe_onnx::{Dim, Graph, Kind, Tensor, Value};
use lathe_ops::activation::Act;
use std::collections::{HashMap, HashSet};

/// What is added to scores that do not count: large enough that nothing is left of them, and finite, so that rows of
/// padding alone stay numbers.
const MASKED: f32 = -1e30;

/// How a network becomes a graph.
#[derive(Debug, Clone, Copy, Default)]
pub struct OnnxOptions {
    /// Whether a decoder takes keys and values of earlier tokens, and gives those of all.
    pub cache: bool,
}

/// A graph under construction, and what its parts share.
pub struct OnnxPass<'a> {
    /// The nodes so far.
    pub graph: Graph,
    /// What the model is.
    pub model: &'a Model,
    pub(crate) params: &'a Params,
    /// Tokens, [B, T].
    pub ids: Value,
    cache: bool,
    /// Whether operators of ONNX Runtime are used where they are faster: integers are in any case.
    for_runtime: bool,
    /// Layers so far that have a cache.
    cached: usize,
    /// Layers so far that have a memory.
    remembered: usize,
    /// What was computed once for all, by name.
    shared: HashMap<String, Value>,
    /// What left a non-linearity: its rows are too different to be rounded by one scale.
    uneven: HashSet<Value>,
    /// Matrices that rows of tokens are read from.
    pub(crate) tables: HashMap<ParamId, Table>,
}

/// Rows of tokens as the graph has them, for an output layer that shares them.
#[derive(Clone)]
pub(crate) struct Table {
    /// Numbers or codes, a row for each token.
    pub codes: Value,
    /// Scales of codes.
    pub scales: Option<Value>,
    /// What is added to them.
    pub offsets: Option<Value>,
}

/// The graph of a network, or why there is none.
pub fn onnx_graph(network: &Network, options: &OnnxOptions) -> Result<Graph, FolderError> {
    let refused = |reason: String| FolderError::Refused { format: "an ONNX file", reason };
    build(network, options).map_err(refused)
}

fn build(network: &Network, options: &OnnxOptions) -> Result<Graph, String> {
    let (frame, body) = (&network.model.frame, &network.body);
    if options.cache && (!frame.backbone.causal() || frame.has_memory()) {
        return Err(format!("a {} has no cache of keys and values that a program could carry", frame.backbone.key()));
    }
    let mut graph = Graph::default();
    let ids = graph.input("input_ids", Kind::I64, &["batch".into(), "length".into()]);
    let mut pass = OnnxPass {
        graph,
        model: &network.model,
        params: network.params(),
        ids,
        cache: options.cache,
        for_runtime: network.params().iter().any(|param| !param.integers().is_empty()),
        cached: 0,
        remembered: 0,
        shared: HashMap::new(),
        uneven: HashSet::new(),
        tables: HashMap::new(),
    };
    pass.graph.enter("stem");
    let mut x = body.stem.onnx(&mut pass).map_err(|reason| format!("its embedding {reason}"))?;
    for (s, choices) in body.stack.slots.iter().enumerate() {
        let [choice] = &choices[..] else { return Err("it has several options for a block".into()) };
        let Some(layer) = &choice.layer else { continue };
        pass.graph.enter(format!("block_{s}"));
        let behind = choice.remembers.then(|| pass.remember(&x));
        let given = layer.onnx(&mut pass, &x, behind.as_ref());
        x = given.map_err(|reason| format!("block {s}, `{}`, {reason}", choice.block.kind.key()))?;
    }
    pass.graph.enter("top");
    if let Some(norm) = &body.top.norm {
        x = norm.onnx(&mut pass, &x);
    }
    let [batch, len, width]: [Dim; 3] = ["batch".into(), "length".into(), (frame.d_model as usize).into()];
    if !frame.backbone.causal() || body.top.head.is_none() {
        pass.graph.output("last_hidden_state", &x, Kind::F32, &[batch.clone(), len.clone(), width.clone()]);
    }
    let task_of_texts = body.top.task.as_ref().is_some_and(|task| !task.of_tokens);
    let mut of_text = None;
    if body.top.pooler.is_some() || task_of_texts {
        let (place, axis) = (pass.graph.ints(&[0]), pass.graph.ints(&[1]));
        let first = pass.graph.node("Gather", &[&x, &place], &[("axis", 1.into())]); // [B, 1, D]
        of_text = Some(pass.graph.node("Squeeze", &[&first, &axis], &[]));
    }
    if let (Some(pooler), Some(first)) = (&body.top.pooler, &of_text) {
        let dense = pooler.dense.onnx(&mut pass, first);
        let act = match pooler.act {
            PoolerAct::Tanh => "Tanh",
            PoolerAct::Relu => "Relu",
        };
        let pooled = pass.graph.node(act, &[&dense], &[]);
        pass.graph.output("pooler_output", &pooled, Kind::F32, &[batch.clone(), width]);
        of_text = Some(pooled);
    }
    if let Some(task) = &body.top.task {
        let (of_text, outputs) = (of_text.filter(|_| !task.of_tokens), task.dense.outputs().into());
        let numbers = task.dense.onnx(&mut pass, of_text.as_ref().unwrap_or(&x));
        let shape =
            if task.of_tokens { vec![batch.clone(), len.clone(), outputs] } else { vec![batch.clone(), outputs] };
        let name = if body.top.head.is_some() { "pair_logits" } else { "logits" };
        pass.graph.output(name, &numbers, Kind::F32, &shape);
    }
    if let Some(head) = &body.top.head {
        let logits = head.onnx(&mut pass, &x).map_err(|reason| format!("its output layer {reason}"))?;
        pass.graph.output("logits", &logits, Kind::F32, &[batch, len, (frame.vocab as usize).into()]);
    }
    Ok(pass.graph)
}

impl OnnxPass<'_> {
    /// What is computed once, by its name.
    pub fn once(&mut self, name: impl Into<String>, make: impl FnOnce(&mut Self) -> Value) -> Value {
        let name = name.into();
        if let Some(known) = self.shared.get(&name) {
            return known.clone();
        }
        let value = make(self);
        self.shared.insert(name, value.clone());
        value
    }

    /// A parameter that is held as f32, as vectors are.
    pub fn vector(&mut self, id: ParamId) -> Value {
        let param = self.params.param(id);
        self.once(param.name.clone(), |pass| {
            pass.graph.weight(&param.name, Tensor::floats(&param.shape, pass.params.get(id)))
        })
    }

    /// An input of whole numbers [B, T], or of keys [B, S].
    fn tokens_input(&mut self, name: &str, len: &str) -> Value {
        self.once(name, |pass| pass.graph.input(name, Kind::I64, &["batch".into(), len.into()]))
    }

    /// Which of several texts tokens are of, [B, T].
    pub fn segments(&mut self) -> Value {
        self.tokens_input("token_type_ids", "length")
    }

    /// Which tokens count: [B, T] of an encoder, [B, S] of a decoder with a cache; none where all do.
    pub(crate) fn mask(&mut self) -> Option<Value> {
        let len = if self.cache { "total" } else { "length" };
        let has_one = self.cache || !self.model.frame.backbone.causal();
        has_one.then(|| self.tokens_input("attention_mask", len))
    }

    /// The size along an axis, as a list of one.
    pub fn size(&mut self, of: &Value, axis: i64) -> Value {
        let shape = self.graph.node("Shape", &[of], &[]);
        let axis = self.graph.ints(&[axis]);
        self.graph.node("Gather", &[&shape, &axis], &[("axis", 0.into())])
    }

    /// T, as a list of one.
    pub fn len(&mut self) -> Value {
        self.once("len", |pass| {
            let ids = pass.ids.clone();
            pass.size(&ids, 1)
        })
    }

    /// 0, 1, ... up to a size that is a list of one.
    pub fn count_to(&mut self, size: &Value) -> Value {
        let (zero, one, axis) = (self.graph.int(0), self.graph.int(1), self.graph.ints(&[0]));
        let size = self.graph.node("Squeeze", &[size, &axis], &[]);
        self.graph.node("Range", &[&zero, &size, &one], &[])
    }

    /// The places of tokens: `[T]` where there is no cache, else [B, T].
    pub fn positions(&mut self) -> Value {
        if self.cache {
            return self.tokens_input("position_ids", "length");
        }
        self.once("positions", |pass| {
            let len = pass.len();
            pass.count_to(&len)
        })
    }

    /// The places of tokens as ONNX Runtime's own operators take them: [B, T], or only where they begin.
    pub fn positions_or_start(&mut self) -> Value {
        if self.cache { self.positions() } else { self.graph.ints(&[0]) }
    }

    /// Whether keys and values of earlier tokens are inputs.
    pub fn has_cache(&self) -> bool {
        self.cache
    }

    /// Whether the graph has operators that only ONNX Runtime knows.
    pub fn is_for_runtime(&self) -> bool {
        self.for_runtime
    }

    /// The rows [T, D] or [B, T, D] of a table of positions that tokens have, of which the first has row `first`.
    pub fn position_rows(&mut self, table: &Value, first: usize) -> Value {
        if self.cache {
            let (positions, first) = (self.positions(), self.graph.int(first as i64));
            let rows = self.graph.node("Add", &[&positions, &first], &[]);
            return self.graph.node("Gather", &[table, &rows], &[]);
        }
        let (axis, from, len) = (self.graph.ints(&[0]), self.graph.ints(&[first as i64]), self.len());
        let end = self.graph.node("Add", &[&len, &from], &[]);
        self.graph.node("Slice", &[table, &from, &end, &axis], &[])
    }

    /// What is added to scores [B, H, T, S], or to those of `rank` axes with more of heads: padding, and where it is
    /// causal, what comes later. None where all counts.
    pub fn bias(&mut self, causal: bool, rank: usize) -> Option<Value> {
        let mask = self.mask();
        if !causal && mask.is_none() {
            return None;
        }
        let name = format!("bias {causal} {rank}");
        Some(self.once(name, |pass| {
            let padding = mask.as_ref().map(|mask| {
                let real = pass.graph.node("Cast", &[mask], &[("to", (Kind::F32 as i64).into())]);
                let (one, masked) = (pass.graph.float(1.0), pass.graph.float(MASKED));
                let padding = pass.graph.node("Sub", &[&one, &real], &[]);
                let bias = pass.graph.node("Mul", &[&padding, &masked], &[]);
                let axes = pass.graph.ints(&(1..rank as i64 - 1).collect::<Vec<_>>());
                pass.graph.node("Unsqueeze", &[&bias, &axes], &[]) // [B, 1, 1, S]
            });
            let later = causal.then(|| pass.later(mask.as_ref()));
            match (padding, later) {
                (Some(padding), Some(later)) => pass.graph.node("Add", &[&padding, &later], &[]),
                (padding, later) => padding.or(later).expect("one of them is there"),
            }
        }))
    }

    /// [T, S]: what is added to scores of what comes later.
    fn later(&mut self, mask: Option<&Value>) -> Value {
        let mask = mask.cloned();
        self.once("later", |pass| {
            let len = pass.len();
            let keys = mask.map_or_else(|| len.clone(), |mask| pass.size(&mask, 1));
            let before = pass.graph.node("Sub", &[&keys, &len], &[]);
            let (queries, keys) = (pass.count_to(&len), pass.count_to(&keys));
            let queries = pass.graph.node("Add", &[&queries, &before], &[]);
            let last = pass.graph.ints(&[1]);
            let queries = pass.graph.node("Unsqueeze", &[&queries, &last], &[]);
            let seen = pass.graph.node("LessOrEqual", &[&keys, &queries], &[]);
            pass.hidden_where_not(&seen)
        })
    }

    /// What is added to scores by which of them are seen.
    pub fn hidden_where_not(&mut self, seen: &Value) -> Value {
        let (zero, masked) = (self.graph.float(0.0), self.graph.float(MASKED));
        self.graph.node("Where", &[seen, &zero, &masked], &[])
    }

    /// Keys and values [B, G, T, K] behind those of earlier tokens, [B, G, S, K]; themselves where there is no cache.
    pub fn behind_cache(&mut self, keys_and_values: [Value; 2], heads: usize, width: usize) -> [Value; 2] {
        if !self.cache {
            return keys_and_values;
        }
        let layer = self.cached;
        self.cached += 1;
        let shape = |len: &str| [Dim::from("batch"), heads.into(), len.into(), width.into()];
        let mut parts = keys_and_values.into_iter().zip(["key", "value"]);
        std::array::from_fn(|_| {
            let (now, part) = parts.next().expect("keys and values");
            let past = self.graph.input(&format!("past_key_values.{layer}.{part}"), Kind::F32, &shape("past"));
            let all = self.graph.node("Concat", &[&past, &now], &[("axis", 2.into())]);
            self.graph.output(&format!("present.{layer}.{part}"), &all, Kind::F32, &shape("total"));
            all
        })
    }

    /// Hidden states [B, T, D] behind a memory, [B, M + T, D], of which the last M are the next one.
    fn remember(&mut self, x: &Value) -> Value {
        let (layer, frame) = (self.remembered, &self.model.frame);
        let memory = frame.mem_len as usize;
        self.remembered += 1;
        if memory == 0 {
            return x.clone();
        }
        let shape: [Dim; 3] = ["batch".into(), memory.into(), (frame.d_model as usize).into()];
        let past = self.graph.input(&format!("mems.{layer}"), Kind::F32, &shape);
        let all = self.graph.node("Concat", &[&past, x], &[("axis", 1.into())]);
        let (from, to, axis) =
            (self.graph.ints(&[-(memory as i64)]), self.graph.ints(&[i64::MAX]), self.graph.ints(&[1]));
        let next = self.graph.node("Slice", &[&all, &from, &to, &axis], &[]);
        self.graph.output(&format!("new_mems.{layer}"), &next, Kind::F32, &shape);
        all
    }

    /// A non-linearity, times a value where it is gated.
    pub fn activation(&mut self, act: Act, gate: &Value, value: Option<&Value>) -> Value {
        let graph = &mut self.graph;
        let given = match act {
            Act::Relu => graph.node("Relu", &[gate], &[]),
            Act::Gelu => graph.node("Gelu", &[gate], &[]),
            Act::GeluTanh => graph.node("Gelu", &[gate], &[("approximate", "tanh".into())]),
            Act::Silu => {
                let sigmoid = graph.node("Sigmoid", &[gate], &[]);
                graph.node("Mul", &[gate, &sigmoid], &[])
            }
        };
        let given = match value {
            Some(value) => graph.node("Mul", &[&given, value], &[]),
            None => given,
        };
        self.uneven.insert(given.clone());
        given
    }

    /// Whether rows are to be rounded each by itself.
    pub(crate) fn is_uneven(&self, x: &Value) -> bool {
        self.uneven.contains(x)
    }

    /// Another shape, in which 0 stands for a size that stays and -1 for what is left.
    pub fn reshape(&mut self, x: &Value, shape: &[i64]) -> Value {
        let shape = self.graph.ints(shape);
        self.graph.node("Reshape", &[x, &shape], &[])
    }

    /// Parts along the last axis.
    pub fn parts<const N: usize>(&mut self, x: &Value, sizes: [usize; N]) -> [Value; N] {
        self.parts_of(x, &sizes).try_into().expect("as many as there are sizes")
    }

    /// The same of any number of them.
    pub(crate) fn parts_of(&mut self, x: &Value, sizes: &[usize]) -> Vec<Value> {
        let list: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
        let list = self.graph.ints(&list);
        self.graph.several("Split", &[x, &list], sizes.len(), &[("axis", (-1).into())])
    }

    /// A vector that is used here alone.
    pub fn constant(&mut self, name: &str, shape: &[usize], values: &[f32]) -> Value {
        self.once(name, |pass| pass.graph.weight(name, Tensor::floats(shape, values)))
    }
}
