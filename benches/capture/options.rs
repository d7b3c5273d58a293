//! What `make bench` passes on.

use std::path::PathBuf;

use crate::Outcome;

/// Command line of the bench.
#[derive(Debug)]
pub(crate) struct Options {
    /// The binary that is measured.
    pub(crate) bin: PathBuf,
    /// Another binary with the same options, measured in turn with ours.
    pub(crate) peer: Option<PathBuf>,
    /// An earlier build of this program: only this one and ours are measured, in turn, and nothing is
    /// written.
    pub(crate) baseline: Option<PathBuf>,
    /// Only the cost of new connections is measured.
    pub(crate) only_connections: bool,
    /// Only questions about live rules are measured.
    pub(crate) only_questions: bool,
    /// Runs per figure.
    pub(crate) runs: usize,
    /// File whose figures are replaced; without it they are only printed.
    pub(crate) write: Option<PathBuf>,
    /// File for the plot of what new connections cost.
    pub(crate) plot: Option<PathBuf>,
}

impl Options {
    /// Reads `--bin PATH [--peer PATH] [--baseline PATH] [--connections] [--questions] [--runs N] [--write
    /// FILE] [--plot FILE]`; cargo's own `--bench` is passed over.
    pub(crate) fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut bin = None;
        let mut rest = Self {
            bin: PathBuf::new(),
            peer: None,
            baseline: None,
            only_connections: false,
            only_questions: false,
            runs: 30,
            write: None,
            plot: None,
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--bench" => continue,
                "--connections" => {
                    rest.only_connections = true;
                    continue;
                }
                "--questions" => {
                    rest.only_questions = true;
                    continue;
                }
                _ => {}
            }
            let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
            match argument.as_str() {
                "--bin" => bin = Some(PathBuf::from(value).canonicalize()?),
                "--peer" => rest.peer = Some(PathBuf::from(value).canonicalize()?),
                "--baseline" => rest.baseline = Some(PathBuf::from(value).canonicalize()?),
                "--runs" => rest.runs = usize::max(value.parse()?, 1),
                "--write" => rest.write = Some(PathBuf::from(value)),
                "--plot" => rest.plot = Some(PathBuf::from(value)),
                _ => return Err(format!("unknown argument {argument}").into()),
            }
        }
        let bin = bin.ok_or("--bin PATH is missing: which binary is to be measured?")?;
        Ok(Self { bin, ..rest })
    }
}
