//! Killing a run at a message that it sends to the kernel: exact, however fast the run is.

mod call;

use std::fs;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Output, Stdio};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use call::Call;

/// When the run is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The kernel does not get the message.
    Before,
    /// The kernel has carried it out; its reply is not read.
    After,
}

/// The message at which a run is killed, counted from 1, and on which side of it.
pub(crate) type Point = (usize, When);

/// The points between which the run changes something: before its first message, after each that may change
/// the kernel's state, and before each that follows other work, such as a tool. A run that is killed anywhere
/// else leaves the state of one of these. Runs `command` to its end.
pub(crate) fn points(command: &mut Command) -> (Vec<Point>, Output) {
    let mut points = Vec::new();
    let (mut has_worked, mut reads) = (true, false);
    let output = traced(command, |pid, stop| {
        match stop {
            Stop::Message(number, When::Before) => {
                if has_worked {
                    points.push((number, When::Before));
                }
                has_worked = false;
                reads = Call::of(pid).is_some_and(|call| call.only_reads(pid));
            }
            Stop::Message(number, When::After) if !reads => points.push((number, When::After)),
            Stop::Message(_, When::After) => {}
            Stop::Other => has_worked |= Call::of(pid).is_some_and(|call| !call.changes_nothing()),
        }
        false
    });
    (points, output)
}

/// Runs `command` and kills it, with its process group, at its `number`-th message, counted from 1. A run
/// that sends fewer ends by itself.
pub(crate) fn run_and_kill_at_send(command: &mut Command, number: usize, when: When) -> Output {
    traced(command, |_, stop| matches!(stop, Stop::Message(at, side) if (at, side) == (number, when)))
}

/// Runs `command` to its end, and does something at each of its messages, before the kernel gets it.
pub(crate) fn run_and_act_at_sends(command: &mut Command, mut act: impl FnMut(usize)) -> Output {
    traced(command, |_, stop| {
        if let Stop::Message(number, When::Before) = stop {
            act(number);
        }
        false
    })
}

/// Where a run is stopped.
enum Stop {
    /// At its message of this number.
    Message(usize, When),
    /// At another system call.
    Other,
}

/// Runs `command` until it ends, or `is_end` at one of its stops; then it is killed with its process group.
fn traced(command: &mut Command, is_end: impl FnMut(Pid, Stop) -> bool) -> Output {
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
    let status = follow(pid, is_end);
    // Its end has been collected already.
    let _ = child.wait();
    Output { status, stdout: read(&mut out), stderr: read(&mut err) }
}

/// Lets it run from system call to system call.
fn follow(pid: Pid, mut is_end: impl FnMut(Pid, Stop) -> bool) -> ExitStatus {
    let mut sent = 0;
    let mut sends = false;
    loop {
        match waitpid(pid, Some(WaitPidFlag::__WALL)).expect("wait for the run") {
            WaitStatus::Exited(_, code) => return ExitStatus::from_raw(code << 8),
            WaitStatus::Signaled(_, signal, _) => return ExitStatus::from_raw(signal as i32),
            WaitStatus::PtraceSyscall(_) => {
                // A stop follows at the entry and at the exit of each call.
                let enters = !sends && Call::of(pid).is_some_and(|call| call.is_send());
                sent += usize::from(enters);
                let stop = match (enters, sends) {
                    (true, _) => Stop::Message(sent, When::Before),
                    (false, true) => Stop::Message(sent, When::After),
                    (false, false) => Stop::Other,
                };
                if is_end(pid, stop) {
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

fn temporary() -> fs::File {
    tempfile::tempfile().expect("a temporary file")
}

fn read(file: &mut fs::File) -> Vec<u8> {
    let mut text = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut text)).expect("read the output of the run");
    text
}
