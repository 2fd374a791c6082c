//! What goes wrong with files, data and settings, the same in every crate above this one.

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// A file, data or a setting that is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A file that could not be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// A file, a record or a measurement that is not as it should be: exit code 1.
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
        /// The name of the setting, and its value where that helps.
        place: String,
        /// What was given.
        found: String,
        /// What would be accepted.
        expected: String,
    },
}

impl Fault {
    /// Whether a setting is wrong, rather than that a run failed.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Setting { .. })
    }

    /// The setting that is wrong, where it is one.
    pub fn setting_name(&self) -> Option<&str> {
        match self {
            Self::Setting { place, .. } => Some(place),
            Self::Io { .. } | Self::Data { .. } => None,
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

/// The constructors of [`Fault`] for an error type that has faults among others.
#[macro_export]
macro_rules! fault_constructors {
    ($error:ty) => {
        impl $error {
            /// An error of the system at a file.
            pub fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
                let fault = $crate::Fault::io(path);
                |error| fault(error).into()
            }

            /// Data that is not as it should be.
            pub fn data(
                place: impl std::fmt::Display,
                found: impl std::fmt::Display,
                expected: impl std::fmt::Display,
            ) -> Self {
                $crate::Fault::data(place, found, expected).into()
            }

            /// A setting that is not accepted.
            pub fn setting(
                place: impl std::fmt::Display,
                found: impl std::fmt::Display,
                expected: impl std::fmt::Display,
            ) -> Self {
                $crate::Fault::setting(place, found, expected).into()
            }
        }
    };
}
