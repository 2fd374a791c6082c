//! The model file: a stack of blocks and the frame around it.
//!
//! A [`Spec`] holds what somebody wrote (in TOML, in flags, in a space's choices): some keys of [`KEYS`].
//! [`Spec::model`] fills in the defaults, checks everything and gives a [`Model`], which is always valid.

use crate::fields::{Document, Field, Fields};
use crate::{Backbone, Block, Error, Positions, Registry, Result, notation};
use std::collections::BTreeMap;

/// Where the norm of a block stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norm {
    /// x + f(norm(x))
    Pre,
    /// norm(x + f(x))
    Post,
}

/// The non-linearity inside a feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Activation {
    Relu,
    Gelu,
    GeluTanh,
    Silu,
    Geglu,
    Swiglu,
    Reglu,
}

const NORMS: &[(&str, Norm)] = &[("pre", Norm::Pre), ("post", Norm::Post)];
const ACTIVATIONS: &[(&str, Activation)] = &[
    ("relu", Activation::Relu),
    ("gelu", Activation::Gelu),
    ("gelu_tanh", Activation::GeluTanh),
    ("silu", Activation::Silu),
    ("geglu", Activation::Geglu),
    ("swiglu", Activation::Swiglu),
    ("reglu", Activation::Reglu),
];

/// The name that a table gives a value.
fn name_in<T: Copy + PartialEq>(table: &[(&'static str, T)], value: T) -> &'static str {
    let row = table.iter().find(|(_, known)| *known == value);
    row.expect("the table lists every value of its type").0
}

impl Norm {
    /// Name in the model file.
    pub fn name(self) -> &'static str {
        name_in(NORMS, self)
    }
}

impl Activation {
    /// Name in the model file.
    pub fn name(self) -> &'static str {
        name_in(ACTIVATIONS, self)
    }

    /// Whether a second product gates the first, which makes three matrices of two.
    pub fn gated(self) -> bool {
        matches!(self, Self::Geglu | Self::Swiglu | Self::Reglu)
    }
}

/// What a key of the model file takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KeyKind {
    /// A whole number, bounds included.
    Int(u32, u32),
    /// A number from the first up to but not including the second.
    Real(f64, f64),
    /// `true` or `false`.
    Flag,
    /// A word; which ones, the table or the registry says.
    Word,
    /// A list of whole numbers.
    Ints(u32, u32),
}

/// A key of the model file. Files, flags, spaces and their help all derive from the table [`KEYS`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Key {
    /// Name in files; flags write `-` for `_`.
    pub name: &'static str,
    /// What it takes.
    pub kind: KeyKind,
    /// One line of help.
    pub help: &'static str,
}

const MAX_WIDTH: u32 = 1 << 16;
const MAX_INNER: u32 = 1 << 20;
const MAX_VOCAB: u32 = 1 << 28;
const MAX_LEN: u32 = 1 << 24;

/// The keys of the model file.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    Key { name: "backbone", kind: KeyKind::Word, help: "family: transformer_xl, gpt2 or opt" },
    Key { name: "layers", kind: KeyKind::Word, help: "stack of blocks, e.g. \"(sf)x16\"" },
    Key { name: "d_model", kind: KeyKind::Int(1, MAX_WIDTH), help: "width of the model" },
    Key { name: "vocab", kind: KeyKind::Int(1, MAX_VOCAB), help: "number of tokens" },
    Key { name: "heads", kind: KeyKind::Int(1, MAX_WIDTH), help: "heads of a bare s [d_model / 64]" },
    Key { name: "d_head", kind: KeyKind::Int(1, MAX_WIDTH), help: "width of each head [d_model / heads of the block]" },
    Key { name: "inner", kind: KeyKind::Int(1, MAX_INNER), help: "inner width of a bare f or m [4 * d_model]" },
    Key { name: "activation", kind: KeyKind::Word, help: "relu, gelu, gelu_tanh, silu, geglu, swiglu or reglu [gelu_tanh for gpt2, relu for the others]" },
    Key { name: "norm", kind: KeyKind::Word, help: "pre or post [pre for gpt2, post for transformer_xl]" },
    Key { name: "d_embed", kind: KeyKind::Int(1, MAX_WIDTH), help: "width of the embedding [d_model]" },
    Key { name: "div_val", kind: KeyKind::Int(1, 256), help: "factor by which each further cluster of an adaptive embedding is narrower [1]" },
    Key { name: "cutoffs", kind: KeyKind::Ints(1, u32::MAX), help: "where the clusters of an adaptive softmax end [none: plain softmax]" },
    Key { name: "tie_embeddings", kind: KeyKind::Flag, help: "output weights are the embedding's [true]" },
    Key { name: "tie_projs", kind: KeyKind::Flag, help: "output projections of all clusters but the first are the embedding's [true]" },
    Key { name: "tgt_len", kind: KeyKind::Int(1, MAX_LEN), help: "tokens of a segment [192]" },
    Key { name: "mem_len", kind: KeyKind::Int(0, MAX_LEN), help: "transformer_xl: tokens remembered before a segment [tgt_len]" },
    Key { name: "clamp_len", kind: KeyKind::Int(1, MAX_LEN), help: "transformer_xl: distances beyond it count as it [none]" },
    Key { name: "max_len", kind: KeyKind::Int(1, MAX_LEN), help: "gpt2: learned positions [1024; opt: 2050]" },
    Key { name: "dropout", kind: KeyKind::Real(0.0, 1.0), help: "dropout [0]" },
    Key { name: "attn_dropout", kind: KeyKind::Real(0.0, 1.0), help: "dropout of attention probabilities [0]" },
    Key { name: "moe_dropout", kind: KeyKind::Real(0.0, 1.0), help: "dropout inside experts [dropout]" },
    Key { name: "same_length", kind: KeyKind::Flag, help: "transformer_xl: every query sees exactly mem_len tokens back [false]" },
];

/// The key of that name.
pub fn key(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    Int(u32),
    Real(f64),
    Flag(bool),
    Word(String),
    Ints(Vec<u32>),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(n) => write!(f, "{n}"),
            Self::Real(x) => write!(f, "{x:?}"),
            Self::Flag(b) => write!(f, "{b}"),
            Self::Word(w) => write!(f, "{w:?}"),
            Self::Ints(list) => write!(f, "{list:?}"),
        }
    }
}

impl Key {
    fn read(&self, field: &Field<'_>) -> Result<Value> {
        Ok(match self.kind {
            KeyKind::Int(min, max) => Value::Int(field.int(min, max)?),
            KeyKind::Real(min, max) => Value::Real(field.real(min, max)?),
            KeyKind::Flag => Value::Flag(field.flag()?),
            KeyKind::Word => Value::Word(field.text()?.to_string()),
            KeyKind::Ints(min, max) => {
                let expected = format!("a list of whole numbers from {min} to {max}");
                Value::Ints(field.list(&expected)?.iter().map(|f| f.int(min, max)).collect::<Result<_>>()?)
            }
        })
    }

    /// Reads a value as a flag of the command line gives it; lists are separated by commas.
    pub fn parse(&self, text: &str) -> Result<Value> {
        let wrong = |expected: String| Error::value(self.name, format!("`{text}`"), expected);
        let int = |text: &str, min, max| match text.trim().parse::<u32>() {
            Ok(n) if (min..=max).contains(&n) => Ok(n),
            _ => Err(wrong(format!("a whole number from {min} to {max}"))),
        };
        Ok(match self.kind {
            KeyKind::Int(min, max) => Value::Int(int(text, min, max)?),
            KeyKind::Real(min, max) => match text.parse::<f64>() {
                Ok(x) if x >= min && x < max => Value::Real(x),
                _ => return Err(wrong(format!("a number from {min} to below {max}"))),
            },
            KeyKind::Flag => Value::Flag(text.parse().map_err(|_| wrong("true or false".into()))?),
            KeyKind::Word => Value::Word(text.to_string()),
            KeyKind::Ints(min, max) => {
                let items = text.trim_matches(['[', ']']).split(',').filter(|item| !item.trim().is_empty());
                Value::Ints(items.map(|item| int(item, min, max)).collect::<Result<_>>()?)
            }
        })
    }
}

/// What somebody wrote of a model: some of its keys.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spec {
    values: BTreeMap<&'static str, Value>,
}

impl Spec {
    /// Reads a model file.
    pub fn from_toml(text: &str) -> Result<Self> {
        Self::from_fields(&Document::parse(text, "the model file")?.fields())
    }

    pub(crate) fn from_fields(fields: &Fields<'_>) -> Result<Self> {
        let mut spec = Self::default();
        for (name, field) in fields.iter() {
            let Some(key) = key(name) else {
                let known: Vec<_> = KEYS.iter().map(|key| key.name).collect();
                return Err(field.unknown(name, &known));
            };
            spec.set(key, key.read(&field)?);
        }
        Ok(spec)
    }

    /// Sets a key.
    pub fn set(&mut self, key: &'static Key, value: Value) {
        self.values.insert(key.name, value);
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The value of a key, if it is set.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    fn int(&self, name: &str) -> Option<u32> {
        match self.get(name) {
            Some(&Value::Int(n)) => Some(n),
            _ => None,
        }
    }

    fn real(&self, name: &str) -> Option<f64> {
        match self.get(name) {
            Some(&Value::Real(x)) => Some(x),
            _ => None,
        }
    }

    fn flag(&self, name: &str) -> Option<bool> {
        match self.get(name) {
            Some(&Value::Flag(b)) => Some(b),
            _ => None,
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn required<T>(&self, name: &'static str, value: Option<T>) -> Result<T> {
        let expected = key(name).map_or_else(String::new, |key| key.help.to_string());
        value.ok_or(Error::Missing { place: "the model".into(), key: name, expected })
    }

    /// The word of a key as one of a table's.
    fn choose<T: Copy>(&self, name: &str, table: &[(&str, T)]) -> Result<Option<T>> {
        let Some(word) = self.text(name) else { return Ok(None) };
        let found = table.iter().find(|(known, _)| *known == word);
        let known = || table.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
        found.map(|&(_, value)| Some(value)).ok_or_else(|| Error::value(name, format!("`{word}`"), known()))
    }

    /// Fills in the defaults and checks everything.
    pub fn model(&self, registry: &Registry) -> Result<Model> {
        let frame = self.frame(registry)?;
        let layers = self.required("layers", self.text("layers"))?;
        Model::new(frame, notation::parse(layers, registry)?)
    }

    /// The frame alone.
    pub fn frame(&self, registry: &Registry) -> Result<Frame> {
        let word = self.required("backbone", self.text("backbone"))?;
        let backbone = registry.backbone(word).ok_or_else(|| {
            let known: Vec<_> = registry.backbones.iter().map(|backbone| backbone.key).collect();
            Error::value("backbone", format!("`{word}`"), known.join(", "))
        })?;
        let relative = backbone.positions == Positions::Relative;
        let d_model = self.required("d_model", self.int("d_model"))?;
        let vocab = self.required("vocab", self.int("vocab"))?;
        let max_len = self.int("max_len").unwrap_or(backbone.max_len);
        let tgt_len = self.int("tgt_len").unwrap_or(if relative { 192 } else { 192.min(max_len) });
        let dropout = self.real("dropout").unwrap_or(0.0);
        let cutoffs = match self.get("cutoffs") {
            Some(Value::Ints(list)) => list.iter().copied().filter(|&cutoff| cutoff < vocab).collect(),
            _ => Vec::new(),
        };
        let frame = Frame {
            backbone,
            d_model,
            vocab,
            heads: self.int("heads").unwrap_or((d_model / 64).max(1)),
            d_head: self.int("d_head"),
            inner: self.int("inner").unwrap_or(4 * d_model),
            activation: self.choose("activation", ACTIVATIONS)?.unwrap_or(backbone.activation),
            norm: self.choose("norm", NORMS)?.unwrap_or(backbone.norm),
            d_embed: self.int("d_embed").unwrap_or(d_model),
            div_val: self.int("div_val").unwrap_or(1),
            cutoffs,
            tie_embeddings: self.flag("tie_embeddings").unwrap_or(true),
            tie_projs: self.flag("tie_projs").unwrap_or(true),
            tgt_len,
            mem_len: if relative { self.int("mem_len").unwrap_or(tgt_len) } else { 0 },
            clamp_len: self.int("clamp_len").filter(|_| relative),
            max_len,
            dropout,
            attn_dropout: self.real("attn_dropout").unwrap_or(0.0),
            moe_dropout: self.real("moe_dropout").unwrap_or(dropout),
            same_length: self.flag("same_length").unwrap_or(false) && relative,
        };
        frame.check()?;
        Ok(frame)
    }

    /// Keys that are set but mean nothing to the backbone, so that a file can be tried with another one.
    pub fn without_effect(&self, frame: &Frame) -> Vec<&'static str> {
        let others: &[&'static str] = match frame.backbone.positions {
            Positions::Relative => &["max_len"],
            Positions::Learned => &["mem_len", "clamp_len", "same_length"],
        };
        others.iter().copied().filter(|name| self.values.contains_key(name)).collect()
    }
}

/// What stands around the blocks, every default filled in. Letters as in the docs: D, V, T, M.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Frame {
    pub backbone: &'static Backbone,
    pub d_model: u32,
    pub vocab: u32,
    pub heads: u32,
    /// `None`: d_model / heads of each block.
    pub d_head: Option<u32>,
    pub inner: u32,
    pub activation: Activation,
    pub norm: Norm,
    pub d_embed: u32,
    pub div_val: u32,
    /// Ends of all clusters but the last, increasing, below `vocab`.
    pub cutoffs: Vec<u32>,
    pub tie_embeddings: bool,
    pub tie_projs: bool,
    pub tgt_len: u32,
    /// 0 where the backbone has no memory.
    pub mem_len: u32,
    pub clamp_len: Option<u32>,
    pub max_len: u32,
    pub dropout: f64,
    pub attn_dropout: f64,
    pub moe_dropout: f64,
    pub same_length: bool,
}

impl Frame {
    /// What a knob of this name is where a block leaves it open, if the model file has a say in it.
    pub fn default_knob(&self, name: &str) -> Option<u32> {
        match name {
            "heads" => Some(self.heads),
            "d_head" => self.d_head,
            "inner" => Some(self.inner),
            _ => None,
        }
    }

    fn check(&self) -> Result<()> {
        if self.cutoffs.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::value("cutoffs", format!("{:?}", self.cutoffs), "numbers that increase"));
        }
        let clusters = self.cutoffs.len() as u32;
        let widest = self.div_val.checked_pow(clusters);
        if widest.is_none_or(|divisor| self.d_embed / divisor == 0) {
            let found = format!("d_embed {} / div_val {}^{clusters}", self.d_embed, self.div_val);
            return Err(Error::value("div_val", found, "a width of at least 1 for the last cluster"));
        }
        if self.backbone.positions == Positions::Learned && self.tgt_len > self.max_len {
            let expected = format!("at most max_len, which is {}", self.max_len);
            return Err(Error::value("tgt_len", self.tgt_len, expected));
        }
        Ok(())
    }
}

/// A model: a valid frame with a valid stack of blocks in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// What stands around the blocks.
    pub frame: Frame,
    /// The stack, bottom first.
    pub blocks: Vec<Block>,
}

impl Model {
    /// Checks each block against the frame.
    pub fn new(frame: Frame, blocks: Vec<Block>) -> Result<Self> {
        for (i, block) in blocks.iter().enumerate() {
            block.kind.check(block, &frame).map_err(|error| match error {
                Error::Value { place, found, expected } => {
                    Error::Value { place: format!("block {} ({block:?}), {place}", i + 1), found, expected }
                }
                other => other,
            })?;
        }
        Ok(Self { frame, blocks })
    }

    /// The stack in the notation.
    pub fn layers(&self) -> String {
        notation::print(&self.blocks)
    }

    /// Every key with its value, as a spec that gives this model again.
    pub fn spec(&self) -> Spec {
        let f = &self.frame;
        let word = |word: &str| Some(Value::Word(word.into()));
        let relative = f.backbone.positions == Positions::Relative;
        let mut spec = Spec::default();
        for key in KEYS {
            let value = match key.name {
                "backbone" => word(f.backbone.key),
                "layers" => word(&self.layers()),
                "d_model" => Some(Value::Int(f.d_model)),
                "vocab" => Some(Value::Int(f.vocab)),
                "heads" => Some(Value::Int(f.heads)),
                "d_head" => f.d_head.map(Value::Int),
                "inner" => Some(Value::Int(f.inner)),
                "activation" => word(f.activation.name()),
                "norm" => word(f.norm.name()),
                "d_embed" => Some(Value::Int(f.d_embed)),
                "div_val" => Some(Value::Int(f.div_val)),
                "cutoffs" => Some(Value::Ints(f.cutoffs.clone())),
                "tie_embeddings" => Some(Value::Flag(f.tie_embeddings)),
                "tie_projs" => Some(Value::Flag(f.tie_projs)),
                "tgt_len" => Some(Value::Int(f.tgt_len)),
                "mem_len" => relative.then_some(Value::Int(f.mem_len)),
                "clamp_len" => f.clamp_len.map(Value::Int),
                "max_len" => (!relative).then_some(Value::Int(f.max_len)),
                "dropout" => Some(Value::Real(f.dropout)),
                "attn_dropout" => Some(Value::Real(f.attn_dropout)),
                "moe_dropout" => Some(Value::Real(f.moe_dropout)),
                "same_length" => relative.then_some(Value::Flag(f.same_length)),
                other => unreachable!("KEYS has `{other}`, which a model does not write"),
            };
            if let Some(value) = value {
                spec.set(key, value);
            }
        }
        spec
    }

    /// The model file.
    pub fn to_toml(&self) -> String {
        let spec = self.spec();
        KEYS.iter().filter_map(|key| Some(format!("{} = {}\n", key.name, spec.get(key.name)?))).collect()
    }
}
