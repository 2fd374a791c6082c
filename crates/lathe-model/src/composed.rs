//! A network as a graph of candle's operators: slower than the fused path and equal to it, on any device of candle, in
//! f32 or f64, without dropout. Its graph reaches what the fused path does not compute: gradients of activations, and,
//! where candle is told to keep the graph of gradients (`CANDLE_GRAD_DO_NOT_DETACH=1` in the environment), products
//! with the Hessian.

use crate::body::Training;
use crate::context::{Context, Contexts, Shared};
use crate::layer::LayerState;
use crate::network::Network;
use crate::params::ParamId;
use crate::stem::Input;
use candle_core::{DType, Device, Result, Tensor, Var};
use lathe_core::Setting;
use lathe_ops::dropout::Dropout;
use lathe_ops::loss;
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

/// A network whose weights are variables of candle.
pub struct Composed<'a> {
    network: &'a Network,
    /// In the order of the parameters; tied weights are one.
    vars: Vec<Var>,
    dtype: DType,
    device: Device,
    form: Form,
}

/// What is special about a graph.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Form {
    /// Whether what linear layers give is noted.
    linears: bool,
    /// Whether norms let everything through as it is.
    norm_free: bool,
}

/// What a composed network carries from segment to segment.
#[derive(Debug, Clone)]
pub struct ComposedState {
    /// [B, M, D] of each layer that has one.
    memories: Vec<Option<Tensor>>,
    position: usize,
}

/// What a block adds to the hidden states, [B * T, D].
#[derive(Debug)]
pub struct Activation {
    /// The numbers.
    pub value: Tensor,
    /// A zero that was added to them: its gradient is theirs.
    pub probe: Var,
}

/// What a linear layer gives, or a part of one.
#[derive(Debug)]
pub struct LinearOutput {
    /// Its weight matrix, by its place among the network's parameters.
    pub weight: usize,
    /// The second dimension of that matrix as its parameter stores it.
    pub stored_width: usize,
    /// The rows that there are for it; an expert has only those that were routed to it.
    pub rows: usize,
    /// What it gives, [rows, C].
    pub output: Activation,
}

/// What a pass gave, and what it went through.
#[derive(Debug)]
pub struct Trace {
    /// As [`Composed::loss`].
    pub loss: Tensor,
    /// The embedded tokens before positions are added, [B * T, D].
    pub embedded: Activation,
    /// What each block added.
    pub activations: Vec<Activation>,
    /// Inner activations of each feed-forward block before the non-linearity, [B * T, F], 2 F where it is gated.
    pub inner: Vec<Tensor>,
    /// What each linear layer gave, if [`Composed::with_linears`] asked for it.
    pub linears: Vec<LinearOutput>,
}

/// What flows through a stack, as [`crate::layer::Stream`].
#[derive(Debug, Clone)]
pub struct GraphStream {
    /// [B * T, D]
    pub hidden: Tensor,
    /// T
    pub len: usize,
    /// [B, T], false for padding; `None` where every token is real.
    pub mask: Option<Vec<bool>>,
    /// What blocks below laid aside for blocks above, by name; the latest last.
    pub aside: Vec<(&'static str, GraphStream)>,
    /// The stack, where a model has several.
    pub stack: Option<&'static str>,
}

impl GraphStream {
    /// Hidden states of tokens, with nothing laid aside.
    pub fn new(hidden: Tensor, len: usize, mask: Option<Vec<bool>>) -> Self {
        Self { hidden, len, mask, aside: Vec::new(), stack: None }
    }

    /// Other hidden states of the same tokens.
    pub fn with(&self, hidden: Tensor) -> Self {
        Self { hidden, ..self.clone() }
    }

    /// What was laid aside under a name at last, to be read.
    pub fn see(&self, name: &str) -> Option<&Self> {
        self.aside.iter().rev().find(|(known, _)| *known == name).map(|(_, stream)| stream)
    }

    /// What was laid aside under a name at last, to be taken away.
    pub fn take(&mut self, name: &str) -> Option<Self> {
        let at = self.aside.iter().rposition(|(known, _)| *known == name)?;
        Some(self.aside.remove(at).1)
    }
}

/// What layers told of a pass.
#[derive(Default)]
struct Notes {
    balances: RefCell<Vec<Tensor>>,
    activations: RefCell<Vec<Activation>>,
    inner: RefCell<Vec<Tensor>>,
    linears: RefCell<Vec<LinearOutput>>,
}

/// What a pass has in common for all layers.
pub struct Graph<'a> {
    vars: &'a [Var],
    /// B
    pub batch: usize,
    /// T, where the layer stands.
    pub len: usize,
    /// Tokens before the first.
    pub position: usize,
    /// [B, T], false for padding; `None` where every token is real.
    pub mask: Option<Vec<bool>>,
    /// What blocks below laid aside for this one.
    pub aside: Vec<(&'static str, GraphStream)>,
    context: Arc<Context>,
    contexts: &'a Contexts<'a>,
    dtype: DType,
    device: Device,
    form: Form,
    notes: &'a Notes,
}

impl Activation {
    /// A value with its probe added, and the two.
    fn new(value: Tensor) -> Result<(Tensor, Self)> {
        let probe = Var::from_tensor(&value.zeros_like()?)?;
        Ok(((&value + probe.as_tensor())?, Self { value, probe }))
    }
}

impl<'a> Graph<'a> {
    /// The same for another text of the batch, of so many tokens.
    pub fn beside(&self, len: usize, mask: Option<&[bool]>, position: usize) -> Graph<'a> {
        let (mask, context, device) = (mask.map(<[bool]>::to_vec), self.context.clone(), self.device.clone());
        Graph { len, mask, position, aside: Vec::new(), context, device, ..*self }
    }

    /// What was laid aside under a name at last, to be read.
    pub fn see(&self, name: &str) -> Option<&GraphStream> {
        self.aside.iter().rev().find(|(known, _)| *known == name).map(|(_, stream)| stream)
    }

    /// What the backbone has of a type for blocks that ask for it.
    pub fn get<T: Shared>(&self) -> Option<&T> {
        self.context.get()
    }

    /// Numbers as rows of a width.
    pub fn rows(&self, numbers: &[f32], width: usize) -> Result<Tensor> {
        Tensor::from_slice(numbers, ((), width), &self.device)?.to_dtype(self.dtype)
    }

    /// A parameter.
    pub fn var(&self, id: ParamId) -> &Tensor {
        &self.vars[id.0]
    }

    /// Notes the balance loss of a mixture of experts.
    pub fn add_balance(&self, balance: Tensor) {
        self.notes.balances.borrow_mut().push(balance);
    }

    /// Notes an activation, and returns it with its probe.
    pub fn probe(&self, value: Tensor) -> Result<Tensor> {
        let (with, activation) = Activation::new(value)?;
        self.notes.activations.borrow_mut().push(activation);
        Ok(with)
    }

    /// Whether norms let everything through as it is.
    pub fn norm_free(&self) -> bool {
        self.form.norm_free
    }

    /// Notes what a linear layer gives, where that is asked for, and returns it with its probe.
    pub fn linear(&self, weight: ParamId, stored_width: usize, rows: usize, value: Tensor) -> Result<Tensor> {
        if !self.form.linears {
            return Ok(value);
        }
        let (with, output) = Activation::new(value)?;
        self.notes.linears.borrow_mut().push(LinearOutput { weight: weight.0, stored_width, rows, output });
        Ok(with)
    }

    /// Notes inner activations of a feed-forward block.
    pub fn add_inner(&self, inner: &Tensor) {
        self.notes.inner.borrow_mut().push(inner.clone());
    }
}

impl<'a> Composed<'a> {
    /// The weights that the network has now, as f32 or f64 on a device.
    pub fn new(network: &'a Network, dtype: DType, device: &Device) -> Result<Self> {
        let var = |param: &crate::Param| {
            let weights = Tensor::from_slice(&param.read(), param.shape.as_slice(), device)?;
            Var::from_tensor(&weights.to_dtype(dtype)?)
        };
        let vars = network.params().iter().map(var).collect::<Result<_>>()?;
        Ok(Self { network, vars, dtype, device: device.clone(), form: Form::default() })
    }

    /// The same, noting in each trace what every linear layer gives.
    pub fn with_linears(mut self) -> Self {
        self.form.linears = true;
        self
    }

    /// The same without norms: every one lets through what it gets.
    pub fn without_norms(mut self) -> Self {
        self.form.norm_free = true;
        self
    }

    /// The weights by name, in the order of the network's parameters.
    pub fn vars(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.network.params().iter().map(|param| param.name.as_str()).zip(&self.vars)
    }

    /// The state to begin with, as [`Network::init_memory`].
    pub fn memory(&self, batch: usize) -> Result<ComposedState> {
        let model = &self.network.model;
        let widths = model.placed(Setting::of(model)).map(|(_, frame, _)| frame.d_model as usize);
        let memory = |(state, width): (LayerState, usize)| match state {
            LayerState::Memory(memory) if !memory.is_empty() => {
                let shape = (batch, memory.len() / batch / width, width);
                Tensor::zeros(shape, self.dtype, &self.device).map(Some)
            }
            _ => Ok(None),
        };
        let memories =
            self.network.init_memory(batch).layers.into_iter().zip(widths).map(memory).collect::<Result<_>>()?;
        Ok(ComposedState { memories, position: 0 })
    }

    fn contexts(&self, change: Option<fn(&mut Context)>) -> Contexts<'_> {
        Contexts::new(Cow::Borrowed(&self.network.model.frame), Dropout::NONE, change)
    }

    fn graph<'g>(
        &'g self,
        input: (usize, usize, Option<&[bool]>),
        position: usize,
        contexts: &'g Contexts<'g>,
        notes: &'g Notes,
    ) -> Graph<'g> {
        let (batch, len, mask) = input;
        Graph {
            vars: &self.vars,
            batch,
            len,
            position,
            mask: mask.map(<[bool]>::to_vec),
            aside: Vec::new(),
            context: contexts.of(len, self.network.model.frame.d_model as usize, None),
            contexts,
            dtype: self.dtype,
            device: self.device.clone(),
            form: self.form,
            notes,
        }
    }

    /// The hidden states after the last norm, of embedded tokens.
    fn hidden(&self, graph: &Graph<'_>, x: Tensor, input: &Input<'_>, state: &mut ComposedState) -> Result<Tensor> {
        let body = &self.network.body;
        let mut x = body.stem.composed_enter(graph, x, input)?;
        for (slot, memory) in body.stack.slots.iter().zip(&mut state.memories) {
            if let Some(layer) = &slot[0].layer {
                let context = graph.contexts.of(x.len, x.hidden.dim(1)?, x.stack);
                let (len, mask, aside, device) = (x.len, x.mask.clone(), x.aside.clone(), graph.device.clone());
                x = layer.composed(&Graph { len, mask, aside, context, device, ..*graph }, &x, memory)?;
            }
        }
        state.position += graph.len;
        match &body.top.norm {
            Some(norm) => norm.composed(graph, &x.hidden),
            None => Ok(x.hidden),
        }
    }

    /// As [`Network::logits`].
    pub fn logits(&self, input: &Input<'_>, state: &mut ComposedState) -> Result<Tensor> {
        let (contexts, notes) = (self.contexts(None), Notes::default());
        let graph = self.graph((input.batch, input.len(), input.mask), state.position, &contexts, &notes);
        let embedded = self.network.body.stem.composed_embed(&graph, input.ids)?;
        self.network.body.head().composed(&graph, &self.hidden(&graph, embedded, input, state)?)
    }

    /// The logits of the output's first cluster, before any softmax, for one sequence of `len` tokens whose embeddings,
    /// and whatever else the backbone has for its blocks, are all 1, without a memory.
    pub fn logits_of_ones(&self, len: usize) -> Result<Tensor> {
        let width = self.network.model.frame.d_model as usize;
        let (contexts, notes) = (self.contexts(Some(|context| context.fill(1.0))), Notes::default());
        let graph = self.graph((1, len, None), 0, &contexts, &notes);
        let ones = Tensor::ones((len, width), self.dtype, &self.device)?;
        let memories = vec![None; self.network.body.stack.slots.len()];
        let (ids, state) = (vec![0; len], &mut ComposedState { memories, position: 0 });
        let hidden = self.hidden(&graph, ones, &Input::tokens(&ids, 1), state)?;
        self.network.body.head().composed_first(&graph, &hidden)
    }

    /// The number whose gradients [`Network::train`] adds up without dropout: `scale` times the losses of all targets,
    /// and the balance losses; and what each block added on the way.
    pub fn loss(
        &self,
        input: &Input<'_>,
        targets: &[u32],
        state: &mut ComposedState,
        training: &Training,
    ) -> Result<(Tensor, Vec<Activation>)> {
        let trace = self.trace(input, targets, state, training)?;
        Ok((trace.loss, trace.activations))
    }

    /// As [`Self::loss`], with all that the pass went through.
    pub fn trace(
        &self,
        input: &Input<'_>,
        targets: &[u32],
        state: &mut ComposedState,
        training: &Training,
    ) -> Result<Trace> {
        let (contexts, notes) = (self.contexts(None), Notes::default());
        let graph = self.graph((input.batch, input.len(), input.mask), state.position, &contexts, &notes);
        let (x, embedded) = Activation::new(self.network.body.stem.composed_embed(&graph, input.ids)?)?;
        let hidden = self.hidden(&graph, x, input, state)?;
        let logits = self.network.body.head().composed(&graph, &hidden)?;
        let mut loss = (loss::composed(&logits, targets)?.sum_all()? * f64::from(training.scale))?;
        for balance in notes.balances.take() {
            loss = (loss + balance * f64::from(training.balance))?;
        }
        let Notes { activations, inner, linears, .. } = notes;
        let (activations, inner, linears) = (activations.into_inner(), inner.into_inner(), linears.into_inner());
        Ok(Trace { loss, embedded, activations, inner, linears })
    }
}
