//! From a context and what goes on after it to tokens, as lm-eval's `_encode_pair` has it.
//!
//! White space at the end of the context goes over to the continuation. Both are encoded as one text; as many tokens as
//! the context alone has are context, the rest is scored. What the tokenizer puts before a text stands before it, and
//! what is too long loses tokens at its beginning.

use super::score::Text;
use crate::Result;
use lathe_text::Tokenizer;

pub(super) struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    /// Before every text.
    begin: Option<u32>,
    /// Before a continuation without a context.
    alone: Vec<u32>,
    /// Tokens that the model looks at.
    window: usize,
}

impl<'a> Encoder<'a> {
    pub fn new(tokenizer: &'a Tokenizer, window: usize) -> Result<Self> {
        let begin = tokenizer.begin()?;
        let specials = tokenizer.specials();
        let alone = match begin.or(specials.bos).or(specials.eos) {
            Some(token) => vec![token],
            None => tokenizer.encode("\n")?,
        };
        Ok(Self { tokenizer, begin, alone, window })
    }

    /// The tokens of a text, and how many of them, at its end, are scored.
    pub fn text(&self, context: &str, continuation: &str) -> Result<Text> {
        let inside = context.trim_end_matches(is_space);
        let whole = self.tokenizer.encode(format!("{context}{continuation}"))?;
        let mut ids: Vec<u32> = self.begin.into_iter().collect();
        match inside {
            "" => ids = self.alone.clone(),
            inside => ids.extend(self.tokenizer.encode(inside)?),
        }
        let before = if inside.is_empty() { 0 } else { ids.len() - usize::from(self.begin.is_some()) };
        let rest = whole.get(before..).unwrap_or_default();
        ids.extend(rest);
        // The model does not look at the last token.
        let most = self.window.saturating_add(1);
        let truncated = ids.len() > most;
        let ids = ids.split_off(ids.len().saturating_sub(most));
        Ok(Text { scored: rest.len().min(ids.len() - 1), ids, truncated })
    }
}

/// What Python calls white space.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(context: &str, continuation: &str, window: usize) -> (String, usize, bool) {
        let text = Encoder::new(&Tokenizer::Bytes, window).and_then(|encoder| encoder.text(context, continuation));
        let text = text.expect("bytes");
        (Tokenizer::Bytes.decode(&text.ids), text.scored, text.truncated)
    }

    #[test]
    fn white_space_goes_over_to_what_is_scored() {
        assert_eq!(text("a b", " c", 100), ("a b c".into(), 2, false));
        assert_eq!(text("a b \n\x1f", " c", 100), ("a b \n\x1f c".into(), 5, false));
        assert_eq!(text("", "c", 100), ("\nc".into(), 1, false));
        assert_eq!(text(" ", "c", 100), ("\n c".into(), 2, false));
    }

    #[test]
    fn what_is_too_long_loses_its_beginning() {
        assert_eq!(text("abcd", "ef", 5), ("abcdef".into(), 2, false));
        assert_eq!(text("abcd", "ef", 3), ("cdef".into(), 2, true));
        assert_eq!(text("abcd", "efgh", 3), ("efgh".into(), 3, true));
    }
}
