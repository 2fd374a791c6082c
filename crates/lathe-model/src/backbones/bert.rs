//! BERT (Devlin et al., 2018): an encoder. Learned positions and segments, a norm after their sum and after each block,
//! attention over the whole text but its padding, a vector of the text from its first token (the pooler), and an output
//! layer: for masked tokens, whose weights are the embedding's, or for a task that it was fine-tuned for.

use super::encoder::{self, Config, Encoder, HeadKind, Masked, Names, Vector};
use crate::build::NetworkBuilder;
use crate::embedding::EmbeddingStyle;
use crate::head::{HeadStyle, PoolerAct};
use lathe_core::{Activation, OwnKey};
use serde_json::json;

const KEYS: &[OwnKey] = &[
    encoder::norm_eps("1e-12"),
    encoder::segments("2"),
    encoder::HEAD,
    encoder::POOLING,
    encoder::LABELS,
    encoder::CLASSIFIER_DROPOUT,
    encoder::POOLER,
];

const POOLER: Vector = Vector { dense: "bert.pooler.dense", act: PoolerAct::Tanh, drops: false };

pub(super) static BERT: Encoder = Encoder {
    key: "bert",
    about: "encoder: learned positions and segments, sees the whole text",
    keys: KEYS,
    activation: Activation::Gelu,
    max_len: 512,
    unused_rows: 0,
    buckets: None,
    names: Names {
        prefix: "bert",
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
        prefix: "cls.predictions.",
        dense: "cls.predictions.transform.dense",
        norm: "cls.predictions.transform.LayerNorm",
        act: None,
        embedding: EmbeddingStyle {
            plain: Some("bert.embeddings.word_embeddings.weight"),
            prefix: "bert.embeddings.word_embeddings",
            scaled: false,
            projection: None,
        },
        tokens: HeadStyle {
            plain_weight: "cls.predictions.decoder.weight",
            plain_bias: Some("cls.predictions.bias"),
            criterion: false,
            projection: None,
        },
        bias_again: Some("cls.predictions.decoder.bias"),
    },
    pooler: Some(POOLER),
    heads: &[
        HeadKind::new("masked_lm", "ForMaskedLM", None, None),
        HeadKind::new(encoder::PRETRAINING, "ForPreTraining", Some("cls.seq_relationship"), Some(POOLER)),
        HeadKind::new("none", "Model", None, None),
        HeadKind::new("classify", "ForSequenceClassification", Some("classifier"), Some(POOLER)),
        HeadKind::new("regress", "ForSequenceClassification", Some("classifier"), Some(POOLER)),
        HeadKind::new("choose", "ForMultipleChoice", Some("classifier"), Some(POOLER)),
        HeadKind::new("span", "ForQuestionAnswering", Some("qa_outputs"), None),
    ],
    config: Config {
        model_types: &["bert"],
        class: "Bert",
        layers: ("num_hidden_layers", 12),
        copied: &[
            ("vocab_size", "vocab", "30522"),
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
        only: || vec![("position_embedding_type", json!("absolute")), ("is_decoder", json!(false))],
    },
    builder: &NetworkBuilder(&BERT),
};
