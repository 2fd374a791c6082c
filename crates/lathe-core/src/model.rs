//! The model file: a stack of blocks and the frame around it.
//!
//! [`KEYS`] are the keys of every frame; a backbone may have keys of its own ([`Backbone::own_keys`]).
//!
//! A [`Spec`] holds what somebody wrote (in TOML, in flags, in a space's choices): some keys of [`KEYS`].
//! [`Spec::model`] fills in the defaults, checks everything and returns a [`Model`], which is always valid.

use crate::fields::{Field, Fields, TomlDocument, int_within, real_within};
use crate::{
    Backbone, Block, DECODER, ENCODER, Error, MAX_INNER, MAX_WIDTH, OwnKey, Registry, Result, Segmentation, Setting,
    Shape, TARGET, notation,
};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Where the norm of a block stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormPlace {
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

const NORMS: &[(&str, NormPlace)] = &[("pre", NormPlace::Pre), ("post", NormPlace::Post)];
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

impl NormPlace {
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
    /// A list of words.
    Words,
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

const MAX_VOCAB: u32 = 1 << 28;
/// The longest segment, window or memory.
pub const MAX_LEN: u32 = 1 << 24;
/// Tokens of a segment where nothing is said of it.
const TGT_LEN: u32 = 192;

/// The keys of the model file.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    Key { name: "backbone", kind: KeyKind::Word, help: "family of models; `lathe models` lists them" },
    Key { name: "layers", kind: KeyKind::Word, help: "stack of blocks, e.g. \"(sf)x16\"" },
    Key { name: "d_model", kind: KeyKind::Int(1, MAX_WIDTH), help: "width of the model" },
    Key { name: "vocab", kind: KeyKind::Int(1, MAX_VOCAB), help: "number of tokens" },
    Key { name: "heads", kind: KeyKind::Int(1, MAX_WIDTH), help: "heads of a bare s [d_model / 64]" },
    Key { name: "d_head", kind: KeyKind::Int(1, MAX_WIDTH), help: "width of each head [d_model / heads of the block]" },
    Key { name: "inner", kind: KeyKind::Int(1, MAX_INNER), help: "inner width of a bare f or m [4 * d_model]" },
    Key { name: "activation", kind: KeyKind::Word, help: "relu, gelu, gelu_tanh, silu, geglu, swiglu or reglu [the backbone's]" },
    Key { name: "norm", kind: KeyKind::Word, help: "pre or post [the backbone's]" },
    Key { name: "d_embed", kind: KeyKind::Int(1, MAX_WIDTH), help: "width of the embedding [d_model]" },
    Key { name: "div_val", kind: KeyKind::Int(1, 256), help: "factor by which each further cluster of an adaptive embedding is narrower [1]" },
    Key { name: "cutoffs", kind: KeyKind::Ints(1, u32::MAX), help: "where the clusters of an adaptive softmax end [none: plain softmax]" },
    Key { name: "tie_embeddings", kind: KeyKind::Flag, help: "output weights are the embedding's [true]" },
    Key { name: "tie_projs", kind: KeyKind::Flag, help: "output projections of all clusters but the first are the embedding's [true]" },
    Key { name: "tgt_len", kind: KeyKind::Int(1, MAX_LEN), help: "tokens of a segment [192]" },
    Key { name: "mem_len", kind: KeyKind::Int(0, MAX_LEN), help: "with a memory: tokens remembered before a segment [tgt_len]" },
    Key { name: "clamp_len", kind: KeyKind::Int(1, MAX_LEN), help: "with a memory: distances beyond it count as it [none]" },
    Key { name: "max_len", kind: KeyKind::Int(1, MAX_LEN), help: "without a memory: most tokens of a window [the backbone's]" },
    Key { name: "dropout", kind: KeyKind::Real(0.0, 1.0), help: "dropout [0]" },
    Key { name: "attn_dropout", kind: KeyKind::Real(0.0, 1.0), help: "dropout of attention probabilities [0]" },
    Key { name: "moe_dropout", kind: KeyKind::Real(0.0, 1.0), help: "dropout inside experts [dropout]" },
    Key { name: "same_length", kind: KeyKind::Flag, help: "with a memory: every query sees exactly mem_len tokens back [false]" },
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
    Words(Vec<String>),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(n) => write!(f, "{n}"),
            Self::Real(x) => write!(f, "{x:?}"),
            Self::Flag(b) => write!(f, "{b}"),
            Self::Word(w) => write_quoted(f, w),
            Self::Ints(list) => write!(f, "{list:?}"),
            Self::Words(list) => {
                f.write_char('[')?;
                for (i, word) in list.iter().enumerate() {
                    f.write_str(if i > 0 { ", " } else { "" })?;
                    write_quoted(f, word)?;
                }
                f.write_char(']')
            }
        }
    }
}

/// A text in quotes as TOML has it, which escapes other characters than Rust, and in another way.
fn write_quoted(f: &mut std::fmt::Formatter<'_>, text: &str) -> std::fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            c if c.is_control() => write!(f, "\\u{:04X}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

impl Key {
    /// Reads a value of a file.
    pub fn read(&self, field: &Field<'_>) -> Result<Value> {
        Ok(match self.kind {
            KeyKind::Int(min, max) => Value::Int(field.int(min, max)?),
            KeyKind::Real(min, max) => Value::Real(field.real(min, max)?),
            KeyKind::Flag => Value::Flag(field.flag()?),
            KeyKind::Word => Value::Word(field.text()?.to_string()),
            KeyKind::Ints(min, max) => {
                let expected = format!("a list of whole numbers from {min} to {max}");
                Value::Ints(field.list(&expected)?.iter().map(|f| f.int(min, max)).collect::<Result<_>>()?)
            }
            KeyKind::Words => {
                let words = field.list("a list of words")?;
                Value::Words(words.iter().map(|f| Ok(f.text()?.to_string())).collect::<Result<_>>()?)
            }
        })
    }

    /// Reads a value as a flag of the command line gives it; lists are separated by commas.
    pub fn parse(&self, text: &str) -> Result<Value> {
        let wrong = |expected: String| Error::value(self.name, format!("`{text}`"), expected);
        let int = |text: &str, min, max| int_within(text.trim().parse().ok(), min, max).map_err(wrong);
        Ok(match self.kind {
            KeyKind::Int(min, max) => Value::Int(int(text, min, max)?),
            KeyKind::Real(min, max) => Value::Real(real_within(text.trim().parse().ok(), min, max).map_err(wrong)?),
            KeyKind::Flag => Value::Flag(text.parse().map_err(|_| wrong("true or false".into()))?),
            KeyKind::Word => Value::Word(text.to_string()),
            KeyKind::Ints(min, max) => {
                let items = text.trim_matches(['[', ']']).split(',').filter(|item| !item.trim().is_empty());
                Value::Ints(items.map(|item| int(item, min, max)).collect::<Result<_>>()?)
            }
            KeyKind::Words => {
                let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
                Value::Words(words.map(String::from).collect())
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
    pub fn from_toml(text: &str, registry: &Registry) -> Result<Self> {
        Self::from_fields(&TomlDocument::parse(text, "the model file")?.fields(), registry)
    }

    /// Reads a table of model keys.
    pub fn from_fields(fields: &Fields<'_>, registry: &Registry) -> Result<Self> {
        let mut spec = Self::default();
        for (name, field) in fields.iter() {
            let Some(key) = registry.key(name) else {
                let known: Vec<_> = registry.keys().map(|key| key.name).collect();
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

    /// Takes a key out.
    pub(crate) fn remove(&mut self, name: &str) {
        self.values.remove(name);
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
        Model::new(frame, notation::parse(layers, registry).map_err(|error| error.at("layers"))?)
    }

    /// The frame alone.
    pub fn frame(&self, registry: &Registry) -> Result<Frame> {
        let frame = self.frame_unchecked(registry)?;
        frame.check()?;
        Ok(frame)
    }

    /// The frame, each key by itself in order but not yet all of them together.
    pub(crate) fn frame_unchecked(&self, registry: &Registry) -> Result<Frame> {
        let known = || registry.backbones.iter().map(|backbone| backbone.key()).collect::<Vec<_>>().join(", ");
        let Some(word) = self.text("backbone") else {
            return Err(Error::Missing { place: "the model".into(), key: "backbone", expected: known() });
        };
        let backbone = registry.backbone(word).ok_or_else(|| Error::value("backbone", format!("`{word}`"), known()))?;
        let defaults = backbone.defaults();
        let takes = |key: &str| !backbone.ignored_keys().contains(&key);
        let d_model = self.required("d_model", self.int("d_model"))?;
        let vocab = self.required("vocab", self.int("vocab"))?;
        let max_len = self.int("max_len").unwrap_or(defaults.max_len);
        let tgt_len = self.int("tgt_len").unwrap_or(match backbone.segmentation() {
            Segmentation::Stream => TGT_LEN,
            Segmentation::Windows => TGT_LEN.min(max_len),
        });
        let dropout = self.real("dropout").unwrap_or(0.0);
        let cutoffs = match self.get("cutoffs") {
            Some(Value::Ints(list)) => list.iter().copied().filter(|&cutoff| cutoff < vocab).collect(),
            _ => Vec::new(),
        };
        let mut own = BTreeMap::new();
        for OwnKey { key, default } in backbone.own_keys() {
            let value = match (self.get(key.name), default) {
                (Some(value), _) => Some(value.clone()),
                (None, Some(default)) => Some(key.parse(default)?),
                (None, None) => None,
            };
            own.extend(value.map(|value| (key.name, value)));
        }
        Ok(Frame {
            backbone,
            d_model,
            vocab,
            heads: self.int("heads").unwrap_or((d_model / 64).max(1)),
            d_head: self.int("d_head"),
            inner: self.int("inner").unwrap_or(4 * d_model),
            activation: self.choose("activation", ACTIVATIONS)?.unwrap_or(defaults.activation),
            norm: self.choose("norm", NORMS)?.unwrap_or(defaults.norm),
            d_embed: self.int("d_embed").unwrap_or(d_model),
            div_val: self.int("div_val").unwrap_or(1),
            cutoffs,
            tie_embeddings: self.flag("tie_embeddings").unwrap_or(true),
            tie_projs: self.flag("tie_projs").unwrap_or(true),
            tgt_len,
            mem_len: if takes("mem_len") { self.int("mem_len").unwrap_or(tgt_len) } else { 0 },
            clamp_len: self.int("clamp_len").filter(|_| takes("clamp_len")),
            max_len,
            dropout,
            attn_dropout: self.real("attn_dropout").unwrap_or(0.0),
            moe_dropout: self.real("moe_dropout").unwrap_or(dropout),
            same_length: self.flag("same_length").unwrap_or(false) && takes("same_length"),
            own,
        })
    }

    /// The keys that are set, as a model file.
    pub fn to_toml(&self) -> String {
        self.iter().map(|(name, value)| format!("{name} = {value}\n")).collect()
    }

    /// The keys that are set with their values: those of [`KEYS`] in their order, then the others by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        let common = KEYS.iter().filter_map(|key| Some((key.name, self.get(key.name)?)));
        common.chain(self.values.iter().filter(|(name, _)| key(name).is_none()).map(|(&name, value)| (name, value)))
    }

    /// Keys that are set but mean nothing to the backbone, so that a file can be tried with another one.
    pub fn without_effect(&self, frame: &Frame) -> Vec<&'static str> {
        self.values.keys().copied().filter(|key| frame.ignores(key)).collect()
    }
}

/// What stands around the blocks, every default filled in. Letters as in the docs: D, V, T, M.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Frame {
    pub backbone: &'static dyn Backbone,
    pub d_model: u32,
    pub vocab: u32,
    pub heads: u32,
    /// `None`: d_model / heads of each block.
    pub d_head: Option<u32>,
    pub inner: u32,
    pub activation: Activation,
    pub norm: NormPlace,
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
    /// The values of keys that only some backbones have.
    pub own: BTreeMap<&'static str, Value>,
}

impl Frame {
    /// Whether a key of the model file has no effect with the backbone.
    pub fn ignores(&self, name: &str) -> bool {
        match key(name) {
            Some(_) => self.backbone.ignored_keys().contains(&name),
            None => !self.backbone.own_keys().iter().any(|own| own.key.name == name),
        }
    }

    /// Whether segments of a text follow each other, each after a memory of those before.
    pub fn has_memory(&self) -> bool {
        self.backbone.segmentation() == Segmentation::Stream
    }

    /// Whether there is an output layer, from hidden states to tokens.
    pub fn has_head(&self) -> bool {
        self.backbone.has_head(self)
    }

    /// Tokens of the text that an encoder reads, at the most; `None` where there is none.
    pub fn source_len(&self) -> Option<u32> {
        self.backbone.source_len(self)
    }

    /// The stack that a block stands in, where the model has several.
    pub fn stack(&self) -> Option<&str> {
        self.word("stack")
    }

    /// The frames of blocks in each stack.
    pub fn stacks(&self) -> Vec<Self> {
        let stacks: &[&str] =
            if self.source_len().is_some() { &[ENCODER, DECODER] } else { return vec![self.clone()] };
        let of = |stack: &&str| {
            let mut frame = self.clone();
            frame.set_stack(stack);
            frame
        };
        stacks.iter().map(of).collect()
    }

    /// The frame of blocks in a stack.
    pub fn set_stack(&mut self, stack: &str) {
        self.own.insert("stack", Value::Word(stack.into()));
    }

    /// Most tokens of a pass: of a segment, or of a window.
    pub fn window(&self) -> u32 {
        if self.has_memory() { self.tgt_len } else { self.max_len }
    }

    /// The number of a key that only some backbones have.
    pub fn real(&self, name: &str) -> Option<f64> {
        match self.own.get(name) {
            Some(Value::Real(x)) => Some(*x),
            _ => None,
        }
    }

    /// The flag of a key that only some backbones have; false where they have it not.
    pub fn flag(&self, name: &str) -> bool {
        self.own.get(name) == Some(&Value::Flag(true))
    }

    /// The word of a key that only some backbones have.
    pub fn word(&self, name: &str) -> Option<&str> {
        match self.own.get(name) {
            Some(Value::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// The words of a key that only some backbones have; none where they have it not.
    pub fn words(&self, name: &str) -> &[String] {
        match self.own.get(name) {
            Some(Value::Words(words)) => words,
            _ => &[],
        }
    }

    /// The value of a whole-number key of the model file, if it has one and means something to the backbone.
    pub fn int(&self, name: &str) -> Option<u32> {
        match self.get(name) {
            Some(Value::Int(n)) => Some(n),
            _ => None,
        }
    }

    /// The value of a key of the model file; `layers` is not the frame's.
    fn get(&self, name: &str) -> Option<Value> {
        let word = |word: &str| Some(Value::Word(word.into()));
        if self.backbone.ignored_keys().contains(&name) {
            return None;
        }
        match name {
            "backbone" => word(self.backbone.key()),
            "d_model" => Some(Value::Int(self.d_model)),
            "vocab" => Some(Value::Int(self.vocab)),
            "heads" => Some(Value::Int(self.heads)),
            "d_head" => self.d_head.map(Value::Int),
            "inner" => Some(Value::Int(self.inner)),
            "activation" => word(self.activation.name()),
            "norm" => word(self.norm.name()),
            "d_embed" => Some(Value::Int(self.d_embed)),
            "div_val" => Some(Value::Int(self.div_val)),
            "cutoffs" => Some(Value::Ints(self.cutoffs.clone())),
            "tie_embeddings" => Some(Value::Flag(self.tie_embeddings)),
            "tie_projs" => Some(Value::Flag(self.tie_projs)),
            "tgt_len" => Some(Value::Int(self.tgt_len)),
            "mem_len" => Some(Value::Int(self.mem_len)),
            "clamp_len" => self.clamp_len.map(Value::Int),
            "max_len" => Some(Value::Int(self.max_len)),
            "dropout" => Some(Value::Real(self.dropout)),
            "attn_dropout" => Some(Value::Real(self.attn_dropout)),
            "moe_dropout" => Some(Value::Real(self.moe_dropout)),
            "same_length" => Some(Value::Flag(self.same_length)),
            name => self.own.get(name).cloned(),
        }
    }

    /// Whether the keys fit each other.
    pub fn check(&self) -> Result<()> {
        if self.cutoffs.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Error::value("cutoffs", format!("{:?}", self.cutoffs), "numbers that increase"));
        }
        let clusters = self.cutoffs.len() as u32;
        let widest = self.div_val.checked_pow(clusters);
        if widest.is_none_or(|divisor| self.d_embed / divisor == 0) {
            let found = format!("d_embed {} / div_val {}^{clusters}", self.d_embed, self.div_val);
            return Err(Error::value("div_val", found, "a width of at least 1 for the last cluster"));
        }
        if !self.has_memory() && self.tgt_len > self.max_len {
            let expected = format!("at most max_len, which is {}", self.max_len);
            return Err(Error::value("tgt_len", self.tgt_len, expected));
        }
        if self.same_length && self.mem_len == 0 {
            return Err(Error::value(
                "same_length",
                "true with mem_len 0",
                "a mem_len of at least 1, so that a query sees something",
            ));
        }
        if self.heads > self.d_model {
            return Err(Error::value("heads", self.heads, format!("at most d_model, which is {}", self.d_model)));
        }
        self.backbone.check(self)
    }
}

/// A place in a stack, on the way up from the bottom.
#[derive(Debug, Clone)]
pub struct StackPlace<'a> {
    model: &'a Frame,
    /// The frame as it is here: the model's, but for the width.
    pub frame: Cow<'a, Frame>,
    /// Width and length of the hidden states here.
    pub shape: Shape,
}

impl<'a> StackPlace<'a> {
    /// Below the first block of a model.
    pub fn new(frame: &'a Frame) -> Self {
        Self::of_len(frame, frame.tgt_len.into())
    }

    /// The same for texts of so many tokens.
    pub fn of_len(frame: &'a Frame, len: u64) -> Self {
        let (mut shape, mut here) = (Shape::new(frame.d_model, len), Cow::Borrowed(frame));
        if let Some(source) = frame.source_len() {
            shape.lay_aside(TARGET);
            (shape.stack, shape.len) = (Some(ENCODER), source.into());
            here.to_mut().set_stack(ENCODER);
        }
        Self { model: frame, frame: here, shape }
    }

    /// Whether a block may stand here.
    pub fn check(&self, block: &Block) -> Result<()> {
        block.kind.check(block, &self.frame)
    }

    /// Goes on above a block.
    pub fn pass(&mut self, block: &Block) -> Result<()> {
        let above = block.kind.reshape(block, self.shape.clone())?;
        if above.width != self.frame.d_model {
            self.frame.to_mut().d_model = above.width;
        }
        if let Some(stack) = above.stack.filter(|_| above.stack != self.shape.stack) {
            self.frame.to_mut().set_stack(stack);
        }
        self.shape = above;
        Ok(())
    }

    /// Whether a stack may end here: with the width that it began with, and where there is an output for each token,
    /// with all of them.
    pub fn end(&self) -> Result<()> {
        let (frame, shape) = (self.model, &self.shape);
        if let Some((_, len)) = shape.see(TARGET) {
            let found = format!("{len} tokens that no block of the encoder goes on with");
            return Err(Error::value("layers", found, "a block that begins the decoder"));
        }
        if shape.width != frame.d_model {
            let expected = format!("d_model, which is {}", frame.d_model);
            return Err(Error::value("layers", format!("a width of {} after the last block", shape.width), expected));
        }
        if frame.has_head() && shape.len != u64::from(frame.tgt_len) {
            let found = format!("{} of {} tokens after the last block", shape.len, frame.tgt_len);
            return Err(Error::value("layers", found, "all of them, for an output of each"));
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
    /// Checks each block against the frame as it is where the block stands, and that the stack ends as it began.
    pub fn new(frame: Frame, blocks: Vec<Block>) -> Result<Self> {
        let mut place = StackPlace::new(&frame);
        for (i, block) in blocks.iter().enumerate() {
            place.check(block).map_err(|error| error.at(&format!("block {} ({block:?})", i + 1)))?;
            place.pass(block).map_err(|error| error.at(&format!("block {} ({block:?})", i + 1)))?;
        }
        if !blocks.is_empty() {
            place.end()?; // without blocks a frame is measured by itself
        }
        Ok(Self { frame, blocks })
    }

    /// Each block with the frame and the setting that it stands in: those of the model until a block changes width or
    /// length.
    pub fn placed<'a>(&'a self, setting: Setting) -> impl Iterator<Item = (&'a Block, Cow<'a, Frame>, Setting)> {
        let mut place = StackPlace::of_len(&self.frame, setting.tgt_len);
        self.blocks.iter().map(move |block| {
            let here = (block, place.frame.clone(), Setting { tgt_len: place.shape.len, ..setting });
            place.pass(block).expect("a stack that was checked");
            here
        })
    }

    /// Whether hidden states have the same width and length from the first block to the last.
    pub fn keeps_shape(&self) -> bool {
        let whole = Setting::of(self);
        let alike =
            |(_, frame, here): (&Block, Cow<'_, Frame>, Setting)| here == whole && frame.d_model == self.frame.d_model;
        self.frame.source_len().is_none() && self.placed(whole).all(alike)
    }

    /// The stack in the notation.
    pub fn layers(&self) -> String {
        notation::print(&self.blocks)
    }

    /// Every key with its value, as a spec that gives this model again.
    pub fn spec(&self) -> Spec {
        let mut spec = Spec::default();
        for key in KEYS.iter().chain(self.frame.backbone.own_keys().iter().map(|own| &own.key)) {
            let value = match key.name {
                "layers" => Some(Value::Word(self.layers())),
                name => self.frame.get(name),
            };
            if let Some(value) = value {
                spec.set(key, value);
            }
        }
        spec
    }

    /// The model file.
    pub fn to_toml(&self) -> String {
        self.spec().to_toml()
    }
}
