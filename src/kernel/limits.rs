//! Limits of the process, and what to do when one of them is reached.

use std::io;

/// The fix for an error that comes from a limit of the process or of the system.
#[must_use]
pub fn hint(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error()? {
        libc::EMFILE => Some("the limit of open files is too low: allow at least 16 (`ulimit -n`)"),
        libc::ENFILE => Some("the node has no file handles left: raise fs.file-max"),
        libc::EAGAIN => {
            Some("no further process may be started: raise the limit (`ulimit -u`, pids.max of the cgroup)")
        }
        libc::ENOMEM => Some("no memory is left: raise the memory limit of the container"),
        libc::EFBIG => Some("files may not become that large: raise the limit (`ulimit -f`)"),
        libc::ENOSPC | libc::EDQUOT => Some("no space is left: free some, or name a file elsewhere"),
        _ => None,
    }
}
