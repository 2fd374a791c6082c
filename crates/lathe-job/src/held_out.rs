//! A text for jobs that change a trained model: one part to look at, another to judge by, which the job sees only to say
//! how good the result is.

use crate::evaluate::check_tokenizer;
use crate::{Error, Event, Result, Watch};
use lathe_core::model::MAX_LEN;
use lathe_model::Network;
use lathe_train::data::{self, DataSpec, Documents, Sequence, Source, Tokenizer, Tokens};
use lathe_train::evaluate::{Evaluation, Options, evaluate_documents};
use lathe_train::tasks;
use std::cell::RefCell;
use std::path::Path;

/// The longest sequence to look at: statistics need many places, not long ones.
const LONGEST: usize = 512;
/// Every so many documents, one is to judge by.
const SHARE: usize = 10;

/// A text in two parts.
pub struct HeldOut {
    /// The model's.
    pub tokenizer: Tokenizer,
    /// What to look at: sequences from all over the first part.
    pub sequences: Vec<Vec<u32>>,
    judged: Judged,
    /// Where the tokens are.
    _aside: tempfile::TempDir,
}

/// What to judge by.
enum Judged {
    /// The last tenth of a text, and the first nine.
    Text(Tokens, Tokens),
    /// Every tenth document.
    Documents(Vec<Sequence>),
}

/// Which text, and how much of it.
#[derive(Debug, Clone)]
pub struct TextRequest {
    /// A file, a folder, or the built-in language.
    pub data: String,
    /// Whether it is cut into documents, each of which begins anew; else into windows.
    pub documents: bool,
    /// Tokens to look at, about.
    pub tokens: usize,
    /// Tokens to judge by, at most; 0 for all.
    pub judged: u64,
}

impl HeldOut {
    /// Reads a text with the tokenizer of a model folder.
    pub fn open(folder: &Path, network: &Network, request: &TextRequest, watch: Watch<'_>) -> Result<Self> {
        let tokenizer = Tokenizer::load(folder)?;
        check_tokenizer(&tokenizer, &network.model, folder)?;
        let aside = tempfile::tempdir().map_err(Error::io(Path::new("a folder for tokens")))?;
        let (sequences, judged) = match request.documents {
            true => documents(network, &tokenizer, request)?,
            false => windows(folder, network, request, aside.path(), watch)?,
        };
        if sequences.is_empty() {
            return Err(Error::data(&request.data, "too short a text", "at least two tokens in each of its parts"));
        }
        Ok(Self { tokenizer, sequences, judged, _aside: aside })
    }

    /// The tokens of the first part, where the text is not cut into documents.
    pub fn first_part(&self) -> Option<&Tokens> {
        match &self.judged {
            Judged::Text(_, first) => Some(first),
            Judged::Documents(_) => None,
        }
    }

    /// How well a network predicts the part to judge by.
    pub fn evaluate(&self, network: &Network, limit: u64, watch: Watch<'_>) -> Result<Evaluation> {
        let mut told = |done, total| watch(Event::Steps { what: "evaluating", note: "", done, total });
        let evaluation = match &self.judged {
            Judged::Text(tokens, _) => {
                let options = Options { limit, ..Options::new(&self.tokenizer) };
                tasks::find("", &network.model)?.evaluate(network, &tokens.clone().into(), &options, &mut told)?
            }
            Judged::Documents(documents) => {
                let total = documents.len() as u64;
                let mut sequences = documents.iter().cloned().map(Ok);
                evaluate_documents(network, &mut sequences, None, &mut |done| told(done, total))?
            }
        };
        watch(Event::Done);
        Ok(evaluation)
    }
}

/// Nine documents of ten to look at, the tenth to judge by.
fn documents(network: &Network, tokenizer: &Tokenizer, request: &TextRequest) -> Result<(Vec<Vec<u32>>, Judged)> {
    let frame = &network.model.frame;
    let longest = if frame.has_memory() { MAX_LEN } else { frame.max_len };
    let source = Source::open(&request.data)?;
    let (mut looked, mut judged) = (Vec::new(), Vec::new());
    let mut left = if request.judged == 0 { u64::MAX } else { request.judged };
    for (i, sequence) in Documents::new(&source)?.tokens(tokenizer, longest as usize)?.enumerate() {
        let sequence = sequence?;
        match (i + 1).is_multiple_of(SHARE) {
            true if left > 0 => {
                left = left.saturating_sub(sequence.targets() as u64);
                judged.push(sequence);
            }
            true => {}
            false => looked.push(sequence.ids),
        }
    }
    if judged.is_empty() {
        return Err(Error::data(&request.data, "fewer than ten documents", "at least ten, one of which is held out"));
    }
    // From all over the text, in its order.
    let mean = looked.iter().map(Vec::len).sum::<usize>() as f64 / looked.len().max(1) as f64;
    let wanted = ((request.tokens as f64 / mean.max(1.0)).ceil() as usize).clamp(1, looked.len());
    let every = looked.len() as f64 / wanted as f64;
    let at = |i: usize| (i as f64 * every) as usize;
    Ok(((0..wanted).map(|i| std::mem::take(&mut looked[at(i)])).collect(), Judged::Documents(judged)))
}

/// Windows from all over the first nine tenths, the last tenth to judge by.
fn windows(
    folder: &Path,
    network: &Network,
    request: &TextRequest,
    aside: &Path,
    watch: Watch<'_>,
) -> Result<(Vec<Vec<u32>>, Judged)> {
    let watch = RefCell::new(watch);
    let told = |what: &str, done, total| watch.borrow_mut()(Event::Bytes { what, done, total });
    let own = folder.join("tokenizer.json");
    let tokenizer = if own.exists() { own.display().to_string() } else { "bytes".into() };
    let spec = DataSpec { data: request.data.clone(), valid: None, tokenizer: tokenizer.parse()?, documents: false };
    let prepared = data::prepare(&spec, aside, &told)?;
    watch.borrow_mut()(Event::Done);
    let (first, Some(last)) = (prepared.train, prepared.valid) else {
        return Err(Error::data(&request.data, "too short a text", "at least two tokens in its last tenth"));
    };
    let len = (network.model.frame.window() as usize).min(LONGEST).min(first.len() as usize);
    let wanted = request.tokens.div_ceil(len).min(first.len() as usize / len);
    let every = first.len() / wanted.max(1) as u64;
    let window = |i: usize| -> Result<Vec<u32>> {
        let mut ids = vec![0; len];
        first.read(i as u64 * every, &mut ids)?;
        Ok(ids)
    };
    Ok(((0..wanted).map(window).collect::<Result<_>>()?, Judged::Text(last, first)))
}
