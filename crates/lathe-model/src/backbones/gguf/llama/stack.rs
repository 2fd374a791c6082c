//! `deci`, whose layers differ: keys have heads, heads of keys and values, and inner widths for each layer, 0 where it has no
//! attention or no feed-forward.

use super::{STACK, width};
use crate::folder::{ConfigReader, Json};
use lathe_core::model::Value;
use lathe_core::{Error, MAX_BLOCKS, Result};
use lathe_gguf::Gguf;

/// Reads the frame and the stack of a file.
pub(super) fn read(file: &Gguf, reader: &mut ConfigReader<'_>) -> Result<()> {
    let key = |name: &str| format!("{STACK}.{name}");
    let count = key("block_count");
    reader.need(&[&count, &key("attention.key_length")])?;
    super::super::shape(STACK, file, reader)?;
    let most = MAX_BLOCKS as u64 / 2;
    let layers = match reader.value(&count).and_then(Json::as_u64) {
        Some(layers) if (1..=most).contains(&layers) => layers as usize,
        _ => return Err(Error::value(count, "no such number", format!("a whole number from 1 to {most}"))),
    };
    let [heads, kv_heads, inner] = ["attention.head_count", "attention.head_count_kv", "feed_forward_length"]
        .map(|name| numbers(&key(name), layers, reader));
    let (heads, kv_heads, inner) = (heads?, kv_heads?, inner?);
    let width = width(STACK, file).unwrap_or_default();
    let mut stack = String::new();
    for layer in 0..layers {
        let (heads, kv_heads, inner) = (heads[layer], kv_heads[layer], inner[layer]);
        let wrong = |name: &str, found: &str| {
            let expected = "layers with attention have heads of keys and values, and a feed-forward";
            Err(Error::value(format!("{}, layer {layer}", key(name)), found, expected))
        };
        match (heads, kv_heads, inner) {
            (0, _, 0) => continue,
            (1.., 0, _) => return wrong("attention.head_count_kv", "0, which is no attention but a matrix"),
            // llama.cpp goes on with what entered the layer: its attention counts for nothing.
            (1.., _, 0) => return wrong("feed_forward_length", "0"),
            (1.., ..) => stack += &format!("s{heads}d{width}g{kv_heads} "),
            _ => {}
        }
        stack += &format!("f{inner} ");
    }
    let first = heads.iter().position(|&heads| heads > 0);
    let of_first = |list: &[u64]| Json::from(first.map_or(1, |first| list[first]));
    reader.set_json("heads", &key("attention.head_count"), &of_first(&heads))?;
    reader.set_json("kv_heads", &key("attention.head_count_kv"), &of_first(&kv_heads))?;
    let widest = inner.iter().copied().max().filter(|&widest| widest > 0).unwrap_or(1);
    reader.set_json("inner", &key("feed_forward_length"), &widest.into())?;
    reader.set("layers", Value::Word(stack));
    Ok(())
}

/// A number for each layer, or one for all of them.
fn numbers(key: &str, layers: usize, reader: &ConfigReader<'_>) -> Result<Vec<u64>> {
    let found = match reader.value(key) {
        Some(Json::Array(list)) => list.iter().map(Json::as_u64).collect::<Option<Vec<_>>>(),
        Some(number) => number.as_u64().map(|number| vec![number; layers]),
        None => return Err(Error::value(key, "nothing", "a value")),
    };
    match found {
        Some(numbers) if numbers.len() == layers => Ok(numbers),
        _ => {
            let found = reader.value(key).map(Json::to_string).unwrap_or_default();
            let found = format!("`{}`", lathe_core::shorten(&found));
            Err(Error::value(key, found, format!("{layers} whole numbers, one for each layer")))
        }
    }
}
