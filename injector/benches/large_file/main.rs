//! What the injection of one large file costs: documents per second and peak memory of
//! `sidecar-injector inject -f FILE`.
//!
//! `make bench-injector` runs it; with `BASELINE=PATH` an earlier build takes its turn in every round.
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a measuring program starts processes and reads files, and fails by panicking"
)]

mod data;
mod figures;
mod process;
#[path = "../shared/publish.rs"]
mod publish;

use std::path::PathBuf;
use std::process::ExitCode;

/// What is asked for.
struct Options {
    bin: PathBuf,
    baseline: Option<PathBuf>,
    rounds: usize,
    write: Option<PathBuf>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let bin = PathBuf::from(env!("CARGO_BIN_EXE_sidecar-injector"));
        let mut options = Self { bin, baseline: None, rounds: 5, write: None };
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{flag} needs a value"));
            match flag.as_str() {
                "--bench" => {}
                "--bin" => options.bin = value()?.into(),
                "--baseline" => options.baseline = Some(value()?.into()),
                "--rounds" => {
                    options.rounds = value()?.parse().map_err(|error| format!("--rounds: {error}"))?;
                }
                "--write" => options.write = Some(value()?.into()),
                other => return Err(format!("{other}: not known")),
            }
        }
        options.rounds = options.rounds.max(1);
        Ok(options)
    }
}

fn main() -> ExitCode {
    // `cargo test --all-targets` starts benches too, without this argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("figures are taken by `make bench-injector`");
        return ExitCode::SUCCESS;
    }
    match Options::parse(std::env::args().skip(1)).and_then(|options| figures::run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("bench: {problem}");
            ExitCode::FAILURE
        }
    }
}
