//! The tokenizer inside a GGUF file, as the `tokenizer.json` that it would have had.
//!
//! `tokenizer.ggml.model` says which kind it is:
//!
//! - `llama`: pieces with scores (SentencePiece's BPE). Of two neighbours, those merge first that make the piece of the
//!   highest score; what no piece covers becomes bytes. Spaces are `▁`, and one stands before the text.
//! - `gpt2`: merges of bytes. `tokenizer.ggml.pre` names the patterns that cut the text before.
//!
//! The lists beside it have an entry for each token: `tokens`, `scores`, and `token_type`, by which special tokens are told
//! from others. Keys name the tokens that begin and end a text.

mod write;

pub(crate) use write::keys;

use crate::specials::{Files, GENERATION, TOKENIZER_CONFIG};
use crate::{Error, Result};
use lathe_gguf::{Array, Gguf, Value};
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use std::path::Path;

/// What stands for a space.
const SPACE: &str = "▁";

/// Kinds of tokenizers.
const PIECES: &str = "llama";
const MERGES: &str = "gpt2";

// Types of tokens.
const NORMAL: i64 = 1;
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
const BYTE: i64 = 6;

/// Special tokens: their names here, and in keys.
const ROLES: [(&str, &str); 7] = [
    ("bos", "bos"),
    ("eos", "eos"),
    ("unk", "unknown"),
    ("pad", "padding"),
    ("sep", "seperator"), // as the format spells it
    ("cls", "cls"),
    ("mask", "mask"),
];
/// Further keys of tokens that end what is generated: the end of a turn, of a message.
const ENDS: [&str; 2] = ["eot", "eom"];

/// How text is cut before merges, under all its names.
struct Pre {
    names: &'static [&'static str],
    /// What each cuts out of the pieces of the one before.
    patterns: &'static [&'static str],
    /// Whether GPT-2's own pattern comes last.
    gpt2: bool,
    /// Whether a piece that is a token is that token, whatever merges say.
    ignore_merges: bool,
    /// Whether texts begin with the token for it, where no key says so.
    begins: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const THREE_DIGITS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const ONE_DIGIT: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const PLAIN: Pre = Pre { names: &[], patterns: &[], gpt2: false, ignore_merges: false, begins: false };

/// The first is that of files that name none.
const PRES: &[Pre] = &[
    Pre { names: &["default"], patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"], ..PLAIN },
    Pre { names: &["falcon"], patterns: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"], ..PLAIN },
    Pre { names: &["gpt-2", "mpt", "olmo", "phi-2", "jais"], gpt2: true, ..PLAIN },
    Pre {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        patterns: &[r"\p{N}"],
        gpt2: true,
        ..PLAIN
    },
    Pre {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"],
        patterns: &[THREE_DIGITS],
        ignore_merges: true,
        begins: true,
        ..PLAIN
    },
    Pre { names: &["dbrx", "smaug-bpe"], patterns: &[THREE_DIGITS], ..PLAIN },
    Pre { names: &["qwen2", "deepseek-r1-qwen", "stablelm2"], patterns: &[ONE_DIGIT], ..PLAIN },
];

/// A `tokenizer.json`, and the files beside it.
pub(crate) fn read(path: &Path) -> Result<(Vec<u8>, Files)> {
    let file = Gguf::open(path).map_err(|error| match error {
        lathe_gguf::Error::Io { file, error } => Error::io(&file)(error),
        lathe_gguf::Error::Malformed { file, place, found, expected } => {
            Error::data(format_args!("{}, {place}", file.display()), found, expected)
        }
    })?;
    let lists = Lists::read(&file)?;
    let kind = lists.text("model")?;
    let tokenizer = match kind {
        Some(PIECES) => lists.pieces()?,
        Some(MERGES) => lists.merges()?,
        other => {
            let found = other.map_or_else(|| "nothing".into(), |name| format!("`{}`", lathe_core::shorten(name)));
            return Err(lists.wrong("model", found, "llama or gpt2, the kinds of tokenizer that are read"));
        }
    };
    let bytes = |json: &Json| serde_json::to_vec(json).expect("names and numbers can be written");
    let mut files = vec![(TOKENIZER_CONFIG, bytes(&lists.config()))];
    files.extend(lists.generation()?.map(|json| (GENERATION, bytes(&json))));
    Ok((bytes(&tokenizer), files))
}

/// What a file says of its tokenizer.
struct Lists<'a> {
    file: &'a Gguf,
    tokens: Vec<&'a str>,
    types: Vec<i64>,
    /// Ids in the order of [`ROLES`].
    roles: [Option<usize>; 7],
}

impl<'a> Lists<'a> {
    fn read(file: &'a Gguf) -> Result<Self> {
        let mut lists = Self { file, tokens: Vec::new(), types: Vec::new(), roles: [None; 7] };
        lists.tokens = lists.need("tokens", Value::texts, "a list of texts")?.iter().map(String::as_str).collect();
        if lists.tokens.is_empty() {
            return Err(lists.wrong("tokens", "none", "at least one"));
        }
        let mut known = HashMap::new();
        for (id, token) in lists.tokens.iter().enumerate().filter(|(_, token)| !token.is_empty()) {
            if let Some(other) = known.insert(token, id) {
                let found = format!("`{}` as {other} and as {id}", lathe_core::shorten(token));
                return Err(lists.wrong("tokens", found, "every token once"));
            }
        }
        lists.types = match lists.get("token_type") {
            Some(_) => lists.numbers("token_type")?.into_iter().map(|kind| kind as i64).collect(),
            None => vec![NORMAL; lists.tokens.len()],
        };
        for (role, (_, key)) in ROLES.iter().enumerate() {
            lists.roles[role] = lists.id(key)?;
        }
        Ok(lists)
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.file.get(&format!("tokenizer.ggml.{key}"))
    }

    fn wrong(&self, key: &str, found: impl std::fmt::Display, expected: impl std::fmt::Display) -> Error {
        let place = format!("{}, key `tokenizer.ggml.{key}`", self.file.path().display());
        Error::data(place, found, expected)
    }

    /// The value of a key, if it is there; an error where it is of another type.
    fn typed<T>(&self, key: &str, read: impl Fn(&'a Value) -> Option<T>, expected: &str) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value) {
            Some(found) => Ok(Some(found)),
            None => Err(self.wrong(key, "a value of another type", expected)),
        }
    }

    /// The value of a key that has to be there.
    fn need<T>(&self, key: &str, read: impl Fn(&'a Value) -> Option<T>, expected: &str) -> Result<T> {
        self.typed(key, read, expected)?.ok_or_else(|| self.wrong(key, "nothing", expected))
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, Value::text, "a text")
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.typed(key, Value::truth, "true or false")?.unwrap_or(default))
    }

    /// A number for each token.
    fn numbers(&self, key: &str) -> Result<Vec<f64>> {
        let count = self.tokens.len();
        let expected = format!("{count} numbers, one for each token");
        let list: &Array = self.need(key, Value::array, &expected)?;
        let numbers: Option<Vec<f64>> = (0..list.len()).map(|i| list.get(i)?.real()).collect();
        match numbers {
            Some(numbers) if numbers.len() == count => Ok(numbers),
            _ => Err(self.wrong(key, format_args!("a list of {}", list.len()), expected)),
        }
    }

    /// The id of a special token.
    fn id(&self, role: &str) -> Result<Option<usize>> {
        let key = format!("{role}_token_id");
        let count = self.tokens.len();
        let id = self.typed(&key, Value::int, "a whole number")?;
        match id.map(|id| usize::try_from(id).ok().filter(|&id| id < count)) {
            None => Ok(None),
            Some(None) if id == Some(-1) || id == Some(u32::MAX.into()) => Ok(None), // there is none
            Some(None) => Err(self.wrong(&key, id.unwrap_or_default(), format_args!("a token below {count}"))),
            Some(id) => Ok(id),
        }
    }

    /// A token; one without a text has a name that no text has.
    fn token(&self, id: usize) -> String {
        match self.tokens[id] {
            "" => format!("[EMPTY_{id}]"),
            token => token.into(),
        }
    }

    fn vocab(&self) -> Map<String, Json> {
        (0..self.tokens.len()).map(|id| (self.token(id), id.into())).collect()
    }

    /// Tokens that are found in a text before it is cut.
    fn added(&self) -> Json {
        let is_special = |id: &usize| [UNKNOWN, CONTROL].contains(&self.types[*id]) || self.roles.contains(&Some(*id));
        let ids = (0..self.tokens.len()).filter(|id| is_special(id) || self.types[*id] == USER_DEFINED);
        ids.map(|id| {
            json!({"id": id, "content": self.token(id), "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": is_special(&id)})
        })
        .collect()
    }

    /// What is put around a text.
    fn processor(&self, begins: bool) -> Result<Json> {
        let flags = [self.flag("add_bos_token", begins)?, self.flag("add_eos_token", false)?];
        let ids: Vec<Option<usize>> = (0..2).map(|role| self.roles[role].filter(|_| flags[role])).collect();
        if ids.iter().all(Option::is_none) {
            return Ok(Json::Null);
        }
        let special = |id: &Option<usize>, text: u32| {
            id.map(|id| json!({"SpecialToken": {"id": self.token(id), "type_id": text}})).into_iter()
        };
        let around = |name: &str, text: u32| {
            let middle = json!({"Sequence": {"id": name, "type_id": text}});
            special(&ids[0], text).chain([middle]).chain(special(&ids[1], text))
        };
        let tokens: Map<String, Json> = ids
            .iter()
            .flatten()
            .map(|&id| (self.token(id), json!({"id": self.token(id), "ids": [id], "tokens": [self.token(id)]})))
            .collect();
        Ok(json!({
            "type": "TemplateProcessing",
            "single": around("A", 0).collect::<Vec<_>>(),
            "pair": around("A", 0).chain(around("B", 1)).collect::<Vec<_>>(),
            "special_tokens": tokens,
        }))
    }

    /// Pieces with scores.
    fn pieces(&self) -> Result<Json> {
        let scores = self.numbers("scores")?;
        let prefix = self.flag("add_space_prefix", true)?;
        let unknown = self.roles[2].or_else(|| self.types.iter().position(|&kind| kind == UNKNOWN));
        let mut normalizers = vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})];
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if prefix {
            normalizers.insert(0, json!({"type": "Prepend", "prepend": SPACE}));
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        Ok(json!({
            "version": "1.0",
            "added_tokens": self.added(),
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "post_processor": self.processor(true)?,
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": {
                "type": "BPE", "unk_token": unknown.map(|id| self.token(id)), "fuse_unk": true,
                "byte_fallback": self.types.contains(&BYTE), "vocab": self.vocab(), "merges": self.merges_of(&scores),
            },
        }))
    }

    /// Every way to make a piece of two, the piece of the highest score first. Of equals the first token comes first: where
    /// a converter did not know scores, the order of tokens is that of merges.
    fn merges_of(&self, scores: &[f64]) -> Vec<[&'a str; 2]> {
        let is_normal = |id: &usize| self.types[*id] == NORMAL;
        let ids: HashMap<&str, usize> = self.tokens.iter().copied().zip(0..).filter(|(_, id)| is_normal(id)).collect();
        let mut merges: Vec<(f64, [&str; 2])> = Vec::new();
        for (&token, &score) in self.tokens.iter().zip(scores).filter(|(token, _)| ids.contains_key(**token)) {
            // The longest first part first.
            let borders = token.char_indices().skip(1).map(|(at, _)| at).collect::<Vec<_>>().into_iter().rev();
            let pairs = borders.map(|at| token.split_at(at));
            let pairs = pairs.filter(|(a, b)| ids.contains_key(a) && ids.contains_key(b));
            merges.extend(pairs.map(|(a, b)| (score, [a, b])));
        }
        merges.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        merges.into_iter().map(|(_, pair)| pair).collect()
    }

    /// Merges of bytes.
    fn merges(&self) -> Result<Json> {
        let name = self.text("pre")?.unwrap_or(PRES[0].names[0]);
        let Some(pre) = PRES.iter().find(|pre| pre.names.contains(&name)) else {
            let known: Vec<_> = PRES.iter().flat_map(|pre| pre.names).copied().collect();
            return Err(self.wrong("pre", format_args!("`{}`", lathe_core::shorten(name)), known.join(", ")));
        };
        let mut merges = Vec::new();
        for merge in self.need("merges", Value::texts, "a list of texts")? {
            // A first token may be a space.
            let at = merge.char_indices().skip(1).find(|(_, c)| *c == ' ').map(|(at, _)| at);
            let Some(at) = at else {
                let found = format!("`{}`", lathe_core::shorten(merge));
                return Err(self.wrong("merges", found, "two tokens with a space between them"));
            };
            merges.push([&merge[..at], &merge[at + 1..]]);
        }
        let bytes = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
        let split = |pattern: &&str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        let mut cuts: Vec<Json> = pre.patterns.iter().map(split).collect();
        cuts.push(bytes(pre.gpt2));
        let cuts = match cuts.len() {
            1 => cuts.remove(0),
            _ => json!({"type": "Sequence", "pretokenizers": cuts}),
        };
        Ok(json!({
            "version": "1.0",
            "added_tokens": self.added(),
            "pre_tokenizer": cuts,
            "post_processor": self.processor(pre.begins)?,
            "decoder": bytes(true),
            "model": {"type": "BPE", "ignore_merges": pre.ignore_merges, "vocab": self.vocab(), "merges": merges},
        }))
    }

    /// `tokenizer_config.json`: special tokens by name, and the template of conversations.
    fn config(&self) -> Json {
        let mut config = Map::new();
        config.insert("tokenizer_class".into(), "PreTrainedTokenizerFast".into());
        config.insert("clean_up_tokenization_spaces".into(), false.into());
        for ((role, _), id) in ROLES.iter().zip(self.roles) {
            if let Some(id) = id {
                config.insert(format!("{role}_token"), self.token(id).into());
            }
        }
        if let Some(template) = self.file.get("tokenizer.chat_template").and_then(Value::text) {
            config.insert("chat_template".into(), template.into());
        }
        config.into()
    }

    /// `generation_config.json`, where more than one token ends what is generated.
    fn generation(&self) -> Result<Option<Json>> {
        let mut ends: Vec<usize> = self.roles[1].into_iter().collect();
        for role in ENDS {
            if let Some(id) = self.id(role)?
                && !ends.contains(&id)
            {
                ends.push(id);
            }
        }
        Ok((ends.len() > 1).then(|| json!({"eos_token_id": ends})))
    }
}
