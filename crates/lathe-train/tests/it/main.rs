//! Tests of the crate, in one binary.

mod damaged;
mod data;
mod language;
mod specials;
