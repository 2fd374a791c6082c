//! From a string to blocks. Iterative, so depth costs no stack; sizes are checked before they are built.

use crate::error::{nearest, shorten};
use crate::{Block, BlockKind, Domain, Error, Knob, MAX_BLOCKS, MAX_TEXT, Registry, Result};

/// The deepest nesting of groups.
const MAX_DEPTH: usize = 64;

/// Longer than any key, so that a long run of letters is not read again for each of them.
const MAX_WORD: usize = 64;

/// Parses a stack of 1 to [`MAX_BLOCKS`] blocks.
pub fn parse(text: &str, registry: &Registry) -> Result<Vec<Block>> {
    if text.len() > MAX_TEXT {
        return Err(Error::TooLong { what: "layers" });
    }
    Parser { text, at: 0, registry, blocks: Vec::new(), open: Vec::new() }.run()
}

struct Parser<'a> {
    text: &'a str,
    /// Byte offset of the next character.
    at: usize,
    registry: &'a Registry,
    blocks: Vec<Block>,
    /// For each open group: where it opened, and how many blocks stood before it.
    open: Vec<(usize, usize)>,
}

impl<'a> Parser<'a> {
    fn run(mut self) -> Result<Vec<Block>> {
        loop {
            self.skip_space();
            match self.peek() {
                None => break,
                Some('(') => self.open_group()?,
                Some(')') => self.close_group()?,
                Some(_) => self.block()?,
            }
        }
        if let Some(&(opened, _)) = self.open.last() {
            return Err(self.error(opened, "a group that is never closed", "`)xN` after it"));
        }
        if self.blocks.is_empty() {
            return Err(self.error(0, "no block", self.item_expected()));
        }
        Ok(self.blocks)
    }

    fn open_group(&mut self) -> Result<()> {
        if self.open.len() == MAX_DEPTH {
            let found = format!("a group inside {MAX_DEPTH} others");
            return Err(self.error(self.at, &found, format!("at most {MAX_DEPTH} levels of groups")));
        }
        self.open.push((self.at, self.blocks.len()));
        self.at += 1;
        Ok(())
    }

    fn close_group(&mut self) -> Result<()> {
        let Some((opened, start)) = self.open.pop() else {
            return Err(self.error(self.at, "`)`", "a block, or `(` before it"));
        };
        if self.blocks.len() == start {
            return Err(self.error(opened, "an empty group", self.item_expected()));
        }
        self.at += 1;
        self.skip_space();
        let expected = format!("`xN` with N from 1 to {MAX_BLOCKS}");
        if self.peek() != Some('x') {
            return Err(self.error_here(expected));
        }
        self.at += 1;
        self.skip_space();
        let number_at = self.at;
        let Some(digits) = self.digits() else { return Err(self.error_here(expected)) };
        let count = match digits.parse::<usize>() {
            Ok(count) if (1..=MAX_BLOCKS).contains(&count) => count,
            _ => return Err(self.error(number_at, digits, expected)),
        };
        let total = start + (self.blocks.len() - start) * count;
        self.check_size(opened, total)?;
        self.blocks.reserve(total - self.blocks.len());
        let end = self.blocks.len();
        for _ in 1..count {
            self.blocks.extend_from_within(start..end);
        }
        Ok(())
    }

    fn block(&mut self) -> Result<()> {
        let start = self.at;
        let word = self.word();
        let block = if let Some(kind) = self.registry.block(word) {
            self.at += word.len();
            self.long_form(kind)?
        } else if let Some(kind) = self.peek().and_then(|c| self.registry.letter(c)) {
            self.at += 1;
            self.short_form(kind)?
        } else {
            return Err(self.unknown_block(word));
        };
        self.check_size(start, self.blocks.len() + 1)?;
        self.blocks.push(block);
        Ok(())
    }

    /// `s4d64`: the letter is read; its knobs follow, in their order, each optional.
    fn short_form(&mut self, kind: &'static dyn BlockKind) -> Result<Block> {
        let mut block = Block::new(kind);
        for (i, knob) in kind.knobs().iter().enumerate() {
            let Some(mark) = knob.mark else { continue };
            if !self.text[self.at..].starts_with(mark) {
                continue;
            }
            let number_at = self.at + mark.len();
            if mark.is_empty() && !self.text[number_at..].starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            self.at = number_at;
            block.set(i, self.knob_value(kind, knob)?);
        }
        Ok(block)
    }

    /// `attention{heads=4,d_head=64}`: the key is read; the braces are optional.
    fn long_form(&mut self, kind: &'static dyn BlockKind) -> Result<Block> {
        let mut block = Block::new(kind);
        let after_key = self.at;
        self.skip_space();
        if self.peek() != Some('{') {
            self.at = after_key;
            return Ok(block);
        }
        self.at += 1;
        self.skip_space();
        if self.peek() == Some('}') {
            self.at += 1;
            return Ok(block);
        }
        loop {
            self.skip_space();
            let name_at = self.at;
            let name = self.word();
            let knobs = kind.knobs();
            let Some(i) = knobs.iter().position(|knob| knob.name == name) else {
                let names: Vec<_> = knobs.iter().map(|knob| knob.name).collect();
                return Err(self.error_here(match names.is_empty() {
                    true => format!("`}}`: {} has no knobs", kind.key()),
                    false => format!("a knob of {} ({})", kind.key(), names.join(", ")),
                }));
            };
            self.at += name.len();
            if block.get(i).is_some() {
                return Err(self.error(name_at, &format!("`{name}` a second time"), "each knob once"));
            }
            self.skip_space();
            if self.peek() != Some('=') {
                return Err(self.error_here(format!("`=` after `{name}`")));
            }
            self.at += 1;
            self.skip_space();
            block.set(i, self.knob_value(kind, &knobs[i])?);
            self.skip_space();
            match self.peek() {
                Some(',') => self.at += 1,
                Some('}') => {
                    self.at += 1;
                    return Ok(block);
                }
                _ => return Err(self.error_here("`,` or `}`")),
            }
        }
    }

    fn knob_value(&mut self, kind: &dyn BlockKind, knob: &Knob) -> Result<u32> {
        let start = self.at;
        let expected = || format!("{} for {} of {}", knob.domain.expected(), knob.name, kind.key());
        let (found, value) = match knob.domain {
            Domain::Int { .. } => {
                let Some(digits) = self.digits() else { return Err(self.error_here(expected())) };
                (digits, digits.parse().ok())
            }
            Domain::Flag => {
                let word = self.word();
                self.at += word.len();
                (word, word.parse::<bool>().ok().map(u32::from))
            }
            Domain::Word(words) => {
                let word = self.word();
                self.at += word.len();
                (word, words.iter().position(|known| *known == word).map(|index| index as u32))
            }
        };
        match value {
            Some(value) if knob.domain.contains(value) => Ok(value),
            _ => Err(self.error(start, &format!("`{}`", shorten(found)), expected())),
        }
    }

    fn check_size(&self, at: usize, blocks: usize) -> Result<()> {
        if blocks > MAX_BLOCKS {
            return Err(self.error(at, &format!("{blocks} blocks up to here"), format!("at most {MAX_BLOCKS}")));
        }
        Ok(())
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    /// The run of lower-case letters, digits and `_` that starts here, as far as a key could go. Not consumed.
    fn word(&self) -> &'a str {
        let rest = &self.text[self.at..];
        let part = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == b'_';
        &rest[..rest.bytes().take(MAX_WORD).take_while(part).count()]
    }

    /// Consumes the run of digits that starts here; `None` where there is none.
    fn digits(&mut self) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        self.at += end;
        (end > 0).then(|| &rest[..end])
    }

    fn item_expected(&self) -> String {
        let letters = self.registry.blocks.iter().filter_map(|kind| kind.letter()).map(String::from);
        let keys = self.registry.blocks.iter().map(|kind| kind.key().to_string());
        format!("a block ({}) or a group `(...)xN`", letters.chain(keys).collect::<Vec<_>>().join(", "))
    }

    fn unknown_block(&self, word: &str) -> Error {
        match nearest(word, self.registry.blocks.iter().map(|kind| kind.key())) {
            Some(key) if word.len() > 2 => self.error_here(format!("{}; did you mean `{key}`?", self.item_expected())),
            _ => self.error_here(self.item_expected()),
        }
    }

    /// An error at the next character, which is what was found.
    fn error_here(&self, expected: impl Into<String>) -> Error {
        let word = self.word();
        let found = match self.peek() {
            None => "the end".into(),
            Some(_) if word.len() > 1 => format!("`{}`", shorten(word)),
            Some(c) => format!("`{}`", shorten(&c.to_string())),
        };
        self.error(self.at, &found, expected)
    }

    fn error(&self, at: usize, found: &str, expected: impl Into<String>) -> Error {
        let position = self.text[..at].chars().count() + 1;
        Error::Notation { place: String::new(), position, found: shorten(found), expected: expected.into() }
    }
}
