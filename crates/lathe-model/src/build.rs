//! How blocks and backbones become networks: the halves of [`lathe_core::BlockKind`] and [`lathe_core::Backbone`] that
//! know tensors.
//!
//! A backbone says how weights are named, laid out and drawn, what attention looks like, what stands below and above
//! the blocks, and how its configuration is written elsewhere. A block asks its [`Site`] for that and never asks which
//! backbone it stands in.

use crate::blocks::AttentionStyle;
use crate::context::Context;
use crate::folder::{ConfigReader, GgufForm, Json};
use crate::head::Top;
use crate::layer::{Layer, Residual, Sublayer};
use crate::linear::{Layout, Linear, shape};
use crate::norm::NormParams;
use crate::params::{Builder, Init, Param};
use crate::stem::Stem;
use lathe_core::{Backbone, Block, BlockKind, Frame, Model, Result, Role, Setting};
use lathe_ops::dropout::Dropout;
use lathe_ops::norm::NormKind;
use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;

/// How a kind of block becomes a layer.
pub trait BuildBlock: Sync {
    /// Makes the parameters and the layer; `None` where there is nothing to compute.
    fn build(&self, block: &Block, frame: &Frame, site: &Site<'_>, builder: &mut Builder) -> Option<Box<dyn Layer>>;

    /// The weights of a block of this kind from another that is trained, in the order of its parameters; `None` where
    /// there is no way. The usual ways, a copy and fewer units, need nothing here ([`crate::derive`]).
    fn derive(&self, _to: &Block, _from: &Trained<'_>, _frame: &Frame) -> Option<Vec<Vec<f32>>> {
        None
    }
}

/// A trained block, for others to be made of.
#[derive(Clone, Copy)]
pub struct Trained<'a> {
    /// What it is.
    pub block: &'a Block,
    /// Its parameters, in their order.
    pub weights: &'a [&'a Param],
    /// Hidden states that enter it in use, [N, D], where somebody looked: some hundreds of tokens are enough. What is
    /// made then fits these rather than all that could be.
    pub hidden: Option<&'a [f32]>,
}

/// What [`BlockKind::builder`] returns a reference to.
pub struct LayerBuilder(pub &'static dyn BuildBlock);

/// What [`Backbone::builder`] returns a reference to.
pub struct NetworkBuilder(pub &'static dyn BuildBackbone);

/// The layers of a kind of block.
pub fn of_block(kind: &'static dyn BlockKind) -> &'static dyn BuildBlock {
    let builder: &dyn Any = kind.builder();
    let builder = builder.downcast_ref::<LayerBuilder>();
    builder.unwrap_or_else(|| panic!("block {}: its builder is no LayerBuilder", kind.key())).0
}

/// The networks of a backbone.
pub fn of_backbone(backbone: &'static dyn Backbone) -> &'static dyn BuildBackbone {
    let builder: &dyn Any = backbone.builder();
    let builder = builder.downcast_ref::<NetworkBuilder>();
    builder.unwrap_or_else(|| panic!("backbone {}: its builder is no NetworkBuilder", backbone.key())).0
}

/// How a backbone's weights are laid out and drawn.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// How matrices lie in their parameters.
    pub layout: Layout,
    /// The norm of blocks.
    pub norm: NormKind,
    /// How far its weights begin from 1.
    pub norm_deviation: f32,
    /// How far weights deviate from 0 at first.
    pub deviation: f32,
    /// The same of the matrices that write into the residual stream.
    pub output_deviation: f32,
    /// Whether linear layers without a gate have biases.
    pub bias: bool,
    /// Whether gate and value of a gated feed-forward are two matrices rather than one.
    pub split_gate: bool,
    /// Whether inner activations of feed-forwards are dropped too.
    pub inner_dropout: bool,
}

impl Style {
    /// Matrices as PyTorch's linear layers have them, with biases, and all weights drawn alike.
    pub const fn linear(norm: NormKind) -> Self {
        Self {
            layout: Layout::OutIn,
            norm,
            norm_deviation: 0.0,
            deviation: DEVIATION,
            output_deviation: DEVIATION,
            bias: true,
            split_gate: false,
            inner_dropout: false,
        }
    }
}

/// The deviation that most reference implementations draw weights with.
pub const DEVIATION: f32 = 0.02;

/// How layers share parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// So many have their own, and all others those of these in turn.
    InTurn(usize),
    /// So many in a row have the same.
    InRow(usize),
}

impl Sharing {
    /// Which of the layers' parameters the layer of a number has.
    fn layer(self, number: usize) -> usize {
        match self {
            Self::InTurn(own) => number % own.max(1),
            Self::InRow(layers) => number / layers.max(1),
        }
    }
}

/// Whether layers of a frame share any parameters.
pub fn shares(frame: &Frame) -> bool {
    let family = of_backbone(frame.backbone);
    [Role::MixesTokens, Role::PerToken].into_iter().any(|role| family.sharing(frame, role).is_some())
}

/// Which of the layers' parameters a block of a role has in the layer of a number.
pub(crate) fn own_layer(frame: &Frame, role: Role, number: usize) -> usize {
    of_backbone(frame.backbone).sharing(frame, role).map_or(number, |sharing| sharing.layer(number))
}

/// What a frame costs besides its blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameCost {
    /// Parameters, learned positions among them, without the final norm.
    pub params: u64,
    /// Learned positions.
    pub position: u64,
    /// Parameters of the final norm.
    pub norm: u64,
    /// FLOPs of the output, the first cluster and the rows of the others, and of matrices below the blocks.
    pub output_flops: u128,
    /// FLOPs of the output with every cluster evaluated.
    pub output_full_flops: u128,
    /// f32 bytes of the embedded tokens and of the outputs of all tokens.
    pub activation_bytes: u128,
}

/// How the networks of a backbone are built, and what they are called elsewhere.
pub trait BuildBackbone: Sync {
    /// The name of the reference's layer of a number, `transformer.h.3`, in the stack of a block's frame; its parameters'
    /// names begin with it.
    fn layer_name(&self, frame: &Frame, number: usize) -> String;
    /// The name of a part of a block within its layer, for the name that the block has for it; that itself where the
    /// reference has no such part.
    fn part_name(&self, _frame: &Frame, _role: Role, part: &str) -> String {
        part.into()
    }
    /// How weights are laid out and drawn in a stack of so many blocks.
    fn style(&self, frame: &Frame, blocks: usize) -> Style;
    /// What attention looks like.
    fn attention(&self, frame: &Frame) -> AttentionStyle;
    /// How layers share the parameters of their blocks of a role; `None`: every layer has its own.
    fn sharing(&self, _frame: &Frame, _role: Role) -> Option<Sharing> {
        None
    }
    /// What stands below the blocks.
    fn stem(&self, frame: &Frame, builder: &mut Builder) -> Result<Box<dyn Stem>>;
    /// What stands above the blocks; its weights may be the stem's.
    fn top(&self, frame: &Frame, stem: &dyn Stem, builder: &mut Builder) -> Top;
    /// What stem and top cost.
    fn frame_cost(&self, frame: &Frame, setting: &Setting) -> FrameCost;
    /// What blocks may ask for in a pass over `len` tokens; where the hidden states are dropped, it may be too.
    fn context(&self, _frame: &Frame, _len: usize, _dropout: Dropout) -> Context {
        Context::default()
    }

    /// The values of `model_type` in a `config.json` of transformers that this is.
    fn model_types(&self) -> &'static [&'static str];
    /// The model of such a `config.json`.
    fn read_config(&self, reader: &mut ConfigReader<'_>) -> Result<()>;
    /// Such a `config.json`, if the model exists there.
    fn write_config(&self, model: &Model) -> Option<Json>;
    /// How its models stand in GGUF files, if they do.
    fn gguf(&self) -> Option<&'static dyn GgufForm> {
        None
    }
    /// The names that a file may have for a parameter, besides its own.
    fn other_names(&self, _name: &str) -> Vec<String> {
        Vec::new()
    }
    /// Whether a file may hold a tensor that the model does not need: a constant, or a tied weight once more.
    fn is_needless(&self, _name: &str, _frame: &Frame) -> bool {
        false
    }
}

/// Where a block stands: the reference's layer, of which it is a part, and the conventions of its backbone.
pub struct Site<'a> {
    backbone: &'static dyn BuildBackbone,
    frame: &'a Frame,
    layer: String,
    index: usize,
    /// How weights are laid out and drawn.
    pub style: Style,
}

impl<'a> Site<'a> {
    /// Block `index` of `blocks`, whose parameters' names begin with `layer`.
    pub fn new(frame: &'a Frame, layer: String, index: usize, blocks: usize) -> Self {
        let backbone = of_backbone(frame.backbone);
        Self { backbone, frame, layer, index, style: backbone.style(frame, blocks) }
    }

    /// The full name of a part of a block.
    pub fn name(&self, role: Role, part: &str) -> String {
        format!("{}.{}", self.layer, self.backbone.part_name(self.frame, role, part))
    }

    /// What attention looks like here.
    pub fn attention(&self) -> AttentionStyle {
        self.backbone.attention(self.frame)
    }

    /// A salt for a use of dropout in this block.
    pub fn salt(&self, use_of_block: u64) -> u64 {
        8 * self.index as u64 + use_of_block
    }

    /// The norm of a block, by the name of its part.
    pub fn norm(&self, builder: &mut Builder, role: Role, part: &str) -> NormParams {
        let name = self.name(role, part);
        NormParams::new(builder, &name, self.style.norm, self.frame.d_model as usize, self.style.norm_deviation)
    }

    /// A linear layer of a block, by the name of its part.
    pub fn linear(&self, builder: &mut Builder, name: &str, sizes: [usize; 2], deviation: f32, bias: bool) -> Linear {
        let [inputs, outputs] = sizes;
        let shape = shape(self.style.layout, inputs, outputs);
        let weight = builder.param(format!("{name}.weight"), &shape, Init::Normal(0.0, deviation));
        let bias = bias.then(|| builder.param(format!("{name}.bias"), &[outputs], Init::Constant(0.0)));
        Linear::new(weight, bias, self.style.layout, inputs, outputs)
    }

    /// A sublayer in the backbone's residual connection.
    pub fn residual(&self, sublayer: impl Sublayer + 'static, norm: NormParams) -> Option<Box<dyn Layer>> {
        let (place, width) = (self.frame.norm, self.frame.d_model as usize);
        Some(Box::new(Residual { sublayer: Box::new(sublayer), norm, place, width, salt: self.salt(0) }))
    }
}

/// The number of the reference's layer for each block, in each stack from 0 on. A layer of the reference is a block that
/// mixes tokens and one that works per token; the former begins one, and any other block joins one that has only the
/// former so far.
pub(crate) fn layer_numbers(model: &Model) -> Vec<usize> {
    let mut number: Option<usize> = None;
    let mut open = false; // the layer has no block that works per token
    let mut stack = None;
    let assign = |(block, frame, _): (&Block, Cow<'_, Frame>, Setting)| {
        if frame.stack() != stack.as_deref() {
            (stack, number, open) = (frame.stack().map(String::from), None, false);
        }
        let role = block.kind.role();
        if role == Role::Identity {
            return number.unwrap_or(0);
        }
        if block.kind.begins_layer() || !open {
            number = Some(number.map_or(0, |n| n + 1));
        }
        open = !block.kind.ends_layer();
        number.expect("just set")
    };
    model.placed(Setting::of(model)).map(assign).collect()
}

/// For each block whether an earlier one has its parameters already: never, unless layers share them. An error where
/// blocks that would share them differ.
pub(crate) fn repeats(model: &Model) -> Result<Vec<bool>> {
    if !shares(&model.frame) {
        return Ok(vec![false; model.blocks.len()]);
    }
    let mut known: HashMap<(usize, Role), (Block, u32)> = HashMap::new();
    let mut repeats = Vec::new();
    for ((block, frame, _), number) in model.placed(Setting::of(model)).zip(layer_numbers(model)) {
        let here = (block.kind.resolve(block, &frame), frame.d_model);
        let role = block.kind.role();
        let place = (own_layer(&model.frame, role, number), role);
        match known.get(&place) {
            Some(earlier) if *earlier == here => repeats.push(true),
            Some((earlier, _)) => {
                let expected = "equal blocks in layers that share their weights";
                return Err(lathe_core::Error::value("layers", format!("{earlier:?} and {block:?}"), expected));
            }
            None => {
                known.insert(place, here);
                repeats.push(false);
            }
        }
    }
    Ok(repeats)
}
