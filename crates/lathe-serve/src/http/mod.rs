//! Routes, and what all of them share: the key, the body, the answer to what is wrong.
//!
//! One thread does all of HTTP; what takes longer, such as making tokens of a long text, is done beside it.

mod answer;
mod chat;
mod completions;
mod embeddings;
mod error;
mod fields;
mod openapi;
mod orders;
mod stream;

pub use error::ApiError;

use crate::engine::{Event, Job, Work};
use crate::{Metrics, Served, Settings};
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use fields::Fields;
use futures_core::Stream;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::future::{Future, poll_fn};
use std::net::TcpListener;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// How long a client may take to send its body.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Bodies that are too large are read and thrown away up to here, so that the client hears why.
const DISCARD: usize = 64 << 20;
/// Paths that need no key, and their answers' names in the metrics.
const OPEN: [&str; 3] = ["/", "/health", "/openapi.json"];
const PATHS: [&str; 8] = [
    "/",
    "/health",
    "/openapi.json",
    "/metrics",
    "/v1/models",
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/embeddings",
];

/// What every request can see.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    served: Arc<Served>,
    settings: Settings,
    metrics: Arc<Metrics>,
    jobs: mpsc::Sender<Job>,
    /// Of requests that bring no seed.
    seeds: Mutex<ChaCha8Rng>,
    /// Requests so far, for their names.
    count: AtomicU64,
}

impl App {
    /// A model, and where the jobs of its engine go.
    pub fn new(served: Arc<Served>, settings: Settings, metrics: Arc<Metrics>, jobs: mpsc::Sender<Job>) -> Self {
        let seeds = Mutex::new(ChaCha8Rng::seed_from_u64(settings.seed));
        Self(Arc::new(Inner { served, settings, metrics, jobs, seeds, count: AtomicU64::new(0) }))
    }

    fn served(&self) -> &Arc<Served> {
        &self.0.served
    }

    /// A seed for a request that brings none.
    fn seed(&self) -> u64 {
        self.0.seeds.lock().expect("nothing panics while it holds the generator").random()
    }

    /// A name for an answer.
    fn name(&self, prefix: &str) -> String {
        format!("{prefix}-{}-{}", self.served().created, self.0.count.fetch_add(1, Relaxed))
    }

    /// Puts work into the queue, unless that is full.
    fn submit(&self, work: Work) -> Result<Answers, ApiError> {
        let (events, receiver) = mpsc::unbounded_channel();
        let (arrived, metrics) = (Instant::now(), self.0.metrics.clone());
        metrics.requests_waiting.fetch_add(1, Relaxed);
        let answers = Answers { receiver, arrived, metrics };
        self.0.jobs.try_send(Job { work, events, arrived }).map_err(|refused| {
            self.0.metrics.requests_waiting.fetch_sub(1, Relaxed);
            match refused {
                TrySendError::Full(_) => {
                    self.0.metrics.requests_rejected_total.fetch_add(1, Relaxed);
                    ApiError::busy(self.0.settings.queue)
                }
                TrySendError::Closed(_) => ApiError::ending(),
            }
        })?;
        Ok(answers)
    }

    /// The body of a request.
    async fn fields(&self, request: Request) -> Result<Fields, ApiError> {
        let limit = self.0.settings.body_bytes;
        let body = tokio::time::timeout(BODY_TIME, read(request.into_body(), limit)).await;
        Fields::parse(&body.map_err(|_| ApiError::slow_body())??)
    }
}

/// Where the answers to a job come out; who drops it cancels the job.
struct Answers {
    receiver: mpsc::UnboundedReceiver<(usize, Event)>,
    arrived: Instant,
    metrics: Arc<Metrics>,
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.metrics.request_seconds.add(self.arrived.elapsed());
    }
}

/// Reads a body to its end, and keeps it where it is not too large.
async fn read(body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut stream = pin!(body.into_data_stream());
    let (mut bytes, mut len) = (Vec::new(), 0);
    while let Some(piece) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        let piece = piece.map_err(|error| ApiError::bad(format!("the body ended early: {error}")))?;
        len += piece.len();
        match len {
            len if len <= limit => bytes.extend_from_slice(&piece),
            len if len > DISCARD => break,
            _ => bytes.clear(),
        }
    }
    if len > limit { Err(ApiError::too_large(limit)) } else { Ok(bytes) }
}

/// Answers requests until `stop`, then lets those that run end, for a while.
pub(crate) fn run(
    app: App,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let grace = app.0.settings.grace;
    let ended = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (told, heard) = tokio::sync::oneshot::channel();
        let stop = async move {
            stop.await;
            let _ = told.send(());
        };
        let serving = axum::serve(listener, router(app)).with_graceful_shutdown(stop);
        tokio::select! {
            ended = serving.into_future() => ended,
            () = async { let _ = heard.await; tokio::time::sleep(grace).await } => Ok(()),
        }
    });
    runtime.shutdown_background();
    ended
}

/// All routes.
pub fn router(app: App) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/health", get(async || answer(&json!({"status": "ok"}))))
        .route("/metrics", get(metrics))
        .route(
            "/openapi.json",
            get(async |State(app): State<App>| answer(&openapi::document(app.served(), app.0.settings.max_tokens))),
        )
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/v1/completions", post(completions::handle))
        .route("/v1/chat/completions", post(chat::handle))
        .route("/v1/embeddings", post(embeddings::handle))
        .fallback(async |method: Method, uri: Uri| ApiError::unknown_path(&method, &uri))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| ApiError::wrong_method(&method, &uri))
        .layer(middleware::from_fn_with_state(app.clone(), watch))
        .with_state(app)
}

/// Asks for the key, and counts answers.
async fn watch(State(app): State<App>, request: Request, next: Next) -> Response {
    let path = PATHS.into_iter().find(|path| *path == request.uri().path()).unwrap_or("other");
    let response = match &app.0.settings.api_key {
        Some(key) if !OPEN.contains(&path) && !brings(request.headers(), key) => ApiError::no_key().into_response(),
        _ => next.run(request).await,
    };
    app.0.metrics.answered(path, response.status().as_u16());
    response
}

/// Whether a request brings the key. How long this takes does not tell where it differs.
fn brings(headers: &HeaderMap, key: &str) -> bool {
    let given = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let same = |given: &[u8]| given.iter().zip(key.as_bytes()).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0;
    given.is_some_and(|given| given.len() == key.len() && same(given))
}

/// A JSON answer.
fn answer(value: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn page() -> Response {
    // Nothing from elsewhere, whatever a model writes.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let headers = [("content-type", "text/html; charset=utf-8"), ("content-security-policy", policy)];
    (headers, include_str!("page.html")).into_response()
}

async fn metrics(State(app): State<App>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.0.metrics.text()).into_response()
}

fn model_card(served: &Served) -> Value {
    json!({
        "id": served.id,
        "object": "model",
        "created": served.created,
        "owned_by": "lathe",
        "max_model_len": served.window(),
        "completions": served.writes(),
        "chat": served.converses(),
        "layers": served.network.model.layers(),
    })
}

async fn models(State(app): State<App>) -> Response {
    answer(&json!({"object": "list", "data": [model_card(app.served())]}))
}

async fn model(State(app): State<App>, id: Result<Path<String>, PathRejection>) -> Response {
    match id {
        Ok(Path(id)) if id == app.served().id => answer(&model_card(app.served())),
        Ok(Path(id)) => ApiError::unknown_model(&id, &app.served().id).into_response(),
        Err(_) => ApiError::unknown_model("no UTF-8", &app.served().id).into_response(),
    }
}
