//! Weights to begin with: those that the search ended with.

use super::stages::OptimizeJob;
use crate::{Error, Result};
use lathe_core::{Block, Model, Role};
use lathe_model::folder;
use lathe_search::differentiable::run;
use std::path::PathBuf;

impl OptimizeJob {
    /// A folder of a model with the weights that the search gave its blocks. A stack that is shorter than the baseline is
    /// its lower part.
    pub(super) fn inherit(&self, name: &str, model: &Model) -> Result<PathBuf> {
        let option = |(i, options): (usize, &Vec<Block>)| {
            let skip = || options.iter().position(|option| option.kind.role() == Role::Identity);
            let of = |block: &Block| options.iter().position(|option| self.same(option, block));
            model.blocks.get(i).map_or_else(skip, of)
        };
        let choice: Option<Vec<usize>> = self.slots.iter().enumerate().map(option).collect();
        let unknown = || Error::data(model.layers(), "blocks that the search did not train", "blocks of its space");
        let choice = choice.ok_or_else(unknown)?;
        let to = self.out.join("inherited").join(name);
        folder::save(&run::network(&self.out.join("search"), &choice, &self.registry)?, &to)?;
        Ok(to)
    }
}
