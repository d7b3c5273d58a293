//! Many independent requests, several of them in one send call.

use std::io;

use nix::errno::Errno;

use crate::reply::{replies, status};
use crate::{Message, Socket, request_flags};

/// How many requests one send call carries. The kernel replies to each refused one with a message of about 1
/// KiB in the receive buffer, whose default size is 208 KiB.
const CHUNK: usize = 100;

/// The outcome of many requests.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many the kernel carried out.
    pub done: usize,
    /// How many it refused with an errno that the caller expects.
    pub expected: usize,
    /// The first other error.
    pub error: Option<io::Error>,
}

impl Outcome {
    /// The number of requests that were carried out, if no other error than the expected ones occurred.
    ///
    /// # Errors
    /// The first other error.
    pub fn done(self) -> io::Result<usize> {
        self.error.map_or(Ok(self.done), Err)
    }
}

impl Socket {
    /// Sends `messages`, each carried out or refused on its own. `expected` are errnos that are not failures.
    ///
    /// # Errors
    /// The socket fails. The kernel's reply to each message is in the outcome.
    pub fn requests(&mut self, messages: &[Message], expected: &[i32]) -> io::Result<Outcome> {
        let mut outcome = Outcome::default();
        for chunk in messages.chunks(CHUNK) {
            let count = u32::try_from(chunk.len()).map_err(|_| Errno::EMSGSIZE)?;
            let first = self.next_sequence(count);
            self.send(&chunk_bytes(chunk, first)?)?;
            self.chunk_outcome(first, count, expected, &mut outcome)?;
        }
        Ok(outcome)
    }

    /// Reads replies up to that of the last message: an acknowledgement or an error. The others get a reply
    /// only if they are refused.
    fn chunk_outcome(
        &mut self,
        first: u32,
        count: u32,
        expected: &[i32],
        outcome: &mut Outcome,
    ) -> io::Result<()> {
        let mut refused = 0;
        loop {
            let length = self.receive()?;
            for reply in replies(self.received(length)) {
                let index = reply.sequence.wrapping_sub(first);
                let Some(result) = status(&reply).filter(|_| index < count) else { continue };
                if let Err(errno) = result {
                    refused += 1;
                    if expected.contains(&(errno as i32)) {
                        outcome.expected += 1;
                    } else {
                        outcome.error.get_or_insert_with(|| errno.into());
                    }
                }
                if index + 1 == count {
                    outcome.done += usize::try_from(count).unwrap_or(0).saturating_sub(refused);
                    return Ok(());
                }
            }
        }
    }
}

/// The bytes of a send call; only the last message asks for an acknowledgement.
fn chunk_bytes(messages: &[Message], first: u32) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(messages.iter().map(|message| message.size() + 16).sum());
    let mut sequence = first;
    for (index, message) in messages.iter().enumerate() {
        let ack = if index + 1 == messages.len() { libc::NLM_F_ACK } else { 0 };
        message.write(&mut bytes, request_flags(ack), sequence)?;
        sequence = sequence.wrapping_add(1);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;

    /// A message type that rtnetlink does not know.
    fn unknown() -> Message {
        Message::new(0x3fff, 0, &[0; 4])
    }

    #[test]
    fn every_refused_request_is_counted() {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let messages = vec![unknown(); 250];
        let outcome = socket.requests(&messages, &[libc::EOPNOTSUPP]).unwrap();
        assert_eq!((outcome.done, outcome.expected), (0, 250), "{outcome:?}");
        let outcome = socket.requests(&messages, &[]).unwrap();
        assert_eq!((outcome.done, outcome.expected), (0, 0));
        assert_eq!(outcome.done().unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
    }

    #[test]
    fn no_request_waits_for_no_reply() {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        assert_eq!(socket.requests(&[], &[]).unwrap().done().unwrap(), 0);
    }
}
