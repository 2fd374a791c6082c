//! Embedding and output layer, plain or adaptive (Baevski and Auli, 2019; Grave et al., 2017).
//!
//! The vocabulary is cut into clusters at `cutoffs`. Cluster i has n_i tokens of width
//! e_i = d_embed / div_val^i; where widths differ from D they are projected. The output evaluates the first
//! cluster together with one row per further cluster, and a further cluster only where its row is likely.
//! Without cutoffs there is one cluster, which makes it a plain softmax.

use lathe_core::{Frame, Positions, Setting};

/// What embedding and output layer cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EmbeddingCost {
    /// Parameters, learned positions among them.
    pub params: u64,
    /// Learned positions.
    pub position: u64,
    /// FLOPs of the output: the first cluster and the rows of the others.
    pub output_flops: u128,
    /// FLOPs of the output with every cluster evaluated.
    pub output_full_flops: u128,
    /// f32 bytes of the embedded tokens and of the logits of all tokens.
    pub activation_bytes: u128,
}

pub(crate) fn cost(frame: &Frame, setting: &Setting) -> EmbeddingCost {
    let (d, vocab, d_embed) = (u64::from(frame.d_model), u64::from(frame.vocab), u64::from(frame.d_embed));
    let rows = frame.cutoffs.len() as u64; // C
    let projected = frame.div_val > 1 || frame.d_embed != frame.d_model;

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
    if frame.backbone.output_bias || rows > 0 || projected {
        params += vocab + rows * d_embed + rows;
    }
    if projected {
        params += if frame.tie_projs { d * d_embed } else { projections };
    }
    if !frame.tie_embeddings {
        params += weights;
    }
    let position = match frame.backbone.positions {
        Positions::Learned => u64::from(frame.max_len) * d,
        Positions::Relative => 0,
    };

    let head = u64::from(frame.cutoffs.first().copied().unwrap_or(frame.vocab)) + rows;
    let project = if projected { u128::from(d) * u128::from(d_embed) } else { 0 };
    let output = 2 * (project + u128::from(d_embed) * u128::from(head));
    EmbeddingCost {
        params: params + position,
        position,
        output_flops: setting.tokens() * output,
        output_full_flops: setting.tokens() * (output + tail_flops),
        activation_bytes: setting.tokens() * 4 * (u128::from(d) + u128::from(vocab + rows)),
    }
}
