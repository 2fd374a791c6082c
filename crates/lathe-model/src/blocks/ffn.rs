//! Feed-forward, `f`: act(x W1 + b1) W2 + b2 with inner width F.
//!
//! Gated activations (Shazeer, 2020) multiply act(x W1) by a second product x V before W2; that makes
//! three matrices of two, all without bias.
//!
//! | | parameters | FLOPs of one sequence |
//! |---|---|---|
//! | plain | 2 D F + F + D | 4 T D F |
//! | gated | 3 D F | 6 T D F |

use super::{BYTES, memory_bytes};
use lathe_core::{Activation, Block, BlockKind, Cost, Domain, Frame, Knob, Result, Setting};

pub(super) struct Ffn;

const INNER: usize = 0;
/// The widest F.
pub(super) const MAX_INNER: u32 = 1 << 20;

/// Parameters of one feed-forward net, which an expert is too.
pub(super) fn params(activation: Activation, d: u64, f: u64) -> u64 {
    if activation.gated() { 3 * d * f } else { 2 * d * f + f + d }
}

/// FLOPs for one token.
pub(super) fn flops_per_token(activation: Activation, d: u64, f: u64) -> u128 {
    let matrices = if activation.gated() { 3 } else { 2 };
    2 * matrices * u128::from(d) * u128::from(f)
}

/// Floats that one token writes inside: the inner activations, before and after the gate.
pub(super) fn inner_floats(activation: Activation, f: u64) -> u128 {
    if activation.gated() { 3 * u128::from(f) } else { u128::from(f) }
}

impl BlockKind for Ffn {
    fn key(&self) -> &'static str {
        "ffn"
    }

    fn letter(&self) -> Option<char> {
        Some('f')
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob { name: "inner", mark: Some(""), domain: Domain::Int { min: 1, max: MAX_INNER } }]
    }

    fn check(&self, _: &Block, _: &Frame) -> Result<()> {
        Ok(())
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        let d = u64::from(frame.d_model);
        let f = u64::from(block.get(INNER).unwrap_or(frame.inner));
        let floats_per_token = 2 * u128::from(d) + inner_floats(frame.activation, f); // norm, inner, output
        Cost {
            params: params(frame.activation, d, f),
            norm_params: 2 * d,
            flops: setting.tokens() * flops_per_token(frame.activation, d, f),
            activation_bytes: setting.tokens() * BYTES * floats_per_token,
            state_bytes: memory_bytes(frame, setting.mem_len),
        }
    }
}
