//! MPNet (Song et al., 2020): a BERT without segments whose scores have a bias by the distance between query and key, a number for
//! each of 32 buckets and each head, the same in all layers (Raffel et al., 2020). Positions and output layers are RoBERTa's.

use super::encoder::{self, Config, Encoder, HeadKind, Masked, Names, Vector};
use crate::blocks::Buckets;
use crate::build::NetworkBuilder;
use crate::embedding::EmbeddingStyle;
use crate::head::{HeadStyle, PoolerAct};
use lathe_core::{Activation, OwnKey};
use lathe_ops::activation::Act;
use serde_json::json;

const KEYS: &[OwnKey] = &[encoder::norm_eps("1e-5"), encoder::HEAD, encoder::POOLING, encoder::LABELS, encoder::POOLER];

/// The only number of buckets that transformers computes with.
const BUCKETS: u32 = 32;
const POOLER: Vector = Vector { dense: "mpnet.pooler.dense", act: PoolerAct::Tanh, drops: false };
const OF_CLASSES: Vector = Vector { dense: "classifier.dense", act: PoolerAct::Tanh, drops: true };

pub(super) static MPNET: Encoder = Encoder {
    key: "mpnet",
    about: "encoder: scores with a bias by distance, one text",
    keys: KEYS,
    activation: Activation::Gelu,
    max_len: 512,
    unused_rows: 2,
    buckets: Some(Buckets { table: "mpnet.encoder.relative_attention_bias.weight", count: BUCKETS, max_distance: 128 }),
    names: Names {
        prefix: "mpnet",
        layers: "encoder.layer",
        attention: [
            "attention.attn.q",
            "attention.attn.k",
            "attention.attn.v",
            "attention.attn.o",
            "attention.LayerNorm",
        ],
        ffn: ["intermediate.dense", "output.dense", "output.LayerNorm"],
    },
    masked: Masked {
        prefix: "lm_head.",
        dense: "lm_head.dense",
        norm: "lm_head.layer_norm",
        act: Some(Act::Gelu),
        embedding: EmbeddingStyle {
            plain: Some("mpnet.embeddings.word_embeddings.weight"),
            prefix: "mpnet.embeddings.word_embeddings",
            scaled: false,
            projection: None,
        },
        tokens: HeadStyle {
            plain_weight: "lm_head.decoder.weight",
            plain_bias: Some("lm_head.bias"),
            criterion: false,
            projection: None,
        },
        bias_again: Some("lm_head.decoder.bias"),
    },
    pooler: Some(POOLER),
    heads: &[
        HeadKind::new("masked_lm", "ForMaskedLM", None, None),
        HeadKind::new("none", "Model", None, None),
        HeadKind::new("classify", "ForSequenceClassification", Some("classifier.out_proj"), Some(OF_CLASSES)),
        HeadKind::new("regress", "ForSequenceClassification", Some("classifier.out_proj"), Some(OF_CLASSES)),
        HeadKind::new("choose", "ForMultipleChoice", Some("classifier"), Some(POOLER)),
        HeadKind::new("span", "ForQuestionAnswering", Some("qa_outputs"), None),
    ],
    config: Config {
        model_types: &["mpnet"],
        class: "MPNet",
        layers: ("num_hidden_layers", 12),
        copied: &[
            ("vocab_size", "vocab", "30527"),
            ("hidden_size", "d_model", "768"),
            ("intermediate_size", "inner", "3072"),
            ("num_attention_heads", "heads", "12"),
            ("max_position_embeddings", "max_len", "512"),
            ("layer_norm_eps", "norm_eps", "1e-12"),
            ("hidden_dropout_prob", "dropout", "0.1"),
            ("attention_probs_dropout_prob", "attn_dropout", "0.1"),
            ("tie_word_embeddings", "tie_embeddings", "true"),
        ],
        activation: ("hidden_act", "gelu"),
        classifier: None,
        only: || vec![("relative_attention_num_buckets", json!(BUCKETS)), ("pad_token_id", json!(1))],
    },
    builder: &NetworkBuilder(&MPNET),
};
