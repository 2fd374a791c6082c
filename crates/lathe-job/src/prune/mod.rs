//! A smaller model out of a trained one, and what that gained and cost: heads, inner widths, blocks, tokens or single
//! weights are taken away, by what a text shows; then loss and latency of both are measured.
//!
//! ```text
//! prune.json      what was asked for
//! config.json, model.safetensors, tokenizer.json    the smaller model
//! training/       gradual pruning: the training run; continued/ the control
//! initial/, tickets/K/, rounds/K/, redrawn/         lottery tickets
//! result.json     what came out
//! ```
//!
//! What was killed goes on with the same request.

mod gradual;
mod lottery;
mod outcome;
mod request;
mod structured;
mod text;
pub(crate) mod vocabulary;

pub use outcome::{Change, Control, Outcome, Removed, Round, Share, Vocabulary};
pub use request::{Asked, By, Request, What};
pub use text::Parts;

use crate::input;
use crate::{Context, Event, Result, Watch, evaluate};
use lathe_core::Registry;
use lathe_model::folder;
use lathe_model::prune::magnitude::Mask;
use lathe_model::prune::store_as;
use lathe_model::{Network, prune};
use lathe_ops::storage::F32;
use lathe_train::data::Tokenizer;
use lathe_train::resumable;
use lathe_train::tasks::{self, Task};
use outcome::Found;
use std::path::{Path, PathBuf};
use text::Text;

/// What was asked for, in the folder.
const ASKED: &str = "prune.json";

/// A pruning at work.
struct Job<'a> {
    asked: &'a Asked,
    out: &'a Path,
    registry: &'a Registry,
    text: Text,
    /// The model's folder; that of its initial weights where a ticket is looked for.
    before: PathBuf,
    network: Network,
    tokenizer: Tokenizer,
    /// What it is good for; an encoder without an output layer is good for nothing that has a loss.
    task: Option<&'static dyn Task>,
}

/// Prunes a model, or goes on with it; what has ended is told again.
pub fn run(context: &Context<'_>, request: &Request, watch: Watch<'_>) -> Result<Outcome> {
    let Request { asked, out } = request;
    asked.check()?;
    if let Some(ended) = input::known::<_, Outcome>(out, ASKED, asked, "a pruning")? {
        return Ok(Outcome { out: out.display().to_string(), ..ended });
    }
    let job = Job::open(asked, out, context.registry)?;
    let found = match asked.what {
        What::Heads(share) => job.units(HEADS, share, watch)?,
        What::Inner(share) => job.units(INNER, share, watch)?,
        What::Blocks(count) => job.blocks(count as usize, watch)?,
        What::Vocab => job.vocabulary(watch)?,
        What::Magnitude(share) if asked.lottery.is_some() => job.lottery(share, watch)?,
        What::Magnitude(share) if asked.steps.is_some() => job.gradual(share, watch)?,
        What::Magnitude(share) => job.magnitude(share)?,
    };
    let outcome = job.measure(found, watch)?;
    resumable::end(out, &outcome)?;
    Ok(outcome)
}

/// The knobs that count what can go, what they count, and how many stay in each block.
const HEADS: (&str, &str, usize) = ("heads", "heads", 1);
const INNER: (&str, &str, usize) = ("inner", "inner neurons", 8);

/// Of what a share of weights is one.
const WEIGHTS: &str = "weights of the blocks' matrices";

impl<'a> Job<'a> {
    fn open(asked: &'a Asked, out: &'a Path, registry: &'a Registry) -> Result<Self> {
        let text = Text::open(asked)?;
        let folder = &*input::model_folder(&asked.model)?;
        let (network, tokenizer) = match asked.lottery.is_some() && !folder::is_model_folder(folder) {
            true => {
                let model = input::spec(&asked.model, registry)?.model(registry)?;
                (Network::new(model, asked.seed.into())?, Tokenizer::Bytes)
            }
            false => (folder::load(folder, registry)?, Tokenizer::load(folder)?),
        };
        evaluate::check_tokenizer(&tokenizer, &network.model, folder)?;
        asked.workload.model(&network.model)?; // its lengths are checked before anything is done
        let task = tasks::find("", &network.model).ok().filter(|task| task.of_examples().is_none());
        Ok(Self { asked, out, registry, text, before: folder.into(), network, tokenizer, task })
    }

    /// Makes the folder and says what it is for.
    fn begin(&self) -> Result<()> {
        input::begin(self.out, ASKED, self.asked)
    }

    /// The weights as f32.
    fn floats(&self) -> Result<Network> {
        let mut network = folder::load(&self.before, self.registry)?;
        network.set_storage(&F32);
        Ok(network)
    }

    /// The smallest weights of the model as it is become 0.
    fn magnitude(&self, share: f64) -> Result<Found> {
        let mut network = self.floats()?;
        let mask = Mask::of_smallest(&network, share, self.asked.evenly);
        mask.apply_to(&mut network);
        store_as(&mut network, &self.network);
        self.save(&network, &self.tokenizer)?;
        Ok(Found::new(&self.before, Share::new(WEIGHTS, share, mask.sparsity())))
    }

    /// Saves the smaller model.
    fn save(&self, network: &Network, tokenizer: &Tokenizer) -> Result<()> {
        self.begin()?;
        self.save_in(self.out, network, tokenizer)
    }

    fn save_in(&self, out: &Path, network: &Network, tokenizer: &Tokenizer) -> Result<()> {
        folder::save(network, out)?;
        tokenizer.save(out)?;
        vocabulary::carry_token_ids(&self.before, out, None)
    }

    /// Loss and latency of both models.
    fn measure(&self, found: Found, watch: Watch<'_>) -> Result<Outcome> {
        let losses = match self.task {
            None => None,
            Some(task) => {
                let mut loss =
                    |folder: &Path, what: &str| self.text.loss(folder, task, self.registry, what, &mut *watch);
                Some([loss(&found.before, "the model before")?, loss(self.out, "the pruned model")?])
            }
        };
        watch(Event::Done);
        if losses.is_none() {
            watch(Event::Warning("the model has no output layer, so there is no loss to tell".into()));
        }
        watch(Event::Message(format!("measuring both side by side for {} s", self.asked.seconds)));
        let after = folder::load(self.out, self.registry)?;
        let before = folder::load(&found.before, self.registry)?;
        let counts = [&before, &after].map(|network| network.params().count() as u64);
        let left = prune::magnitude::nonzero(&after);
        outcome::outcome(self, found, losses, counts, left, after.model.layers())
    }
}
