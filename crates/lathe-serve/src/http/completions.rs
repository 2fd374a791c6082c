//! `/v1/completions`: texts that go on, with `echo` and `logprobs` for those who score texts.

use super::App;
use super::answer::{Form, Reply, collect};
use super::error::ApiError;
use super::orders::{LOGPROBS, Manner, Text, texts};
use super::stream::stream;
use crate::engine::Work;
use crate::served::Prompt;
use axum::extract::{Request, State};
use axum::response::Response;

/// Tokens that are written where nobody says how many, as OpenAI has it.
const MAX_TOKENS: usize = 16;

pub(super) async fn handle(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let fields = app.fields(request).await?;
    writes(&app)?;
    let most = fields.count("max_tokens", 0..=u64::from(u32::MAX))?;
    let logprobs = fields.count("logprobs", 0..=LOGPROBS)?;
    let echo = fields.flag("echo")?;
    let mut manner = Manner::read(&app, &fields, Some(most.unwrap_or(MAX_TOKENS)), logprobs)?;
    manner.score_prompt = echo && logprobs.is_some();
    let found = texts(&fields, "prompt", app.served().vocab())?;
    let served = app.served().clone();
    let prompts = tokio::task::spawn_blocking(move || {
        let prompt = |text: Text| -> crate::Result<(Prompt, Option<String>)> {
            Ok(match text {
                Text::Words(words) => (served.prompt(&words)?, echo.then_some(words)),
                Text::Tokens(ids) => {
                    let words = echo.then(|| served.tokenizer.decode(&ids));
                    (Prompt { ids, begin: 0 }, words)
                }
            })
        };
        found.into_iter().map(prompt).collect::<crate::Result<Vec<_>>>()
    });
    let prompts = prompts.await.map_err(|_| ApiError::failed("the tokenizer failed"))??;
    let parts = prompts.iter().map(|(prompt, echo)| (echo.clone(), prompt.ids.len())).collect();
    let orders = manner.orders(&app, prompts.into_iter().map(|(prompt, _)| prompt).collect())?;
    respond(&app, Form::Completion, parts, &manner, Work::Write(orders)).await
}

/// Sends work to the engine, and its answers to the client.
pub(super) async fn respond(
    app: &App,
    form: Form,
    prompts: Vec<(Option<String>, usize)>,
    manner: &Manner,
    work: Work,
) -> Result<Response, ApiError> {
    let answers = app.submit(work)?;
    let (reply, logprobs) = (Reply::new(app, form, prompts, manner.n), manner.logprobs.is_some());
    match manner.stream {
        true => Ok(stream(app, reply, answers, logprobs, manner.include_usage)),
        false => collect(app, reply, answers, logprobs).await,
    }
}

/// Whether the model writes at all.
pub(super) fn writes(app: &App) -> Result<(), ApiError> {
    match app.served().writes() {
        true => Ok(()),
        false => {
            let key = app.served().network.model.frame.backbone.key();
            Err(ApiError::bad(format!(
                "the model is a {key}, which sees the whole text and writes none: it has embeddings"
            )))
        }
    }
}
