//! What the encoders after BERT (Devlin et al., 2018) have in common, by a table for each family: attention over the whole
//! text but its padding, learned positions and, in some, segments; a norm after their sum and after each block; a vector of
//! the text from its first token (the pooler), and an output layer: for masked tokens, whose weights are the embedding's,
//! or for a task that the model was fine-tuned for.

use crate::blocks::{AttentionStyle, Buckets};
use crate::build::{BuildBackbone, DEVIATION, FrameCost, NetworkBuilder, Style};
use crate::embedding::{self, Embedding, EmbeddingStyle};
use crate::folder::{ConfigReader, Json, Uniform, json_of, uniform};
use crate::head::{Head, HeadStyle, MaskedHead, Pooler, PoolerAct, TaskHead, TokenHead, Top};
use crate::linear::{Layout, Linear};
use crate::norm::NormParams;
use crate::params::{Builder, Init};
use crate::stem::{Stem, TokenStem};
use lathe_core::model::{KeyKind, Value};
use lathe_core::{Activation, Backbone, Defaults, Error, Frame, Model, NormPlace, OwnKey, Result, Role, Setting};
use lathe_ops::activation::Act;
use lathe_ops::norm::{Norm, NormKind};
use serde_json::json;
use std::any::Any;

/// A family of encoders.
pub(super) struct Encoder {
    pub key: &'static str,
    pub about: &'static str,
    pub keys: &'static [OwnKey],
    pub activation: Activation,
    /// Tokens of a window where the model file says nothing.
    pub max_len: u32,
    /// Rows of the table of positions before the first token's.
    pub unused_rows: u32,
    /// Biases of scores by distance, of one table for all layers.
    pub buckets: Option<Buckets>,
    pub names: Names,
    pub masked: Masked,
    /// The vector of a text that models without an output layer have.
    pub pooler: Option<Vector>,
    pub heads: &'static [HeadKind],
    pub config: Config,
    pub builder: &'static NetworkBuilder,
}

/// What a family calls its weights, after its prefix.
pub(super) struct Names {
    /// What all names but those of output layers begin with.
    pub prefix: &'static str,
    /// Layers, before their number.
    pub layers: &'static str,
    /// In a layer: queries, keys, values, the output of attention, and its norm.
    pub attention: [&'static str; 5],
    /// In a layer: the matrices of the feed-forward, and its norm.
    pub ffn: [&'static str; 3],
}

/// The output layer for masked tokens.
pub(super) struct Masked {
    /// What names of its weights begin with, and with nothing else.
    pub prefix: &'static str,
    pub dense: &'static str,
    pub norm: &'static str,
    /// Its non-linearity, where that is not the model's.
    pub act: Option<Act>,
    pub embedding: EmbeddingStyle,
    pub tokens: HeadStyle,
    /// What a file may call its biases once more.
    pub bias_again: Option<&'static str>,
}

/// A vector of a text, from its first token.
#[derive(Clone, Copy)]
pub(super) struct Vector {
    pub dense: &'static str,
    pub act: PoolerAct,
    /// Whether the first token's hidden state is dropped before it, too.
    pub drops: bool,
}

/// An output layer.
pub(super) struct HeadKind {
    /// The key `head`.
    pub name: &'static str,
    /// How the class with it is called in `transformers`, after the family.
    pub class: &'static str,
    /// What its weights are called, of a layer for a task.
    pub weights: Option<&'static str>,
    /// The vector of a text that it stands on; else it has numbers for each token.
    pub vector: Option<Vector>,
}

/// `config.json` of `transformers`.
pub(super) struct Config {
    /// The first is written.
    pub model_types: &'static [&'static str],
    /// What the names of classes begin with.
    pub class: &'static str,
    /// The key of the number of layers, and its default.
    pub layers: (&'static str, u64),
    /// Their keys, ours, and their defaults.
    pub copied: &'static [(&'static str, &'static str, &'static str)],
    /// The key of the activation, and its default.
    pub activation: (&'static str, &'static str),
    /// The key of the dropout before the output layer of a task, and its default, which may be that of hidden states.
    pub classifier: Option<(&'static str, Option<f64>)>,
    /// Keys of which one value exists here, which is written.
    pub only: fn() -> Vec<(&'static str, Json)>,
}

impl HeadKind {
    pub const fn new(
        name: &'static str,
        class: &'static str,
        weights: Option<&'static str>,
        vector: Option<Vector>,
    ) -> Self {
        Self { name, class, weights, vector }
    }
}

/// The head of a model that is trained on masked tokens and on pairs of texts at once: that of masked tokens, and beside it two
/// numbers for the vector of a text.
pub(super) const PRETRAINING: &str = "pretraining";

/// The keys of the model file that families have.
pub(super) const fn norm_eps(default: &'static str) -> OwnKey {
    OwnKey::new("norm_eps", KeyKind::Real(0.0, 1.0), Some(default), "added to variances by norms")
}

pub(super) const fn segments(default: &'static str) -> OwnKey {
    OwnKey::new("segments", KeyKind::Int(1, 1 << 10), Some(default), "texts that an input may consist of [2]")
}

#[rustfmt::skip]
pub(super) const HEAD: OwnKey = OwnKey::new("head", KeyKind::Word, Some("masked_lm"), "output layer: masked_lm, pretraining (masked_lm and one for pairs of texts), classify, regress, choose, span or none [masked_lm]");
#[rustfmt::skip]
pub(super) const POOLING: OwnKey = OwnKey::new("pooling", KeyKind::Word, Some("mean"), "what the embedding of a text is: the mean of its tokens, or cls, the first [mean]");
#[rustfmt::skip]
pub(super) const LABELS: OwnKey = OwnKey::new("labels", KeyKind::Words, None, "with head classify: what texts can be, in the order of the outputs");
#[rustfmt::skip]
pub(super) const CLASSIFIER_DROPOUT: OwnKey = OwnKey::new(CLASSIFIER, KeyKind::Real(0.0, 1.0), None, "dropout before the output layer of a task [dropout]");
#[rustfmt::skip]
pub(super) const POOLER: OwnKey = OwnKey::new("pooler", KeyKind::Flag, Some("false"), "a vector of the text from its first token [false]");

const CLASSIFIER: &str = "classifier_dropout";

/// The names of activations; the first of a kind is the one that is written.
const ACTIVATIONS: &[(&str, Activation)] = &[
    ("gelu", Activation::Gelu),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("relu", Activation::Relu),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
];

impl Backbone for Encoder {
    fn key(&self) -> &'static str {
        self.key
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn defaults(&self) -> Defaults {
        Defaults { norm: NormPlace::Post, activation: self.activation, max_len: self.max_len }
    }

    fn own_keys(&self) -> &'static [OwnKey] {
        self.keys
    }

    fn causal(&self) -> bool {
        false
    }

    fn has_head(&self, frame: &Frame) -> bool {
        frame.word("head").is_some_and(|head| ["masked_lm", PRETRAINING].contains(&head))
    }

    fn check(&self, frame: &Frame) -> Result<()> {
        self.check_head(frame)?;
        if embedding::adaptive(frame) || embedding::projected(frame) {
            let expected = format!("d_model, and no cutoffs, with backbone {}", self.key);
            return Err(Error::value("d_embed", frame.d_embed, expected));
        }
        Ok(())
    }

    fn builder(&self) -> &'static dyn Any {
        self.builder
    }
}

impl Encoder {
    /// Whether the output layer and what goes with it is one that exists.
    pub fn check_head(&self, frame: &Frame) -> Result<()> {
        let head = frame.word("head").unwrap_or_default();
        if !self.heads.iter().any(|known| known.name == head) {
            let known: Vec<_> = self.heads.iter().map(|known| known.name).collect();
            return Err(Error::value("head", format!("`{head}`"), known.join(", ")));
        }
        let pooling = frame.word("pooling").unwrap_or_default();
        if !["mean", "cls"].contains(&pooling) {
            return Err(Error::value("pooling", format!("`{pooling}`"), "mean or cls"));
        }
        let labels = frame.words("labels");
        match (head, labels.len()) {
            ("classify", 2..) => {}
            ("classify", n) => return Err(Error::value("labels", n, "at least two, for head classify")),
            (_, 0) => {}
            (_, n) => return Err(Error::value("labels", n, format!("none with head {head}"))),
        }
        let twice = labels.iter().enumerate().find_map(|(i, label)| labels[..i].contains(label).then_some(label));
        match twice {
            Some(twice) => Err(Error::value("labels", format!("`{twice}` twice"), "labels that differ")),
            None => Ok(()),
        }
    }

    fn head(&self, frame: &Frame) -> &'static HeadKind {
        let head = frame.word("head").unwrap_or_default();
        self.heads.iter().find(|known| known.name == head).unwrap_or(&self.heads[0])
    }

    /// The vector of a text: that of the output layer, or one that was asked for.
    fn vector(&self, frame: &Frame) -> Option<Vector> {
        let first_token = frame.own.contains_key("classifier_activation") && !frame.flag("classifier_activation");
        self.head(frame).vector.or(self.pooler.filter(|_| frame.flag("pooler"))).filter(|_| !first_token)
    }

    /// Numbers of the output layer of a task: of labels, of where an answer begins and ends, of what a pair is, or one.
    fn outputs(&self, frame: &Frame) -> usize {
        match self.head(frame) {
            HeadKind { weights: None, .. } => 0,
            HeadKind { vector: None, .. } | HeadKind { name: PRETRAINING, .. } => 2,
            _ => frame.words("labels").len().max(1),
        }
    }

    fn name(&self, part: &str) -> String {
        format!("{}.{part}", self.names.prefix)
    }

    /// Vectors of tokens, as wide as a frame says, and positions, segments and a norm.
    pub fn token_stem(&self, frame: &Frame, of_tokens: &Frame, builder: &mut Builder) -> TokenStem {
        let d = frame.d_model as usize;
        let mut stem = TokenStem::new(Embedding::new(of_tokens, &self.masked.embedding, builder));
        let mut table = |name: &str, rows: u32| {
            let name = self.name(&format!("embeddings.{name}_embeddings.weight"));
            builder.param(name, &[rows as usize, d], Init::Normal(0.0, DEVIATION))
        };
        stem.positions = Some(table("position", frame.max_len + self.unused_rows));
        stem.first_position = self.unused_rows as usize;
        stem.segments = frame.int("segments").map(|rows| table("token_type", rows));
        stem.norm = Some(NormParams::new(builder, &self.name("embeddings.LayerNorm"), embedding_norm(frame), d, 0.0));
        if let Some(buckets) = &self.buckets {
            buckets.param(frame, builder);
        }
        stem
    }

    /// What stands above the blocks but the output layer for masked tokens.
    pub fn top_without_tokens(&self, frame: &Frame, builder: &mut Builder) -> Top {
        let d = frame.d_model as usize;
        let pooler = self.vector(frame).map(|vector| Pooler {
            dense: linear(builder, vector.dense, [d, d]),
            act: vector.act,
            drops: vector.drops,
        });
        let head = self.head(frame);
        let task = head.weights.map(|name| TaskHead {
            dense: linear(builder, name, [d, self.outputs(frame)]),
            of_tokens: head.vector.is_none(),
        });
        Top { pooler, task, embeds_first: frame.word("pooling") == Some("cls"), ..Top::NONE }
    }

    /// The output layer for masked tokens, over vectors of tokens of a frame's width.
    pub fn masked_head(
        &self,
        frame: &Frame,
        (stem, of_tokens): (&dyn Stem, &Frame),
        builder: &mut Builder,
    ) -> Box<dyn Head> {
        let Masked { dense, norm, act, embedding, tokens, .. } = &self.masked;
        let (d, width) = (frame.d_model as usize, of_tokens.d_model as usize);
        let dense = linear(builder, dense, [d, width]);
        let norm = NormParams::new(builder, norm, norm_kind(frame), width, 0.0);
        let tokens = Box::new(TokenHead::new(of_tokens, (stem.tables(), embedding), tokens, builder));
        Box::new(MaskedHead { dense, act: act.unwrap_or_else(|| head_act(frame)), norm, tokens })
    }

    /// The cost of what [`Self::top_without_tokens`] gives.
    pub fn top_cost(&self, frame: &Frame, setting: &Setting) -> FrameCost {
        let (d, wide) = (u64::from(frame.d_model), u128::from(frame.d_model));
        let mut cost = FrameCost::default();
        if self.vector(frame).is_some() {
            cost.params += d * d + d;
            cost.output_flops += u128::from(setting.batch) * 2 * wide * wide;
        }
        let outputs = self.outputs(frame) as u64;
        let rows = if self.head(frame).vector.is_none() { setting.tokens() } else { u128::from(setting.batch) };
        cost.params += outputs * (d + 1);
        cost.output_flops += rows * 2 * wide * u128::from(outputs);
        cost.output_full_flops = cost.output_flops;
        cost
    }

    /// The cost of what stands around the blocks, with vectors of tokens of a frame's width; between the two widths nothing.
    pub fn cost_over(&self, frame: &Frame, of_tokens: &Frame, setting: &Setting) -> FrameCost {
        let (d, e) = (u64::from(frame.d_model), u64::from(of_tokens.d_model));
        let (mut cost, above) = (embedding::cost(of_tokens, setting, true), self.top_cost(frame, setting));
        let (positions, added) = self.added_params(frame, e);
        cost.position = positions;
        cost.params += positions + added + above.params;
        if frame.has_head() {
            cost.params += d * e + 3 * e; // dense and norm
            let transform = setting.tokens() * 2 * u128::from(d * e);
            cost.output_flops += transform;
            cost.output_full_flops += transform;
        } else {
            let output = u64::from(frame.vocab) * if frame.tie_embeddings { 1 } else { e + 1 };
            cost.params -= output;
            (cost.output_flops, cost.output_full_flops) = (0, 0);
            cost.activation_bytes = setting.tokens() * 4 * u128::from(d);
        }
        cost.output_flops += above.output_flops;
        cost.output_full_flops += above.output_full_flops;
        cost
    }

    /// Parameters of positions, and of segments and the norm of the embedding, which are so wide.
    pub fn added_params(&self, frame: &Frame, width: u64) -> (u64, u64) {
        let buckets = self.buckets.map_or(0, |buckets| buckets.count * frame.heads);
        let positions = u64::from(frame.max_len + self.unused_rows) * width + u64::from(buckets);
        (positions, u64::from(frame.int("segments").unwrap_or(0)) * width + 2 * width)
    }

    /// `config.json` of a model of such layers.
    pub fn config_of(&self, model: &Model, layers: &Uniform) -> Option<Json> {
        let frame = &model.frame;
        let (activation, _) = ACTIVATIONS.iter().find(|(_, known)| *known == frame.activation)?;
        let head = self.head(frame);
        // With an output layer for tokens there is no pooler, and without any layer there is one if the family has it.
        let pooler = head.name == "none" && self.pooler.is_some();
        let fits = head.vector.is_some() || frame.flag("pooler") == pooler;
        if frame.norm != NormPlace::Post || !fits {
            return None;
        }
        let spec = model.spec();
        let value = |ours: &str| match ours {
            "inner" => json!(layers.inner),
            "heads" => json!(layers.heads),
            "max_len" => json!(frame.max_len + self.unused_rows),
            ours => spec.get(ours).map_or(Json::Null, json_of),
        };
        let mut config: serde_json::Map<String, Json> = (self.config.only)().into_iter().map(owned).collect();
        config.insert("architectures".into(), json!([format!("{}{}", self.config.class, head.class)]));
        config.insert("model_type".into(), json!(self.config.model_types[0]));
        config.insert(self.config.layers.0.into(), json!(layers.count));
        config.insert(self.config.activation.0.into(), json!(activation));
        config.extend(self.config.copied.iter().map(|(theirs, ours, _)| owned((*theirs, value(ours)))));
        if let Some((theirs, default)) = self.config.classifier {
            // Where the default is a number of its own, null is not that of hidden states.
            let value = frame.real(CLASSIFIER).or(default.map(|_| frame.dropout));
            config.insert(theirs.into(), json!(value));
        }
        if head.name == "classify" || head.name == "regress" {
            config.extend(labels_config(frame, head.name == "regress").map(owned));
        }
        Some(Json::Object(config))
    }

    /// What the class of an architecture means to the keys `head` and `pooler`.
    fn read_head(&self, reader: &mut ConfigReader<'_>) -> Result<()> {
        let architecture = reader.value("architectures").and_then(|list| list.get(0)).and_then(Json::as_str);
        let class = architecture.unwrap_or_default();
        let named = |head: &&HeadKind| class.ends_with(head.class) && !class.ends_with("LMHeadModel");
        let (head, pooler) = match self.heads.iter().find(named) {
            Some(head) if ["classify", "regress"].contains(&head.name) => (read_labels(reader)?, false),
            Some(head) => (head.name, head.name == "none"),
            None if class.is_empty() => ("none", true),
            None => {
                let mut known: Vec<&str> = self.heads.iter().map(|head| head.class).collect();
                known.dedup();
                let expected = format!("a class that ends with one of {}", known.join(", "));
                return Err(Error::value("architectures", class, expected));
            }
        };
        reader.set("head", Value::Word(head.into()));
        if self.keys.iter().any(|own| own.key.name == POOLER.key.name) {
            reader.set("pooler", Value::Flag(pooler));
        }
        Ok(())
    }
}

/// W and b as PyTorch has them.
pub(super) fn linear(builder: &mut Builder, name: &str, [inputs, outputs]: [usize; 2]) -> Linear {
    let weight = builder.param(format!("{name}.weight"), &[outputs, inputs], Init::Normal(0.0, DEVIATION));
    let bias = builder.param(format!("{name}.bias"), &[outputs], Init::Constant(0.0));
    Linear::new(weight, Some(bias), Layout::OutIn, inputs, outputs)
}

pub(super) fn norm_kind(frame: &Frame) -> NormKind {
    NormKind { norm: Norm::Layer, eps: frame.real("norm_eps").unwrap_or(1e-12) as f32 }
}

/// The norm of blocks and embedding, where the key `norm_kind` of a family may say another.
fn block_norm(frame: &Frame) -> NormKind {
    match frame.word("norm_kind") {
        Some("scale") => NormKind { norm: Norm::Scale, eps: 0.0 },
        _ => norm_kind(frame),
    }
}

/// The norm of the embedding. Where a family says its kind, transformers builds it without the others' eps.
fn embedding_norm(frame: &Frame) -> NormKind {
    match frame.word("norm_kind") {
        Some("layer") => NormKind::LAYER,
        _ => block_norm(frame),
    }
}

/// The non-linearity of the output layer, which has no gate.
pub(super) fn head_act(frame: &Frame) -> Act {
    match frame.activation {
        Activation::Relu | Activation::Reglu => Act::Relu,
        Activation::Gelu | Activation::Geglu => Act::Gelu,
        Activation::GeluTanh => Act::GeluTanh,
        Activation::Silu | Activation::Swiglu => Act::Silu,
    }
}

impl BuildBackbone for Encoder {
    fn layer_name(&self, _: &Frame, number: usize) -> String {
        self.name(&format!("{}.{number}", self.names.layers))
    }

    fn part_name(&self, _: &Frame, role: Role, part: &str) -> String {
        let Names { attention: [q, k, v, out, attention_norm], ffn: [up, down, ffn_norm], .. } = self.names;
        match (role, part) {
            (Role::MixesTokens, part) if part.ends_with(".norm") => attention_norm,
            (_, part) if part.ends_with(".norm") => ffn_norm,
            (_, "attn.q") => q,
            (_, "attn.k") => k,
            (_, "attn.v") => v,
            (_, "attn.out") => out,
            (_, "mlp.up") => up,
            (_, "mlp.down") => down,
            (_, part) => part,
        }
        .into()
    }

    fn style(&self, frame: &Frame, _: usize) -> Style {
        Style::linear(block_norm(frame))
    }

    fn attention(&self, _: &Frame) -> AttentionStyle {
        AttentionStyle { buckets: self.buckets, ..AttentionStyle::dot(false) }
    }

    fn stem(&self, frame: &Frame, builder: &mut Builder) -> Result<Box<dyn Stem>> {
        Ok(Box::new(self.token_stem(frame, frame, builder)))
    }

    fn top(&self, frame: &Frame, stem: &dyn Stem, builder: &mut Builder) -> Top {
        let top = self.top_without_tokens(frame, builder);
        Top { head: frame.has_head().then(|| self.masked_head(frame, (stem, frame), builder)), ..top }
    }

    fn frame_cost(&self, frame: &Frame, setting: &Setting) -> FrameCost {
        self.cost_over(frame, frame, setting)
    }

    fn model_types(&self) -> &'static [&'static str] {
        self.config.model_types
    }

    fn read_config(&self, reader: &mut ConfigReader<'_>) -> Result<()> {
        let Config { layers: (layers, count), copied, activation: (activation, default), only, .. } = &self.config;
        reader.layers(layers, *count)?;
        reader.copy(copied)?;
        reader.only(&only())?;
        reader.activation(activation, default, ACTIVATIONS)?;
        if let Some((theirs, default)) = self.config.classifier {
            reader.copy_if_set(&[(theirs, CLASSIFIER)])?;
            if let (None, Some(default)) = (reader.value(theirs), default) {
                reader.set(CLASSIFIER, Value::Real(default));
            }
        }
        let theirs = |ours: &str| copied.iter().find(|(_, known, _)| *known == ours).map_or("", |(theirs, ..)| theirs);
        if let (Some(&Value::Int(d)), Some(&Value::Int(heads))) = (reader.get("d_model"), reader.get("heads"))
            && !d.is_multiple_of(heads)
        {
            let expected = format!("a divisor of {}, which is {d}", theirs("d_model"));
            return Err(Error::value(theirs("heads"), heads, expected));
        }
        if let Some(&Value::Int(rows)) = reader.get("max_len") {
            let Some(len @ 1..) = rows.checked_sub(self.unused_rows) else {
                let expected = format!("more than {}, which are never used", self.unused_rows);
                return Err(Error::value(theirs("max_len"), rows, expected));
            };
            reader.set("max_len", Value::Int(len));
        }
        self.read_head(reader)
    }

    fn write_config(&self, model: &Model) -> Option<Json> {
        let layers = uniform(model).filter(|layers| layers.heads * layers.d_head == model.frame.d_model)?;
        self.config_of(model, &layers)
    }

    /// A model without an output layer saves its weights without a prefix; very old files call a norm's parameters gamma
    /// and beta.
    fn other_names(&self, name: &str) -> Vec<String> {
        let old = |name: &str| {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        };
        let prefix = format!("{}.", self.names.prefix);
        let mut names: Vec<String> = name.strip_prefix(&prefix).map(String::from).into_iter().collect();
        if name.contains("LayerNorm.") {
            names.extend(names.clone().iter().map(|name| old(name)));
            names.push(old(name));
        }
        names
    }

    fn is_needless(&self, name: &str, frame: &Frame) -> bool {
        let prefix = format!("{}.", self.names.prefix);
        match name.strip_prefix(&prefix).unwrap_or(name) {
            "embeddings.position_ids" => true,
            name if name == self.masked.tokens.plain_weight => frame.tie_embeddings || !frame.has_head(),
            name if Some(name) == self.masked.bias_again => true,
            name if name.starts_with("cls.seq_relationship.") => self.head(frame).name != PRETRAINING,
            name if name.starts_with(self.masked.prefix) => !frame.has_head(),
            name if name.starts_with("pooler.") => {
                self.vector(frame).is_none_or(|vector| !vector.dense.starts_with(&format!("{prefix}pooler")))
            }
            _ => false,
        }
    }
}

fn owned((key, value): (&'static str, Json)) -> (String, Json) {
    (key.into(), value)
}

/// What `transformers` keeps of labels, or of a single number.
fn labels_config(frame: &Frame, is_number: bool) -> impl Iterator<Item = (&'static str, Json)> {
    let mut labels = frame.words("labels").to_vec();
    if labels.is_empty() {
        labels.push("LABEL_0".into());
    }
    let names: serde_json::Map<_, _> =
        labels.iter().enumerate().map(|(id, label)| (id.to_string(), json!(label))).collect();
    let ids: serde_json::Map<_, _> = labels.iter().enumerate().map(|(id, label)| (label.clone(), json!(id))).collect();
    let problem = if is_number { "regression" } else { "single_label_classification" };
    [("id2label", names.into()), ("label2id", ids.into()), ("problem_type", json!(problem))].into_iter()
}

/// The labels of a model of `transformers` that has numbers for each text, and for which task it is.
fn read_labels(reader: &mut ConfigReader<'_>) -> Result<&'static str> {
    let problem = reader.text("problem_type");
    if problem == Some("multi_label_classification") {
        let found = "`multi_label_classification`";
        return Err(Error::value("problem_type", found, "single_label_classification or regression"));
    }
    let labels: Vec<String> = match reader.value("id2label") {
        None | Some(Json::Null) => vec!["LABEL_0".into(), "LABEL_1".into()],
        Some(ids) => {
            let label = |id: usize| ids.get(id.to_string()).and_then(Json::as_str).map(String::from);
            let count = ids.as_object().map_or(0, serde_json::Map::len);
            let wrong = || Error::value("id2label", format!("`{ids}`"), "a name for each number from 0 on");
            (0..count).map(label).collect::<Option<_>>().ok_or_else(wrong)?
        }
    };
    if problem == Some("regression") || problem.is_none() && labels.len() == 1 {
        if labels.len() != 1 {
            return Err(Error::value("id2label", format!("{} labels", labels.len()), "one, for a regression"));
        }
        return Ok("regress");
    }
    reader.set("labels", Value::Words(labels));
    Ok("classify")
}
