//! Tests of the crate, in one binary.

mod contract;
mod damaged;
mod data;
mod distill;
mod documents;
mod language;
mod specials;
