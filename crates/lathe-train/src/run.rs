//! A training run: a folder that holds its settings, its record, its checkpoints and, in the end, the model.
//!
//! ```text
//! run.toml        the settings
//! data/           tokens; removed in the end
//! metrics.jsonl   the record
//! checkpoints/    step-000001000/ ...
//! config.json, model.safetensors, tokenizer.json, result.json    when it has ended
//! fused/          with several models in one training, each: 1/ ...
//! ```
//!
//! Beginning a run writes `run.toml`; everything after that is the same whether it begins or goes on.

use crate::checkpoint::{self, Best, TrainProgress, TrainState};
use crate::data::Data;
use crate::distill::{self, Distiller, Opening};
use crate::evaluate::{Evaluation, Options};
use crate::examples::open;
use crate::fused::{self, Fused};
use crate::gradient::{Part, gradient};
use crate::language::Language;
use crate::metrics::{ExpertRecord, Metrics, StepRecord};
use crate::optimizer::Optimizer;
use crate::resumable::{self, Next, Resumable};
use crate::rounding::Rounding;
use crate::schedule::Schedule;
use crate::settings::{self, ModelEntry, Settings};
use crate::sparsity::Sparsity;
use crate::tasks::{self, Batches, Cut, Sequences, Task};
use crate::texts::{Texts, check_vocab, language_of};
use crate::{Error, Result};
use lathe_core::model::{Value, key};
use lathe_core::{Model, Registry, Spec};
use lathe_model::folder::{self, is_free, write_aside};
use lathe_model::head::classifier_dropout;
use lathe_model::{Grads, MoeStats, Network, State, Training};
use lathe_ops::dropout::Dropout;
use lathe_ops::storage::F32;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The file of the settings.
pub const SETTINGS: &str = "run.toml";
/// Losses of so many steps make the loss of a run.
const RECENT: usize = 100;

/// What a run tells while it goes.
pub enum Event<'a> {
    /// Text is read and turned into tokens: what, how much, of how much.
    Preparing(&'a str, u64, u64),
    /// Training begins, or goes on after a step: what there is.
    Training(&'a Model, &'a Texts, u32),
    /// A step was done.
    Step(StepEvent),
    /// An evaluation is under way: tokens done, of all.
    Evaluating(u64, u64),
    /// An evaluation.
    Evaluated(u32, &'a Evaluation),
    /// Something that the user should know.
    Warning(String),
}

/// A step that was done.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct StepEvent {
    pub step: u32,
    pub steps: u32,
    /// Mean of the last steps.
    pub loss: f64,
    pub tokens_per_s: f64,
}

/// What a run gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// Steps done.
    pub steps: u32,
    /// Tokens trained on.
    pub tokens: u64,
    /// All its time, evaluation and checkpoints included.
    pub seconds: f64,
    /// Without evaluation and checkpoints.
    pub tokens_per_s: f64,
    /// Mean of the last 100 steps, nats per token.
    pub loss: f64,
    /// On the text to validate on, all of it.
    pub valid: Option<Evaluation>,
    /// With a teacher: how well it does on the same text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teacher: Option<Evaluation>,
    /// The best evaluation on the way.
    pub best: Option<Best>,
    /// Whether it ended before its last step, for want of progress.
    pub stopped_early: bool,
    /// Of several models in one training each, in the order in which they were given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fused: Vec<FusedOutcome>,
    /// The model's folder.
    pub out: String,
}

/// What one of several models in one training came to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FusedOutcome {
    /// Its stack.
    pub layers: String,
    /// On the text to validate on.
    pub valid: Option<Evaluation>,
    /// Its folder, within the run's.
    pub folder: String,
}

/// The callback that receives events.
pub type Watch<'a> = &'a mut dyn FnMut(Event<'_>);

/// Begins a run in the folder `settings.out`, which must be new or empty. A model without `vocab` gets the
/// tokenizer's.
pub fn begin(settings: &Settings, model: &Spec, registry: &Registry, watch: Watch<'_>) -> Result<Outcome> {
    settings.check()?;
    let folder = Path::new(&settings.out);
    if settings.out.is_empty() {
        return Err(Error::setting("out", "nothing", "a folder for the run"));
    }
    if !is_free(folder)? {
        let found = if folder.join(SETTINGS).exists() { "another run" } else { "other files" };
        return Err(Error::setting(format!("out: {}", folder.display()), found, "a new or empty folder"));
    }
    let model = &fused::whole(settings, &open::fit(settings, model, registry)?, registry)?;
    // The model is checked before anything is written.
    tasks::find(&settings.task, &resolve(model, 256, registry)?)?;
    let made = !folder.exists();
    std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    let path = folder.join(SETTINGS);
    let text = settings.to_toml(model);
    write_aside(&path, |out| out.write_all(text.as_bytes()))?;
    let ended = resume(folder, registry, watch);
    // A run that never began leaves nothing behind.
    if ended.is_err() && !folder.join("metrics.jsonl").exists() {
        resumable::clear(folder);
        let _ = std::fs::remove_file(path);
        if made {
            let _ = std::fs::remove_dir(folder);
        }
    }
    ended
}

/// The model, with the tokenizer's vocabulary where it names none.
fn resolve(spec: &Spec, vocab: u32, registry: &Registry) -> Result<Model> {
    let mut spec = spec.clone();
    if spec.get("vocab").is_none() {
        spec.set(key("vocab").expect("a key of the model file"), Value::Int(vocab));
    }
    Ok(spec.model(registry)?)
}

/// Goes on with the run in a folder, from its last good checkpoint. A run that has ended returns its outcome again.
pub fn resume(folder: &Path, registry: &Registry, watch: Watch<'_>) -> Result<Outcome> {
    let path = folder.join(SETTINGS);
    if !path.exists() {
        return Err(Error::setting(folder.display(), "no run.toml", "the folder of a run"));
    }
    let _lock = resumable::lock(folder)?;
    let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
    let (mut settings, ModelEntry::Inline(spec)) = settings::read(&text, registry)? else {
        return Err(Error::data(path.display(), "no table [model]", "the settings that a run began with"));
    };
    settings.out = folder.display().to_string(); // it may have been moved
    if let Some(outcome) = resumable::outcome::<Outcome>(folder)? {
        return Ok(Outcome { out: settings.out, ..outcome });
    }
    Run::open(folder, settings, &spec, registry, watch)?.finish(watch)
}

/// A run at work.
struct Run {
    folder: PathBuf,
    settings: Settings,
    schedule: Schedule,
    texts: Texts,
    language: Option<Language>,
    task: &'static dyn Task,
    batches: Box<dyn Batches>,
    /// Tokens of a sequence.
    len: u32,
    metrics: Metrics,
    grads: Grads,
    rounding: Option<Rounding>,
    sparsity: Option<Sparsity>,
    /// The models that share the network's weights; empty where it is trained itself.
    fused: Vec<Fused>,
    state: TrainState,
    /// Since this process works on it, and the seconds before.
    began: (Instant, f64),
}

impl Run {
    fn open(folder: &Path, mut settings: Settings, spec: &Spec, registry: &Registry, watch: Watch<'_>) -> Result<Self> {
        let began = Instant::now();
        let texts = Texts::open(&folder.join("data"), &settings, watch)?;
        let task = tasks::find(&settings.task, &resolve(spec, texts.tokenizer.vocab(), registry)?)?;
        let extra = task.extra_tokens(texts.tokenizer.specials());
        let model = resolve(spec, texts.tokenizer.vocab() + extra, registry)?;
        check_vocab(&model, &texts, task, watch)?;
        let frame = &model.frame;
        let (carried, longest) = (frame.has_memory(), frame.window());
        let len = if settings.seq == 0 { longest } else { settings.seq };
        if !carried && len > longest {
            return Err(Error::setting("seq", len, format!("at most max_len, which is {longest}")));
        }
        if !carried && len < longest && task.of_examples().is_none() {
            watch(Event::Warning(format!(
                "training sees {len} tokens at once and evaluation max_len, which is {longest}: positions beyond {len} \
                 are not trained"
            )));
        }
        let batch = settings.batch as usize;
        let cut = Cut { batch, len: len as usize, seed: settings.seed.into(), tokenizer: &texts.tokenizer };
        let batches = task.batches(frame, &texts.train, &cut)?;
        if let Some(note) = batches.note() {
            watch(Event::Warning(note));
        }
        if settings.epochs > 0.0 {
            let steps = (settings.epochs * batches.steps_per_epoch() as f64).ceil();
            settings.steps = steps.clamp(1.0, f64::from(1 << 30)) as u32;
        }
        if task.key() == "choose" && settings.accumulate > 1 {
            let expected = "1 with choose, whose texts of an example stay together";
            return Err(Error::setting("accumulate", settings.accumulate, expected));
        }
        let with_teacher = |distill| Ok::<_, Error>((distill, distill::load_teacher(distill, registry)?));
        let with_teacher = settings.distill.as_ref().map(with_teacher).transpose()?;
        let seed = settings.seed.into();
        let mut network = match (settings.init.as_str(), &with_teacher) {
            ("", Some((distill, teacher))) if distill.inherit => distill::inherit(teacher, model, distill, seed)?,
            ("", _) => Network::new(model, seed)?,
            (init, _) => {
                let (network, fresh) = folder::load_under(Path::new(init), model, seed, registry)?;
                if !fresh.is_empty() {
                    watch(Event::Warning(format!("{init} has no {}: these begin afresh", fresh.join(", "))));
                }
                network
            }
        };
        network.set_storage(&F32);
        let opening =
            Opening { settings: &settings, student: &network, task, texts: &texts, len: len as usize, folder };
        let distiller = with_teacher.map(|(distill, teacher)| Distiller::open(distill, teacher, &opening));
        let distiller = distiller.transpose()?;
        let precision = settings.precision()?;
        if let Some(warning) = precision.warning() {
            watch(Event::Warning(warning));
        }
        let optimizer = Optimizer::new(settings.rule()?, &settings, network.params());
        let mut fused = Fused::open(&settings, task, &network, registry)?;
        fused.iter_mut().for_each(|one| one.set_precision(precision));
        let parts = settings.accumulate as usize * fused.len().max(1);
        let of_part = |part: usize| fused.get(part % fused.len().max(1)).map_or(&network, |one| &one.network);
        let states = (0..parts).map(|part| of_part(part).init_memory(batch / parts)).collect();
        let progress = TrainProgress::default();
        let state = TrainState { network, optimizer, states, recent: Vec::new(), distiller, progress };
        let schedule = settings.schedule()?;
        let scored = if settings.valid.is_empty() { &settings.data } else { &settings.valid };
        let mut run = Self {
            folder: folder.into(),
            language: language_of(scored, &texts.tokenizer),
            grads: Grads::new(state.network.params()),
            rounding: Rounding::new(&settings, &state.network)?,
            metrics: Metrics::open(folder, settings.tensorboard)?,
            settings,
            schedule,
            texts,
            task,
            batches,
            len,
            sparsity: None,
            fused,
            state,
            began: (began, 0.0),
        };
        resumable::take_up(&mut run, folder, &mut |warning| watch(Event::Warning(warning)))?;
        run.state.network.set_precision(precision); // whichever network it is by now
        run.sparsity = Sparsity::new(&run.settings, &run.state.network);
        run.began.1 = run.state.progress.seconds;
        let step = run.state.progress.step;
        if step > 0 {
            run.metrics.resumed(step)?;
            if run.state.progress.tokens == 0 {
                // A checkpoint from when all steps had as many.
                run.state.progress.tokens = u64::from(step) * u64::from(run.settings.batch) * u64::from(run.len);
            }
        }
        watch(Event::Training(&run.state.network.model, &run.texts, step));
        Ok(run)
    }

    fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    /// All steps that are left, the last evaluation, and the model's folder.
    fn finish(mut self, watch: Watch<'_>) -> Result<Outcome> {
        let folder = self.folder.clone();
        resumable::to_end(&mut self, &folder, |run| run.advance(watch))?;
        let stopped_early = self.stale();
        let progress = self.state.progress.clone();
        let earlier = progress.best.filter(|best| self.settings.patience > 0 && best.step < progress.step);
        if let Some(best) = earlier {
            self.go_back_to(best.step, watch)?;
        }
        let (fused, largest) = (self.end_fused(watch)?, fused::largest(&self.fused));
        let valid = match (largest, self.texts.valid.clone()) {
            (Some(largest), _) => fused[largest].valid.clone(),
            (None, Some(tokens)) => Some(self.score(&tokens, 0, watch)?),
            (None, None) => None,
        };
        if let Some(valid) = &valid {
            // The record goes on, and never back.
            if earlier.is_none() {
                self.metrics.evaluation(progress.step, valid)?;
            }
            watch(Event::Evaluated(earlier.map_or(progress.step, |best| best.step), valid));
        }
        let teacher = match (&self.state.distiller, self.texts.valid.clone()) {
            (Some(distiller), Some(tokens)) => Some(self.score_of(&distiller.teacher, &tokens, 0, watch)?),
            _ => None,
        };
        let tokens = progress.tokens;
        let outcome = Outcome {
            steps: progress.step,
            tokens,
            seconds: self.seconds(),
            tokens_per_s: tokens as f64 / progress.training_seconds,
            loss: mean(&self.state.recent),
            valid,
            teacher,
            best: progress.best,
            stopped_early,
            fused,
            out: self.folder.display().to_string(),
        };
        if let Some(rounding) = &self.rounding {
            rounding.finish(&mut self.state.network);
        }
        let network = largest.map_or(&self.state.network, |largest| &self.fused[largest].network);
        folder::save(network, &self.folder)?;
        self.texts.tokenizer.save(&self.folder)?;
        resumable::end(&self.folder, &outcome)?;
        Ok(outcome)
    }

    /// Each of several models in one training, evaluated and in a folder of its own.
    fn end_fused(&mut self, watch: Watch<'_>) -> Result<Vec<FusedOutcome>> {
        self.fused.iter_mut().for_each(|one| one.read(&self.state.network));
        let end = |(i, one): (usize, &Fused)| {
            let folder = Path::new("fused").join((i + 1).to_string());
            let path = self.folder.join(&folder);
            folder::save(&one.network, &path)?;
            self.texts.tokenizer.save(&path)?;
            let valid =
                self.texts.valid.as_ref().map(|data| self.score_of(&one.network, data, 0, watch)).transpose()?;
            Ok(FusedOutcome { layers: one.network.model.layers(), valid, folder: folder.display().to_string() })
        };
        self.fused.iter().enumerate().map(end).collect()
    }

    /// The next step, and an evaluation where one is due.
    fn advance(&mut self, watch: Watch<'_>) -> Result<Next> {
        if self.state.progress.step >= self.settings.steps || self.stale() {
            return Ok(Next::Ended);
        }
        self.take_step(watch)?;
        let step = self.state.progress.step;
        let last = step == self.settings.steps;
        let mut checkpoint = last || step.is_multiple_of(self.settings.checkpoint_every());
        // What is evaluated in the end anyway need not be here, unless the best is looked for.
        let due = if last { self.settings.patience > 0 } else { step.is_multiple_of(self.settings.eval_every()) };
        if due && self.texts.valid.is_some() {
            checkpoint |= self.evaluate(watch)?;
        }
        Ok(Next::Step { checkpoint })
    }

    /// Whether evaluations have been getting no better for too long.
    fn stale(&self) -> bool {
        self.settings.patience > 0 && self.state.progress.stale >= self.settings.patience
    }

    fn seconds(&self) -> f64 {
        self.began.1 + self.began.0.elapsed().as_secs_f64()
    }

    /// One step of the optimiser.
    fn take_step(&mut self, watch: Watch<'_>) -> Result<()> {
        let start = Instant::now();
        let TrainState { network, optimizer, states, recent, distiller, progress } = &mut self.state;
        let step = progress.step + 1;
        let done = u64::from(progress.step);
        let number = distiller.as_ref().map_or(done, |from| from.batch_of(done, self.batches.steps_per_epoch()));
        let batch = self.batches.batch(number)?;
        let tokens = batch.tokens() as f64;
        if let Some(distiller) = distiller {
            distiller.clear();
        }
        let kept = self.rounding.as_ref().map(|rounding| rounding.begin(network));
        let carried = network.model.frame.has_memory();
        let fused = &mut self.fused;
        fused.iter_mut().for_each(|one| one.read(network));
        let pass = |part: &Part, state: &mut State, training: &Training, grads: &mut Grads| {
            let turn = part.index % fused.len().max(1);
            let own = fused.get_mut(turn);
            if batch.fresh || !carried {
                *state = own.as_ref().map_or(&*network, |own| &own.network).init_memory(part.rows);
            }
            if let Some(distiller) = distiller {
                return distiller.pass(network, (&batch, number), part, state, training, grads);
            }
            let (input, targets) = (batch.part(part.places.clone(), part.rows), &batch.targets[part.places.clone()]);
            let key = training.dropout_key.unwrap_or_default();
            let dropout = Dropout { probability: classifier_dropout(&network.model.frame), key };
            let objective = self.task.objective(Sequences { input, targets, dropout });
            let mut learn =
                |network: &Network, grads: &mut Grads| network.train(&input, &*objective, state, training, grads);
            let outcome = match own {
                Some(own) => own.train(grads, learn),
                None => learn(network, grads),
            };
            Ok((outcome.losses.iter().copied().map(f64::from).sum(), outcome.experts))
        };
        let (loss, experts) = gradient(states, &batch, &self.settings, step, &mut self.grads, pass)?;
        if let (Some(rounding), Some(kept)) = (&self.rounding, kept) {
            rounding.end(network, kept);
        }
        self.sparsity.iter().for_each(|sparsity| sparsity.of_gradients(&mut self.grads));
        let lr = match distiller {
            Some(distiller) => distiller.rate(step)?,
            None => self.schedule.rate(step),
        };
        // A stage of distillation may begin with losses of another kind.
        if step == 1 || distiller.as_ref().is_some_and(|distiller| distiller.begins_stage(step)) {
            progress.first_loss = loss;
        }
        let highest = 4.0 * progress.first_loss.max(self.task.chance(&network.model.frame));
        let norm = match distiller {
            _ if loss.is_nan() || loss > highest => f64::NAN,
            Some(distiller) => distiller.step(optimizer, network.params_mut(), &mut self.grads, step, lr),
            None => optimizer.step(network.params_mut(), &mut self.grads, step, lr),
        };
        if !norm.is_finite() {
            let good =
                checkpoint::steps(&self.checkpoints()).first().map(|&step| checkpoint::path(&self.checkpoints(), step));
            return Err(Error::Diverged { step, loss, highest, checkpoint: good });
        }
        self.sparsity.iter_mut().for_each(|sparsity| sparsity.after(step, network, optimizer));
        progress.step = step;
        progress.tokens += batch.tokens() as u64;
        recent.push(loss);
        recent.drain(..recent.len().saturating_sub(RECENT));
        let seconds = start.elapsed().as_secs_f64();
        progress.training_seconds += seconds;
        let every = self.settings.log_every;
        if step.is_multiple_of(every) || step == self.settings.steps {
            let since = &recent[recent.len().saturating_sub(every as usize)..];
            let record = StepRecord {
                step,
                loss: mean(since),
                lr,
                grad_norm: norm,
                tokens_per_s: tokens / seconds,
                experts: experts.iter().map(expert_record).collect(),
                terms: distiller.as_ref().map_or_else(Default::default, |distiller| distiller.record(step, &batch)),
            };
            self.metrics.step(&record)?;
        }
        watch(Event::Step(StepEvent {
            step,
            steps: self.settings.steps,
            loss: mean(&self.state.recent[self.state.recent.len().saturating_sub(20)..]),
            tokens_per_s: tokens / seconds,
        }));
        Ok(())
    }

    fn score(&mut self, data: &Data, limit: u64, watch: Watch<'_>) -> Result<Evaluation> {
        self.fused.iter_mut().for_each(|one| one.read(&self.state.network));
        if let Some(largest) = fused::largest(&self.fused) {
            return self.score_of(&self.fused[largest].network, data, limit, watch);
        }
        let kept = self.rounding.as_ref().map(|rounding| rounding.begin(&mut self.state.network));
        let scored = self.score_of(&self.state.network, data, limit, watch);
        if let (Some(rounding), Some(kept)) = (&self.rounding, kept) {
            rounding.end(&mut self.state.network, kept);
        }
        scored
    }

    fn score_of(&self, network: &Network, data: &Data, limit: u64, watch: Watch<'_>) -> Result<Evaluation> {
        let window = if self.task.of_examples().is_some() { self.len as usize } else { 0 };
        let language = self.language.as_ref();
        let options = Options { limit, window, language, ..Options::new(&self.texts.tokenizer) };
        let mut watch = |done, total| watch(Event::Evaluating(done, total));
        self.task.evaluate(network, data, &options, &mut watch)
    }

    /// An evaluation on the way. Returns whether it is the best so far.
    fn evaluate(&mut self, watch: Watch<'_>) -> Result<bool> {
        let Some(tokens) = self.texts.valid.clone() else { return Ok(false) };
        let valid = self.score(&tokens, self.settings.eval_tokens.into(), watch)?;
        let progress = &mut self.state.progress;
        let better = progress.best.is_none_or(|best| valid.loss < best.loss);
        if better {
            progress.best = Some(Best { step: progress.step, loss: valid.loss });
        }
        progress.stale = if better { 0 } else { progress.stale + 1 };
        self.metrics.evaluation(progress.step, &valid)?;
        watch(Event::Evaluated(progress.step, &valid));
        Ok(better)
    }

    /// The weights of the best evaluation; where they are damaged, those that there are.
    fn go_back_to(&mut self, step: u32, watch: Watch<'_>) -> Result<()> {
        let path = checkpoint::path(&self.checkpoints(), step);
        match checkpoint::verify(&path) {
            Ok(()) => {
                self.state.network = folder::load_as(&path, self.state.network.model.clone())?;
                self.state.network.set_precision(self.settings.precision()?);
            }
            Err(error) => watch(Event::Warning(format!("{error}; the last weights are kept instead of the best"))),
        }
        Ok(())
    }
}

impl Resumable for Run {
    type Error = Error;

    fn step(&self) -> u32 {
        self.state.progress.step
    }

    fn write(&mut self, checkpoint: &Path) -> Result<()> {
        self.state.progress.seconds = self.seconds();
        checkpoint::write(checkpoint, &mut self.state, &self.texts.tokenizer)
    }

    fn restore(&mut self, checkpoint: &Path) -> Result<()> {
        checkpoint::restore(checkpoint, &mut self.state)
    }

    fn keep(&self) -> (u32, Option<u32>) {
        (self.settings.keep, self.state.progress.best.map(|best| best.step))
    }
}

fn expert_record(stats: &MoeStats) -> ExpertRecord {
    let all: usize = stats.loads.iter().sum();
    let share = |&load: &usize| load as f64 / all.max(1) as f64;
    ExpertRecord { loads: stats.loads.iter().map(share).collect(), balance: stats.balance.into() }
}

fn mean(losses: &[f32]) -> f64 {
    losses.iter().copied().map(f64::from).sum::<f64>() / losses.len().max(1) as f64
}
