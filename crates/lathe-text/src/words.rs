//! How tokens make words: which of them go on with the word that the one before them began.

use crate::Tokenizer;

/// What the tokens of words begin with where a space was before them, in byte-level BPE and in SentencePiece.
const SPACES: [char; 2] = ['\u{120}', '\u{2581}'];
/// What those begin with that go on with a word, in WordPiece.
const INSIDE: &str = "##";

/// How the tokens of a tokenizer make words.
#[derive(Debug, Clone)]
pub struct Words {
    /// Whether a token may go on with a word.
    inside: Vec<bool>,
    /// Whether the one before it has to be such a token too.
    both: bool,
}

impl Words {
    /// Of a tokenizer: by the marks of its vocabulary where it has any, else runs of letters and digits are words.
    pub fn of(tokenizer: &Tokenizer) -> Self {
        let tokens: Vec<String> = (0..tokenizer.vocab()).map(|id| tokenizer.token(id).unwrap_or_default()).collect();
        let longer = |token: &&String| token.chars().nth(1).is_some();
        // Either kind of vocabulary may have a few tokens that look like the other's, such as `####`.
        let spaced = tokens.iter().filter(longer).filter(|token| token.starts_with(SPACES)).count();
        let marked = tokens.iter().filter(|token| token.len() > INSIDE.len() && token.starts_with(INSIDE)).count();
        if marked > spaced {
            return Self { inside: tokens.iter().map(|token| token.starts_with(INSIDE)).collect(), both: false };
        }
        if spaced > 0 {
            return Self { inside: tokens.iter().map(|token| !token.starts_with(SPACES)).collect(), both: false };
        }
        let of_word = |id: u32| match tokenizer {
            Tokenizer::Bytes => id >= 128 || u8::try_from(id).is_ok_and(|byte| byte.is_ascii_alphanumeric()),
            Tokenizer::Hf(_) => tokens[id as usize].chars().all(char::is_alphanumeric),
        };
        Self { inside: (0..tokenizer.vocab()).map(of_word).collect(), both: true }
    }

    /// Whether a token goes on with the word of the one before it.
    pub fn joins(&self, before: u32, token: u32) -> bool {
        let inside = |token: u32| self.inside.get(token as usize).is_some_and(|&inside| inside);
        inside(token) && (!self.both || inside(before))
    }
}
