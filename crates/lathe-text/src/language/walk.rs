//! Where a text is in the grammar, as the text so far says. Writing and judging share it, so they cannot disagree.

use super::grammar::{Grammar, Source};
use super::kind::Kind;

/// A choice that is to be made next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    /// Index of the table.
    pub table: usize,
    /// The word that the text so far, or a fact, makes due.
    pub due: Option<usize>,
    pub kind: Kind,
    /// Bytes since the last mention of what is recalled, from first byte to first byte.
    pub distance: Option<usize>,
}

#[derive(Debug, Clone)]
pub(super) struct Walk<'g> {
    grammar: &'g Grammar,
    /// The sentence and how many of its parts are done; `None` where a document begins.
    sentence: Option<(usize, usize)>,
    /// Per register: the word, and where in the document it was last mentioned.
    held: Vec<Option<(usize, usize)>>,
    /// The last place named, a word of the table of subjects.
    subject: Option<usize>,
    /// Bytes of the document so far.
    at: usize,
}

impl<'g> Walk<'g> {
    /// At the beginning of a document.
    pub fn new(grammar: &'g Grammar) -> Self {
        Self { grammar, sentence: None, held: vec![None; grammar.registers.len()], subject: None, at: 0 }
    }

    /// The choice at hand.
    pub fn slot(&self) -> Slot {
        let free = |table| Slot { table, due: None, kind: Kind::Local, distance: None };
        let Some((sentence, done)) = self.sentence else { return free(self.grammar.first) };
        let sentence = &self.grammar.sentences[sentence];
        let Some(part) = sentence.parts.get(done) else { return free(sentence.next) };
        match part.source {
            Source::Free | Source::Remember(_) => free(part.table),
            Source::Recall(register) => {
                let (word, mention) = self.held[register].expect("sentences recall only what was remembered");
                let distance = self.at - mention;
                Slot { table: part.table, due: Some(word), kind: Kind::of_distance(distance), distance: Some(distance) }
            }
            Source::Fact(relation) => {
                let subject = self.subject.expect("a place is named before what is known of it");
                let object = self.grammar.facts[relation][subject];
                Slot { table: part.table, due: Some(object), kind: Kind::Content, distance: None }
            }
        }
    }

    /// Goes on with a word of the table at hand; true if it ended the document.
    pub fn chose(&mut self, word: usize) -> bool {
        let grammar = self.grammar;
        let Some((index, done)) = self.sentence else {
            self.open(grammar.first, word);
            return false;
        };
        let sentence = &grammar.sentences[index];
        let Some(part) = sentence.parts.get(done) else {
            self.open(sentence.next, word);
            return false;
        };
        match part.source {
            Source::Remember(register) => self.held[register] = Some((word, self.at)),
            // A wrong word is no mention: what was remembered stays.
            Source::Recall(register) => {
                if let Some((held, mention)) = &mut self.held[register]
                    && *held == word
                {
                    *mention = self.at;
                }
            }
            Source::Free | Source::Fact(_) => {}
        }
        if part.table == grammar.subjects {
            self.subject = Some(word);
        }
        self.at += grammar.tables[part.table].words()[word].len();
        self.sentence = Some((index, done + 1));
        let ended = done + 1 == sentence.parts.len() && sentence.next == grammar.first;
        if ended {
            self.sentence = None;
            self.held.fill(None);
            self.subject = None;
            self.at = 0;
        }
        ended
    }

    fn open(&mut self, table: usize, word: usize) {
        self.at += self.grammar.tables[table].words()[word].len();
        self.sentence = Some((self.grammar.opens[table][word], 0));
    }
}
