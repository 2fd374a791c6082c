//! All parameters, embedding and output included; where a table of trained models says them, those of the table.

use super::{Needs, Proxy, Scored};

pub(super) const PROXY: Proxy = Proxy {
    name: "total_params",
    about: "all parameters",
    needs: Needs::Nothing,
    output: false,
    score: |candidate| {
        let total = candidate.total_params.unwrap_or_else(|| candidate.counts().total_params());
        Scored::free(total as f64)
    },
};
