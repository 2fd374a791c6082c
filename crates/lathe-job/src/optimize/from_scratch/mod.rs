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
//!                 to it, and where they are asked for, the others
//! found/          the better of the former
//! chosen.json     which that is, and why
//! repeat/         where it is asked for, baseline and found model trained with other seeds
//! measured.json, compared.json    the trained models side by side
//! report.html
//! ```

mod adopt;
mod inherit;
mod measured;
mod options;
mod outcome;

mod plan;
mod race;
mod repeat;
mod request;
mod rivals;
mod stages;

pub use measured::{Measured, Sweep};
pub use options::with_head_width;
pub use outcome::{Outcome, Rival, Side, run};

pub use plan::{Asked, OptimizePlan, Target, steps_within};
pub use race::{Chosen, Runner, Whole};
pub use repeat::{Repeated, Spread};
pub use request::Request;
pub use rivals::Compared;
pub use stages::{BASELINE, COMPARED, FOUND, OptimizeJob, PLAN, Searched, Try};
