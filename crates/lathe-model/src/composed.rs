//! A network as a graph of candle's operators: slower than the fused path and equal to it, on any device of candle, in
//! f32 or f64, without dropout. Its graph reaches what the fused path does not compute: gradients of activations, and,
//! where candle is told to keep the graph of gradients (`CANDLE_GRAD_DO_NOT_DETACH=1` in the environment), products
//! with the Hessian.

use crate::body::Training;
use crate::build;
use crate::context::{Context, Shared};
use crate::layer::LayerState;
use crate::network::Network;
use crate::params::ParamId;
use crate::stem::Input;
use candle_core::{DType, Device, Result, Tensor, Var};
use lathe_ops::dropout::Dropout;
use lathe_ops::loss;
use std::cell::RefCell;

/// A network whose weights are variables of candle.
pub struct Composed<'a> {
    network: &'a Network,
    /// In the order of the parameters; tied weights are one.
    vars: Vec<Var>,
    dtype: DType,
    device: Device,
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
}

/// What a pass has in common for all layers.
pub struct Graph<'a> {
    vars: &'a [Var],
    /// B
    pub batch: usize,
    /// T
    pub len: usize,
    /// Tokens before the first.
    pub position: usize,
    /// [B, T], false for padding; `None` where every token is real.
    pub mask: Option<Vec<bool>>,
    context: Context,
    dtype: DType,
    device: Device,
    balances: RefCell<Vec<Tensor>>,
    activations: RefCell<Vec<Activation>>,
    inner: RefCell<Vec<Tensor>>,
}

impl Activation {
    /// A value with its probe added, and the two.
    fn new(value: Tensor) -> Result<(Tensor, Self)> {
        let probe = Var::from_tensor(&value.zeros_like()?)?;
        Ok(((&value + probe.as_tensor())?, Self { value, probe }))
    }
}

impl Graph<'_> {
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
        self.balances.borrow_mut().push(balance);
    }

    /// Notes an activation, and returns it with its probe.
    pub fn probe(&self, value: Tensor) -> Result<Tensor> {
        let (with, activation) = Activation::new(value)?;
        self.activations.borrow_mut().push(activation);
        Ok(with)
    }

    /// Notes inner activations of a feed-forward block.
    pub fn add_inner(&self, inner: &Tensor) {
        self.inner.borrow_mut().push(inner.clone());
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
        Ok(Self { network, vars, dtype, device: device.clone() })
    }

    /// The weights by name, in the order of the network's parameters.
    pub fn vars(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.network.params().iter().map(|param| param.name.as_str()).zip(&self.vars)
    }

    /// The state to begin with, as [`Network::init_memory`].
    pub fn memory(&self, batch: usize) -> Result<ComposedState> {
        let width = self.network.model.frame.d_model as usize;
        let memory = |state: LayerState| match state {
            LayerState::Memory(memory) if !memory.is_empty() => {
                let shape = (batch, memory.len() / batch / width, width);
                Tensor::zeros(shape, self.dtype, &self.device).map(Some)
            }
            _ => Ok(None),
        };
        let memories = self.network.init_memory(batch).layers.into_iter().map(memory).collect::<Result<_>>()?;
        Ok(ComposedState { memories, position: 0 })
    }

    fn graph(&self, batch: usize, len: usize, position: usize, mask: Option<&[bool]>) -> Graph<'_> {
        let frame = &self.network.model.frame;
        let context = build::of_backbone(frame.backbone).context(frame, len, Dropout::NONE);
        let (balances, activations, inner) = Default::default();
        Graph {
            vars: &self.vars,
            batch,
            len,
            position,
            mask: mask.map(<[bool]>::to_vec),
            context,
            dtype: self.dtype,
            device: self.device.clone(),
            balances,
            activations,
            inner,
        }
    }

    /// The hidden states after the last norm, of embedded tokens.
    fn hidden(
        &self,
        graph: &Graph<'_>,
        x: Tensor,
        segments: Option<&[u32]>,
        state: &mut ComposedState,
    ) -> Result<Tensor> {
        let body = &self.network.body;
        let mut x = body.stem.composed_enter(graph, x, segments)?;
        for (slot, memory) in body.stack.slots.iter().zip(&mut state.memories) {
            if let Some(layer) = &slot[0].layer {
                x = layer.composed(graph, &x, memory)?;
            }
        }
        state.position += graph.len;
        match &body.top.norm {
            Some(norm) => norm.composed(graph, &x),
            None => Ok(x),
        }
    }

    /// As [`Network::logits`].
    pub fn logits(&self, input: &Input<'_>, state: &mut ComposedState) -> Result<Tensor> {
        let graph = self.graph(input.batch, input.len(), state.position, input.mask);
        let embedded = self.network.body.stem.composed_embed(&graph, input.ids)?;
        self.network.body.head().composed(&graph, &self.hidden(&graph, embedded, input.segments, state)?)
    }

    /// The logits of the output's first cluster, before any softmax, for one sequence of `len` tokens whose embeddings,
    /// and whatever else the backbone has for its blocks, are all 1, without a memory.
    pub fn logits_of_ones(&self, len: usize) -> Result<Tensor> {
        let width = self.network.model.frame.d_model as usize;
        let mut graph = self.graph(1, len, 0, None);
        graph.context.fill(1.0);
        let ones = Tensor::ones((len, width), self.dtype, &self.device)?;
        let memories = vec![None; self.network.body.stack.slots.len()];
        let hidden = self.hidden(&graph, ones, None, &mut ComposedState { memories, position: 0 })?;
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
        let graph = self.graph(input.batch, input.len(), state.position, input.mask);
        let (x, embedded) = Activation::new(self.network.body.stem.composed_embed(&graph, input.ids)?)?;
        let hidden = self.hidden(&graph, x, input.segments, state)?;
        let logits = self.network.body.head().composed(&graph, &hidden)?;
        let mut loss = (loss::composed(&logits, targets)?.sum_all()? * f64::from(training.scale))?;
        for balance in graph.balances.take() {
            loss = (loss + balance * f64::from(training.balance))?;
        }
        Ok(Trace { loss, embedded, activations: graph.activations.take(), inner: graph.inner.take() })
    }
}
