//! jacob_cov: how differently the network treats different inputs (Mellor et al., 2020, "Neural architecture search
//! without training", first version).
//!
//! J_n is the gradient of the output for sequence n with respect to its embedded tokens, T * D numbers; v are the
//! eigenvalues of the correlation matrix of J_1 ... J_B. The score is -sum of log(v + k) + 1 / (v + k), k = 1e-5, largest
//! where the sequences' gradients have nothing in common.
//!
//! **What is differentiated** is L, the mean -log p of the targets. With respect to what: the embedded tokens as the
//! embedding gives them (scaled and projected where it does that), before positions are added. Mellor et al. differentiate
//! the sum of the logits; LTS's code adds a linear layer of random weights, from all logits to one number, and
//! differentiates the sum of that over tokens. Both average out over a large vocabulary, and the second depends on the draw
//! of a layer that no model has. For a transformer_xl, where time comes first, that code compares the T positions with
//! each other and not the B sequences; here it is sequences for every backbone.

use super::{Candidate, Needs, Proxy, Scored, matrix, probe};
use crate::Result;
use crate::ranking::pearson;

const K: f64 = 1e-5;

pub(super) const PROXY: Proxy = Proxy {
    name: "jacob_cov",
    about: "how uncorrelated the sequences' gradients of the input are",
    needs: Needs::Data,
    output: false,
    score,
};

fn score(candidate: &Candidate<'_>) -> Result<Scored> {
    let probe = candidate.probe(&PROXY)?;
    if probe.batch < 2 {
        return Ok(Scored::NotApplicable("one sequence has nothing to be compared with"));
    }
    let network = probe.network(candidate)?;
    let composed = probe::composed(&network)?;
    let trace = probe.trace(&composed)?;
    let store = trace.loss.backward()?;
    let flops = 3 * probe.forward_flops(candidate.model);
    let Some(gradient) = store.get(&trace.embedded.probe) else {
        return Ok(Scored::NotApplicable("no gradient reaches the input"));
    };
    let gradient = probe::numbers(gradient)?;
    let rows: Vec<&[f64]> = gradient.chunks_exact(gradient.len() / probe.batch).collect();
    let mut correlations = vec![0.0; probe.batch * probe.batch];
    for i in 0..probe.batch {
        for j in 0..probe.batch {
            let Some(correlation) = pearson(rows[i], rows[j]) else {
                return Ok(Scored::NotApplicable("a gradient of the input is constant"));
            };
            correlations[i * probe.batch + j] = correlation;
        }
    }
    let values = matrix::eigenvalues(correlations, probe.batch);
    let value = -values.iter().map(|v| (v + K).ln() + 1.0 / (v + K)).sum::<f64>();
    Ok(Scored::Score { value, flops })
}
