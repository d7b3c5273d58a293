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
    /// Runs per figure.
    pub(crate) runs: usize,
    /// File whose figures are replaced; without it they are only printed.
    pub(crate) write: Option<PathBuf>,
}

impl Options {
    /// Reads `--bin PATH [--peer PATH] [--runs N] [--write FILE]`; cargo's own `--bench` is passed over.
    pub(crate) fn from_arguments(mut arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let (mut bin, mut peer, mut runs, mut write) = (None, None, 30, None);
        while let Some(argument) = arguments.next() {
            if argument == "--bench" {
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
            match argument.as_str() {
                "--bin" => bin = Some(PathBuf::from(value).canonicalize()?),
                "--peer" => peer = Some(PathBuf::from(value).canonicalize()?),
                "--runs" => runs = value.parse()?,
                "--write" => write = Some(PathBuf::from(value)),
                _ => return Err(format!("unknown argument {argument}").into()),
            }
        }
        let bin = bin.ok_or("--bin PATH is missing: which binary is to be measured?")?;
        Ok(Self { bin, peer, runs: usize::max(runs, 1), write })
    }
}
