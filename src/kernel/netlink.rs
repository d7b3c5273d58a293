//! A small netlink socket: requests with an acknowledgement, dumps, and the batches of nfnetlink.
//!
//! What the kernel sends is read with bounds checks only: a short or garbled message ends an iteration, it never
//! panics.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, getsockopt, recvmsg, send,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

pub use super::netlink_message::{Attribute, Attributes, Message, Reply, aligned};
use super::netlink_message::{replies, status};

/// A dump that changes under our hands is read again this many times.
const DUMP_ATTEMPTS: usize = 16;

/// How long an answer may take. The kernel answers within the send call, so this only turns a lost answer into an
/// error rather than a hang.
const ANSWER_SECONDS: i64 = 30;
const UNANSWERED: &str = "the kernel's answer to a netlink request is lost";

/// The subsystem of nfnetlink that a batch is for.
const NFNL_SUBSYS_NFTABLES: u16 = 10;

/// Lets the kernel pick what a dump asks for, instead of listing everything: one table out of many routes.
#[derive(Clone, Copy, Debug)]
struct StrictCheck;

nix::setsockopt_impl!(
    StrictCheck,
    libc::SOL_NETLINK,
    libc::NETLINK_GET_STRICT_CHK,
    bool,
    sockopt::SetBool
);

/// Which part of the kernel a socket talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Addresses, routes, policy rules.
    Route,
    /// Netfilter.
    Netfilter,
}

/// A netlink socket in the network namespace in which it was opened.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

/// A batch that the kernel refused: nothing of it was applied.
#[derive(Debug)]
pub struct BatchError {
    /// Which message of the batch is at fault, counted from 0; `None` if it was the batch as a whole.
    pub message: Option<usize>,
    /// What the kernel said.
    pub error: io::Error,
}

impl std::fmt::Display for BatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.message {
            Some(index) => write!(
                f,
                "the kernel refused message {} of the transaction: {}",
                index + 1,
                self.error
            ),
            None => write!(f, "the kernel refused the transaction: {}", self.error),
        }
    }
}

impl std::error::Error for BatchError {}

impl From<Errno> for BatchError {
    fn from(errno: Errno) -> Self {
        Self {
            message: None,
            error: errno.into(),
        }
    }
}

impl From<io::Error> for BatchError {
    fn from(error: io::Error) -> Self {
        Self { message: None, error }
    }
}

impl From<BatchError> for io::Error {
    fn from(error: BatchError) -> Self {
        match error.message {
            // Keeps the errno, which callers compare.
            None => error.error,
            Some(_) => Self::new(error.error.kind(), error),
        }
    }
}

impl Socket {
    /// Opens a socket in the current thread's network namespace.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` if the kernel lacks this protocol altogether.
    pub fn open(protocol: Protocol) -> io::Result<Self> {
        let protocol = match protocol {
            Protocol::Route => SockProtocol::NetlinkRoute,
            Protocol::Netfilter => SockProtocol::NetlinkNetFilter,
        };
        let descriptor = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )?;
        bind(descriptor.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        setsockopt(
            &descriptor,
            sockopt::ReceiveTimeout,
            &TimeVal::new(ANSWER_SECONDS, 0),
        )?;
        // Since 4.20; without it everything is listed, and the readers pick.
        let _ = setsockopt(&descriptor, StrictCheck, &true);
        Ok(Self {
            descriptor,
            sequence: 1,
            buffer: vec![0; 32 * 1024],
        })
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

    /// Sends one message and returns what `read` makes of the first answer to it.
    ///
    /// # Errors
    /// The kernel's errno, as it is.
    pub fn query<T>(&mut self, message: &Message, read: impl Fn(&Reply<'_>) -> T) -> io::Result<T> {
        let sequence = self.next_sequence(1);
        let mut bytes = Vec::new();
        message.write(&mut bytes, request_flags(0), sequence)?;
        self.send(&bytes)?;
        loop {
            let length = self.receive()?;
            if let Some(reply) = replies(self.received(length)).find(|reply| reply.sequence == sequence) {
                return match status(&reply) {
                    Some(Err(errno)) => Err(errno.into()),
                    Some(Ok(())) | None => Ok(read(&reply)),
                };
            }
        }
    }

    /// Dumps a list: `fold` sees every entry in the kernel's order. If the list changed meanwhile, all begins again
    /// with a fresh `S`.
    ///
    /// # Errors
    /// The kernel's errno, as it is; or a list that never stood still.
    pub fn dump<S: Default>(
        &mut self,
        message: &Message,
        mut fold: impl FnMut(&mut S, &Reply<'_>),
    ) -> io::Result<S> {
        for _ in 0..DUMP_ATTEMPTS {
            let sequence = self.next_sequence(1);
            let mut bytes = Vec::new();
            message.write(&mut bytes, request_flags(libc::NLM_F_DUMP), sequence)?;
            self.send(&bytes)?;
            let mut state = S::default();
            if self.read_dump(sequence, |reply| fold(&mut state, reply))? {
                return Ok(state);
            }
        }
        Err(io::Error::other(format!(
            "the kernel's list changed each of the {DUMP_ATTEMPTS} times it was read"
        )))
    }

    /// Reads a dump to its end; false if it was not consistent.
    fn read_dump(&mut self, sequence: u32, mut each: impl FnMut(&Reply<'_>)) -> io::Result<bool> {
        let mut consistent = true;
        loop {
            let length = self.receive()?;
            for reply in replies(self.received(length)).filter(|reply| reply.sequence == sequence) {
                consistent &= !reply.interrupted();
                match status(&reply) {
                    Some(Ok(())) => return Ok(consistent),
                    // Some lists report a change at the end, with EINTR rather than the flag.
                    Some(Err(Errno::EINTR)) => return Ok(false),
                    Some(Err(errno)) => return Err(errno.into()),
                    None => each(&reply),
                }
            }
        }
    }

    /// Sends `messages` as one nf_tables transaction: either all of it is applied, or nothing.
    ///
    /// # Errors
    /// The first message that was refused. A batch too big for the socket's send buffer gives `EMSGSIZE`.
    pub fn transaction(&mut self, messages: &[Message]) -> Result<(), BatchError> {
        if messages.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(messages.len()).map_err(|_| Errno::EMSGSIZE)?;
        let begin = self.next_sequence(count.saturating_add(2));
        let bytes = batch(messages, begin)?;
        self.make_room(bytes.len());
        self.send(&bytes)?;
        let last = begin.wrapping_add(count);
        let outcome = self.batch_outcome(begin, last);
        if outcome.is_err() {
            self.drain();
        }
        outcome
    }

    /// Reads answers until the acknowledgement of the last message, or the first error.
    fn batch_outcome(&mut self, begin: u32, last: u32) -> Result<(), BatchError> {
        let mut wait = MsgFlags::empty();
        loop {
            let length = match self.receive_with(wait) {
                // More errors than the buffer holds. Those that came first are there, and nothing comes after them.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) && wait.is_empty() => {
                    wait = MsgFlags::MSG_DONTWAIT;
                    continue;
                }
                other => other?,
            };
            let span = last.wrapping_sub(begin);
            for reply in replies(self.received(length)) {
                let index = reply.sequence.wrapping_sub(begin);
                if index > span {
                    continue;
                }
                match status(&reply) {
                    Some(Err(errno)) => {
                        let message = index.checked_sub(1).and_then(|index| usize::try_from(index).ok());
                        return Err(BatchError {
                            message,
                            error: errno.into(),
                        });
                    }
                    Some(Ok(())) if index == span => return Ok(()),
                    Some(Ok(())) | None => {}
                }
            }
        }
    }

    /// A transaction has to fit into one send call. Raising the buffer above the system's limit takes CAP_NET_ADMIN
    /// in the initial user namespace; without it the limit is as much as can be had.
    fn make_room(&self, length: usize) {
        let wanted = length.saturating_mul(2).saturating_add(64 * 1024);
        let present = getsockopt(&self.descriptor, sockopt::SndBuf).unwrap_or(0);
        if present < wanted && setsockopt(&self.descriptor, sockopt::SndBufForce, &wanted).is_err() {
            // Not enough after all: the send call then says EMSGSIZE.
            let _ = setsockopt(&self.descriptor, sockopt::SndBuf, &wanted);
        }
    }

    /// Throws away the further answers to a refused batch: the kernel reports every message it dislikes.
    fn drain(&self) {
        let mut scrap = [0; 4096];
        for _ in 0..1_000_000 {
            match nix::sys::socket::recv(self.descriptor.as_raw_fd(), &mut scrap, MsgFlags::MSG_DONTWAIT) {
                Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Reserves `count` sequence numbers and returns the first.
    fn next_sequence(&mut self, count: u32) -> u32 {
        let first = self.sequence;
        self.sequence = first.wrapping_add(count);
        first
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        loop {
            match send(self.descriptor.as_raw_fd(), bytes, MsgFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn receive(&mut self) -> io::Result<usize> {
        self.receive_with(MsgFlags::empty())
    }

    /// Receives one datagram of the kernel into the buffer, which grows to hold all of it.
    fn receive_with(&mut self, flags: MsgFlags) -> io::Result<usize> {
        loop {
            let (length, sender) = self.receive_once(flags | MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC)?;
            if length > self.buffer.len() {
                self.buffer.resize(length, 0);
            }
            self.receive_once(flags)?;
            // Anybody may send to our port number; only the kernel's is 0.
            if sender == Some(0) {
                return Ok(length);
            }
        }
    }

    /// The length of a datagram and the port number of its sender.
    fn receive_once(&mut self, flags: MsgFlags) -> io::Result<(usize, Option<u32>)> {
        loop {
            let mut parts = [IoSliceMut::new(&mut self.buffer)];
            match recvmsg::<NetlinkAddr>(self.descriptor.as_raw_fd(), &mut parts, None, flags) {
                Ok(message) => return Ok((message.bytes, message.address.map(|address| address.pid()))),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Err(io::Error::new(io::ErrorKind::TimedOut, UNANSWERED)),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn received(&self, length: usize) -> &[u8] {
        self.buffer.get(..length).unwrap_or_default()
    }
}

/// The flags of a request: the bits are the same in the 16 bits of the header.
fn request_flags(more: libc::c_int) -> u16 {
    u16::try_from(libc::NLM_F_REQUEST | more).unwrap_or(0)
}

/// The bytes of a batch. Only the last message asks for an acknowledgement: one for each would overflow the receive
/// buffer, and errors are reported unasked.
fn batch(messages: &[Message], begin: u32) -> io::Result<Vec<u8>> {
    let mut bytes =
        Vec::with_capacity(64 + messages.iter().map(|message| message.size() + 16).sum::<usize>());
    bracket(libc::NFNL_MSG_BATCH_BEGIN).write(&mut bytes, request_flags(0), begin)?;
    let mut sequence = begin;
    for (index, message) in messages.iter().enumerate() {
        sequence = sequence.wrapping_add(1);
        let ack = if index + 1 == messages.len() {
            libc::NLM_F_ACK
        } else {
            0
        };
        message.write(&mut bytes, request_flags(ack), sequence)?;
    }
    bracket(libc::NFNL_MSG_BATCH_END).write(&mut bytes, request_flags(0), sequence.wrapping_add(1))?;
    Ok(bytes)
}

/// The message that begins or ends a batch.
fn bracket(kind: libc::c_int) -> Message {
    let [high, low] = NFNL_SUBSYS_NFTABLES.to_be_bytes();
    Message::new(u16::try_from(kind).unwrap_or(0), 0, &[0, 0, high, low])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_message_of_a_batch_asks_for_an_acknowledgement() {
        let message = Message::new(0x0a01, 0, &[1, 0, 0, 0]);
        let bytes = batch(&[message.clone(), message], 7).unwrap();
        let seen: Vec<(u16, u32, bool)> = replies(&bytes)
            .map(|reply| {
                (
                    reply.kind,
                    reply.sequence,
                    reply.flags & request_flags(libc::NLM_F_ACK) == 5,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                (16, 7, false),
                (0x0a01, 8, false),
                (0x0a01, 9, true),
                (17, 10, false)
            ]
        );
    }

    #[test]
    fn the_kernel_s_errno_is_passed_on() {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        // No such message type.
        let error = socket.request(&Message::new(0x3fff, 0, &[0; 4])).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}");
    }
}
