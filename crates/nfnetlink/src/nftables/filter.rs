//! A filter in the kernel for what a socket receives.
#![allow(unsafe_code, reason = "no safe wrapper attaches a filter to a socket")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _};

/// Where the type is in `struct nlmsghdr`.
const TYPE: u32 = 4;
/// The whole of a message.
const ALL: u32 = u32::MAX;

/// Lets a socket receive only messages that begin with one of this type.
///
/// # Errors
/// The kernel refuses.
pub(super) fn only(socket: &impl AsFd, kind: u16) -> io::Result<()> {
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt,
        jf,
        k,
    };
    // The filter reads numbers in network byte order, and netlink has them in that of the machine.
    let kind = u32::from(u16::from_be_bytes(kind.to_ne_bytes()));
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, TYPE),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, kind),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, ALL),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let length = u16::try_from(steps.len()).unwrap_or_default();
    let program = libc::sock_fprog { len: length, filter: steps.as_mut_ptr() };
    let size = libc::socklen_t::try_from(size_of::<libc::sock_fprog>()).unwrap_or_default();
    // SAFETY: the program and its steps are of the layout that the kernel expects, and outlive the call,
    // which copies them.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
