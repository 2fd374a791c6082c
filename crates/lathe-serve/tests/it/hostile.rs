//! Clients that mean no good, or know no better: whatever they send, they get an answer that says what is wrong or an end,
//! and the server answers others as before.

use super::Server;
use lathe_serve::Settings;
use serde_json::json;
use std::io::{Read, Write};
use std::net::Shutdown;

const COMPLETIONS: &str = "/v1/completions";

fn post(body: &[u8], headers: &str) -> Vec<u8> {
    [format!("POST {COMPLETIONS} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n").as_bytes(), body].concat()
}

fn with_length(body: &[u8]) -> Vec<u8> {
    post(body, &format!("content-length: {}\r\n", body.len()))
}

/// In chunks, as a client sends what it does not know the length of.
fn in_chunks(body: &[u8], size: usize) -> Vec<u8> {
    let chunk = |part: &[u8]| [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
    let all: Vec<u8> = body.chunks(size).flat_map(chunk).chain(*b"0\r\n\r\n").collect();
    post(&all, "transfer-encoding: chunked\r\n")
}

#[test]
fn whatever_is_sent_the_server_goes_on() {
    let server = Server::start("llama", 128, Settings { body_bytes: 1 << 20, ..Settings::default() });
    let client = server.client();
    let ten_mb = [b"{\"prompt\": \"".to_vec(), vec![b'x'; 10 << 20], b"\"}".to_vec()].concat();
    let get = |path: &[u8]| [b"GET ", path, b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"].concat();
    let header =
        |line: &[u8]| [b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n", line, b"\r\n\r\n"].concat();
    // What is sent, and how the answer begins; nothing where there need not be one.
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("10 MB", with_length(&ten_mb), "HTTP/1.1 413"),
        ("10 MB in chunks", in_chunks(&ten_mb, 1 << 16), "HTTP/1.1 413"),
        ("a body in chunks of a byte", in_chunks(b"{\"prompt\": \"x\", \"max_tokens\": 1}", 1), "HTTP/1.1 200"),
        ("10 MB that never come", post(b"{", "content-length: 10485760\r\n"), ""),
        ("a length that is none", post(b"{}", "content-length: -1\r\n"), "HTTP/1.1 400"),
        ("two lengths", post(b"{}", "content-length: 2\r\ncontent-length: 9\r\n"), "HTTP/1.1 400"),
        ("a chunk without a size", post(b"zz\r\n{}\r\n0\r\n\r\n", "transfer-encoding: chunked\r\n"), "HTTP/1.1 400"),
        ("lists in lists", with_length("[".repeat(1 << 19).as_bytes()), "HTTP/1.1 400"),
        ("objects in objects", with_length("{\"prompt\":".repeat(1 << 16).as_bytes()), "HTTP/1.1 400"),
        ("half a character", with_length(b"{\"prompt\": \"\xf0\x9f\"}"), "HTTP/1.1 400"),
        ("half a pair of surrogates", with_length(b"{\"prompt\": \"\\ud83d\"}"), "HTTP/1.1 400"),
        ("a zero", with_length(b"{\"prompt\": \"\\u0000\", \"max_tokens\": 1}"), "HTTP/1.1 200"),
        ("a seed below all", with_length(b"{\"prompt\": \"x\", \"seed\": -9223372036854775809}"), "HTTP/1.1 400"),
        ("a number beyond all", with_length(b"{\"prompt\": \"x\", \"seed\": 1e308}"), "HTTP/1.1 400"),
        (
            "a whole number with a point",
            with_length(b"{\"prompt\": \"x\", \"max_tokens\": 1, \"seed\": -29770.0}"),
            "HTTP/1.1 200",
        ),
        ("a path of no text", get(b"/v1/models/\xff\xfe"), ""),
        ("a path of no text, written", get(b"/v1/models/%ff%fe"), "HTTP/1.1 404"),
        ("a path upwards", get(b"/../../../../etc/passwd"), "HTTP/1.1 404"),
        ("a path upwards, written", get(b"/v1/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd"), "HTTP/1.1 404"),
        ("a path with an end of line", get(b"/v1/models/a%0d%0aset-cookie:%20b"), "HTTP/1.1 404"),
        ("a whole address", get(b"http://elsewhere/etc/passwd"), "HTTP/1.1 404"),
        ("a long path", get(&[b'/'; 60_000]), ""),
        ("a large header", header(&[b"x: ".to_vec(), vec![b'y'; 1 << 20]].concat()), "HTTP/1.1 431"),
        ("many headers", header(&b"x: y\r\n".repeat(1000)), "HTTP/1.1 431"),
        ("a header of no text", header(b"authorization: Bearer \xff\xfe"), "HTTP/1.1 200"),
        ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), ""),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), ""),
        ("nothing", Vec::new(), ""),
    ];
    for (what, bytes, expected) in cases {
        let mut stream = client.connect();
        // Who is not listened to any more cannot send; what counts is the answer.
        let _ = stream.write_all(&bytes);
        if expected.is_empty() {
            let _ = stream.shutdown(Shutdown::Write); // there is no more to wait for
        }
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(expected), "{what}: {}", &answer[..answer.len().min(300)]);
        assert!(!answer.contains("root:") && !answer.to_lowercase().contains("\r\nset-cookie"), "{what}: {answer}");
        assert_eq!(client.get("/health").status, 200, "after {what}");
    }
    client.good(COMPLETIONS, json!({"prompt": "x", "max_tokens": 1}));
    client.wait_for("sequences_running", 0.0);
}
