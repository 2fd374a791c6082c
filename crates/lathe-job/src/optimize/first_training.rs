//! A model without weights is trained first, on the text to learn, until the text to choose by gains nothing more.

use super::plan::Asked;
use super::text::Text;
use crate::{At, Context, Error, Event, Result, Watch, input};
use lathe_model::Precision;
use lathe_train::data::Tokenizer;
use lathe_train::run;
use lathe_train::settings::Settings;
use std::path::{Path, PathBuf};

/// The share of the budget that it may take.
const SHARE: f64 = 0.4;
/// Evaluations on the way, and how many without a gain end it.
const EVALUATIONS: u32 = 24;
const PATIENCE: u32 = 4;
/// Sequences of a step.
const BATCH: u32 = 16;

/// The folder of the trained model.
pub fn train(
    context: &Context<'_>,
    asked: &Asked,
    text: &Text,
    seconds: impl Fn(&lathe_core::Model, Precision, u32, u32) -> Result<f64>,
    out: &Path,
    watch: Watch<'_>,
) -> Result<PathBuf> {
    let folder = out.join("trained");
    let mut heard = |event: run::Event<'_>| watch(Event::Training(event));
    if folder.join(run::SETTINGS).exists() {
        run::resume(&folder, context.registry, &mut heard)?;
        return Ok(folder);
    }
    let spec = input::spec(&asked.model, context.registry)?;
    let model = spec.model(context.registry).at(&asked.model)?;
    let tokenizer = Tokenizer::load(Path::new(&asked.model)).unwrap_or(Tokenizer::Bytes);
    crate::evaluate::check_tokenizer(&tokenizer, &model, Path::new(&asked.model))?;
    let data = out.join("first_tokens");
    text.learn_and_choose(&tokenizer, &data, &mut |_| ())?;
    let precision = Precision::fastest();
    let seq = model.frame.window();
    let step = seconds(&model, precision, BATCH, seq)?;
    let steps = ((SHARE * 60.0 * asked.budget / step) as u32).clamp(EVALUATIONS, 200_000);
    let settings = Settings {
        data: data.display().to_string(),
        steps,
        batch: BATCH,
        lr: 0.003 * (128.0 / f64::from(model.frame.d_model)).sqrt().min(1.0),
        eval_every: steps.div_ceil(EVALUATIONS),
        patience: PATIENCE,
        seed: asked.seed,
        precision: precision.to_string(),
        out: folder.display().to_string(),
        ..Settings::default()
    };
    let ended = run::begin(&settings, &model.spec(), context.registry, &mut heard)?;
    if !ended.loss.is_finite() {
        return Err(Error::data(&asked.model, "a training that diverged", "a model that learns"));
    }
    Ok(folder)
}
