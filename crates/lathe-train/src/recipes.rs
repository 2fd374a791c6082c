//! The papers' recipes as run files, which lack only the text that `--data` and `--valid` give; and that of the model which
//! ships with its weights, on the built-in language.

/// A run file that ships.
#[derive(Debug, Clone, Copy)]
pub struct Recipe {
    /// Its name.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
}

macro_rules! recipes {
    ($($name:literal),* $(,)?) => {
        &[$(Recipe { name: $name, text: include_str!(concat!("../recipes/", $name, ".toml")) }),*]
    };
}

/// All recipes.
pub const RECIPES: &[Recipe] = recipes![
    "planer_wt103",
    "planer_enwik8",
    "par_base",
    "par_large",
    "par_24b",
    "lts_transformer_xl_wt103",
    "lts_transformer_xl_lm1b",
    "lts_gpt2_wt103",
    "lts_gpt2_lm1b",
    "lts_gpt2_pile",
    "bert_phase1",
    "bert_phase2",
    "par_bert_phase1",
    "par_bert_phase2",
    "storyteller",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{self, ModelEntry};
    use lathe_model::{REGISTRY, shipped};

    #[test]
    fn every_recipe_is_a_run_of_a_model_that_exists() {
        for recipe in RECIPES {
            let (settings, model) =
                settings::read(recipe.text, &REGISTRY).unwrap_or_else(|e| panic!("{}: {e}", recipe.name));
            let trained = shipped::trained(recipe.name);
            assert_eq!(settings.data.is_empty(), trained.is_none(), "{}", recipe.name);
            if let Some(trained) = trained {
                assert_eq!(settings.valid, trained.judged_on(), "{}", recipe.name);
            }
            let spec = match model {
                ModelEntry::Inline(spec) => spec,
                ModelEntry::Name(name) => {
                    shipped::find(shipped::MODELS, &name).expect("a shipped model").spec().expect("a good one")
                }
                ModelEntry::None => panic!("{} has no model", recipe.name),
            };
            let vocab = spec.model(&REGISTRY).expect("a good model").frame.vocab;
            if settings.task == "masked_nsp" {
                assert_eq!((settings.tokenizer.as_str(), vocab), ("", 30522), "{}: BERT's, a file", recipe.name);
                continue;
            }
            let tokenizer = settings.tokenizer.rsplit(':').next().and_then(|n| n.parse().ok()).unwrap_or(256);
            assert_eq!(vocab, tokenizer, "{}", recipe.name);
        }
    }
}
