//! What a block is to everybody who does not compute with it.
//!
//! A [`BlockKind`] is one idea (attention, feed-forward, ...): its name, its knobs, its role and its cost. A
//! [`Block`] is one place in a stack: a kind with some of its knobs set. Which kinds there are, only a
//! [`Registry`](crate::Registry) knows.

use crate::{Cost, Frame, Result, Setting};
use std::any::Any;

/// The most knobs a block kind may have.
pub const MAX_KNOBS: usize = 6;

/// What a block does to a sequence, for whoever looks at stacks without knowing single blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Tokens look at other tokens: attention, convolution.
    MixesTokens,
    /// Each token is processed by itself: feed-forward, experts.
    PerToken,
    /// The output is the input.
    Identity,
}

/// The stacks of an encoder-decoder: blocks stand in the first until one of them goes on with the other text.
pub const ENCODER: &str = "encoder";
/// The other one.
pub const DECODER: &str = "decoder";
/// The name under which the stem of an encoder-decoder lays the other text aside.
pub const TARGET: &str = "target";

/// Width and length of hidden states, and of those that blocks below laid aside for blocks above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The stack, where a model has several.
    pub stack: Option<&'static str>,
    /// D
    pub width: u32,
    /// T
    pub len: u64,
    /// What was laid aside, by name, with its width and length; the latest last.
    pub aside: Vec<(&'static str, u32, u64)>,
}

impl Shape {
    /// Hidden states of so many tokens, with nothing laid aside.
    pub fn new(width: u32, len: u64) -> Self {
        Self { stack: None, width, len, aside: Vec::new() }
    }

    /// Lays width and length aside under a name.
    pub fn lay_aside(&mut self, name: &'static str) {
        self.aside.push((name, self.width, self.len));
    }

    /// The latest width and length of a name, if there is any.
    pub fn see(&self, name: &str) -> Option<(u32, u64)> {
        self.aside.iter().rev().find(|(known, ..)| *known == name).map(|&(_, width, len)| (width, len))
    }

    /// Takes the latest width and length of a name, if there is any.
    pub fn take(&mut self, name: &str) -> Option<(u32, u64)> {
        let at = self.aside.iter().rposition(|(known, ..)| *known == name)?;
        let (_, width, len) = self.aside.remove(at);
        Some((width, len))
    }
}

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
    /// What it does to a sequence.
    fn role(&self) -> Role;
    /// Whether it begins a layer of the reference rather than joins one.
    fn begins_layer(&self) -> bool {
        self.role() == Role::MixesTokens
    }
    /// Whether it is the last of its layer of the reference, which no block joins any more.
    fn ends_layer(&self) -> bool {
        self.role() != Role::MixesTokens
    }
    /// What it reads of what was laid aside, by name; measured alone, it finds a text of the source's length there.
    fn reads(&self) -> &'static [&'static str] {
        &[]
    }
    /// The blocks of this kind that a search may offer in a frame, cheapest first, the frame's own last.
    fn variants(&self, frame: &Frame) -> Vec<Block>;
    /// The blocks of this kind that can be made out of a trained block of whatever kind and are cheaper than it,
    /// cheapest first. Fewer of its own units ([`Self::variants`] of other sizes) are not among them: every kind has
    /// these.
    fn derived(&self, _from: &Block, _frame: &Frame) -> Vec<Block> {
        Vec::new()
    }
    /// The block without conditional computation that has as many parameters, where this one has any.
    fn dense(&self, _block: &Block, _frame: &Frame) -> Option<Block> {
        None
    }
    /// Knobs that tell blocks of one frame apart, for short names: so many of the first.
    fn telling_knobs(&self) -> usize {
        1
    }
    /// Whether the reference implementations of backbones have this block, so that their formats can hold it.
    fn in_references(&self) -> bool {
        false
    }
    /// Width and length of its output for those of its input, where it changes them; an error where it does not fit
    /// what stands below.
    fn reshape(&self, _block: &Block, shape: Shape) -> Result<Shape> {
        Ok(shape)
    }
    /// What makes it compute. This crate has no tensors and passes it on: lathe-model says what it expects.
    fn builder(&self) -> &'static dyn Any;
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
    /// One of these words, kept as its index.
    Word(&'static [&'static str]),
}

impl Domain {
    /// Whether a value lies within.
    pub fn contains(self, value: u32) -> bool {
        match self {
            Self::Int { min, max } => (min..=max).contains(&value),
            Self::Flag => value <= 1,
            Self::Word(words) => (value as usize) < words.len(),
        }
    }

    /// What would be accepted, in words.
    pub fn expected(self) -> String {
        match self {
            Self::Int { min, max } => format!("a whole number from {min} to {max}"),
            Self::Flag => "true or false".into(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
        }
    }

    /// A value as the notation writes it.
    pub fn show(self, value: u32) -> String {
        match self {
            Self::Int { .. } => value.to_string(),
            Self::Flag => (value == 1).to_string(),
            Self::Word(words) => words.get(value as usize).copied().unwrap_or_default().to_string(),
        }
    }
}

/// A knob's value by its name in a block, or what the kind takes where it is left open.
pub fn knob(block: &Block, name: &str) -> Option<u32> {
    block.knobs().find(|(_, knob, _)| knob.name == name)?.2
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
