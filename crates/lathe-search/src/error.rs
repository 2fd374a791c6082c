//! What can go wrong in profiling and searching.

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that could not be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// A table, a record or a measurement that is not as it should be: exit code 1.
    #[error("{place}: found {found}; expected {expected}")]
    Data {
        /// File, and where in it.
        place: String,
        /// What is there.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// A setting that is not accepted: exit code 2.
    #[error("{place}: found {found}; expected {expected}")]
    Setting {
        /// Flag or key.
        place: String,
        /// What was given.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// Training.
    #[error(transparent)]
    Train(Box<lathe_train::Error>),
    /// A wrong model or space.
    #[error(transparent)]
    Model(#[from] lathe_core::Error),
    /// A composed graph.
    #[error("the graph of a model: {0}")]
    Graph(Box<candle_core::Error>),
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<lathe_train::Error> for Error {
    fn from(error: lathe_train::Error) -> Self {
        Self::Train(Box::new(error))
    }
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Self::Graph(Box::new(error))
    }
}

impl Error {
    /// Whether settings or a model are wrong, rather than that a run failed.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Setting { .. } => true,
            Self::Model(error) => error.is_usage(),
            Self::Train(error) => error.is_usage(),
            Self::Io { .. } | Self::Data { .. } | Self::Graph(_) => false,
        }
    }

    /// An error of the system at a file.
    pub fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        |error| Self::Io { path, error }
    }

    /// Data that is not as it should be.
    pub fn data(place: impl Display, found: impl Display, expected: impl Display) -> Self {
        Self::Data { place: place.to_string(), found: found.to_string(), expected: expected.to_string() }
    }

    /// A setting that is not accepted.
    pub fn setting(place: impl Display, found: impl Display, expected: impl Display) -> Self {
        Self::Setting { place: place.to_string(), found: found.to_string(), expected: expected.to_string() }
    }
}
