//! A small HTTP server on 127.0.0.1 that answers as a test tells it, and remembers what it was asked. Also the odds and
//! ends that every hub test needs.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tallow_models::hub::{Options, Progress};

#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Close the connection after so many bytes of the body.
    pub cut: Option<usize>,
    /// Wait before the body.
    pub delay: Duration,
    /// Wait before the connection closes.
    pub stall: Duration,
}

impl Answer {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), cut: None, delay: Duration::ZERO, stall: Duration::ZERO }
    }

    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn cut(mut self, at: usize) -> Self {
        self.cut = Some(at);
        self
    }

    pub fn delay(mut self, ms: u64) -> Self {
        self.delay = Duration::from_millis(ms);
        self
    }

    pub fn stall(mut self, ms: u64) -> Self {
        self.stall = Duration::from_millis(ms);
        self
    }

    /// A file with a strong tag, as a server that understands Range and If-Range gives it.
    pub fn file(request: &Request, data: &[u8], etag: &str) -> Self {
        let from = request
            .header("range")
            .filter(|_| request.header("if-range").is_none_or(|tag| tag == etag))
            .map(|range| range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse::<usize>().unwrap());
        match from {
            None => Self::new(200, data),
            Some(from) if from >= data.len() => {
                Self::new(416, "").with("Content-Range", format!("bytes */{}", data.len()))
            }
            Some(from) => Self::new(206, &data[from..])
                .with("Content-Range", format!("bytes {from}-{}/{}", data.len() - 1, data.len())),
        }
        .with("ETag", etag)
    }
}

pub struct Server {
    pub endpoint: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// `answer` gets each request with its number, from 0.
    pub fn new(answer: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (requests.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, answer) = (seen.clone(), answer.clone());
                // A client that goes away in the middle is part of some tests.
                std::thread::spawn(move || serve(stream?, &seen, &*answer));
            }
        });
        Self { endpoint, requests }
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(
    stream: TcpStream,
    seen: &Mutex<Vec<Request>>,
    answer: &dyn Fn(&Request, usize) -> Answer,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let Some(path) = line.split(' ').nth(1).map(str::to_string) else { return Ok(()) };
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_string());
    }
    let request = Request { path, headers };
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.push(request.clone());
        seen.len() - 1
    };
    let answer = answer(&request, number);
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status)?;
    if !answer.headers.iter().any(|(name, _)| name == "Content-Length" || name == "Transfer-Encoding") {
        write!(stream, "Content-Length: {}\r\n", answer.body.len())?;
    }
    for (name, value) in &answer.headers {
        write!(stream, "{name}: {value}\r\n")?;
    }
    stream.write_all(b"\r\n")?;
    stream.flush()?;
    std::thread::sleep(answer.delay);
    stream.write_all(&answer.body[..answer.cut.unwrap_or(answer.body.len()).min(answer.body.len())])?;
    stream.flush()?;
    std::thread::sleep(answer.stall);
    Ok(())
}

/// Bytes without a pattern that a wrong offset would hide.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

pub fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|b| format!("{b:02x}")).collect()
}

pub fn options(endpoint: &str, cache: &Path) -> Options {
    Options {
        cache: Some(cache.into()),
        endpoint: endpoint.into(),
        backoff: Duration::from_millis(1),
        // A test must never reach for a real pip.
        pip: Some(vec!["/nonexistent/pip".into()]),
        ..Options::default()
    }
}

/// The files below `folder`, without the empty lock files, sorted.
pub fn files(folder: &Path) -> Vec<String> {
    fn walk(root: &Path, folder: &Path, out: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if path.file_name().unwrap() != ".locks" {
                    walk(root, &path, out);
                }
            } else {
                out.push(path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/"));
            }
        }
    }
    let mut out = Vec::new();
    walk(folder, folder, &mut out);
    out.sort();
    out
}

/// Writes down what it hears; can cancel after so many bytes.
#[derive(Default)]
pub struct Log {
    pub starts: Mutex<Vec<(Option<u64>, u64)>>,
    pub bytes: Mutex<u64>,
    pub messages: Mutex<Vec<String>>,
    pub finishes: Mutex<u32>,
    pub cancel_after: Option<u64>,
}

impl Log {
    pub fn said(&self, text: &str) -> bool {
        self.messages.lock().unwrap().iter().any(|message| message.contains(text))
    }
}

impl Progress for Log {
    fn start(&self, total: Option<u64>, already: u64) {
        self.starts.lock().unwrap().push((total, already));
    }

    fn advance(&self, bytes: u64) {
        *self.bytes.lock().unwrap() += bytes;
    }

    fn message(&self, text: &str) {
        assert!(!text.contains('\n'), "{text}");
        self.messages.lock().unwrap().push(text.into());
    }

    fn finish(&self) {
        *self.finishes.lock().unwrap() += 1;
    }

    fn cancelled(&self) -> bool {
        self.cancel_after.is_some_and(|limit| *self.bytes.lock().unwrap() >= limit)
    }
}

/// The text of an error, which must be one line.
pub fn error_line<T: std::fmt::Debug>(result: tallow_graph::Result<T>) -> String {
    let text = result.expect_err("this must fail").to_string();
    assert!(!text.contains('\n') && !text.is_empty(), "{text}");
    text
}
