//! Operators against ONNX Runtime, and files that are written, read and damaged.

mod files;
mod operators;
