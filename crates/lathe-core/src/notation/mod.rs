//! The architecture notation: one string for a stack of blocks, in the letters of the PAR paper.
//!
//! ```text
//! stack  = item*                            white space is free
//! item   = block | '(' stack ')' 'x' count
//! block  = letter short-knobs | key ['{' name '=' value (',' name '=' value)* '}']
//! ```
//!
//! `s4d64` is `attention{heads=4,d_head=64}`, `(sff)x5 (f)x9` repeats, groups nest. A knob that is not
//! written takes the model's default.

mod parse;
mod print;

pub use parse::parse;
pub use print::print;
