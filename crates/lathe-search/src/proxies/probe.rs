//! Tokens to run an untrained model on, and which of its weights the pruning scores add up over.
//!
//! L is the mean of -log p over all targets, without dropout, at the weights that a seed gives, and for a transformer_xl
//! after the memory of zeros that it begins with.

use super::Candidate;
use crate::{Error, Result};
use candle_core::{DType, Device, Tensor};
use lathe_core::{Model, Setting};
use lathe_model::folder;
use lathe_model::{Composed, Grads, Input, Network, Owner, Targets, Trace, Training, count};
use lathe_ops::loss::IGNORE;
use lathe_ops::storage::F32;

/// A batch of tokens, and a seed of weights.
#[derive(Debug, Clone)]
pub struct Probe {
    /// [B, T]
    pub ids: Vec<u32>,
    /// [B, T]: the token after each.
    pub targets: Vec<u32>,
    /// B
    pub batch: usize,
    /// Of the weights.
    pub seed: u64,
}

impl Probe {
    /// The model at its first weights, or at those that the candidate names.
    pub(super) fn network(&self, candidate: &Candidate<'_>) -> Result<Network> {
        let model = candidate.model.clone();
        let mut network = match candidate.weights {
            Some(folder) => folder::load_as(folder, model).map_err(lathe_train::Error::from)?,
            None => Network::new(model, self.seed)?,
        };
        if !network.has_head() {
            return Err(Error::setting("head", "none", "an output layer, for scores that run the model"));
        }
        network.set_storage(&F32);
        Ok(network)
    }

    /// That L is the loss.
    fn training(&self) -> Training {
        let counted = self.targets.iter().filter(|&&target| target != IGNORE).count();
        Training { dropout_key: None, balance: 0.0, scale: 1.0 / counted as f32 }
    }

    /// dL / dw of every parameter, by the fused path.
    pub(super) fn gradients(&self, network: &Network) -> Vec<Vec<f32>> {
        let mut grads = Grads::new(network.params());
        let mut state = network.init_memory(self.batch);
        let (input, targets) = (Input::tokens(&self.ids, self.batch), Targets(&self.targets));
        network.train(&input, &targets, &mut state, &self.training(), &mut grads);
        grads.finish().to_vec()
    }

    /// L as a graph, with all that it went through.
    pub(super) fn trace(&self, composed: &Composed<'_>) -> Result<Trace> {
        let mut state = composed.memory(self.batch)?;
        Ok(composed.trace(&Input::tokens(&self.ids, self.batch), &self.targets, &mut state, &self.training())?)
    }

    /// FLOPs of one forward pass.
    pub(super) fn forward_flops(&self, model: &Model) -> u128 {
        let (batch, tgt_len) = (self.batch as u64, (self.ids.len() / self.batch) as u64);
        count(model, &Setting { batch, tgt_len, mem_len: model.frame.mem_len.into() }).total_flops()
    }
}

/// A network as a graph in f64.
pub(super) fn composed(network: &Network) -> Result<Composed<'_>> {
    Ok(Composed::new(network, DType::F64, &Device::Cpu)?)
}

/// Which parameters a pruning score adds up over, in the order of the network's: the weight matrices of the blocks, and
/// those of the output layer where it counts, tied ones included. Biases and norms are left out, as in the code of
/// Abdelfattah et al. and of LTS; learned positions are a lookup too.
pub(super) fn counted(network: &Network, output: bool) -> Vec<bool> {
    network.owners().iter().map(|&owner| owner == Owner::Block || output && owner == Owner::Output).collect()
}

/// The sum of a number per counted weight matrix, of its values and its gradients.
pub(super) fn sum_of_gradients(
    candidate: &Candidate<'_>,
    probe: &Probe,
    of: impl Fn(&[f32], &[f32]) -> f64,
) -> Result<super::Scored> {
    let network = probe.network(candidate)?;
    let gradients = probe.gradients(&network);
    let counted = counted(&network, candidate.output);
    let scores = network.params().iter().zip(&gradients).zip(counted).filter(|(_, counted)| *counted);
    let value = scores.map(|((param, gradient), _)| of(&param.data, gradient)).sum();
    Ok(super::Scored::Score { value, flops: 3 * probe.forward_flops(candidate.model) })
}

/// The numbers of a tensor.
pub(super) fn numbers(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(tensor.flatten_all()?.to_vec1()?)
}
