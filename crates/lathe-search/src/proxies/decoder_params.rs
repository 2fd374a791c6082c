//! Parameters of the decoder: blocks and norms, without embedding, positions and output. The proxy that LTS proposes
//! (Javaheripi et al., 2022, section 3.1).

use super::{Needs, Proxy, Scored};

pub(super) const PROXY: Proxy = Proxy {
    name: "decoder_params",
    about: "parameters of blocks and norms (LTS)",
    needs: Needs::Nothing,
    output: false,
    score: |candidate| Scored::free(candidate.counts().decoder_params() as f64),
};
