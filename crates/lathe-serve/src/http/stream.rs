//! An answer piece by piece, as server-sent events: `data: {...}` for each piece and `data: [DONE]` at the end.

use super::answer::{Form, Reply, reason};
use super::error::ApiError;
use super::{Answers, App};
use crate::engine::Event;
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// Pieces of an answer. Who stops to listen drops it, and with it the job.
struct Pieces {
    reply: Reply,
    answers: Answers,
    logprobs: bool,
    include_usage: bool,
    left: usize,
    ready: VecDeque<String>,
    timer: Pin<Box<Sleep>>,
    timeout: Duration,
    done: bool,
}

pub(super) fn stream(app: &App, reply: Reply, answers: Answers, logprobs: bool, include_usage: bool) -> Response {
    let timeout = app.0.settings.timeout;
    let left = reply.len();
    let timer = Box::pin(tokio::time::sleep(timeout));
    let (ready, done) = (VecDeque::new(), false);
    let mut pieces = Pieces { reply, answers, logprobs, include_usage, left, ready, timer, timeout, done };
    pieces.begin();
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(pieces)).into_response()
}

impl Pieces {
    fn say(&mut self, value: &Value) {
        self.ready.push_back(format!("data: {value}\n\n"));
    }

    fn choice(&mut self, index: usize, content: Value, logprobs: Value, finish: Option<&str>) {
        let name = if self.reply.form == Form::Chat { "delta" } else { "text" };
        let choice = json!({"index": index, name: content, "logprobs": logprobs, "finish_reason": finish});
        let mut piece = self.reply.envelope(true, json!([choice]));
        if self.include_usage {
            piece.insert("usage".into(), Value::Null);
        }
        self.say(&piece.into());
    }

    /// What comes before all tokens: who speaks, or the prompt.
    fn begin(&mut self) {
        for index in 0..self.left {
            match self.reply.form {
                Form::Chat => self.choice(index, json!({"role": "assistant", "content": ""}), Value::Null, None),
                Form::Completion => {
                    if let Some(echo) = self.reply.echo(index).map(String::from) {
                        self.choice(index, echo.into(), Value::Null, None);
                    }
                }
            }
        }
    }

    fn content(&self, text: String) -> Value {
        if self.reply.form == Form::Chat { json!({"content": text}) } else { text.into() }
    }

    fn take(&mut self, index: usize, event: Event) {
        match event {
            Event::Prompt(scores) => {
                let logprobs = self.reply.logprobs(index, &scores);
                self.choice(index, self.content(String::new()), logprobs, None);
            }
            Event::Token { text, scored } => {
                let logprobs = match scored.filter(|_| self.logprobs) {
                    Some(scored) => self.reply.logprobs(index, &[scored]),
                    None if text.is_empty() => return,
                    None => Value::Null,
                };
                self.choice(index, self.content(text), logprobs, None);
            }
            Event::End { finish, cached, written } => {
                self.reply.ended(cached, written);
                let content = if self.reply.form == Form::Chat { json!({}) } else { "".into() };
                self.choice(index, content, Value::Null, Some(reason(finish)));
                self.left -= 1;
                if self.left == 0 {
                    self.end();
                }
            }
            Event::Failed(why) => self.fail(&ApiError::failed(why)),
            Event::Embedded(_) => {}
        }
    }

    fn end(&mut self) {
        if self.include_usage {
            let mut last = self.reply.envelope(true, json!([]));
            last.insert("usage".into(), self.reply.usage());
            self.say(&last.into());
        }
        self.ready.push_back("data: [DONE]\n\n".into());
        self.done = true;
    }

    fn fail(&mut self, error: &ApiError) {
        self.say(&error.json());
        self.done = true;
    }
}

impl Stream for Pieces {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if !this.ready.is_empty() {
                // All that is there goes out together.
                let pieces = this.ready.drain(..).collect::<Vec<_>>().concat();
                return Poll::Ready(Some(Ok(pieces.into())));
            }
            if this.done {
                return Poll::Ready(None);
            }
            match this.answers.receiver.poll_recv(context) {
                Poll::Ready(Some((index, event))) => {
                    this.take(index, event);
                    while !this.done
                        && let Ok((index, event)) = this.answers.receiver.try_recv()
                    {
                        this.take(index, event);
                    }
                }
                Poll::Ready(None) => this.fail(&ApiError::ending()),
                Poll::Pending => {
                    if this.timer.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    this.fail(&ApiError::timeout(this.timeout.as_secs()));
                }
            }
        }
    }
}
