//! Transactions of nf_tables: many messages in one send call, applied together or not at all.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, getsockopt, setsockopt, sockopt};

use super::reply::{replies, status};
use super::{Message, Socket, request_flags};

/// The subsystem of nfnetlink that a batch is for.
const NFNL_SUBSYS_NFTABLES: u16 = 10;

/// A batch that the kernel refused: nothing of it was applied.
#[derive(Debug)]
pub struct BatchError {
    /// Which message of the batch is at fault, counted from 0; `None` if it was the batch as a whole.
    pub message: Option<usize>,
    /// The kernel's error.
    pub error: io::Error,
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message {
            Some(index) => {
                write!(f, "the kernel refused message {} of the transaction: {}", index + 1, self.error)
            }
            None => write!(f, "the kernel refused the transaction: {}", self.error),
        }
    }
}

impl std::error::Error for BatchError {}

impl From<Errno> for BatchError {
    fn from(errno: Errno) -> Self {
        Self { message: None, error: errno.into() }
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
        self.raise_send_buffer(bytes.len());
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
                        return Err(BatchError { message, error: errno.into() });
                    }
                    Some(Ok(())) if index == span => return Ok(()),
                    Some(Ok(())) | None => {}
                }
            }
        }
    }

    /// A transaction has to fit into one send call. Raising the buffer above the system's limit takes CAP_NET_ADMIN
    /// in the initial user namespace; without it the limit is as much as can be had.
    fn raise_send_buffer(&self, length: usize) {
        let wanted = length.saturating_mul(2).saturating_add(64 * 1024);
        let present = getsockopt(&self.descriptor, sockopt::SndBuf).unwrap_or(0);
        if present < wanted && setsockopt(&self.descriptor, sockopt::SndBufForce, &wanted).is_err() {
            // If it is still too small, the send call returns EMSGSIZE.
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
        let ack = if index + 1 == messages.len() { libc::NLM_F_ACK } else { 0 };
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
            .map(|reply| (reply.kind, reply.sequence, reply.flags & request_flags(libc::NLM_F_ACK) == 5))
            .collect();
        assert_eq!(seen, [(16, 7, false), (0x0a01, 8, false), (0x0a01, 9, true), (17, 10, false)]);
    }
}
