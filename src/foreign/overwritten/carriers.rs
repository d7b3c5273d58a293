//! The ways of packets on which TPROXY needs a mark, as data.

use crate::model::{Mark, PROXY_LOOPBACK_MARK};
use crate::parse::matches::{ESTABLISHED, LOCAL, NEW, UNICAST};

/// The hooks that a packet passes on its way over `lo`, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Output,
    Postrouting,
    Prerouting,
    Input,
}

/// On which side of our rules of one chain, or of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Before,
    Behind,
}

/// A place on the way; packets come by in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) stage: Stage,
    pub(super) priority: i32,
    pub(super) side: Side,
}

/// The priority of the table `mangle`, which has our rules of marks.
pub(super) const MANGLE: i32 = -150;
/// Connection tracking has this priority.
pub(super) const CONNTRACK: i32 = -200;

const FIRST: Place = Place { stage: Stage::Output, priority: i32::MIN, side: Side::Before };
const END_OF_OUTPUT: Place = Place { stage: Stage::Output, priority: i32::MAX, side: Side::Behind };
const LAST: Place = Place { stage: Stage::Input, priority: i32::MAX, side: Side::Behind };

const fn ours(stage: Stage, side: Side) -> Place {
    Place { stage, priority: MANGLE, side }
}

/// What happens if the mark is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Harm {
    OwnCalls,
    ClientAddress,
    OtherCalls,
    Clients,
}

/// Which mark counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    /// The packet's, which has to stay.
    Packet,
    /// The connection's, which has to stay.
    Connection,
    /// The packet's, which must not become that of the proxy's own calls.
    PacketMustDiffer,
    /// The connection's, which must not become that of TPROXY.
    ConnectionMustDiffer,
}

/// What a base chain is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// Only the first packet of a connection meets it.
    pub(super) is_nat: bool,
    /// What leaves is routed again behind it, if it has got another mark.
    pub(super) reroutes: bool,
    /// Rules of ours are in it.
    pub(super) is_shared: bool,
}

/// A packet on a part of its way, and the mark that counts there.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) harm: Harm,
    pub(super) counts: Counts,
    /// The first place and the last.
    pub(super) way: (Place, Place),
    /// The first packet of a connection, or a later one.
    pub(super) states: &'static [u128],
    pub(super) mark: Mark,
    pub(super) connmark: Mark,
    /// Whether it arrives on `lo`.
    pub(super) passes_lo: bool,
    /// Whether it is sent to `lo` at first, too.
    pub(super) is_sent_to_lo: bool,
    /// The types of its addresses.
    pub(super) source: u128,
    pub(super) destination: u128,
    /// Whether the proxy sends it.
    pub(super) is_of_proxy: bool,
}

impl Carrier {
    pub(super) const fn is_from_pod(&self) -> bool {
        self.source == LOCAL
    }

    pub(super) const fn is_to_pod(&self) -> bool {
        self.destination == LOCAL
    }

    /// Whether it comes by a place in such a chain, with a mark that still counts.
    pub(super) fn comes_by(&self, place: Place, chain: Kind) -> bool {
        let is_seen_by_nat =
            self.states.contains(&NEW) && !(self.passes_lo && place.stage == Stage::Prerouting);
        // Ours let it leave the chain.
        let has_left = chain.is_shared
            && place.side == Side::Behind
            && match place.stage {
                Stage::Output => self.harm == Harm::ClientAddress && self.is_of_proxy,
                Stage::Prerouting => self.harm == Harm::Clients,
                Stage::Postrouting | Stage::Input => false,
            };
        let is_routed = self.counts == Counts::Packet && !self.is_sent_to_lo && !chain.reroutes;
        (self.way.0..=self.way.1).contains(&place)
            && (!chain.is_nat || is_seen_by_nat)
            && !has_left
            && !is_routed
    }

    /// Whether a change of its marks does harm; `None`: to what is not known.
    pub(super) fn is_harmed_by(&self, changed: Option<(Mark, Mark)>) -> bool {
        match (self.counts, changed) {
            (Counts::Packet, Some((mark, _))) => mark != self.mark,
            (Counts::Connection, Some((_, mark))) => mark != self.connmark,
            (Counts::PacketMustDiffer, Some((mark, _))) => mark == PROXY_LOOPBACK_MARK,
            (Counts::ConnectionMustDiffer, Some((_, mark))) => mark == self.mark,
            (Counts::Packet | Counts::Connection, None) => true,
            (Counts::PacketMustDiffer | Counts::ConnectionMustDiffer, None) => false,
        }
    }
}

/// All of them, with this mark of TPROXY.
pub(super) fn carriers(mark: Mark) -> Vec<Carrier> {
    let [sent, saved, answered, restored] = of_client_address(mark);
    // What is captured has the mark when it arrives. In its connection the proxy's answers would get it, and go to `lo`.
    let captured = Carrier {
        harm: Harm::Clients,
        counts: Counts::ConnectionMustDiffer,
        way: (ours(Stage::Prerouting, Side::Behind), LAST),
        states: &[NEW, ESTABLISHED],
        mark,
        passes_lo: false,
        is_sent_to_lo: false,
        source: UNICAST,
        is_of_proxy: false,
        ..OF_PROXY
    };
    let of_others = Carrier {
        harm: Harm::OtherCalls,
        counts: Counts::PacketMustDiffer,
        way: (FIRST, ours(Stage::Prerouting, Side::Before)),
        mark: Mark(0),
        is_of_proxy: false,
        ..OF_PROXY
    };
    vec![OF_PROXY, sent, saved, answered, restored, of_others, captured]
}

/// What the proxy sends to the pod itself.
const OF_PROXY: Carrier = Carrier {
    harm: Harm::OwnCalls,
    counts: Counts::Packet,
    way: (ours(Stage::Output, Side::Behind), ours(Stage::Prerouting, Side::Before)),
    states: &[NEW],
    mark: PROXY_LOOPBACK_MARK,
    connmark: Mark(0),
    passes_lo: true,
    is_sent_to_lo: true,
    source: LOCAL,
    destination: LOCAL,
    is_of_proxy: true,
};

/// What the proxy sends to the application from a client's address, and the answer.
const fn of_client_address(mark: Mark) -> [Carrier; 4] {
    use Side::{Before, Behind};
    // The packet has the mark until our rule saves it in the connection.
    let sent = Carrier {
        harm: Harm::ClientAddress,
        way: (FIRST, ours(Stage::Prerouting, Before)),
        mark,
        source: UNICAST,
        ..OF_PROXY
    };
    let saved = Carrier {
        counts: Counts::Connection,
        way: (ours(Stage::Prerouting, Behind), LAST),
        states: &[NEW, ESTABLISHED],
        connmark: mark,
        ..sent
    };
    // The answer gets it back from there, and is routed by it: once, since it keeps its route on `lo`.
    let answered = Carrier {
        counts: Counts::Connection,
        way: (FIRST, ours(Stage::Output, Before)),
        states: &[ESTABLISHED],
        mark: Mark(0),
        connmark: mark,
        is_sent_to_lo: false,
        source: LOCAL,
        destination: UNICAST,
        is_of_proxy: false,
        ..sent
    };
    let restored = Carrier {
        counts: Counts::Packet,
        way: (ours(Stage::Output, Behind), END_OF_OUTPUT),
        mark,
        ..answered
    };
    [sent, saved, answered, restored]
}
