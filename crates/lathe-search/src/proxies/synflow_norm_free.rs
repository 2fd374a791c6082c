//! synflow_norm_free: [`super::synflow`] with every norm left out, as Tanaka et al. (2020) and Abdelfattah et al. (2021)
//! compute it of networks with batch norms: those let through what they get. So R grows with every path, and the score
//! with about the product of the widths of all blocks; it is told as it is, not as its logarithm, for ranks are the same.

use super::{Needs, Proxy, synflow};

pub(super) const PROXY: Proxy = Proxy {
    name: "synflow_norm_free",
    about: "synflow without norms",
    needs: Needs::Data,
    output: true,
    score: |candidate| synflow::score(&PROXY, candidate, |composed| composed.without_norms()),
};
