//! Several models in one training, with shared weights (LTS, Javaheripi et al., 2022, appendix B): the batch of a step is
//! divided among them, so that a step costs no more than one of the largest alone.
//!
//! The run's own network holds all weights and is what the optimiser moves; each model reads its part of them before a step and
//! adds its gradients after its share of the batch ([`lathe_model::shared`]). A sequence of a model with a memory always
//! goes to the same one.

use crate::settings::Settings;
use crate::tasks::Task;
use crate::{Error, Result};
use lathe_core::model::{Value, key};
use lathe_core::{Model, Registry, Spec};
use lathe_model::shared::{self, Share};
use lathe_model::{Grads, Network, Precision};

/// What stands between stacks in the setting `fuse`.
pub const BETWEEN: char = '+';

/// One of the models.
pub(crate) struct Fused {
    pub network: Network,
    grads: Grads,
    share: Share,
}

/// The stacks that a setting names.
pub fn stacks(fuse: &str) -> Vec<&str> {
    if fuse.is_empty() { Vec::new() } else { fuse.split(BETWEEN).map(str::trim).collect() }
}

/// The run's own model: the given one, or that which holds all that are fused in its frame.
pub(crate) fn whole(settings: &Settings, spec: &Spec, registry: &Registry) -> Result<Spec> {
    let mut whole = spec.clone();
    if !settings.fuse.is_empty() {
        if whole.get("vocab").is_none() {
            whole.set(key("vocab").expect("a key of the model file"), Value::Int(256)); // which changes no stack
        }
        let blocks = shared::whole(&models(settings, &whole, registry)?)?;
        whole = spec.clone();
        let layers = Value::Word(lathe_core::notation::print(&blocks));
        whole.set(key("layers").expect("a key of the model file"), layers);
    }
    Ok(whole)
}

/// The models that are fused, in the frame of a spec.
fn models(settings: &Settings, spec: &Spec, registry: &Registry) -> Result<Vec<Model>> {
    let of_stack = |stack: &str| {
        let mut spec = spec.clone();
        spec.set(key("layers").expect("a key of the model file"), Value::Word(stack.into()));
        Ok(spec.model(registry).map_err(|error| error.at("fuse"))?)
    };
    stacks(&settings.fuse).into_iter().map(of_stack).collect()
}

impl Fused {
    /// The models of a run whose network holds them all.
    pub fn open(settings: &Settings, task: &dyn Task, whole: &Network, registry: &Registry) -> Result<Vec<Self>> {
        let models = models(settings, &whole.model.spec(), registry)?;
        if !models.is_empty() && task.of_examples().is_some() {
            let expected = "a task that learns from a text, where models are fused";
            return Err(Error::setting("task", task.key(), expected));
        }
        let open = |model| {
            let network = Network::new(model, settings.seed.into())?;
            Ok(Self { share: Share::of(&network, whole)?, grads: Grads::new(network.params()), network })
        };
        models.into_iter().map(open).collect()
    }

    /// Takes the weights as they are now.
    pub fn read(&mut self, whole: &Network) {
        self.share.read(whole, &mut self.network);
    }

    /// Adds the gradients of a pass of its own to those of all.
    pub fn train<O>(&mut self, grads: &mut Grads, pass: impl FnOnce(&Network, &mut Grads) -> O) -> O {
        self.grads.clear();
        let outcome = pass(&self.network, &mut self.grads);
        self.share.add(&mut self.grads, grads);
        outcome
    }

    pub fn set_precision(&mut self, precision: Precision) {
        self.network.set_precision(precision);
    }
}

/// Which of them is the largest, which stands for all where one has to.
pub(crate) fn largest(fused: &[Fused]) -> Option<usize> {
    (0..fused.len()).max_by_key(|&i| fused[i].network.params().count())
}
