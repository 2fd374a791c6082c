//! What a block and a backbone are to everybody who does not compute with them.
//!
//! A [`BlockKind`] is one idea (attention, feed-forward, ...): its name, its knobs and its cost. A
//! [`Block`] is one place in a stack: a kind with some of its knobs set. A [`Backbone`] is the frame
//! that a stack stands in. Which kinds and backbones there are, only a [`Registry`] knows.

use crate::{Cost, Frame, Result, Setting};

/// The most knobs a block kind may have.
pub const MAX_KNOBS: usize = 4;

/// A kind of block. One file of `lathe-model` implements it for one idea.
pub trait BlockKind: Sync {
    /// Name in the long form, `attention`.
    fn key(&self) -> &'static str;
    /// Letter in the short form, `s`; later blocks need only a long form.
    fn letter(&self) -> Option<char>;
    /// The knobs, in the order in which the notation writes them.
    fn knobs(&self) -> &'static [Knob];
    /// The block with every knob set, by the frame or by the kind's own defaults where it is left open, so that
    /// equal blocks compare equal.
    fn resolve(&self, block: &Block, frame: &Frame) -> Block;
    /// Whether the knobs, with the defaults for those left open, make a block.
    fn check(&self, block: &Block, frame: &Frame) -> Result<()>;
    /// What the block costs; `check` has passed.
    fn cost(&self, block: &Block, frame: &Frame, setting: &Setting) -> Cost;
}

/// A number that can be set at a block.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// Name in the long form and in space files.
    pub name: &'static str,
    /// What precedes the value in the short form: `Some("")` directly after the letter, `Some("d")`,
    /// or `None` for a knob that only the long form has.
    pub mark: Option<&'static str>,
    /// The values it may take.
    pub domain: Domain,
}

/// The values that a knob may take.
#[derive(Debug, Clone, Copy)]
pub enum Domain {
    /// A whole number, bounds included.
    Int {
        /// The least.
        min: u32,
        /// The greatest.
        max: u32,
    },
    /// `true` or `false`, kept as 1 and 0.
    Flag,
}

impl Domain {
    /// Whether a value lies within.
    pub fn contains(self, value: u32) -> bool {
        match self {
            Self::Int { min, max } => (min..=max).contains(&value),
            Self::Flag => value <= 1,
        }
    }

    /// What would be accepted, in words.
    pub fn expected(self) -> String {
        match self {
            Self::Int { min, max } => format!("a whole number from {min} to {max}"),
            Self::Flag => "true or false".into(),
        }
    }

    /// A value as the notation writes it.
    pub fn show(self, value: u32) -> String {
        match self {
            Self::Int { .. } => value.to_string(),
            Self::Flag => (value == 1).to_string(),
        }
    }
}

/// One block of a stack: a kind, and the knobs that are set. Knobs left open take defaults.
#[derive(Clone, Copy)]
pub struct Block {
    /// What it is.
    pub kind: &'static dyn BlockKind,
    knobs: [Option<u32>; MAX_KNOBS],
}

impl Block {
    /// A block with every knob left open.
    pub fn new(kind: &'static dyn BlockKind) -> Self {
        Self { kind, knobs: [None; MAX_KNOBS] }
    }

    /// The knob at an index of [`BlockKind::knobs`], if it is set.
    pub fn get(&self, knob: usize) -> Option<u32> {
        self.knobs[knob]
    }

    /// Sets the knob at an index of [`BlockKind::knobs`].
    pub fn set(&mut self, knob: usize, value: u32) {
        self.knobs[knob] = Some(value);
    }

    /// The knobs of the kind with the values set here.
    pub fn knobs(&self) -> impl Iterator<Item = (usize, &'static Knob, Option<u32>)> + '_ {
        self.kind.knobs().iter().enumerate().map(|(i, knob)| (i, knob, self.knobs[i]))
    }
}

impl PartialEq for Block {
    fn eq(&self, other: &Self) -> bool {
        self.knobs == other.knobs && self.kind.key() == other.kind.key()
    }
}

impl Eq for Block {}

impl std::hash::Hash for Block {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.kind.key().hash(state);
        self.knobs.hash(state);
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::notation::print(std::slice::from_ref(self)))
    }
}

/// How a backbone tells tokens their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positions {
    /// Transformer-XL: relative to the query, inside attention, over a memory of earlier segments.
    Relative,
    /// GPT-2: a learned vector per place, added to the embedding.
    Learned,
}

/// The frame of a family of models: what stands around the blocks, and the family's defaults.
#[derive(Debug)]
pub struct Backbone {
    /// Name in the model file.
    pub key: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// How tokens know their place.
    pub positions: Positions,
    /// Where the norm stands unless the model file says otherwise.
    pub norm: crate::Norm,
    /// The non-linearity unless the model file says otherwise.
    pub activation: crate::Activation,
    /// Whether a norm follows the last block.
    pub final_norm: bool,
    /// Whether a plain output layer has a bias per token.
    pub output_bias: bool,
    /// Places of the position table unless the model file says otherwise.
    pub max_len: u32,
}

impl Backbone {
    /// Whether a key of the model file has no effect with it.
    pub fn ignores(&self, key: &str) -> bool {
        match self.positions {
            Positions::Relative => key == "max_len",
            Positions::Learned => ["mem_len", "clamp_len", "same_length"].contains(&key),
        }
    }
}

impl PartialEq for Backbone {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

/// The kinds of blocks and the backbones there are, each an explicit ordered slice.
#[derive(Clone, Copy)]
pub struct Registry {
    /// Kinds of blocks.
    pub blocks: &'static [&'static dyn BlockKind],
    /// Backbones.
    pub backbones: &'static [&'static Backbone],
}

impl Registry {
    /// The kind with this key.
    pub fn block(&self, key: &str) -> Option<&'static dyn BlockKind> {
        self.blocks.iter().copied().find(|kind| kind.key() == key)
    }

    /// The kind with this letter.
    pub fn letter(&self, letter: char) -> Option<&'static dyn BlockKind> {
        self.blocks.iter().copied().find(|kind| kind.letter() == Some(letter))
    }

    /// The backbone with this key.
    pub fn backbone(&self, key: &str) -> Option<&'static Backbone> {
        self.backbones.iter().copied().find(|backbone| backbone.key == key)
    }
}
