//! A tokenizer that goes on with some of its tokens, numbered anew in their order.
//!
//! Text whose tokens are all kept has the same tokens as before, and any other text is still encoded, by smaller
//! tokens:
//!
//! - BPE: a merge stays if both its parts and what they become stay. In a text, the merges inside what becomes a token
//!   are those of that token alone, since nothing is merged across its ends; so with each token stays what arises on the
//!   way to it when it is encoded by itself, and where all merges that were taken are there, none before them is new.
//!   The bytes stay (byte-level characters, or `<0x00>` to `<0xFF>` with ASCII), or, without any, all single characters.
//! - WordPiece takes the longest token that fits, and Unigram the best path: fewer tokens change neither where it
//!   stays. Single characters stay, and bytes where there are any.
//! - WordLevel: a word that does not stay is unknown.
//!
//! Special tokens, and all others that were added to the vocabulary, always stay.

use super::guard::guarded;
use super::specials::{Beside, Specials};
use super::tokenizer::{Hf, Tokenizer};
use crate::{Error, Result};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What stands for a space in vocabularies of SentencePiece.
const SPACE: &str = "\u{2581}";

/// A tokenizer with fewer tokens.
#[derive(Debug)]
pub struct Pruned {
    /// It.
    pub tokenizer: Tokenizer,
    /// Its token i was token `tokens[i]`.
    pub tokens: Vec<u32>,
}

impl Tokenizer {
    /// A tokenizer with the tokens that are used, those that it takes to encode any text, and special ones.
    pub fn keep(&self, used: impl IntoIterator<Item = u32>) -> Result<Pruned> {
        let Self::Hf(hf) = self else {
            return Err(Error::setting("vocab", "a tokenizer of bytes", "one whose tokens are more than the bytes"));
        };
        let failed = |error: String| {
            let found = format!("an error of the tokenizer: {error}");
            Error::data("tokenizer", found, "a tokenizer that can be written and read")
        };
        let text = guarded(|| hf.inner.to_string(false)).map_err(failed)?;
        let mut file: Value = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        let mut kept: BTreeSet<u32> = used.into_iter().filter(|&id| id < self.vocab()).collect();
        let vocabulary = Vocabulary::of(&file["model"])?;
        vocabulary.close(&mut kept);
        kept.extend(always(hf));
        // An id between others may be nobody's.
        kept.retain(|&id| hf.inner.id_to_token(id).is_some());
        let tokens: Vec<u32> = kept.into_iter().collect();
        let new: HashMap<u32, u32> = tokens.iter().copied().zip(0..).collect();
        renumber(&mut file, &new);
        let text = serde_json::to_vec(&file).map_err(|error| failed(error.to_string()))?;
        let read = guarded(|| Self::of(tokenizers::Tokenizer::from_bytes(text)?));
        let mut tokenizer = read.map_err(failed)?;
        if let Self::Hf(pruned) = &mut tokenizer {
            pruned.beside = hf.beside.renumbered(&new)?;
            pruned.specials =
                guarded(|| Ok(Specials::of(&pruned.inner, pruned.unknown, &pruned.beside))).map_err(failed)?;
        }
        Ok(Pruned { tokenizer, tokens })
    }
}

/// Tokens that stay, whatever is used.
fn always(hf: &Hf) -> impl Iterator<Item = u32> {
    let added = hf.inner.get_added_tokens_decoder().into_keys();
    let Specials { bos, eos, pad, unk, cls, sep, mask, stop } = hf.specials.clone();
    let named = [bos, eos, pad, unk, cls, sep, mask, hf.unknown].into_iter().flatten();
    added.chain(named).chain(stop).chain(hf.beside.listed.clone().into_iter().flatten().flatten())
}

/// The part of `tokenizer.json` that has the tokens.
struct Vocabulary<'a> {
    kind: &'a str,
    ids: BTreeMap<&'a str, u32>,
    model: &'a Value,
}

impl<'a> Vocabulary<'a> {
    fn of(model: &'a Value) -> Result<Self> {
        let kind = model["type"].as_str().unwrap_or_default();
        let wrong = |found: String| {
            Err(Error::setting("vocab", found, "a tokenizer of the kind BPE, WordPiece, Unigram or WordLevel"))
        };
        let ids = match (kind, &model["vocab"]) {
            ("BPE" | "WordPiece" | "WordLevel", Value::Object(vocab)) => {
                let id = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
                vocab.iter().filter_map(|(token, value)| Some((token.as_str(), id(value)?))).collect()
            }
            ("Unigram", Value::Array(pieces)) => {
                pieces.iter().zip(0..).filter_map(|(piece, id)| Some((piece[0].as_str()?, id))).collect()
            }
            _ => return wrong(format!("one of the kind `{kind}`")),
        };
        for part in ["continuing_subword_prefix", "end_of_word_suffix"] {
            if kind == "BPE" && model[part].as_str().is_some_and(|part| !part.is_empty()) {
                return wrong(format!("BPE with a {part}"));
            }
        }
        Ok(Self { kind, ids, model })
    }

    /// Adds what has to stay with tokens that stay.
    fn close(&self, kept: &mut BTreeSet<u32>) {
        match self.kind {
            "BPE" => {
                let merges = Merges::of(self);
                let names: HashMap<u32, &str> = self.ids.iter().map(|(token, id)| (*id, *token)).collect();
                let parts = kept.iter().filter_map(|id| names.get(id)).flat_map(|token| merges.way_to(token));
                let parts: Vec<u32> = parts.collect();
                kept.extend(parts);
                kept.extend(self.alphabet(""));
            }
            "WordPiece" => kept.extend(self.alphabet(self.model["continuing_subword_prefix"].as_str().unwrap_or("##"))),
            "Unigram" => {
                kept.extend(self.alphabet(""));
                // What is unknown costs more than the least likely piece.
                let score = |id: &u32| self.model["vocab"][*id as usize][1].as_f64().unwrap_or(0.0);
                kept.extend(self.ids.values().copied().min_by(|a, b| score(a).total_cmp(&score(b))));
                kept.extend(self.model["unk_id"].as_u64().map(|id| id as u32));
            }
            _ => {}
        }
    }

    /// What any text can be made of: bytes, where they stand for characters that are missing, else single characters,
    /// with or without a prefix.
    fn alphabet(&self, prefix: &str) -> Vec<u32> {
        let bytes: Option<Vec<u32>> =
            (0..=255).map(|byte| self.ids.get(&*format!("<0x{byte:02X}>")).copied()).collect();
        let bytes = bytes.filter(|_| self.model["byte_fallback"] == true);
        let needed = |token: &str| match bytes {
            // Bytes that are written otherwise were hardly ever seen.
            Some(_) => token.is_ascii() || token == SPACE,
            None => true,
        };
        let single = |token: &str| {
            let token = token.strip_prefix(prefix).filter(|rest| !rest.is_empty()).unwrap_or(token);
            token.chars().count() == 1 && needed(token)
        };
        let characters = self.ids.iter().filter(|(token, _)| single(token)).map(|(_, id)| *id);
        characters.chain(bytes.iter().flatten().copied()).collect()
    }
}

/// The merges of BPE: for two tokens their rank, and what they become.
struct Merges<'a> {
    ids: &'a BTreeMap<&'a str, u32>,
    ranks: HashMap<(u32, u32), (usize, u32)>,
}

impl<'a> Merges<'a> {
    fn of(vocabulary: &'a Vocabulary<'a>) -> Self {
        let ids = &vocabulary.ids;
        let mut ranks = HashMap::new();
        let mut joined = String::new();
        for (rank, merge) in vocabulary.model["merges"].as_array().into_iter().flatten().enumerate() {
            let Some((left, right)) = pair(merge) else { continue };
            joined.clear();
            joined.extend([left, right]);
            if let (Some(&a), Some(&b), Some(&both)) = (ids.get(left), ids.get(right), ids.get(joined.as_str())) {
                ranks.insert((a, b), (rank, both)); // of two, the library takes the last
            }
        }
        Self { ids, ranks }
    }

    /// All tokens that arise when a token's text is encoded by itself; none where that does not end with the token.
    fn way_to(&self, token: &str) -> Vec<u32> {
        let mut buffer = [0; 4];
        let symbols: Option<Vec<u32>> =
            token.chars().map(|c| self.ids.get(&*c.encode_utf8(&mut buffer)).copied()).collect();
        let Some(mut symbols) = symbols else { return Vec::new() };
        let mut way = symbols.clone();
        loop {
            let merge = |at: usize| Some((self.ranks.get(&(symbols[at], symbols[at + 1]))?, at));
            let next = (0..symbols.len().saturating_sub(1)).filter_map(merge).min();
            let Some((&(_, both), at)) = next else { break };
            symbols[at] = both;
            symbols.remove(at + 1);
            way.push(both);
        }
        if symbols.len() == 1 && self.ids.get(token) == symbols.first() { way } else { Vec::new() }
    }
}

/// The two parts of a merge: a list, or a text with a space.
fn pair(merge: &Value) -> Option<(&str, &str)> {
    match merge {
        Value::String(text) => text.split_once(' '),
        other => other[0].as_str().zip(other[1].as_str()),
    }
}

/// `tokenizer.json` with the tokens that have a new number alone.
fn renumber(file: &mut Value, new: &HashMap<u32, u32>) {
    let number = |old: &Value| old.as_u64().and_then(|old| new.get(&u32::try_from(old).ok()?).copied());
    let model = &mut file["model"];
    if let Value::Array(pieces) = &mut model["vocab"] {
        let mut at = 0..;
        pieces.retain(|_| at.next().is_some_and(|old| new.contains_key(&old)));
    }
    if let Value::Object(vocab) = &mut model["vocab"] {
        let kept = std::mem::take(vocab).into_iter();
        *vocab = kept.filter_map(|(token, old)| Some((token, number(&old)?.into()))).collect();
    }
    if let Some(unknown) = model.get_mut("unk_id").filter(|id| !id.is_null()) {
        *unknown = json!(number(unknown));
    }
    let vocab = model["vocab"].as_object().cloned().unwrap_or_default();
    if let Some(Value::Array(merges)) = model.get_mut("merges") {
        merges.retain(|merge| {
            pair(merge).is_some_and(|(left, right)| {
                vocab.contains_key(left) && vocab.contains_key(right) && vocab.contains_key(&format!("{left}{right}"))
            })
        });
    }
    if let Some(Value::Array(added)) = file.get_mut("added_tokens") {
        for token in added {
            token["id"] = json!(number(&token["id"]));
        }
    }
    if let Some(processor) = file.get_mut("post_processor") {
        renumber_processor(processor, new);
    }
}

/// The special tokens that a post-processor adds.
fn renumber_processor(processor: &mut Value, new: &HashMap<u32, u32>) {
    let renumber = |id: &mut Value| {
        if let Some(number) = id.as_u64().and_then(|old| new.get(&(old as u32))) {
            *id = json!(number);
        }
    };
    for part in ["cls", "sep"] {
        if let Some(id) = processor.get_mut(part).and_then(|token| token.get_mut(1)) {
            renumber(id);
        }
    }
    if let Some(Value::Object(tokens)) = processor.get_mut("special_tokens") {
        for token in tokens.values_mut() {
            token["ids"].as_array_mut().into_iter().flatten().for_each(renumber);
        }
    }
    for part in processor.get_mut("processors").and_then(Value::as_array_mut).into_iter().flatten() {
        renumber_processor(part, new);
    }
}

/// An object in which keys that name tokens by their ids name them by their new ones; tokens that are gone are left
/// out.
pub fn renumber_ids(object: &mut Map<String, Value>, new: &HashMap<u32, u32>) {
    let number = |old: &Value| old.as_u64().and_then(|old| new.get(&u32::try_from(old).ok()?)).copied();
    for (key, value) in object {
        if key.ends_with("_token_id") || key.ends_with("suppress_tokens") {
            match value {
                Value::Array(ids) => *value = ids.iter().filter_map(number).collect::<Vec<u32>>().into(),
                Value::Number(_) if value.as_u64().is_some() => *value = json!(number(value)),
                _ => {}
            }
        }
        if let ("added_tokens_decoder", Value::Object(tokens)) = (key.as_str(), value) {
            let kept = std::mem::take(tokens).into_iter();
            let by_number = kept.filter_map(|(old, token)| Some((new.get(&old.parse().ok()?)?.to_string(), token)));
            *tokens = by_number.collect();
        }
    }
}

impl Beside {
    /// The same for tokens with new numbers.
    fn renumbered(&self, new: &HashMap<u32, u32>) -> Result<Self> {
        let mut files = self.files.clone();
        for (name, bytes) in &mut files {
            let mut object: Map<String, Value> =
                serde_json::from_slice(bytes).map_err(|error| Error::data(*name, error, "a JSON object"))?;
            renumber_ids(&mut object, new);
            *bytes = serde_json::to_vec_pretty(&object).unwrap_or_default();
        }
        let listed = self
            .listed
            .iter()
            .map(|roles| roles.clone().map(|ids| ids.iter().filter_map(|id| new.get(id)).copied().collect()));
        Ok(Self { named: self.named.clone(), listed: listed.collect(), files })
    }
}
