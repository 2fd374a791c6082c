//! A job is opened: the model is read, the text is cut, tokens that it never uses are left out, and what is done is decided.

use super::architecture::Choices;
use super::corpus::Corpus;
use super::first_training;
use super::job::{BASELINE, Job, VOCAB};
use super::labelled::Labelled;
use super::levers::Lever;
use super::library;
use super::plan::{Amounts, Asked, Measures, Plan};
use super::proposers::{self};
use super::samples::Samples;
use super::stages::Request;
use super::text::{Parts, Text};
use crate::input::{self, read_json, write_json};
use crate::prune::vocabulary;
use crate::{Context, Error, Event, Result, Watch, identity};
use lathe_core::{Model, Setting};
use lathe_model::{Network, Precision, WeightStorage, folder};
use lathe_search::profile::median;
use lathe_search::workload::{Mode, Workload};
use lathe_train::data::Tokenizer;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What a job decided at its start.
const PLAN: &str = "plan.json";
/// What says that a folder is a job's, before it has a plan.
const BEGUN: &str = ".lathe";
/// The longest sequence of a training step.
const LONGEST: u32 = 256;
/// Logits of the text that scores are taken on, at the most.
const LOGITS: u64 = 1 << 28;
/// Weights are stored as one of these, where bits may be changed.
const STORAGES: [&str; 4] = ["f32", "bf16", "int8", "int4_g32"];
/// What fewer tokens may cost, as a share of the bits per byte of so many bytes of the text to choose by, where the budget has
/// so many minutes or more: few documents have the rare words that cost most.
const VOCAB_MAY_COST: f64 = 0.003;
const VOCAB_BYTES: f64 = 262_144.0;
const VOCAB_MINUTES: f64 = 30.0;
/// Tokens of documents that are cut otherwise, to tell by what that costs.
const VOCAB_TOKENS: u64 = 16384;
/// The share of the budget that judging one model may take.
const REPORTING: f64 = 0.015;
/// Opens a job: a new one, or that of the folder.
pub(super) fn open<'a>(context: &'a Context<'a>, request: &Request, watch: Watch<'_>) -> Result<(Job<'a>, Network)> {
    let out = &request.out;
    let known: Option<Plan> = match out.join(PLAN).exists() {
        true => Some(read_json(&out.join(PLAN))?),
        false => None,
    };
    request.asked.target()?;
    proposers::proposers(&request.asked.proposers.join(","))?;
    let source = Source::open(&request.asked, watch)?;
    let asked = &source.with_lengths(&request.asked, context)?;
    if let Some(plan) = &known
        && let Some(differs) = identity::difference(&plan.asked, asked)
    {
        let found = format!("a job with other settings ({differs})");
        return Err(Error::setting(
            format!("out {}", out.display()),
            found,
            "a new folder, or the settings that it began with",
        ));
    }
    let place = || format!("out {}", out.display());
    if known.is_none() && !folder::is_free(out)? && !out.join(BEGUN).exists() {
        return Err(Error::setting(place(), "other files", "a new or empty folder"));
    }
    let given = match (input::trained(&asked.model), &source) {
        (Ok(given), _) => given,
        (Err(_), Source::Text(text)) if input::spec(&asked.model, context.registry).is_ok() => {
            watch(Event::Message(format!("{} has no weights: it is trained first", asked.model)));
            begin(out)?;
            first_training::train(context, asked, text, step_seconds, out, watch)?
        }
        (Err(error), _) => return Err(error),
    };
    let original = folder::load_model(&given, context.registry)?;
    source.check(&original)?;
    asked.workload.model(&original)?; // its lengths are checked before anything is done
    let tokenizer = Tokenizer::load(&given)?;
    crate::evaluate::check_tokenizer(&tokenizer, &original, &given)?;
    begin(out)?;
    let baseline = out.join(BASELINE);
    let whole = folder::load(&given, context.registry)?;
    if !baseline.join("config.json").exists() {
        folder::save(&whole, &baseline)?;
        tokenizer.save(&baseline)?;
        vocabulary::carry_token_ids(&given, &baseline, None)?;
    }
    let (teacher, network, tokenizer) = match &source {
        Source::Text(text) if asked.levers.contains(&Lever::Vocab) => {
            shrink(context, (whole, tokenizer), text, (&baseline, out), asked.budget, watch)?
        }
        _ => (baseline, whole, tokenizer),
    };
    let mut network = network;
    network.set_storage(&lathe_ops::storage::F32);
    let base = network.model.clone();
    let (corpus, plan) = source.prepare(asked, known, (&network, &tokenizer), context, out, watch)?;
    let most = (LOGITS / u64::from(base.frame.vocab)).max(256);
    let scoring = corpus.samples(&tokenizer, &base.frame, plan.amounts.score_tokens.min(most))?;
    let judging = corpus.judging(&tokenizer, &base.frame, plan.amounts.judge_tokens)?;
    write_json(&out.join(PLAN), &plan)?;
    let job = Job { context, out: out.clone(), plan, corpus, original, base, teacher, tokenizer, scoring, judging };
    let report = PathBuf::from(job.report_file());
    if !report.exists() {
        match &job.corpus {
            Corpus::Text(text, _) => text.write(text.parts.report, &report)?,
            Corpus::Examples(labelled) => labelled.write(out)?,
        }
    }
    Ok((job, network))
}

/// What a model is for, before anything is known of its tokens.
enum Source {
    Text(Text),
    Examples(Labelled),
}

impl Source {
    fn open(asked: &Asked, watch: Watch<'_>) -> Result<Self> {
        Ok(match asked.task.as_str() {
            "" => Self::Text(Text::open(&asked.data, asked.valid.as_deref())?),
            task => {
                let labelled = Labelled::open(task, &asked.columns, &asked.data, asked.valid.as_deref(), watch)?;
                labelled.task()?;
                Self::Examples(labelled)
            }
        })
    }

    /// The setting that counts: with examples of their mean length, where no other is asked for.
    fn with_lengths(&self, asked: &Asked, context: &Context<'_>) -> Result<Asked> {
        let mut asked = asked.clone();
        if let (Self::Examples(labelled), None) = (self, asked.workload.seq) {
            let given = input::trained(&asked.model)?;
            let model = folder::load_model(&given, context.registry)?;
            let [_, mean] = labelled.lengths(&Tokenizer::load(&given)?, &model.frame)?;
            asked.workload.seq = Some(mean);
        }
        Ok(asked)
    }

    /// An error where a model is for something else.
    fn check(&self, model: &Model) -> Result<()> {
        if lathe_model::build::shares(&model.frame) {
            let found = "a model whose layers share their weights";
            return Err(Error::setting(
                "model",
                found,
                "one whose layers have weights of their own, to change each by itself",
            ));
        }
        match self {
            Self::Examples(labelled) => Ok(labelled.task()?.0.check(&model.frame)?),
            Self::Text(_) if model.frame.backbone.causal() && model.frame.has_head() => Ok(()),
            Self::Text(_) => {
                let found = format!("`{}`, which does not predict the next token", model.frame.backbone.key());
                let expected = "a decoder with an output layer, or a task that the model was fine-tuned for";
                Err(Error::setting("model", found, expected))
            }
        }
    }

    /// The parts, and what is done of everything.
    fn prepare(
        self,
        asked: &Asked,
        known: Option<Plan>,
        (network, tokenizer): (&Network, &Tokenizer),
        context: &Context<'_>,
        out: &Path,
        watch: Watch<'_>,
    ) -> Result<(Corpus, Plan)> {
        let frame = &network.model.frame;
        match self {
            Self::Text(mut text) => {
                let tokens = text.learn(tokenizer, &out.join("tokens"), watch)?;
                let plan = match known {
                    Some(plan) => plan,
                    None => {
                        let longest = if frame.has_memory() { u32::MAX } else { LONGEST };
                        let enough = tokens.len() / u64::from(asked.train_batch).max(1);
                        let enough = u32::try_from(enough).unwrap_or(u32::MAX).saturating_sub(1).max(1);
                        let seq = frame.window().min(longest).min(enough);
                        let (plan, token) = decide_plan(asked, network, (seq, seq), context, watch)?;
                        // Every model is judged on the text to report on: that may take a while, but not all of the time.
                        let bytes_per_token = tokens.bytes() as f64 / tokens.len().max(1) as f64;
                        let judged = REPORTING * 60.0 * asked.budget / token;
                        text.report_at_most((judged * bytes_per_token) as u64 + 4096)?;
                        Plan { parts: text.parts.clone(), ..plan }
                    }
                };
                text.parts = plan.parts.clone();
                if tokens.len() <= u64::from(plan.seq) * u64::from(asked.train_batch) {
                    let least = plan.seq * asked.train_batch;
                    let expected = format!("at least {least}, a training step of {} sequences", asked.train_batch);
                    return Err(Error::data(&asked.data, format!("{} tokens to learn", tokens.len()), expected));
                }
                Ok((Corpus::Text(text, tokens), plan))
            }
            Self::Examples(mut labelled) => {
                let own = labelled.compare_by(network, tokenizer)?;
                if let Some(most) = asked.max_loss.filter(|_| own) {
                    let expected = "no bound, where similarities are the original's own, which has no loss";
                    return Err(Error::setting("max_loss", most, expected));
                }
                let plan = match known {
                    Some(plan) => plan,
                    None => {
                        let [longest, mean] = labelled.lengths(tokenizer, frame)?;
                        decide_plan(asked, network, (longest, mean), context, watch)?.0
                    }
                };
                Ok((Corpus::Examples(labelled), plan))
            }
        }
    }
}

/// Marks a folder as one of a job, before anything is decided.
fn begin(out: &Path) -> Result<()> {
    std::fs::create_dir_all(out).map_err(Error::io(out))?;
    input::write_text(&out.join(BEGUN), "")
}

/// The model without tokens that the text to learn never uses.
fn shrink(
    context: &Context<'_>,
    (network, tokenizer): (Network, Tokenizer),
    text: &Text,
    (baseline, out): (&Path, &Path),
    minutes: f64,
    watch: Watch<'_>,
) -> Result<(PathBuf, Network, Tokenizer)> {
    let folder = out.join(VOCAB);
    if folder.join("config.json").exists() {
        let network = folder::load(&folder, context.registry)?;
        return Ok((folder.clone(), network, Tokenizer::load(&folder)?));
    }
    let can = matches!(tokenizer, Tokenizer::Hf(_)) && network.model.frame.cutoffs.is_empty();
    if !can {
        return Ok((baseline.into(), network, tokenizer));
    }
    let aside = tempfile::tempdir().map_err(Error::io(Path::new("a folder for tokens")))?;
    let used = text.used(&tokenizer, aside.path(), watch)?;
    let bytes = (VOCAB_BYTES * (minutes / VOCAB_MINUTES).clamp(0.25, 1.0)) as u64;
    let part = text.beginning(text.parts.choose, bytes)?;
    let bits_of = |samples: &Samples, network: &Network| samples.bits_per_byte(samples.loss(network));
    let bits = |network: &Network, tokenizer: &Tokenizer| -> Result<f64> {
        Ok(bits_of(&text.samples(part, tokenizer, &network.model.frame, 0)?, network))
    };
    let (vocab, before) = (network.model.frame.vocab, bits(&network, &tokenizer)?);
    // Words that only other texts have are spelt with what is left: the tokens that were made first, which are those of any
    // text, stay as well, and where that costs too much, more of them.
    for common in [16, 8, 4, 2].map(|share| vocab / share) {
        let kept = used.iter().copied().chain(0..common).collect();
        let (smaller, fewer, ids) = match vocabulary::shrink(&network, &tokenizer, kept) {
            Ok(found) => found,
            Err(error) => {
                watch(Event::Warning(format!("all tokens stay: {error}")));
                break;
            }
        };
        // The few documents that are cut otherwise are looked for in all of the text to choose by.
        let more = if text.by_documents(&network.model.frame) {
            let both = [&tokenizer, &fewer];
            let changed = text.changed(text.parts.choose, both, &ids, &network.model.frame, VOCAB_TOKENS)?;
            let more = |[old, new]: &[Samples; 2]| match old.tokens {
                0 => 0.0,
                _ => bits_of(new, &smaller) - bits_of(old, &network),
            };
            // What tokens that are gone were held to be is the others' now.
            let [cut, same] = &changed.samples;
            changed.share * more(cut) + (1.0 - changed.share) * more(same)
        } else {
            bits(&smaller, &fewer)? - before
        };
        let cost = more / before;
        let left = smaller.model.frame.vocab;
        if cost <= VOCAB_MAY_COST && left < vocab {
            watch(Event::Message(format!("{left} of {vocab} tokens stay: {:+.2} % bits per byte", 100.0 * cost)));
            folder::save(&smaller, &folder)?;
            fewer.save(&folder)?;
            vocabulary::carry_token_ids(baseline, &folder, Some(&ids))?;
            return Ok((folder, smaller, fewer));
        }
        let (more, most) = (100.0 * cost, 100.0 * VOCAB_MAY_COST);
        watch(Event::Message(format!(
            "{left} of {vocab} tokens would cost {more:+.2} % bits per byte, more than {most} %"
        )));
    }
    Ok((baseline.into(), network, tokenizer))
}

/// What every block may become.
pub(super) fn choices(base: &Model, network: &Network, asked: &Asked, context: &Context<'_>) -> Choices {
    let storages = match asked.levers.contains(&Lever::Bits) {
        true => STORAGES.iter().map(|key| key.parse().expect("a storage")).collect(),
        false => vec![WeightStorage::F32],
    };
    let blocks = library::options(network, &asked.levers, context.registry);
    Choices { frame: base.frame.clone(), blocks, storages }
}

/// Decides how much is done of everything, with sequences of so many tokens at the most and in the mean. Returns the seconds
/// that reading a token takes, too.
fn decide_plan(
    asked: &Asked,
    network: &Network,
    (seq, mean): (u32, u32),
    context: &Context<'_>,
    watch: Watch<'_>,
) -> Result<(Plan, f64)> {
    let base = &network.model;
    let wanted: Option<Precision> = match &asked.train_precision {
        None => None,
        Some(name) => {
            let wrong = |_| Error::setting("train_precision", format!("`{name}`"), "f32 or bf16");
            Some(name.parse().map_err(wrong)?)
        }
    };
    watch(Event::Message("measuring a training step".into()));
    let (step, precision) = fastest(base, wanted, asked.train_batch, mean)?;
    let choices = choices(base, network, asked, context);
    let setting = Setting::of(base);
    let params = |block: &lathe_core::Block| block.kind.cost(block, &base.frame, &setting).params as f64;
    let own: f64 = choices.blocks.iter().map(|slot| params(&slot[0])).sum();
    let others: f64 = choices.blocks.iter().flat_map(|slot| &slot[1..]).map(params).sum();
    let measures = Measures {
        step,
        tokens: u64::from(asked.train_batch) * u64::from(mean),
        options: others / own.max(1.0),
        count: choices.blocks.iter().map(|slot| slot.len() - 1).sum(),
        proposers: proposers::proposers(&asked.proposers.join(","))?.len(),
        targets: if asked.max_loss.is_some() { super::decide::LADDER.len() } else { 1 + asked.frontier.len() },
    };
    let plan = Plan {
        asked: asked.clone(),
        parts: Parts::default(),
        seq,
        lr: asked.lr.unwrap_or_else(|| 3e-4 * (128.0 / f64::from(base.frame.d_model)).sqrt().min(1.0)),
        precision: precision.to_string(),
        step_seconds: step,
        amounts: Amounts::within(asked.budget, asked.steps, measures),
    };
    Ok((plan, step / 3.0 / measures.tokens as f64))
}

/// What one training step takes in the precision that is wanted, or in the faster one.
fn fastest(model: &Model, wanted: Option<Precision>, batch: u32, seq: u32) -> Result<(f64, Precision)> {
    let mut best: Option<(f64, Precision)> = None;
    for precision in [Precision::F32, Precision::Bf16] {
        let asked_for = wanted.map_or(precision.available() == precision, |wanted| wanted == precision);
        if asked_for {
            let seconds = step_seconds(model, precision, batch, seq)?;
            best = best.filter(|(least, _)| *least <= seconds).or(Some((seconds, precision)));
        }
    }
    Ok(best.expect("f32 at the least"))
}

/// What one training step takes.
fn step_seconds(model: &Model, precision: Precision, batch: u32, seq: u32) -> Result<f64> {
    let workload = Workload { mode: Mode::Train, batch, seq: Some(seq), precision, ..Workload::default() };
    let mut step = workload.whole(workload.model(model)?, 0)?;
    step();
    let mut times = Vec::new();
    for _ in 0..3 {
        let start = Instant::now();
        step();
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(median(times))
}
