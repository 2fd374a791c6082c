//! `lathe search`: one file per way of searching.

mod compare;
mod differentiable;
mod pareto;

use super::Action;
use anyhow::Result;
use clap::{Parser, Subcommand};

/// Search a space for the architectures to choose
#[derive(Parser)]
#[command(name = "search")]
pub struct Search {
    #[command(subcommand)]
    way: Way,
}

#[derive(Subcommand)]
enum Way {
    Pareto(Box<pareto::Pareto>),
    Differentiable(Box<differentiable::Differentiable>),
    Compare(compare::Compare),
}

impl Action for Search {
    fn run(self, json: bool) -> Result<()> {
        match self.way {
            Way::Pareto(pareto) => pareto.run(json),
            Way::Differentiable(differentiable) => differentiable.run(json),
            Way::Compare(compare) => compare.run(json),
        }
    }
}
