//! A hook between queries and the kernel: another function can record or replace the replies.

use std::cell::Cell;
use std::io;

use crate::{HEADER, Protocol, Reply, aligned};

/// Replies to a query or a dump in place of the kernel. It gets the request with sequence number 0, empty
/// where a socket is opened, and what asks the kernel; it returns the messages of the reply one behind the
/// other.
pub type Interceptor = fn(Protocol, &[u8], &mut dyn FnMut() -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>>;

thread_local! {
    static INTERCEPTOR: Cell<Option<Interceptor>> = const { Cell::new(None) };
}

/// Lets `interceptor` reply to the queries and dumps of the sockets that this thread opens from now on; with
/// `None` the kernel replies again. What changes something always goes to the kernel.
pub fn intercept(interceptor: Option<Interceptor>) {
    INTERCEPTOR.set(interceptor);
}

pub(crate) fn interceptor() -> Option<Interceptor> {
    INTERCEPTOR.get()
}

/// Appends a message as the kernel sent it, but for its numbers.
pub(crate) fn push(bytes: &mut Vec<u8>, reply: &Reply<'_>) {
    let length = u32::try_from(HEADER.saturating_add(reply.body.len())).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&reply.kind.to_ne_bytes());
    bytes.extend_from_slice(&reply.flags.to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(reply.body);
    bytes.resize(aligned(bytes.len()), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, Socket};

    fn links(socket: &mut Socket) -> io::Result<Vec<Vec<u8>>> {
        let message = Message::new(libc::RTM_GETLINK, 0, &[0; 16]);
        socket.dump(&message, |links: &mut Vec<Vec<u8>>, reply| links.push(reply.body.to_vec()))
    }

    #[test]
    fn an_interceptor_sees_the_reply_of_the_kernel_or_gives_its_own() {
        let expected = links(&mut Socket::open(Protocol::Route).unwrap()).unwrap();
        intercept(Some(|_, _, ask| ask()));
        assert_eq!(links(&mut Socket::open(Protocol::Route).unwrap()).unwrap(), expected);
        intercept(Some(|protocol, request, _| {
            assert_eq!(protocol, Protocol::Route);
            let mut bytes = Vec::new();
            push(&mut bytes, &Reply { kind: 16, flags: 0, sequence: 7, port: 0, body: &[1, 2, 3] });
            push(&mut bytes, &Reply { kind: 16, flags: 0, sequence: 7, port: 0, body: &[4] });
            if request.is_empty() { Ok(Vec::new()) } else { Ok(bytes) }
        }));
        let mut socket = Socket::open(Protocol::Route).unwrap();
        assert_eq!(links(&mut socket).unwrap(), [vec![1, 2, 3], vec![4]]);
        let first = socket.query(&Message::new(libc::RTM_GETLINK, 0, &[0; 16]), |reply| reply.body.to_vec());
        assert_eq!(first.unwrap(), [1, 2, 3]);
        intercept(Some(|_, _, _| Err(io::Error::from_raw_os_error(libc::EPERM))));
        assert!(Socket::open(Protocol::Netfilter).is_err());
        intercept(None);
        assert_eq!(links(&mut Socket::open(Protocol::Route).unwrap()).unwrap(), expected);
    }
}
