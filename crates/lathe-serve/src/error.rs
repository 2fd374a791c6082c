//! What can go wrong before anything is served. Errors of requests are answers, in `http`.

use lathe_model::folder::FolderError;
use std::net::SocketAddr;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or a setting.
    #[error(transparent)]
    Fault(#[from] lathe_core::Fault),
    /// A model folder.
    #[error(transparent)]
    Folder(Box<FolderError>),
    /// An address that cannot be listened on.
    #[error("{address}: {error}; expected an address of this machine with a free port")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// A template that is none.
    #[error("{place}: found {found}; expected a template of conversations in Jinja")]
    Template {
        /// Which file.
        place: String,
        /// What is wrong with it.
        found: String,
    },
}

impl From<FolderError> for Error {
    fn from(error: FolderError) -> Self {
        Self::Folder(Box::new(error))
    }
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
