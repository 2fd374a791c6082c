//! OPT (Zhang et al., 2022), counted as a GPT-2 with 2050 positions (2048, and two that are never used)
//! and ReLU.

use super::gpt2::GPT2;
use lathe_core::{Activation, Backbone};

pub(super) const OPT: Backbone = Backbone {
    key: "opt",
    about: "as gpt2, with 2050 positions and ReLU",
    activation: Activation::Relu,
    max_len: 2050,
    ..GPT2
};
