//! DistilBERT (Sanh et al., 2019): a BERT of half as many layers, without segments and without a pooler. The output layer of classes
//! stands on max(W x + b, 0) of the first token.

use super::encoder::{self, Config, Encoder, HeadKind, Masked, Names, Vector};
use crate::build::NetworkBuilder;
use crate::embedding::EmbeddingStyle;
use crate::head::{HeadStyle, PoolerAct};
use lathe_core::{Activation, OwnKey};

const KEYS: &[OwnKey] = &[encoder::HEAD, encoder::POOLING, encoder::LABELS, encoder::CLASSIFIER_DROPOUT];

const OF_CLASSES: Vector = Vector { dense: "pre_classifier", act: PoolerAct::Relu, drops: false };

pub(super) static DISTILBERT: Encoder = Encoder {
    key: "distilbert",
    about: "encoder: a BERT without segments and pooler",
    keys: KEYS,
    activation: Activation::Gelu,
    max_len: 512,
    unused_rows: 0,
    buckets: None,
    names: Names {
        prefix: "distilbert",
        layers: "transformer.layer",
        attention: ["attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm"],
        ffn: ["ffn.lin1", "ffn.lin2", "output_layer_norm"],
    },
    masked: Masked {
        prefix: "vocab_",
        dense: "vocab_transform",
        norm: "vocab_layer_norm",
        act: None,
        embedding: EmbeddingStyle {
            plain: Some("distilbert.embeddings.word_embeddings.weight"),
            prefix: "distilbert.embeddings.word_embeddings",
            scaled: false,
            projection: None,
        },
        tokens: HeadStyle {
            plain_weight: "vocab_projector.weight",
            plain_bias: Some("vocab_projector.bias"),
            criterion: false,
            projection: None,
        },
        bias_again: None,
    },
    pooler: None,
    heads: &[
        HeadKind::new("masked_lm", "ForMaskedLM", None, None),
        HeadKind::new("none", "Model", None, None),
        HeadKind::new("classify", "ForSequenceClassification", Some("classifier"), Some(OF_CLASSES)),
        HeadKind::new("regress", "ForSequenceClassification", Some("classifier"), Some(OF_CLASSES)),
        HeadKind::new("choose", "ForMultipleChoice", Some("classifier"), Some(OF_CLASSES)),
        HeadKind::new("span", "ForQuestionAnswering", Some("qa_outputs"), None),
    ],
    config: Config {
        model_types: &["distilbert"],
        class: "DistilBert",
        layers: ("n_layers", 6),
        copied: &[
            ("vocab_size", "vocab", "30522"),
            ("dim", "d_model", "768"),
            ("hidden_dim", "inner", "3072"),
            ("n_heads", "heads", "12"),
            ("max_position_embeddings", "max_len", "512"),
            ("dropout", "dropout", "0.1"),
            ("attention_dropout", "attn_dropout", "0.1"),
            ("tie_word_embeddings", "tie_embeddings", "true"),
        ],
        activation: ("activation", "gelu"),
        classifier: Some(("seq_classif_dropout", Some(0.2))),
        // The table of positions is in the file however it was first filled.
        only: Vec::new,
    },
    builder: &NetworkBuilder(&DISTILBERT),
};
