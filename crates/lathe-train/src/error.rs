//! What can go wrong between a text and a trained model.

use lathe_model::folder::FolderError;
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
    /// Text, tokens or a checkpoint that is not as it should be: exit code 1.
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
    /// Training that leads nowhere.
    #[error(
        "step {step}: found a loss of {loss}; expected a finite one of at most {highest:.1}, with finite gradients. A lower lr, \
         a longer warmup or a smaller clip may help. {}",
        checkpoint.as_ref().map_or("There is no checkpoint yet".into(), |path| format!("The last good checkpoint is {}", path.display()))
    )]
    Diverged {
        /// Counted from 1.
        step: u32,
        /// Nats per token.
        loss: f32,
        /// The highest loss that counts as training.
        highest: f32,
        /// The last good checkpoint.
        checkpoint: Option<PathBuf>,
    },
    /// A model folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A wrong model or run file.
    #[error(transparent)]
    Model(#[from] lathe_core::Error),
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether settings or a model are wrong, rather than that a run failed.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Setting { .. } => true,
            Self::Model(error) => error.is_usage(),
            Self::Folder(error) => error.is_config(),
            Self::Io { .. } | Self::Data { .. } | Self::Diverged { .. } => false,
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
