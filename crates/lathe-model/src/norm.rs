//! A norm's parameters at work: layer norm with weight and bias, RMS norm with a weight alone.

use crate::composed::Graph;
use crate::onnx::OnnxPass;
use crate::params::{Builder, Grads, Init, ParamId, Params};
use candle_core::{Result, Tensor};
use lathe_onnx::Value;
use lathe_ops::buffer::Buf;
use lathe_ops::norm::{Norm, NormKind};

/// A norm's parameters.
#[derive(Clone, Copy)]
pub struct NormParams {
    kind: NormKind,
    gamma: ParamId,
    beta: Option<ParamId>,
}

/// How many parameters a norm of a width has.
pub fn params_of(kind: NormKind, width: u64) -> u64 {
    match kind.norm {
        Norm::Layer | Norm::Scale => 2 * width,
        Norm::Rms => width,
    }
}

impl NormParams {
    /// `name.weight`, which begins around 1 with a deviation, and `name.bias` where the kind has one.
    pub fn new(builder: &mut Builder, name: &str, kind: NormKind, width: usize, deviation: f32) -> Self {
        let init = if deviation > 0.0 { Init::Normal(1.0, deviation) } else { Init::Constant(1.0) };
        let gamma = builder.param(format!("{name}.weight"), &[width], init);
        let beta =
            (kind.norm != Norm::Rms).then(|| builder.param(format!("{name}.bias"), &[width], Init::Constant(0.0)));
        Self { kind, gamma, beta }
    }

    fn beta<'a>(&self, params: &'a Params) -> &'a [f32] {
        self.beta.map_or(&[], |beta| params.get(beta))
    }

    /// norm(x), and what its backward needs.
    pub fn forward(&self, params: &Params, x: &[f32]) -> (Buf, Buf) {
        let gamma = params.get(self.gamma);
        let mut y = Buf::any(x.len());
        let mut stats = Buf::any(2 * x.len() / gamma.len());
        self.kind.forward(x, gamma, self.beta(params), &mut y, &mut stats);
        (y, stats)
    }

    /// norm(x) again, from the statistics of [`Self::forward`].
    pub fn recompute(&self, params: &Params, x: &[f32], stats: &[f32]) -> Buf {
        let mut y = Buf::any(x.len());
        self.kind.recompute(x, params.get(self.gamma), self.beta(params), stats, &mut y);
        y
    }

    /// [`Self::forward`] as a graph.
    pub fn composed(&self, graph: &Graph<'_>, x: &Tensor) -> Result<Tensor> {
        if graph.norm_free() {
            return Ok(x.clone());
        }
        self.kind.composed(x, graph.var(self.gamma), self.beta.map(|beta| graph.var(beta)))
    }

    /// [`Self::forward`] as nodes of ONNX, over the last axis.
    pub fn onnx(&self, pass: &mut OnnxPass<'_>, x: &Value) -> Value {
        let gamma = pass.vector(self.gamma);
        if let (Some(beta), Norm::Scale) = (self.beta, self.kind.norm) {
            let beta = pass.vector(beta);
            let y = pass.graph.node("Mul", &[x, &gamma], &[]);
            return pass.graph.node("Add", &[&y, &beta], &[]);
        }
        if let Some(beta) = self.beta {
            let beta = pass.vector(beta);
            let attributes = [("axis", (-1).into()), ("epsilon", self.kind.eps.into())];
            return pass.graph.node("LayerNormalization", &[x, &gamma, &beta], &attributes);
        }
        // ONNX Runtime knows this as one operator.
        let graph = &mut pass.graph;
        let (two, eps, last) = (graph.float(2.0), graph.float(self.kind.eps), graph.ints(&[-1]));
        let square = graph.node("Pow", &[x, &two], &[]);
        let mean = graph.node("ReduceMean", &[&square, &last], &[("keepdims", 1.into())]);
        let sum = graph.node("Add", &[&mean, &eps], &[]);
        let deviation = graph.node("Sqrt", &[&sum], &[]);
        let y = graph.node("Div", &[x, &deviation], &[]);
        graph.node("Mul", &[&y, &gamma], &[])
    }

    /// Adds the gradient of x to `dx`, and those of the parameters.
    pub fn backward(&self, params: &Params, x: &[f32], stats: &[f32], dy: &[f32], dx: &mut [f32], grads: &mut Grads) {
        let gamma = params.get(self.gamma);
        match self.beta {
            Some(beta) => {
                let [dgamma, dbeta] = grads.add_two(self.gamma, beta);
                self.kind.backward(x, gamma, stats, dy, dx, dgamma, dbeta);
            }
            None => self.kind.backward(x, gamma, stats, dy, dx, grads.add(self.gamma), &mut []),
        }
    }
}
