//! FLOPs of one forward pass of the blocks over a segment of tgt_len tokens after a full memory. The output layer is left
//! out, as the embedding is from the parameters: with a large vocabulary it would hide the rest.

use super::{Needs, Proxy, Scored};

pub(super) const PROXY: Proxy = Proxy {
    name: "flops",
    about: "FLOPs of the blocks, forward",
    needs: Needs::Nothing,
    output: false,
    score: |candidate| Scored::free(candidate.counts().blocks.flops as f64),
};
