//! Requests to the server: a line `METHOD PATH`, then the body. The router, its templates and its tokenizer are those of
//! `lathe serve`; in place of the engine stands somebody who ends every text at once.

use axum::body::Body;
use axum::http::Request;
use lathe_core::Spec;
use lathe_model::{Network, REGISTRY};
use lathe_serve::engine::{Event, Finish, Job, Work};
use lathe_serve::http::{App, router};
use lathe_serve::{Metrics, Served, Settings};
use lathe_text::Tokenizer;
use std::sync::{Arc, LazyLock, Mutex};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tower_service::Service;

/// A tiny model of bytes.
const MODEL: &str = include_str!("tiny.toml");
const TEMPLATE: &str = "{% for message in messages %}<{{ message.role }}>{{ message['content'].strip() }}\n{% endfor %}\
                        {% if add_generation_prompt %}<assistant>{% endif %}";

static SERVER: LazyLock<Mutex<(Runtime, axum::Router)>> = LazyLock::new(|| {
    let model = Spec::from_toml(MODEL, &REGISTRY).and_then(|spec| spec.model(&REGISTRY)).expect("a model");
    let mut network = Network::new(model, 0).expect("a model that can be built");
    network.freeze();
    let served = Served::new("tiny".into(), network, Tokenizer::Bytes, Some(TEMPLATE.into())).expect("a model");
    let (send, mut jobs) = mpsc::channel(8);
    std::thread::spawn(move || {
        while let Some(job) = jobs.blocking_recv() {
            end(job);
        }
    });
    let app = App::new(Arc::new(served), Settings::default(), Arc::new(Metrics::default()), send);
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    Mutex::new((runtime, router(app)))
});

/// Ends all texts of a job.
fn end(Job { work, events, .. }: Job) {
    let (count, event) = match work {
        Work::Write(orders) => (orders.len(), Event::End { finish: Finish::Stop, cached: 0, written: 0 }),
        Work::Embed(texts) => (texts.len(), Event::Embedded(vec![1.0; 8])),
    };
    for index in 0..count {
        let _ = events.send((index, event.clone())); // who asked may be gone
    }
}

/// A request.
pub fn request(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let body = data.get(at + 1..).unwrap_or_default().to_vec();
    let Ok(line) = std::str::from_utf8(&data[..at]) else { return };
    let (method, path) = line.split_once(' ').unwrap_or(("POST", line));
    let Ok(request) = Request::builder().method(method).uri(path).body(Body::from(body)) else { return };
    // After a panic the server is as good as before.
    let mut server = SERVER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (runtime, router) = &mut *server;
    let status = runtime.block_on(async {
        let response = router.call(request).await.expect("the router answers everything");
        let status = response.status();
        axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("an answer ends");
        status
    });
    assert!(status.as_u16() != 500, "nothing that a client sends is a mistake of the server's");
}
