//! Killing a process before one of its system calls.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Killed,
    /// The run made fewer calls; its exit code.
    Exited(i32),
}

/// Which calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    /// Calls that change a file or directory: between them nothing changes.
    Writing,
    /// All.
    Every,
}

impl Calls {
    pub(crate) fn of_environment() -> Self {
        match std::env::var("INSTALL_KILLS").as_deref() {
            Ok("all") => Self::Every,
            Err(_) => Self::Writing,
            Ok(other) => panic!("INSTALL_KILLS: {other:?} is not accepted, expected all"),
        }
    }

    fn counts(self, pid: Pid) -> bool {
        let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        let mut words = call.split_whitespace();
        let Some(number) = words.next().and_then(|word| word.parse::<libc::c_long>().ok()) else {
            return false;
        };
        let args: Vec<i64> =
            words.map(|word| i64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(-1)).collect();
        match number {
            _ if self == Self::Every => true,
            libc::SYS_openat => args[2] & i64::from(libc::O_CREAT | libc::O_TRUNC) != 0,
            // Standard output and error are not files of the node.
            libc::SYS_write => args[0] > 2,
            libc::SYS_fsync
            | libc::SYS_fchmod
            | libc::SYS_fchown
            | libc::SYS_ftruncate
            | libc::SYS_copy_file_range
            | libc::SYS_linkat
            | libc::SYS_mkdirat
            | libc::SYS_renameat
            | libc::SYS_renameat2
            | libc::SYS_unlinkat
            | libc::SYS_exit_group => true,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_link
            | libc::SYS_mkdir
            | libc::SYS_rename
            | libc::SYS_rmdir
            | libc::SYS_unlink
            | libc::SYS_open
            | libc::SYS_chmod
            | libc::SYS_chown => true,
            _ => false,
        }
    }
}

/// Runs `command`, and kills it before its `number`-th call, counted from 1. What it has started ends by
/// itself.
pub(crate) fn run_and_kill(command: &Command, calls: Calls, number: usize) -> End {
    let mut gated = Command::new("/bin/sh");
    gated.args(["-c", "read -r line; exec \"$0\" \"$@\" < /dev/null"]);
    gated.arg(command.get_program()).args(command.get_args()).process_group(0);
    gated.env_remove("CNI_COMMAND").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = gated.spawn().expect("start /bin/sh");
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL | Options::PTRACE_O_TRACEEXEC;
    ptrace::seize(pid, options).expect("trace the run");
    ptrace::interrupt(pid).expect("stop the run");
    child.stdin.take().unwrap().write_all(b"go\n").expect("start the run");
    let end = follow(pid, calls, number);
    // Its end has been collected already.
    let _ = child.wait();
    end
}

fn follow(pid: Pid, calls: Calls, number: usize) -> End {
    let (mut made, mut inside, mut executed) = (0, false, false);
    loop {
        match waitpid(pid, Some(WaitPidFlag::__WALL)).expect("wait for the run") {
            WaitStatus::Exited(_, code) => return End::Exited(code),
            WaitStatus::Signaled(_, Signal::SIGKILL, _) => return End::Killed,
            WaitStatus::Signaled(_, signal, _) => panic!("ended by {signal}"),
            WaitStatus::PtraceSyscall(_) => {
                inside = !inside;
                if inside && executed && calls.counts(pid) {
                    made += 1;
                    if made == number {
                        kill(pid, Signal::SIGKILL).expect("kill the run");
                    }
                }
                resume(pid, None);
            }
            // The shell before it does not count. The stop is within execve, of which the exit follows.
            WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_EXEC) => {
                (executed, inside) = (true, true);
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
