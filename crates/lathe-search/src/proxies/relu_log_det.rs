//! relu_log_det: how many different linear regions the inputs fall into (Mellor et al., 2021, "Neural architecture search
//! without training", final version).
//!
//! c_n is the binary code of sequence n: which of the ReLUs, of all tokens and blocks, are open. K[i, j] is in how many
//! places c_i and c_j agree; the score is log | det K |. GELU has no such code, so there is no score for it.

use super::{Candidate, Needs, Proxy, Scored, matrix, probe};
use crate::Result;
use lathe_core::Activation;

pub(super) const PROXY: Proxy = Proxy {
    name: "relu_log_det",
    about: "log det of how often the sequences' ReLUs agree",
    needs: Needs::Data,
    output: false,
    score,
};

fn score(candidate: &Candidate<'_>) -> Result<Scored> {
    let probe = candidate.probe(&PROXY)?;
    if candidate.model.frame.activation != Activation::Relu {
        return Ok(Scored::NotApplicable("its activation is not relu"));
    }
    let network = probe.network(candidate)?;
    let composed = probe::composed(&network)?;
    let trace = probe.trace(&composed)?;
    if trace.inner.is_empty() {
        return Ok(Scored::NotApplicable("it has no feed-forward block"));
    }
    let mut codes = vec![Vec::new(); probe.batch];
    for inner in &trace.inner {
        let inner = probe::numbers(inner)?;
        for (code, inner) in codes.iter_mut().zip(inner.chunks_exact(inner.len() / probe.batch)) {
            code.extend(inner.iter().map(|&h| h > 0.0));
        }
    }
    let agree = |a: &[bool], b: &[bool]| a.iter().zip(b).filter(|(a, b)| a == b).count() as f64;
    let kernel = codes.iter().flat_map(|a| codes.iter().map(|b| agree(a, b))).collect();
    let value = matrix::log_abs_det(kernel, probe.batch);
    if value == f64::NEG_INFINITY {
        return Ok(Scored::NotApplicable("two sequences have the same code"));
    }
    Ok(Scored::Score { value, flops: probe.forward_flops(candidate.model) })
}
