//! A network namespace for one program only, in which rules can be tried without an effect on this one.
#![allow(unsafe_code, reason = "namespaces are left between fork and exec")]

use std::ffi::CStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::write;

/// Runs the program in a new network namespace. Without CAP_SYS_ADMIN that takes a new user namespace as
/// well.
pub(super) fn isolate(command: &mut Command) {
    // SAFETY: what runs in the child makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(enter) };
}

fn enter() -> io::Result<()> {
    match unshare(CloneFlags::CLONE_NEWNET) {
        Err(Errno::EPERM) => {}
        other => return Ok(other?),
    }
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    // A program keeps its capabilities only as root. Older kernels have no switch of groups.
    let _ = put(c"/proc/self/setgroups", b"deny");
    put(c"/proc/self/uid_map", b"0 0 1")?;
    Ok(put(c"/proc/self/gid_map", b"0 0 1")?)
}

fn put(path: &CStr, text: &[u8]) -> Result<(), Errno> {
    let file = open(path, OFlag::O_WRONLY, Mode::empty())?;
    write(&file, text).map(drop)
}
