//! Mixture of experts, `m` (Shazeer et al., 2017; Fedus et al., 2021; as in PLANER): a gate without bias
//! gives each token a distribution over the experts; the `top_k` most probable feed-forward nets process
//! it, weighted by their probabilities, which `renormalise` makes sum to 1. No token is dropped.
//!
//! | parameters | FLOPs of one sequence |
//! |---|---|
//! | experts * (2 D F + F + D) + D * experts | 2 T D experts + top_k * 4 T D F |

use super::ffn::{self, MAX_INNER};
use super::{BYTES, memory_bytes};
use lathe_core::{Block, BlockKind, Cost, Domain, Error, Frame, Knob, Result, Setting};

pub(super) struct Moe;

const EXPERTS: usize = 0;
const TOP_K: usize = 1;
const INNER: usize = 2;
const MAX_EXPERTS: u32 = 1 << 12;

/// Experts, and how many of them process a token. A bare `m` is PLANER's: 8 experts, 2 active.
fn shape(block: &Block) -> (u32, u32) {
    let experts = block.get(EXPERTS).unwrap_or(8);
    (experts, block.get(TOP_K).unwrap_or(2.min(experts)))
}

impl BlockKind for Moe {
    fn key(&self) -> &'static str {
        "moe"
    }

    fn letter(&self) -> Option<char> {
        Some('m')
    }

    fn knobs(&self) -> &'static [Knob] {
        const DOMAIN: Domain = Domain::Int { min: 1, max: MAX_EXPERTS };
        &[
            Knob { name: "experts", mark: Some(""), domain: DOMAIN },
            Knob { name: "top_k", mark: Some("k"), domain: DOMAIN },
            Knob { name: "inner", mark: Some("i"), domain: Domain::Int { min: 1, max: MAX_INNER } },
            Knob { name: "renormalise", mark: None, domain: Domain::Flag },
        ]
    }

    fn check(&self, block: &Block, _: &Frame) -> Result<()> {
        let (experts, top_k) = shape(block);
        if top_k > experts {
            let expected = format!("at most the number of experts, which is {experts}");
            return Err(Error::Value { place: "top_k".into(), found: top_k.to_string(), expected });
        }
        Ok(())
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        let (experts, top_k) = shape(block);
        let (experts, top_k) = (u64::from(experts), u128::from(top_k));
        let d = u64::from(frame.d_model);
        let f = u64::from(block.get(INNER).unwrap_or(frame.inner));
        let gate_flops = 2 * u128::from(d) * u128::from(experts);
        let (wide_d, wide_experts) = (u128::from(d), u128::from(experts));
        // norm, gate, for each active expert its inner and its output, and the sum
        let inner_and_output = ffn::inner_floats(frame.activation, f) + wide_d;
        let floats_per_token = wide_d + wide_experts + top_k * inner_and_output + wide_d;
        Cost {
            params: experts * ffn::params(frame.activation, d, f) + d * experts,
            norm_params: 2 * d,
            flops: setting.tokens() * (gate_flops + top_k * ffn::flops_per_token(frame.activation, d, f)),
            activation_bytes: setting.tokens() * BYTES * floats_per_token,
            state_bytes: memory_bytes(frame, setting.mem_len),
        }
    }
}
