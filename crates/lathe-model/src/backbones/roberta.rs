//! RoBERTa (Liu et al., 2019): BERT trained longer and without a second text. Its table of positions has two rows that are never
//! used (transformers gives padding the number 1 and counts tokens from there), and its output layers are its own: the one
//! for classes stands on the first token itself. XLM-RoBERTa and CamemBERT are the same with other tokens.
//!
//! Tokens are counted from the first column on, as in texts whose padding stands behind them.

use super::encoder::{self, Config, Encoder, HeadKind, Masked, Names, Vector};
use crate::build::NetworkBuilder;
use crate::embedding::EmbeddingStyle;
use crate::head::{HeadStyle, PoolerAct};
use lathe_core::{Activation, OwnKey};
use lathe_ops::activation::Act;
use serde_json::json;

const KEYS: &[OwnKey] = &[
    encoder::norm_eps("1e-5"),
    encoder::segments("1"),
    encoder::HEAD,
    encoder::POOLING,
    encoder::LABELS,
    encoder::CLASSIFIER_DROPOUT,
    encoder::POOLER,
];

const POOLER: Vector = Vector { dense: "roberta.pooler.dense", act: PoolerAct::Tanh, drops: false };
const OF_CLASSES: Vector = Vector { dense: "classifier.dense", act: PoolerAct::Tanh, drops: true };

pub(super) static ROBERTA: Encoder = Encoder {
    key: "roberta",
    about: "encoder: a BERT of one text at a time, also XLM-RoBERTa and CamemBERT",
    keys: KEYS,
    activation: Activation::Gelu,
    max_len: 512,
    unused_rows: 2,
    buckets: None,
    names: Names {
        prefix: "roberta",
        layers: "encoder.layer",
        attention: [
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
            "attention.output.dense",
            "attention.output.LayerNorm",
        ],
        ffn: ["intermediate.dense", "output.dense", "output.LayerNorm"],
    },
    masked: Masked {
        prefix: "lm_head.",
        dense: "lm_head.dense",
        norm: "lm_head.layer_norm",
        act: Some(Act::Gelu),
        embedding: EmbeddingStyle {
            plain: Some("roberta.embeddings.word_embeddings.weight"),
            prefix: "roberta.embeddings.word_embeddings",
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
        model_types: &["roberta", "xlm-roberta", "camembert"],
        class: "Roberta",
        layers: ("num_hidden_layers", 12),
        copied: &[
            ("vocab_size", "vocab", "50265"),
            ("hidden_size", "d_model", "768"),
            ("intermediate_size", "inner", "3072"),
            ("num_attention_heads", "heads", "12"),
            ("max_position_embeddings", "max_len", "512"),
            ("type_vocab_size", "segments", "2"),
            ("layer_norm_eps", "norm_eps", "1e-12"),
            ("hidden_dropout_prob", "dropout", "0.1"),
            ("attention_probs_dropout_prob", "attn_dropout", "0.1"),
            ("tie_word_embeddings", "tie_embeddings", "true"),
        ],
        activation: ("hidden_act", "gelu"),
        classifier: Some(("classifier_dropout", None)),
        only: || {
            let positions = ("position_embedding_type", json!("absolute"));
            vec![positions, ("is_decoder", json!(false)), ("pad_token_id", json!(1))]
        },
    },
    builder: &NetworkBuilder(&ROBERTA),
};
