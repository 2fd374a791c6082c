//! grasp: what the length of the gradient would lose if each weight were removed (Wang et al., 2020, "Picking winning
//! tickets before training by preserving gradient flow").
//!
//! **Sign.** The score is -sum of w (H g), with the gradient g = dL/dw and the Hessian H, both over the counted weights
//! alone. Wang et al. keep the weights whose -w (H g) is *smallest*, for their removal costs gradient flow; Abdelfattah
//! et al. (2021) add the same numbers up and call a *larger* sum better, and so do LTS and this.
//!
//! H g is the slope of the gradient along g, (g(w + e g) - g(w - e g)) / 2 e, in f64, with e || g || = 1e-4: what is cut
//! off and what is rounded are both below 1e-6 of it, which the comparison with PyTorch's second derivative confirms.

use super::{Candidate, Needs, Proxy, Scored, probe};
use crate::Result;
use candle_core::Tensor;

/// How far the weights are moved, all together.
const STEP: f64 = 1e-4;

pub(super) const PROXY: Proxy =
    Proxy { name: "grasp", about: "-sum of w (H g)", needs: Needs::Data, output: true, score };

fn score(candidate: &Candidate<'_>) -> Result<Scored> {
    let probe = candidate.probe(&PROXY)?;
    let network = probe.network(candidate)?;
    let composed = probe::composed(&network)?;
    let counted = probe::counted(&network, candidate.output);
    let vars: Vec<_> = composed.vars().zip(counted).filter(|(_, counted)| *counted).map(|((_, var), _)| var).collect();
    let gradients = || -> Result<Vec<Tensor>> {
        let store = probe.trace(&composed)?.loss.backward()?;
        let gradient = |var: &&candle_core::Var| match store.get(var) {
            Some(gradient) => Ok(gradient.clone()),
            None => var.zeros_like(),
        };
        Ok(vars.iter().map(gradient).collect::<candle_core::Result<_>>()?)
    };
    let direction = gradients()?;
    let start = vars.iter().map(|var| var.as_tensor().copy()).collect::<candle_core::Result<Vec<_>>>()?;
    let mut squares = 0.0;
    for gradient in &direction {
        squares += gradient.sqr()?.sum_all()?.to_scalar::<f64>()?;
    }
    let flops = 9 * probe.forward_flops(candidate.model); // three gradients
    if squares == 0.0 {
        return Ok(Scored::Score { value: 0.0, flops });
    }
    let step = STEP / squares.sqrt();
    let moved = |step: f64| {
        for ((var, start), along) in vars.iter().zip(&start).zip(&direction) {
            var.set(&(start + (along * step)?)?)?;
        }
        gradients()
    };
    let (after, before) = (moved(step)?, moved(-step)?);
    let mut value = 0.0;
    for ((w, after), before) in start.iter().zip(&after).zip(&before) {
        let product = ((after - before)? / (2.0 * step))?;
        value -= (w * product)?.sum_all()?.to_scalar::<f64>()?;
    }
    Ok(Scored::Score { value, flops })
}
