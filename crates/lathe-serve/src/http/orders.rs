//! What completions and conversations have in common: from fields to orders of the engine.

use super::App;
use super::error::ApiError;
use super::fields::{Fields, describe, whole};
use crate::Served;
use crate::engine::{Adjust, Order};
use crate::served::Prompt;
use lathe_train::generate::Sampling;
use serde_json::Value;
use std::sync::Arc;

/// The most stop texts, and the most log-probabilities of a token.
pub(super) const STOPS: usize = 16;
pub(super) const LOGPROBS: u64 = 20;
/// The most prompts of a request.
pub(super) const TEXTS: usize = 256;
/// The most answers to a prompt.
pub(super) const ANSWERS: u64 = 128;

/// What has no meaning here, and why.
const UNKNOWN: [(&str, &str); 4] = [
    ("tools", "tools are not supported"),
    ("functions", "functions are not supported"),
    ("suffix", "text cannot be inserted before a suffix"),
    ("audio", "there is text alone"),
];

/// How to continue texts: all of an [`Order`] but its prompt.
pub(super) struct Manner {
    pub n: usize,
    pub max_tokens: Option<usize>,
    sampling: Sampling,
    adjust: Adjust,
    stop: Vec<String>,
    ignore_end: bool,
    pub logprobs: Option<usize>,
    pub score_prompt: bool,
    pub stream: bool,
    pub include_usage: bool,
}

impl Manner {
    /// `logprobs` differ between completions and conversations, as does the name of `max_tokens`.
    pub fn read(
        app: &App,
        fields: &Fields,
        max_tokens: Option<usize>,
        logprobs: Option<usize>,
    ) -> Result<Self, ApiError> {
        fields.model(&app.served().id)?;
        fields.without(&UNKNOWN)?;
        if let Some(format) = fields.object("response_format")?
            && !matches!(format.text("type")?, None | Some("text"))
        {
            return Err(ApiError::field("response_format", "a format", "{\"type\": \"text\"}"));
        }
        let n = fields.count("n", 1..=ANSWERS)?.unwrap_or(1);
        if let Some(best) = fields.count("best_of", 1..=ANSWERS)?
            && best != n
        {
            return Err(ApiError::field("best_of", best, format!("n, which is {n}")));
        }
        let vocab = app.served().vocab();
        let sampling = Sampling {
            temperature: fields.number("temperature", 0.0..=100.0)?.unwrap_or(1.0),
            top_k: fields.count("top_k", 0..=u64::from(u32::MAX))?.unwrap_or(0),
            top_p: fields.number("top_p", 0.0..=1.0)?.unwrap_or(1.0).max(1e-9),
            repetition_penalty: fields.number("repetition_penalty", 0.01..=100.0)?.unwrap_or(1.0),
            seed: fields.seed("seed")?.unwrap_or_else(|| app.seed()),
        };
        let adjust = Adjust {
            presence: fields.number("presence_penalty", -2.0..=2.0)?.unwrap_or(0.0) as f32,
            frequency: fields.number("frequency_penalty", -2.0..=2.0)?.unwrap_or(0.0) as f32,
            bias: bias(fields.get("logit_bias"), vocab)?,
        };
        let stream = fields.flag("stream")?;
        let options = fields.object("stream_options")?;
        let include_usage = options.map_or(Ok(false), |options| options.flag("include_usage"))?;
        Ok(Self {
            n,
            max_tokens,
            sampling,
            adjust,
            stop: fields.texts("stop", STOPS)?,
            ignore_end: fields.flag("ignore_eos")?,
            logprobs,
            score_prompt: false,
            stream,
            include_usage,
        })
    }

    /// The orders of prompts: n of each, one after the other. Answers to the same prompt have seeds one after the other.
    pub fn orders(&self, app: &App, prompts: Vec<Prompt>) -> Result<Vec<Order>, ApiError> {
        let mut orders = Vec::new();
        for prompt in prompts {
            let limit = app.0.settings.max_tokens;
            let room = room(app.served(), &prompt)?.min(limit);
            let prompt = Arc::new(prompt);
            if let Some(asked) = self.max_tokens.filter(|asked| *asked > limit) {
                return Err(ApiError::field("max_tokens", asked, format!("at most {limit}")));
            }
            for answer in 0..self.n {
                let seed = self.sampling.seed.wrapping_add(answer as u64);
                orders.push(Order {
                    prompt: prompt.clone(),
                    max_tokens: self.max_tokens.unwrap_or(usize::MAX).min(room),
                    sampling: Sampling { seed, ..self.sampling },
                    adjust: self.adjust.clone(),
                    stop: self.stop.clone(),
                    ignore_end: self.ignore_end,
                    logprobs: self.logprobs,
                    score_prompt: self.score_prompt,
                });
            }
        }
        Ok(orders)
    }
}

/// How many tokens may follow a prompt: the last one needs no place of its own.
fn room(served: &Served, prompt: &Prompt) -> Result<usize, ApiError> {
    let len = prompt.ids.len();
    match served.window() {
        Some(window) if len > window => Err(ApiError::too_many_tokens("prompt", len, window)),
        Some(window) => Ok(window + 1 - len),
        None => Ok(usize::MAX),
    }
}

/// What is added to the logits of tokens.
fn bias(value: Option<&Value>, vocab: u32) -> Result<Vec<(u32, f32)>, ApiError> {
    let wrong = |found: &str| {
        let expected = format!("an object of tokens below {vocab} with numbers from -100 to 100");
        ApiError::field("logit_bias", found, expected)
    };
    match value {
        None => Ok(Vec::new()),
        Some(Value::Object(entries)) if entries.len() <= 1024 => {
            let read = |(token, add): (&String, &Value)| {
                let id = token.parse().ok().filter(|id| *id < vocab);
                let add = add.as_f64().filter(|add| (-100.0..=100.0).contains(add));
                id.zip(add).map(|(id, add)| (id, add as f32)).ok_or_else(|| wrong("something else"))
            };
            entries.iter().map(read).collect()
        }
        Some(other) => Err(wrong(&describe(other))),
    }
}

/// Texts or tokens, as `prompt` and `input` may have them: one or a list, of strings or of tokens.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Text {
    Words(String),
    Tokens(Vec<u32>),
}

/// One or several texts of a field.
pub(super) fn texts(fields: &Fields, name: &str, vocab: u32) -> Result<Vec<Text>, ApiError> {
    let wrong = |found: String| {
        let expected = format!("a string, a list of tokens below {vocab}, or a list of up to {TEXTS} of either");
        ApiError::field(name, found, expected)
    };
    let Some(value) = fields.get(name) else { return Err(wrong("nothing".into())) };
    let token = |value: &Value| whole(value).and_then(|id| u32::try_from(id).ok()).filter(|id| *id < vocab);
    let one = |value: &Value| match value {
        Value::String(words) => Some(Text::Words(words.clone())),
        Value::Array(ids) if !ids.is_empty() => ids.iter().map(token).collect::<Option<_>>().map(Text::Tokens),
        _ => None,
    };
    let found = match value {
        Value::Array(values) if matches!(values.first(), Some(Value::String(_) | Value::Array(_))) => {
            if values.len() > TEXTS {
                return Err(wrong(format!("a list of {}", values.len())));
            }
            values.iter().map(one).collect()
        }
        value => one(value).map(|text| vec![text]),
    };
    found.ok_or_else(|| wrong(describe(value)))
}
