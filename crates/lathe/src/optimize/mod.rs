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
//! race.json       that and plain ways to the same latency, measured
//! race/NAME/      short trainings of them
//! compare/NAME/   trained with the baseline's settings, from scratch or from inherited/: whoever came out best in the race or close
//!                 to it, and with --compare the others
//! found/          the better of the former
//! chosen.json     which that is, and why
//! repeat/         with --repeat, baseline and found model trained with other seeds
//! measured.json, compared.json    the trained models side by side
//! report.html
//! ```

mod adopt;
mod inherit;
mod options;
mod pair;
mod plan;
mod race;
mod repeat;
mod rivals;
mod stages;

pub use options::with_head_width;
pub use plan::{Plan, Target, steps_within};
pub use race::{Chosen, Runner};
pub use repeat::Repeated;
pub use rivals::Compared;
pub use stages::{BASELINE, COMPARED, Job, Measured, PLAN};
