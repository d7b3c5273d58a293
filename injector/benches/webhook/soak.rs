//! Good and bad input mixed, for a long time, while config and certificate change: every response is the
//! expected one, and memory does not grow.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Options;
use crate::client::{Client, Response, post};
use crate::reviews;
use crate::server::{Server, Watched};

/// Counts, for the summary.
#[derive(Default)]
struct Counts {
    good: AtomicU64,
    bad: AtomicU64,
    cut: AtomicU64,
    changes: AtomicU64,
}

pub(crate) fn run(options: &Options, duration: Duration) -> Result<(), String> {
    let mut server = Server::start(options, Watched::Config)?;
    let end = AtomicBool::new(false);
    let counts = Counts::default();
    let mut samples = Vec::new();
    let outcome = std::thread::scope(|scope| {
        let (shared, end, counts) = (&server, &end, &counts);
        let threads = [
            scope.spawn(move || good(shared, end, counts)),
            scope.spawn(move || good(shared, end, counts)),
            scope.spawn(move || bad(shared, end, counts)),
            scope.spawn(move || cut(shared, end, counts)),
            scope.spawn(move || change(shared, end, counts)),
        ];
        let start = Instant::now();
        while start.elapsed() < duration && threads.iter().all(|thread| !thread.is_finished()) {
            std::thread::sleep(Duration::from_secs(1));
            samples.push(shared.memory().0);
        }
        end.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    });
    let seen = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "soak: {} s, {} good and {} bad requests, {} broken connections, {} changes of config and certificate",
        samples.len(),
        seen(&counts.good),
        seen(&counts.bad),
        seen(&counts.cut),
        seen(&counts.changes)
    );
    outcome?;
    if !server.runs() {
        return Err("the server has ended".to_owned());
    }
    flat(&samples)
}

/// Memory of the last quarter beside that of the second: the first one warms up.
fn flat(samples: &[u64]) -> Result<(), String> {
    let quarter = (samples.len() / 4).max(1);
    let median = |part: &[u64]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part.get(part.len() / 2).copied().unwrap_or_default()
    };
    let early = median(samples.get(quarter..2 * quarter).unwrap_or_default());
    let late = median(samples.get(samples.len().saturating_sub(quarter)..).unwrap_or_default());
    println!("soak: resident memory {early} KiB in the second quarter, {late} KiB in the last");
    if late > early + early / 20 + 1024 {
        return Err(format!("memory grows: {early} KiB, then {late} KiB"));
    }
    Ok(())
}

/// Keeps a connection as long as the server does.
struct Kept<'a> {
    server: &'a Server,
    client: Option<Client>,
}

impl Kept<'_> {
    fn ask(&mut self, request: &[u8]) -> io::Result<Response> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(self.server.address, &self.server.tls)?,
        };
        let response = client.ask(request)?;
        self.client = Some(client).filter(|_| !response.last);
        Ok(response)
    }
}

fn good(server: &Server, end: &AtomicBool, counts: &Counts) -> Result<(), String> {
    let mut kept = Kept { server, client: None };
    let mut pod = reviews::small();
    for number in 0_u64.. {
        if end.load(Ordering::Relaxed) {
            break;
        }
        pod["spec"]["containers"][0]["image"] = format!("web:{}", number % 5000).into();
        let body = reviews::review(&pod).to_string();
        let response = kept.ask(&post("/inject/cluster/c1", "application/json", body.as_bytes()));
        let response = response.map_err(|error| format!("a good request: {error}"))?;
        let review: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let patched = review.pointer("/response/patch").is_some();
        if response.status != 200 || review.pointer("/response/allowed") != Some(&json!(true)) || !patched {
            return Err(format!("a good pod: {} {review}", response.status));
        }
        counts.good.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Requests that are refused, each with what is expected of it: a status, and whether the pod is allowed.
fn refused() -> Vec<(&'static str, Vec<u8>, u16)> {
    let annotated = |key: &str, value: &str| {
        let mut pod = reviews::small();
        pod["metadata"]["annotations"] = json!({key: value});
        post("/inject", "application/json", reviews::review(&pod).to_string().as_bytes())
    };
    let bomb = {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..20 {
            let before = format!("*a{}, ", n - 1).repeat(9);
            text += &format!("a{n}: &a{n} [{before}]\n");
        }
        text
    };
    let whole = reviews::review(&reviews::small()).to_string();
    let half = &whole.as_bytes()[..whole.len() / 2];
    let json = "application/json";
    vec![
        ("an empty body", post("/inject", json, b""), 400),
        ("half a review", post("/inject", json, half), 400),
        ("no JSON", post("/inject", json, b"\xff\xfe{"), 400),
        ("deep nesting", post("/inject", json, "[".repeat(200_000).as_bytes()), 400),
        ("another content type", post("/inject", "text/plain", whole.as_bytes()), 415),
        ("another path", post("/other", json, whole.as_bytes()), 404),
        ("a bad port", annotated("traffic.sidecar.istio.io/includeInboundPorts", "99999"), 200),
        ("a YAML bomb", annotated("proxy.istio.io/config", &bomb), 200),
        ("a huge annotation", annotated("proxy.istio.io/config", &"x".repeat(1 << 20)), 200),
        ("too large a body", post("/inject", json, &vec![b' '; 7 << 20]), 413),
    ]
}

fn bad(server: &Server, end: &AtomicBool, counts: &Counts) -> Result<(), String> {
    let requests = refused();
    let mut kept = Kept { server, client: None };
    for (name, request, status) in requests.iter().cycle() {
        if end.load(Ordering::Relaxed) {
            break;
        }
        match kept.ask(request) {
            Ok(response) if response.status == *status => {
                let review: Value = serde_json::from_slice(&response.body).unwrap_or_default();
                if *status == 200 && review.pointer("/response/allowed") != Some(&json!(false)) {
                    return Err(format!("{name}: expected a refusal, got {review}"));
                }
            }
            // The response may be lost when the server ends the connection while the body is still on its
            // way.
            Err(_) if *status == 413 => {}
            Ok(response) => {
                let text = String::from_utf8_lossy(&response.body).into_owned();
                return Err(format!("{name}: {} instead of {status}: {text}", response.status));
            }
            Err(error) => return Err(format!("{name}: {error}")),
        }
        counts.bad.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Connections that end half way.
fn cut(server: &Server, end: &AtomicBool, counts: &Counts) -> Result<(), String> {
    use std::io::Write as _;
    let good = reviews::good();
    for number in 0_usize.. {
        if end.load(Ordering::Relaxed) {
            break;
        }
        if number % 3 == 0 {
            let socket = std::net::TcpStream::connect(server.address);
            let mut socket = socket.map_err(|error| format!("a connection: {error}"))?;
            let _ = socket.write_all(b"GET / HTTP/1.1\r\n\r\n");
        } else {
            let client = Client::connect(server.address, &server.tls);
            let mut client = client.map_err(|error| format!("a connection: {error}"))?;
            let length = number * 37 % good.len();
            let _ = client.send(&good[..length]);
        }
        counts.cut.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(25));
    }
    Ok(())
}

/// Config: another one, a broken one, none, the first one again; and a new certificate.
fn change(server: &Server, end: &AtomicBool, counts: &Counts) -> Result<(), String> {
    let text = sidecar_injector::config::BUILTIN_CONFIG;
    let other = format!("{text}\n# changed\n");
    let broken = text.replace("{{", "{{ nonsense (");
    for config in [other.as_str(), broken.as_str(), "", text].into_iter().cycle() {
        for _ in 0..20 {
            if end.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        server.configure(config)?;
        server.rotate()?;
        counts.changes.fetch_add(2, Ordering::Relaxed);
    }
    Ok(())
}
