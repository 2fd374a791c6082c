//! snip: what the loss would change, to first order, if each weight were removed: sum of | w dL/dw |
//! (Lee et al., 2019, "SNIP: single-shot network pruning based on connection sensitivity").

use super::{Needs, Proxy, probe};

pub(super) const PROXY: Proxy = Proxy {
    name: "snip",
    about: "sum of |w dL/dw|",
    needs: Needs::Data,
    output: true,
    score: |candidate| {
        let salience = |weights: &[f32], gradient: &[f32]| {
            weights.iter().zip(gradient).map(|(&w, &g)| f64::from(w) * f64::from(g)).map(f64::abs).sum()
        };
        probe::sum_of_gradients(candidate, candidate.probe(&PROXY)?, salience)
    },
};
