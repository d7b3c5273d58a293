//! Notices of changes: which program changed the rules of a network namespace.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::socket::{setsockopt, sockopt};

use super::filter;

use super::number::{GEN_ID, GEN_PROCESS_ID, GEN_PROCESS_NAME, NEW_GENERATION, NFGENMSG};
use crate::ports::Ports;
use crate::{Group, Notices, Protocol, Reply, Socket};

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

/// One transaction of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The number of changes that the rules have seen with it.
    pub generation: u32,
    /// The thread that made it, in the first PID namespace of the machine; 0 if the kernel does not say.
    pub pid: u32,
    /// The name of its program, at most 15 bytes: evidence, as a program may choose it.
    pub program: String,
    /// The port id of its socket: as a rule the process, in its own PID namespace.
    pub port: u32,
    /// The id of another network namespace, whose rules it changed; `None` for that of the socket.
    pub namespace: Option<i32>,
}

impl Change {
    fn read(reply: &Reply<'_>, namespace: Option<i32>) -> Option<Self> {
        let of = |kind| reply.attributes(NFGENMSG).of(kind);
        let number = |kind| of(kind).and_then(|attribute| attribute.be32()).unwrap_or(0);
        let is_foreign = reply.kind == NEW_GENERATION && !Ports::own().has(reply.port);
        is_foreign.then(|| Self {
            generation: number(GEN_ID),
            pid: number(GEN_PROCESS_ID),
            program: of(GEN_PROCESS_NAME).map(|name| name.text()).unwrap_or_default(),
            port: reply.port,
            namespace,
        })
    }
}

/// A socket that receives notices of all transactions in the network namespace in which it was opened, or in
/// several.
#[derive(Debug)]
pub struct Changes {
    notices: Notices,
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
        Ok(Self { notices: Notices::listen(socket, Group::Nftables)? })
    }

    /// The transactions of other processes of which notices are there; `None` if some were lost because there
    /// were too many. Own ones are known by the port ids of their sockets: any program may have this one's
    /// name.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take(&mut self) -> io::Result<Option<Vec<Change>>> {
        let mut changes = Vec::new();
        let is_complete =
            self.notices.take(|reply, namespace| changes.extend(Change::read(reply, namespace)))?;
        Ok(is_complete.then_some(changes))
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notices.as_fd()
    }
}
