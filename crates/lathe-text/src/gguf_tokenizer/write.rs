//! A tokenizer as the keys of a GGUF file.
//!
//! Merges of bytes keep their merges, and the way they cut a text gets the name under which llama.cpp knows it. Pieces get
//! scores by which the same neighbours merge first. Bytes are merges of bytes without a merge. Tokens that the model has
//! beyond those of the tokenizer are called unused.

use super::{BYTE, CONTROL, ENDS, GPT2, MERGES, NORMAL, PIECES, PRES, Pre, ROLES, SPACE, UNKNOWN, USER_DEFINED};
use crate::{Error, Result, Tokenizer};
use lathe_gguf::{Array, Value};
use serde_json::Value as Json;
use std::collections::HashMap;

const UNUSED: i64 = 5;

/// The keys of a tokenizer in a file of a model with so many tokens; an error where llama.cpp has no such tokenizer.
pub(crate) fn keys(tokenizer: &Tokenizer, vocab: u32) -> Result<Vec<(String, Value)>> {
    let mut keys = match tokenizer.json() {
        None => bytes(),
        Some(text) => {
            let json: Json = serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
            of_json(&json, tokenizer)?
        }
    };
    fill(&mut keys, vocab)?;
    for ((_, key), id) in ROLES.iter().zip(roles(tokenizer)) {
        if let Some(id) = id {
            keys.push((format!("{key}_token_id"), Value::U32(id)));
        }
    }
    // What else ends a text that is generated.
    let stop = &tokenizer.specials().stop;
    for (key, &id) in ENDS.iter().zip(stop.iter().filter(|&&id| Some(id) != tokenizer.specials().eos)) {
        keys.push((format!("{key}_token_id"), Value::U32(id)));
    }
    let around = tokenizer.around()?;
    keys.push(("add_bos_token".into(), Value::Bool(around[0])));
    keys.push(("add_eos_token".into(), Value::Bool(around[1])));
    let mut keys: Vec<_> = keys.into_iter().map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)).collect();
    keys.extend(tokenizer.chat_template().map(|text| ("tokenizer.chat_template".to_string(), Value::Text(text))));
    Ok(keys)
}

type Keys = Vec<(String, Value)>;

fn refused(reason: impl std::fmt::Display) -> Error {
    Error::data("tokenizer", reason, "one that llama.cpp has: byte-level BPE, or SentencePiece's BPE")
}

/// In the order of [`ROLES`].
fn roles(tokenizer: &Tokenizer) -> [Option<u32>; 7] {
    let of = tokenizer.specials();
    [of.bos, of.eos, of.unk, of.pad, of.sep, of.cls, of.mask]
}

fn texts(list: Vec<String>) -> Value {
    Value::Array(Array::Text(list))
}

/// A token for each byte, without merges.
fn bytes() -> Keys {
    let tokens = (0..=255).map(|byte| byte_char(byte).to_string()).collect();
    vec![
        ("model".into(), Value::Text(MERGES.into())),
        ("pre".into(), Value::Text(name_of(&[], true, false).expect("GPT-2's own").into())),
        ("tokens".into(), texts(tokens)),
        ("token_type".into(), Value::Array(Array::I32(vec![NORMAL as i32; 256]))),
        ("merges".into(), texts(Vec::new())),
    ]
}

/// What stands for a byte in byte-level vocabularies: itself where it can be seen, else a letter from U+0100 on.
fn byte_char(byte: u8) -> char {
    let is_seen = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..);
    match is_seen(byte) {
        true => byte.into(),
        false => {
            let before = (0..byte).filter(|&byte| !is_seen(byte)).count();
            char::from_u32(0x100 + before as u32).expect("letters beyond Latin-1")
        }
    }
}

/// Tokens that the model has and the tokenizer has not.
fn fill(keys: &mut Keys, vocab: u32) -> Result<()> {
    for (key, value) in keys {
        let Value::Array(list) = value else { continue };
        let len = list.len();
        if ["tokens", "token_type", "scores"].contains(&&**key) && len > vocab as usize {
            return Err(refused(format!("{len} tokens for a model of {vocab}")));
        }
        match (&**key, list) {
            ("tokens", Array::Text(tokens)) => tokens.extend((len..vocab as usize).map(|id| format!("[PAD{id}]"))),
            ("token_type", Array::I32(types)) => types.resize(vocab as usize, UNUSED as i32),
            ("scores", Array::F32(scores)) => scores.resize(vocab as usize, LOWEST),
            _ => {}
        }
    }
    Ok(())
}

/// The score of what nothing is merged to.
const LOWEST: f32 = -1e9;

fn of_json(json: &Json, tokenizer: &Tokenizer) -> Result<Keys> {
    let model = &json["model"];
    if model["type"] != "BPE" {
        return Err(refused(format!("a model of the kind {}", model["type"])));
    }
    let vocab = model["vocab"].as_object().ok_or_else(|| refused("no vocabulary"))?;
    let ids = vocab.iter().filter_map(|(token, id)| Some((token.clone(), id.as_u64()? as usize)));
    let added = json["added_tokens"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_added = |token: &Json| Some((token["content"].as_str()?.to_string(), token["id"].as_u64()? as usize));
    let ids: HashMap<String, usize> = ids.chain(added.iter().filter_map(of_added)).collect();
    let mut tokens: Vec<String> = (0..tokenizer.vocab()).map(|id| format!("[PAD{id}]")).collect();
    let mut types = vec![UNUSED; tokens.len()];
    for (token, id) in ids {
        (tokens[id], types[id]) = (token, NORMAL);
    }
    for token in added {
        let Some((_, id)) = of_added(token) else { continue };
        types[id] = if token["special"] == true { CONTROL } else { USER_DEFINED };
    }
    let merges = merges(model)?;
    let is_pieces = model["byte_fallback"] == true;
    let mut keys = match is_pieces {
        true => pieces(json, &tokens, &mut types, &merges)?,
        false => vec![
            ("model".into(), Value::Text(MERGES.into())),
            ("pre".into(), Value::Text(pre(json)?.into())),
            ("merges".into(), texts(merges.iter().map(|[a, b]| format!("{a} {b}")).collect())),
        ],
    };
    if let Some(unknown) = tokenizer.unknown().filter(|_| is_pieces) {
        types[unknown as usize] = UNKNOWN;
    }
    keys.push(("tokens".into(), texts(tokens)));
    keys.push(("token_type".into(), Value::Array(Array::I32(types.iter().map(|&kind| kind as i32).collect()))));
    Ok(keys)
}

/// Pairs, in either of the forms that files have.
fn merges(model: &Json) -> Result<Vec<[String; 2]>> {
    let list = model["merges"].as_array().ok_or_else(|| refused("no merges"))?;
    let pair = |merge: &Json| match merge {
        Json::String(text) => text.split_once(' ').map(|(a, b)| [a.to_string(), b.to_string()]),
        _ => Some([merge[0].as_str()?.to_string(), merge[1].as_str()?.to_string()]),
    };
    list.iter().map(|merge| pair(merge).ok_or_else(|| refused(format!("the merge {merge}")))).collect()
}

/// Pieces with scores: the sooner two neighbours merge, the higher the score of what they make.
fn pieces(json: &Json, tokens: &[String], types: &mut [i64], merges: &[[String; 2]]) -> Result<Keys> {
    let mut rank: HashMap<String, f32> = HashMap::new();
    for [a, b] in merges {
        let score = -(rank.len() as f32);
        rank.entry(format!("{a}{b}")).or_insert(score);
    }
    let scores = tokens.iter().map(|token| rank.get(token).copied().unwrap_or(LOWEST)).collect();
    for (token, kind) in tokens.iter().zip(types).filter(|(_, kind)| **kind == NORMAL) {
        let is_byte =
            token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')).is_some_and(|hex| hex.len() == 2);
        if is_byte {
            *kind = BYTE;
        }
    }
    Ok(vec![
        ("model".into(), Value::Text(PIECES.into())),
        ("scores".into(), Value::Array(Array::F32(scores))),
        ("add_space_prefix".into(), Value::Bool(prefix(json)?)),
    ])
}

/// Whether a space is put before a text; an error where spaces are anything else than `▁`.
fn prefix(json: &Json) -> Result<bool> {
    let list = |value: &Json, parts: &str| match value[parts].as_array() {
        Some(all) => all.clone(),
        None if value.is_null() => Vec::new(),
        None => vec![value.clone()],
    };
    let (mut prefix, mut spaces) = (false, false);
    for normalizer in list(&json["normalizer"], "normalizers") {
        match normalizer["type"].as_str() {
            Some("Prepend") if normalizer["prepend"] == SPACE => prefix = true,
            Some("Replace") if normalizer["pattern"]["String"] == " " && normalizer["content"] == SPACE => {
                spaces = true
            }
            _ => return Err(refused(format!("the normalizer {normalizer}"))),
        }
    }
    for cut in list(&json["pre_tokenizer"], "pretokenizers") {
        match cut["type"].as_str() {
            Some("Metaspace") if cut["replacement"] == SPACE && cut["split"] != true => {
                (prefix, spaces) = (cut["prepend_scheme"] != "never", true);
            }
            _ => return Err(refused(format!("the pre-tokenizer {cut}"))),
        }
    }
    match spaces {
        true => Ok(prefix),
        false => Err(refused("pieces without `▁` for spaces")),
    }
}

/// The name of the way a text is cut before merges.
fn pre(json: &Json) -> Result<&'static str> {
    let normalizer = &json["normalizer"];
    // llama.cpp does not compose characters, nor does any text that is composed already need it.
    if !normalizer.is_null() && normalizer["type"] != "NFC" {
        return Err(refused(format!("the normalizer {normalizer} before merges of bytes")));
    }
    let cut = &json["pre_tokenizer"];
    let alone = [cut.clone()];
    let all = cut["pretokenizers"].as_array().map_or(&alone[..], Vec::as_slice);
    let mut patterns: Vec<&str> = Vec::new();
    let mut gpt2 = false;
    for (i, cut) in all.iter().enumerate() {
        let wrong = || refused(format!("the pre-tokenizer {cut}"));
        match cut["type"].as_str() {
            Some("Split") if cut["behavior"] == "Isolated" && cut["invert"] != true => {
                patterns.push(cut["pattern"]["Regex"].as_str().ok_or_else(wrong)?);
            }
            Some("Digits") if cut["individual_digits"] == true => patterns.push(r"\p{N}"),
            Some("ByteLevel") if cut["add_prefix_space"] != true && i + 1 == all.len() => {
                gpt2 = cut["use_regex"] != false;
            }
            _ => return Err(wrong()),
        }
    }
    if patterns == [GPT2] && !gpt2 {
        (patterns, gpt2) = (Vec::new(), true);
    }
    let whole = json["model"]["ignore_merges"] == true;
    name_of(&patterns, gpt2, whole).ok_or_else(|| {
        let found = format!("a way to cut texts that llama.cpp has no name for: {patterns:?}");
        let known: Vec<&str> = PRES.iter().map(|pre| pre.names[0]).collect();
        Error::data("tokenizer", found, format_args!("that of {}", known.join(", ")))
    })
}

/// The name of patterns, whether GPT-2's own comes last, and whether pieces that are tokens are left whole.
fn name_of(patterns: &[&str], gpt2: bool, whole: bool) -> Option<&'static str> {
    let is_same = |pre: &&Pre| {
        // A group without a name of its own cuts the same.
        let plain = |pattern: &str| pattern.replace("(?:", "(");
        (pre.gpt2, pre.ignore_merges) == (gpt2, whole)
            && pre.patterns.iter().map(|pattern| plain(pattern)).eq(patterns.iter().map(|p| plain(p)))
    };
    PRES.iter().find(is_same).map(|pre| pre.names[0])
}
