//! How well two models predict the same text, and how far apart their predictions are where they can be compared.
//!
//! Each is scored by its own tokens. Predictions are compared where one vocabulary holds all tokens of the other: the
//! text is cut by the smaller one, both models are given that, and distributions are those over the tokens of both.

use super::models::{Request, Side};
use crate::evaluate::{Request as Asked, Subject};
use crate::{Result, Watch};
use lathe_core::Registry;
use lathe_train::against::{Against, Shared, Truth};
use lathe_train::divergence::{Divergence, Passage};
use lathe_train::evaluate::Evaluation;
use serde::Serialize;

/// Longest window of a text where none is asked for.
pub(crate) const WINDOW: u32 = 2048;
/// A vocabulary that cuts the text into more tokens than this, for each of the other's, is no smaller version of it.
const MORE: f64 = 1.1;

/// What was found.
pub(crate) struct Quality {
    pub evaluations: [Evaluation; 2],
    /// KL(p || q) of p, the first model's, and q, the second's.
    pub divergence: Option<Divergence>,
    pub passages: Vec<Told>,
    pub notes: Vec<String>,
}

/// A place where the models are far apart, in words.
#[derive(Serialize)]
pub(crate) struct Told {
    before: String,
    next: String,
    /// The most probable token of each model.
    tops: [String; 2],
    probabilities: [f64; 2],
    kl: f64,
}

/// Evaluates both models on a text.
pub(crate) fn judge(
    sides: &[Side; 2],
    request: &Request,
    data: &str,
    registry: &Registry,
    watch: Watch<'_>,
) -> Result<Quality> {
    let without_memory = || sides.iter().map(|side| &side.model.frame).filter(|frame| !frame.has_memory());
    let window = request.window.or_else(|| without_memory().map(|frame| frame.max_len.min(WINDOW)).min());
    let asked = |side: &Side| Asked {
        folder: side.folder.clone().unwrap_or_default(),
        data: data.into(),
        window: window.filter(|_| !side.model.frame.has_memory()),
        precision: request.workload.precision,
        documents: request.documents,
        ..Asked::default()
    };
    let asked = [asked(&sides[0]), asked(&sides[1])];
    let subjects = [Subject::load(registry, &asked[0])?, Subject::load(registry, &asked[1])?];
    let mut notes = Vec::new();
    let plan = match plan(&subjects) {
        Ok(plan) => Some(plan),
        Err(why) => {
            notes.push(format!("kl and same_top are not there: {why}"));
            None
        }
    };
    // The one that looks on is scored first, by itself.
    let evaluated = plan.as_ref().map_or(1, |plan| plan.evaluated);
    let onlooker = 1 - evaluated;
    let alone = subjects[onlooker].evaluate(&asked[onlooker], None, watch)?;
    let (beside, divergence) = match &plan {
        None => (subjects[evaluated].evaluate(&asked[evaluated], None, watch)?, None),
        Some(Plan { shared, truth, .. }) => {
            let [own, other] = [evaluated, onlooker].map(|i| &subjects[i].network);
            let against = Against::new(own, other, shared, *truth);
            let beside = subjects[evaluated].evaluate(&asked[evaluated], Some(&against), watch)?;
            (beside, against.finish())
        }
    };
    let more = beside.tokens as f64 / alone.tokens.max(1) as f64;
    let divergence = match divergence {
        Some(_) if more > MORE => {
            let found = format!("the smaller vocabulary cuts the text into {more:.2} times as many tokens");
            notes.push(format!("kl and same_top are not there: {found}"));
            None
        }
        found => found,
    };
    if divergence.is_some()
        && let Some(count) = plan.as_ref().and_then(|plan| plan.shared.count())
    {
        notes.push(format!("kl and same_top are over the {count} tokens that both models have"));
    }
    let passages = divergence.iter().flat_map(|found| &found.worst);
    let passages = passages.map(|passage| told(passage, &subjects[evaluated], evaluated)).collect();
    let evaluations = if evaluated == 1 { [alone, beside] } else { [beside, alone] };
    Ok(Quality { evaluations, divergence, passages, notes })
}

/// Whose windows both are given.
struct Plan {
    evaluated: usize,
    shared: Shared,
    truth: Truth,
}

/// How predictions can be compared, or why they cannot.
fn plan(subjects: &[Subject; 2]) -> Result<Plan, String> {
    let [a, b] = subjects;
    if a.task.key() != b.task.key() {
        return Err(format!("one is evaluated for {}, the other for {}", a.task.key(), b.task.key()));
    }
    let mut why = "one has bytes, the other a tokenizer".to_string();
    for (evaluated, truth) in [(1, Truth::Onlooker), (0, Truth::Evaluated)] {
        let [own, other] = [evaluated, 1 - evaluated].map(|i| &subjects[i]);
        let Some(shared) = Shared::of(own.outputs(), other.outputs()) else { continue };
        if shared.missing(&own.tokenizer) > 0 {
            let count = shared.count().unwrap_or(0);
            why = format!("each vocabulary has tokens that the other has not ({count} are in both)");
            continue;
        }
        let (window, other) = (own.network.model.frame.window(), &other.network.model.frame);
        if own.network.model.frame.has_memory() && !other.has_memory() && window > other.max_len {
            why = format!("windows of {window} tokens are longer than a max_len of {}", other.max_len);
            continue;
        }
        return Ok(Plan { evaluated, shared, truth });
    }
    Err(why)
}

fn told(passage: &Passage, subject: &Subject, evaluated: usize) -> Told {
    let text = |ids: &[u32]| subject.tokenizer.decode(ids);
    let mut tops = passage.tops.map(|id| text(&[id]));
    let mut probabilities = passage.probabilities;
    if evaluated == 1 {
        tops.reverse(); // theirs is the evaluated one's first
        probabilities.reverse();
    }
    Told { before: text(&passage.before), next: text(&[passage.next]), tops, probabilities, kl: passage.kl }
}
