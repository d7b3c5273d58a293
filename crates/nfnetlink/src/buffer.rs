//! Memory that replies are received into.

use std::cell::Cell;
use std::mem;
use std::ops::{Deref, DerefMut};

/// What is kept of the buffers of closed sockets, in bytes.
const MOST_KEPT: usize = 64 * 1024;

thread_local! {
    /// The buffer of a closed socket. New memory must be zeroed, which was a fifteenth of a run's
    /// instructions: a run opens ten sockets, one after the other.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The buffer of a socket: bytes of earlier replies, or zeros.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    /// Makes it at least this long; what it holds is lost.
    pub(crate) fn enlarge(&mut self, length: usize) {
        if length <= self.len() {
            return;
        }
        let spare = SPARE.try_with(Cell::take).unwrap_or_default();
        self.0 = if spare.len() < length { vec![0; length] } else { spare };
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let own = mem::take(&mut self.0);
        // A thread that ends keeps nothing.
        let _ = SPARE.try_with(|spare| {
            let other = spare.take();
            let is_better = own.len() > other.len() && own.len() <= MOST_KEPT;
            spare.set(if is_better { own } else { other });
        });
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enlarged(length: usize) -> Buffer {
        let mut buffer = Buffer::default();
        buffer.enlarge(length);
        buffer
    }

    #[test]
    fn the_next_socket_takes_the_buffer_of_a_closed_one() {
        let first = enlarged(1000).as_ptr();
        let second = enlarged(500);
        assert_eq!((second.as_ptr(), second.len()), (first, 1000));
        assert_ne!(enlarged(500).as_ptr(), first, "each has its own");
    }

    #[test]
    fn a_buffer_that_is_too_short_is_replaced_and_a_huge_one_is_freed() {
        drop(enlarged(10));
        assert_eq!(enlarged(1000).len(), 1000);
        drop(enlarged(MOST_KEPT + 1));
        assert_eq!(enlarged(1).len(), 1);
    }
}
