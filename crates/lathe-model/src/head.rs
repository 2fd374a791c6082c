//! The output layer: logits of a plain softmax, or an adaptive softmax (Grave et al., 2017) in clusters.
//!
//! log p(token) is the first cluster's log-probability of the token, or that of the row which stands for its cluster
//! plus the log-probability inside the cluster. Training evaluates a cluster only for the tokens that are in it.
//! Tokens are processed in pieces, so that there is never an array of all tokens by the whole vocabulary.

mod beside;
mod masked;
mod outputs;

pub use beside::BesideHead;
pub use masked::MaskedHead;
pub use outputs::{Outputs, TaskHead, classifier_dropout};

use crate::composed::Graph;
use crate::embedding::{EmbeddingStyle, EmbeddingTable, clusters, projected};
use crate::linear::{Layout, Linear, Matrix};
use crate::norm::NormParams;
use crate::onnx::OnnxPass;
use crate::params::{Builder, Grads, Init, Params};
use candle_core::{Result, Tensor};
use lathe_core::Frame;
use lathe_onnx::Value;
use lathe_ops::Precision;
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use lathe_ops::gemm::{Mat, MatMut};
use lathe_ops::loss::{self, IGNORE};

/// Tokens whose logits exist at the same time in training and evaluation.
const PIECE: usize = 512;

/// What stands above the blocks.
pub struct Top {
    /// The norm after the last block.
    pub norm: Option<NormParams>,
    /// Whether the last hidden states are dropped where there is no norm.
    pub dropout: bool,
    /// From hidden states to tokens; encoders may have none.
    pub head: Option<Box<dyn Head>>,
    /// From the first token's hidden state to a vector of the sequence.
    pub pooler: Option<Pooler>,
    /// The output layer of a task: numbers of each text or token that are no tokens.
    pub task: Option<TaskHead>,
    /// Whether the first token's hidden state is the embedding of a text, rather than the mean of all.
    pub embeds_first: bool,
}

impl Top {
    /// Nothing at all.
    pub const NONE: Self =
        Self { norm: None, dropout: false, head: None, pooler: None, task: None, embeds_first: false };

    /// Its weight matrices.
    pub(crate) fn matrices(&mut self) -> Vec<&mut Matrix> {
        let head = self.head.iter_mut().flat_map(|head| head.matrices());
        let pooler = self.pooler.iter_mut().map(|pooler| &mut pooler.dense.matrix);
        head.chain(pooler).chain(self.task.iter_mut().map(|task| &mut task.dense.matrix)).collect()
    }
}

/// From hidden states to scores of tokens, and to their losses.
pub trait Head: Send + Sync {
    /// Whether outputs are log-probabilities rather than logits.
    fn log_probabilities(&self) -> bool {
        false
    }
    /// The outputs [N, V] for hidden states [N, D].
    fn logits(&self, params: &Params, hidden: &[f32], out: &mut [f32]);
    /// -log p of each target, 0 where it is [`IGNORE`]. With gradients, also adds those of `scale` times their sum to the
    /// parameters and returns that of the hidden states.
    fn loss(
        &self,
        params: &Params,
        hidden: &[f32],
        targets: &[u32],
        gradients: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>);
    /// Whether there are logits of all tokens, which is not so in an adaptive softmax.
    fn is_plain(&self) -> bool {
        false
    }
    /// The losses that `loss` makes of the logits of some rows, 0 of all others; gradients as [`Self::loss`]. `None` where
    /// it is not [`Self::is_plain`].
    fn logit_loss(
        &self,
        _params: &Params,
        _hidden: &[f32],
        _rows: &[usize],
        _loss: &dyn LogitLoss,
        _gradients: Option<(f32, &mut Grads)>,
    ) -> Option<(Vec<f32>, Option<Buf>)> {
        None
    }
    /// [`Self::logits`] as a graph; log-probabilities are logits too.
    fn composed(&self, graph: &Graph<'_>, hidden: &Tensor) -> Result<Tensor>;
    /// [`Self::logits`] as nodes of ONNX, [B, T, V] of [B, T, D], or why there are none.
    fn onnx(&self, _pass: &mut OnnxPass<'_>, _hidden: &Value) -> std::result::Result<Value, String> {
        Err("does not say itself in ONNX's operators".into())
    }
    /// The logits of the first cluster, and of the rows that stand for the others, as a graph.
    fn composed_first(&self, graph: &Graph<'_>, hidden: &Tensor) -> Result<Tensor> {
        self.composed(graph, hidden)
    }
    /// Its weight matrices, to be packed.
    fn matrices(&mut self) -> Vec<&mut Matrix>;
    /// What its products are computed in.
    fn set_precision(&mut self, precision: Precision) {
        self.matrices().into_iter().for_each(|matrix| matrix.set_precision(precision));
    }
}

/// A loss of the logits of a plain softmax.
pub trait LogitLoss {
    /// The losses of some rows, of which there are logits [N, V], and in their place the gradient of `scale` times the sum
    /// of the losses.
    fn rows(&self, rows: &[usize], logits: &mut [f32], scale: f32, losses: &mut [f32]);
}

/// Some rows of a matrix, by themselves.
fn gather(x: &[f32], width: usize, rows: &[usize]) -> Buf {
    let mut out = Buf::any(rows.len() * width);
    for (to, &row) in out.chunks_exact_mut(width).zip(rows) {
        to.copy_from_slice(&x[row * width..][..width]);
    }
    out
}

/// act(W x + b) of the first token's hidden state.
pub struct Pooler {
    /// W and b.
    pub dense: Linear,
    /// The non-linearity.
    pub act: PoolerAct,
    /// Whether x is dropped in training.
    pub drops: bool,
}

/// The non-linearity of a vector of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum PoolerAct {
    Tanh,
    Relu,
}

impl PoolerAct {
    fn of(self, x: f32) -> f32 {
        match self {
            Self::Tanh => x.tanh(),
            Self::Relu => x.max(0.0),
        }
    }

    /// The slope where it gives `y`.
    fn slope(self, y: f32) -> f32 {
        match self {
            Self::Tanh => 1.0 - y * y,
            Self::Relu => f32::from(y > 0.0),
        }
    }
}

/// The first row of each of so many sequences of hidden states.
fn first_tokens(hidden: &[f32], width: usize, batch: usize) -> Buf {
    let mut first = Buf::any(batch * width);
    for (to, from) in first.chunks_exact_mut(width).zip(hidden.chunks_exact(hidden.len() / batch)) {
        to.copy_from_slice(&from[..width]);
    }
    first
}

/// Adds rows to the first ones of sequences.
fn add_to_first(dfirst: &[f32], width: usize, dhidden: &mut [f32]) {
    let batch = dfirst.len() / width;
    for (to, from) in dhidden.chunks_exact_mut(dhidden.len() / batch).zip(dfirst.chunks_exact(width)) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
    }
}

/// Salt of the dropout of first tokens.
const FIRST: u64 = u64::MAX - 4;

impl Pooler {
    /// [B, D] of hidden states [B, T, D].
    pub fn forward(&self, params: &Params, hidden: &[f32], batch: usize, dropout: Dropout) -> Buf {
        let first = self.first(hidden, batch, dropout);
        let mut out = Buf::any(batch * self.dense.outputs());
        self.dense.forward(params, &first, &mut out);
        out.iter_mut().for_each(|x| *x = self.act.of(*x));
        out
    }

    /// x of each sequence.
    fn first(&self, hidden: &[f32], batch: usize, dropout: Dropout) -> Buf {
        let mut first = first_tokens(hidden, self.dense.inputs(), batch);
        self.dropout(dropout).apply(&mut first);
        first
    }

    fn dropout(&self, dropout: Dropout) -> Dropout {
        if self.drops { dropout.with(FIRST) } else { Dropout::NONE }
    }

    /// Adds the gradient of the hidden states to `dhidden`, and those of the parameters, from that of what
    /// [`Self::forward`] returned.
    pub fn backward(
        &self,
        params: &Params,
        hidden: &[f32],
        (pooled, dpooled): (&[f32], &[f32]),
        dropout: Dropout,
        dhidden: &mut [f32],
        grads: &mut Grads,
    ) {
        let batch = pooled.len() / self.dense.outputs();
        let mut first = self.first(hidden, batch, dropout);
        let mut dh = Buf::any(pooled.len());
        for ((dh, &y), dy) in dh.iter_mut().zip(pooled).zip(dpooled) {
            *dh = dy * self.act.slope(y);
        }
        self.dense.backward_params(&first, &dh, grads);
        self.dense.backward_input(params, &dh, &mut first, false);
        self.dropout(dropout).apply(&mut first);
        add_to_first(&first, self.dense.inputs(), dhidden);
    }
}

/// What a backbone calls its output layer.
#[derive(Debug, Clone, Copy)]
pub struct HeadStyle {
    /// The name of the weights of a plain softmax that are not the embedding's.
    pub plain_weight: &'static str,
    /// The name of the biases of a plain softmax, where it has any.
    pub plain_bias: Option<&'static str>,
    /// Whether even a plain softmax is a `crit` with biases whose outputs are log-probabilities, as Transformer-XL's.
    pub criterion: bool,
    /// The name of a plain softmax's projection to the width of the embedding, [e, D], where the backbone has one for it: it is
    /// then no `crit` either.
    pub projection: Option<&'static str>,
}

/// The output layer of tokens, plain or adaptive.
pub struct TokenHead {
    clusters: Vec<Cluster>,
    /// One row per cluster after the first.
    rows: Option<Linear>,
    width: usize,
    vocab: usize,
    /// Whether outputs of a plain softmax are log-probabilities too.
    normalised: bool,
}

struct Cluster {
    first: usize,
    count: usize,
    projection: Option<Linear>,
    weight: Linear,
    width: usize,
}

impl Head for TokenHead {
    fn log_probabilities(&self) -> bool {
        self.normalised || self.rows.is_some()
    }

    fn is_plain(&self) -> bool {
        self.tails() == 0
    }

    fn logits(&self, params: &Params, hidden: &[f32], out: &mut [f32]) {
        let rows = hidden.len() / self.width;
        let tails = self.tails();
        let mut of_tails = Buf::any(rows * tails);
        let ends: Vec<usize> = self.clusters.iter().map(|cluster| cluster.first + cluster.count).collect();
        for (i, (_, _, part)) in MatMut::new(out, rows, self.vocab).split(&[rows], &ends).into_iter().enumerate() {
            let mut parts = vec![part];
            if i == 0 && tails > 0 {
                parts.push(MatMut::new(&mut of_tails, rows, tails));
            }
            self.logits_of(params, i, hidden, parts);
        }
        if tails > 0 {
            loss::adaptive_log_softmax(out, &ends, &mut of_tails);
        } else if self.normalised {
            loss::log_softmax(out, self.vocab);
        }
    }

    fn composed_first(&self, graph: &Graph<'_>, hidden: &Tensor) -> Result<Tensor> {
        self.composed_logits_of(graph, 0, hidden)
    }

    fn composed(&self, graph: &Graph<'_>, hidden: &Tensor) -> Result<Tensor> {
        let logits_of = |i: usize| self.composed_logits_of(graph, i, hidden);
        if !self.log_probabilities() {
            return logits_of(0);
        }
        let first = loss::composed_log_softmax(&logits_of(0)?)?;
        let count = self.clusters[0].count;
        let mut parts = vec![first.narrow(1, 0, count)?];
        for i in 1..self.clusters.len() {
            let of_cluster = first.narrow(1, count + i - 1, 1)?;
            parts.push(loss::composed_log_softmax(&logits_of(i)?)?.broadcast_add(&of_cluster)?);
        }
        Tensor::cat(&parts, 1)
    }

    fn onnx(&self, pass: &mut OnnxPass<'_>, hidden: &Value) -> std::result::Result<Value, String> {
        let softmax =
            |pass: &mut OnnxPass<'_>, x: &Value| pass.graph.node("LogSoftmax", &[x], &[("axis", (-1).into())]);
        let first = self.onnx_logits_of(pass, 0, hidden);
        if !self.log_probabilities() {
            return Ok(first);
        }
        let first = softmax(pass, &first);
        let (count, tails) = (self.clusters[0].count, self.tails());
        if tails == 0 {
            return Ok(first);
        }
        let [own, rows] = pass.parts(&first, [count, tails]);
        let mut parts = vec![own];
        for i in 1..self.clusters.len() {
            let logits = self.onnx_logits_of(pass, i, hidden);
            let (inside, column, axis) =
                (softmax(pass, &logits), pass.graph.ints(&[i as i64 - 1]), ("axis", (-1).into()));
            let of_cluster = pass.graph.node("Gather", &[&rows, &column], &[axis]);
            parts.push(pass.graph.node("Add", &[&inside, &of_cluster], &[]));
        }
        Ok(pass.graph.node("Concat", &parts.iter().collect::<Vec<_>>(), &[("axis", (-1).into())]))
    }

    fn loss(
        &self,
        params: &Params,
        hidden: &[f32],
        targets: &[u32],
        mut gradients: Option<(f32, &mut Grads)>,
    ) -> (Vec<f32>, Option<Buf>) {
        let mut losses = vec![0.0; targets.len()];
        let mut dhidden = gradients.is_some().then(|| Buf::any(hidden.len()));
        let pieces = hidden.chunks(PIECE * self.width).zip(targets.chunks(PIECE)).enumerate();
        for (p, (hidden, targets)) in pieces {
            let losses = &mut losses[p * PIECE..][..targets.len()];
            let dhidden = dhidden.as_mut().map(|d| &mut d[p * PIECE * self.width..][..hidden.len()]);
            let gradients = gradients.as_mut().map(|(scale, grads)| (*scale, &mut **grads)).zip(dhidden);
            self.loss_of_piece(params, hidden, targets, losses, gradients);
        }
        (losses, dhidden)
    }

    fn logit_loss(
        &self,
        params: &Params,
        hidden: &[f32],
        rows: &[usize],
        loss: &dyn LogitLoss,
        mut gradients: Option<(f32, &mut Grads)>,
    ) -> Option<(Vec<f32>, Option<Buf>)> {
        if !self.is_plain() {
            return None;
        }
        let mut losses = vec![0.0; hidden.len() / self.width];
        let mut dhidden = gradients.is_some().then(|| Buf::zeros(hidden.len()));
        for rows in rows.chunks(PIECE) {
            let x = gather(hidden, self.width, rows);
            let mut logits = Buf::any(rows.len() * self.vocab);
            let part = MatMut::new(&mut logits, rows.len(), self.vocab);
            let narrow = self.logits_of(params, 0, &x, vec![part]);
            let mut own = vec![0.0; rows.len()];
            loss.rows(rows, &mut logits, gradients.as_ref().map_or(0.0, |(scale, _)| *scale), &mut own);
            rows.iter().zip(own).for_each(|(&row, own)| losses[row] = own);
            if let (Some((_, grads)), Some(dhidden)) = (&mut gradients, &mut dhidden) {
                let dx = self.backward_of(params, 0, &x, narrow, &logits, grads);
                for (from, &row) in dx.chunks_exact(self.width).zip(rows) {
                    dhidden[row * self.width..][..self.width].copy_from_slice(from);
                }
            }
        }
        Some((losses, dhidden))
    }

    fn matrices(&mut self) -> Vec<&mut Matrix> {
        let linears =
            self.clusters.iter_mut().flat_map(|cluster| [Some(&mut cluster.weight), cluster.projection.as_mut()]);
        linears.flatten().chain(self.rows.as_mut()).map(|linear| &mut linear.matrix).collect()
    }
}

impl TokenHead {
    /// The output layer of a frame over the tables of its embedding, by the names of a backbone.
    pub fn new(
        frame: &Frame,
        (tables, embedding): (&[EmbeddingTable], &EmbeddingStyle),
        style: &HeadStyle,
        builder: &mut Builder,
    ) -> Self {
        let (d, d_embed) = (frame.d_model as usize, frame.d_embed as usize);
        let list = clusters(frame);
        let tails = list.len() - 1;
        let named = style.projection.filter(|_| tails == 0);
        let criterion = style.criterion || tails > 0 || (projected(frame) && named.is_none());
        // Where all clusters are equally wide they are parts of one table.
        let mut layers: Vec<Linear> = Vec::new();
        for (i, table) in tables.iter().enumerate() {
            let (_, _, width) = list[i];
            let count = if tables.len() == 1 { frame.vocab as usize } else { list[i].1 };
            let weight = match frame.tie_embeddings {
                true => table.weight,
                false => {
                    let name = match criterion {
                        false => style.plain_weight.into(),
                        true => format!("crit.out_layers.{i}.weight"),
                    };
                    builder.param(name, &[count, width], Init::Normal(0.0, 0.02))
                }
            };
            let bias = match criterion {
                false => style.plain_bias.map(String::from),
                true => Some(format!("crit.out_layers.{i}.bias")),
            };
            let bias = bias.map(|name| builder.param(name, &[count], Init::Constant(0.0)));
            layers.push(Linear::new(weight, bias, Layout::OutIn, width, count));
        }
        let clusters = list.iter().enumerate().map(|(i, &(first, count, width))| {
            let weight = if layers.len() == 1 { layers[0].part(first, count) } else { layers[i].part(0, count) };
            let projection = projected(frame).then(|| {
                if let Some(name) = named {
                    let deviation = embedding.projection_deviation(frame, width, 0.01);
                    let id = builder.param(name, &[width, d], Init::Normal(0.0, deviation));
                    return Linear::new(id, None, Layout::OutIn, d, width);
                }
                let shared = tables[i.min(tables.len() - 1)].projection.filter(|_| i > 0 && frame.tie_projs);
                let id = shared.unwrap_or_else(|| {
                    let deviation = embedding.projection_deviation(frame, width, 0.01);
                    builder.param(format!("crit.out_projs.{i}"), &[d, width], Init::Normal(0.0, deviation))
                });
                Linear::new(id, None, Layout::InOut, d, width)
            });
            Cluster { first, count, projection, weight, width }
        });
        let clusters = clusters.collect();
        let rows = (tails > 0).then(|| {
            let weight = builder.param("crit.cluster_weight", &[tails, d_embed], Init::Normal(0.0, 0.02));
            let bias = builder.param("crit.cluster_bias", &[tails], Init::Constant(0.0));
            Linear::new(weight, Some(bias), Layout::OutIn, d_embed, tails)
        });
        Self { clusters, rows, width: d, vocab: frame.vocab as usize, normalised: style.criterion }
    }

    fn tails(&self) -> usize {
        self.clusters.len() - 1
    }

    /// The logits of a cluster for some rows, and in a second part of the first cluster those of each further one; gives
    /// the projected hidden states.
    fn logits_of(&self, params: &Params, i: usize, hidden: &[f32], parts: Vec<MatMut<'_>>) -> Option<Buf> {
        let cluster = &self.clusters[i];
        let rows = hidden.len() / self.width;
        let narrow = cluster.projection.as_ref().map(|projection| {
            let mut narrow = Buf::any(rows * cluster.width);
            projection.forward(params, hidden, &mut narrow);
            narrow
        });
        let x = Mat::new(narrow.as_deref().unwrap_or(hidden), rows, cluster.width);
        let linears = std::iter::once(&cluster.weight).chain(&self.rows);
        for (part, linear) in parts.into_iter().zip(linears) {
            linear.forward_into(params, x, part);
        }
        narrow
    }

    /// Columns of a cluster's logits.
    fn columns(&self, i: usize) -> usize {
        self.clusters[i].count + if i == 0 { self.tails() } else { 0 }
    }

    /// [`Self::logits_of`] as a graph.
    fn composed_logits_of(&self, graph: &Graph<'_>, i: usize, hidden: &Tensor) -> Result<Tensor> {
        let cluster = &self.clusters[i];
        let x = match &cluster.projection {
            Some(projection) => projection.composed(graph, hidden)?,
            None => hidden.clone(),
        };
        let own = cluster.weight.composed(graph, &x)?;
        match (&self.rows, i) {
            (Some(rows), 0) => Tensor::cat(&[own, rows.composed(graph, &x)?], 1),
            _ => Ok(own),
        }
    }

    /// [`Self::logits_of`] as nodes of ONNX.
    fn onnx_logits_of(&self, pass: &mut OnnxPass<'_>, i: usize, hidden: &Value) -> Value {
        let cluster = &self.clusters[i];
        let narrow = cluster.projection.as_ref().map(|projection| projection.onnx(pass, hidden));
        let x = narrow.as_ref().unwrap_or(hidden);
        let own = cluster.weight.onnx(pass, x);
        match (&self.rows, i) {
            (Some(rows), 0) => {
                let rows = rows.onnx(pass, x);
                pass.graph.node("Concat", &[&own, &rows], &[("axis", (-1).into())])
            }
            _ => own,
        }
    }

    fn loss_of_piece(
        &self,
        params: &Params,
        hidden: &[f32],
        targets: &[u32],
        losses: &mut [f32],
        mut gradients: Option<((f32, &mut Grads), &mut [f32])>,
    ) {
        // Which cluster a target is in, and its column there.
        let of_target = |target: u32| -> Option<(usize, u32)> {
            let i = self.clusters.iter().rposition(|cluster| target as usize >= cluster.first)?;
            (target != IGNORE).then(|| (i, target - self.clusters[i].first as u32))
        };
        let first_targets: Vec<u32> = targets
            .iter()
            .map(|&target| match of_target(target) {
                None => IGNORE,
                Some((0, column)) => column,
                Some((i, _)) => (self.clusters[0].count + i - 1) as u32,
            })
            .collect();
        for i in 0..self.clusters.len() {
            let (rows, local): (Vec<usize>, Vec<u32>) = match i {
                0 => ((0..targets.len()).collect(), first_targets.clone()),
                _ => {
                    let members =
                        targets.iter().enumerate().filter_map(|(row, &target)| Some((row, of_target(target)?)));
                    members.filter(|(_, (cluster, _))| *cluster == i).map(|(row, (_, column))| (row, column)).unzip()
                }
            };
            if rows.is_empty() {
                continue;
            }
            let gathered = (i > 0).then(|| {
                let mut gathered = Buf::any(rows.len() * self.width);
                for (to, &row) in gathered.chunks_exact_mut(self.width).zip(&rows) {
                    to.copy_from_slice(&hidden[row * self.width..][..self.width]);
                }
                gathered
            });
            let x: &[f32] = gathered.as_deref().unwrap_or(hidden);
            let columns = self.columns(i);
            let mut logits = Buf::any(rows.len() * columns);
            let matrix = MatMut::new(&mut logits, rows.len(), columns);
            let mut ends = vec![self.clusters[i].count, columns];
            ends.dedup();
            let parts = matrix.split(&[rows.len()], &ends).into_iter().map(|(_, _, part)| part).collect();
            let narrow = self.logits_of(params, i, x, parts);
            let mut own = vec![0.0; rows.len()];
            match &mut gradients {
                None => loss::negative_log_likelihood(&mut logits, columns, &local, &mut own),
                Some(((scale, grads), dhidden)) => {
                    loss::cross_entropy(&mut logits, columns, &local, *scale, &mut own);
                    let dx = self.backward_of(params, i, x, narrow, &logits, grads);
                    if i == 0 {
                        dhidden.copy_from_slice(&dx);
                    } else {
                        for (from, &row) in dx.chunks_exact(self.width).zip(&rows) {
                            dhidden[row * self.width..][..self.width]
                                .iter_mut()
                                .zip(from)
                                .for_each(|(to, from)| *to += from);
                        }
                    }
                }
            }
            rows.iter().zip(own).for_each(|(&row, own)| losses[row] += own);
        }
    }

    /// The gradient of the hidden states of a cluster's rows from that of its logits.
    fn backward_of(
        &self,
        params: &Params,
        i: usize,
        x: &[f32],
        narrow: Option<Buf>,
        dlogits: &[f32],
        grads: &mut Grads,
    ) -> Buf {
        let cluster = &self.clusters[i];
        let rows = x.len() / self.width;
        let all = Mat::new(dlogits, rows, self.columns(i));
        let narrow_x = Mat::new(narrow.as_deref().unwrap_or(x), rows, cluster.width);
        let mut dnarrow = Buf::any(rows * cluster.width);
        let own = all.cols_from(0, cluster.count);
        cluster.weight.backward_input_from(params, own, &mut dnarrow, false);
        cluster.weight.backward_params_from(narrow_x, own, grads);
        if let (Some(extra), 0) = (&self.rows, i) {
            let of_rows = all.cols_from(cluster.count, self.tails());
            extra.backward_input_from(params, of_rows, &mut dnarrow, true);
            extra.backward_params_from(narrow_x, of_rows, grads);
        }
        let Some(projection) = &cluster.projection else { return dnarrow };
        let mut dx = Buf::any(x.len());
        projection.backward_params(x, &dnarrow, grads);
        projection.backward_input(params, &dnarrow, &mut dx, false);
        dx
    }
}
