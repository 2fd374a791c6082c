//! fisher: what the loss would change, to second order, if each channel of activations were removed (Theis et al., 2018,
//! "Faster gaze prediction with dense networks and Fisher pruning"; Turner et al., 2020, "BlockSwap"), as the code of LTS
//! computes it, which is that of Abdelfattah et al. (2021) with tokens as examples.
//!
//! Every linear layer of the blocks gives a, [N, C], one row per token; the relative positions of a transformer_xl have a
//! row per distance. With g = dL/da, bias included in a:
//!
//! ```text
//! score = sum over layers of  n * sum over channels c of  1 / (2 N) * sum over rows i of (a[i, c] g[i, c])^2
//! ```
//!
//! - **Square per token.** A row is squared by itself. [`super::fisher_blocks`] sums over a sequence's tokens first, as
//!   Theis et al. and Turner et al. do over the places of an image.
//! - **Spread over parameters.** A channel's value counts for each parameter of the channel, n times, with n the second
//!   dimension of the weight matrix as it is stored. In PyTorch's linear layers, [C, in], that is the channel's own number
//!   of weights. GPT-2's weights are stored [in, C], and for them the authors' code takes n = C, which is this, too.
//! - N counts all rows that enter the layer. A transformer_xl projects its memory too, so that N is B (M + T) there, also
//!   for the queries that only T of them have. The authors' first segment has no memory; here it is one of zeros.
//! - The output layer is not among the layers, for theirs is an adaptive softmax without a linear layer of its own.
//!   Experts, which they have not, are linear layers with n = in and N the number of all tokens.
//! - The authors leave dropout on; here it is off.

use super::{Candidate, Needs, Proxy, Scored, probe};
use crate::Result;
use std::collections::BTreeMap;

pub(super) const PROXY: Proxy = Proxy {
    name: "fisher",
    about: "sum over channels of linear layers of the mean (a dL/da)^2 of tokens, once per parameter",
    needs: Needs::Data,
    output: false,
    score,
};

fn score(candidate: &Candidate<'_>) -> Result<Scored> {
    let probe = candidate.probe(&PROXY)?;
    let network = probe.network(candidate)?;
    let composed = probe::composed(&network)?.with_linears();
    let trace = probe.trace(&composed)?;
    let store = trace.loss.backward()?;
    let counted = probe::counted(&network, false);
    // A weight at work in parts is one layer: its rows are those of the part that has most.
    let mut layers: BTreeMap<usize, (usize, f64)> = BTreeMap::new();
    for linear in trace.linears.iter().filter(|linear| counted[linear.weight]) {
        let (rows, sum) = layers.entry(linear.weight).or_default();
        *rows = linear.rows.max(*rows);
        if let Some(gradient) = store.get(&linear.output.probe) {
            let squares = (&linear.output.value * gradient)?.sqr()?.sum_all()?.to_scalar::<f64>()?;
            *sum += linear.stored_width as f64 * squares;
        }
    }
    let value = layers.values().map(|(rows, sum)| sum / (2.0 * *rows as f64)).sum();
    Ok(Scored::Score { value, flops: 3 * probe.forward_flops(candidate.model) })
}
