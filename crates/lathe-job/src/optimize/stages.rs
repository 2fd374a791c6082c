//! All stages in turn.

use super::decide::Library;
use super::menu::Menu;
use super::open::{choices, open};
use super::outcome::Outcome;
use super::plan::Asked;
use crate::{Context, Error, Event, Result, Watch};
use std::path::PathBuf;
use std::time::Instant;

/// Stages of a job.
const STAGES: u32 = 7;
/// A job to be done, or to be gone on with.
#[derive(Debug, Clone)]
pub struct Request {
    /// What makes it what it is.
    pub asked: Asked,
    /// A text of another kind, to report what was lost there.
    pub outside: Option<String>,
    /// Random architectures that scores are audited with.
    pub audit: usize,
    /// Folder of the job.
    pub out: PathBuf,
    /// The command that asks for this, for the report.
    pub command: String,
}

/// Does a job, or goes on with it: what its folder holds is not done again.
pub fn run(context: &Context<'_>, request: &Request, watch: Watch<'_>) -> Result<Outcome> {
    let began = Instant::now();
    let stage = |number: u32, what: &str| Event::Stage { number, of: STAGES, what: what.into() };
    watch(stage(1, "read the model and the text"));
    let (job, network) = open(context, request, watch)?;
    let asked = &job.plan.asked;

    watch(stage(2, &format!("measure what every option costs: {}", asked.workload)));
    let choices = choices(&job.base, &network, asked, context);
    if choices.storages.len() == 1 && choices.blocks.iter().all(|slot| slot.len() == 1) && job.base == job.original {
        let found = format!("{} with nothing to change", job.base.layers());
        return Err(Error::setting("levers", found, "levers that a block of the model has options for"));
    }
    let table = job.profile(&choices, watch)?;
    let mut menu = Menu::new(choices, &table, &asked.workload)?;
    let original_ms = job.correct(&mut menu, watch)?;
    let target_ms = asked.target()?.ms(original_ms);
    job.check_limit(&menu, 1e3 * target_ms, original_ms)?;
    job.expect(&menu, original_ms, watch);

    watch(stage(3, "make options out of trained blocks, and let them learn"));
    let net = job.library(&menu.choices, &network, watch)?;

    watch(stage(4, "score every option, one block at a time"));
    let scores = job.scores(&menu.choices, &network, &net, watch)?;
    menu.losses = scores.losses();
    let audit = match request.audit {
        0 => None,
        count => Some(job.audit(&menu, (&scores, &net), count, watch)?),
    };

    watch(stage(5, "propose architectures, recover them, keep the best"));
    let mut decided =
        job.decide(&menu, &Library { net: &net, network: &network, loss: scores.loss }, original_ms, target_ms, watch)?;

    watch(stage(6, "store weights, and train the original on as a control"));
    job.settle(&menu, &mut decided, watch)?;
    let made: Vec<PathBuf> =
        decided.points.iter().map(|point| job.finish(&menu, point, watch)).collect::<Result<_>>()?;
    let (continued, control_steps) = job.continued(&decided.points, watch)?;

    watch(stage(7, "measure and judge on text that was used for nothing else"));
    job.verify(
        &super::verify::Made {
            menu: &menu,
            scores: &scores,
            decided: &decided,
            folders: &made,
            continued: &continued,
            control_steps,
            audit,
            request,
            began,
        },
        watch,
    )
}
