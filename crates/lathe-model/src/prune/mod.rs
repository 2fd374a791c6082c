//! Smaller networks out of trained ones: fewer heads and neurons ([`units`](mod@units)), fewer blocks ([`blocks`]),
//! fewer tokens ([`vocabulary`](mod@vocabulary)), and fewer weights that are not zero ([`magnitude`]).
//!
//! What is taken away is chosen by what a network showed on samples; whoever has the text runs them.

pub mod blocks;
pub mod magnitude;
pub mod units;
pub mod vocabulary;

use crate::Network;

/// Stores all weights of a network as those of another, where that stores all in the same way; else they are f32.
pub fn store_as(network: &mut Network, from: &Network) {
    let mut storages = from.params().iter().map(|param| param.storage());
    let Some(first) = storages.next() else { return };
    if storages.all(|other| other.key() == first.key()) {
        network.set_storage(first);
    }
}
