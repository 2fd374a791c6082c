//! The one error type of this crate. Each message names the place, the value and what would be accepted.

/// What can be wrong with an architecture, a model file or a space file.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The notation string does not parse.
    #[error("{place}position {position}: found {found}; expected {expected}")]
    Notation {
        /// Where the string stands, with a comma after it; empty where there is only the string.
        place: String,
        /// Character of the string, counted from 1.
        position: usize,
        /// What stands there, shortened.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// The file is not TOML, or not JSON.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// Line, counted from 1.
        line: usize,
        /// Column, counted from 1.
        column: usize,
        /// What the parser says.
        message: String,
    },
    /// A key that nothing reads.
    #[error("{place}: unknown key `{key}`; {}", nearest.as_ref().map_or_else(|| format!("known keys: {known}"), |n| format!("did you mean `{n}`?")))]
    UnknownKey {
        /// Where: a line, or the table.
        place: String,
        /// The key, shortened.
        key: String,
        /// The nearest known key, if one is near.
        nearest: Option<String>,
        /// All known keys.
        known: String,
    },
    /// A key that must be there is not.
    #[error("{place}: `{key}` is missing; expected {expected}")]
    Missing {
        /// Which file or table.
        place: String,
        /// The key.
        key: &'static str,
        /// What would be accepted.
        expected: String,
    },
    /// A value of the wrong type or out of its range.
    #[error("{place}: found {found}; expected {expected}")]
    Value {
        /// The key, with the line where it is known.
        place: String,
        /// The value, shortened.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// Input too long to be what it says it is.
    #[error("{what} is longer than {limit} bytes, the most that are read", limit = crate::MAX_TEXT)]
    TooLong {
        /// What the text is.
        what: &'static str,
    },
}

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error about a value, which is shortened.
    pub fn value(place: impl Into<String>, found: impl ToString, expected: impl Into<String>) -> Self {
        Self::Value { place: place.into(), found: shorten(&found.to_string()), expected: expected.into() }
    }

    /// Whether it is wrong usage rather than a run that failed: all of these are.
    pub fn is_usage(&self) -> bool {
        true
    }

    /// The same error with what contains its place named before it.
    pub fn at(mut self, outer: &str) -> Self {
        match &mut self {
            Self::Notation { place, .. } | Self::Value { place, .. } => *place = format!("{outer}, {place}"),
            Self::Missing { place, .. } => *place = outer.into(),
            Self::Syntax { .. } | Self::UnknownKey { .. } | Self::TooLong { .. } => {}
        }
        self
    }

    /// A key that is none of the known ones.
    pub fn unknown_key(place: impl Into<String>, key: &str, known: &[&str]) -> Self {
        Self::UnknownKey {
            place: place.into(),
            key: shorten(key),
            nearest: nearest(key, known.iter().copied()),
            known: match known.len().checked_sub(MAX_LISTED) {
                Some(more @ 1..) => format!("{} and {more} more", known[..MAX_LISTED].join(", ")),
                _ => known.join(", "),
            },
        }
    }
}

/// The most keys that an error lists.
const MAX_LISTED: usize = 24;

/// Cuts what came from outside so that an error stays one short line.
pub fn shorten(text: &str) -> String {
    const MAX: usize = 40;
    let mut out: String = text.chars().take(MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(MAX).is_some() {
        out.push('…');
    }
    out
}

/// The candidate nearest to `word` by edit distance, if it is near enough to be meant.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    if word.len() > 64 {
        return None;
    }
    candidates
        .into_iter()
        .map(|c| (strsim::levenshtein(word, c), c))
        .filter(|&(distance, c)| distance <= c.len().max(3) / 3 + 1)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, c)| c.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_typos_and_leaves_strangers_alone() {
        let keys = ["d_model", "d_head", "d_embed", "vocab"];
        assert_eq!(nearest("d_modle", keys).as_deref(), Some("d_model"));
        assert_eq!(nearest("vocabulary_size", keys), None);
        assert_eq!(nearest("dmodel", keys).as_deref(), Some("d_model"));
    }

    #[test]
    fn long_and_strange_input_is_shortened() {
        let text = shorten(&"x\u{0}".repeat(1000));
        assert!(text.chars().count() <= 41 && text.ends_with('…'));
    }
}
