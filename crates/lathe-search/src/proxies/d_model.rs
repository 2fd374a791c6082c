//! The width of the model alone: how much of what larger proxies know is already in this one number.

use super::{Needs, Proxy, Scored};

pub(super) const PROXY: Proxy = Proxy {
    name: "d_model",
    about: "width alone",
    needs: Needs::Nothing,
    output: false,
    score: |candidate| Scored::free(f64::from(candidate.model.frame.d_model)),
};
