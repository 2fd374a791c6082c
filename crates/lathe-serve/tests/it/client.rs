//! Enough of HTTP/1.1 to ask a server: one connection for each request, bodies with a length or in chunks.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

pub struct Client {
    address: SocketAddr,
    pub headers: String,
}

pub struct Answer {
    pub status: u16,
    pub headers: Vec<String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self.headers.iter().find(|line| line.to_lowercase().starts_with(&format!("{name}:")))?;
        Some(line[name.len() + 1..].trim())
    }
}

/// An answer that is still coming.
pub struct Stream {
    reader: BufReader<TcpStream>,
    pub status: u16,
    headers: Vec<String>,
    /// Of the chunk that is read now.
    chunk: Vec<u8>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, headers: String::new() }
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    /// Sends a request and reads the head of the answer.
    pub fn open(&self, method: &str, path: &str, body: &[u8]) -> Stream {
        let mut stream = self.connect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{}content-length: {}\r\n\r\n",
            self.headers,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut reader = BufReader::new(stream);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            assert!(reader.read_line(&mut line).unwrap() > 0, "an answer");
            if line.trim().is_empty() {
                break;
            }
            lines.push(line.trim().to_string());
        }
        let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
        Stream { reader, status, headers: lines, chunk: Vec::new() }
    }

    pub fn ask(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        let mut stream = self.open(method, path, body);
        let mut answer =
            Answer { status: stream.status, headers: std::mem::take(&mut stream.headers), body: Vec::new() };
        if answer.header("transfer-encoding") == Some("chunked") {
            while stream.next_chunk() {
                answer.body.append(&mut stream.chunk);
            }
        } else {
            stream.reader.read_to_end(&mut answer.body).unwrap();
        }
        answer
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, body.to_string().as_bytes())
    }

    /// A good answer to a post.
    pub fn good(&self, path: &str, body: Value) -> Value {
        let answer = self.post(path, &body);
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        answer.json()
    }

    /// A stream of pieces.
    pub fn stream(&self, path: &str, mut body: Value) -> Stream {
        body["stream"] = true.into();
        let stream = self.open("POST", path, body.to_string().as_bytes());
        assert_eq!(stream.status, 200);
        stream
    }

    /// The value of a metric.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("lathe_{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Asks until a metric has a value. Should it never have, the test hangs, and whoever runs the tests ends it.
    pub fn wait_for(&self, name: &str, value: f64) {
        while self.metric(name) != value {
            std::thread::yield_now();
        }
    }
}

impl Stream {
    fn next_chunk(&mut self) -> bool {
        let mut size = String::new();
        self.reader.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let start = self.chunk.len();
        self.chunk.resize(start + size, 0);
        self.reader.read_exact(&mut self.chunk[start..]).unwrap();
        let mut end = String::new();
        self.reader.read_line(&mut end).unwrap();
        size > 0
    }

    /// The next event; none at the end, after `[DONE]`.
    pub fn event(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.chunk.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.chunk.drain(..end + 2).collect();
                let event = std::str::from_utf8(&event).unwrap().trim().strip_prefix("data: ").unwrap().to_string();
                return if event == "[DONE]" { None } else { Some(serde_json::from_str(&event).unwrap()) };
            }
            assert!(self.next_chunk(), "an end without [DONE]: {:?}", String::from_utf8_lossy(&self.chunk));
        }
    }

    pub fn rest(mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.event()).collect()
    }
}
