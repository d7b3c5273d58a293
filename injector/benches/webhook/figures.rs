//! The figures: latency at a fixed rate, the most requests a second, memory.

use std::fmt::Write as _;
use std::time::Duration;

use crate::Options;
use crate::client::{Client, post};
use crate::load::{LoadResult, Pace, run as load};
use crate::plot;
use crate::publish::publish;
use crate::reviews;
use crate::server::{Server, Watched};

const MARKS: [&str; 2] =
    ["<!-- webhook figures: begin (written by make bench-webhook) -->", "<!-- webhook figures: end -->"];
pub(crate) const CONNECTIONS: usize = 8;

pub(crate) fn run(options: &Options, duration: Duration) -> Result<(), String> {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Command: `make bench-webhook`; {} s for each line, {CONNECTIONS} connections, TLS 1.3 with keep-alive, HTTP/1.1. The binary \
         is {} bytes.\n",
        duration.as_secs(),
        std::fs::metadata(&options.bin).map_or(0, |file| file.len()),
    );
    let mut curves = Vec::new();
    let mut rates = String::new();
    text += "| | requests/s | p50, ms | p90, ms | p99, ms | p99.9, ms | slowest, ms | server CPU, ms per request |\n";
    text += "|---|---|---|---|---|---|---|---|\n";
    let server = Server::start(options, Watched::Certificate)?;
    let mut lines: Vec<(&str, Vec<Vec<u8>>, u16, u32)> = reviews::pods()
        .into_iter()
        .map(|(name, requests)| (name, requests, 200, if name.contains("2,000") { 50 } else { 500 }))
        .collect();
    lines.insert(0, ("empty body, rejected", vec![post("/inject", "application/json", b"")], 400, 500));
    for (name, requests, status, rate) in lines {
        let result = load(&server, &requests, status, CONNECTIONS, Pace::Rate(rate), duration)?;
        let _ = writeln!(text, "| {name} | {rate} | {} |", line(&result));
        eprintln!("{name}, {rate}/s: {}", line(&result));
        let most = load(&server, &requests, status, CONNECTIONS, Pace::Closed, duration)?;
        let _ = writeln!(rates, "| {name} | {:.0} | {} |", most.rate(), ms(most.percentile(50.0)));
        eprintln!("{name}, closed loop: {:.0}/s, server CPU {} ms", most.rate(), ms(most.cpu));
        if rate == 500 {
            curves.push((name.to_owned(), result));
        }
    }
    drop(server);
    text += "\nClosed loop: each connection sends its next request when the response has arrived.\n\n";
    text += "| | requests/s | p50, ms |\n|---|---|---|\n";
    text += &rates;
    text += &memory(options)?;
    if let Some(path) = &options.plot {
        std::fs::write(path, plot::latencies(&curves))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    match &options.write {
        Some(path) => publish(path, &MARKS, &text),
        None => {
            println!("{text}");
            Ok(())
        }
    }
}

fn line(result: &LoadResult) -> String {
    let percentiles = [50.0, 90.0, 99.0, 99.9, 100.0].map(|percent| ms(result.percentile(percent)));
    format!("{} | {}", percentiles.join(" | "), ms(result.cpu))
}

fn ms(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64() * 1000.0)
}

/// 100,000 requests for pods that all differ.
fn memory(options: &Options) -> Result<String, String> {
    let server = Server::start(options, Watched::Config)?;
    let mut text = "\nMemory (resident, MiB), every pod different:\n\n".to_owned();
    let mut head = "| requests |".to_owned();
    let mut row = "| resident |".to_owned();
    let mut rule = "|---|".to_owned();
    for step in 0..=10_usize {
        if step > 0 {
            let from = (step - 1) * 10_000;
            std::thread::scope(|scope| {
                let worker = |part: usize| different(&server, from + part * 2500, 2500);
                let threads: Vec<_> = (0..4).map(|part| scope.spawn(move || worker(part))).collect();
                threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
            })?;
        }
        if matches!(step, 0 | 1 | 2 | 5 | 10) {
            let _ = write!(head, " {} |", step * 10_000);
            let _ = write!(row, " {} |", mib(server.memory().0));
            rule += "---|";
        }
    }
    let _ = writeln!(text, "{head}\n{rule}\n{row}\n\nAt its peak: {} MiB.", mib(server.memory().1));
    eprintln!("{text}");
    Ok(text)
}

fn mib(kib: u64) -> String {
    format!("{}.{}", kib / 1024, kib % 1024 * 10 / 1024)
}

fn different(server: &Server, from: usize, count: usize) -> Result<(), String> {
    let mut client = Client::connect(server.address, &server.tls).map_err(|error| error.to_string())?;
    let mut pod = reviews::small();
    for number in from..from + count {
        pod["spec"]["containers"][0]["image"] = format!("docker.io/library/web:{number}").into();
        let body = reviews::review(&pod).to_string();
        let response = client.ask(&post("/inject", "application/json", body.as_bytes()));
        let response = response.map_err(|error| error.to_string())?;
        if response.status != 200 {
            return Err(format!("{}", response.status));
        }
    }
    Ok(())
}
