//! `/v1/chat/completions`: conversations, by the template that came with the model.

use super::App;
use super::answer::Form;
use super::completions::{respond, writes};
use super::error::ApiError;
use super::fields::{Fields, describe};
use super::orders::{LOGPROBS, Manner};
use crate::engine::Work;
use crate::served::Message;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;

/// The most turns of a conversation.
pub(super) const TURNS: usize = 1024;

pub(super) async fn handle(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let fields = app.fields(request).await?;
    writes(&app)?;
    if !app.served().converses() {
        return Err(ApiError::bad("the model has no chat template: ask /v1/completions"));
    }
    let range = 1..=u64::from(u32::MAX);
    let most = match fields.count("max_completion_tokens", range.clone())? {
        Some(most) => Some(most),
        None => fields.count("max_tokens", range)?,
    };
    let top = fields.count("top_logprobs", 0..=LOGPROBS)?;
    let logprobs = fields.flag("logprobs")?.then_some(top.unwrap_or(0));
    let manner = Manner::read(&app, &fields, most, logprobs)?;
    let messages = messages(&fields)?;
    let served = app.served().clone();
    let prompt = tokio::task::spawn_blocking(move || served.conversation(&messages));
    let prompt = prompt.await.map_err(|_| ApiError::failed("the template failed"))??;
    let parts = vec![(None, prompt.ids.len())];
    let orders = manner.orders(&app, vec![prompt])?;
    respond(&app, Form::Chat, parts, &manner, Work::Write(orders)).await
}

/// The turns so far. A content may be a list of parts, of which all have to be text.
fn messages(fields: &Fields) -> Result<Vec<Message>, ApiError> {
    let wrong = |found: String| {
        let expected = format!("a list of up to {TURNS} objects with `role` and `content`");
        ApiError::field("messages", found, expected)
    };
    let message = |value: &Value| {
        let role = value.get("role").and_then(Value::as_str).filter(|role| !role.is_empty())?;
        let content = match value.get("content")? {
            Value::String(text) => text.clone(),
            Value::Array(parts) => {
                let mut all = String::new();
                for part in parts {
                    part.get("type").and_then(Value::as_str).filter(|kind| *kind == "text")?;
                    all += part.get("text").and_then(Value::as_str)?;
                }
                all
            }
            _ => return None,
        };
        Some(Message { role: role.into(), content })
    };
    match fields.get("messages") {
        Some(Value::Array(values)) if (1..=TURNS).contains(&values.len()) => {
            values.iter().map(|value| message(value).ok_or_else(|| wrong(describe(value)))).collect()
        }
        Some(other) => Err(wrong(describe(other))),
        None => Err(wrong("nothing".into())),
    }
}
