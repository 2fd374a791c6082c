//! All stages in turn.

use super::architecture::{Architecture, Choices};
use super::first_training;
use super::job::{BASELINE, Candidate, Job, VOCAB};
use super::levers::Lever;
use super::library;
use super::menu::{Limits, Menu};
use super::outcome::Outcome;
use super::plan::{Amounts, Asked, Measures, Plan, Target};
use super::proposers::{self, Bench, SearchTraining};
use super::recover::Recipe;
use super::text::Text;
use crate::input::{self, read_json, write_json};
use crate::prune::vocabulary;
use crate::{Context, Error, Event, Result, Watch, identity};
use lathe_core::{Model, Setting};
use lathe_model::{Network, Precision, SuperNet, WeightStorage, folder};
use lathe_search::profile::median;
use lathe_search::workload::{Mode, Workload};
use lathe_train::data::{Tokenizer, Tokens};
use lathe_train::settings::Settings;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What a job decided at its start.
const PLAN: &str = "plan.json";
/// What says that a folder is a job's, before it has a plan.
const BEGUN: &str = ".lathe";
/// Stages of a job.
const STAGES: u32 = 7;
/// The longest sequence of a training step.
const LONGEST: u32 = 256;
/// Logits of the text that scores are taken on, at the most.
const LOGITS: u64 = 1 << 28;
/// Weights are stored as one of these, where bits may be changed.
const STORAGES: [&str; 4] = ["f32", "bf16", "int8", "int4_g32"];
/// What the bits of the model that only has fewer of them may cost, as a share of the loss.
const BITS_MAY_COST: f64 = 0.005;
/// What fewer tokens may cost, as a share of the bits per byte of so many tokens of the text to choose by.
const VOCAB_MAY_COST: f64 = 0.003;
const VOCAB_TOKENS: u64 = 1 << 14;
/// The share of the budget that judging one model may take.
const REPORTING: f64 = 0.015;
/// Architectures that are faster than asked for by less than this are good enough.
const CLOSE: f64 = 0.95;
/// Latencies that are tried where the most loss is given, as shares of what bits alone reach.
const LADDER: [f64; 5] = [0.85, 0.7, 0.58, 0.48, 0.4];

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

/// A model of the frontier before it is finished.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// Its folder's name.
    pub name: String,
    /// What was recovered.
    pub candidate: Candidate,
    /// The latency asked for, as a share of the original's.
    pub target: Option<f64>,
}

/// What architectures are made of.
struct Library<'a> {
    /// All options.
    net: &'a SuperNet,
    /// The model that they were derived from.
    network: &'a Network,
    /// Its loss on the tokens that are scored.
    loss: f64,
}

/// Everything that was decided on the way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Decided {
    /// Milliseconds of the original while architectures were measured.
    pub original_ms: f64,
    /// The latency asked for, as a share of the original's.
    pub target: Option<f64>,
    /// Ways to recover, each with its loss.
    pub recipes: Vec<(Recipe, f64)>,
    /// The best of them.
    pub recipe: Recipe,
    /// Candidates for the main target, the winner first.
    pub candidates: Vec<Candidate>,
    /// The models to finish; the asked-for one first.
    pub points: Vec<Point>,
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
    let decided =
        job.decide(&menu, &Library { net: &net, network: &network, loss: scores.loss }, original_ms, target_ms, watch)?;

    watch(stage(6, "store weights, and train the original on as a control"));
    let made: Vec<PathBuf> =
        decided.points.iter().map(|point| job.finish(&menu, point, watch)).collect::<Result<_>>()?;
    let (continued, control_steps) = job.continued(watch)?;

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

/// Opens a job: a new one, or that of the folder.
fn open<'a>(context: &'a Context<'a>, request: &Request, watch: Watch<'_>) -> Result<(Job<'a>, Network)> {
    let (asked, out) = (&request.asked, &request.out);
    let known: Option<Plan> = match out.join(PLAN).exists() {
        true => Some(read_json(&out.join(PLAN))?),
        false => None,
    };
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
    asked.target()?;
    proposers::proposers(&asked.proposers.join(","))?;
    let mut text = Text::open(&asked.data, asked.valid.as_deref())?;
    let place = || format!("out {}", out.display());
    if known.is_none() && !folder::is_free(out)? && !out.join(BEGUN).exists() {
        return Err(Error::setting(place(), "other files", "a new or empty folder"));
    }
    let given = match input::trained(&asked.model) {
        Ok(given) => given,
        Err(error) => {
            if input::spec(&asked.model, context.registry).is_err() {
                return Err(error);
            }
            watch(Event::Message(format!("{} has no weights: it is trained first", asked.model)));
            begin(out)?;
            first_training::train(context, asked, &text, step_seconds, out, watch)?
        }
    };
    let original = folder::load_model(&given, context.registry)?;
    if !(original.frame.backbone.causal() && original.frame.has_head()) {
        let found = format!("`{}`, which does not predict the next token", original.frame.backbone.key());
        return Err(Error::setting("model", found, "a decoder with an output layer"));
    }
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
    let (teacher, network, tokenizer) = match asked.levers.contains(&Lever::Vocab) {
        true => shrink(context, whole, tokenizer, &text, (&baseline, out), watch)?,
        false => (baseline, whole, tokenizer),
    };
    let mut network = network;
    network.set_storage(&lathe_ops::storage::F32);
    let tokens = text.learn(&tokenizer, &out.join("tokens"), watch)?;
    let base = network.model.clone();
    let plan = match known {
        Some(plan) => plan,
        None => decide_plan(asked, &mut text, &network, &tokens, context, watch)?,
    };
    text.parts = plan.parts.clone();
    if tokens.len() <= u64::from(plan.seq) * u64::from(asked.train_batch) {
        let expected =
            format!("at least {}, a training step of {} sequences", plan.seq * asked.train_batch, asked.train_batch);
        return Err(Error::data(&asked.data, format!("{} tokens to learn", tokens.len()), expected));
    }
    let part = text.parts.choose;
    let most = (LOGITS / u64::from(base.frame.vocab)).max(256);
    let scoring = text.samples(part, &tokenizer, &base.frame, plan.amounts.score_tokens.min(most))?;
    let judging = text.samples(part, &tokenizer, &base.frame, plan.amounts.judge_tokens)?;
    write_json(&out.join(PLAN), &plan)?;
    let report = out.join("report.txt");
    if !report.exists() {
        text.write(text.parts.report, &report)?;
    }
    let job =
        Job { context, out: out.clone(), plan, text, original, base, teacher, tokenizer, tokens, scoring, judging };
    Ok((job, network))
}

/// Marks a folder as one of a job, before anything is decided.
fn begin(out: &Path) -> Result<()> {
    std::fs::create_dir_all(out).map_err(Error::io(out))?;
    input::write_text(&out.join(BEGUN), "")
}

/// The model without tokens that the text to learn never uses.
fn shrink(
    context: &Context<'_>,
    network: Network,
    tokenizer: Tokenizer,
    text: &Text,
    (baseline, out): (&Path, &Path),
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
    let bits = |network: &Network, tokenizer: &Tokenizer| -> Result<f64> {
        let samples = text.samples(text.parts.choose, tokenizer, &network.model.frame, VOCAB_TOKENS)?;
        Ok(samples.bits_per_byte(samples.loss(network)))
    };
    let (vocab, before) = (network.model.frame.vocab, bits(&network, &tokenizer)?);
    // Words that only other texts have are spelt with what is left. Where that costs too much, the tokens that were made
    // first, which are those of any text, stay as well.
    for common in [0, vocab / 8, vocab / 4] {
        let kept = used.iter().copied().chain(0..common).collect();
        let (smaller, fewer, ids) = match vocabulary::shrink(&network, &tokenizer, kept) {
            Ok(found) => found,
            Err(error) => {
                watch(Event::Warning(format!("all tokens stay: {error}")));
                break;
            }
        };
        let cost = bits(&smaller, &fewer)? / before - 1.0;
        let left = smaller.model.frame.vocab;
        if cost <= VOCAB_MAY_COST && left < vocab {
            watch(Event::Message(format!("{left} of {vocab} tokens stay: {:+.2} % bits per byte", 100.0 * cost)));
            folder::save(&smaller, &folder)?;
            fewer.save(&folder)?;
            vocabulary::carry_token_ids(baseline, &folder, Some(&ids))?;
            return Ok((folder, smaller, fewer));
        }
    }
    Ok((baseline.into(), network, tokenizer))
}

/// What every block may become.
fn choices(base: &Model, network: &Network, asked: &Asked, context: &Context<'_>) -> Choices {
    let storages = match asked.levers.contains(&Lever::Bits) {
        true => STORAGES.iter().map(|key| key.parse().expect("a storage")).collect(),
        false => vec![WeightStorage::F32],
    };
    let blocks = library::options(network, &asked.levers, context.registry);
    Choices { frame: base.frame.clone(), blocks, storages }
}

/// Decides how much is done of everything.
fn decide_plan(
    asked: &Asked,
    text: &mut Text,
    network: &Network,
    tokens: &Tokens,
    context: &Context<'_>,
    watch: Watch<'_>,
) -> Result<Plan> {
    let base = &network.model;
    let wanted: Option<Precision> = match &asked.train_precision {
        None => None,
        Some(name) => {
            let wrong = |_| Error::setting("train_precision", format!("`{name}`"), "f32 or bf16");
            Some(name.parse().map_err(wrong)?)
        }
    };
    let longest = if base.frame.has_memory() { u32::MAX } else { LONGEST };
    let enough = u32::try_from(tokens.len() / u64::from(asked.train_batch).max(1)).unwrap_or(u32::MAX);
    let seq = base.frame.window().min(longest).min(enough.saturating_sub(1).max(1));
    watch(Event::Message("measuring a training step".into()));
    let (step, precision) = fastest(base, wanted, asked.train_batch, seq)?;
    let choices = choices(base, network, asked, context);
    let setting = Setting::of(base);
    let params = |block: &lathe_core::Block| block.kind.cost(block, &base.frame, &setting).params as f64;
    let own: f64 = choices.blocks.iter().map(|slot| params(&slot[0])).sum();
    let others: f64 = choices.blocks.iter().flat_map(|slot| &slot[1..]).map(params).sum();
    let measures = Measures {
        step,
        tokens: u64::from(asked.train_batch) * u64::from(seq),
        options: others / own.max(1.0),
        count: choices.blocks.iter().map(|slot| slot.len() - 1).sum(),
        proposers: proposers::proposers(&asked.proposers.join(","))?.len(),
        targets: if asked.max_loss.is_some() { LADDER.len() } else { 1 + asked.frontier.len() },
    };
    // Every model is judged on the text to report on: that may take a while, but not all of the time.
    let bytes_per_token = tokens.bytes() as f64 / tokens.len().max(1) as f64;
    let judged = REPORTING * 60.0 * asked.budget / (step / 3.0 / measures.tokens as f64);
    text.report_at_most((judged * bytes_per_token) as u64 + 4096)?;
    Ok(Plan {
        asked: asked.clone(),
        parts: text.parts.clone(),
        seq,
        lr: asked.lr.unwrap_or_else(|| 3e-4 * (128.0 / f64::from(base.frame.d_model)).sqrt().min(1.0)),
        precision: precision.to_string(),
        step_seconds: step,
        amounts: Amounts::within(asked.budget, asked.steps, measures),
    })
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

impl Job<'_> {
    /// Says what to expect before the long part begins.
    fn expect(&self, menu: &Menu, original_ms: f64, watch: Watch<'_>) {
        let ratio = |architecture: &Architecture| 1e3 * original_ms / menu.estimate_us(architecture);
        let slots = menu.slots();
        let last = menu.choices.storages.len() - 1;
        let smallest =
            |storage| Architecture { storages: vec![storage; slots], frame: storage, ..Architecture::own(slots) };
        let bits = (0..=last).map(|storage| ratio(&smallest(storage))).fold(0.0, f64::max);
        let plan = &self.plan;
        watch(Event::Message(format!(
            "within reach by the table: {bits:.1} times as fast with every block{}, {:.1} times with the least of everything; \
             about {:.0} minutes from here",
            if self.base == self.original { "" } else { " and the tokens that the text uses" },
            ratio(&menu.cheapest()),
            0.9 * plan.asked.budget
        )));
    }

    /// Proposes, recovers and chooses.
    fn decide(
        &self,
        menu: &Menu,
        library: &Library<'_>,
        original_ms: f64,
        target_ms: f64,
        watch: Watch<'_>,
    ) -> Result<Decided> {
        let Library { net, network, loss } = *library;
        let path = self.path("decided.json");
        if path.exists() {
            return read_json(&path);
        }
        let asked = &self.plan.asked;
        let bytes = asked.target_memory_mb.map_or(f64::INFINITY, |mb| mb * f64::from(1 << 20));
        let influence = self.influence(network);
        let amounts = (self.plan.amounts.evaluations, u64::from(asked.seed));
        let proposers = proposers::proposers(&asked.proposers.join(","))?;
        let training = self.search_training(proposers.iter().any(|one| one.trains()), watch)?;
        let bench = Bench::new(menu, net, &self.judging, &influence, amounts, training);
        let limits = |us: f64| Limits { us, bytes };
        let slots = menu.slots();
        let mut points = Vec::new();

        // What bits and tokens alone give.
        let own = vec![0; slots];
        let bits = self.bits_alone(menu, loss, bytes);
        let ladder: Vec<f64> = match (&bits, asked.max_loss) {
            (bits, Some(_)) => {
                let start = bits.as_ref().map_or(1e3 * original_ms, |bits| menu.estimate_us(bits));
                LADDER.iter().map(|share| share * start).collect()
            }
            (_, None) if target_ms.is_finite() => std::iter::once(1e3 * target_ms)
                .chain(asked.frontier.iter().map(|share| share * 1e3 * original_ms))
                .collect(),
            _ => vec![f64::INFINITY],
        };
        let ladder: Vec<f64> =
            ladder.into_iter().filter(|&us| self.check_limit(menu, us, original_ms).is_ok()).collect();

        let mut recipes = Vec::new();
        let mut recipe = Recipe::Teacher;
        let mut candidates = Vec::new();
        let most = asked.max_loss.map(|per_cent| (1.0 + per_cent / 100.0) * self.judging.loss(network));
        for (i, &us) in ladder.iter().enumerate() {
            let mut list: Vec<Candidate> = Vec::new();
            // The main target is everybody's; all others are the winner's.
            let who: Vec<_> = match (i, candidates.first()) {
                (0, _) | (_, None) => proposers.clone(),
                (_, Some(best)) => proposers.iter().copied().filter(|one| best_of(best, one.key())).collect(),
            };
            for proposer in who {
                watch(Event::Part(format!("{}: {}", proposer.key(), proposer.about())));
                let Some(found) = proposer.propose(&bench, limits(us), watch)? else { continue };
                if let Some(known) = list.iter_mut().find(|one| one.architecture.options == found.options) {
                    known.from.push(proposer.key().into());
                    continue;
                }
                let name = if i == 0 { proposer.key().to_string() } else { format!("{}-{}", proposer.key(), i + 1) };
                list.push(self.candidate(name, proposer.key(), found, (&bench, us, original_ms), watch)?);
            }
            if list.is_empty() {
                continue;
            }
            if i == 0 && list.iter().any(|one| !one.architecture.is_whole()) {
                let first = list.iter().find(|one| !one.architecture.is_whole()).expect("just seen");
                (recipe, recipes) = self.recipe(first, watch)?;
            }
            let target = us.is_finite().then(|| us / 1e3 / original_ms);
            let best = if i == 0 {
                candidates = self.halve(list, recipe, watch)?;
                candidates[0].clone()
            } else {
                let best = list.into_iter().min_by(|a, b| a.assembled.total_cmp(&b.assembled)).expect("not empty");
                self.recover(best, recipe, watch)?
            };
            let expected = self.expected(&best);
            let name = if i == 0 { "found".to_string() } else { format!("at-{:.2}", us / 1e3 / original_ms) };
            points.push(Point { name, candidate: best, target });
            if most.is_some_and(|most| expected > most) {
                break;
            }
        }
        if let Some(bits) = bits.filter(|_| menu.choices.storages.len() > 1) {
            let candidate = self.candidate("bits".into(), "bits", bits, (&bench, f64::INFINITY, original_ms), watch)?;
            points.push(Point { name: "bits".into(), candidate, target: None });
        }
        if self.base != self.original {
            let own = Architecture { options: own, ..Architecture::own(slots) };
            let candidate =
                self.candidate("vocab".into(), "vocab", own, (&bench, f64::INFINITY, original_ms), watch)?;
            points.push(Point { name: "vocab".into(), candidate, target: None });
        }
        if let Some(most) = most {
            // The fastest within the loss first; without one, the best.
            let fits = |point: &Point| self.expected(&point.candidate) <= most;
            points.sort_by(|a, b| {
                let key = |point: &Point| if fits(point) { point.candidate.measured } else { f64::INFINITY };
                let loss = |point: &Point| self.expected(&point.candidate);
                key(a).total_cmp(&key(b)).then(loss(a).total_cmp(&loss(b)))
            });
            for (i, point) in points.iter_mut().enumerate() {
                match (i, point.name.as_str()) {
                    (0, _) => point.name = "found".into(),
                    (_, "found") => point.name = format!("at-{:.2}", point.candidate.measured),
                    _ => {}
                }
            }
        }
        if points.is_empty() {
            return Err(Error::data("proposers", "no architecture within the limits", "limits that one meets"));
        }
        let target = match asked.target()? {
            Target::None => None,
            target => Some(target.ms(original_ms) / original_ms),
        };
        let decided = Decided { original_ms, target, recipes, recipe, candidates, points };
        write_json(&path, &decided)?;
        Ok(decided)
    }

    /// What searches that train work with.
    fn search_training(&self, wanted: bool, watch: Watch<'_>) -> Result<SearchTraining<'_>> {
        let tokens = self.path("search_tokens");
        if wanted {
            self.text.learn_and_choose(&self.tokenizer, &tokens, watch)?;
        }
        let data = tokens.display().to_string();
        let settings = self.training(Path::new(""), 2 * self.plan.amounts.first_steps);
        Ok(SearchTraining {
            settings: Settings { data, balance: 0.0, ..settings },
            options: self.path("options").join("checkpoints"),
            folder: self.path("searches"),
            registry: self.context.registry,
        })
    }

    /// The fastest model with every block whose bits cost next to nothing.
    fn bits_alone(&self, menu: &Menu, loss: f64, bytes: f64) -> Option<Architecture> {
        let own = vec![0; menu.slots()];
        let may_cost = BITS_MAY_COST * loss;
        let slowest = menu.estimate_us(&Architecture::own(menu.slots()));
        let steps = 60;
        (1..=steps).find_map(|i| {
            let us = slowest * f64::from(i) / f64::from(steps);
            menu.stored(&own, Limits { us, bytes }).filter(|found| menu.lost_by_storage(found) <= may_cost)
        })
    }

    /// An architecture, measured whole, and its weights as they are assembled. Where it takes longer than the table said, a
    /// tighter limit is set, and the same proposal is stored in fewer bits if that is enough.
    fn candidate(
        &self,
        name: String,
        from: &str,
        architecture: Architecture,
        (bench, us, original_ms): (&Bench<'_>, f64, f64),
        watch: Watch<'_>,
    ) -> Result<Candidate> {
        let (menu, limit) = (bench.menu, us / 1e3 / original_ms);
        let mut architecture = architecture;
        let (mut measured, _) = self.measure(&menu.choices, &architecture)?;
        let estimated = menu.estimate_us(&architecture) / 1e3 / original_ms;
        if measured > limit {
            let tighter = Limits { us: CLOSE.min(limit / measured) * us, bytes: f64::INFINITY };
            if let Some(other) = menu.stored(&architecture.options, tighter) {
                (measured, _) = self.measure(&menu.choices, &other)?;
                architecture = other;
            }
        }
        let layers = menu.choices.model(&architecture).layers();
        watch(Event::Note(&layers));
        let folder = self.path("recover").join(&name).join("assembled");
        if !folder.join("config.json").exists() {
            folder::save(&menu.choices.network(&architecture, bench.net)?, &folder)?;
            self.tokenizer.save(&folder)?;
        }
        let lost_by_storage = menu.lost_by_storage(&architecture);
        let assembled = bench.loss(&architecture) - lost_by_storage;
        let (from, rounds) = (vec![from.to_string()], Vec::new());
        Ok(Candidate {
            name,
            from,
            architecture,
            layers,
            estimated,
            measured,
            assembled,
            lost_by_storage,
            rounds,
            folder,
        })
    }
}

fn best_of(best: &Candidate, key: &str) -> bool {
    best.from.iter().any(|from| from == key)
}
