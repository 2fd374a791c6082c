//! synflow: the strength of all paths through the network, without data (Tanaka et al., 2020, "Pruning neural networks
//! without any data by iteratively conserving synaptic flow").
//!
//! With every parameter replaced by its absolute value, R is the sum of the logits for one segment whose embeddings are
//! all 1; the score is the sum of | w dR/dw |, in f64. As in the LTS authors' code, norms and softmax stay in place,
//! distances of a transformer_xl are all 1 too, and of an adaptive softmax the first cluster makes the logits.

use super::{Candidate, Needs, Proxy, Scored, probe};
use crate::Result;
use lathe_core::Setting;
use lathe_model::count;

pub(super) const PROXY: Proxy = Proxy {
    name: "synflow",
    about: "sum of |w dR/dw| with weights |w| and an input of ones",
    needs: Needs::Data,
    output: true,
    score,
};

fn score(candidate: &Candidate<'_>) -> Result<Scored> {
    let probe = candidate.probe(&PROXY)?;
    let network = probe.network(candidate)?;
    let composed = probe::composed(&network)?;
    for (_, var) in composed.vars() {
        var.set(&var.abs()?)?;
    }
    let len = probe.ids.len() / probe.batch;
    let store = composed.logits_of_ones(len)?.sum_all()?.backward()?;
    let mut value = 0.0;
    let counted = probe::counted(&network, candidate.output);
    for ((_, var), _) in composed.vars().zip(counted).filter(|(_, counted)| *counted) {
        if let Some(gradient) = store.get(var) {
            value += (var.as_tensor() * gradient)?.abs()?.sum_all()?.to_scalar::<f64>()?;
        }
    }
    let setting = Setting { batch: 1, tgt_len: len as u64, mem_len: 0 };
    Ok(Scored::Score { value, flops: 3 * count(candidate.model, &setting).total_flops() })
}
