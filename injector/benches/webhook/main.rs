//! A load test of the webhook over TLS, from another process: figures for `docs/performance.md`, and a long
//! soak.
//!
//! `make bench-webhook` takes the figures, `make soak` mixes good and bad input for a given time. Client and
//! server share the machine's processors, so the server alone is faster than the figures.
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a measuring program starts processes and reads files, and fails by panicking"
)]

mod client;
mod comparison;
mod figures;
mod load;
mod plot;
#[path = "../shared/publish.rs"]
mod publish;
mod reviews;
mod server;
mod soak;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// What is asked for.
#[derive(Clone)]
struct Options {
    bin: PathBuf,
    /// An earlier build, measured in turn with this one.
    baseline: Option<PathBuf>,
    /// More arguments of the server, for comparisons with other builds.
    server_args: Vec<String>,
    write: Option<PathBuf>,
    plot: Option<PathBuf>,
    seconds: u64,
    soak: bool,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let bin = PathBuf::from(env!("CARGO_BIN_EXE_sidecar-injector"));
        let mut options = Self {
            bin,
            baseline: None,
            server_args: Vec::new(),
            write: None,
            plot: None,
            seconds: 10,
            soak: false,
        };
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{flag} needs a value"));
            match flag.as_str() {
                "--bench" => {}
                "--baseline" => options.baseline = Some(value()?.into()),
                "--bin" => options.bin = value()?.into(),
                "--plot" => options.plot = Some(value()?.into()),
                "--seconds" => {
                    options.seconds = value()?.parse().map_err(|error| format!("--seconds: {error}"))?
                }
                "--server-arg" => options.server_args.push(value()?),
                "--soak" => options.soak = true,
                "--write" => options.write = Some(value()?.into()),
                other => return Err(format!("{other}: not known")),
            }
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    // `cargo test --all-targets` starts benches too, without this argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("figures are taken by `make bench-webhook`, the soak runs by `make soak`");
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("bench: {problem}");
            return ExitCode::FAILURE;
        }
    };
    let duration = Duration::from_secs(options.seconds.max(1));
    let done = match &options.baseline {
        _ if options.soak => soak::run(&options, duration),
        Some(baseline) => comparison::run(&options, baseline, duration),
        None => figures::run(&options, duration),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("bench: {problem}");
            ExitCode::FAILURE
        }
    }
}
