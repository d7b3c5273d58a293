//! Runs of the binary: starting them, and assertions about exit code and output.

use std::fmt;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::pod::{BINARY, real};

/// A run of the binary to come.
pub(crate) struct Run<'a> {
    /// Goes to where it is run.
    enter: Command,
    args: Vec<&'a str>,
    env: Vec<(String, String)>,
    wrapper: Vec<String>,
    input: Option<String>,
}

impl<'a> Run<'a> {
    /// With these arguments, behind `enter`.
    pub(crate) fn new(enter: Command, args: &[&'a str]) -> Self {
        Self { enter, args: args.to_vec(), env: Vec::new(), wrapper: Vec::new(), input: None }
    }

    /// With a variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With `PATH` being only these folders.
    pub(crate) fn search(self, folders: &[&Path]) -> Self {
        let folders: Vec<_> = folders.iter().map(|path| path.display().to_string()).collect();
        self.env("PATH", &folders.join(":"))
    }

    /// With this in front of the command line, for instance `setpriv ...`.
    pub(crate) fn under(mut self, wrapper: &[&str]) -> Self {
        let (program, args) = wrapper.split_first().unwrap();
        self.wrapper.push(real(program).display().to_string());
        self.wrapper.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// With something to read.
    pub(crate) fn input(mut self, text: &str) -> Self {
        self.input = Some(text.to_owned());
        self
    }

    /// Starts it.
    pub(crate) fn start(self) -> Started {
        let Self { mut enter, args, env, wrapper, input } = self;
        let mut child = enter
            .args(wrapper)
            .arg(BINARY)
            .args(args)
            .envs(env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = input.map(|text| {
            std::thread::spawn(move || {
                // The binary need not read to the end.
                let _ = stdin.write_all(text.as_bytes());
            })
        });
        Started { child, writer }
    }

    /// Runs it to its end.
    pub(crate) fn end(self) -> Ended {
        self.start().end()
    }

    /// Runs it to its end, which must be a good one.
    pub(crate) fn good(self) -> Ended {
        self.end().exits(0)
    }
}

/// A run that goes on.
pub(crate) struct Started {
    child: Child,
    writer: Option<std::thread::JoinHandle<()>>,
}

impl Started {
    /// Whether it has ended already.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Kills it; returns whether it was still running.
    pub(crate) fn kill(mut self) -> bool {
        self.child.kill().unwrap();
        self.child.wait().unwrap().signal() == Some(9)
    }

    /// Waits for its end.
    pub(crate) fn end(self) -> Ended {
        let output = self.child.wait_with_output().unwrap();
        if let Some(writer) = self.writer {
            writer.join().unwrap();
        }
        let ended = Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        assert!(!ended.stderr.contains("panicked"), "{ended}");
        ended
    }
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, stdout, stderr } = self;
        write!(f, "exit {code:?}\n--- stdout\n{stdout}--- stderr\n{stderr}")
    }
}

impl Ended {
    /// Asserts that the run ended with this code.
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    /// Asserts that standard error contains this text.
    pub(crate) fn stderr_contains(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "{text:?} is not in standard error: {self}");
        self
    }

    /// Asserts that standard error does not contain this text.
    pub(crate) fn stderr_lacks(self, text: &str) -> Self {
        assert!(!self.stderr.contains(text), "{text:?} is in standard error: {self}");
        self
    }
}
