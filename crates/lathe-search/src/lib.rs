//! What an architecture costs on this machine, how good it will be, and which ones to choose.

pub mod audit;
pub mod differentiable;
mod error;
pub mod measure;
pub mod objective;
pub mod pareto;
pub mod profile;
pub mod proxies;
pub mod ranking;
pub mod record;
pub mod search;
pub mod searchers;
pub mod transfer;
pub mod workload;

pub use error::{Error, Result};
