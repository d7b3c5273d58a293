//! Children and peak memory of a process, seen by `ptrace`: exact, however short they live. Not a timed run.

use std::fs::read_to_string;
use std::io::{Read as _, Seek as _, Write as _};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::Outcome;
use crate::command::Cmd;

/// What one traced run showed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traced {
    /// Processes started by it, and by those.
    pub(crate) children: usize,
    /// Peak resident set of the process itself (`VmHWM`), KiB.
    pub(crate) peak_kib: u64,
}

/// Runs the command under trace. An error holds the last line that the command wrote to its standard error.
pub(crate) fn trace(command: &Cmd) -> Outcome<Traced> {
    // A file: no reader runs while the process is traced, and a full pipe would stop it.
    let mut complaints = tempfile::tempfile()?;
    let mut child = command.gated().stderr(complaints.try_clone()?).spawn()?;
    let root = Pid::from_raw(i32::try_from(child.id())?);
    let events = Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACEEXIT;
    ptrace::seize(root, events)?;
    if let Some(mut gate) = child.stdin.take() {
        gate.write_all(b"go\n")?;
    }
    let (traced, code) = follow(root)?;
    if code == 0 {
        return Ok(traced);
    }
    let mut complaint = String::new();
    complaints.rewind()?;
    complaints.read_to_string(&mut complaint)?;
    Err(format!("exit {code}: {}", complaint.lines().last().unwrap_or("(no message)")).into())
}

/// Lets everything run on until nothing is left, and counts.
fn follow(root: Pid) -> Outcome<(Traced, i32)> {
    let mut traced = Traced::default();
    let mut code = -1;
    loop {
        let status = match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Ok(status) => status,
            Err(Errno::ECHILD) => return Ok((traced, code)),
            Err(error) => return Err(error.into()),
        };
        match status {
            WaitStatus::PtraceEvent(pid, _, event) => {
                match event {
                    libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => traced.children += 1,
                    libc::PTRACE_EVENT_CLONE if is_process(ptrace::getevent(pid)?) => traced.children += 1,
                    libc::PTRACE_EVENT_EXIT if pid == root => traced.peak_kib = peak(pid)?,
                    _ => {}
                }
                ptrace::cont(pid, None)?;
            }
            WaitStatus::Stopped(pid, signal) => ptrace::cont(pid, signal)?,
            WaitStatus::Exited(pid, status) if pid == root => code = status,
            WaitStatus::Signaled(pid, signal, _) if pid == root => code = 128 + signal as i32,
            WaitStatus::Exited(..)
            | WaitStatus::Signaled(..)
            | WaitStatus::PtraceSyscall(_)
            | WaitStatus::Continued(_)
            | WaitStatus::StillAlive => {}
        }
    }
}

/// Whether it is a process rather than a thread of one.
fn is_process(id: i64) -> bool {
    field(&read_to_string(format!("/proc/{id}/status")).unwrap_or_default(), "Tgid:")
        == Some(id.unsigned_abs())
}

fn peak(pid: Pid) -> Outcome<u64> {
    let status = read_to_string(format!("/proc/{pid}/status"))?;
    field(&status, "VmHWM:").ok_or_else(|| format!("no VmHWM of process {pid}").into())
}

fn field(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
