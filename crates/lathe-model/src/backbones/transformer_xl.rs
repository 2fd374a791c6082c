//! Transformer-XL (Dai et al., 2019): relative positions, a memory of the segments before, norm after each
//! block, and an output layer with a bias per token.

use lathe_core::{Activation, Backbone, Norm, Positions};

pub(super) const TRANSFORMER_XL: Backbone = Backbone {
    key: "transformer_xl",
    about: "relative positions, memory of earlier segments",
    positions: Positions::Relative,
    norm: Norm::Post,
    activation: Activation::Relu,
    final_norm: false,
    output_bias: true,
    max_len: 0,
};
