//! Things side by side: [`models`] by speed, memory and predictions, [`searches`] by what their frontiers dominate,
//! [`devices`] by what frontiers cost there.

pub mod devices;
pub mod models;
pub(crate) mod quality;
pub mod searches;
