//! The special tokens of a tokenizer: which ids begin, end, fill, separate and hide.
//!
//! Several files of a model folder name them. For each, the first that says something holds:
//!
//! 1. `tokenizer_config.json`, then `special_tokens_map.json`: `bos_token` and so on, a string or an object with
//!    `content`. Null says that there is none.
//! 2. `generation_config.json`, then `config.json`: `bos_token_id` and so on, a number or a list. Null and -1 say nothing.
//! 3. `tokenizer.json`: what its post-processor adds, then added tokens with one of the usual names.
//!
//! Tokens that the vocabulary does not have are left out.

use crate::{Error, Result};
use serde_json::{Map, Value, json};
use std::path::Path;
use tokenizers::{PostProcessorWrapper, Tokenizer};

/// The files beside `tokenizer.json` that belong to it, in the order in which they are asked.
pub(crate) const FILES: [&str; 3] = [TOKENIZER_CONFIG, "special_tokens_map.json", GENERATION];
pub(crate) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
pub(crate) const GENERATION: &str = "generation_config.json";
/// The model's own file, which is read but not written.
const CONFIG: &str = "config.json";

/// The names of each token in well-known vocabularies. GPT-2's `<|endoftext|>` also begins a text.
const ROLES: [(&str, &[&str]); 7] = [
    ("bos", &["<s>", "<bos>", "[BOS]", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"]),
    ("eos", &["</s>", "<eos>", "[EOS]", "<|end_of_text|>", "<|endoftext|>"]),
    ("pad", &["<pad>", "[PAD]", "<|pad|>"]),
    ("unk", &["<unk>", "[UNK]"]),
    ("cls", &["[CLS]", "<cls>"]),
    ("sep", &["[SEP]", "<sep>"]),
    ("mask", &["[MASK]", "<mask>"]),
];

/// The ids of special tokens, where they exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Specials {
    /// Begins a text.
    pub bos: Option<u32>,
    /// Ends a text.
    pub eos: Option<u32>,
    /// Fills up shorter rows of a batch.
    pub pad: Option<u32>,
    /// Stands for what the vocabulary does not have.
    pub unk: Option<u32>,
    /// Stands for the whole text, before it.
    pub cls: Option<u32>,
    /// Separates two texts and ends the second.
    pub sep: Option<u32>,
    /// Hides a token that is to be predicted.
    pub mask: Option<u32>,
    /// All that end a text when it is generated: EOS and what `generation_config.json` lists besides.
    pub stop: Vec<u32>,
}

impl Specials {
    /// None at all.
    pub const NONE: Self =
        Self { bos: None, eos: None, pad: None, unk: None, cls: None, sep: None, mask: None, stop: Vec::new() };

    /// What a tokenizer and the files beside it say.
    pub(crate) fn of(tokenizer: &Tokenizer, unknown: Option<u32>, beside: &Beside) -> Self {
        let has = |id: &u32| tokenizer.id_to_token(*id).is_some();
        let find = |role: usize| {
            for said in beside.named.iter().map(|roles| &roles[role]) {
                match said {
                    Named::Nothing => {}
                    Named::Nobody => return None,
                    Named::Token(name) => match tokenizer.token_to_id(name) {
                        Some(id) => return Some(id),
                        None => continue,
                    },
                }
            }
            let listed = beside.listed.iter().flat_map(|roles| &roles[role]).copied().find(has);
            listed.or_else(|| own(tokenizer, role)).or(if ROLES[role].0 == "unk" { unknown } else { None })
        };
        let [bos, eos, pad, unk, cls, sep, mask] = [0, 1, 2, 3, 4, 5, 6].map(find);
        let mut stop: Vec<u32> = eos.into_iter().collect();
        // The model's own file counts where there is none for generation.
        let lists = beside.listed.iter().map(|roles| &roles[1]);
        if let Some(ends) = lists.into_iter().find(|ends| !ends.is_empty()) {
            for &id in ends.iter().filter(|id| has(id)) {
                if !stop.contains(&id) {
                    stop.push(id);
                }
            }
        }
        Self { bos, eos, pad, unk, cls, sep, mask, stop }
    }

    /// In the order of [`ROLES`].
    fn ids(&self) -> [Option<u32>; 7] {
        [self.bos, self.eos, self.pad, self.unk, self.cls, self.sep, self.mask]
    }
}

/// What `tokenizer.json` itself says of a role.
fn own(tokenizer: &Tokenizer, role: usize) -> Option<u32> {
    let (role, names) = ROLES[role];
    let processor = tokenizer.get_post_processor().map(Processor::of).unwrap_or_default();
    let has = |id: &u32| tokenizer.id_to_token(*id).is_some();
    let added = match role {
        "cls" => processor.cls,
        "sep" => processor.sep,
        _ => None,
    };
    let added = added.filter(has);
    let tokens = tokenizer.get_added_tokens_decoder();
    let is_special = |id: &u32| tokens.get(id).is_some_and(|token| token.special);
    let mut named = names.iter().filter_map(|name| tokenizer.token_to_id(name)).filter(is_special);
    match role {
        // Before a text stands BOS, whatever its name, unless it is the token of the whole text.
        "bos" => processor.first.filter(has).filter(|_| processor.cls.is_none()).or_else(|| named.next()),
        _ => added.or_else(|| named.next()),
    }
}

/// What a post-processor adds.
#[derive(Default)]
struct Processor {
    cls: Option<u32>,
    sep: Option<u32>,
    /// Before a single text.
    first: Option<u32>,
}

impl Processor {
    fn of(processor: &PostProcessorWrapper) -> Self {
        Self::read(&serde_json::to_value(processor).unwrap_or_default())
    }

    fn read(value: &Value) -> Self {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        match value["type"].as_str() {
            Some("BertProcessing" | "RobertaProcessing") => {
                Self { cls: id(&value["cls"][1]), sep: id(&value["sep"][1]), first: None }
            }
            Some("TemplateProcessing") => {
                let pieces = value["single"].as_array().map(Vec::as_slice).unwrap_or_default();
                let name = |piece: Option<&Value>| Some(piece?["SpecialToken"]["id"].as_str()?.to_string());
                let token = |name: &String| id(&value["special_tokens"][name]["ids"][0]);
                let (first, last) = (name(pieces.first()), name(pieces.last()));
                // `[CLS] A [SEP]`, under these names alone: `<s> A </s>` may be BOS and EOS.
                let cls = first.as_ref().filter(|name| ROLES[4].1.contains(&name.as_str())).and_then(token);
                let sep = last.as_ref().filter(|name| ROLES[5].1.contains(&name.as_str())).and_then(token);
                Self { cls, sep, first: first.as_ref().and_then(token) }
            }
            Some("Sequence") => {
                let parts = value["processors"].as_array().map(Vec::as_slice).unwrap_or_default();
                parts.iter().map(Self::read).fold(Self::default(), |all, part| Self {
                    cls: all.cls.or(part.cls),
                    sep: all.sep.or(part.sep),
                    first: all.first.or(part.first),
                })
            }
            _ => Self::default(),
        }
    }
}

/// What the files beside `tokenizer.json` are and say.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// Those of [`FILES`] that are there, as they are.
    pub(super) files: Files,
    /// Tokens by name, for each file and role.
    pub(super) named: Vec<[Named; 7]>,
    /// Tokens by id, for each file and role.
    pub(super) listed: Vec<[Vec<u32>; 7]>,
}

/// What a file says of a role.
#[derive(Debug, Clone, Default)]
pub(super) enum Named {
    #[default]
    Nothing,
    /// That there is none.
    Nobody,
    Token(String),
}

impl Beside {
    /// Reads what is there.
    pub fn read(dir: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for name in FILES.into_iter().chain([CONFIG]) {
            let path = dir.join(name);
            match std::fs::read(&path) {
                Ok(bytes) => files.push((name, bytes)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io(&path)(error)),
            }
        }
        let mut beside = Self::parse(dir, &files)?;
        files.retain(|(name, _)| *name != CONFIG);
        beside.files = files;
        Ok(beside)
    }

    /// Files that are not on the disk.
    pub fn of(files: Files) -> Result<Self> {
        Ok(Self { files: files.clone(), ..Self::parse(Path::new(""), &files)? })
    }

    /// What files of a folder say.
    fn parse(dir: &Path, files: &Files) -> Result<Self> {
        let mut beside = Self::default();
        for (name, bytes) in files {
            let path = dir.join(name);
            let object: Map<String, Value> =
                serde_json::from_slice(bytes).map_err(|error| Error::data(path.display(), error, "a JSON object"))?;
            match *name {
                GENERATION | CONFIG => beside.listed.push(each(|role| ids(&path, &object, role))?),
                _ => beside.named.push(each(|role| named(&path, &object, role))?),
            }
        }
        Ok(beside)
    }

    /// The files to write so that the same special tokens are found where the model's own file is not.
    pub fn to_write(&self, tokenizer: &Tokenizer, unknown: Option<u32>, specials: &Specials) -> Result<Files> {
        let mut files = self.files.clone();
        let kept = Self::parse(Path::new(""), &files)?;
        let found = Specials::of(tokenizer, unknown, &kept);
        if found == *specials {
            return Ok(files);
        }
        let at = files.iter().position(|(name, _)| *name == GENERATION);
        let mut object: Map<String, Value> =
            at.and_then(|at| serde_json::from_slice(&files[at].1).ok()).unwrap_or_default();
        for (((role, _), id), found) in ROLES.iter().zip(specials.ids()).zip(found.ids()) {
            if let Some(id) = id.filter(|&id| Some(id) != found) {
                object.insert(format!("{role}_token_id"), id.into());
            }
        }
        if specials.stop != found.stop {
            object.insert("eos_token_id".into(), json!(specials.stop));
        }
        let bytes = serde_json::to_vec_pretty(&object).unwrap_or_default();
        match at {
            Some(at) => files[at].1 = bytes,
            None => files.push((GENERATION, bytes)),
        }
        Ok(files)
    }

    /// Whether a file is among them.
    pub fn has(&self, name: &str) -> bool {
        self.file(name).is_some()
    }

    /// The content of a file, if it is among them.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        self.files.iter().find(|(file, _)| *file == name).map(|(_, bytes)| &bytes[..])
    }
}

/// Names and contents.
pub(crate) type Files = Vec<(&'static str, Vec<u8>)>;

/// One value for each role.
fn each<T: Default>(mut read: impl FnMut(&str) -> Result<T>) -> Result<[T; 7]> {
    let mut values: [T; 7] = Default::default();
    for (value, (role, _)) in values.iter_mut().zip(ROLES) {
        *value = read(role)?;
    }
    Ok(values)
}

/// A token by name: a string, or an object with its content.
fn named(path: &Path, object: &Map<String, Value>, role: &str) -> Result<Named> {
    let key = format!("{role}_token");
    let Some(value) = object.get(&key) else { return Ok(Named::Nothing) };
    let name = value.get("content").unwrap_or(value);
    match (value, name) {
        (Value::Null, _) => Ok(Named::Nobody),
        (_, Value::String(name)) => Ok(Named::Token(name.clone())),
        _ => {
            let place = format!("{}, {key}", path.display());
            Err(Error::data(place, value, "a token, an object with its content, or null"))
        }
    }
}

/// Tokens by id: a number or a list of them.
fn ids(path: &Path, object: &Map<String, Value>, role: &str) -> Result<Vec<u32>> {
    let key = format!("{role}_token_id");
    let values = match object.get(&key) {
        None | Some(Value::Null) => &[],
        Some(Value::Array(values)) => values.as_slice(),
        Some(value) => std::slice::from_ref(value),
    };
    let mut ids = Vec::new();
    for value in values {
        match value.as_i64() {
            Some(-1) => {}
            Some(id) if u32::try_from(id).is_ok() => ids.push(id as u32),
            _ => {
                let place = format!("{}, {key}", path.display());
                return Err(Error::data(place, value, "the id of a token, a list of them, or null"));
            }
        }
    }
    Ok(ids)
}
