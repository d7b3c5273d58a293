//! Which side opened a TCP connection.

use super::State;

/// Offsets in `struct tcp_info`. The last one is there since Linux 4.19.
const UNACKED: usize = 24;
const BYTES_ACKED: usize = 120;
const BYTES_SENT: usize = 200;
const BYTES_RETRANS: usize = 208;

/// Whether a socket began its connection, by its state and its `struct tcp_info`; `None` where they do not
/// tell.
///
/// The side that began has one byte more acknowledged than it has sent: its SYN. The SYN of the other side is
/// acknowledged before its socket is made. A FIN counts like a SYN, and data under way is not acknowledged
/// yet.
pub(super) fn began(state: State, info: Option<&[u8]>) -> Option<bool> {
    match state {
        State::SynSent => return Some(true),
        // After a SYN of both sides, too: then each of them did.
        State::SynReceived | State::NewSynReceived => return Some(false),
        State::Established | State::CloseWait => {}
        State::FinWait1
        | State::FinWait2
        | State::TimeWait
        | State::Close
        | State::LastAck
        | State::Listen
        | State::Closing => return None,
    }
    let info = info?;
    let long = |at: usize| info.get(at..)?.first_chunk().copied().map(u64::from_ne_bytes);
    let unacked = info.get(UNACKED..)?.first_chunk().copied().map(u32::from_ne_bytes)?;
    let sent = long(BYTES_SENT)?.checked_sub(long(BYTES_RETRANS)?)?;
    match long(BYTES_ACKED)?.checked_sub(sent)? {
        0 if unacked == 0 => Some(false),
        1 if unacked == 0 => Some(true),
        _ => None,
    }
}
