//! The settings of a run: one table, from which run files, flags and their help derive.
//!
//! A run file is TOML: keys of [`KEYS`], and the model as a name or as a table of its own:
//!
//! ```toml
//! data  = "my.txt"
//! steps = 2000
//! out   = "runs/first"
//! [model]
//! backbone = "gpt2"
//! layers   = "(sf)x4"
//! d_model  = 128
//! ```

use crate::distill::{self, Distill};
use crate::fused;
use crate::optimizer::Rule;
use crate::schedule::{Schedule, Shape};
use crate::tasks;
use lathe_core::fields::TomlDocument;
use lathe_core::model::{Key, KeyKind, Value};
use lathe_core::{Error, Registry, Result, Spec};
use lathe_ops::Precision;
use std::fmt::Write;

/// A type that a setting may have.
pub(crate) trait Setting: Sized {
    fn take(value: Value) -> Option<Self>;
    fn give(&self) -> Value;
}

macro_rules! setting_types {
    ($($type:ty, $variant:ident;)*) => {$(
        impl Setting for $type {
            fn take(value: Value) -> Option<Self> {
                match value {
                    Value::$variant(value) => Some(value),
                    _ => None,
                }
            }
            fn give(&self) -> Value {
                Value::$variant(self.clone())
            }
        }
    )*};
}
setting_types! { u32, Int; f64, Real; bool, Flag; String, Word; }

/// A table of keys, and the struct of their values, which may have further parts.
macro_rules! settings {
    (
        $(#[$of_keys:meta])* $keys:ident;
        $(#[$of_struct:meta])* $struct:ident { $($(#[$of_part:meta])* $part:ident: $part_type:ty,)* }
        $($name:ident: $type:ty = $default:expr, $kind:expr, $help:expr;)*
    ) => {
        $(#[$of_keys])*
        pub const $keys: &[Key] = &[$(Key { name: stringify!($name), kind: $kind, help: $help }),*];

        $(#[$of_struct])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $struct {
            $(#[doc = concat!("`", $help, "`")] pub $name: $type,)*
            $($(#[$of_part])* pub $part: $part_type,)*
        }

        impl Default for $struct {
            fn default() -> Self {
                Self { $($name: $default.into(),)* $($part: Default::default(),)* }
            }
        }

        impl $struct {
            /// Sets a key to a value that [`Key::read`] or [`Key::parse`] gave.
            pub fn set(&mut self, key: &Key, value: Value) {
                use $crate::settings::Setting;
                match key.name {
                    $(stringify!($name) => self.$name = Setting::take(value).expect("the key's own kind"),)*
                    name => unreachable!("{name} is no key of this table"),
                }
            }

            /// Every key with its value, in the order of the table.
            pub fn values(&self) -> Vec<(&'static str, Value)> {
                use $crate::settings::Setting;
                vec![$((stringify!($name), self.$name.give())),*]
            }
        }
    };
}
pub(crate) use settings;

const COUNT: KeyKind = KeyKind::Int(0, u32::MAX);
const WORD: KeyKind = KeyKind::Word;

settings! {
    /// The keys of a run file, without the model.
    KEYS;
    /// All settings of a run but the model.
    Settings {
        /// What it learns from a teacher, where it has one.
        distill: Option<Distill>,
    }
    data: String = "builtin", WORD, "text to learn: a file, a folder, either with .gz, or builtin[:MB[:SEED]] [builtin]";
    valid: String = "", WORD, "text to validate on [the last tenth of the data]";
    tokenizer: String = "", WORD, "bytes, bpe:N, word:N, a tokenizer.json, a vocab.json beside its merges.txt or a GGUF file [init's, else bytes]";
    task: String = "", WORD, "what to train for: causal_lm, masked_lm, masked_words, masked_nsp, masked_sop, classify, regress, choose, span, embed, or glue:NAME, superglue:NAME, squad [what the backbone is for]";
    columns: String = "", WORD, "with examples: their columns of texts and label, as sentence1,sentence2,label [the usual names]";
    init: String = "", WORD, "model folder or GGUF file to begin with the weights of [fresh weights]";
    fuse: String = "", WORD, "models to train at once with shared weights, stacks or model files with + between: \"(sf)x3 + (sf)x5\" [one model]";
    out: String = "", WORD, "folder of the run, which becomes the model's folder";
    steps: u32 = 1000u32, KeyKind::Int(1, 1 << 30), "optimiser steps [1000]";
    epochs: f64 = 0.0, KeyKind::Real(0.0, 1e6), "instead of steps: how often everything is seen [0; with examples 3]";
    batch: u32 = 16u32, KeyKind::Int(1, 1 << 20), "sequences of a step [16]";
    accumulate: u32 = 1u32, KeyKind::Int(1, 1 << 20), "parts that a batch is computed in, one after the other, to save memory [1]";
    seq: u32 = 0u32, KeyKind::Int(0, 1 << 24), "tokens of a sequence in training [with a memory tgt_len, else max_len]";
    seed: u32 = 0u32, COUNT, "seed of weights, order and dropout [0]";
    optimizer: String = "adamw", WORD, "adamw, lamb, jitlamb, nvlamb or sgd [adamw]";
    lr: f64 = 1e-3, KeyKind::Real(0.0, 1e3), "highest learning rate [0.001]";
    beta1: f64 = 0.9, KeyKind::Real(0.0, 1.0), "decay of the first moment; momentum of sgd [0.9]";
    beta2: f64 = 0.95, KeyKind::Real(0.0, 1.0), "decay of the second moment [0.95]";
    eps: f64 = 0.0, KeyKind::Real(0.0, 1.0), "what is added to the root of the second moment [1e-8; LAMB: 1e-6]";
    weight_decay: f64 = 0.1, KeyKind::Real(0.0, 1e3), "weight decay of matrices; vectors have none [0.1]";
    schedule: String = "cosine", WORD, "constant, linear, cosine or inverse_sqrt [cosine]";
    warmup: f64 = 0.05, KeyKind::Real(0.0, 1e9), "steps of linear warm-up, or a share of all below 1 [0.05]";
    floor: f64 = 0.1, KeyKind::Real(0.0, 1.0), "where linear and cosine end, as a share of lr [0.1]";
    clip: f64 = 1.0, KeyKind::Real(0.0, 1e9), "longest gradient; 0 for no limit [1]";
    balance: f64 = 0.01, KeyKind::Real(0.0, 1e3), "weight of the balance loss of experts [0.01]";
    precision: String = "f32", WORD, "precision of products: f32 or bf16 [f32]";
    quantize: String = "", WORD, "train for integer weights of blocks: int8, int6_g64, int4_g32, with _offset, ... [floats]";
    quantize_output: String = "int8", WORD, "with quantize: what embedding and output layer become, or none [int8]";
    quantize_activations: bool = false, KeyKind::Flag, "with quantize: round activations to 8 bits, too [false]";
    eval_every: u32 = 0u32, COUNT, "steps between evaluations [a tenth of all]";
    eval_tokens: u32 = 1u32 << 16, COUNT, "most tokens of an evaluation before the last, 0 for all [65536]";
    patience: u32 = 0u32, COUNT, "stop after so many evaluations without a better one, and give the best model [never]";
    checkpoint_every: u32 = 0u32, COUNT, "steps between checkpoints [a tenth of all, at most 1000]";
    keep: u32 = 2u32, KeyKind::Int(1, 1 << 20), "checkpoints to keep beside the best [2]";
    log_every: u32 = 10u32, KeyKind::Int(1, u32::MAX), "steps between records in metrics.jsonl [10]";
    sparsity: f64 = 0.0, KeyKind::Real(0.0, 1.0), "share of the blocks' weights that go, the smallest first, over three quarters of the steps [0]";
    sparsity_evenly: bool = false, KeyKind::Flag, "as large a share of each matrix, not the smallest of all [false]";
    keep_zeros: bool = false, KeyKind::Flag, "blocks' weights that are 0 at the start stay 0 [false]";
    tensorboard: bool = false, KeyKind::Flag, "write TensorBoard event files too [false]";
}

/// What a run file says of the model.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEntry {
    /// Nothing.
    None,
    /// A model file, a model folder or a shipped name.
    Name(String),
    /// The model itself.
    Inline(Spec),
}

/// Reads a run file.
pub fn read(text: &str, registry: &Registry) -> Result<(Settings, ModelEntry)> {
    read_over(Settings::default(), text, registry)
}

/// Reads a run file over settings. Steps without epochs stand for themselves.
pub fn read_over(mut settings: Settings, text: &str, registry: &Registry) -> Result<(Settings, ModelEntry)> {
    let document = TomlDocument::parse(text, "the run file")?;
    if document.fields().get("steps").is_some() {
        settings.epochs = 0.0;
    }
    let mut model = ModelEntry::None;
    for (name, field) in document.fields().iter() {
        if name == "model" {
            model = match field.is_table() {
                true => ModelEntry::Inline(Spec::from_fields(&field.table()?, registry)?),
                false => ModelEntry::Name(field.text()?.to_string()),
            };
            continue;
        }
        if name == "distill" {
            settings.distill = Some(distill::read(&field.table()?)?);
            continue;
        }
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let known: Vec<_> = KEYS.iter().map(|key| key.name).chain(["model", "distill"]).collect();
            return Err(field.unknown(name, &known));
        };
        settings.set(key, key.read(&field)?);
    }
    settings.check()?;
    Ok((settings, model))
}

/// The first setting in which a run file differs from a run with these settings and this model, as it stands there and
/// as it stands here: `seed = 0` and `seed = 5`. Where the run's folder is does not matter.
pub fn difference(
    there: &str,
    settings: &Settings,
    model: &Spec,
    registry: &Registry,
) -> Result<Option<(String, String)>> {
    let (of_file, entry) = read(there, registry)?;
    let values = of_file.values().into_iter().zip(settings.values());
    for ((name, found), (_, expected)) in values.filter(|((name, _), _)| *name != "out") {
        if found != expected {
            return Ok(Some((format!("{name} = {found}"), format!("{name} = {expected}"))));
        }
    }
    if let Some(difference) = distill::difference(of_file.distill.as_ref(), settings.distill.as_ref()) {
        return Ok(Some(difference));
    }
    let of_file = match entry {
        ModelEntry::Inline(spec) => spec,
        ModelEntry::Name(name) => return Ok(Some((format!("model = {name:?}"), "a table [model]".into()))),
        ModelEntry::None => Spec::default(),
    };
    let differs = registry.keys().find(|key| of_file.get(key.name) != model.get(key.name));
    let show = |key: &Key, value: Option<&Value>| match value {
        Some(value) => format!("{} = {value}", key.name),
        None => format!("no {}", key.name),
    };
    Ok(differs.map(|key| (show(key, of_file.get(key.name)), show(key, model.get(key.name)))))
}

impl Settings {
    /// The settings of runs for a task where nothing else is said. What is fine-tuned from a model that is there moves
    /// little, all of its examples a few times (Devlin et al., 2018, section A.3).
    pub fn for_task(task: &str, init: &str) -> Self {
        let plain = Self::default();
        if task.is_empty() || !tasks::named(task).is_ok_and(|task| task.of_examples().is_some()) {
            return plain;
        }
        Self {
            epochs: 3.0,
            batch: 32,
            lr: if init.is_empty() { plain.lr } else { 5e-5 },
            beta2: 0.999,
            weight_decay: 0.01,
            schedule: "linear".into(),
            warmup: 0.1,
            floor: 0.0,
            ..plain
        }
    }

    /// Checks what the kinds of keys do not.
    pub fn check(&self) -> Result<()> {
        self.rule()?;
        self.schedule()?;
        self.precision()?;
        self.distill.as_ref().map_or(Ok(()), Distill::check)?;
        if !self.batch.is_multiple_of(self.accumulate) {
            let expected = format!("a divisor of batch, which is {}", self.batch);
            return Err(Error::value("accumulate", self.accumulate, expected));
        }
        self.check_fuse()?;
        if self.sparsity > 0.0 && self.patience > 0 {
            let expected = "0 with a sparsity, for the best model on the way may not have it yet";
            return Err(Error::value("patience", self.patience, expected));
        }
        Ok(())
    }

    /// Checks what goes with several models in one training.
    fn check_fuse(&self) -> Result<()> {
        let models = fused::stacks(&self.fuse).len() as u32;
        if models == 0 {
            return Ok(());
        }
        let parts = self.accumulate.saturating_mul(models);
        if !self.batch.is_multiple_of(parts) {
            let expected =
                format!("a multiple of {parts}: {models} fused models share it in {} parts each", self.accumulate);
            return Err(Error::value("batch", self.batch, expected));
        }
        let beside = [
            ("a teacher", self.distill.is_some()),
            ("quantize", !self.quantize.is_empty()),
            ("sparsity", self.sparsity > 0.0 || self.keep_zeros),
            ("patience", self.patience > 0),
        ];
        match beside.into_iter().find(|(_, given)| *given) {
            Some((name, _)) => {
                Err(Error::value("fuse", format!("{name} beside it"), "no teacher, quantize, sparsity or patience"))
            }
            None => Ok(()),
        }
    }

    /// The optimiser's rule.
    pub fn rule(&self) -> Result<Rule> {
        Rule::named(&self.optimizer)
            .ok_or_else(|| Error::value("optimizer", format!("`{}`", self.optimizer), Rule::names()))
    }

    /// The learning rate over the steps.
    pub fn schedule(&self) -> Result<Schedule> {
        self.schedule_over(self.steps)
    }

    /// The learning rate over so many steps.
    pub fn schedule_over(&self, steps: u32) -> Result<Schedule> {
        let shape = Shape::named(&self.schedule)
            .ok_or_else(|| Error::value("schedule", format!("`{}`", self.schedule), Shape::names()))?;
        // A warm-up below 1 is a share of all steps.
        let steps = f64::from(steps);
        let warmup = if self.warmup < 1.0 { self.warmup * steps } else { self.warmup };
        Ok(Schedule { shape, lr: self.lr, warmup: warmup.round(), steps, floor: self.floor })
    }

    /// The precision of products.
    pub fn precision(&self) -> Result<Precision> {
        self.precision.parse().map_err(|_| Error::value("precision", format!("`{}`", self.precision), "f32 or bf16"))
    }

    /// Steps between evaluations.
    pub fn eval_every(&self) -> u32 {
        if self.eval_every == 0 { (self.steps / 10).max(1) } else { self.eval_every }
    }

    /// Steps between checkpoints.
    pub fn checkpoint_every(&self) -> u32 {
        if self.checkpoint_every == 0 { (self.steps / 10).clamp(1, 1000) } else { self.checkpoint_every }
    }

    /// The run file of these settings and a model, every key written out.
    pub fn to_toml(&self, model: &Spec) -> String {
        let mut text = String::from("# The settings of this run, every key written out.\n");
        for (name, value) in self.values() {
            writeln!(text, "{name} = {value}").expect("a string takes everything");
        }
        if let Some(distill) = &self.distill {
            text += &distill.to_toml();
        }
        text + "\n[model]\n" + &model.to_toml()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_model::REGISTRY;

    #[test]
    fn whatever_a_text_is_made_of_it_is_written_and_read_again() {
        let model = Spec::from_toml("backbone = 'gpt2'\nlayers = 'sf'\nd_model = 8\nvocab = 9", &REGISTRY).unwrap();
        let data = "a \"b\" \\c\u{feff}\u{200b}\u{7}\u{7f}\u{85}\n\t\r é 🙂".to_string();
        let settings = Settings { data, ..Settings::default() };
        let (again, _) = read(&settings.to_toml(&model), &REGISTRY).unwrap();
        assert_eq!(again.data, settings.data);
    }

    #[test]
    fn the_first_setting_that_differs_is_named() {
        let model = Spec::from_toml("backbone = 'gpt2'\nlayers = 'sf'\nd_model = 8\nvocab = 9", &REGISTRY).unwrap();
        let settings = Settings { out: "here".into(), lr: 0.5, ..Settings::default() };
        let differs = |text: &str| difference(text, &settings, &model, &REGISTRY).unwrap();
        let same = Settings { out: "there".into(), ..settings.clone() }.to_toml(&model);
        assert_eq!(differs(&same), None);
        // Neither the order of keys nor the writing of numbers matters, nor keys that have their defaults.
        let (head, tail) = same.split_once("\n[model]\n").unwrap();
        let reversed = |text: &str| text.lines().rev().collect::<Vec<_>>().join("\n");
        let written = format!("{}\n[model]\n{}", reversed(head), reversed(tail)).replace("lr = 0.5", "lr = 5e-1");
        assert_eq!(differs(&written.replace("tensorboard = false\n", "")), None);
        let two = |a: &str, b: &str| Some((a.to_string(), b.to_string()));
        assert_eq!(differs(&same.replace("seed = 0", "seed = 3")), two("seed = 3", "seed = 0"));
        assert_eq!(differs(&same.replace("d_model = 8", "d_model = 16")), two("d_model = 16", "d_model = 8"));
        assert_eq!(differs(&(same.clone() + "heads = 2\n")), two("heads = 2", "no heads"));
        assert!(difference("no = 3", &settings, &model, &REGISTRY).is_err());
    }
}
