//! The lock that keeps two runs in one network namespace apart.
//!
//! A run binds a log group of `nfnetlink_log`. The kernel gives a group to one socket per network namespace,
//! takes the request only with CAP_NET_ADMIN over that namespace, and frees the group when the socket is
//! closed, however the process ends. So an unprivileged process can neither hold the lock nor leave it
//! behind, and no file system is involved.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use super::netlink::{Message, Protocol, Socket};

/// How often a busy lock is tried again.
const INTERVAL: Duration = Duration::from_millis(20);

/// The log group that is the lock. No rule of ours logs; loggers number their groups from 0, and 16 bits are
/// available.
const GROUP: u16 = 61_337;
/// A group that no process binds: unbinding it distinguishes a missing privilege from a group in use.
const UNUSED_GROUP: u16 = GROUP + 1;

/// `NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG`.
const CONFIG: u16 = 4 << 8 | 1;
/// `NFULA_CFG_CMD`.
const COMMAND: u16 = 1;
/// `NFULNL_CFG_CMD_BIND`.
const BIND: u8 = 1;
/// `NFULNL_CFG_CMD_UNBIND`.
const UNBIND: u8 = 2;

/// Excludes other runs from this network namespace until it is dropped and the processes started meanwhile
/// have ended.
#[derive(Debug)]
#[must_use = "dropping it releases the lock"]
pub struct Lock {
    socket: Socket,
}

impl Lock {
    /// Releases the lock, but does not close its socket, for which the kernel may need some milliseconds.
    pub fn release(mut self) -> Socket {
        // Closing it releases the lock, too.
        let _ = self.socket.request(&command(GROUP, UNBIND));
        self.socket
    }
}

/// The namespace could not be locked.
#[derive(Debug)]
pub enum LockError {
    /// Another run held it the whole time.
    Busy(Duration),
    /// The kernel refused.
    Failed(io::Error),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(waited) => write!(
                f,
                "another run holds the lock of this network namespace for more than {}",
                humantime::format_duration(*waited)
            ),
            Self::Failed(error) => write!(f, "cannot lock this network namespace: {error}"),
        }
    }
}

impl std::error::Error for LockError {}

/// Waits until no other run holds the lock of this thread's network namespace.
///
/// # Errors
/// The lock stayed busy for `timeout`, or cannot be taken at all: CAP_NET_ADMIN is missing, or the kernel
/// lacks `nfnetlink_log`.
pub fn lock(timeout: Duration) -> Result<Lock, LockError> {
    let begin = Instant::now();
    let mut socket = Socket::open(Protocol::Netfilter).map_err(LockError::Failed)?;
    while !take(&mut socket).map_err(LockError::Failed)? {
        let Some(left) = timeout.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) else {
            return Err(LockError::Busy(timeout));
        };
        std::thread::sleep(INTERVAL.min(left));
    }
    // A tool outlives a run that is killed; the next run has to wait for it too.
    socket.inheritable().map_err(LockError::Failed)?;
    Ok(Lock { socket })
}

/// Binds the group; false if another socket has it.
fn take(socket: &mut Socket) -> io::Result<bool> {
    let refused =
        |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EPERM | libc::EBUSY | libc::EEXIST));
    match socket.request(&command(GROUP, BIND)) {
        Ok(()) => Ok(true),
        Err(error) if refused(&error) => match socket.request(&command(UNUSED_GROUP, UNBIND)) {
            Err(denied) if denied.kind() == io::ErrorKind::PermissionDenied => Err(denied),
            // There is nothing to unbind, and the kernel got as far as to see that.
            Ok(()) | Err(_) => Ok(false),
        },
        Err(error) => Err(error),
    }
}

/// A configuration request of `nfnetlink_log`; its header is a `struct nfgenmsg` whose resource number is the
/// group.
fn command(group: u16, command: u8) -> Message {
    let [high, low] = group.to_be_bytes();
    Message::new(CONFIG, 0, &[0, 0, high, low]).with(COMMAND, &[command])
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlab::in_new_namespace;

    #[test]
    fn second_lock_in_one_namespace_is_busy() {
        in_new_namespace(|| {
            let held = lock(Duration::ZERO).unwrap();
            let begin = Instant::now();
            assert!(matches!(lock(Duration::from_millis(100)), Err(LockError::Busy(_))));
            assert!(begin.elapsed() >= Duration::from_millis(100));
            // Another namespace has another lock.
            in_new_namespace(|| drop(lock(Duration::ZERO).unwrap()));
            drop(held);
            // A process that another test forks holds a copy of the socket until it executes its program.
            drop(lock(Duration::from_secs(20)).unwrap());
        });
    }

    #[test]
    fn waiting_lock_is_taken_when_the_other_is_released() {
        in_new_namespace(|| {
            let held = lock(Duration::ZERO).unwrap();
            std::thread::scope(|scope| {
                // A thread inherits the namespace of the one that starts it.
                let waiting = scope.spawn(|| lock(Duration::from_secs(20)).map(drop));
                std::thread::sleep(Duration::from_millis(60));
                drop(held);
                waiting.join().unwrap().unwrap();
            });
        });
    }
}
