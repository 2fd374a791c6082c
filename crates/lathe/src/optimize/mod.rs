//! The main job, stage by stage: profile, train, search, choose by measurement, train, measure, report. Each stage leaves a file
//! in the folder; what is there is not done again, so that a job that was killed goes on and ends as it would have.
//!
//! ```text
//! plan.json       what was decided at the start
//! space.toml      what every block may become
//! table.json      what blocks cost
//! baseline/       the model, trained
//! search/         the differentiable search, from its weights
//! searched.json   what it gave, measured whole
//! race/           short trainings of that and of plain ways to the same latency
//! chosen.json     who won
//! found/, compare/NAME/    trained with the baseline's settings, from scratch or from inherited/
//! measured.json, compared.json    the trained models side by side
//! report.html
//! ```

mod baseline;
mod inherit;
mod options;
mod pair;
mod plan;
mod stages;

pub use options::with_head_width;
pub use plan::{Plan, Target, steps_within};
pub use stages::{BASELINE, COMPARED, Chosen, Compared, FOUND, Job, Measured, PLAN, Runner};
