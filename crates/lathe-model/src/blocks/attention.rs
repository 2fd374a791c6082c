//! Multi-head self-attention, `s`.
//!
//! With A = heads * head width:
//!
//! - `gpt2` (Radford et al., 2019): softmax(q k^T / sqrt(K)) v over T tokens; q, k, v and the output
//!   projection with bias.
//! - `transformer_xl` (Dai et al., 2019): keys and values over memory and segment, M + T, and a score
//!   (q + u) k^T + (q + v) r^T with projected relative positions r; no bias, but u and v per layer.
//!
//! | | parameters | FLOPs of one sequence |
//! |---|---|---|
//! | gpt2 | 4 D A + 3 A + D | 2 T 4 D A + 2 * 2 T T A |
//! | transformer_xl | 5 D A + 2 A | 2 D A (2 T + 3 (M + T)) + 3 * 2 T (M + T) A |

use super::{BYTES, memory_bytes};
use lathe_core::{Block, BlockKind, Cost, Domain, Error, Frame, Knob, Positions, Result, Setting};

pub(super) struct Attention;

const HEADS: usize = 0;
const D_HEAD: usize = 1;
const MAX_HEADS: u32 = 1 << 16;
/// The widest A, which keeps every count within its integer.
const MAX_A: u64 = 1 << 20;

/// Heads, and the width of each.
fn shape(block: &Block, frame: &Frame) -> (u32, u32) {
    let heads = block.get(HEADS).unwrap_or(frame.heads);
    let d_head = block.get(D_HEAD).or(frame.d_head).unwrap_or(frame.d_model / heads);
    (heads, d_head)
}

impl BlockKind for Attention {
    fn key(&self) -> &'static str {
        "attention"
    }

    fn letter(&self) -> Option<char> {
        Some('s')
    }

    fn knobs(&self) -> &'static [Knob] {
        const DOMAIN: Domain = Domain::Int { min: 1, max: MAX_HEADS };
        &[
            Knob { name: "heads", mark: Some(""), domain: DOMAIN },
            Knob { name: "d_head", mark: Some("d"), domain: DOMAIN },
        ]
    }

    fn check(&self, block: &Block, frame: &Frame) -> Result<()> {
        let (heads, d_head) = shape(block, frame);
        let wrong = |found: String, expected: String| Err(Error::Value { place: "heads".into(), found, expected });
        if heads > frame.d_model {
            return wrong(heads.to_string(), format!("at most d_model, which is {}", frame.d_model));
        }
        if u64::from(heads) * u64::from(d_head) > MAX_A {
            return wrong(format!("{heads} heads of width {d_head}"), format!("heads * d_head of at most {MAX_A}"));
        }
        Ok(())
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        let (heads, d_head) = shape(block, frame);
        let d = u64::from(frame.d_model);
        let a = u64::from(heads) * u64::from(d_head);
        let params = match frame.backbone.positions {
            Positions::Relative => 5 * d * a + 2 * a,
            Positions::Learned => 4 * d * a + 3 * a + d,
        };

        let (b, t, m) = (u128::from(setting.batch), u128::from(setting.tgt_len), u128::from(setting.mem_len));
        let (h, wide_a, wide_d) = (u128::from(heads), u128::from(a), u128::from(d));
        // Per sequence: multiply-adds of the projections and of the products, and floats written.
        let (projections, products, floats, state) = match frame.backbone.positions {
            Positions::Relative => {
                let all = m + t;
                let projections = wide_d * wide_a * (2 * t + 3 * all);
                let products = 3 * t * all * wide_a;
                // norm, q, [k, v, r], probabilities, context, output
                let floats = t * wide_d + t * wide_a + 3 * all * wide_a + h * t * all + t * wide_a + t * wide_d;
                (projections, products, floats, memory_bytes(frame, setting.mem_len))
            }
            Positions::Learned => {
                let projections = wide_d * wide_a * 4 * t;
                let products = 2 * t * t * wide_a;
                let floats = t * wide_d + 3 * t * wide_a + h * t * t + t * wide_a + t * wide_d;
                (projections, products, floats, 2 * wide_a * BYTES * u128::from(frame.max_len))
            }
        };
        Cost {
            params,
            norm_params: 2 * d,
            flops: b * 2 * (projections + products),
            activation_bytes: b * BYTES * floats,
            state_bytes: state,
        }
    }
}
