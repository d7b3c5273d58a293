//! Packets that are on their way through the hooks of the kernel.
#![allow(unsafe_code, reason = "membarrier(2) has no safe wrapper in std or nix")]

use std::thread;
use std::time::Duration;

/// `MEMBARRIER_CMD_GLOBAL` of linux/membarrier.h. The kernel carries it out by waiting for a grace period of
/// RCU, and a packet is in one read section of RCU from the first chain of a hook to the last (`nf_hook` of
/// linux/netfilter.h).
const GLOBAL: libc::c_int = 1;
/// As long as a grace period takes on a machine that is not busy, where the kernel refuses to wait for one: a
/// seccomp profile, or processors without a tick (`nohz_full`).
const GRACE: Duration = Duration::from_millis(20);

/// Returns once each packet that is in a hook now has left it. Takes some 10 milliseconds.
pub fn await_packets() {
    // SAFETY: the call takes no pointers.
    if unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } != 0 {
        thread::sleep(GRACE);
    }
}
