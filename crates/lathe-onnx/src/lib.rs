//! ONNX, the exchange format for graphs of operators: a protobuf message that lists inputs, outputs, nodes and weights.
//!
//! [`Graph`] is built node by node, [`Model`] is a file that is written or read, and [`Model::run`] computes what a graph
//! says by plain loops: slowly, but without any other program, so that what was written can be compared with what it was
//! made from. Only the operators are known that Transformers of lathe are made of; what they mean is for ONNX to say.
//!
//! A file of protobuf holds at most 2 GiB. Weights of larger models go into a file beside it, as ONNX has it.
//!
//! A file may be damaged or made to do harm: sizes of tensors are held against the bytes that are there, and names of
//! files beside it must be in its own folder.

mod file;
mod graph;
mod proto;
mod run;
mod tensor;

pub use file::{EXTERNAL_ABOVE, Model};
pub use graph::{Attr, Dim, Graph, Node, Port, Value};
pub use run::{Array, Rounding};
pub use tensor::{Kind, Tensor};

use std::path::PathBuf;

/// What can be wrong with an ONNX file, or with running one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read or written.
    #[error("{}: {error}", file.display())]
    Io {
        /// Which.
        file: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// It is no ONNX file, not all of one, or one that is not read here.
    #[error("{}, {place}: found {found}; expected {expected}", file.display())]
    Malformed {
        /// Which.
        file: PathBuf,
        /// Where in it.
        place: String,
        /// What is there.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// A node that cannot be computed.
    #[error("node {node}: {reason}")]
    Node {
        /// Its operator and its first output.
        node: String,
        /// Why.
        reason: String,
    },
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
