//! The grammar, ready for use: every table that a choice is made from, and the order in which choices come.

use super::stories::{BORDER, EIGHTHS, STAGES};
use super::table::{WordTrie, below};
use super::words::{RELATIONS, SUBJECT, lists};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// What a choice may be determined by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Nothing: a free choice, or a text without a choice.
    Free,
    /// A free choice that is remembered in a register.
    Remember(usize),
    /// What a register holds.
    Recall(usize),
    /// A relation of the last place named.
    Fact(usize),
}

/// One choice of a sentence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// Index of the table.
    pub table: usize,
    pub source: Source,
}

/// A sentence after its opening, which the choice of the sentence has written already.
#[derive(Debug)]
pub(super) struct Sentence {
    pub parts: Vec<Part>,
    /// The table that the next sentence's opening is chosen from.
    pub next: usize,
}

/// The text that a sentence opens with, and which sentence.
type Opening = (&'static str, usize);

/// Tables, sentences and facts of a language.
#[derive(Debug, Default)]
pub(super) struct Grammar {
    pub tables: Vec<WordTrie>,
    pub sentences: Vec<Sentence>,
    /// Per table of openings: per word of it, which sentence it opens. Empty for other tables.
    pub opens: Vec<Vec<usize>>,
    /// The table of the first openings of a document.
    pub first: usize,
    /// The names of the registers.
    pub registers: Vec<&'static str>,
    /// The table of the subjects of facts.
    pub subjects: usize,
    /// Per relation, per subject: the object, a word of the relation's table.
    pub facts: Vec<Vec<usize>>,
    /// The tables of the lists, by name.
    names: Vec<(&'static str, usize)>,
    /// Per register: the table of its words.
    registered: Vec<usize>,
}

impl Grammar {
    pub fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut grammar = Self::default();
        for (name, words) in lists(&mut rng) {
            let table = grammar.add(words);
            grammar.names.push((name, table));
        }
        grammar.subjects = grammar.named(SUBJECT);
        for &(_, list) in RELATIONS {
            let objects = grammar.tables[grammar.named(list)].words().len() as u64;
            let subjects = grammar.tables[grammar.subjects].words().len();
            grammar.facts.push((0..subjects).map(|_| below(objects, &mut rng) as usize).collect());
        }
        grammar.add_stages();
        grammar
    }

    /// Adds a table. The lists are compiled in, and tests build languages of many seeds, so a wrong one cannot come.
    fn add(&mut self, words: impl IntoIterator<Item = (String, u64)>) -> usize {
        self.tables.push(WordTrie::new(words).expect("no word of a list is a prefix of another"));
        self.opens.push(Vec::new());
        self.tables.len() - 1
    }

    /// The table of a list.
    pub fn named(&self, list: &str) -> usize {
        let found = self.names.iter().find(|(name, _)| *name == list);
        found.unwrap_or_else(|| panic!("sentences name only lists that exist; no list {list}")).1
    }

    /// The table of the objects of a relation.
    pub fn objects(&self, relation: usize) -> usize {
        self.named(RELATIONS[relation].1)
    }

    fn add_stages(&mut self) {
        // Per stage: its sentences with their openings.
        let mut stages: Vec<Vec<Opening>> = Vec::new();
        for (index, stage) in STAGES.iter().enumerate() {
            let last = index + 1 == STAGES.len();
            let mut openings = Vec::new();
            for sentence in stage.sentences {
                let (opening, rest) = sentence.split_at(sentence.find(['<', '{', '[']).unwrap_or(sentence.len()));
                let mut parts = self.parts(rest);
                if last {
                    let table = self.add([(BORDER.to_string(), 1)]);
                    parts.push(Part { table, source: Source::Free });
                }
                openings.push((opening, self.sentences.len()));
                self.sentences.push(Sentence { parts, next: 0 });
            }
            stages.push(openings);
        }
        self.first = self.add_openings(&[("", 1, &stages[0])]);
        for (index, stage) in STAGES.iter().enumerate() {
            let next = match stages.get(index + 1) {
                None => self.first,
                Some(after) => {
                    let go = (STAGES[index + 1].before, EIGHTHS - stage.stay, after.as_slice());
                    let stay = (" ", stage.stay, stages[index].as_slice());
                    self.add_openings(&[stay, go])
                }
            };
            for &(_, sentence) in &stages[index] {
                self.sentences[sentence].next = next;
            }
        }
    }

    /// A table of openings: groups with what comes before them, their weight, and openings with their sentences.
    fn add_openings(&mut self, groups: &[(&str, u64, &[Opening])]) -> usize {
        let mut openings: Vec<(String, u64, usize)> = Vec::new();
        // Each group shares its weight among its openings; the product of the sizes keeps that in whole numbers.
        let product: u64 = groups.iter().map(|group| group.2.len() as u64).product();
        for &(before, weight, group) in groups.iter().filter(|group| group.1 > 0) {
            let each = weight * product / group.len() as u64;
            openings.extend(group.iter().map(|&(text, sentence)| (format!("{before}{text}"), each, sentence)));
        }
        openings.sort();
        let table = self.add(openings.iter().map(|(text, weight, _)| (text.clone(), *weight)));
        self.opens[table] = openings.into_iter().map(|opening| opening.2).collect();
        table
    }

    /// The choices of a sentence, from its notation.
    fn parts(&mut self, mut rest: &'static str) -> Vec<Part> {
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let text = rest.find(['<', '{', '[']).unwrap_or(rest.len());
            if text > 0 {
                let table = self.add([(rest[..text].to_string(), 1)]);
                parts.push(Part { table, source: Source::Free });
                rest = &rest[text..];
                continue;
            }
            let end = rest.find(['>', '}', ']']).expect("every bracket of a sentence is closed");
            let (inside, bracket) = (&rest[1..end], rest.as_bytes()[0]);
            rest = &rest[end + 1..];
            parts.push(match bracket {
                b'<' => match inside.split_once('=') {
                    None => Part { table: self.named(inside), source: Source::Free },
                    Some((list, register)) => {
                        let table = self.named(list);
                        Part { table, source: Source::Remember(self.register(register, table)) }
                    }
                },
                b'{' => {
                    let register = self.registers.iter().position(|&name| name == inside);
                    let register = register.expect("a sentence recalls what it or an earlier stage remembered");
                    Part { table: self.registered[register], source: Source::Recall(register) }
                }
                _ => {
                    let relation = RELATIONS.iter().position(|&(name, _)| name == inside);
                    let relation = relation.expect("sentences name only relations that exist");
                    Part { table: self.objects(relation), source: Source::Fact(relation) }
                }
            });
        }
        parts
    }

    fn register(&mut self, name: &'static str, table: usize) -> usize {
        match self.registers.iter().position(|&other| other == name) {
            Some(register) => {
                assert_eq!(self.registered[register], table, "{name} is remembered from one list only");
                register
            }
            None => {
                self.registers.push(name);
                self.registered.push(table);
                self.registers.len() - 1
            }
        }
    }
}
