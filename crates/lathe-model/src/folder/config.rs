//! `config.json`: our own keys under `lathe`, and those of `transformers` for a GPT-2 or a Transformer-XL.
//!
//! `lathe` is an object with the keys of the model file; where it is present, it decides. Without it, `model_type` is
//! `gpt2` or `transfo-xl`, keys that are missing have the defaults of `transformers`, and values that change what is
//! computed in a way that does not exist here are errors. A GPT-2 has one dropout here: that of `resid_pdrop`.

use crate::REGISTRY;
use lathe_core::model::{KEYS, Key, KeyKind, Value, key};
use lathe_core::{Activation, Block, Error, MAX_BLOCKS, MAX_TEXT, Model, Norm, Result, Spec};
use serde_json::{Map, Value as Json, json};

/// The names of activations in a GPT-2's `activation_function`; the first of a kind is the one that is written.
const ACTIVATIONS: &[(&str, Activation)] = &[
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu", Activation::Gelu),
    ("relu", Activation::Relu),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
];

/// The model of a `config.json`.
pub(super) fn read(text: &[u8]) -> Result<Model> {
    if text.len() > MAX_TEXT {
        return Err(Error::TooLong { what: "config.json" });
    }
    let config: Json = serde_json::from_slice(text).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        Error::Syntax { line: error.line(), column: error.column(), message: format!("this is not JSON: {message}") }
    })?;
    let Json::Object(config) = config else {
        return Err(Error::value("config.json", format!("`{config}`"), "an object"));
    };
    let spec = match (config.get("lathe"), config.get("model_type").and_then(Json::as_str)) {
        (Some(own), _) => own_keys(own)?,
        (None, Some("gpt2")) => gpt2(&config)?,
        (None, Some("transfo-xl")) => transformer_xl(&config)?,
        _ => {
            let found = config.get("model_type").map_or_else(|| "nothing".into(), |found| format!("`{found}`"));
            return Err(Error::value("model_type", found, "gpt2 or transfo-xl, or a model under the key `lathe`"));
        }
    };
    spec.model(&REGISTRY)
}

fn own_keys(own: &Json) -> Result<Spec> {
    let Json::Object(own) = own else {
        return Err(Error::value("lathe", format!("`{own}`"), "an object with the keys of a model file"));
    };
    let mut spec = Spec::default();
    for (name, value) in own {
        let Some(key) = key(name) else {
            let known: Vec<_> = KEYS.iter().map(|key| key.name).collect();
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
        (_, value) => value.to_string(),
    };
    key.parse(&text).map_err(|error| match error {
        Error::Value { found, expected, .. } => Error::Value { place: place.into(), found, expected },
        other => other,
    })
}

/// Reads the keys of `transformers`.
struct Reader<'a> {
    config: &'a Map<String, Json>,
    spec: Spec,
}

impl Reader<'_> {
    fn set(&mut self, ours: &str, value: Value) {
        self.spec.set(key(ours).expect("a key of the model file"), value);
    }

    /// Sets keys from theirs: their name, ours, their default.
    fn copy(&mut self, keys: &[(&str, &str, &str)]) -> Result<()> {
        for &(theirs, ours, default) in keys {
            let key = key(ours).expect("a key of the model file");
            let value = match self.config.get(theirs) {
                Some(value) => parse(key, theirs, value)?,
                None => key.parse(default)?,
            };
            self.spec.set(key, value);
        }
        Ok(())
    }

    /// An error where a key has another value than the only one that exists here.
    fn only(&self, keys: &[(&str, Json)]) -> Result<()> {
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

    fn flag(&self, theirs: &str, default: bool) -> Result<bool> {
        let Some(value) = self.config.get(theirs) else { return Ok(default) };
        value.as_bool().ok_or_else(|| Error::value(theirs, format!("`{value}`"), "true or false"))
    }

    /// `n_layer` layers of an attention and a feed-forward block.
    fn layers(&mut self, default: u64) -> Result<()> {
        let most = MAX_BLOCKS as u64 / 2;
        let layers = match self.config.get("n_layer") {
            None => default,
            Some(value) => match value.as_u64() {
                Some(layers) if (1..=most).contains(&layers) => layers,
                _ => {
                    let expected = format!("a whole number from 1 to {most}");
                    return Err(Error::value("n_layer", format!("`{value}`"), expected));
                }
            },
        };
        self.set("layers", Value::Word(format!("(sf)x{layers}")));
        Ok(())
    }
}

fn gpt2(config: &Map<String, Json>) -> Result<Spec> {
    let mut reader = Reader { config, spec: Spec::default() };
    reader.set("backbone", Value::Word("gpt2".into()));
    reader.layers(12)?;
    reader.copy(&[
        ("vocab_size", "vocab", "50257"),
        ("n_positions", "max_len", "1024"),
        ("n_embd", "d_model", "768"),
        ("n_head", "heads", "12"),
        ("resid_pdrop", "dropout", "0.1"),
        ("attn_pdrop", "attn_dropout", "0.1"),
        ("tie_word_embeddings", "tie_embeddings", "true"),
    ])?;
    if config.get("n_inner").is_some_and(|inner| !inner.is_null()) {
        reader.copy(&[("n_inner", "inner", "")])?;
    }
    reader.only(&[
        ("layer_norm_epsilon", json!(1e-5)),
        ("scale_attn_weights", json!(true)),
        ("scale_attn_by_inverse_layer_idx", json!(false)),
        ("add_cross_attention", json!(false)),
    ])?;
    let default = json!("gelu_new");
    let found = config.get("activation_function").unwrap_or(&default);
    let Some((_, activation)) = ACTIVATIONS.iter().find(|(known, _)| Some(*known) == found.as_str()) else {
        let known: Vec<_> = ACTIVATIONS.iter().map(|(known, _)| *known).collect();
        return Err(Error::value("activation_function", format!("`{found}`"), known.join(", ")));
    };
    reader.set("activation", Value::Word(activation.name().into()));
    if let (Some(&Value::Int(d)), Some(&Value::Int(heads))) = (reader.spec.get("d_model"), reader.spec.get("heads"))
        && !d.is_multiple_of(heads)
    {
        return Err(Error::value("n_head", heads, format!("a divisor of n_embd, which is {d}")));
    }
    Ok(reader.spec)
}

fn transformer_xl(config: &Map<String, Json>) -> Result<Spec> {
    let mut reader = Reader { config, spec: Spec::default() };
    reader.set("backbone", Value::Word("transformer_xl".into()));
    reader.layers(18)?;
    // Files of old versions have `tie_weight`.
    let tied = if config.contains_key("tie_word_embeddings") { "tie_word_embeddings" } else { "tie_weight" };
    reader.copy(&[
        ("vocab_size", "vocab", "267735"),
        ("cutoffs", "cutoffs", "20000,40000,200000"),
        ("d_model", "d_model", "1024"),
        ("d_embed", "d_embed", "1024"),
        ("n_head", "heads", "16"),
        ("d_head", "d_head", "64"),
        ("d_inner", "inner", "4096"),
        ("div_val", "div_val", "4"),
        ("mem_len", "mem_len", "1600"),
        ("same_length", "same_length", "true"),
        ("dropout", "dropout", "0.1"),
        ("dropatt", "attn_dropout", "0"),
        (tied, "tie_embeddings", "true"),
    ])?;
    if config.contains_key("tgt_len") {
        reader.copy(&[("tgt_len", "tgt_len", "")])?;
    }
    if config.get("clamp_len").is_none_or(|clamp| clamp.as_f64().is_none_or(|clamp| clamp > 0.0)) {
        reader.copy(&[("clamp_len", "clamp_len", "1000")])?; // 0 and less: none
    }
    reader.only(&[("untie_r", json!(true)), ("attn_type", json!(0)), ("layer_norm_epsilon", json!(1e-5))])?;
    let norm = if reader.flag("pre_lnorm", false)? { Norm::Pre } else { Norm::Post };
    reader.set("norm", Value::Word(norm.name().into()));
    let (Some(&Value::Int(vocab)), Some(Value::Ints(cutoffs))) = (reader.spec.get("vocab"), reader.spec.get("cutoffs"))
    else {
        unreachable!("both were just set")
    };
    if cutoffs.iter().any(|&cutoff| cutoff >= vocab) {
        let expected = format!("numbers below vocab_size, which is {vocab}");
        return Err(Error::value("cutoffs", format!("{cutoffs:?}"), expected));
    }
    let tie_projs = tie_projs(&reader, cutoffs.len())?;
    reader.set("tie_projs", Value::Flag(tie_projs));
    Ok(reader.spec)
}

/// Whether output projections are shared with the embedding. Saved configurations have a list over the clusters, whose
/// first is never shared; `proj_share_all_but_first` makes that list where it is missing.
fn tie_projs(reader: &Reader<'_>, cutoffs: usize) -> Result<bool> {
    let share = reader.flag("proj_share_all_but_first", true)?;
    let Some(list) = reader.config.get("tie_projs") else { return Ok(share) };
    let [same, other] = [share, !share].map(|shared| projections(shared, cutoffs));
    match list {
        list if *list == same => Ok(share),
        list if *list == other => Ok(!share),
        list => Err(Error::value("tie_projs", format!("`{list}`"), format!("{same} or {other}"))),
    }
}

/// Which output projections are the embedding's, as `transformers` writes it.
fn projections(shared: bool, cutoffs: usize) -> Json {
    [vec![false], vec![shared; cutoffs]].concat().into()
}

/// The `config.json` of a model: with the keys of `transformers` where it has such a model.
pub(super) fn write(model: &Model) -> String {
    let spec = model.spec();
    let own = KEYS.iter().filter_map(|key| {
        let value = match spec.get(key.name)? {
            Value::Int(n) => json!(n),
            Value::Real(x) => json!(x),
            Value::Flag(flag) => json!(flag),
            Value::Word(word) => json!(word),
            Value::Ints(list) => json!(list),
        };
        Some((key.name.to_string(), value))
    });
    let mut config = theirs(model).unwrap_or_else(|| json!({"model_type": "lathe"}));
    config["lathe"] = own.collect::<Map<_, _>>().into();
    let mut text = serde_json::to_string_pretty(&config).expect("names and numbers can be written");
    text.push('\n');
    text
}

/// The keys of `transformers`, if the model exists there.
fn theirs(model: &Model) -> Option<Json> {
    let frame = &model.frame;
    // Equal layers of attention and feed-forward, however they are written.
    let blocks: Vec<Block> = model.blocks.iter().map(|block| block.kind.resolve(block, frame)).collect();
    let [attention, ffn, ..] = blocks[..] else { return None };
    if attention.kind.key() != "attention" || ffn.kind.key() != "ffn" {
        return None;
    }
    if blocks.chunks(2).any(|pair| *pair != [attention, ffn]) {
        return None;
    }
    let knob = |block: &Block, name: &str| block.knobs().find(|(_, knob, _)| knob.name == name)?.2;
    let heads = knob(&attention, "heads")?;
    let d_head = knob(&attention, "d_head").unwrap_or(frame.d_model / heads);
    let inner = knob(&ffn, "inner")?;
    let layers = blocks.len() / 2;
    match frame.backbone.key {
        "gpt2" => {
            let plain = frame.cutoffs.is_empty() && frame.div_val == 1 && frame.d_embed == frame.d_model;
            if !plain || frame.norm != Norm::Pre || heads * d_head != frame.d_model {
                return None;
            }
            let (activation, _) = ACTIVATIONS.iter().find(|(_, known)| *known == frame.activation)?;
            Some(json!({
                "architectures": ["GPT2LMHeadModel"],
                "model_type": "gpt2",
                "torch_dtype": "float32",
                "vocab_size": frame.vocab,
                "n_positions": frame.max_len,
                "n_embd": frame.d_model,
                "n_layer": layers,
                "n_head": heads,
                "n_inner": inner,
                "activation_function": activation,
                "resid_pdrop": frame.dropout,
                "embd_pdrop": frame.dropout,
                "attn_pdrop": frame.attn_dropout,
                "layer_norm_epsilon": 1e-5,
                "tie_word_embeddings": frame.tie_embeddings,
                "bos_token_id": null,
                "eos_token_id": null,
            }))
        }
        "transformer_xl" if frame.activation == Activation::Relu => Some(json!({
            "architectures": ["TransfoXLLMHeadModel"],
            "model_type": "transfo-xl",
            "torch_dtype": "float32",
            "vocab_size": frame.vocab,
            "cutoffs": frame.cutoffs,
            "d_model": frame.d_model,
            "d_embed": frame.d_embed,
            "n_layer": layers,
            "n_head": heads,
            "d_head": d_head,
            "d_inner": inner,
            "div_val": frame.div_val,
            "pre_lnorm": frame.norm == Norm::Pre,
            "tgt_len": frame.tgt_len,
            "mem_len": frame.mem_len,
            "clamp_len": frame.clamp_len.map_or(-1, i64::from),
            "same_length": frame.same_length,
            "proj_share_all_but_first": frame.tie_projs,
            "tie_projs": projections(frame.tie_projs, frame.cutoffs.len()),
            "tie_word_embeddings": frame.tie_embeddings,
            "adaptive": true,
            "untie_r": true,
            "dropout": frame.dropout,
            "dropatt": frame.attn_dropout,
            "layer_norm_epsilon": 1e-5,
            "eos_token_id": null,
        })),
        _ => None,
    }
}
