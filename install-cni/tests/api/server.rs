//! An API server in small: lists, watches and gets pods over HTTP, or fails as a test wants it to.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// How it behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As it should.
    Well,
    /// Responds with this status and reason to every request.
    Fails(u16, &'static str),
    /// Accepts requests and never responds.
    Silent,
    /// Responds with something that is not HTTP.
    Garbage,
    /// Closes every connection.
    Closes,
}

/// How a watch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchEnd {
    /// As after its timeout.
    Closed,
    /// With the event of a resourceVersion that is too old.
    Gone,
    /// In the middle of the response.
    Reset,
}

struct State {
    mode: Mode,
    pods: BTreeMap<String, Value>,
    requests: Vec<String>,
    /// Method, target and body of requests that write.
    writes: Vec<(String, String, Value)>,
    /// Whether they are forbidden.
    is_read_only: bool,
    /// Events that watches report: their resourceVersion is their position, after 1 for what is there at the
    /// start.
    changes: Vec<Value>,
    /// How often watches were ended, and how the last time.
    ended: (usize, WatchEnd),
    watches: usize,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub(crate) fn start(mode: Mode, pods: &[Value]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pods = pods.iter().map(|pod| (path(pod), pod.clone())).collect();
        let (requests, changes) = (Vec::new(), Vec::new());
        let ended = (0, WatchEnd::Closed);
        let (writes, is_read_only, watches) = (Vec::new(), false, 0);
        let state = Arc::new(Mutex::new(State {
            mode,
            pods,
            requests,
            writes,
            is_read_only,
            changes,
            ended,
            watches,
        }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&shared));
                // The client closes connections as it likes.
                thread::spawn(move || drop(serve(stream, &state)));
            }
        });
        Self { address, state }
    }

    pub(crate) fn behave(&self, mode: Mode) {
        self.state.lock().unwrap().mode = mode;
    }

    /// Adds a pod that is not among those that are listed: a watch is never told.
    pub(crate) fn add(&self, pod: &Value) {
        self.state.lock().unwrap().pods.insert(path(pod), pod.clone());
    }

    /// Adds a pod, and reports it to watches.
    pub(crate) fn change(&self, pod: &Value) {
        let mut state = self.state.lock().unwrap();
        state.pods.insert(path(pod), pod.clone());
        let mut object = pod.clone();
        object["metadata"]["resourceVersion"] = json!((state.changes.len() + 2).to_string());
        state.changes.push(json!({"type": "ADDED", "object": object}));
    }

    /// Ends all watches that are open.
    pub(crate) fn end_watches(&self, how: WatchEnd) {
        let mut state = self.state.lock().unwrap();
        state.ended = (state.ended.0 + 1, how);
    }

    /// How many watches are open.
    pub(crate) fn watches(&self) -> usize {
        self.state.lock().unwrap().watches
    }

    /// How often a single pod was read.
    pub(crate) fn gets(&self) -> usize {
        self.requests().iter().filter(|target| target.contains("/namespaces/")).count()
    }

    /// Forbids writes, or allows them.
    pub(crate) fn forbid_writes(&self, is_read_only: bool) {
        self.state.lock().unwrap().is_read_only = is_read_only;
    }

    /// The bodies of requests of this method, whose target has this part.
    pub(crate) fn written(&self, method: &str, part: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let found = state.writes.iter().filter(|(of, target, _)| of == method && target.contains(part));
        found.map(|(.., body)| body.clone()).collect()
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }
}

fn path(pod: &Value) -> String {
    let of = |key: &str| pod["metadata"][key].as_str().unwrap().to_owned();
    format!("/api/v1/namespaces/{}/pods/{}", of("namespace"), of("name"))
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let method = line.split(' ').next().unwrap_or_default().to_owned();
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        while reader.read_line(&mut line)? > 2 {}
        if method != "GET" {
            let length = line.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ").map(|text| text.parse().unwrap())
            });
            let mut body = vec![0; length.unwrap_or_default()];
            reader.read_exact(&mut body)?;
            write(&mut stream, (method, target, serde_json::from_slice(&body).unwrap_or_default()), state)?;
            continue;
        }
        let (mode, pods) = {
            let mut state = state.lock().unwrap();
            state.requests.push(target.clone());
            (state.mode, state.pods.clone())
        };
        match mode {
            Mode::Well => {}
            Mode::Fails(code, reason) => {
                respond(&mut stream, code, &status(code, reason))?;
                continue;
            }
            Mode::Silent => loop {
                thread::sleep(Duration::from_secs(1));
            },
            Mode::Garbage => return stream.write_all(b"\x00\x01 no HTTP\r\n\r\n"),
            Mode::Closes => return Ok(()),
        }
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        if path != "/api/v1/pods" {
            match pods.get(path) {
                Some(pod) => respond(&mut stream, 200, pod)?,
                None => respond(&mut stream, 404, &status(404, "NotFound"))?,
            }
        } else if query.contains("watch=true") {
            state.lock().unwrap().watches += 1;
            let served = watch(&mut stream, query, state);
            state.lock().unwrap().watches -= 1;
            match served? {
                WatchEnd::Reset => return Ok(()),
                WatchEnd::Closed | WatchEnd::Gone => stream.write_all(b"0\r\n\r\n")?,
            }
        } else {
            let items: Vec<&Value> = pods.values().collect();
            let version = (state.lock().unwrap().changes.len() + 1).to_string();
            let list = json!({
                "kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items
            });
            respond(&mut stream, 200, &list)?;
        }
    }
}

/// Responds to a request that writes, and records it.
fn write(
    stream: &mut TcpStream,
    request: (String, String, Value),
    state: &Mutex<State>,
) -> std::io::Result<()> {
    let mut state = state.lock().unwrap();
    if state.is_read_only {
        return respond(stream, 403, &status(403, "Forbidden"));
    }
    state.writes.push(request);
    // Of all kinds that are written.
    respond(stream, 200, &json!({"metadata": {"name": "x"}, "involvedObject": {}}))
}

/// Reports what has changed since the resourceVersion of the request, until watches are ended.
fn watch(stream: &mut TcpStream, query: &str, state: &Mutex<State>) -> std::io::Result<WatchEnd> {
    stream.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
    )?;
    let version = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
    let mut reported = version.and_then(|version| version.parse::<usize>().ok()).unwrap_or(1) - 1;
    let begin = state.lock().unwrap().ended.0;
    loop {
        let (changes, ended) = {
            let state = state.lock().unwrap();
            (state.changes.get(reported..).unwrap_or_default().to_vec(), state.ended)
        };
        if ended.0 != begin {
            if ended.1 == WatchEnd::Gone {
                let error = status(410, "Expired");
                chunk(stream, &json!({"type": "ERROR", "object": error}))?;
            }
            return Ok(ended.1);
        }
        for change in &changes {
            chunk(stream, change)?;
        }
        reported += changes.len();
        thread::sleep(Duration::from_millis(5));
    }
}

fn chunk(stream: &mut TcpStream, event: &Value) -> std::io::Result<()> {
    let line = format!("{event}\n");
    write!(stream, "{:x}\r\n{line}\r\n", line.len())
}

fn status(code: u16, reason: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("the message of {code}")
    })
}

fn respond(stream: &mut TcpStream, code: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {code} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}
