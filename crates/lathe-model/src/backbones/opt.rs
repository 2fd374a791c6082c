//! OPT (Zhang et al., 2022), counted as a GPT-2 with 2050 positions (2048, and two that are never used)
//! and ReLU.

use super::gpt2::Gpt2;
use crate::build::NetworkBuilder;
use lathe_core::Activation;

pub(super) static OPT: Gpt2 = Gpt2 {
    key: "opt",
    about: "as gpt2, with 2050 positions and ReLU",
    aliases: &[],
    activation: Activation::Relu,
    max_len: 2050,
    base_widths: None,
    model_types: &[],
    builder: &NetworkBuilder(&OPT),
};
