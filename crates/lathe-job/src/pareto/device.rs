//! What a model costs on the machine, by prediction or by measurement.

use super::Request;
use crate::measurer;
use crate::profiler::{self, Pace};
use crate::{Context, Result, Watch};
use lathe_core::{Model, Space, notation};
use lathe_model::design;
use lathe_search::profile::{Prediction, ProfileTable};
use lathe_search::workload::Workload;

/// Tells what a model costs.
pub(super) enum Device<'a> {
    /// By the sum of its blocks, corrected.
    Table(Box<ProfileTable>, Whole<'a>),
    /// By measuring it whole.
    Whole(Whole<'a>),
}

/// Measures whole models in a setting.
#[derive(Clone, Copy)]
pub(super) struct Whole<'a> {
    context: Context<'a>,
    workload: &'a Workload,
}

impl<'a> Device<'a> {
    /// How candidates are evaluated. What was measured for it is kept in the folder, so that a search that goes on
    /// predicts the same.
    pub fn open(
        context: &Context<'a>,
        request: &'a Request,
        space: &Space,
        identity: &str,
        watch: Watch<'_>,
    ) -> Result<Self> {
        let workload = &request.workload;
        let whole = Whole { context: *context, workload };
        if request.measure_all {
            request.begin(identity)?;
            return Ok(Self::Whole(whole));
        }
        let path = request.out.join("table.json");
        let table = if path.exists() {
            ProfileTable::read(&path)?
        } else {
            // A layer of the baseline that is scaled by its depth.
            let layer = match &space.baseline.frame {
                frame if frame.source_len().is_some() => None,
                frame => Some(Model::new(frame.clone(), notation::parse(&design::layer(), context.registry)?)?),
            };
            let mut table = request.table.table(context, space, layer.as_slice(), workload, watch)?.table;
            if table.calibration.is_none() && request.models > 0 && !request.no_measure {
                let models = (request.models as usize, request.seed);
                profiler::calibrate(context, &mut table, space, models, &mut Pace::default(), watch)?;
            }
            request.begin(identity)?;
            table.write(&path)?;
            table
        };
        Ok(Self::Table(Box::new(table.smoothed(context.registry)), whole))
    }

    /// What a model costs, whose lengths are those of the workload.
    pub fn cost(&self, model: &Model) -> lathe_search::Result<Prediction> {
        match self {
            Self::Table(table, _) => table.predict(model),
            Self::Whole(whole) => whole.cost(model),
        }
    }

    /// The measuring of whole models.
    pub fn whole(&self) -> Whole<'a> {
        match self {
            Self::Table(_, whole) | Self::Whole(whole) => *whole,
        }
    }
}

impl Whole<'_> {
    /// What a model is measured to cost.
    pub fn cost(&self, model: &Model) -> lathe_search::Result<Prediction> {
        let request = measurer::Request::new(model, self.workload, profiler::SECONDS);
        let found = self.context.measurer.measure(&request);
        let found = found.map_err(|error| {
            lathe_search::Error::data(model.layers(), error.to_string(), "a model that can be measured")
        })?;
        let measured = found.measured();
        Ok(Prediction { latency_ms: measured.latency_ms.median, peak_bytes: measured.peak_bytes as f64 })
    }
}
