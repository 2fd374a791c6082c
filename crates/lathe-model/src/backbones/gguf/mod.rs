//! How models stand in GGUF files, one file per backbone: what keys say of them, and what tensors are called.

pub(super) mod gpt2;
pub(super) mod llama;

use crate::folder::ConfigReader;
use lathe_core::model::Value;
use lathe_core::{Error, Result};
use lathe_gguf::Gguf;

/// What the keys of every architecture say: layers, widths, heads, and the longest context. The vocabulary is as large as the
/// embedding, which may have more rows than the tokenizer has tokens; an output of its own is a tensor that is there.
fn frame(architecture: &str, file: &Gguf, reader: &mut ConfigReader<'_>) -> Result<()> {
    let key = |name: &str| format!("{architecture}.{name}");
    let layers = key("block_count");
    let keys = [
        ("embedding_length", "d_model"),
        ("context_length", "max_len"),
        ("feed_forward_length", "inner"),
        ("attention.head_count", "heads"),
    ];
    reader.need(&[&layers])?;
    reader.layers(&layers, 1)?;
    for (theirs, ours) in keys {
        reader.need(&[&key(theirs)])?;
        reader.copy_if_set(&[(&key(theirs), ours)])?;
    }
    let embedding = file.tensor("token_embd.weight");
    let Some([vocab, _]) = embedding.map(|info| &*info.shape) else {
        let found = embedding.map_or_else(|| "nothing".into(), |info| info.describe());
        return Err(Error::value("token_embd.weight", found, "a row for each token"));
    };
    reader.set_json("vocab", "token_embd.weight", &(*vocab).into())?;
    reader.set("tie_embeddings", Value::Flag(file.tensor("output.weight").is_none()));
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
