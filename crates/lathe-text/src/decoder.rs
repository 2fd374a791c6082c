//! Text as its tokens come, one at a time, in whole characters.

use crate::tokenizer::Tokenizer;

/// Turns tokens into text as soon as its characters are whole.
#[derive(Debug)]
pub struct Decoder<'a> {
    tokenizer: &'a Tokenizer,
    /// Tokens whose text was given last, for what comes may depend on them, and those that wait.
    ids: Vec<u32>,
    given: usize,
    /// Bytes that wait for the rest of their character, where tokens are bytes.
    bytes: Vec<u8>,
}

impl Tokenizer {
    /// A decoder for a text that begins.
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder { tokenizer: self, ids: Vec::new(), given: 0, bytes: Vec::new() }
    }
}

impl Decoder<'_> {
    /// Takes a token; returns the text that is whole by now.
    pub fn push(&mut self, id: u32) -> Option<String> {
        match self.tokenizer {
            Tokenizer::Bytes => {
                self.bytes.push(id.try_into().ok()?);
                let text = take_whole(&mut self.bytes);
                (!text.is_empty()).then_some(text)
            }
            Tokenizer::Hf(_) => {
                self.ids.push(id);
                self.take(false)
            }
        }
    }

    /// What is left at the end, though it may be no whole character.
    pub fn finish(mut self) -> Option<String> {
        match self.tokenizer {
            Tokenizer::Bytes if self.bytes.is_empty() => None,
            Tokenizer::Bytes => Some(String::from_utf8_lossy(&self.bytes).into_owned()),
            Tokenizer::Hf(_) => self.take(true),
        }
    }

    /// The text of what waits: that of all tokens without that of those given before.
    fn take(&mut self, all: bool) -> Option<String> {
        let before = self.tokenizer.decode(&self.ids[..self.given]);
        let text = self.tokenizer.decode(&self.ids);
        // A character that is not whole yet ends in U+FFFD.
        if !all && text.ends_with('\u{fffd}') {
            return None;
        }
        let new = text.strip_prefix(&before)?.to_string();
        self.ids.drain(..self.given);
        self.given = self.ids.len();
        (!new.is_empty()).then_some(new)
    }
}

/// Takes the characters that are whole; what can be no character becomes U+FFFD.
fn take_whole(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    loop {
        match std::str::from_utf8(bytes) {
            Ok(whole) => {
                text += whole;
                bytes.clear();
                return text;
            }
            Err(error) => {
                text += std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
                let Some(wrong) = error.error_len() else {
                    bytes.drain(..error.valid_up_to());
                    return text;
                };
                text.push('\u{fffd}');
                bytes.drain(..error.valid_up_to() + wrong);
            }
        }
    }
}
