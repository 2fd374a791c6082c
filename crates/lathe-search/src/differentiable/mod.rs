//! Differentiable search over a super net, as PAR (Mandava et al., 2020) and PLANER (Latifi et al., 2022) do it.
//!
//! Every slot has a number alpha per option. Weights and alphas are trained in turn, each by its own optimiser: the
//! outputs of a slot's options are mixed with probabilities drawn from alpha by Gumbel-softmax ([`gumbel`]), and
//! PLANER adds a loss that pushes the estimated latency below a target while it is above it ([`latency`]). In the end
//! the most probable option of each slot makes the architecture, or the most probable architecture that meets the
//! target ([`projection`]).
//!
//! [`settings`] has what the two papers' protocols differ in, [`plan`] when what is trained, [`search`] the two kinds
//! of steps, and [`run`] a search in a folder, safe against a kill.

mod adam;
pub mod costs;
pub mod gumbel;
pub mod latency;
pub mod plan;
pub mod projection;
pub mod run;
pub mod search;
pub mod settings;
mod snapshot;
pub mod task;

pub use adam::Adam;
