//! fisher_blocks: Fisher pruning of whole channels of what blocks add, a sequence as one example. Theis et al. (2018) and
//! Turner et al. (2020, "BlockSwap") sum a dL/da over the places of an image before they square; the places of a text are
//! its tokens. [`super::fisher`] is what LTS computes instead.
//!
//! Of what a block adds to the hidden states, a with channels c: sum over blocks and channels of
//! 1 / (2 N) sum over sequences n of (sum over tokens t of a[n, t, c] dL/da[n, t, c])^2.

use super::{Candidate, Needs, Proxy, Scored, probe};
use crate::Result;

pub(super) const PROXY: Proxy = Proxy {
    name: "fisher_blocks",
    about: "sum over channels of what blocks add of (sum over tokens of a dL/da)^2",
    needs: Needs::Data,
    output: false,
    score,
};

fn score(candidate: &Candidate<'_>) -> Result<Scored> {
    let probe = candidate.probe(&PROXY)?;
    let network = probe.network(candidate)?;
    let composed = probe::composed(&network)?;
    let trace = probe.trace(&composed)?;
    let store = trace.loss.backward()?;
    let width = candidate.model.frame.d_model as usize;
    let mut value = 0.0;
    for activation in &trace.activations {
        let Some(gradient) = store.get(&activation.probe) else { continue };
        let product = (&activation.value * gradient)?.reshape((probe.batch, (), width))?; // (B, T, D)
        let squares = product.sum(1)?.sqr()?.sum_all()?.to_scalar::<f64>()?;
        value += squares / (2.0 * probe.batch as f64);
    }
    Ok(Scored::Score { value, flops: 3 * probe.forward_flops(candidate.model) })
}
