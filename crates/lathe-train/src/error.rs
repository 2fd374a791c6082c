//! What can go wrong between a text and a trained model.

use lathe_core::Fault;
use lathe_model::folder::FolderError;
use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, text, tokens, a checkpoint or a setting.
    #[error(transparent)]
    Fault(#[from] Fault),
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
            Self::Fault(fault) => fault.is_usage(),
            Self::Model(error) => error.is_usage(),
            Self::Folder(error) => error.is_config(),
            Self::Diverged { .. } => false,
        }
    }
}

lathe_core::fault_constructors!(Error);
