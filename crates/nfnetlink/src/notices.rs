//! Notices: what the kernel announces to a multicast group of netfilter.
#![allow(unsafe_code, reason = "no safe wrapper reads SO_MEMINFO")]

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, NetlinkAddr, bind, setsockopt, sockopt};

use crate::reply::replies;
use crate::{Protocol, Reply, Socket};

/// What the kernel keeps for a reader that is late, in bytes: some thousand notices.
const BUFFER: usize = 4 << 20;
/// How many numbers `SO_MEMINFO` has, and which of them counts what was lost (`SK_MEMINFO_DROPS`, Linux 4.6).
const NUMBERS: usize = 9;
const DROPS: usize = 8;

/// A group of `enum nfnetlink_groups`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Group {
    /// New entries of connection tracking (`NFNLGRP_CONNTRACK_NEW`).
    NewConnections = 1,
    /// Changes of rules (`NFNLGRP_NFTABLES`).
    Nftables = 7,
}

/// A socket that receives the notices of a group.
#[derive(Debug)]
pub struct Notices {
    pub(crate) socket: Socket,
}

impl Notices {
    /// Opens one in the current thread's network namespace. What happens from now on is noticed.
    ///
    /// # Errors
    /// The kernel refuses: `EPERM` without CAP_NET_ADMIN, `EPROTONOSUPPORT` without netlink of netfilter.
    pub fn open(group: Group) -> io::Result<Self> {
        Self::listen(Socket::open(Protocol::Netfilter)?, group)
    }

    pub(crate) fn listen(socket: Socket, group: Group) -> io::Result<Self> {
        // Beyond `net.core.rmem_max` with CAP_NET_ADMIN in the first user namespace only.
        let forced = setsockopt(&socket.descriptor, sockopt::RcvBufForce, &BUFFER);
        forced.or_else(|_| setsockopt(&socket.descriptor, sockopt::RcvBuf, &BUFFER))?;
        // As a bit of the groups that a socket is bound to.
        let groups = 1 << (group as u32 - 1);
        bind(socket.descriptor.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Ok(Self { socket })
    }

    /// Gives `each` the notices that are there, with the id of the network namespace, if that is another one.
    /// Returns false if some were lost because there were too many.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take(&mut self, mut each: impl FnMut(&Reply<'_>, Option<i32>)) -> io::Result<bool> {
        let mut is_complete = true;
        loop {
            match self.socket.receive_of_namespace(MsgFlags::MSG_DONTWAIT) {
                Ok((length, namespace)) => {
                    replies(self.socket.received(length)).for_each(|reply| each(&reply, namespace));
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(is_complete),
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => is_complete = false,
                Err(error) => return Err(error),
            }
        }
    }

    /// How many notices were lost so far; `None` if the kernel does not count them.
    #[must_use]
    pub fn lost(&self) -> Option<u32> {
        let mut numbers = [0_u32; NUMBERS];
        let mut size = libc::socklen_t::try_from(size_of_val(&numbers)).unwrap_or_default();
        // SAFETY: the kernel writes at most `size` bytes to the array, which has as many.
        let outcome = unsafe {
            libc::getsockopt(
                self.socket.descriptor.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                numbers.as_mut_ptr().cast(),
                &raw mut size,
            )
        };
        let is_there = outcome == 0 && usize::try_from(size).is_ok_and(|size| size == size_of_val(&numbers));
        numbers.get(DROPS).copied().filter(|_| is_there)
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.descriptor.as_fd()
    }
}
