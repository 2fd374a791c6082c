//! The main job: from a trained model and a text to a model that is faster here and as good, with proof.
//!
//! ```text
//! plan.json            what was decided at the start
//! trained/             a model that was given without weights, trained
//! baseline/            the model as it was given
//! vocab/               the same without tokens that the text never uses, where there are any
//! tokens/              the text to learn; of examples examples/, with those to report on
//! report.txt           the text to report on, which nothing is chosen by
//! table.json           what every option costs in every storage
//! whole/               what whole architectures take
//! correction.json      what sums of it have to become to be what whole models take
//! options/             the options of all blocks, distilled
//! audit.json           how well these tell the loss of whole architectures, where that was asked for
//! scores.json          what the model loses with one block replaced
//! recover/NAME/        candidates: as they were assembled, and after each round of recovery
//! decided.json         who proposed what, what became of it, and which models are given
//! found/, frontier/    the models
//! recover/continued/   the control: the original, trained on
//! measured/            measurements and judgements
//! levers.json          what each lever gave
//! outcome.json, report.html
//! ```
//!
//! Each stage leaves a file; what is there is not done again, so that a job that was killed goes on and ends as it would
//! have. [`from_scratch`] is the protocol of the papers instead.

pub mod architecture;
mod audit;
mod corpus;
mod decide;
mod finish;
mod first_training;
pub mod from_scratch;
mod job;
mod labelled;
mod levers;
mod library;
mod menu;
mod open;
mod outcome;
pub(crate) mod pair;
mod plan;
pub mod proposers;
mod recover;
mod samples;
mod scores;
mod settle;
mod stages;
mod text;
mod verdict;
mod verify;

/// The model that is made faster where none is named: it ships with lathe.
pub const DEFAULT: &str = lathe_model::shipped::STORYTELLER;

pub use audit::{Audit, Audited, Correlations, Neighbours};
pub use job::{BASELINE, Candidate, Job, Judged};
pub use levers::{LEVERS, Lever, levers};
pub use outcome::{Control, FrontierPoint, Outcome, Proposed, Quality, Side, Tested};
pub use pair::{Pair, measure_trained};
pub use plan::{Amounts, Asked, Plan, Target};
pub use recover::Recipe;
pub use scores::{Score, Scores};
pub use stages::{Request, run};
pub use verdict::verdict;
pub(crate) use verify::Made;
