//! The model and space files that ship inside the binary, by name, and the models that ship with their weights.

mod trained;

pub use trained::{STORYTELLER, TRAINED, Trained, trained};

use crate::REGISTRY;
use lathe_core::{Result, Space, Spec};

/// A file that ships.
#[derive(Debug, Clone, Copy)]
pub struct Shipped {
    /// Its name, which is the file's.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! ship {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(Shipped { name: $name, text: include_str!(concat!("../shipped/", $folder, "/", $name, ".toml")) }),*]
    };
}

/// Models of the papers, and small ones to begin with.
pub const MODELS: &[Shipped] = ship!("models":
    "transformer_xl_base", "sandwich_base", "par_base",
    "transformer_xl_large", "sandwich_large", "par_large",
    "transformer_xl_24b", "sandwich_24b", "sandwich_24b_text8", "par_24b",
    "gpt2_small", "lts_gpt2", "opt_350m", "bert_base", "par_bert", "roberta_base", "distilbert_base",
    "albert_base", "albert_large", "albert_xlarge", "albert_xxlarge", "mpnet_base", "mobilebert_base", "mobilebert_tiny",
    "smollm2_135m", "llama_15m",
    "small_transformer_xl", "small_gpt2", "deep_transformer_xl", "storyteller",
);

/// Search spaces of the papers, and ours.
pub const SPACES: &[Shipped] = ship!("spaces":
    "par", "par_pre", "planer_wt103", "planer_enwik8", "planer_wt103_iso",
    "lts_transformer_xl", "lts_gpt2", "lts_opt", "cpu", "proxies_small", "llama_15m", "bert_small",
);

/// What other models are measured beside.
pub const REFERENCE: Shipped = Shipped { name: "reference", text: include_str!("../shipped/reference.toml") };

impl Shipped {
    /// The first line's comment: what it is.
    pub fn about(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
    }

    /// Reads it as a model file.
    pub fn spec(&self) -> Result<Spec> {
        Spec::from_toml(self.text, &REGISTRY)
    }

    /// Reads it as a space file.
    pub fn space(&self) -> Result<Space> {
        Space::from_toml(self.text, &REGISTRY)
    }
}

/// The file of that name; `-` is as good as `_`, and case does not matter.
pub fn find(list: &'static [Shipped], name: &str) -> Option<&'static Shipped> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    list.iter().find(|shipped| shipped.name == name)
}
