//! The two kinds of tokenizer that are trained here, encoded without the library's bookkeeping of offsets: the tokens are
//! the same, many times sooner.

use crate::vocabulary;
use regex::Regex;
use std::collections::HashMap;
use std::sync::Mutex;
use tokenizers::{Model, ModelWrapper, NormalizerWrapper, PreTokenizerWrapper};

/// GPT-2's pattern but for its look-ahead: there, a run of white space leaves its last character to what follows.
const PATTERN: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
/// Words that a cache holds before it begins anew, and how long they may be.
const CACHE: usize = 1 << 16;
const LONGEST: usize = 64;

/// A way to encode text.
#[derive(Debug)]
pub(crate) enum Quick {
    /// Byte-level BPE with GPT-2's pattern.
    ByteLevel {
        pattern: Regex,
        /// Tokens that are found before the pattern is tried; text with one goes the long way.
        added: Vec<String>,
        /// One per thread at work; what they hold changes no result.
        caches: Mutex<Vec<Cache>>,
    },
    /// Words between white space.
    Words { vocab: HashMap<String, u32>, end_of_line: u32, unknown: u32 },
}

/// Tokens of words met before.
type Cache = HashMap<Box<str>, Box<[u32]>>;

impl Quick {
    /// The quick way of a tokenizer that is put together like ours.
    pub fn of(tokenizer: &tokenizers::Tokenizer) -> Option<Self> {
        let added: Vec<String> =
            tokenizer.get_added_tokens_decoder().values().map(|token| token.content.clone()).collect();
        let normalizer = tokenizer.get_normalizer();
        match (tokenizer.get_model(), tokenizer.get_pre_tokenizer()) {
            (ModelWrapper::BPE(_), Some(PreTokenizerWrapper::ByteLevel(bytes))) => {
                let is_ours = normalizer.is_none() && bytes.use_regex && !bytes.add_prefix_space;
                is_ours.then_some(Self::ByteLevel { pattern: pattern().ok()?, added, caches: Mutex::default() })
            }
            (ModelWrapper::WordLevel(model), Some(PreTokenizerWrapper::WhitespaceSplit(_))) => {
                let Some(NormalizerWrapper::Replace(lines)) = normalizer else { return None };
                let is_ours = added.is_empty() && *lines == vocabulary::lines_to_words().ok()?;
                let end_of_line = model.token_to_id(vocabulary::END_OF_LINE)?;
                let unknown = model.token_to_id(&model.unk_token)?;
                is_ours.then(|| Self::Words { vocab: model.get_vocab(), end_of_line, unknown })
            }
            _ => None,
        }
    }

    /// Whether a text can go this way.
    pub fn can(&self, text: &str) -> bool {
        match self {
            Self::ByteLevel { added, .. } => !added.iter().any(|token| text.contains(token.as_str())),
            Self::Words { .. } => true,
        }
    }

    /// The tokens of a text.
    pub fn encode(&self, text: &str, tokenizer: &tokenizers::Tokenizer) -> tokenizers::Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        match self {
            Self::ByteLevel { pattern, caches, .. } => {
                let pop = || caches.lock().ok()?.pop();
                let mut cache = pop().unwrap_or_default();
                for piece in pieces(pattern, text) {
                    if let Some(known) = cache.get(piece) {
                        ids.extend_from_slice(known);
                        continue;
                    }
                    let tokens = tokenizer.get_model().tokenize(&byte_characters(piece.as_bytes()))?;
                    let new: Box<[u32]> = tokens.into_iter().map(|token| token.id).collect();
                    ids.extend_from_slice(&new);
                    if piece.len() <= LONGEST {
                        if cache.len() >= CACHE {
                            cache.clear();
                        }
                        cache.insert(piece.into(), new);
                    }
                }
                if let Ok(mut caches) = caches.lock() {
                    caches.push(cache);
                }
            }
            Self::Words { vocab, end_of_line, unknown } => {
                for line in text.split_inclusive('\n') {
                    ids.extend(line.split_whitespace().map(|word| vocab.get(word).unwrap_or(unknown)));
                    if line.ends_with('\n') {
                        ids.push(*end_of_line);
                    }
                }
            }
        }
        Ok(ids)
    }
}

/// Cuts text as GPT-2's pattern does.
pub(crate) fn pieces<'t>(pattern: &Regex, text: &'t str) -> impl Iterator<Item = &'t str> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let found = pattern.find_at(text, at)?;
        let mut end = found.end();
        let piece = found.as_str();
        // `\s+(?!\S)`: more than one character of white space before something else leaves the last one to it.
        if end < text.len()
            && let Some((last, c)) = piece.char_indices().next_back()
            && c.is_whitespace()
            && last > 0
        {
            end = found.start() + last;
        }
        at = end;
        Some(&text[found.start()..end])
    })
}

/// The pattern that [`pieces`] takes.
pub(crate) fn pattern() -> Result<Regex, regex::Error> {
    Regex::new(PATTERN)
}

/// Each byte as the printable character that stands for it in GPT-2's vocabulary.
pub(crate) fn byte_characters(piece: &[u8]) -> String {
    let character = |byte: u8| match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        // The others, in order, from U+0100 on.
        0..=0x20 => char::from_u32(0x100 + u32::from(byte)).unwrap_or_default(),
        0x7f..=0xa0 => char::from_u32(0x121 + u32::from(byte - 0x7f)).unwrap_or_default(),
        0xad => '\u{143}',
    };
    piece.iter().copied().map(character).collect()
}
