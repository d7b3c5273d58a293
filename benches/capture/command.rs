//! One process, as it is started for measuring.

use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};

use crate::Outcome;

/// A program with its arguments. The environment is always the same few variables.
#[derive(Clone, Debug)]
pub(crate) struct Cmd {
    program: OsString,
    arguments: Vec<OsString>,
}

impl Cmd {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        Self { program: program.as_ref().to_owned(), arguments: Vec::new() }
    }

    #[must_use]
    pub(crate) fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Nothing here needs a step between fork and exec, so the standard library uses `posix_spawn`.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        silence(&mut command);
        command
    }

    /// The program, waiting for a line on its standard input before it begins.
    pub(crate) fn gated(&self) -> Command {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "read -r _; exec \"$@\" </dev/null", "sh"])
            .arg(&self.program)
            .args(&self.arguments);
        silence(&mut command);
        command.stdin(Stdio::piped());
        command
    }

    /// Runs it, not measured.
    pub(crate) fn run(&self) -> Outcome<()> {
        let output = self.command().stderr(Stdio::piped()).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("{self}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
    }
}

impl std::fmt::Display for Cmd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.program.to_string_lossy())?;
        self.arguments.iter().try_for_each(|a| write!(f, " {}", a.to_string_lossy()))
    }
}

fn silence(command: &mut Command) {
    command
        .env_clear()
        .envs([
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", "/"),
            ("LANG", "C"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
}
