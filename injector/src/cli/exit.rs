//! Exit codes and failures.

use std::process::ExitCode;
use std::{fmt, io};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::files;

/// How a run ended. The numbers follow `sysexits.h`, as the init binary's do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Done = 0,
    /// The result is negative.
    No = 1,
    /// Bad options.
    Usage = 64,
    /// An input, a certificate or a config that cannot be used.
    Data = 65,
    /// A file that cannot be read.
    NoInput = 66,
    /// A required resource is unavailable.
    Unavailable = 69,
    /// A file that cannot be written.
    CannotCreate = 73,
}

impl Exit {
    /// All codes with what they mean.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Done, "success"),
        (
            Self::No,
            "negative result: a pod is not injected, or with `--strict` has a misspelt key (`check`), a config is invalid (`lint`, whatever is wrong with it), injection is broken (`doctor`), \
             something changes (`--diff`), a sidecar is outdated (`list`)",
        ),
        (Self::Usage, "bad options"),
        (Self::Data, "invalid input, certificate or config"),
        (Self::NoInput, "unreadable file"),
        (
            Self::Unavailable,
            "unavailable resource: an address to listen on, a cluster (no usable kubeconfig, or no response), threads",
        ),
        (Self::CannotCreate, "unwritable file"),
    ];

    /// The codes in a sentence, for the help.
    #[must_use]
    pub fn help() -> String {
        let each = Self::ALL.map(|(exit, meaning)| format!("{} {meaning}", exit as u8));
        format!("Exit codes: {}.", each.join("; "))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The sort of failure.
    pub exit: Exit,
    /// Every problem, one sentence each.
    pub problems: Vec<String>,
    /// The help, where the command is missing.
    pub help: String,
}

impl Failure {
    pub(super) fn new(exit: Exit, problems: Vec<String>) -> Self {
        Self { exit, problems, help: String::new() }
    }

    pub(super) fn one(exit: Exit, problem: impl Into<String>) -> Self {
        Self::new(exit, vec![problem.into()])
    }

    /// A file that was not read: one that is too large is an input that cannot be used.
    pub(super) fn reading(name: &str, error: &io::Error) -> Self {
        let exit = if error.kind() == io::ErrorKind::FileTooLarge { Exit::Data } else { Exit::NoInput };
        Self::one(exit, format!("{}: {}", files::called(name), files::plain(error)))
    }

    /// Several failures as one, with the exit code of the last.
    pub(super) fn all(failures: Vec<Self>) -> Self {
        let exit = failures.last().map_or(Exit::NoInput, |last| last.exit);
        Self::new(exit, failures.into_iter().flat_map(|failure| failure.problems).collect())
    }

    /// Options that `command` does not have or accept.
    pub(super) fn usage(error: &clap::Error, command: Option<&clap::Command>) -> Self {
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let lines =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("Usage:"));
        let line: Vec<&str> = lines.filter(|line| !line.starts_with("For more information")).collect();
        let line = line.join("; ").replace(":; ", ": ");
        let given = error.get(ContextKind::InvalidArg).or_else(|| error.get(ContextKind::InvalidSubcommand));
        let given = if let Some(ContextValue::String(given)) = given { given.as_str() } else { "" };
        let unknown = if error.kind() == ErrorKind::UnknownArgument { given } else { "" };
        let is_unknown = matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
        let meant = OTHER_WORDS.iter().find(|(word, _)| is_unknown && *word == given);
        let takes = |id: &str| {
            command.is_some_and(|command| command.get_arguments().any(|argument| argument.get_id() == id))
        };
        let is_config = matches!(unknown, "-c" | "--config");
        let is_file = !unknown.is_empty() && !unknown.starts_with('-');
        // What clap finds similar to it is another file.
        let is_wrong_tip = is_config || meant.is_some() || line.contains("; tip: to pass ");
        let line = if is_wrong_tip { line.split("; tip").next().unwrap_or_default() } else { &line };
        let hint = match unknown {
            _ if meant.is_some() => meant.map_or("", |(_, hint)| *hint),
            "-f" | "--filename" => is_file_hint(takes("filename"), takes("inject_config")),
            _ if is_file => is_file_hint(takes("filename"), takes("inject_config")),
            _ if is_config && takes("inject_config") => CONFIG_HINT,
            _ if error.kind() == ErrorKind::MissingRequiredArgument && takes("pod") => {
                ": check the pods of a file, or pod/NAME in a cluster"
            }
            _ if is_unknown && !line.contains("; tip") => ": --help lists what is accepted",
            _ => "",
        };
        Self::one(Exit::Usage, format!("{line}{hint}"))
    }
}

/// What people type who know other programs, and what is meant here.
const OTHER_WORDS: [(&str, &str); 8] = [
    ("version", ": did you mean --version?"),
    ("status", ": check says whether a pod is injected, doctor what is wrong with the installation"),
    ("analyze", ": check says whether a pod is injected, doctor what is wrong with the installation"),
    ("install", ": manifests prints the objects for kubectl apply"),
    ("uninstall", ": manifests --uninstall prints the objects for kubectl delete"),
    ("--dry-run", ": inject changes no cluster; --diff shows the changes"),
    ("--format", ": did you mean -o?"),
    ("--file", ": did you mean -f FILE?"),
];

const CONFIG_HINT: &str = ": pass the config with --inject-config FILE";

/// How a command takes a file.
const fn is_file_hint(manifests: bool, config: bool) -> &'static str {
    match (manifests, config) {
        (true, _) => ": pass files with -f FILE",
        (false, true) => CONFIG_HINT,
        (false, false) => "",
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.help)?;
        for problem in &self.problems {
            writeln!(f, "error: {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
