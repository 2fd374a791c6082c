//! The built-in language: readable text without end, whose entropy is known byte by byte.
//!
//! A language is a grammar with a seed's names and facts. Documents are little stories. Each is a chain of choices; a
//! choice is made from a list of weighted words of which none is a prefix of another, so that a text has one reading
//! and the probability of every next byte is exact: the mass of the words that go on with that byte, over the mass of
//! the words that match so far. What a choice depends on is its [`Kind`]: nothing (`local`), a fact of the language
//! (`content`), or what the document said before (`context`). A word that is due is wrong once in a while, drawn from
//! its whole list, so that texts with mistakes, such as a model's own, can be judged too.

mod grammar;
mod judge;
mod kind;
mod stories;
mod table;
mod walk;
mod words;

pub use judge::{Judge, Judged};
pub use kind::{Kind, NEAR, Row, Tally};
pub use table::SURE;

use grammar::Grammar;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use walk::Walk;

/// A language: words, facts and grammar.
#[derive(Debug)]
pub struct Language {
    grammar: Grammar,
}

/// Something that every document of the language agrees on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fact<'g> {
    /// A place.
    pub subject: &'g str,
    /// What is known of it.
    pub relation: &'static str,
    /// The answer.
    pub object: &'g str,
}

impl Default for Language {
    /// The language of seed 0.
    fn default() -> Self {
        Self::new(0)
    }
}

impl Language {
    /// The language of a seed: its names and facts. The grammar is the same for all.
    pub fn new(seed: u64) -> Self {
        Self { grammar: Grammar::new(seed) }
    }

    /// Whole documents, of at least so many bytes together.
    pub fn text(&self, bytes: usize, seed: u64) -> Vec<u8> {
        let mut text = Vec::with_capacity(bytes + 4096);
        let mut documents = self.documents(seed);
        while text.len() < bytes {
            documents.write(&mut text);
        }
        text
    }

    /// Documents without end, each with the blank line that ends it. The text of a seed is the same everywhere.
    pub fn documents(&self, seed: u64) -> Documents<'_> {
        Documents { grammar: &self.grammar, rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// A judge at the beginning of a document.
    pub fn judge(&self) -> Judge<'_> {
        Judge::new(&self.grammar)
    }

    /// All facts.
    pub fn facts(&self) -> impl Iterator<Item = Fact<'_>> {
        let grammar = &self.grammar;
        grammar.facts.iter().enumerate().flat_map(move |(relation, objects)| {
            let names = grammar.tables[grammar.objects(relation)].words();
            let subjects = grammar.tables[grammar.subjects].words();
            let (name, _) = words::RELATIONS[relation];
            let pairs = subjects.iter().zip(objects);
            pairs.map(move |(subject, &object)| Fact { subject, relation: name, object: &names[object] })
        })
    }

    /// Every list that choices are made from.
    pub fn choices(&self) -> impl Iterator<Item = &[Box<str>]> {
        self.grammar.tables.iter().map(|table| table.words())
    }

    /// Where the first whole document of a text begins that may have been cut out of a longer one: after its first
    /// blank line.
    pub fn first_document(text: &[u8]) -> Option<usize> {
        let border = stories::BORDER.as_bytes();
        Some(text.windows(border.len()).position(|window| window == border)? + border.len())
    }
}

/// Documents without end.
#[derive(Debug, Clone)]
pub struct Documents<'g> {
    grammar: &'g Grammar,
    rng: ChaCha8Rng,
}

impl Documents<'_> {
    /// Appends a document.
    pub fn write(&mut self, text: &mut Vec<u8>) {
        let mut walk = Walk::new(self.grammar);
        loop {
            let slot = walk.slot();
            let table = &self.grammar.tables[slot.table];
            let word = table.draw(slot.due, &mut self.rng);
            text.extend_from_slice(table.words()[word].as_bytes());
            if walk.chose(word) {
                return;
            }
        }
    }
}

impl Iterator for Documents<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut text = Vec::with_capacity(2048);
        self.write(&mut text);
        Some(String::from_utf8(text).expect("the words of the language are text"))
    }
}
