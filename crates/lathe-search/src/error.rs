//! What can go wrong in profiling and searching.

use lathe_core::Fault;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, a table, a record, a measurement or a setting.
    #[error(transparent)]
    Fault(#[from] Fault),
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
            Self::Fault(fault) => fault.is_usage(),
            Self::Model(error) => error.is_usage(),
            Self::Train(error) => error.is_usage(),
            Self::Graph(_) => false,
        }
    }
}

lathe_core::fault_constructors!(Error);
