//! What stands below the blocks: from tokens to hidden states. [`TokenStem`] is the usual one: vectors of tokens, learned
//! positions and segments where the backbone has them, a norm where it has one, dropout.

use crate::composed::{Graph, GraphStream};
use crate::embedding::{Embedding, EmbeddingTable};
use crate::layer::{AsideGrads, Saved, Stream};
use crate::linear::Matrix;
use crate::norm::NormParams;
use crate::onnx::OnnxPass;
use crate::params::{Grads, ParamId, Params};
use crate::unpadded::Unpadded;
use candle_core::{Result, Tensor};
use lathe_onnx::Value;
use lathe_ops::Precision;
use lathe_ops::buffer::Buf;
use lathe_ops::dropout::Dropout;
use lathe_ops::embedding as ops;
use std::borrow::Cow;

/// A batch of sequences: tokens [B, T], and what else a model may be told of them.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// [B, T]
    pub ids: &'a [u32],
    /// B
    pub batch: usize,
    /// [B, T], false for padding; `None` where every token is real.
    pub mask: Option<&'a [bool]>,
    /// [B, T]: which of several texts a token is of; `None` for the first.
    pub segments: Option<&'a [u32]>,
    /// What an encoder reads; `None` where there is none, or where it was read before.
    pub source: Option<Source<'a>>,
}

/// What the encoder of an encoder-decoder reads.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// [B, S]
    pub ids: &'a [u32],
    /// [B, S], false for padding; `None` where every token is real.
    pub mask: Option<&'a [bool]>,
}

impl<'a> Input<'a> {
    /// Tokens [B, T] without padding, of one text each.
    pub fn tokens(ids: &'a [u32], batch: usize) -> Self {
        assert!(batch > 0 && ids.len().is_multiple_of(batch), "as many tokens in each sequence");
        Self { ids, batch, mask: None, segments: None, source: None }
    }

    /// The same after a text [B, S] that an encoder reads.
    pub fn after(self, ids: &'a [u32]) -> Self {
        assert!(ids.len().is_multiple_of(self.batch), "as many tokens in each sequence");
        Self { source: Some(Source { ids, mask: None }), ..self }
    }

    /// What the encoder reads, as an input of its own: no token where there is nothing.
    pub fn source(&self) -> Self {
        let Source { ids, mask } = self.source.unwrap_or(Source { ids: &[], mask: None });
        Self { ids, batch: self.batch, mask, segments: None, source: None }
    }

    /// T
    pub fn len(&self) -> usize {
        self.ids.len() / self.batch
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// What a stem knows of a pass.
#[derive(Clone, Copy)]
pub struct StemPass<'a> {
    /// The weights.
    pub params: &'a Params,
    /// Tokens before the first.
    pub position: usize,
    /// Whether to keep what a backward pass needs.
    pub keep: bool,
    /// Of hidden states.
    pub dropout: Dropout,
    /// The real tokens, where padding is to be left out.
    pub unpadded: Option<&'a Unpadded>,
}

impl StemPass<'_> {
    /// What is there of each token that enters the first block, of [B, T].
    pub fn of_rows<'x, T: Copy>(&self, x: &'x [T]) -> Cow<'x, [T]> {
        self.unpadded.map_or(Cow::Borrowed(x), |unpadded| unpadded.pick(x).into())
    }

    /// Hidden states of what is left of a batch.
    pub fn stream(&self, x: Buf, input: &Input<'_>) -> Stream {
        match self.unpadded {
            Some(_) => Stream::new(x, 1, self.position, None),
            None => Stream::new(x, input.len(), self.position, input.mask),
        }
    }
}

/// From tokens to hidden states.
pub trait Stem: Send + Sync {
    /// What enters the first block, and what is laid aside for others.
    fn forward(&self, pass: &StemPass<'_>, input: &Input<'_>) -> (Stream, Saved);
    /// Whether it gives the real tokens alone, [R, D], where it is asked to ([`StemPass::unpadded`]).
    fn takes_unpadded(&self) -> bool {
        false
    }
    /// Adds the gradients of its parameters, from those of what enters the first block and of what was laid aside.
    fn backward(
        &self,
        pass: &StemPass<'_>,
        input: &Input<'_>,
        saved: Saved,
        gradients: (Buf, &AsideGrads),
        grads: &mut Grads,
    );
    /// The vectors of tokens before anything is added, as a graph.
    fn composed_embed(&self, graph: &Graph<'_>, ids: &[u32]) -> Result<Tensor>;
    /// What enters the first block for such vectors, as a graph.
    fn composed_enter(&self, graph: &Graph<'_>, x: Tensor, input: &Input<'_>) -> Result<GraphStream>;
    /// [`Self::forward`] as nodes of ONNX, [B, T, D], or why there are none.
    fn onnx(&self, _pass: &mut OnnxPass<'_>) -> std::result::Result<Value, String> {
        Err("does not say itself in ONNX's operators".into())
    }
    /// The tables of tokens, for an output that shares them.
    fn tables(&self) -> &[EmbeddingTable];
    /// Its weight matrices besides the tables, to be packed.
    fn matrices(&mut self) -> Vec<&mut Matrix> {
        Vec::new()
    }
    /// What its products are computed in.
    fn set_precision(&mut self, precision: Precision);
    /// Parameters that are read as they are, and must stay when others are packed.
    fn reads(&self) -> Vec<ParamId> {
        self.tables().iter().flat_map(|table| [Some(table.weight), table.projection]).flatten().collect()
    }
}

/// Vectors of tokens, with learned positions and segments, a norm and dropout.
pub struct TokenStem {
    /// Of tokens.
    pub embedding: Embedding,
    /// [rows, D], at least max_len from the first token's on.
    pub positions: Option<ParamId>,
    /// The row of the first token's position.
    pub first_position: usize,
    /// [segments, D]
    pub segments: Option<ParamId>,
    /// After the sum.
    pub norm: Option<NormParams>,
}

/// Input and statistics of its norm.
pub(crate) type NormSaved = Option<(Buf, Buf)>;

/// Salt of its dropout.
const SALT: u64 = u64::MAX - 1;

impl TokenStem {
    /// Vectors of tokens alone.
    pub fn new(embedding: Embedding) -> Self {
        Self { embedding, positions: None, first_position: 0, segments: None, norm: None }
    }

    /// Vectors [B * T, D] of tokens, or [R, D] of the real ones, with what is added to them, and what the way back needs.
    pub(crate) fn add(&self, pass: &StemPass<'_>, input: &Input<'_>, mut x: Buf) -> (Buf, NormSaved) {
        let params = pass.params;
        let width = x.len() / rows(pass, input).max(1);
        if let Some(positions) = self.positions {
            let (table, first) = (params.get(positions), self.first_position + pass.position);
            match pass.unpadded {
                Some(unpadded) => ops::add_rows(table, width, &places(unpadded, input, first), &mut x),
                None => ops::add_positions(table, width, input.len(), first, &mut x),
            }
        }
        if let Some(segments) = self.segments {
            let table = params.get(segments);
            let segment = segment_of(pass, input, table.len() / width);
            for (i, row) in x.chunks_exact_mut(width).enumerate() {
                let segment = segment(i);
                row.iter_mut().zip(&table[segment * width..]).for_each(|(x, add)| *x += add);
            }
        }
        let mut saved: NormSaved = None;
        if let Some(norm) = &self.norm {
            let (y, stats) = norm.forward(params, &x);
            let sum = std::mem::replace(&mut x, y);
            saved = pass.keep.then_some((sum, stats));
        }
        pass.dropout.with(SALT).apply(&mut x);
        (x, saved)
    }

    /// The gradient of the vectors from that of what [`Self::add`] gave; adds those of what was added.
    pub(crate) fn add_backward(
        &self,
        pass: &StemPass<'_>,
        input: &Input<'_>,
        saved: NormSaved,
        mut dx: Buf,
        grads: &mut Grads,
    ) -> Buf {
        pass.dropout.with(SALT).apply(&mut dx);
        if let (Some(norm), Some((sum, stats))) = (&self.norm, saved) {
            let mut dsum = Buf::zeros(dx.len());
            norm.backward(pass.params, &sum, &stats, &dx, &mut dsum, grads);
            dx = dsum;
        }
        let width = dx.len() / rows(pass, input).max(1);
        if let Some(positions) = self.positions {
            let (table, first) = (grads.add(positions), self.first_position + pass.position);
            match pass.unpadded {
                Some(unpadded) => ops::scatter(&dx, width, &places(unpadded, input, first), 1.0, table),
                None => ops::positions_backward(&dx, width, input.len(), first, table),
            }
        }
        if let Some(segments) = self.segments {
            let table = grads.add(segments);
            let segment = segment_of(pass, input, table.len() / width);
            for (i, row) in dx.chunks_exact(width).enumerate() {
                let segment = segment(i);
                table[segment * width..][..width].iter_mut().zip(row).for_each(|(sum, d)| *sum += d);
            }
        }
        dx
    }

    /// [`Self::add`] as nodes of ONNX.
    pub(crate) fn add_onnx(&self, pass: &mut OnnxPass<'_>, mut x: Value) -> Value {
        if let Some(positions) = self.positions {
            let table = pass.vector(positions);
            let rows = pass.position_rows(&table, self.first_position);
            x = pass.graph.node("Add", &[&x, &rows], &[]);
        }
        if let Some(segments) = self.segments {
            let (table, several) = (pass.vector(segments), pass.params.param(segments).shape[0] > 1);
            let rows = match several {
                true => {
                    let segments = pass.segments();
                    pass.graph.node("Gather", &[&table, &segments], &[])
                }
                false => table, // [1, D]
            };
            x = pass.graph.node("Add", &[&x, &rows], &[]);
        }
        match &self.norm {
            Some(norm) => norm.onnx(pass, &x),
            None => x,
        }
    }
}

/// Rows of what enters the first block.
fn rows(pass: &StemPass<'_>, input: &Input<'_>) -> usize {
    pass.unpadded.map_or(input.ids.len(), Unpadded::rows)
}

/// The rows of positions of real tokens: those of their columns.
fn places(unpadded: &Unpadded, input: &Input<'_>, first: usize) -> Vec<u32> {
    unpadded.places().iter().map(|place| (first + place % input.len()) as u32).collect()
}

/// Which text a token is of that enters the first block: the last that a model knows, where there are more.
fn segment_of<'a>(pass: &StemPass<'_>, input: &Input<'a>, known: usize) -> impl Fn(usize) -> usize + use<'a> {
    let segments = input.segments.map(|segments| pass.of_rows(segments));
    move |i| segments.as_ref().map_or(0, |segments| (segments[i] as usize).min(known.saturating_sub(1)))
}

impl Stem for TokenStem {
    fn forward(&self, pass: &StemPass<'_>, input: &Input<'_>) -> (Stream, Saved) {
        let (x, saved) = self.add(pass, input, self.embedding.forward(pass.params, &pass.of_rows(input.ids)));
        (pass.stream(x, input), Box::new(saved))
    }

    fn takes_unpadded(&self) -> bool {
        true
    }

    fn backward(
        &self,
        pass: &StemPass<'_>,
        input: &Input<'_>,
        saved: Saved,
        (dx, _): (Buf, &AsideGrads),
        grads: &mut Grads,
    ) {
        if grads.wanted() {
            let saved: NormSaved = *saved.downcast().expect("what this stem saved");
            let dx = self.add_backward(pass, input, saved, dx, grads);
            self.embedding.backward(pass.params, &pass.of_rows(input.ids), &dx, grads);
        }
    }

    fn composed_embed(&self, graph: &Graph<'_>, ids: &[u32]) -> Result<Tensor> {
        self.embedding.composed(graph, ids)
    }

    fn composed_enter(&self, graph: &Graph<'_>, mut x: Tensor, input: &Input<'_>) -> Result<GraphStream> {
        let tokens = graph.batch * graph.len;
        if let Some(positions) = self.positions {
            let first = self.first_position + graph.position;
            let places: Vec<u32> = (0..tokens).map(|i| (first + i % graph.len) as u32).collect();
            x = (x + ops::composed(graph.var(positions), &places, 1.0)?)?;
        }
        if let Some(table) = self.segments {
            let table = graph.var(table);
            let last = table.dim(0)?.saturating_sub(1) as u32;
            let segments: Vec<u32> = (0..tokens).map(|i| input.segments.map_or(0, |of| of[i].min(last))).collect();
            x = (x + ops::composed(table, &segments, 1.0)?)?;
        }
        if let Some(norm) = &self.norm {
            x = norm.composed(graph, &x)?;
        }
        Ok(GraphStream::new(x, graph.len, graph.mask.clone()))
    }

    fn onnx(&self, pass: &mut OnnxPass<'_>) -> std::result::Result<Value, String> {
        let x = self.embedding.onnx(pass);
        Ok(self.add_onnx(pass, x))
    }

    fn tables(&self) -> &[EmbeddingTable] {
        self.embedding.tables()
    }

    fn set_precision(&mut self, precision: Precision) {
        self.embedding.set_precision(precision);
    }

    fn reads(&self) -> Vec<ParamId> {
        let tables = self.tables().iter().flat_map(|table| [Some(table.weight), table.projection]);
        tables.chain([self.positions, self.segments]).flatten().collect()
    }
}
