//! Embedding and output layer, plain or adaptive (Baevski and Auli, 2019; Grave et al., 2017).
//!
//! The vocabulary is cut into clusters at `cutoffs`. Cluster i has n_i tokens of width
//! e_i = d_embed / div_val^i; where widths differ from D they are projected. The output evaluates the first
//! cluster together with one row per further cluster, and a further cluster only where its row is likely.
//! Without cutoffs there is one cluster, which makes it a plain softmax.

use crate::build::FrameCost;
use crate::composed::Graph;
use crate::linear::{Layout, Linear, token_rows};
use crate::onnx::OnnxPass;
use crate::params::{Builder, Grads, Init, ParamId, Params, Place};
use candle_core::{Result, Tensor};
use lathe_core::{Frame, Setting};
use lathe_onnx::{Kind, Value};
use lathe_ops::Precision;
use lathe_ops::buffer::Buf;
use lathe_ops::embedding as ops;

/// What an embedding of tokens and its output layer cost, with a bias per token where it is `biased`; without positions
/// and norms.
pub fn cost(frame: &Frame, setting: &Setting, biased: bool) -> FrameCost {
    let (d, vocab, d_embed) = (u64::from(frame.d_model), u64::from(frame.vocab), u64::from(frame.d_embed));
    let rows = frame.cutoffs.len() as u64; // C
    let projected = projected(frame);

    let mut weights = 0; // sum of n_i e_i
    let mut projections = 0; // sum of D e_i
    let mut tail_flops = 0; // per token, clusters after the first
    let mut width = d_embed;
    let mut start = 0;
    for end in frame.cutoffs.iter().map(|&cutoff| u64::from(cutoff)).chain([vocab]) {
        weights += (end - start) * width;
        projections += d * width;
        if start > 0 {
            tail_flops += 2 * u128::from(width) * u128::from(end - start);
            tail_flops += if projected { 2 * u128::from(d) * u128::from(width) } else { 0 };
        }
        start = end;
        width /= u64::from(frame.div_val);
    }
    // The input has one projection for all clusters of the same width; the output, where it has its own, one each.
    let input_projections = if frame.div_val == 1 { d * d_embed } else { projections };

    let mut params = weights + if projected { input_projections } else { 0 };
    if biased || rows > 0 || projected {
        params += vocab + rows * d_embed + rows;
    }
    if projected {
        params += if frame.tie_projs { d * d_embed } else { projections };
    }
    if !frame.tie_embeddings {
        params += weights;
    }
    let head = u64::from(frame.cutoffs.first().copied().unwrap_or(frame.vocab)) + rows;
    let project = if projected { u128::from(d) * u128::from(d_embed) } else { 0 };
    let output = 2 * (project + u128::from(d_embed) * u128::from(head));
    FrameCost {
        params,
        output_flops: setting.tokens() * output,
        output_full_flops: setting.tokens() * (output + tail_flops),
        activation_bytes: setting.tokens() * 4 * (u128::from(d) + u128::from(vocab + rows)),
        ..FrameCost::default()
    }
}

/// Whether embeddings are projected to the width of the model.
pub fn projected(frame: &Frame) -> bool {
    frame.div_val > 1 || frame.d_embed != frame.d_model
}

/// First token, number of tokens and width of each cluster.
pub fn clusters(frame: &Frame) -> Vec<(usize, usize, usize)> {
    let ends = frame.cutoffs.iter().chain([&frame.vocab]);
    let mut start = 0;
    let mut width = frame.d_embed as usize;
    ends.map(|&end| {
        let cluster = (start, end as usize - start, width);
        start = end as usize;
        width /= frame.div_val as usize;
        cluster
    })
    .collect()
}

/// The embedding at work: a table per cluster (one for all where they are equally wide), and projections. A copy reads
/// the same parameters.
#[derive(Clone)]
pub struct Embedding {
    tables: Vec<EmbeddingTable>,
    width: usize,
    scale: f32,
    precision: Precision,
}

/// The rows of one cluster, or of all where they are equally wide.
#[derive(Clone)]
pub struct EmbeddingTable {
    first: usize,
    count: usize,
    width: usize,
    /// [n, e]
    pub weight: ParamId,
    /// [D, e], shared with the output where that is tied.
    pub projection: Option<ParamId>,
    /// D
    model_width: usize,
}

impl EmbeddingTable {
    /// Its matrices, and how they lie.
    pub fn matrices(&self) -> impl Iterator<Item = (ParamId, Place)> + use<> {
        let rows =
            |outputs: usize, inputs: usize| Place { count: 1, inputs, outputs, layout: Layout::OutIn, exact: false };
        let projection = self.projection.map(|projection| (projection, rows(self.model_width, self.width)));
        std::iter::once((self.weight, rows(self.count, self.width))).chain(projection)
    }
}

/// What a backbone calls its embedding, and how it draws it.
#[derive(Debug, Clone, Copy)]
pub struct EmbeddingStyle {
    /// The name of a table that is one for all tokens and as wide as the model, where the backbone has one for it.
    pub plain: Option<&'static str>,
    /// What the names of all other tables and of projections begin with.
    pub prefix: &'static str,
    /// Whether vectors are multiplied by sqrt(D) even without clusters.
    pub scaled: bool,
    /// The name of the projection of one table for all tokens, where the backbone has one for it.
    pub projection: Option<&'static str>,
}

impl EmbeddingStyle {
    fn is_scaled(&self, frame: &Frame) -> bool {
        self.scaled || adaptive(frame)
    }

    /// How far the values of a projection between model and embedding deviate at first: as the reference has it, where
    /// there is one. None has one table that is narrower or wider than the model; there vectors and logits begin as
    /// large as without a projection, for smaller ones were seen to learn much later.
    pub fn projection_deviation(&self, frame: &Frame, width: usize, reference: f32) -> f32 {
        if self.is_scaled(frame) { reference } else { 1.0 / (width as f32).sqrt() }
    }
}

/// Whether the vocabulary is cut into clusters.
pub fn adaptive(frame: &Frame) -> bool {
    frame.div_val > 1 || !frame.cutoffs.is_empty()
}

impl Embedding {
    /// The tables of a frame, by the names of a backbone.
    pub fn new(frame: &Frame, style: &EmbeddingStyle, builder: &mut Builder) -> Self {
        let d = frame.d_model as usize;
        let list = match frame.div_val {
            1 => vec![(0, frame.vocab as usize, frame.d_embed as usize)],
            _ => clusters(frame),
        };
        let named = style.projection.filter(|_| !adaptive(frame));
        let plain = style.plain.filter(|_| !adaptive(frame) && (!projected(frame) || named.is_some()));
        let prefix = style.prefix;
        let tables = list.into_iter().enumerate().map(|(i, (first, count, width))| {
            let name = plain.map_or_else(|| format!("{prefix}.emb_layers.{i}.weight"), String::from);
            let weight = builder.param(name, &[count, width], Init::Normal(0.0, 0.02));
            let projection = projected(frame).then(|| {
                let deviation = style.projection_deviation(frame, width, if adaptive(frame) { 0.01 } else { 0.02 });
                let name = named.map_or_else(|| format!("{prefix}.emb_projs.{i}"), String::from);
                builder.param(name, &[d, width], Init::Normal(0.0, deviation))
            });
            EmbeddingTable { first, count, width, weight, projection, model_width: d }
        });
        let scale = if style.is_scaled(frame) { (d as f32).sqrt() } else { 1.0 };
        Self { tables: tables.collect(), width: d, scale, precision: Precision::F32 }
    }

    /// What its products are computed in.
    pub fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
    }

    /// From the width of a table to that of the model.
    fn projection(&self, weight: ParamId, width: usize) -> Linear {
        Linear::new(weight, None, Layout::OutIn, width, self.width).with_precision(self.precision)
    }

    /// The tables, for an output that shares them.
    pub fn tables(&self) -> &[EmbeddingTable] {
        &self.tables
    }

    /// The rows whose tokens are of a table, and their numbers in it.
    fn members(table: &EmbeddingTable, ids: &[u32]) -> (Vec<usize>, Vec<u32>) {
        let range = table.first as u32..(table.first + table.count) as u32;
        let members = ids.iter().enumerate().filter(|(_, id)| range.contains(id));
        members.map(|(row, id)| (row, id - range.start)).unzip()
    }

    /// [N, D]
    pub fn forward(&self, params: &Params, ids: &[u32]) -> Buf {
        let mut out = Buf::any(ids.len() * self.width);
        for table in &self.tables {
            let (rows, local) = Self::members(table, ids);
            let Some(projection) = table.projection else {
                gather(params, table, ids, self.scale, &mut out);
                continue;
            };
            let mut narrow = Buf::any(rows.len() * table.width);
            gather(params, table, &local, self.scale, &mut narrow);
            let mut wide = Buf::any(rows.len() * self.width);
            self.projection(projection, table.width).forward(params, &narrow, &mut wide);
            for (from, &row) in wide.chunks_exact(self.width).zip(&rows) {
                out[row * self.width..][..self.width].copy_from_slice(from);
            }
        }
        out
    }

    /// [`Self::forward`] as a graph.
    pub fn composed(&self, graph: &Graph<'_>, ids: &[u32]) -> Result<Tensor> {
        let mut parts = Vec::new();
        let mut places = vec![0; ids.len()];
        let mut done = 0;
        for table in &self.tables {
            let (rows, local) = Self::members(table, ids);
            if rows.is_empty() {
                continue;
            }
            let part = ops::composed(graph.var(table.weight), &local, self.scale)?;
            parts.push(match table.projection {
                None => part,
                Some(projection) => self.projection(projection, table.width).composed(graph, &part)?,
            });
            rows.iter().enumerate().for_each(|(i, &row)| places[row] = (done + i) as u32);
            done += rows.len();
        }
        let parts = Tensor::cat(&parts, 0)?;
        parts.index_select(&Tensor::new(places, parts.device())?, 0)
    }

    /// [`Self::forward`] as nodes of ONNX, [B, T, D].
    pub fn onnx(&self, pass: &mut OnnxPass<'_>) -> Value {
        let ids = pass.ids.clone();
        let mut sum: Option<Value> = None;
        for table in &self.tables {
            // Which tokens are of the table, and their numbers in it; any number for others.
            let members = (self.tables.len() > 1).then(|| {
                let [first, end] = [table.first, table.first + table.count].map(|at| pass.graph.int(at as i64));
                let above = pass.graph.node("GreaterOrEqual", &[&ids, &first], &[]);
                let below = pass.graph.node("Less", &[&ids, &end], &[]);
                let inside = pass.graph.node("And", &[&above, &below], &[]);
                let (local, zero) = (pass.graph.node("Sub", &[&ids, &first], &[]), pass.graph.int(0));
                (pass.graph.node("Where", &[&inside, &local, &zero], &[]), inside)
            });
            let mut x = token_rows(pass, table.weight, members.as_ref().map_or(&ids, |(local, _)| local));
            if self.scale != 1.0 {
                let scale = pass.graph.float(self.scale);
                x = pass.graph.node("Mul", &[&x, &scale], &[]);
            }
            if let Some(projection) = table.projection {
                x = self.projection(projection, table.width).onnx(pass, &x);
            }
            if let Some((_, inside)) = members {
                let last = pass.graph.ints(&[-1]);
                let weight = pass.graph.node("Cast", &[&inside], &[("to", (Kind::F32 as i64).into())]);
                let weight = pass.graph.node("Unsqueeze", &[&weight, &last], &[]);
                x = pass.graph.node("Mul", &[&x, &weight], &[]);
            }
            sum = Some(match sum {
                Some(sum) => pass.graph.node("Add", &[&sum, &x], &[]),
                None => x,
            });
        }
        sum.expect("at least one table")
    }

    /// Adds the gradients of tables and projections.
    pub fn backward(&self, params: &Params, ids: &[u32], dout: &[f32], grads: &mut Grads) {
        for table in &self.tables {
            let (rows, local) = Self::members(table, ids);
            let Some(projection) = table.projection else {
                ops::scatter(dout, table.width, ids, self.scale, grads.add(table.weight));
                continue;
            };
            let mut wide = Buf::any(rows.len() * self.width);
            for (to, &row) in wide.chunks_exact_mut(self.width).zip(&rows) {
                to.copy_from_slice(&dout[row * self.width..][..self.width]);
            }
            let linear = self.projection(projection, table.width);
            let mut narrow = Buf::any(rows.len() * table.width);
            gather(params, table, &local, self.scale, &mut narrow);
            linear.backward_params(&narrow, &wide, grads);
            linear.backward_input(params, &wide, &mut narrow, false);
            ops::scatter(&narrow, table.width, &local, self.scale, grads.add(table.weight));
        }
    }
}

/// The vectors of tokens of a table, however it is held.
fn gather(params: &Params, table: &EmbeddingTable, ids: &[u32], scale: f32, out: &mut [f32]) {
    let width = table.width;
    match params.floats(table.weight) {
        Some(weight) => ops::gather(weight, width, ids, scale, out),
        None => {
            for (row, &id) in out.chunks_exact_mut(width).zip(ids) {
                let weight = params.read_rows(table.weight, width, id as usize, 1);
                row.iter_mut().zip(weight.iter()).for_each(|(to, from)| *to = scale * from);
            }
        }
    }
}

/// Whether a tensor of a file is a weight of an adaptive output that is the embedding's, once more.
pub fn is_tied_again(name: &str, frame: &Frame) -> bool {
    match name {
        name if name.starts_with("crit.out_layers.") && name.ends_with(".weight") => frame.tie_embeddings,
        name if name.starts_with("crit.out_projs.") => frame.tie_projs,
        _ => false,
    }
}
