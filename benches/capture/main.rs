//! Figures for `docs/performance.md`: whole processes, as a kubelet starts them, and nothing asserted.
//!
//! Each run has a network namespace of its own. What is compared is run in turn (A B A B), so that whatever
//! else the machine does meets all of them. Wall time and CPU time are taken without a tracer; children and
//! peak memory come from one run of their own, under `ptrace`.

#![allow(
    clippy::disallowed_methods,
    reason = "a measuring program does what the program it measures must not: it starts processes and reads files"
)]

mod baseline;
mod command;
mod connections;
mod lists;
mod measure;
mod namespace;
mod native;
mod options;
mod questions;
mod report;
mod scenarios;
mod trace;

use std::error::Error;
use std::process::ExitCode;

use options::Options;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    // `cargo test --all-targets` starts benches too, without this argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("figures are taken by `make bench`");
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let options = Options::from_arguments(std::env::args().skip(1))?;
    let scratch = tempfile::tempdir()?;
    if options.only_questions {
        return questions::all(&options, scratch.path());
    }
    if let Some(earlier) = &options.baseline {
        return baseline::all(&options, earlier);
    }
    if !options.only_connections {
        let mut figures = report::machine(&options)?;
        figures += &scenarios::all(&options, scratch.path())?;
        figures += &lists::all(&options, scratch.path())?;
        figures += &native::all(&options, scratch.path())?;
        report::publish("figures", &figures, options.write.as_deref())?;
        questions::all(&options, scratch.path())?;
    }
    connections::all(&options, scratch.path())
}
