//! What a backbone is to everybody who does not compute with it: the frame of a family of models.
//!
//! One file of `lathe-model` implements [`Backbone`] for one family. It owns the family's defaults, the keys that only
//! it has in the model file, and how text is cut for it; its other half, which knows tensors, is behind
//! [`Backbone::builder`].

use crate::model::{KEYS, Key, KeyKind};
use crate::{Activation, BlockKind, Frame, NormPlace, Result};
use std::any::Any;

/// How a text is cut for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segmentation {
    /// Consecutive segments of tgt_len tokens, each after a memory of those before.
    Stream,
    /// Windows of at most max_len tokens, which know nothing of each other.
    Windows,
}

/// A key of the model file that only some backbones have.
#[derive(Debug, Clone, Copy)]
pub struct OwnKey {
    /// Name, values, help.
    pub key: Key,
    /// Its value where it is not set, as a flag would give it; `None` leaves it open.
    pub default: Option<&'static str>,
}

impl OwnKey {
    /// A key, by its name, what it takes, its default and a line of help.
    pub const fn new(name: &'static str, kind: KeyKind, default: Option<&'static str>, help: &'static str) -> Self {
        Self { key: Key { name, kind, help }, default }
    }
}

/// What a key of the model file is where it is not set.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    /// Where norms stand.
    pub norm: NormPlace,
    /// The non-linearity.
    pub activation: Activation,
    /// Most tokens of a window; 0 where there is no limit.
    pub max_len: u32,
}

/// Widths of a baseline that is scaled by its depth alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct BaseWidths {
    pub d_model: u32,
    pub heads: u32,
    pub inner: u32,
}

/// A family of models: what stands around the blocks, and its defaults.
pub trait Backbone: Sync {
    /// Name in the model file.
    fn key(&self) -> &'static str;
    /// One line for lists.
    fn about(&self) -> &'static str;
    /// Other names, in tables of other programs.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }
    /// What keys are where they are not set.
    fn defaults(&self) -> Defaults;
    /// Keys that only some backbones have.
    fn own_keys(&self) -> &'static [OwnKey] {
        &[]
    }
    /// Keys of [`KEYS`] that have no effect with it.
    fn ignored_keys(&self) -> &'static [&'static str] {
        &["mem_len", "clamp_len", "same_length"]
    }
    /// How text is cut for it.
    fn segmentation(&self) -> Segmentation {
        Segmentation::Windows
    }
    /// Whether a token sees only those before it: whether it can write text, one token after another.
    fn causal(&self) -> bool {
        true
    }
    /// Whether models of a frame have an output layer, from hidden states to tokens.
    fn has_head(&self, _frame: &Frame) -> bool {
        true
    }
    /// Tokens of a second text that models of a frame read before they write, at the most: those of an
    /// encoder-decoder. Its stem gives these, with the first text laid aside ([`crate::TARGET`]), and the key `stack`
    /// of a block's frame is then the stack that the block stands in.
    fn source_len(&self, _frame: &Frame) -> Option<u32> {
        None
    }
    /// Widths of its layer-scaled baseline, where the papers name one.
    fn base_widths(&self) -> Option<BaseWidths> {
        None
    }

    /// The same widths as LTS (Javaheripi et al., 2022) prints them.
    fn printed_widths(&self) -> Option<BaseWidths> {
        self.base_widths()
    }
    /// Whether keys fit each other, beyond what every frame has to fulfil.
    fn check(&self, _frame: &Frame) -> Result<()> {
        Ok(())
    }
    /// What makes it compute. This crate has no tensors and passes it on: lathe-model says what it expects.
    fn builder(&self) -> &'static dyn Any;
}

impl std::fmt::Debug for dyn Backbone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.key())
    }
}

impl PartialEq for dyn Backbone {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

/// The kinds of blocks and the backbones there are, each an explicit ordered slice.
#[derive(Clone, Copy)]
pub struct Registry {
    /// Kinds of blocks.
    pub blocks: &'static [&'static dyn BlockKind],
    /// Backbones.
    pub backbones: &'static [&'static dyn Backbone],
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
    pub fn backbone(&self, key: &str) -> Option<&'static dyn Backbone> {
        self.backbones.iter().copied().find(|backbone| backbone.key() == key)
    }

    /// The keys of the model file: those of every frame, then those that only some backbones have, each once.
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> {
        let mut own: Vec<&'static Key> = Vec::new();
        for key in self.backbones.iter().flat_map(|backbone| backbone.own_keys()).map(|own| &own.key) {
            if !own.iter().any(|known| known.name == key.name) {
                own.push(key);
            }
        }
        KEYS.iter().chain(own)
    }

    /// The key of that name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }
}
