//! Multi-head self-attention, `s`. Which one, the backbone says by an [`AttentionStyle`].
//!
//! With A = heads * head width, and G = A where keys and values have as many heads as queries, less where several
//! queries share one (grouped-query attention, Ainslie et al., 2023):
//!
//! | | parameters | FLOPs of one sequence |
//! |---|---|---|
//! | dot product | 2 D A + 2 D G, biases A + 2 G and D | 2 T (2 D A + 2 D G) + 2 * 2 T T A |
//! | relative | 5 D A + 2 A | 2 D A (2 T + 3 (M + T)) + 3 * 2 T (M + T) A |

mod buckets;
mod dot;
mod relative;

pub use buckets::Buckets;
pub use relative::Distances;

use super::{BYTES, memory_bytes};
use crate::build::{self, BuildBlock, LayerBuilder, Site};
use crate::layer::Layer;
use crate::norm;
use crate::params::Builder;
use lathe_core::{Block, BlockKind, Cost, Domain, Error, Frame, Knob, MAX_WIDTH, Result, Role, Setting};
use lathe_ops::norm::NormKind;
use lathe_ops::rope::Scaling;
use std::any::Any;

pub(super) struct Attention;

const HEADS: usize = 0;
const D_HEAD: usize = 1;
const KV_HEADS: usize = 2;
/// The widest A, which keeps every count within its integer.
const MAX_A: u64 = 1 << 20;
const ROLE: Role = Role::MixesTokens;

/// What attention looks like in a backbone.
#[derive(Debug, Clone, Copy)]
pub struct AttentionStyle {
    /// How queries and keys make scores.
    pub scores: Scores,
    /// Whether queries, keys and values are one matrix rather than three.
    pub fused: bool,
    /// Whether queries, keys and values have biases.
    pub qkv_bias: bool,
    /// Whether the output has a bias.
    pub out_bias: bool,
    /// Whether several heads of queries may share one of keys and values.
    pub grouped: bool,
    /// A norm over each head of queries and keys.
    pub head_norm: Option<NormKind>,
    /// Biases of dot products by distance, where all tokens are seen.
    pub buckets: Option<Buckets>,
}

impl AttentionStyle {
    /// Dot products of queries, keys and values from three matrices, with biases.
    pub const fn dot(causal: bool) -> Self {
        Self {
            scores: Scores::Dot { causal, rotary: None },
            fused: false,
            qkv_bias: true,
            out_bias: true,
            grouped: false,
            head_norm: None,
            buckets: None,
        }
    }
}

/// How queries and keys make scores.
#[derive(Debug, Clone, Copy)]
pub enum Scores {
    /// q k^T / sqrt(K).
    Dot {
        /// Whether a token sees only those before it.
        causal: bool,
        /// How queries and keys are rotated by their places, where they are.
        rotary: Option<Rotary>,
    },
    /// With relative positions over a memory, of [`Distances`]: always causal.
    Relative,
}

/// Rotary positions (Su et al., 2021).
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Rotary {
    pub theta: f64,
    pub scaling: Scaling,
}

/// Heads of queries, heads of keys and values, and the width of each.
#[derive(Clone, Copy)]
struct Heads {
    heads: u32,
    kv_heads: u32,
    d_head: u32,
}

impl Heads {
    fn of(block: &Block, frame: &Frame) -> Self {
        let heads = block.get(HEADS).unwrap_or(frame.heads);
        let d_head = block.get(D_HEAD).or(frame.d_head).unwrap_or(frame.d_model / heads);
        let kv_heads = block.get(KV_HEADS).unwrap_or_else(|| kv_heads(heads, frame));
        Self { heads, kv_heads, d_head }
    }

    fn a(self) -> u64 {
        u64::from(self.heads) * u64::from(self.d_head)
    }

    fn g(self) -> u64 {
        u64::from(self.kv_heads) * u64::from(self.d_head)
    }
}

/// Heads of keys and values for so many of queries where a block does not say: groups as large as the frame's.
fn kv_heads(heads: u32, frame: &Frame) -> u32 {
    let Some(of_frame) = frame.int("kv_heads") else { return heads };
    let group = (frame.heads / of_frame.max(1)).max(1);
    if heads.is_multiple_of(group) { heads / group } else { gcd(heads, of_frame) }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn style(frame: &Frame) -> AttentionStyle {
    build::of_backbone(frame.backbone).attention(frame)
}

impl BlockKind for Attention {
    fn key(&self) -> &'static str {
        "attention"
    }

    fn letter(&self) -> Option<char> {
        Some('s')
    }

    fn knobs(&self) -> &'static [Knob] {
        const DOMAIN: Domain = Domain::Int { min: 1, max: MAX_WIDTH };
        &[
            Knob { name: "heads", mark: Some(""), domain: DOMAIN },
            Knob { name: "d_head", mark: Some("d"), domain: DOMAIN },
            Knob { name: "kv_heads", mark: Some("g"), domain: DOMAIN },
        ]
    }

    fn resolve(&self, block: &Block, frame: &Frame) -> Block {
        let Heads { heads, kv_heads, d_head } = Heads::of(block, frame);
        let mut resolved = Block::new(block.kind);
        resolved.set(HEADS, heads);
        resolved.set(D_HEAD, d_head);
        // Where nothing is shared, nothing is said of it.
        if kv_heads != heads || frame.int("kv_heads").is_some() {
            resolved.set(KV_HEADS, kv_heads);
        }
        resolved
    }

    fn check(&self, block: &Block, frame: &Frame) -> Result<()> {
        let Heads { heads, kv_heads, d_head } = Heads::of(block, frame);
        let wrong = |found: String, expected: String| Err(Error::value("heads", found, expected));
        if heads > frame.d_model {
            return wrong(heads.to_string(), format!("at most d_model, which is {}", frame.d_model));
        }
        if u64::from(heads) * u64::from(d_head) > MAX_A {
            return wrong(format!("{heads} heads of width {d_head}"), format!("heads * d_head of at most {MAX_A}"));
        }
        if !heads.is_multiple_of(kv_heads) {
            return Err(Error::value("kv_heads", kv_heads, format!("a divisor of heads, which is {heads}")));
        }
        let style = style(frame);
        if kv_heads != heads && !style.grouped {
            let expected = format!("{heads}, as many as heads with backbone {}", frame.backbone.key());
            return Err(Error::value("kv_heads", kv_heads, expected));
        }
        if let Scores::Dot { rotary: Some(_), .. } = style.scores
            && !d_head.is_multiple_of(2)
        {
            return Err(Error::value("d_head", d_head, "an even width for rotary positions"));
        }
        Ok(())
    }

    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost {
        let sizes = Heads::of(block, frame);
        let style = style(frame);
        let (d, a, g) = (u64::from(frame.d_model), sizes.a(), sizes.g());
        let (b, t, m) = (u128::from(setting.batch), u128::from(setting.tgt_len), u128::from(setting.mem_len));
        let (h, wide_a, wide_g, wide_d) = (u128::from(sizes.heads), u128::from(a), u128::from(g), u128::from(d));
        let norm_of = |kind: NormKind, width: u64| norm::params_of(kind, width);
        let mut norm_params = norm_of(build::of_backbone(frame.backbone).style(frame, 1).norm, d);
        norm_params += style.head_norm.map_or(0, |kind| 2 * norm_of(kind, sizes.d_head.into()));
        // Per sequence: multiply-adds of the projections and of the products, and floats written.
        let (params, projections, products, floats, state) = match style.scores {
            Scores::Relative => {
                let all = m + t;
                let projections = wide_d * wide_a * (2 * t + 3 * all);
                let products = 3 * t * all * wide_a;
                // norm, q, [k, v, r], probabilities, context, output
                let floats = t * wide_d + t * wide_a + 3 * all * wide_a + h * t * all + t * wide_a + t * wide_d;
                (relative::params(d, a), projections, products, floats, memory_bytes(frame, setting.mem_len))
            }
            Scores::Dot { causal, .. } => {
                let biases = if style.qkv_bias { a + 2 * g } else { 0 } + if style.out_bias { d } else { 0 };
                let projections = wide_d * t * (2 * wide_a + 2 * wide_g);
                let products = 2 * t * t * wide_a;
                let floats = t * wide_d + t * (wide_a + 2 * wide_g) + h * t * t + t * wide_a + t * wide_d;
                let state = if causal { 2 * wide_g * BYTES * u128::from(frame.max_len) } else { 0 };
                (2 * d * (a + g) + biases, projections, products, floats, state)
            }
        };
        Cost {
            params,
            norm_params,
            flops: b * 2 * (projections + products),
            activation_bytes: b * BYTES * floats,
            state_bytes: state,
        }
    }

    fn role(&self) -> Role {
        ROLE
    }

    fn in_references(&self) -> bool {
        true
    }

    /// 1, 2, 4, ... heads, and as many as the frame has.
    fn variants(&self, frame: &Frame) -> Vec<Block> {
        let fewer = std::iter::successors(Some(1), |heads| Some(2 * heads)).take_while(|&fewer| fewer < frame.heads);
        let of = |heads: u32| {
            let mut block = Block::new(&Self);
            block.set(HEADS, heads);
            block
        };
        fewer.chain([frame.heads]).map(of).collect()
    }

    fn builder(&self) -> &'static dyn Any {
        &LayerBuilder(&Self)
    }
}

impl BuildBlock for Attention {
    fn build(&self, block: &Block, frame: &Frame, site: &Site<'_>, builder: &mut Builder) -> Option<Box<dyn Layer>> {
        let sizes = Heads::of(block, frame);
        match site.attention().scores {
            Scores::Relative => relative::build((sizes.heads as usize, sizes.d_head as usize), frame, site, builder),
            Scores::Dot { causal, rotary } => dot::build(sizes, (causal, rotary), frame, site, builder),
        }
    }
}
