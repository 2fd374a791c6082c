//! Reads a text of the language byte by byte and says what each byte is and what it truly costs.

use super::grammar::Grammar;
use super::kind::Kind;
use super::table::{Cursor, WordTrie};
use super::walk::{Slot, Walk};
use crate::{Error, Result};

/// Reads texts of a language, from the beginning of a document, over any number of documents.
#[derive(Debug, Clone)]
pub struct Judge<'g> {
    grammar: &'g Grammar,
    walk: Walk<'g>,
    slot: Slot,
    /// The table of the slot.
    table: &'g WordTrie,
    cursor: Cursor,
    /// Bytes read.
    offset: u64,
}

/// What a byte is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// What it depends on.
    pub kind: Kind,
    /// -log2 of its probability, given all bytes before it.
    pub bits: f64,
    /// Entropy, in bits, of the next byte before it was seen.
    pub entropy: f64,
    /// In context: bytes since what is due was last named, from first byte to first byte.
    pub distance: Option<usize>,
}

impl<'g> Judge<'g> {
    pub(super) fn new(grammar: &'g Grammar) -> Self {
        let walk = Walk::new(grammar);
        let slot = walk.slot();
        let table = &grammar.tables[slot.table];
        Self { grammar, walk, slot, table, cursor: table.start(slot.due), offset: 0 }
    }

    /// Reads a byte. One that the language cannot go on with is an error and leaves the judge as it was.
    pub fn push(&mut self, byte: u8) -> Result<Judged> {
        let Some(taken) = self.table.take(&mut self.cursor, byte) else {
            return Err(self.unexpected(byte));
        };
        let Slot { kind, distance, .. } = self.slot;
        self.offset += 1;
        if let Some(word) = taken.word {
            self.walk.chose(word);
            self.slot = self.walk.slot();
            self.table = &self.grammar.tables[self.slot.table];
            self.cursor = self.table.start(self.slot.due);
        }
        Ok(Judged { kind, bits: taken.bits, entropy: taken.entropy, distance })
    }

    /// The probability of every next byte.
    pub fn probabilities(&self) -> [f64; 256] {
        let mut all = [0.0; 256];
        for (byte, p) in self.table.chances(&self.cursor) {
            all[usize::from(byte)] = p;
        }
        all
    }

    fn unexpected(&self, byte: u8) -> Error {
        let chances = self.table.chances(&self.cursor);
        let bytes: Vec<String> = chances.map(|(byte, _)| quoted(byte)).collect();
        Error::data(format!("byte {} of the text", self.offset), quoted(byte), bytes.join(" or "))
    }
}

fn quoted(byte: u8) -> String {
    format!("'{}'", byte.escape_ascii())
}
