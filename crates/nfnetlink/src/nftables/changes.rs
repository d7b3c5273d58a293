//! Notices of changes: which program changed the rules of a network namespace.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, NetlinkAddr, bind, setsockopt, sockopt};

use super::filter;

use super::number::{GEN_ID, GEN_PROCESS_ID, GEN_PROCESS_NAME, NEW_GENERATION, NFGENMSG};
use crate::reply::replies;
use crate::{Protocol, Reply, Socket};

/// Lets a socket receive the notices of all network namespaces that have an id in its own one.
#[derive(Clone, Copy, Debug)]
struct ListenAllNamespaces;

nix::setsockopt_impl!(
    ListenAllNamespaces,
    libc::SOL_NETLINK,
    libc::NETLINK_LISTEN_ALL_NSID,
    bool,
    sockopt::SetBool
);

/// The multicast group of nf_tables (`NFNLGRP_NFTABLES`), as a bit of the groups that a socket is bound to.
const GROUP: u32 = 1 << (7 - 1);
/// What the kernel keeps for a reader that is late, in bytes: some thousand transactions.
const BUFFER: usize = 4 << 20;

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The number of changes that the rules have seen with it.
    pub generation: u32,
    /// The thread that made it, in the first PID namespace of the machine; 0 if the kernel does not say.
    pub pid: u32,
    /// The name of its program, at most 15 bytes: evidence, as a program may choose it.
    pub program: String,
    /// The id of another network namespace, whose rules it changed; `None` for that of the socket.
    pub namespace: Option<i32>,
}

impl Change {
    fn read(reply: &Reply<'_>, namespace: Option<i32>) -> Option<Self> {
        let of = |kind| reply.attributes(NFGENMSG).of(kind);
        let number = |kind| of(kind).and_then(|attribute| attribute.be32()).unwrap_or(0);
        (reply.kind == NEW_GENERATION).then(|| Self {
            generation: number(GEN_ID),
            pid: number(GEN_PROCESS_ID),
            program: of(GEN_PROCESS_NAME).map(|name| name.text()).unwrap_or_default(),
            namespace,
        })
    }
}

/// A socket that receives notices of all transactions in the network namespace in which it was opened, or in
/// several.
#[derive(Debug)]
pub struct Changes {
    socket: Socket,
}

impl Changes {
    /// Opens one. What is changed from now on is noticed.
    ///
    /// # Errors
    /// The kernel refuses: `EPERM` without CAP_NET_ADMIN.
    pub fn open() -> io::Result<Self> {
        Self::listen(Socket::open(Protocol::Netfilter)?)
    }

    /// Opens one for all network namespaces that have an id in that of this thread, now or later.
    ///
    /// # Errors
    /// The kernel refuses: `EPERM` without CAP_NET_ADMIN and CAP_NET_BROADCAST.
    pub fn open_for_all_with_id() -> io::Result<Self> {
        let socket = Socket::open(Protocol::Netfilter)?;
        setsockopt(&socket.descriptor, ListenAllNamespaces, &true)?;
        Self::listen(socket)
    }

    fn listen(socket: Socket) -> io::Result<Self> {
        // Without it, the kernel announces each rule of a transaction, too.
        let _ = filter::only(&socket.descriptor, NEW_GENERATION);
        // Beyond `net.core.rmem_max` with CAP_NET_ADMIN in the first user namespace only.
        let forced = setsockopt(&socket.descriptor, sockopt::RcvBufForce, &BUFFER);
        forced.or_else(|_| setsockopt(&socket.descriptor, sockopt::RcvBuf, &BUFFER))?;
        bind(socket.descriptor.as_raw_fd(), &NetlinkAddr::new(0, GROUP))?;
        Ok(Self { socket })
    }

    /// The transactions of which notices are there; `None` if some were lost because there were too many.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take(&mut self) -> io::Result<Option<Vec<Change>>> {
        let (mut changes, mut is_complete) = (Vec::new(), true);
        loop {
            match self.socket.receive_of_namespace(MsgFlags::MSG_DONTWAIT) {
                Ok((length, namespace)) => {
                    let read = |reply| Change::read(&reply, namespace);
                    changes.extend(replies(self.socket.received(length)).filter_map(read));
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => break,
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => is_complete = false,
                Err(error) => return Err(error),
            }
        }
        Ok(is_complete.then_some(changes))
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.descriptor.as_fd()
    }
}
