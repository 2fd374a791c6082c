//! Many requests at once, requests that end early, and the end of the server.

use super::Server;
use super::client::Stream;
use lathe_serve::Settings;
use serde_json::json;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// More tokens than any test waits for.
const ENDLESS: u32 = 1 << 20;

/// A stream that goes on until somebody ends it, of which a token has come.
fn endless(server: &Server) -> Stream {
    let mut stream = server.client().stream(COMPLETIONS, json!({"prompt": "go on", "max_tokens": ENDLESS - 10}));
    stream.event().expect("a first token");
    stream
}

fn server(settings: Settings) -> Server {
    Server::start("llama", ENDLESS, settings)
}

#[test]
fn a_new_request_is_answered_while_eight_streams_run() {
    let server = server(Settings::default());
    let client = server.client();
    let streams: Vec<Stream> = (0..8).map(|_| endless(&server)).collect();
    // A prompt of several pieces.
    let answer = client.good(COMPLETIONS, json!({"prompt": "long ".repeat(100), "max_tokens": 3}));
    assert_eq!(answer["usage"]["completion_tokens"], 3);
    client.wait_for("sequences_running", 8.0);
    drop(streams);
}

#[test]
fn too_many_requests_are_turned_away() {
    let server = server(Settings { rows: 1, queue: 2, ..Settings::default() });
    let client = server.client();
    let running = endless(&server);
    let messages = json!([{"role": "user", "content": "wait"}]);
    // Who speaks is said at once, though nothing is computed yet.
    let wait = || {
        let mut stream = client.stream(CHAT, json!({"messages": messages, "max_tokens": 2}));
        assert_eq!(stream.event().unwrap()["choices"][0]["delta"]["role"], "assistant");
        stream
    };
    let waiting = [wait(), wait()];
    assert_eq!(client.metric("requests_waiting"), 2.0);
    let refused = client.post(COMPLETIONS, &json!({"prompt": "x"}));
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
    assert_eq!(client.metric("requests_rejected_total"), 1.0);
    drop(running);
    // Those who waited get their turn.
    for stream in waiting {
        assert_eq!(stream.rest().last().unwrap()["choices"][0]["finish_reason"], "length");
    }
}

#[test]
fn nothing_is_computed_for_those_who_went_away() {
    let server = server(Settings::default());
    let client = server.client();
    let stream = endless(&server);
    client.wait_for("sequences_running", 1.0);
    drop(stream);
    client.wait_for("sequences_running", 0.0);
    assert_eq!(client.metric("sequences_cancelled_total"), 1.0);
    // The same for a request whose answer would have come as a whole.
    let body = json!({"prompt": "go on", "max_tokens": ENDLESS - 10}).to_string();
    let mut stream = client.connect();
    let head = format!("POST {COMPLETIONS} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    client.wait_for("sequences_running", 1.0);
    drop(stream);
    client.wait_for("sequences_running", 0.0);
    let (before, steps) = (client.metric("sequences_cancelled_total"), client.metric("steps_total"));
    assert_eq!(before, 2.0);
    client.good(COMPLETIONS, json!({"prompt": "x", "max_tokens": 1}));
    assert_eq!(client.metric("steps_total"), steps + 1.0, "nothing else is computed");
}

#[test]
fn half_requests_harm_nobody() {
    let server = server(Settings::default());
    let client = server.client();
    let halves: Vec<TcpStream> = [
        &b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"prompt\""[..],
        b"GET /hea",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    ]
    .into_iter()
    .map(|half| {
        let mut stream = client.connect();
        stream.write_all(half).unwrap();
        stream
    })
    .collect();
    client.good(COMPLETIONS, json!({"prompt": "x", "max_tokens": 1}));
    drop(halves);
    client.good(COMPLETIONS, json!({"prompt": "x", "max_tokens": 1}));
}

#[test]
fn a_request_that_takes_too_long_is_ended() {
    let server = server(Settings { timeout: Duration::ZERO, ..Settings::default() });
    let client = server.client();
    let body = json!({"prompt": "go on", "max_tokens": ENDLESS - 10});
    let answer = client.post(COMPLETIONS, &body);
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (504, &json!("timeout")));
    client.wait_for("sequences_running", 0.0);
}

#[test]
fn what_runs_ends_before_the_server_does() {
    let mut server = server(Settings::default());
    let mut stream = server.client().stream(COMPLETIONS, json!({"prompt": "go on", "max_tokens": 1500}));
    stream.event().expect("a first token");
    server.stop();
    let pieces = stream.rest();
    assert_eq!(pieces.last().unwrap()["choices"][0]["finish_reason"], "length");
    server.join();
    assert!(TcpStream::connect(server.address).is_err(), "nobody listens any more");
}

#[test]
fn requests_that_do_not_end_do_not_keep_the_server() {
    let mut server = server(Settings { grace: Duration::ZERO, ..Settings::default() });
    let stream = endless(&server);
    server.stop();
    server.join();
    drop(stream);
}

#[test]
fn many_at_once_are_all_answered() {
    let server = server(Settings { queue: 8, ..Settings::default() });
    let client = server.client();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let ask = |i: u32| {
            let client = &client;
            move || client.post(COMPLETIONS, &json!({"prompt": format!("request {i}"), "max_tokens": 5})).status
        };
        let threads: Vec<_> = (0..64).map(|i| scope.spawn(ask(i))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&200));
    client.wait_for("sequences_running", 0.0);
    assert_eq!(client.metric("requests_waiting"), 0.0);
}
