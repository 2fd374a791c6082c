//! The models that ship with their weights: stored as bf16 to be small, given out as f32, which they were trained in.

use super::{MODELS, find};
use crate::folder::{self, FolderError};
use crate::{Network, REGISTRY};
use fnv::FnvHasher;
use lathe_ops::storage::{Bf16, F32};
use safetensors::SafeTensors;
use std::hash::Hasher;
use std::path::Path;

/// A model that ships with its weights.
#[derive(Debug, Clone, Copy)]
pub struct Trained {
    /// Its name, which is also that of its file among [`MODELS`].
    pub name: &'static str,
    /// A file of tensors, all of them bf16, with notes on how good they are.
    weights: &'static [u8],
}

/// Every model that ships with its weights. Each is made by the recipe of its name; `bench/demo/run.py` puts it here.
pub const TRAINED: &[Trained] = &[Trained {
    name: STORYTELLER, // the built-in language in bytes
    weights: include_bytes!("../../shipped/trained/storyteller.safetensors"),
}];

/// The one to begin with.
pub const STORYTELLER: &str = "storyteller";

/// The trained model of a name; `-` is as good as `_`, and case does not matter.
pub fn trained(name: &str) -> Option<&'static Trained> {
    let model = find(MODELS, name)?;
    TRAINED.iter().find(|trained| trained.name == model.name)
}

impl Trained {
    /// The model with its weights.
    pub fn network(&self) -> Network {
        let spec = find(MODELS, self.name).expect("its model ships").spec().expect("a good file");
        let model = spec.model(&REGISTRY).expect("a good model");
        let mut network = Network::unfilled(model).expect("a model that can be built");
        let tensors = SafeTensors::deserialize(self.weights).expect("a good file of tensors");
        for param in network.params_mut() {
            let tensor = tensors.tensor(&param.name).expect("every parameter is there");
            assert_eq!(tensor.shape(), param.shape, "{}", param.name);
            param.fill(&Bf16, tensor.data().to_vec());
        }
        network.set_storage(&F32);
        network
    }

    /// The text that it is judged by, of which it has seen nothing.
    pub fn judged_on(&self) -> String {
        self.note("judged_on")
    }

    /// Bits per byte of that text.
    pub fn bits_per_byte(&self) -> f64 {
        self.note("bits_per_byte").parse().expect("a number")
    }

    fn note(&self, key: &str) -> String {
        let (_, header) = SafeTensors::read_metadata(self.weights).expect("a good file of tensors");
        header.metadata().as_ref().and_then(|notes| notes.get(key)).expect("a note").clone()
    }

    /// What tells these weights from those of other versions: a hash of them.
    pub fn version(&self) -> String {
        let mut hasher = FnvHasher::default();
        hasher.write(self.weights);
        format!("{:016x}", hasher.finish())
    }

    /// Makes a folder the model's. One that is the model's already is left alone; where anything of it is missing or
    /// damaged, it is written again, each file whole or not at all.
    pub fn unpack(&self, folder: &Path) -> Result<(), FolderError> {
        let network = self.network();
        match folder::load(folder, &REGISTRY) {
            Ok(found) if same(&found, &network) => Ok(()),
            _ => folder::save(&network, folder),
        }
    }
}

/// Whether two networks are one, to the last bit.
fn same(a: &Network, b: &Network) -> bool {
    let bits = |network: &Network| -> Vec<u32> {
        network.params().iter().flat_map(|param| param.read().iter().map(|x| x.to_bits()).collect::<Vec<_>>()).collect()
    };
    a.model == b.model && bits(a) == bits(b)
}
