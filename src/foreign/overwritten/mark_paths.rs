//! The packet paths on which TPROXY depends on a mark, as data.

use super::super::{BaseChain, Stage};
use crate::live_rules::{ESTABLISHED, LOCAL, NEW, UNICAST};
use crate::model::{Mark, PROXY_LOOPBACK_MARK, Table};

/// Before or after our rules of the same chain or priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Before,
    Behind,
}

/// A position on the path, ordered as packets traverse them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) stage: Stage,
    pub(super) priority: i32,
    pub(super) side: Side,
}

/// The priority of our rules of marks.
pub(super) const MANGLE: i32 = Table::Mangle.priority();

const FIRST: Position = Position { stage: Stage::Output, priority: i32::MIN, side: Side::Before };
const END_OF_OUTPUT: Position = Position { stage: Stage::Output, priority: i32::MAX, side: Side::Behind };
const LAST: Position = Position { stage: Stage::Input, priority: i32::MAX, side: Side::Behind };

const fn ours(stage: Stage, side: Side) -> Position {
    Position { stage, priority: MANGLE, side }
}

/// The traffic that breaks if a foreign rule changes the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Affected {
    /// Connections of a root proxy to its own pod.
    OwnCalls,
    /// Connections of the proxy from the client's address.
    ClientAddress,
    /// Connections of other programs to their own pod.
    OtherCalls,
    /// Captured connections of clients.
    Clients,
}

/// What TPROXY requires of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requirement {
    /// The packet's mark must not change.
    PacketMarkStays,
    /// The connection's mark must not change.
    ConnectionMarkStays,
    /// The packet's mark must not become that of the proxy's own calls.
    PacketMarkDiffers,
    /// The connection's mark must not become that of TPROXY.
    ConnectionMarkDiffers,
}

/// A packet, the part of its path on which TPROXY depends on a mark, and the marks there.
#[derive(Debug)]
pub(super) struct MarkPath {
    pub(super) affected: Affected,
    pub(super) requires: Requirement,
    /// First and last position.
    pub(super) span: (Position, Position),
    /// The first packet of a connection, or a later one.
    pub(super) states: &'static [u128],
    pub(super) mark: Mark,
    pub(super) connmark: Mark,
    /// Whether it arrives on `lo`.
    pub(super) passes_lo: bool,
    /// Whether it is routed to `lo` before any mark is set.
    pub(super) is_sent_to_lo: bool,
    /// Address types, as of `addrtype`.
    pub(super) source: u128,
    pub(super) destination: u128,
    /// Whether the proxy sends it.
    pub(super) is_of_proxy: bool,
}

impl MarkPath {
    pub(super) const fn is_from_pod(&self) -> bool {
        self.source == LOCAL
    }

    pub(super) const fn is_to_pod(&self) -> bool {
        self.destination == LOCAL
    }

    /// Whether the packet traverses a chain at this position while its mark matters.
    pub(super) fn traverses(&self, position: Position, chain: &BaseChain<'_>) -> bool {
        let is_seen_by_nat =
            self.states.contains(&NEW) && !(self.passes_lo && position.stage == Stage::Prerouting);
        // Our rules end the chain for it.
        let has_left = chain.has_our_marks()
            && position.side == Side::Behind
            && match position.stage {
                Stage::Output => self.affected == Affected::ClientAddress && self.is_of_proxy,
                Stage::Prerouting => self.affected == Affected::Clients,
                Stage::Postrouting | Stage::Input | Stage::Forward => false,
            };
        let is_routed =
            self.requires == Requirement::PacketMarkStays && !self.is_sent_to_lo && !chain.reroutes;
        (self.span.0..=self.span.1).contains(&position)
            && (!chain.is_nat || is_seen_by_nat)
            && !has_left
            && !is_routed
    }

    /// Whether these marks break the traffic. `None`: the new marks are unknown.
    pub(super) fn is_broken_by(&self, changed: Option<(Mark, Mark)>) -> bool {
        match (self.requires, changed) {
            (Requirement::PacketMarkStays, Some((mark, _))) => mark != self.mark,
            (Requirement::ConnectionMarkStays, Some((_, mark))) => mark != self.connmark,
            (Requirement::PacketMarkDiffers, Some((mark, _))) => mark == PROXY_LOOPBACK_MARK,
            (Requirement::ConnectionMarkDiffers, Some((_, mark))) => mark == self.mark,
            (Requirement::PacketMarkStays | Requirement::ConnectionMarkStays, None) => true,
            (Requirement::PacketMarkDiffers | Requirement::ConnectionMarkDiffers, None) => false,
        }
    }
}

/// All paths, for this mark of TPROXY.
pub(super) fn mark_paths(mark: Mark) -> Vec<MarkPath> {
    let [sent, saved, replied, restored] = of_client_address(mark);
    // Captured packets carry the mark. Saved in the connection, it would be restored in the proxy's replies
    // and route them to `lo`.
    let captured = MarkPath {
        affected: Affected::Clients,
        requires: Requirement::ConnectionMarkDiffers,
        span: (ours(Stage::Prerouting, Side::Behind), LAST),
        states: &[NEW, ESTABLISHED],
        mark,
        passes_lo: false,
        is_sent_to_lo: false,
        source: UNICAST,
        is_of_proxy: false,
        ..OF_PROXY
    };
    let of_others = MarkPath {
        affected: Affected::OtherCalls,
        requires: Requirement::PacketMarkDiffers,
        span: (FIRST, ours(Stage::Prerouting, Side::Before)),
        mark: Mark(0),
        is_of_proxy: false,
        ..OF_PROXY
    };
    vec![OF_PROXY, sent, saved, replied, restored, of_others, captured]
}

/// Packets of the proxy to its own pod.
const OF_PROXY: MarkPath = MarkPath {
    affected: Affected::OwnCalls,
    requires: Requirement::PacketMarkStays,
    span: (ours(Stage::Output, Side::Behind), ours(Stage::Prerouting, Side::Before)),
    states: &[NEW],
    mark: PROXY_LOOPBACK_MARK,
    connmark: Mark(0),
    passes_lo: true,
    is_sent_to_lo: true,
    source: LOCAL,
    destination: LOCAL,
    is_of_proxy: true,
};

/// Packets of the proxy to the application from the client's address, and the replies.
const fn of_client_address(mark: Mark) -> [MarkPath; 4] {
    use Side::{Before, Behind};
    // The packet carries the mark until our rule saves it in the connection.
    let sent = MarkPath {
        affected: Affected::ClientAddress,
        span: (FIRST, ours(Stage::Prerouting, Before)),
        mark,
        source: UNICAST,
        ..OF_PROXY
    };
    let saved = MarkPath {
        requires: Requirement::ConnectionMarkStays,
        span: (ours(Stage::Prerouting, Behind), LAST),
        states: &[NEW, ESTABLISHED],
        connmark: mark,
        ..sent
    };
    // The mark is restored in the reply, which is routed by it once: on `lo` it keeps its route.
    let replied = MarkPath {
        requires: Requirement::ConnectionMarkStays,
        span: (FIRST, ours(Stage::Output, Before)),
        states: &[ESTABLISHED],
        mark: Mark(0),
        connmark: mark,
        is_sent_to_lo: false,
        source: LOCAL,
        destination: UNICAST,
        is_of_proxy: false,
        ..sent
    };
    let restored = MarkPath {
        requires: Requirement::PacketMarkStays,
        span: (ours(Stage::Output, Behind), END_OF_OUTPUT),
        mark,
        ..replied
    };
    [sent, saved, replied, restored]
}
