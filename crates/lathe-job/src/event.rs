//! What a job tells while it runs. A front end turns it into bars, lines, messages of a server, or nothing.

use std::path::Path;

/// Something that happened in a job.
pub enum Event<'a> {
    /// A stage of a job with several begins.
    Stage {
        /// Counted from 1.
        number: u32,
        /// How many there are.
        of: u32,
        /// What it does.
        what: String,
    },
    /// A part of a stage begins.
    Part(String),
    /// So many steps of something are done.
    Steps {
        /// Of what.
        what: &'a str,
        /// More about it; may be empty.
        note: &'a str,
        /// Steps done.
        done: u64,
        /// Of so many.
        total: u64,
    },
    /// So many bytes of something are done.
    Bytes {
        /// Of what.
        what: &'a str,
        /// Bytes done.
        done: u64,
        /// Of so many; 0 where that is not known.
        total: u64,
    },
    /// More about what the last [`Self::Steps`] or [`Self::Bytes`] was of.
    Note(&'a str),
    /// What the last of those was of has ended.
    Done,
    /// A training run.
    Training(lathe_train::run::Event<'a>),
    /// A differentiable search.
    Searching(lathe_search::differentiable::run::Event<'a>),
    /// Something worth a line.
    Message(String),
    /// Something that the user should know.
    Warning(String),
    /// Other processes took so large a share of the cores that measurements are in doubt.
    Busy(f64),
    /// A file that was asked for is written.
    Wrote(&'a Path),
}

/// Receives events.
pub type Watch<'a> = &'a mut dyn FnMut(Event<'_>);

/// Steps without a note.
pub(crate) fn steps<'a>(what: &'a str, done: usize, total: usize) -> Event<'a> {
    Event::Steps { what, note: "", done: done as u64, total: total as u64 }
}
