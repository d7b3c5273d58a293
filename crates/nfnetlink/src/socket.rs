//! The socket: requests with an acknowledgement, queries, dumps.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, UnknownCmsg,
    getsockopt, recvmsg, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use crate::buffer::Buffer;
use crate::intercept::{self, Interceptor};
use crate::ports::Ports;
use crate::reply::{replies, status};
use crate::{Message, Reply, request_flags};

/// A dump that changes under our hands is read again this many times.
const DUMP_ATTEMPTS: usize = 16;

/// Timeout of a reply. The kernel replies within the send call, so this only turns a lost reply into an
/// error rather than a hang.
const REPLY_SECONDS: i64 = 30;
/// What the buffer holds at least, in bytes. For a list, the kernel makes datagrams as large as the buffer,
/// up to 32 KiB: fewer of them. Most other replies fit into little, and memory costs time where it is first
/// used.
const LIST_BUFFER: usize = 32 * 1024;
const REPLY_BUFFER: usize = 4 * 1024;

const REPLY_LOST: &str = "the kernel's reply to a netlink request is lost";

/// Lets the kernel pick what a dump asks for, instead of listing everything: one table out of many routes.
#[derive(Clone, Copy, Debug)]
struct StrictCheck;

nix::setsockopt_impl!(StrictCheck, libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK, bool, sockopt::SetBool);

/// Asks for the attribute and the text that belong to an error.
#[derive(Clone, Copy, Debug)]
struct ExtendedAck;

nix::setsockopt_impl!(ExtendedAck, libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, bool, sockopt::SetBool);

/// Leaves the request out of replies to it.
#[derive(Clone, Copy, Debug)]
struct CappedAck;

nix::setsockopt_impl!(CappedAck, libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, bool, sockopt::SetBool);

/// Which part of the kernel a socket talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Addresses, routes, policy rules.
    Route,
    /// Netfilter.
    Netfilter,
    /// Sockets.
    SockDiag,
    /// IPsec policies.
    Xfrm,
}

/// A netlink socket in the network namespace in which it was opened.
#[derive(Debug)]
pub struct Socket {
    pub(crate) descriptor: OwnedFd,
    sequence: u32,
    buffer: Buffer,
    protocol: Protocol,
    interceptor: Option<Interceptor>,
}

impl Socket {
    /// Opens a socket in the current thread's network namespace.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` if the kernel lacks this protocol altogether.
    pub fn open(protocol: Protocol) -> io::Result<Self> {
        let Some(interceptor) = intercept::interceptor() else { return Self::open_in_kernel(protocol) };
        interceptor(protocol, &[], &mut || Self::open_in_kernel(protocol).map(|_| Vec::new()))?;
        // What replies may know of a protocol that this kernel lacks.
        let socket = Self::open_in_kernel(protocol).or_else(|_| Self::open_in_kernel(Protocol::Route))?;
        Ok(Self { protocol, interceptor: Some(interceptor), ..socket })
    }

    fn open_in_kernel(protocol: Protocol) -> io::Result<Self> {
        let kind = match protocol {
            Protocol::Route => Some(SockProtocol::NetlinkRoute),
            Protocol::Netfilter => Some(SockProtocol::NetlinkNetFilter),
            Protocol::SockDiag => Some(SockProtocol::NetlinkSockDiag),
            Protocol::Xfrm => None,
        };
        // The first message gives it a port number.
        let descriptor = match kind {
            Some(kind) => socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, kind)?,
            None => xfrm_socket()?,
        };
        match setsockopt(&descriptor, sockopt::ReceiveTimeout, &TimeVal::new(REPLY_SECONDS, 0)) {
            // gVisor before 2023 has no such option of netlink, and replies within the system call.
            Ok(()) | Err(Errno::ENOPROTOOPT) => {}
            Err(errno) => return Err(errno.into()),
        }
        match protocol {
            // Since 4.20; without it everything is listed, and the readers pick.
            Protocol::Route => {
                let _ = setsockopt(&descriptor, StrictCheck, &true);
            }
            // Since 4.12: errors name the attribute at fault, and do not carry the request back.
            Protocol::Netfilter => {
                let _ = setsockopt(&descriptor, ExtendedAck, &true);
                let _ = setsockopt(&descriptor, CappedAck, &true);
            }
            Protocol::SockDiag | Protocol::Xfrm => {}
        }
        Ok(Self { descriptor, sequence: 1, buffer: Buffer::default(), protocol, interceptor: None })
    }

    /// Opens a socket for transactions of nf_tables: what this process does by it is known as its own change
    /// where [changes](crate::nftables::Changes) are noticed.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` if the kernel has no netlink for netfilter.
    pub fn open_for_transactions() -> io::Result<Self> {
        let socket = Self::open(Protocol::Netfilter)?;
        Ports::own().give(&socket);
        Ok(socket)
    }

    /// Whether the send buffer may be made larger than `net.core.wmem_max`.
    #[must_use]
    pub fn can_force_buffer(&self) -> bool {
        getsockopt(&self.descriptor, sockopt::SndBuf)
            .and_then(|size| setsockopt(&self.descriptor, sockopt::SndBufForce, &size))
            .is_ok()
    }

    /// Lets processes that are started from now on inherit the socket: the kernel keeps what belongs to it
    /// until the last of them has ended.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn inheritable(&self) -> io::Result<()> {
        fcntl(&self.descriptor, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(())
    }

    /// Sends one message and waits until the kernel has done what it asks for.
    ///
    /// # Errors
    /// The kernel's errno, as it is.
    pub fn request(&mut self, message: &Message) -> io::Result<()> {
        let sequence = self.next_sequence(1);
        let mut bytes = Vec::new();
        message.write(&mut bytes, request_flags(libc::NLM_F_ACK), sequence)?;
        self.send(&bytes)?;
        loop {
            let length = self.receive()?;
            for reply in replies(self.received(length)).filter(|reply| reply.sequence == sequence) {
                if let Some(outcome) = status(&reply) {
                    return outcome.map_err(io::Error::from);
                }
            }
        }
    }

    /// Sends one message and returns what `read` makes of the first reply to it.
    ///
    /// # Errors
    /// The kernel's errno, as it is.
    pub fn query<T>(&mut self, message: &Message, read: impl Fn(&Reply<'_>) -> T) -> io::Result<T> {
        let mut result = None;
        self.first_reply(message, &mut |reply| result = Some(read(reply)))?;
        result.ok_or_else(|| Errno::ENODATA.into())
    }

    /// Dumps a list: `fold` sees every entry in the kernel's order. If the list changed meanwhile, all begins
    /// again with a fresh `S`.
    ///
    /// # Errors
    /// The kernel's errno; or a list that changed during every attempt.
    pub fn dump<S: Default>(
        &mut self,
        message: &Message,
        mut fold: impl FnMut(&mut S, &Reply<'_>),
    ) -> io::Result<S> {
        let mut state = S::default();
        self.list(message, &mut |entry| match entry {
            Some(reply) => fold(&mut state, reply),
            None => state = S::default(),
        })?;
        Ok(state)
    }

    // The work is in functions that are compiled once, not for each kind of reply.

    fn first_reply(&mut self, message: &Message, read: &mut dyn FnMut(&Reply<'_>)) -> io::Result<()> {
        if let Some(interceptor) = self.interceptor {
            let bytes = self.intercepted(interceptor, message, false)?;
            replies(&bytes).take(1).for_each(|reply| read(&reply));
            return Ok(());
        }
        let sequence = self.next_sequence(1);
        let mut bytes = Vec::new();
        message.write(&mut bytes, request_flags(0), sequence)?;
        self.buffer.enlarge(REPLY_BUFFER);
        self.send(&bytes)?;
        loop {
            let Some(length) = self.receive_once_only(MsgFlags::empty())? else {
                // The buffer has grown: the kernel is asked again.
                self.send(&bytes)?;
                continue;
            };
            if let Some(reply) = replies(self.received(length)).find(|reply| reply.sequence == sequence) {
                return match status(&reply) {
                    Some(Err(errno)) => Err(errno.into()),
                    Some(Ok(())) | None => {
                        read(&reply);
                        Ok(())
                    }
                };
            }
        }
    }

    /// Gives every entry of a list to `each`, and nothing in its place where all begins again.
    fn list(&mut self, message: &Message, each: &mut dyn FnMut(Option<&Reply<'_>>)) -> io::Result<()> {
        if let Some(interceptor) = self.interceptor {
            let bytes = self.intercepted(interceptor, message, true)?;
            replies(&bytes).for_each(|reply| each(Some(&reply)));
            return Ok(());
        }
        self.buffer.enlarge(LIST_BUFFER);
        for _ in 0..DUMP_ATTEMPTS {
            let sequence = self.next_sequence(1);
            let mut bytes = Vec::new();
            message.write(&mut bytes, request_flags(libc::NLM_F_DUMP), sequence)?;
            self.send(&bytes)?;
            each(None);
            if self.read_dump(sequence, each)? {
                return Ok(());
            }
        }
        Err(io::Error::other(format!(
            "the kernel's list changed each of the {DUMP_ATTEMPTS} times it was read"
        )))
    }

    /// Lets the interceptor reply to a query or a dump, which may ask the kernel.
    fn intercepted(
        &mut self,
        interceptor: Interceptor,
        message: &Message,
        is_dump: bool,
    ) -> io::Result<Vec<u8>> {
        let mut request = Vec::new();
        let flags = request_flags(if is_dump { libc::NLM_F_DUMP } else { 0 });
        message.write(&mut request, flags, 0)?;
        self.interceptor = None;
        let reply = interceptor(self.protocol, &request, &mut || {
            if is_dump {
                return self.dump(message, intercept::push);
            }
            self.query(message, |reply| {
                let mut bytes = Vec::new();
                intercept::push(&mut bytes, reply);
                bytes
            })
        });
        self.interceptor = Some(interceptor);
        reply
    }

    /// Reads a dump to its end; false if it was not consistent.
    fn read_dump(&mut self, sequence: u32, each: &mut dyn FnMut(Option<&Reply<'_>>)) -> io::Result<bool> {
        let mut consistent = true;
        let mut wait = MsgFlags::empty();
        loop {
            let length = match self.receive_once_only(wait) {
                Ok(Some(length)) => length,
                // Part of the dump is lost, perhaps its end: the rest is thrown away. The kernel makes it
                // within this call, so what is not there does not come.
                Ok(None) => {
                    consistent = false;
                    wait = MsgFlags::MSG_DONTWAIT;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut && !wait.is_empty() => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            for reply in replies(self.received(length)).filter(|reply| reply.sequence == sequence) {
                consistent &= !reply.interrupted();
                match status(&reply) {
                    Some(Ok(())) => return Ok(consistent),
                    // Some lists report a change at the end, with EINTR rather than the flag.
                    Some(Err(Errno::EINTR)) => return Ok(false),
                    Some(Err(errno)) => return Err(errno.into()),
                    None => each(Some(&reply)),
                }
            }
        }
    }

    /// Reserves `count` sequence numbers and returns the first.
    pub(crate) fn next_sequence(&mut self, count: u32) -> u32 {
        let first = self.sequence;
        self.sequence = first.wrapping_add(count);
        first
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        loop {
            match send(self.descriptor.as_raw_fd(), bytes, MsgFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    pub(crate) fn receive(&mut self) -> io::Result<usize> {
        self.receive_with(MsgFlags::empty())
    }

    /// Receives one datagram of the kernel into the buffer, which grows to hold all of it.
    pub(crate) fn receive_with(&mut self, flags: MsgFlags) -> io::Result<usize> {
        loop {
            let (length, sender) = self.receive_once(flags | MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC)?;
            self.buffer.enlarge(length);
            self.receive_once(flags)?;
            // Any process may send to our port number; only the kernel's is 0.
            if sender == Some(0) {
                return Ok(length);
            }
        }
    }

    /// Receives one datagram of the kernel, with the id of the network namespace that it is about, if that is
    /// another one.
    pub(crate) fn receive_of_namespace(&mut self, flags: MsgFlags) -> io::Result<(usize, Option<i32>)> {
        loop {
            let (length, sender) = self.receive_once(flags | MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC)?;
            self.buffer.enlarge(length);
            let namespace = self.receive_with_control(flags)?;
            if sender == Some(0) {
                return Ok((length, namespace));
            }
        }
    }

    fn receive_with_control(&mut self, flags: MsgFlags) -> io::Result<Option<i32>> {
        let mut control = nix::cmsg_space!(i32);
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        let message =
            recvmsg::<NetlinkAddr>(self.descriptor.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
        Ok(message.cmsgs()?.find_map(|one| {
            if let ControlMessageOwned::Unknown(one) = one { namespace_id(&one) } else { None }
        }))
    }

    /// Receives one datagram of the kernel with one system call; `None` for one that the buffer cannot hold.
    /// It is lost, and the buffer grows to hold the next one.
    fn receive_once_only(&mut self, flags: MsgFlags) -> io::Result<Option<usize>> {
        loop {
            let (length, sender) = self.receive_once(flags | MsgFlags::MSG_TRUNC)?;
            if sender != Some(0) {
                continue;
            }
            if length <= self.buffer.len() {
                return Ok(Some(length));
            }
            self.buffer.enlarge(length);
            return Ok(None);
        }
    }

    /// The length of a datagram and the port number of its sender.
    fn receive_once(&mut self, flags: MsgFlags) -> io::Result<(usize, Option<u32>)> {
        loop {
            let mut parts = [IoSliceMut::new(&mut self.buffer)];
            match recvmsg::<NetlinkAddr>(self.descriptor.as_raw_fd(), &mut parts, None, flags) {
                Ok(message) => return Ok((message.bytes, message.address.map(|address| address.pid()))),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Err(io::Error::new(io::ErrorKind::TimedOut, REPLY_LOST)),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    pub(crate) fn received(&self, length: usize) -> &[u8] {
        self.buffer.get(..length).unwrap_or_default()
    }
}

/// The id of the network namespace that a message is about.
fn namespace_id(message: &UnknownCmsg) -> Option<i32> {
    let kind = (message.cmsg_header.cmsg_level, message.cmsg_header.cmsg_type);
    let bytes = message.data_bytes.first_chunk()?;
    (kind == (libc::SOL_NETLINK, libc::NETLINK_LISTEN_ALL_NSID)).then(|| i32::from_ne_bytes(*bytes))
}

/// A socket of the one protocol for which nix has no name.
#[allow(unsafe_code, reason = "socket(2) with a protocol that nix does not know")]
fn xfrm_socket() -> io::Result<OwnedFd> {
    // SAFETY: it takes numbers only.
    let descriptor =
        unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_XFRM) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was opened just now, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_bigger_than_the_buffer_is_read_whole() {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        socket.buffer.enlarge(16);
        let mut count = 0;
        let read = |sequence: u32| {
            let mut links = Vec::new();
            let request = Message::new(libc::RTM_GETLINK, 0, &[0; 16]);
            request.write(&mut links, request_flags(libc::NLM_F_DUMP), sequence).unwrap();
            socket.send(&links).unwrap();
            socket.read_dump(sequence, &mut |_| count += 1).unwrap()
        };
        // The first attempt makes the buffer larger.
        let attempts = (1..).position(read);
        assert!(attempts >= Some(1) && count >= 1 && socket.buffer.len() > 500, "{attempts:?} {count}");
    }

    #[test]
    fn the_kernel_s_errno_is_passed_on() {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        // No such message type.
        let error = socket.request(&Message::new(0x3fff, 0, &[0; 4])).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}");
    }
}
