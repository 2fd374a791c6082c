//! What can go wrong in a job. Settings are named as requests name them; a front end knows its own words for them.

use lathe_core::Fault;
use lathe_model::folder::FolderError;
use std::fmt::Display;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, a measurement or a setting.
    #[error(transparent)]
    Fault(#[from] Fault),
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
            Self::Missing { .. } | Self::Usage(_) => true,
            Self::Fault(fault) => fault.is_usage(),
            Self::At { error, .. } => error.is_usage(),
            Self::Search(error) => error.is_usage(),
            Self::Train(error) => error.is_usage(),
            Self::Folder(error) => error.is_config(),
            Self::Model(error) => error.is_usage(),
            Self::Measuring(_) => false,
        }
    }

    /// A setting that is needed.
    pub fn missing(place: impl Display, expected: impl Display) -> Self {
        Self::Missing { place: place.to_string(), expected: expected.to_string() }
    }
}

lathe_core::fault_constructors!(Error);

/// Whether an error of any of the libraries says that the request is wrong, rather than that the job failed.
pub fn is_usage(error: &(dyn std::error::Error + 'static)) -> bool {
    let job = error.downcast_ref().map(Error::is_usage);
    let search = || error.downcast_ref().map(lathe_search::Error::is_usage);
    let train = || error.downcast_ref().map(lathe_train::Error::is_usage);
    let folder = || error.downcast_ref().map(FolderError::is_config);
    let core = || error.downcast_ref().map(lathe_core::Error::is_usage);
    let fault = || error.downcast_ref().map(Fault::is_usage);
    job.or_else(search).or_else(train).or_else(folder).or_else(core).or_else(fault).unwrap_or(false)
}

/// The setting that is wrong or missing, as the message of an error of any of the libraries names it.
pub fn setting<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a str> {
    if let Some(error) = error.downcast_ref() {
        return match error {
            Error::Missing { place, .. } => Some(place),
            Error::At { error, .. } => setting(&**error),
            Error::Search(error) => setting(&**error),
            Error::Train(error) => setting(&**error),
            Error::Fault(fault) => fault.setting_name(),
            _ => None,
        };
    }
    if let Some(error) = error.downcast_ref() {
        return match error {
            lathe_search::Error::Train(error) => setting(&**error),
            lathe_search::Error::Fault(fault) => fault.setting_name(),
            _ => None,
        };
    }
    match error.downcast_ref() {
        Some(lathe_train::Error::Fault(fault)) => fault.setting_name(),
        _ => error.downcast_ref().and_then(Fault::setting_name),
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
