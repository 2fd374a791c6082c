//! How well a model folder predicts a text, and how far its predictions are from those of another.

use crate::{Error, Event, Result, Watch, input};
use lathe_core::model::{MAX_LEN, key};
use lathe_core::{Model, Registry};
use lathe_model::{Network, Precision, folder};
use lathe_train::against::{Against, Shared, Truth};
use lathe_train::data::{self, Data, Documents, Source, Tokenizer};
use lathe_train::divergence::Divergence;
use lathe_train::evaluate::{Evaluation, Onlooker, Options, evaluate_documents};
use lathe_train::examples::benchmarks;
use lathe_train::examples::open::Wanted;
use lathe_train::tasks::{self, Task};
use lathe_train::texts::language_of;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What to evaluate, and on what.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// A model folder.
    pub folder: PathBuf,
    /// A text: a file, a folder, or the built-in language.
    pub data: String,
    /// Tokens that a window shares with the one before, where there is no memory.
    pub context: u32,
    /// Tokens of a window, where there is no memory; the model's max_len without it.
    pub window: Option<u32>,
    /// Tokens of a window over a memory.
    pub tgt_len: Option<u32>,
    /// Tokens remembered before a window.
    pub mem_len: Option<u32>,
    /// Distances beyond it count as it.
    pub clamp_len: Option<u32>,
    /// Precision of products.
    pub precision: Precision,
    /// What to evaluate for, a task or a benchmark; empty for what the model is for.
    pub task: String,
    /// Of examples: the columns of texts and label, where they are not the usual ones.
    pub columns: String,
    /// Of embeddings: what they are, where it is not what the model says.
    pub pooling: Option<String>,
    /// Whether documents are scored one by one, each from its own beginning.
    pub documents: bool,
    /// Another model folder, whose predictions these are compared with.
    pub against: Option<PathBuf>,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// How well the text is predicted.
    #[serde(flatten)]
    pub evaluation: Evaluation,
    /// KL(p || q) of p, the other model's, and q, this one's, where there is another.
    #[serde(flatten)]
    pub divergence: Option<Divergence>,
    /// Of a benchmark with several files, the evaluation of each; the metrics above are their means.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<OfFile>,
}

/// How well several models do on a suite of benchmarks.
#[derive(Debug, Clone, Serialize)]
pub struct Suite {
    /// The mean score of those that there are.
    pub score: f64,
    /// Each of them.
    pub tasks: BTreeMap<&'static str, Outcome>,
    /// Those of which there is no model.
    pub missing: Vec<&'static str>,
}

/// Evaluates a folder of model folders on GLUE or SuperGLUE: one for each benchmark, called as the folder of its files.
/// `None` where the task of the request is no suite.
pub fn suite(registry: &Registry, request: &Request, watch: Watch<'_>) -> Result<Option<Suite>> {
    let benchmarks = benchmarks::suite(&request.task);
    if benchmarks.is_empty() {
        return Ok(None);
    }
    let mut suite = Suite { score: 0.0, tasks: BTreeMap::new(), missing: Vec::new() };
    for benchmark in benchmarks {
        let folder = request.folder.join(benchmark.folder);
        if !folder::is_model_folder(&folder) {
            suite.missing.push(benchmark.name);
            continue;
        }
        let data = Path::new(&request.data).join(benchmark.folder).display().to_string();
        let own = Request { folder, data, task: benchmark.name.into(), ..request.clone() };
        let found = run(registry, &own, &mut *watch)?;
        suite.score += found.evaluation.scores.get("score").copied().unwrap_or(f64::NAN);
        suite.tasks.insert(benchmark.name, found);
    }
    if suite.tasks.is_empty() {
        let expected = format!("model folders such as {}", suite.missing.join(", "));
        return Err(Error::data(
            request.folder.display(),
            "none of a benchmark",
            expected.replace(&format!("{}:", request.task), ""),
        ));
    }
    suite.score /= suite.tasks.len() as f64;
    Ok(Some(suite))
}

/// How well a model does on a file.
#[derive(Debug, Clone, Serialize)]
pub struct OfFile {
    /// Which.
    pub file: String,
    /// How well.
    #[serde(flatten)]
    pub evaluation: Evaluation,
}

/// Evaluates a model folder.
pub fn run(registry: &Registry, request: &Request, watch: Watch<'_>) -> Result<Outcome> {
    if let Some(warning) = request.precision.warning() {
        watch(Event::Warning(warning));
    }
    let request = &Request { folder: input::model_folder(&request.folder)?, ..request.clone() };
    let subject = Subject::load(registry, request)?;
    let Some(folder) = &request.against else {
        if let Some(task) = subject.task.of_examples() {
            return subject.examples(task.key(), request, watch);
        }
        let evaluation = subject.evaluate(request, None, watch)?;
        return Ok(Outcome { evaluation, divergence: None, files: Vec::new() });
    };
    // Windows are those of the model that is evaluated.
    let other = Request { folder: input::model_folder(folder)?, context: 0, window: None, ..request.clone() };
    let other = Subject::load(registry, &other)?;
    let shared = shared(&subject, &other)?;
    if let Some(count) = shared.count() {
        watch(Event::Message(format!("note: kl and same_top are over the {count} tokens that both models have")));
    }
    let against = Against::new(&subject.network, &other.network, &shared, Truth::Onlooker);
    let evaluation = subject.evaluate(request, Some(&against), watch)?;
    let Some(divergence) = against.finish() else {
        let expected = "a task whose predictions are tokens";
        return Err(Error::setting("against", format_args!("nothing of {}", subject.task.key()), expected));
    };
    Ok(Outcome { evaluation, divergence: Some(divergence), files: Vec::new() })
}

/// What two models share, where the other can read whatever the first one's tokenizer gives.
fn shared(subject: &Subject, other: &Subject) -> Result<Shared> {
    let expected = format!("a vocabulary with all tokens of {}", subject.folder.display());
    let place = other.folder.display();
    match Shared::of(subject.outputs(), other.outputs()) {
        None => Err(Error::data(place, "bytes in one, a tokenizer in the other", expected)),
        Some(shared) => match shared.missing(&subject.tokenizer) {
            0 => Ok(shared),
            missing => Err(Error::data(place, format!("a vocabulary without {missing} of its tokens"), expected)),
        },
    }
}

/// A model with its weights, ready to be evaluated.
pub(crate) struct Subject {
    pub folder: PathBuf,
    pub network: Network,
    pub tokenizer: Tokenizer,
    pub task: &'static dyn Task,
}

impl Subject {
    /// Loads the folder of a request.
    pub fn load(registry: &Registry, request: &Request) -> Result<Self> {
        let folder = &request.folder;
        let model = request.model(registry)?;
        let tokenizer = Tokenizer::load(folder)?;
        check_tokenizer(&tokenizer, &model, folder)?;
        let task = tasks::find(&request.task, &model)?;
        let mut network = folder::load_as(folder, model)?;
        network.set_precision(request.precision);
        network.freeze();
        Ok(Self { folder: folder.clone(), network, tokenizer, task })
    }

    /// Its tokenizer, and how many outputs the model has.
    pub fn outputs(&self) -> (&Tokenizer, u32) {
        (&self.tokenizer, self.network.model.frame.vocab)
    }

    /// How well it predicts the text.
    pub fn evaluate(&self, request: &Request, onlooker: Option<&dyn Onlooker>, watch: Watch<'_>) -> Result<Evaluation> {
        if request.documents {
            return self.documents(request, onlooker, watch);
        }
        let watch = RefCell::new(watch);
        let aside = tempfile::tempdir().map_err(Error::io(Path::new("a folder for tokens")))?;
        let progress = |what: &str, done, total| watch.borrow_mut()(Event::Bytes { what, done, total });
        let path = aside.path().join("tokens");
        let tokens = match self.task.of_documents() {
            true => {
                let source = Source::open(&request.data)?;
                data::encode_documents(&source, 0..source.bytes(), &self.tokenizer, &path, &progress)?
            }
            false => data::encode_source(&request.data, &self.tokenizer, &path, &progress)?,
        };
        if tokens.len() < 2 {
            let found = format!("{} tokens", tokens.len());
            return Err(Error::data(&request.data, found, "at least 2, for the first is not scored"));
        }
        let language = language_of(&request.data, &self.tokenizer);
        let (context, window) = (request.context as usize, request.window.unwrap_or(0) as usize);
        let options =
            Options { context, window, language: language.as_ref(), onlooker, ..Options::new(&self.tokenizer) };
        let evaluation = self.task.evaluate(&self.network, &tokens.into(), &options, &mut |done, total| {
            watch.borrow_mut()(Event::Steps { what: "evaluating", note: "", done, total });
        })?;
        watch.borrow_mut()(Event::Done);
        Ok(evaluation)
    }

    /// Judges predictions of examples, those of each file by themselves.
    fn examples(&self, task: &'static str, request: &Request, watch: Watch<'_>) -> Result<Outcome> {
        let name = if request.task.is_empty() { task } else { request.task.as_str() };
        let wanted = Wanted { task: name, columns: &request.columns, labelled: true };
        let mut files = Vec::new();
        for path in wanted.judged(Path::new(&request.data))? {
            let examples = wanted.read(&path, &mut |warning| watch(Event::Warning(warning)))?;
            if examples.examples.is_empty() {
                return Err(Error::data(path.display(), "no examples", "at least one"));
            }
            let window = request.window.unwrap_or(0) as usize;
            let options = Options { window, ..Options::new(&self.tokenizer) };
            let data = Data::Examples(Arc::new(examples));
            let evaluation = self.task.evaluate(&self.network, &data, &options, &mut |done, total| {
                watch(Event::Steps { what: "evaluating", note: "", done, total });
            })?;
            watch(Event::Done);
            if let Some(note) = &evaluation.note {
                watch(Event::Warning(note.clone()));
            }
            files.push(OfFile { file: path.display().to_string(), evaluation });
        }
        let evaluation = mean(&files);
        Ok(Outcome { evaluation, divergence: None, files: if files.len() > 1 { files } else { Vec::new() } })
    }

    /// Scores documents one by one.
    fn documents(&self, request: &Request, onlooker: Option<&dyn Onlooker>, watch: Watch<'_>) -> Result<Evaluation> {
        let frame = &self.network.model.frame;
        if !frame.backbone.causal() {
            let found = format!("documents for a {}", frame.backbone.key());
            return Err(Error::setting("documents", found, "a model that predicts the next token"));
        }
        let longest = if frame.has_memory() { MAX_LEN } else { request.window.unwrap_or(frame.max_len) };
        let source = Source::open(&request.data)?;
        let mut sequences = Documents::new(&source)?.tokens(&self.tokenizer, longest as usize)?;
        let mut heard = |done| watch(Event::Steps { what: "evaluating", note: "documents", done, total: 0 });
        let evaluation = evaluate_documents(&self.network, &mut sequences, onlooker, &mut heard)?;
        watch(Event::Done);
        if evaluation.tokens == 0 {
            return Err(Error::data(&request.data, "no token to score", "documents of at least two tokens"));
        }
        Ok(evaluation)
    }
}

/// The mean metrics of files.
fn mean(files: &[OfFile]) -> Evaluation {
    let of = |value: &dyn Fn(&Evaluation) -> Option<f64>| -> Option<f64> {
        let values: Vec<f64> = files.iter().filter_map(|file| value(&file.evaluation)).collect();
        (values.len() == files.len()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let names = files.first().into_iter().flat_map(|file| file.evaluation.scores.keys());
    let score = |name: &String| Some((name.clone(), of(&|evaluation| evaluation.scores.get(name).copied())?));
    Evaluation {
        loss: of(&|evaluation| Some(evaluation.loss)).unwrap_or(f64::NAN),
        tokens: files.iter().map(|file| file.evaluation.tokens).sum(),
        examples: files.iter().map(|file| file.evaluation.examples).sum(),
        accuracy: of(&|evaluation| evaluation.accuracy),
        scores: names.filter_map(score).collect(),
        ..Evaluation::NONE
    }
}

impl Request {
    /// The model with the lengths of the evaluation.
    fn model(&self, registry: &Registry) -> Result<Model> {
        let mut spec = folder::load_model(&self.folder, registry)?.spec();
        let lengths = [("tgt_len", self.tgt_len), ("mem_len", self.mem_len), ("clamp_len", self.clamp_len)];
        for (name, value) in lengths {
            let key = key(name).expect("a key of the model file");
            if let Some(value) = value {
                spec.set(key, key.parse(&value.to_string())?);
            }
        }
        input::set_pooling(&mut spec, self.pooling.as_deref(), registry)?;
        let model = spec.model(registry)?;
        let frame = &model.frame;
        if frame.has_memory() {
            for (setting, given) in [("context", self.context), ("window", self.window.unwrap_or(0))] {
                if given > 0 {
                    let found = format!("{given} for a {}, whose memory is its context", frame.backbone.key());
                    return Err(Error::setting(setting, found, "`tgt_len` and `mem_len`"));
                }
            }
            return Ok(model);
        }
        let window = self.window.unwrap_or(frame.max_len);
        if window == 0 || window > frame.max_len {
            let expected = format!("from 1 to max_len, which is {}", frame.max_len);
            return Err(Error::setting("window", window, expected));
        }
        if self.context >= window {
            let of = if self.window.is_some() { "the window" } else { "max_len" };
            return Err(Error::setting("context", self.context, format!("less than {of}, which is {window}")));
        }
        Ok(model)
    }
}

/// An error where the tokenizer of a folder cannot be that of its model.
pub(crate) fn check_tokenizer(tokenizer: &Tokenizer, model: &Model, folder: &Path) -> Result<()> {
    let (found, vocab) = (tokenizer.vocab(), model.frame.vocab);
    match tokenizer {
        // An encoder of bytes has a mask token more.
        Tokenizer::Bytes if vocab != 256 + u32::from(!model.frame.backbone.causal()) => {
            let expected = format!("one, for the vocabulary of {vocab} is not that of bytes");
            Err(Error::data(folder.display(), "no tokenizer.json", expected))
        }
        _ if found > vocab => {
            let expected = format!("at most {vocab}, the model's vocabulary");
            let file = Tokenizer::file_of(folder)?.unwrap_or_else(|| folder.into());
            Err(Error::data(file.display(), format!("{found} tokens"), expected))
        }
        _ => Ok(()),
    }
}
