//! synflow: the strength of all paths through the network, without data (Tanaka et al., 2020, "Pruning neural networks
//! without any data by iteratively conserving synaptic flow"), as the code of LTS computes it.
//!
//! With every parameter replaced by its absolute value, R is the sum of the logits for one segment whose embeddings are
//! all 1, without memory; the score is the sum over weight matrices of | w dR/dw |, in f64.
//!
//! - **Norms and softmax stay in place** (in the authors' code handling LayerNorm is to be done). A LayerNorm takes from
//!   its input what all channels have in common, and with it a vector of ones. [`super::synflow_norm_free`] leaves norms out.
//! - **What enters a gpt2** is 1 + |p|, with p the table of learned positions: the authors replace embeddings of tokens by
//!   ones, and the model adds its positions to them. After the first norm the ones are gone, so what R depends on is the
//!   position table. Without norms it is the ones, by far.
//! - **What enters a transformer_xl** is 1, and its relative positions are all 1 too.
//! - Of an adaptive softmax, the first cluster and the rows that stand for the others make the logits.

use super::{Candidate, Needs, Proxy, Scored, probe};
use crate::Result;
use lathe_core::Setting;
use lathe_model::{Composed, count};

pub(super) const PROXY: Proxy = Proxy {
    name: "synflow",
    about: "sum of |w dR/dw| with weights |w| and an input of ones",
    needs: Needs::Data,
    output: true,
    score: |candidate| score(&PROXY, candidate, |composed| composed),
};

/// The score with the network in some form.
pub(super) fn score(
    proxy: &Proxy,
    candidate: &Candidate<'_>,
    form: for<'a> fn(Composed<'a>) -> Composed<'a>,
) -> Result<Scored> {
    let probe = candidate.probe(proxy)?;
    let network = probe.network(candidate)?;
    let composed = form(probe::composed(&network)?);
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
