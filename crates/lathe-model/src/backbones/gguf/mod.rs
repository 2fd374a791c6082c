//! How models stand in GGUF files, one file per backbone: what keys say of them, and what tensors are called.

pub(super) mod gpt2;
pub(super) mod llama;

use crate::build::layer_numbers;
use crate::embedding;
use crate::folder::ConfigReader;
use lathe_core::model::Value;
use lathe_core::{Error, Model, NormPlace, Result, Role, Setting, knob};
use lathe_gguf::Gguf;
use lathe_gguf::Value as Written;

/// What the keys of every architecture say: layers, widths, heads, and the longest context. The vocabulary is as large as the
/// embedding, which may have more rows than the tokenizer has tokens; an output of its own is a tensor that is there.
fn frame(architecture: &str, file: &Gguf, reader: &mut ConfigReader<'_>) -> Result<()> {
    let key = |name: &str| format!("{architecture}.{name}");
    let layers = key("block_count");
    reader.need(&[&layers])?;
    reader.layers(&layers, 1)?;
    copy(architecture, &[("feed_forward_length", "inner"), ("attention.head_count", "heads")], reader)?;
    shape(architecture, file, reader)
}

/// The same without layers.
fn shape(architecture: &str, file: &Gguf, reader: &mut ConfigReader<'_>) -> Result<()> {
    copy(architecture, &[("embedding_length", "d_model"), ("context_length", "max_len")], reader)?;
    let embedding = file.tensor("token_embd.weight");
    let Some([vocab, _]) = embedding.map(|info| &*info.shape) else {
        let found = embedding.map_or_else(|| "nothing".into(), |info| info.describe());
        return Err(Error::value("token_embd.weight", found, "a row for each token"));
    };
    reader.set_json("vocab", "token_embd.weight", &(*vocab).into())?;
    reader.set("tie_embeddings", Value::Flag(file.tensor("output.weight").is_none()));
    Ok(())
}

/// Sets keys of ours from those of an architecture, which have to be there.
fn copy(architecture: &str, keys: &[(&str, &str)], reader: &mut ConfigReader<'_>) -> Result<()> {
    for (theirs, ours) in keys {
        let theirs = format!("{architecture}.{theirs}");
        reader.need(&[&theirs])?;
        reader.copy_if_set(&[(&theirs, ours)])?;
    }
    Ok(())
}

/// The tensor of a parameter, by tables of whole names and of parts of layers.
fn tensor(param: &str, layers: &str, wholes: &[(&str, &str)], parts: &[(&str, &str)]) -> Option<String> {
    let (name, end) = param.rsplit_once('.')?;
    let known = |list: &[(&str, &str)], name: &str| {
        list.iter().find(|(ours, _)| *ours == name).map(|(_, theirs)| theirs.to_string())
    };
    match name.strip_prefix(layers) {
        Some(layer) => {
            let (number, part) = layer.split_once('.')?;
            Some(format!("blk.{number}.{}.{end}", known(parts, part)?))
        }
        None => Some(format!("{}.{end}", known(wholes, name)?)),
    }
}

/// What a layer of a model has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LayerSizes {
    attention: Option<Heads>,
    /// F
    inner: Option<u32>,
}

/// Heads of queries, heads of keys and values, and the width of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Heads {
    heads: u32,
    kv_heads: u32,
    d_head: u32,
}

/// The layers of a model, or why there is no file of it: blocks that are not in llama.cpp, another place of the norm,
/// another output than a plain softmax.
fn layer_sizes(model: &Model) -> Result<Vec<LayerSizes>, String> {
    let frame = &model.frame;
    if embedding::adaptive(frame) || embedding::projected(frame) {
        return Err("llama.cpp has neither an adaptive softmax nor a projected embedding".into());
    }
    if frame.norm != NormPlace::Pre {
        return Err("llama.cpp has this family with the norm before each block alone".into());
    }
    let mut layers: Vec<LayerSizes> = Vec::new();
    for ((block, frame, _), number) in model.placed(Setting::of(model)).zip(layer_numbers(model)) {
        if block.kind.role() == Role::Identity {
            continue;
        }
        let block = block.kind.resolve(block, &frame);
        let sizes = match (block.kind.in_references(), block.kind.role()) {
            (true, Role::MixesTokens) => knob(&block, "heads").map(|heads| LayerSizes {
                attention: Some(Heads {
                    heads,
                    kv_heads: knob(&block, "kv_heads").unwrap_or(heads),
                    d_head: knob(&block, "d_head").unwrap_or(frame.d_model / heads),
                }),
                inner: None,
            }),
            (true, Role::PerToken) => {
                knob(&block, "inner").map(|inner| LayerSizes { attention: None, inner: Some(inner) })
            }
            _ => None,
        };
        let sizes = sizes.ok_or_else(|| format!("llama.cpp has no block `{}` in it", block.kind.key()))?;
        layers.resize(layers.len().max(number + 1), LayerSizes::default());
        let layer = &mut layers[number];
        *layer = LayerSizes { attention: sizes.attention.or(layer.attention), inner: sizes.inner.or(layer.inner) };
    }
    match layers.is_empty() {
        true => Err("it has no block".into()),
        false => Ok(layers),
    }
}

/// The keys of every architecture that do not depend on its layers.
fn keys_of(model: &Model, layers: usize) -> Vec<(&'static str, Written)> {
    let frame = &model.frame;
    vec![
        ("block_count", Written::U32(layers as u32)),
        ("context_length", Written::U32(frame.max_len)),
        ("embedding_length", Written::U32(frame.d_model)),
        ("vocab_size", Written::U32(frame.vocab)),
    ]
}
