//! Killing a run at a message that it sends to the kernel: exact, however fast the run is.

use std::fs;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Output, Stdio};

use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// When the run is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The kernel does not get the message.
    Before,
    /// The kernel has carried it out; its reply is not read.
    After,
}

/// Runs `command` and kills it, with its process group, at its `number`-th message, counted from 1. A run that sends
/// fewer ends by itself.
pub(crate) fn run_and_kill_at_send(command: &mut Command, number: usize, when: When) -> Output {
    // Files: nothing reads while the run is stopped, and a full pipe would block it.
    let (mut out, mut err) = (temporary(), temporary());
    let mut gated = Command::new("/bin/sh");
    gated.args(["-c", "read -r line; exec \"$0\" \"$@\" < /dev/null"]);
    gated.arg(command.get_program()).args(command.get_args()).env_clear();
    gated.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    gated.process_group(0).stdin(Stdio::piped());
    gated.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
    let mut child = gated.spawn().expect("start /bin/sh");
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL;
    ptrace::seize(pid, options).expect("trace the run");
    ptrace::interrupt(pid).expect("stop the run");
    child.stdin.take().unwrap().write_all(b"go\n").expect("start the run");
    let status = follow(pid, number, when);
    // Its end has been collected already.
    let _ = child.wait();
    Output { status, stdout: read(&mut out), stderr: read(&mut err) }
}

/// Lets it run from system call to system call.
fn follow(pid: Pid, number: usize, when: When) -> ExitStatus {
    let mut sent = 0;
    let mut sends = false;
    loop {
        match waitpid(pid, Some(WaitPidFlag::__WALL)).expect("wait for the run") {
            WaitStatus::Exited(_, code) => return ExitStatus::from_raw(code << 8),
            WaitStatus::Signaled(_, signal, _) => return ExitStatus::from_raw(signal as i32),
            WaitStatus::PtraceSyscall(_) => {
                // A stop follows at the entry and at the exit of each call.
                let enters = !sends && is_send(pid);
                sent += usize::from(enters);
                let at = if enters { When::Before } else { When::After };
                if (enters || sends) && sent == number && at == when {
                    // Its tools are not traced; the group may be gone already.
                    let _ = killpg(pid, Signal::SIGKILL);
                    kill(pid, Signal::SIGKILL).expect("kill the run");
                }
                sends = enters;
                resume(pid, None);
            }
            WaitStatus::Stopped(_, signal) => resume(pid, Some(signal)),
            WaitStatus::PtraceEvent(..) | WaitStatus::Continued(_) | WaitStatus::StillAlive => {
                resume(pid, None)
            }
        }
    }
}

fn resume(pid: Pid, signal: Option<Signal>) {
    // A process that was killed cannot be resumed: its end is reported next.
    let _ = ptrace::syscall(pid, signal);
}

/// Whether the call at which it is stopped sends a message.
fn is_send(pid: Pid) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let number = call.split_whitespace().next().and_then(|word| word.parse::<libc::c_long>().ok());
    number.is_some_and(|number| number == libc::SYS_sendto || number == libc::SYS_sendmsg)
}

fn temporary() -> fs::File {
    tempfile::tempfile().expect("a temporary file")
}

fn read(file: &mut fs::File) -> Vec<u8> {
    let mut text = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut text)).expect("read what the run said");
    text
}
