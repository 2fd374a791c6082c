//! `lathe search`: which architecture to take, one file per way of searching.

mod differentiable;

use super::Action;
use anyhow::Result;
use clap::{Parser, Subcommand};

/// Search a space for architectures
#[derive(Parser)]
#[command(name = "search")]
pub struct Search {
    #[command(subcommand)]
    way: Way,
}

#[derive(Subcommand)]
enum Way {
    Differentiable(Box<differentiable::Differentiable>),
}

impl Action for Search {
    fn run(self, json: bool) -> Result<()> {
        match self.way {
            Way::Differentiable(way) => way.run(json),
        }
    }
}
