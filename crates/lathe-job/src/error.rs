//! What can go wrong in a job. Settings are named as requests name them; a front end knows its own words for them.

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
    /// A file or a measurement that is not as it should be.
    #[error("{place}: found {found}; expected {expected}")]
    Data {
        /// File, and where in it.
        place: String,
        /// What is there.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// A setting that is not accepted.
    #[error("{place}: found {found}; expected {expected}")]
    Setting {
        /// The name of the setting, and its value where that helps.
        place: String,
        /// What was given.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// A setting that is needed.
    #[error("{place} is missing: {expected}")]
    Missing {
        /// The name of the setting.
        place: String,
        /// What would be accepted.
        expected: String,
    },
    /// A request that means nothing.
    #[error("{0}")]
    Usage(String),
    /// A process that measures and did not.
    #[error("the process that measures {0}")]
    Measuring(String),
    /// An error with the place where it came up.
    #[error("{place}: {error}")]
    At {
        /// A file, a name or a folder.
        place: String,
        /// What went wrong there.
        error: Box<Error>,
    },
    /// Searching and profiling.
    #[error(transparent)]
    Search(Box<lathe_search::Error>),
    /// Training.
    #[error(transparent)]
    Train(Box<lathe_train::Error>),
    /// A model folder.
    #[error(transparent)]
    Folder(Box<FolderError>),
    /// A wrong model, space or run file.
    #[error(transparent)]
    Model(Box<lathe_core::Error>),
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! from {
    ($($variant:ident: $error:ty;)*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        }
    )*};
}
from! {
    Search: lathe_search::Error;
    Train: lathe_train::Error;
    Folder: FolderError;
    Model: lathe_core::Error;
}

impl Error {
    /// Whether the request is wrong, rather than that the job failed.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Setting { .. } | Self::Missing { .. } | Self::Usage(_) => true,
            Self::At { error, .. } => error.is_usage(),
            Self::Search(error) => error.is_usage(),
            Self::Train(error) => error.is_usage(),
            Self::Folder(error) => error.is_config(),
            Self::Model(error) => error.is_usage(),
            Self::Io { .. } | Self::Data { .. } | Self::Measuring(_) => false,
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

    /// A setting that is needed.
    pub fn missing(place: impl Display, expected: impl Display) -> Self {
        Self::Missing { place: place.to_string(), expected: expected.to_string() }
    }

    /// A setting that is not accepted.
    pub fn setting(place: impl Display, found: impl Display, expected: impl Display) -> Self {
        Self::Setting { place: place.to_string(), found: found.to_string(), expected: expected.to_string() }
    }
}

/// Whether an error of any of the libraries says that the request is wrong, rather than that the job failed.
pub fn is_usage(error: &(dyn std::error::Error + 'static)) -> bool {
    let job = error.downcast_ref().map(Error::is_usage);
    let search = || error.downcast_ref().map(lathe_search::Error::is_usage);
    let train = || error.downcast_ref().map(lathe_train::Error::is_usage);
    let folder = || error.downcast_ref().map(FolderError::is_config);
    let core = || error.downcast_ref().map(lathe_core::Error::is_usage);
    job.or_else(search).or_else(train).or_else(folder).or_else(core).unwrap_or(false)
}

/// The setting that is wrong or missing, as the message of an error of any of the libraries names it.
pub fn setting<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a str> {
    if let Some(error) = error.downcast_ref() {
        return match error {
            Error::Setting { place, .. } | Error::Missing { place, .. } => Some(place),
            Error::At { error, .. } => setting(&**error),
            Error::Search(error) => setting(&**error),
            Error::Train(error) => setting(&**error),
            _ => None,
        };
    }
    if let Some(error) = error.downcast_ref() {
        return match error {
            lathe_search::Error::Setting { place, .. } => Some(place),
            lathe_search::Error::Train(error) => setting(&**error),
            _ => None,
        };
    }
    match error.downcast_ref() {
        Some(lathe_train::Error::Setting { place, .. }) => Some(place),
        _ => None,
    }
}

/// Names the place where an error came up.
pub trait At<T> {
    /// The same with the place before the error.
    fn at(self, place: impl Display) -> Result<T>;
}

impl<T, E: Into<Error>> At<T> for std::result::Result<T, E> {
    fn at(self, place: impl Display) -> Result<T> {
        self.map_err(|error| Error::At { place: place.to_string(), error: Box::new(error.into()) })
    }
}
