//! `lathe models`: the models that ship.

use super::Action;
use crate::input::Usage;
use crate::output::{self, Table, grouped};
use anyhow::Result;
use clap::Parser;
use lathe_core::{Setting, shorten};
use lathe_model::shipped::{self, MODELS};
use lathe_model::{REGISTRY, count};
use serde::Serialize;

/// List the models that ship, or print the file of one
#[derive(Parser)]
#[command(
    name = "models",
    after_help = "\
Those that ship with their weights can be named wherever a model folder is read; they are unpacked into the user's cache.

Examples:
  lathe models
  lathe generate storyteller           # the one that ships with its weights
  lathe models par_base > mine.toml    # a start for a model of your own"
)]
pub struct Models {
    /// Print this model's file
    name: Option<String>,
}

#[derive(Serialize)]
struct List {
    models: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    about: &'static str,
    backbone: &'static str,
    layers: String,
    params: Params,
    /// Of text that it has not seen, where it ships with its weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    bits_per_byte: Option<f64>,
}

#[derive(Serialize)]
struct Params {
    total: u64,
    decoder: u64,
}

#[derive(Serialize)]
struct File {
    name: &'static str,
    toml: &'static str,
}

impl Action for Models {
    fn run(self, json: bool) -> Result<()> {
        if let Some(name) = self.name {
            let Some(model) = shipped::find(MODELS, &name) else {
                let names: Vec<_> = MODELS.iter().map(|model| model.name).collect();
                let name = shorten(&name);
                return Err(Usage(format!("no model `{name}` ships; those that do: {}", names.join(", "))).into());
            };
            return match json {
                true => output::json(&File { name: model.name, toml: model.text }),
                false => output::text(model.text),
            };
        }
        let mut models = Vec::new();
        for shipped in MODELS {
            let model = shipped.spec()?.model(&REGISTRY)?;
            let counts = count(&model, &Setting::of(&model));
            models.push(Listed {
                name: shipped.name,
                about: shipped.about(),
                backbone: model.frame.backbone.key(),
                layers: model.layers(),
                params: Params { total: counts.total_params(), decoder: counts.decoder_params() },
                bits_per_byte: shipped::trained(shipped.name).map(|trained| trained.bits_per_byte()),
            });
        }
        if json {
            return output::json(&List { models });
        }
        let mut table = Table::new(&["model", "layers", "what it is", "parameters"], 3);
        for model in &models {
            let judged = model.bits_per_byte.map_or_else(String::new, |bits| format!(": {bits:.3} bits per byte"));
            let about = format!("{}{judged}", model.about);
            table.row([model.name.into(), model.layers.clone(), about, grouped(model.params.total)]);
        }
        output::text(&table.to_string())
    }
}
