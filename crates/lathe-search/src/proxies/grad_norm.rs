//! grad_norm: the sum over weight matrices of the length of their gradient, sum of || dL / dW ||
//! (Abdelfattah et al., 2021).

use super::{Needs, Proxy, probe};

pub(super) const PROXY: Proxy = Proxy {
    name: "grad_norm",
    about: "sum of the gradients' norms, one per weight matrix",
    needs: Needs::Data,
    output: true,
    score: |candidate| {
        let norm = |_: &[f32], gradient: &[f32]| gradient.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        probe::sum_of_gradients(candidate, candidate.probe(&PROXY)?, norm)
    },
};
