//! Transactions of nf_tables: many messages in one send call, applied together or not at all.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, getsockopt, setsockopt, sockopt};

use crate::reply::{replies, status};
use crate::{Message, Socket, request_flags};

/// The subsystem of nfnetlink that a batch is for.
const NFNL_SUBSYS_NFTABLES: u16 = 10;

/// A send buffer of this size, in bytes, is enough for every batch.
const LARGEST_BUFFER: usize = 64 << 20;

/// A batch that the kernel refused: nothing of it was applied.
#[derive(Debug)]
pub struct BatchError {
    /// Which message of the batch is at fault, counted from 0; `None` if it was the batch as a whole.
    pub message: Option<usize>,
    /// The kernel's error.
    pub error: io::Error,
    /// The kernel's explanation, where it gives one.
    pub reason: Option<String>,
    /// The content of the attribute at fault, where the kernel names one.
    pub attribute: Option<Vec<u8>>,
}

impl BatchError {
    /// The attribute at fault, if it is text: the name of a table, or of an expression that the kernel lacks.
    #[must_use]
    pub fn named(&self) -> Option<&str> {
        let text = std::str::from_utf8(self.attribute.as_deref()?.strip_suffix(&[0])?).ok()?;
        (!text.is_empty() && text.chars().all(|c| c.is_ascii_graphic())).then_some(text)
    }

    /// What the kernel reported about the error: its error code, its explanation and the attribute at fault.
    #[must_use]
    pub fn details(&self) -> String {
        let mut text = self.error.to_string();
        if let Some(reason) = &self.reason {
            text += &format!(": {reason}");
        }
        if let Some(name) = self.named() {
            text += &format!(": {name}");
        }
        text
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message {
            Some(index) => {
                write!(f, "the kernel refused message {} of the transaction: {}", index + 1, self.details())
            }
            None => write!(f, "the kernel refused the transaction: {}", self.details()),
        }
    }
}

impl std::error::Error for BatchError {}

impl From<Errno> for BatchError {
    fn from(errno: Errno) -> Self {
        io::Error::from(errno).into()
    }
}

impl From<io::Error> for BatchError {
    fn from(error: io::Error) -> Self {
        Self { message: None, error, reason: None, attribute: None }
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
        self.transaction_at(messages, None)
    }

    /// Sends `messages` as one nf_tables transaction, provided that nothing has changed since `generation`,
    /// where one is given.
    ///
    /// # Errors
    /// The first message that was refused; `ERESTART` if the rules are of another generation (since Linux
    /// 4.12; older kernels do not look at it).
    pub fn transaction_at(
        &mut self,
        messages: &[Message],
        generation: Option<u32>,
    ) -> Result<(), BatchError> {
        if messages.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(messages.len()).map_err(|_| Errno::EMSGSIZE)?;
        let begin = self.next_sequence(count.saturating_add(2));
        let bytes = batch(messages, begin, generation)?;
        self.raise_send_buffer(bytes.len());
        self.send(&bytes)?;
        let last = begin.wrapping_add(count);
        self.batch_outcome(begin, last).map_err(|(error, offset)| {
            self.drain();
            let at_fault = error.message.and_then(|index| messages.get(index));
            let attribute = at_fault.zip(offset).and_then(|(message, offset)| message.attribute_at(offset));
            BatchError { attribute: attribute.map(<[u8]>::to_vec), ..error }
        })
    }

    /// Reads replies until the acknowledgement of the last message, or the first error; with the offset of
    /// the attribute at fault.
    fn batch_outcome(&mut self, begin: u32, last: u32) -> Result<(), (BatchError, Option<usize>)> {
        let mut wait = MsgFlags::empty();
        loop {
            let length = match self.receive_with(wait) {
                // More errors than the buffer holds. Those that came first are there, and nothing comes after
                // them.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) && wait.is_empty() => {
                    wait = MsgFlags::MSG_DONTWAIT;
                    continue;
                }
                other => other.map_err(|error| (error.into(), None))?,
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
                        let extended = reply.extended_error();
                        let error = BatchError {
                            message,
                            error: errno.into(),
                            reason: extended.reason,
                            attribute: None,
                        };
                        return Err((error, extended.offset));
                    }
                    Some(Ok(())) if index == span => return Ok(()),
                    Some(Ok(())) | None => {}
                }
            }
        }
    }

    /// A transaction has to fit into one send call. Raising the buffer above the system's limit takes
    /// CAP_NET_ADMIN in the initial user namespace; without it the limit is as much as can be had.
    fn raise_send_buffer(&self, length: usize) {
        let wanted = length.saturating_mul(2).saturating_add(64 * 1024);
        let present = getsockopt(&self.descriptor, sockopt::SndBuf).unwrap_or(0);
        if present < wanted && setsockopt(&self.descriptor, sockopt::SndBufForce, &wanted).is_err() {
            // If it is still too small, the send call returns EMSGSIZE.
            let _ = setsockopt(&self.descriptor, sockopt::SndBuf, &wanted);
        }
    }

    /// The length of a send call beyond which it fails with `EMSGSIZE`, with a buffer as large as the limit
    /// of the system allows.
    pub(crate) fn send_limit(&self) -> usize {
        self.raise_send_buffer(LARGEST_BUFFER);
        getsockopt(&self.descriptor, sockopt::SndBuf).unwrap_or(0)
    }

    /// Throws away the further replies to a refused batch: the kernel reports every message it dislikes.
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

/// The bytes of a batch. Only the last message asks for an acknowledgement: one for each would overflow the
/// receive buffer, and errors are reported unasked.
fn batch(messages: &[Message], begin: u32, generation: Option<u32>) -> io::Result<Vec<u8>> {
    const NFNL_BATCH_GENID: u16 = 1;
    let mut bytes =
        Vec::with_capacity(64 + messages.iter().map(|message| message.size() + 16).sum::<usize>());
    let mut first = bracket(libc::NFNL_MSG_BATCH_BEGIN);
    if let Some(generation) = generation {
        first.push_be32(NFNL_BATCH_GENID, generation);
    }
    first.write(&mut bytes, request_flags(0), begin)?;
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
        let bytes = batch(&[message.clone(), message], 7, None).unwrap();
        let seen: Vec<(u16, u32, bool)> = replies(&bytes)
            .map(|reply| (reply.kind, reply.sequence, reply.flags & request_flags(libc::NLM_F_ACK) == 5))
            .collect();
        assert_eq!(seen, [(16, 7, false), (0x0a01, 8, false), (0x0a01, 9, true), (17, 10, false)]);
    }
}
