//! Tests of the crate, in one binary.

mod data;
mod language;
