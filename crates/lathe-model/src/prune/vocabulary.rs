//! Fewer tokens: the network whose embedding and output know some of the tokens alone, which are numbered anew.

use crate::Network;
use crate::params::Param;
use lathe_core::{Error, Model, Result};

/// The network with the rows of these tokens alone: its token i is token `tokens[i]` of the other.
///
/// What has a row for each token is found by building the model with the smaller vocabulary: that is what changes its
/// shape.
pub fn keep(network: &Network, tokens: &[u32]) -> Result<Network> {
    let Model { frame, blocks } = &network.model;
    if !frame.cutoffs.is_empty() {
        let found = format!("{:?}: an adaptive softmax, whose clusters lie between these tokens", frame.cutoffs);
        return Err(Error::value("cutoffs", found, "an output layer without clusters, to be cut"));
    }
    if let Some(wrong) = tokens.iter().find(|&&token| token >= frame.vocab) {
        return Err(Error::value("tokens", wrong, format!("tokens below the vocabulary of {}", frame.vocab)));
    }
    let mut smaller = frame.clone();
    smaller.vocab = tokens.len() as u32;
    let mut smaller = Network::unfilled(Model::new(smaller, blocks.clone())?)?;
    for (to, from) in smaller.params_mut().zip(network.params().iter()) {
        assert_eq!(to.name, from.name, "parameters stand in the same order");
        let values = rows(from, &to.shape, tokens, frame.vocab as usize)?;
        to.set_data(values);
    }
    super::store_as(&mut smaller, network);
    Ok(smaller)
}

/// The values of a parameter for a shape that has a row for each of the tokens, where this one has one for every token.
fn rows(from: &Param, shape: &[usize], tokens: &[u32], vocab: usize) -> Result<Vec<f32>> {
    let values = from.read();
    if from.shape == shape {
        return Ok(values.into_owned());
    }
    if from.shape[0] != vocab || shape[0] != tokens.len() || from.shape[1..] != shape[1..] {
        let expected = format!("a row for each of {vocab} tokens");
        return Err(Error::value(&from.name, format!("{:?}", from.shape), expected));
    }
    let width: usize = shape[1..].iter().product();
    Ok(tokens.iter().flat_map(|&token| values[token as usize * width..][..width].iter().copied()).collect())
}
