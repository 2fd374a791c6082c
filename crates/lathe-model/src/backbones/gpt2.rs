//! GPT-2 (Radford et al., 2019): learned positions, norm before each block and after the last, output
//! weights tied to the embedding.

use lathe_core::{Activation, Backbone, Norm, Positions};

pub(super) const GPT2: Backbone = Backbone {
    key: "gpt2",
    about: "learned positions, no memory",
    positions: Positions::Learned,
    norm: Norm::Pre,
    activation: Activation::GeluTanh,
    final_norm: true,
    output_bias: false,
    max_len: 1024,
};
