//! The profiler: what each block of a space costs on this machine, and what a whole model will.

mod calibrate;
mod machine;
mod run;
mod smooth;
mod table;

pub(crate) use calibrate::least_squares;
pub use calibrate::{Calibration, Measured, Prediction, median};
pub use machine::{Load, Machine, cpu};
pub use run::{Limits, Noise, ProfileProgress, measure};
pub use table::{Entry, FRAME, Interval, Part, PartName, ProfileTable, Sum};
