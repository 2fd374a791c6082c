//! A model behind HTTP, in the form of OpenAI's API.
//!
//! - [`served`]: a model folder, loaded to be served: network, tokenizer, template of conversations, limits.
//! - [`engine`]: one thread that computes. Requests come and go between its steps; each step is one pass over the weights
//!   for all that run, and prompts that several begin with are computed once.
//! - [`http`]: routes, bodies, errors, streams, metrics, the page.
//!
//! [`serve`] puts them together: HTTP on a thread of its own, the engine on the caller's.

pub mod engine;
mod error;
pub mod http;
mod metrics;
pub mod served;

pub use error::{Error, Result};
pub use metrics::Metrics;
pub use served::Served;

use engine::Engine;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// How to serve.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen.
    pub address: SocketAddr,
    /// What requests have to bring as `Authorization: Bearer KEY`, if anything.
    pub api_key: Option<String>,
    /// Sequences that are computed together.
    pub rows: usize,
    /// Requests that wait for their turn; more are turned away with 429.
    pub queue: usize,
    /// The most bytes of a body.
    pub body_bytes: usize,
    /// The most tokens of an answer.
    pub max_tokens: usize,
    /// How long a request may take.
    pub timeout: Duration,
    /// How long requests that run may go on after the server was told to stop.
    pub grace: Duration,
    /// Bytes for what is kept of texts that may come again.
    pub prefix_bytes: usize,
    /// Of requests that bring no seed.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            api_key: None,
            rows: 16,
            queue: 256,
            body_bytes: 4 << 20,
            max_tokens: 1 << 20,
            timeout: Duration::from_secs(600),
            grace: Duration::from_secs(30),
            prefix_bytes: 512 << 20,
            seed: 0,
        }
    }
}

/// Serves until `stop` is ready and what runs has ended. `ready` is told the address that is listened on. The engine
/// computes on the caller's thread, in its pool.
pub fn serve(
    served: Served,
    settings: Settings,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let failed = |error: std::io::Error| Error::Listen { address: settings.address, error };
    let listener = TcpListener::bind(settings.address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (served, metrics) = (Arc::new(served), Arc::new(Metrics::default()));
    let (engine, jobs) = Engine::new(served.clone(), &settings, metrics.clone());
    let app = http::App::new(served, settings.clone(), metrics, jobs);
    let web = std::thread::Builder::new().name("http".into()).spawn(move || http::run(app, listener, stop));
    let web = web.map_err(failed)?;
    ready(address);
    engine.run();
    match web.join() {
        Ok(ended) => ended.map_err(failed),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Ready when the process is asked to end: Ctrl-C, or SIGTERM where there is one. A second time ends it at once.
pub async fn told_to_stop() {
    once_told().await;
    tokio::spawn(async {
        once_told().await;
        std::process::exit(130);
    });
}

async fn once_told() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let terminated = async {
            match signal(SignalKind::terminate()) {
                Ok(mut terminated) => drop(terminated.recv().await),
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = terminated => {}
        }
    }
    #[cfg(not(unix))]
    drop(tokio::signal::ctrl_c().await);
}
