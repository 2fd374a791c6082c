//! What comes out of the engine, as the answer to a completion or a conversation: whole, or piece by piece.

use super::error::ApiError;
use super::{Answers, App, answer};
use crate::Served;
use crate::engine::{Event, Finish, Scored};
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Which of the two it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Completion,
    Chat,
}

/// An answer in the making.
pub(super) struct Reply {
    pub form: Form,
    pub served: Arc<Served>,
    pub id: String,
    /// The text of each prompt where it is part of the answer.
    pub echo: Vec<Option<String>>,
    /// Tokens of each prompt.
    pub prompt_tokens: Vec<usize>,
    /// Answers to each prompt.
    pub n: usize,
    pub usage: Usage,
    /// Characters of each answer so far, as tokens count them.
    offsets: Vec<usize>,
}

#[derive(Default)]
pub(super) struct Usage {
    written: usize,
    cached: usize,
}

impl Reply {
    pub fn new(app: &App, form: Form, prompts: Vec<(Option<String>, usize)>, n: usize) -> Self {
        let (echo, prompt_tokens): (Vec<_>, Vec<_>) = prompts.into_iter().unzip();
        let offsets = vec![0; echo.len() * n];
        let id = app.name(if form == Form::Chat { "chatcmpl" } else { "cmpl" });
        Self { form, served: app.served().clone(), id, echo, prompt_tokens, n, usage: Usage::default(), offsets }
    }

    /// How many answers there are.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// The text of the prompt of an answer, where it is part of it.
    pub fn echo(&self, index: usize) -> Option<&str> {
        self.echo[index / self.n].as_deref()
    }

    /// What every piece of the answer has.
    pub fn envelope(&self, piece: bool, choices: Value) -> Map<String, Value> {
        let object = match (self.form, piece) {
            (Form::Completion, _) => "text_completion",
            (Form::Chat, false) => "chat.completion",
            (Form::Chat, true) => "chat.completion.chunk",
        };
        let fields = [
            ("id", json!(self.id)),
            ("object", json!(object)),
            ("created", json!(self.served.created)),
            ("model", json!(self.served.id)),
            ("choices", choices),
        ];
        fields.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    pub fn ended(&mut self, cached: usize, written: usize) {
        self.usage.cached += cached;
        self.usage.written += written;
    }

    /// How many tokens it took. A prompt that is answered several times counts once.
    pub fn usage(&self) -> Value {
        let prompt: usize = self.prompt_tokens.iter().sum();
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": self.usage.written,
            "total_tokens": prompt + self.usage.written,
            "prompt_tokens_details": {"cached_tokens": self.usage.cached},
        })
    }

    fn text_of(&self, id: u32) -> String {
        self.served.tokenizer.decode(&[id])
    }

    /// Log-probabilities of tokens of an answer, in the form of completions or of conversations.
    pub fn logprobs(&mut self, index: usize, tokens: &[Scored]) -> Value {
        if self.form == Form::Chat {
            let entry = |id: u32, logprob: Option<f32>| {
                let text = self.text_of(id);
                json!({"token": text, "logprob": logprob, "bytes": text.as_bytes()})
            };
            let content = tokens.iter().map(|scored| {
                let mut one = entry(scored.id, scored.logprob);
                one["top_logprobs"] = scored.top.iter().map(|&(id, logprob)| entry(id, Some(logprob))).collect();
                one
            });
            return json!({"content": content.collect::<Vec<_>>()});
        }
        let texts: Vec<String> = tokens.iter().map(|scored| self.text_of(scored.id)).collect();
        let offsets: Vec<usize> = texts
            .iter()
            .map(|text| {
                let at = self.offsets[index];
                self.offsets[index] += text.chars().count();
                at
            })
            .collect();
        let top = tokens.iter().map(|scored| {
            let logprob = scored.logprob?;
            // Several tokens may read the same: the likeliest counts. The token itself is always among them.
            let mut top = Map::new();
            for (id, logprob) in scored.top.iter().copied().chain([(scored.id, logprob)]) {
                top.entry(self.text_of(id)).or_insert(json!(logprob));
            }
            Some(Value::Object(top))
        });
        json!({
            "tokens": texts,
            "token_logprobs": tokens.iter().map(|scored| scored.logprob).collect::<Vec<_>>(),
            "top_logprobs": top.collect::<Vec<_>>(),
            "text_offset": offsets,
        })
    }
}

pub(super) fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}

/// One answer as a whole.
#[derive(Default)]
struct Whole {
    text: String,
    tokens: Vec<Scored>,
    finish: Option<Finish>,
}

/// Waits for all answers and puts them together.
pub(super) async fn collect(
    app: &App,
    mut reply: Reply,
    mut answers: Answers,
    logprobs: bool,
) -> Result<Response, ApiError> {
    let timeout = app.0.settings.timeout;
    let all = async {
        let mut wholes: Vec<Whole> = (0..reply.len()).map(|_| Whole::default()).collect();
        let mut left = wholes.len();
        while left > 0 {
            let Some((index, event)) = answers.receiver.recv().await else { return Err(ApiError::ending()) };
            let whole = &mut wholes[index];
            match event {
                Event::Prompt(scores) => whole.tokens = scores,
                Event::Token { text, scored } => {
                    whole.text += &text;
                    whole.tokens.extend(scored);
                }
                Event::End { finish, cached, written } => {
                    reply.ended(cached, written);
                    whole.finish = Some(finish);
                    left -= 1;
                }
                Event::Failed(why) => return Err(ApiError::failed(why)),
                Event::Embedded(_) => {}
            }
        }
        Ok(wholes)
    };
    let wholes = tokio::time::timeout(timeout, all).await.map_err(|_| ApiError::timeout(timeout.as_secs()))??;
    let mut choices = Vec::new();
    for (index, Whole { text, tokens, finish }) in wholes.into_iter().enumerate() {
        let finish = finish.map(reason);
        let logprobs = if logprobs { reply.logprobs(index, &tokens) } else { Value::Null };
        choices.push(match reply.form {
            Form::Completion => {
                let text = format!("{}{text}", reply.echo(index).unwrap_or_default());
                json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish})
            }
            Form::Chat => json!({
                "index": index,
                "message": {"role": "assistant", "content": text, "refusal": null},
                "logprobs": logprobs,
                "finish_reason": finish,
            }),
        });
    }
    let mut whole = reply.envelope(false, choices.into());
    whole.insert("usage".into(), reply.usage());
    Ok(answer(&whole.into()))
}
