//! The port ids of the sockets that make transactions: by them, notices of this process's own transactions
//! are told from those of others.
//!
//! The kernel gives a socket the id of its process, which another process has in another PID namespace, or a
//! negative number. Ids between these are the program's own choice.

use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use nix::sys::socket::{NetlinkAddr, bind};

use crate::Socket;

/// Above the ids of processes, of which the largest is 2^22.
const ABOVE_PROCESSES: u32 = 1 << 30;
/// How many bits the sockets of one process are counted by.
const COUNTED: u32 = 12;

/// The ids of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports(u32);

impl Ports {
    /// The ids of this process.
    pub(crate) fn own() -> Self {
        static OWN: OnceLock<Ports> = OnceLock::new();
        *OWN.get_or_init(|| {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Self::new(now.subsec_nanos() ^ std::process::id().rotate_left(COUNTED))
        })
    }

    const fn new(seed: u32) -> Self {
        Self(ABOVE_PROCESSES | (seed << COUNTED & (ABOVE_PROCESSES - 1)))
    }

    /// Whether a socket with this id is one of these.
    pub(crate) const fn has(self, port: u32) -> bool {
        port >> COUNTED == self.0 >> COUNTED
    }

    /// Gives a new socket one of these ids. If another socket has it, the kernel gives one, and what is done
    /// by it is announced as a change of another process.
    pub(crate) fn give(self, socket: &Socket) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed) & ((1 << COUNTED) - 1);
        let _ = bind(socket.descriptor.as_raw_fd(), &NetlinkAddr::new(self.0 | number, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_process_are_none_that_the_kernel_gives() {
        for ports in [0, 1, u32::MAX, 0xf_ffff].map(Ports::new) {
            assert!(ports.has(ports.0) && ports.has(ports.0 | 0xfff), "{ports:?}");
            for other in [0, 1, 4711, 1 << 22, ports.0 - 1, (ports.0 | 0xfff) + 1, u32::MAX - 4095, 1 << 31] {
                assert!(!ports.has(other), "{ports:?} {other}");
            }
        }
    }
}
