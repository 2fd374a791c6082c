//! `lathe serve` from the command line: it says where it listens, answers, and ends when it is told to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

#[test]
fn a_shipped_model_is_served() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let mut server = crate::command(&["serve", "storyteller", "--port", "0"])
        .env("LATHE_CACHE", cache.path())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(server.stderr.take().expect("a pipe")).lines();
    let said = lines.find_map(|line| line.ok().filter(|line| line.contains("http://"))).expect("where it listens");
    let address = said.split("http://").nth(1).and_then(|rest| rest.split(';').next()).expect("an address");
    assert!(said.starts_with("storyteller at http://127.0.0.1:"), "{said}");
    let mut stream = TcpStream::connect(address).expect("a connection");
    let body = r#"{"model": "storyteller", "prompt": "This is the story of", "max_tokens": 5, "temperature": 0}"#;
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"completion_tokens\":5"), "{answer}");
    #[cfg(unix)]
    {
        let id = server.id().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
        assert!(server.wait().expect("an end").success(), "told to end, it ends well");
    }
    #[cfg(not(unix))]
    server.kill().expect("an end");
}

#[test]
fn what_cannot_be_served_is_said_at_once() {
    let out = crate::command(&["serve", "nothing_there"]).output().expect("the binary runs");
    assert_eq!(out.status.code(), Some(1), "{}", String::from_utf8_lossy(&out.stderr));
    let out = crate::command(&["serve", "storyteller", "--rows", "0"]).output().expect("the binary runs");
    assert_eq!(out.status.code(), Some(2), "{}", String::from_utf8_lossy(&out.stderr));
}
