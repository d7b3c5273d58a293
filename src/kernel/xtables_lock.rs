//! The xtables lock, `/run/xtables.lock`, which iptables tools take while they change legacy tables.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Whether the lock file that all iptables tools share can be used.
#[must_use]
pub fn is_usable() -> bool {
    lock_file().is_ok()
}

/// Opens the lock file. It has to be a regular file: opening a pipe without a reader blocks the tools.
fn lock_file() -> io::Result<File> {
    let mut options = OpenOptions::new();
    // The mode that iptables gives it: a process without privileges could hold the lock otherwise.
    options.read(true).append(true).create(true).mode(0o600).custom_flags(libc::O_NONBLOCK);
    let file = options.open("/run/xtables.lock")?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

/// The lock that keeps other legacy tools from changing rules. It ends when this is dropped.
#[derive(Debug)]
pub struct XtablesLock {
    _held: Flock<File>,
}

/// Takes the xtables lock, `/run/xtables.lock`, which iptables-legacy holds while it changes rules.
///
/// # Errors
/// The file cannot be used; `WouldBlock` if another program held it all the time.
pub fn lock(timeout: Duration) -> io::Result<XtablesLock> {
    let mut file = lock_file()?;
    let begin = Instant::now();
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => return Ok(XtablesLock { _held: held }),
            Err((_, Errno::EWOULDBLOCK)) if begin.elapsed() > timeout => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Err((returned, Errno::EWOULDBLOCK | Errno::EINTR)) => file = returned,
            Err((_, errno)) => return Err(errno.into()),
        }
        thread::sleep(Duration::from_millis(5));
    }
}
