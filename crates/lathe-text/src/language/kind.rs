//! What the bytes of the language depend on, and the sums of bits per kind.

use super::judge::Judged;

/// Farthest mention, in bytes, that counts as near.
pub const NEAR: usize = 128;

/// What a byte depends on. All bytes of a word are of the kind of the choice that the word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Spelling, grammar, and choices that nothing determines.
    Local,
    /// A fact that holds throughout the language.
    Content,
    /// Something that was last named at most [`NEAR`] bytes before, in the same document.
    ContextNear,
    /// Something that was last named farther back, in the same document.
    ContextFar,
}

impl Kind {
    /// All kinds, in the order of tables.
    pub const ALL: [Kind; 4] = [Kind::Local, Kind::Content, Kind::ContextNear, Kind::ContextFar];

    /// The name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Local => "local",
            Kind::Content => "content",
            Kind::ContextNear => "context_near",
            Kind::ContextFar => "context_far",
        }
    }

    pub(super) fn of_distance(bytes: usize) -> Self {
        if bytes <= NEAR { Kind::ContextNear } else { Kind::ContextFar }
    }
}

/// Sums of bits per kind: those that a model paid, and those that the language itself costs.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    sums: [Sum; Kind::ALL.len()],
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    bytes: u64,
    model: f64,
    language: f64,
}

/// A row of a tally.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Row {
    /// A kind's name, or `context` (near and far) or `total`.
    pub kind: &'static str,
    /// How many bytes.
    pub bytes: u64,
    /// Their share of all bytes.
    pub share: f64,
    /// Bits per byte of this kind that the model paid.
    pub model: f64,
    /// Bits per byte of this kind with the true probabilities.
    pub language: f64,
    /// What the model paid too much.
    pub difference: f64,
}

impl Tally {
    /// Adds a byte, with -log2 of the probability that a model gave it.
    pub fn add(&mut self, judged: &Judged, model_bits: f64) {
        let sum = &mut self.sums[judged.kind as usize];
        sum.bytes += 1;
        sum.model += model_bits;
        sum.language += judged.bits;
    }

    /// A row per kind, then `context` and `total`. A kind without bytes has zeros.
    pub fn rows(&self) -> Vec<Row> {
        let kinds = Kind::ALL.map(|kind| self.row(kind.name(), &[kind]));
        let sums = [self.row("context", &[Kind::ContextNear, Kind::ContextFar]), self.row("total", &Kind::ALL)];
        kinds.into_iter().chain(sums).collect()
    }

    fn row(&self, name: &'static str, kinds: &[Kind]) -> Row {
        let mut sum = Sum::default();
        for &kind in kinds {
            let part = self.sums[kind as usize];
            sum.bytes += part.bytes;
            sum.model += part.model;
            sum.language += part.language;
        }
        let all: u64 = self.sums.iter().map(|part| part.bytes).sum();
        let per = |x: f64, n: u64| if n == 0 { 0.0 } else { x / n as f64 };
        let (model, language) = (per(sum.model, sum.bytes), per(sum.language, sum.bytes));
        let share = per(sum.bytes as f64, all);
        Row { kind: name, bytes: sum.bytes, share, model, language, difference: model - language }
    }
}
