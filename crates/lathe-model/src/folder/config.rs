//! `config.json`: our own keys under `lathe`, and those of `transformers` for the backbones that exist there.
//!
//! `lathe` is an object with the keys of the model file; where it is present, it decides. Without it, `model_type` names a
//! backbone's family, whose file reads the rest: keys that are missing have the defaults of `transformers`, and values that
//! change what is computed in a way that does not exist here are errors.

use crate::{build, design};
use lathe_core::model::{Key, KeyKind, Value};
use lathe_core::{Activation, Backbone, Block, Error, MAX_BLOCKS, MAX_TEXT, Model, Registry, Result, Role, Spec, knob};
use lathe_ops::storage::Storage;
use serde_json::Map;

pub use serde_json::{Value as Json, json};

/// The model of a `config.json`. In a folder of sentence-transformers it is one without an output layer, whatever its class was.
pub(super) fn read(text: &[u8], of_sentences: bool, registry: &Registry) -> Result<Model> {
    if text.len() > MAX_TEXT {
        return Err(Error::TooLong { what: "config.json" });
    }
    let config: Json = serde_json::from_slice(text).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        Error::Syntax { line: error.line(), column: error.column(), message: format!("this is not JSON: {message}") }
    })?;
    let Json::Object(mut config) = config else {
        return Err(Error::value("config.json", format!("`{config}`"), "an object"));
    };
    if let Some(own) = config.get("lathe") {
        return own_keys(own, registry)?.model(registry);
    }
    if of_sentences {
        config.remove("architectures");
    }
    let kind = config.get("model_type").and_then(Json::as_str);
    let types = |backbone: &&'static dyn Backbone| build::of_backbone(*backbone).model_types();
    let found = registry.backbones.iter().find(|backbone| kind.is_some_and(|kind| types(backbone).contains(&kind)));
    let Some(&backbone) = found else {
        let found = config.get("model_type").map_or_else(|| "nothing".into(), |found| format!("`{found}`"));
        let known: Vec<&str> = registry.backbones.iter().flat_map(types).copied().collect();
        let expected = format!("{}, or a model under the key `lathe`", known.join(", "));
        return Err(Error::value("model_type", found, expected));
    };
    let mut reader = ConfigReader::new(&config, registry);
    reader.set("backbone", Value::Word(backbone.key().into()));
    build::of_backbone(backbone).read_config(&mut reader)?;
    reader.model()
}

fn own_keys(own: &Json, registry: &Registry) -> Result<Spec> {
    let Json::Object(own) = own else {
        return Err(Error::value("lathe", format!("`{own}`"), "an object with the keys of a model file"));
    };
    let mut spec = Spec::default();
    for (name, value) in own {
        let Some(key) = registry.key(name) else {
            let known: Vec<_> = registry.keys().map(|key| key.name).collect();
            return Err(Error::unknown_key("lathe", name, &known));
        };
        spec.set(key, parse(key, &format!("lathe.{name}"), value)?);
    }
    Ok(spec)
}

/// The value of a key of ours, which stands under another name.
fn parse(key: &Key, place: &str, value: &Json) -> Result<Value> {
    let wrong = |expected: &str| Err(Error::value(place, format!("`{value}`"), expected));
    let text = match (key.kind, value) {
        (KeyKind::Word, Json::String(word)) => word.clone(),
        (KeyKind::Word, _) => return wrong("a string"),
        (KeyKind::Ints(..), value) if !value.is_array() => return wrong("a list of whole numbers"),
        (KeyKind::Words, value) => {
            let words =
                value.as_array().and_then(|list| list.iter().map(|word| Some(word.as_str()?.to_string())).collect());
            return words.map_or_else(|| wrong("a list of strings"), |words| Ok(Value::Words(words)));
        }
        (_, value) => value.to_string(),
    };
    key.parse(&text).map_err(|error| match error {
        Error::Value { found, expected, .. } => Error::Value { place: place.into(), found, expected },
        other => other,
    })
}

/// Reads the keys of `transformers` into those of a model file.
pub struct ConfigReader<'a> {
    config: &'a Map<String, Json>,
    spec: Spec,
    registry: &'a Registry,
}

impl<'a> ConfigReader<'a> {
    /// A reader of these keys.
    pub(super) fn new(config: &'a Map<String, Json>, registry: &'a Registry) -> Self {
        Self { config, spec: Spec::default(), registry }
    }

    /// The model of what was set.
    pub(super) fn model(self) -> Result<Model> {
        self.spec.model(self.registry)
    }

    /// An error where a key of theirs is not there.
    pub fn need(&self, keys: &[&str]) -> Result<()> {
        match keys.iter().find(|key| !self.has(key)) {
            Some(key) => Err(Error::value(*key, "nothing", "a value")),
            None => Ok(()),
        }
    }

    fn key(&self, ours: &str) -> &'static Key {
        self.registry.key(ours).expect("a key of the model file")
    }

    /// Whether a key of theirs is there.
    pub fn has(&self, theirs: &str) -> bool {
        self.config.contains_key(theirs)
    }

    /// The value of a key of theirs.
    pub fn value(&self, theirs: &str) -> Option<&Json> {
        self.config.get(theirs)
    }

    /// The text of a key of theirs.
    pub fn text(&self, theirs: &str) -> Option<&str> {
        self.value(theirs)?.as_str()
    }

    /// The value of a key of ours that was set.
    pub fn get(&self, ours: &str) -> Option<&Value> {
        self.spec.get(ours)
    }

    /// Sets a key of ours.
    pub fn set(&mut self, ours: &str, value: Value) {
        self.spec.set(self.key(ours), value);
    }

    /// Sets a key of ours to a value of theirs, which errors call by its place.
    pub fn set_json(&mut self, ours: &str, place: &str, value: &Json) -> Result<()> {
        let key = self.key(ours);
        let value = parse(key, place, value)?;
        self.spec.set(key, value);
        Ok(())
    }

    /// Sets keys from theirs: their name, ours, their default.
    pub fn copy(&mut self, keys: &[(&str, &str, &str)]) -> Result<()> {
        for &(theirs, ours, default) in keys {
            match self.config.get(theirs) {
                Some(value) => self.set_json(ours, theirs, value)?,
                None => self.set(ours, self.key(ours).parse(default)?),
            }
        }
        Ok(())
    }

    /// Sets keys from theirs where those are there and not null: their name, ours.
    pub fn copy_if_set(&mut self, keys: &[(&str, &str)]) -> Result<()> {
        for &(theirs, ours) in keys {
            if let Some(value) = self.config.get(theirs).filter(|value| !value.is_null()) {
                self.set_json(ours, theirs, value)?;
            }
        }
        Ok(())
    }

    /// An error where a key has another value than the only one that exists here.
    pub fn only(&self, keys: &[(&str, Json)]) -> Result<()> {
        for (theirs, accepted) in keys {
            match self.config.get(*theirs) {
                Some(found) if found != accepted => {
                    return Err(Error::value(*theirs, format!("`{found}`"), accepted.to_string()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A flag of theirs.
    pub fn flag(&self, theirs: &str, default: bool) -> Result<bool> {
        let Some(value) = self.config.get(theirs) else { return Ok(default) };
        value.as_bool().ok_or_else(|| Error::value(theirs, format!("`{value}`"), "true or false"))
    }

    /// Sets the activation from their name for it.
    pub fn activation(&mut self, theirs: &str, default: &str, names: &[(&str, Activation)]) -> Result<()> {
        let default = json!(default);
        let found = self.config.get(theirs).unwrap_or(&default);
        let Some((_, activation)) = names.iter().find(|(known, _)| Some(*known) == found.as_str()) else {
            let known: Vec<_> = names.iter().map(|(known, _)| *known).collect();
            return Err(Error::value(theirs, format!("`{found}`"), known.join(", ")));
        };
        self.set("activation", Value::Word(activation.name().into()));
        Ok(())
    }

    /// As many layers of an attention and a feed-forward block as a key of theirs says.
    pub fn layers(&mut self, theirs: &str, default: u64) -> Result<()> {
        let most = MAX_BLOCKS as u64 / 2;
        let layers = match self.config.get(theirs) {
            None => default,
            Some(value) => match value.as_u64() {
                Some(layers) if (1..=most).contains(&layers) => layers,
                _ => {
                    let expected = format!("a whole number from 1 to {most}");
                    return Err(Error::value(theirs, format!("`{value}`"), expected));
                }
            },
        };
        self.set("layers", Value::Word(format!("({})x{layers}", design::layer())));
        Ok(())
    }
}

/// Equal layers of two blocks that reference implementations have.
pub struct Uniform {
    /// How many layers.
    pub count: usize,
    /// Heads of queries.
    pub heads: u32,
    /// Heads of keys and values.
    pub kv_heads: u32,
    /// Width of a head.
    pub d_head: u32,
    /// F
    pub inner: u32,
}

/// The one layer that a model repeats, if it is of blocks that reference implementations have, however it is written.
pub fn uniform(model: &Model) -> Option<Uniform> {
    let frame = &model.frame;
    let blocks: Vec<Block> = model.blocks.iter().map(|block| block.kind.resolve(block, frame)).collect();
    let [mixing, per_token, ..] = blocks[..] else { return None };
    if [mixing, per_token].map(|block| block.kind.role()) != [Role::MixesTokens, Role::PerToken] {
        return None;
    }
    if [mixing, per_token].iter().any(|block| !block.kind.in_references()) {
        return None;
    }
    if blocks.chunks(2).any(|pair| *pair != [mixing, per_token]) {
        return None;
    }
    let heads = knob(&mixing, "heads")?;
    Some(Uniform {
        count: blocks.len() / 2,
        heads,
        kv_heads: knob(&mixing, "kv_heads").unwrap_or(heads),
        d_head: knob(&mixing, "d_head").unwrap_or(frame.d_model / heads),
        inner: knob(&per_token, "inner")?,
    })
}

/// The value of a key of ours.
pub fn json_of(value: &Value) -> Json {
    match value {
        Value::Int(n) => json!(n),
        Value::Real(x) => json!(x),
        Value::Flag(flag) => json!(flag),
        Value::Word(word) => json!(word),
        Value::Ints(list) => json!(list),
        Value::Words(list) => json!(list),
    }
}

/// The `config.json` of a model: with the keys of `transformers` where it has such a model.
/// `quantised`: its weights are integers, which nothing else reads.
pub(super) fn write(model: &Model, storage: &dyn Storage, quantised: bool) -> String {
    let spec = model.spec();
    let own = spec.iter().map(|(name, value)| (name.to_string(), json_of(value)));
    let mut config = theirs(model, storage).unwrap_or_else(|| json!({"model_type": "lathe"}));
    if quantised {
        // transformers refuses methods that it does not know, rather than to take codes for weights.
        config["quantization_config"] = json!({"quant_method": "lathe"});
    }
    config["lathe"] = own.collect::<Map<_, _>>().into();
    text_of(&config)
}

/// The `config.json` of a model with nothing but the keys of `transformers`, or why it has no such model.
pub(super) fn write_theirs(model: &Model, storage: &dyn Storage) -> Result<String, String> {
    if let Some(config) = theirs(model, storage) {
        return Ok(text_of(&config));
    }
    let backbone = model.frame.backbone;
    let foreign = model.blocks.iter().find(|block| !block.kind.in_references() && block.kind.role() != Role::Identity);
    Err(match (build::of_backbone(backbone).model_types(), foreign) {
        ([], _) => format!("transformers has no models of backbone {}", backbone.key()),
        (_, Some(block)) => format!("transformers has no block `{}` in it", block.kind.key()),
        _ if uniform(model).is_none() => {
            "transformers has it with equal layers of an attention and a feed-forward alone, and these differ".into()
        }
        _ => "transformers has this family with other settings alone: its norm, activation, width of heads, biases or \
              embedding are different"
            .into(),
    })
}

fn text_of(config: &Json) -> String {
    let mut text = serde_json::to_string_pretty(config).expect("names and numbers can be written");
    text.push('\n');
    text
}

/// The keys of `transformers`, where it has such a model.
fn theirs(model: &Model, storage: &dyn Storage) -> Option<Json> {
    let mut theirs = build::of_backbone(model.frame.backbone).write_config(model)?;
    theirs["torch_dtype"] = json!(torch_name(storage));
    Some(theirs)
}

/// The name of a storage in `torch_dtype`.
fn torch_name(storage: &dyn Storage) -> &'static str {
    match storage.dtype() {
        "BF16" => "bfloat16",
        "F16" => "float16",
        _ => "float32",
    }
}
