//! A packet's way through the rules, in the order of the kernel's hooks.
//!
//! `OUTPUT` (packets of the pod's processes), then, for what stays in the pod, once more over `lo` through
//! `PREROUTING`; packets from outside begin with `PREROUTING`. At each hook the tables follow each other:
//! raw, connection tracking, mangle, nat.

mod branches;
mod cause;
mod chain;
mod decisive;
mod hook;
mod lost;
mod order;
mod other_base_chains;
mod outcome;
mod sent;

pub(super) use order::Order;
use other_base_chains::EqualPriorityChain;
pub use outcome::{Match, Step, Verdict, Walk};
pub(super) use sent::Sent;
pub use sent::{walk, walk_open};

use super::connection::Connection;
use super::field_match::Open;
use super::matching::PacketState;
use super::packet::{FOLLOWING, Packet};
use super::routing::{Looked, Routed, Routing};
use super::rules::{Chains, Rules};
use super::stage::Stage;
use crate::config::ConnectionState;
use crate::live_rules::Zone;
use crate::model::{Hook, Port};
use crate::routing::Found;

/// How a table leaves a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// To the next rule, or the next table.
    Continue,
    /// Out of the chain.
    Return,
    /// Out of the table.
    Accept,
    Drop,
    Redirect(Port),
    Tproxy(Port),
    /// Out of our hands.
    Taken,
    /// The kernel has no route for it, as it is now.
    NoRoute,
}

struct Walker<'a, 'b> {
    rules: &'a Rules,
    packet: &'b Packet,
    routing: Routing<'a>,
    connection: Option<Connection>,
    open: &'b [Open],
    /// The steps whose rules match, of those of which that is not known.
    chosen: &'b [usize],
    order: Order,
    at: PacketState,
    steps: Vec<Step<'a>>,
    uncertain: Vec<usize>,
    /// What the first chain of nat made of the packet that has the priority of ours.
    beside: Option<EqualPriorityChain<'a>>,
    /// The socket that TPROXY gave the packet.
    socket: Option<Socket>,
    /// Whether a rule gave the packet a destination that is not known.
    has_unknown_destination: bool,
    /// Whether nat has decided: it sees the first packet of a connection, once.
    is_translated: bool,
    /// Whether nat has decided over its source, too.
    has_source: bool,
    /// The zone in which the packet has no connection: over `lo` it may have one or begin one in another
    /// zone.
    without_connection: Option<Zone>,
    /// The step that translates what TPROXY has taken.
    translated_by: Option<usize>,
    routed: Vec<Looked<'a>>,
    /// Where what a process sends goes, by the last look-up.
    to: Routed,
    /// The step in a chain before or behind ours that decides.
    later: Option<usize>,
    because: Option<String>,
    /// The table and the chain whose policy is the reason.
    dropped_by: Option<(&'a str, &'a str)>,
    /// Whether its addresses are the reason.
    is_invalid: bool,
}

/// A socket to which TPROXY hands a packet.
#[derive(Clone, Copy)]
struct Socket {
    port: Port,
    /// The step whose rule did.
    by: usize,
}

/// Where in a table the walk is.
#[derive(Clone, Copy)]
struct ChainPosition<'a> {
    hook: &'static str,
    table: &'a str,
    chains: &'a Chains,
    chain: &'a str,
    depth: usize,
}

impl<'a> Walker<'a, '_> {
    fn verdict(&mut self, packet: &Packet) -> Verdict {
        let (mut captured, mut routed) = (None, None);
        if !packet.is_inbound {
            match self.sent(packet) {
                Ok((port, to)) => (captured, routed) = (port, Some(to)),
                Err(verdict) => return verdict,
            }
        }
        match self.hook(Hook::Prerouting) {
            Flow::Drop => return Verdict::Dropped,
            Flow::NoRoute => return self.no_route(),
            Flow::Taken => return Verdict::TakenByForeignRule,
            Flow::Redirect(port) => (captured, routed) = (Some(port), None),
            Flow::Tproxy(port) if self.rules.has_proxy_port(port) => captured = Some(port),
            Flow::Tproxy(_) | Flow::Continue | Flow::Return | Flow::Accept => {}
        }
        if let Some(verdict) = self.later(Stage::Prerouting) {
            return verdict;
        }
        // What comes over `lo` has its route already, unless its destination is another by now.
        let routed = routed.unwrap_or_else(|| self.route());
        if let Some(verdict) = self.rejected() {
            return verdict;
        }
        let foreign = self.socket.filter(|socket| !self.rules.has_proxy_port(socket.port));
        let foreign = foreign.filter(|_| !self.finds_its_connection());
        let verdict = match (captured, routed) {
            (_, Routed::Rejected) => return Verdict::Dropped,
            (None, Routed::Own | Routed::Here) if foreign.is_some() => Verdict::TakenByForeignRule,
            (Some(_), Routed::Away | Routed::Nowhere) => return self.misrouted(),
            (None, Routed::Away | Routed::Nowhere) if self.is_for_proxy() => return self.misrouted(),
            (None, Routed::Away) => return ended(packet),
            (None, Routed::Nowhere) => return self.no_route(),
            (Some(port), Routed::Own | Routed::Here) => Verdict::Captured(port),
            (None, Routed::Own) if packet.is_inbound && self.is_for_proxy() => Verdict::ToProxySocket,
            (None, Routed::Own) => ended(packet),
            (None, Routed::Here) if packet.state == ConnectionState::New => return Verdict::Misrouted,
            (None, Routed::Here) => Verdict::ToProxySocket,
        };
        self.later(Stage::Input).unwrap_or_else(|| {
            self.later = foreign.map(|socket| socket.by).filter(|_| verdict == Verdict::TakenByForeignRule);
            verdict
        })
    }

    /// What a process sends, up to its way over `lo`: the port of the proxy that it is for by then, and where
    /// it is routed.
    fn sent(&mut self, packet: &Packet) -> Result<(Option<Port>, Routed), Verdict> {
        let mut captured = None;
        // The first look-up is before any rule.
        self.to = self.first_route();
        match self.to {
            Routed::Rejected => return Err(Verdict::Dropped),
            Routed::Nowhere => return Err(self.no_route()),
            Routed::Own | Routed::Here | Routed::Away => {}
        }
        if self.is_for_several_hosts() {
            return Err(self.not_connected());
        }
        match self.hook(Hook::Output) {
            Flow::Drop => return Err(Verdict::Dropped),
            Flow::NoRoute => return Err(self.unroutable()),
            Flow::Taken => return Err(Verdict::TakenByForeignRule),
            Flow::Redirect(port) => captured = Some(port),
            Flow::Continue | Flow::Return | Flow::Accept | Flow::Tproxy(_) => {}
        }
        if let Some(verdict) = self.later(Stage::Output) {
            return Err(verdict);
        }
        match self.to {
            Routed::Rejected => return Err(Verdict::Dropped),
            Routed::Away | Routed::Nowhere if captured.is_some() || self.is_for_proxy() => {
                return Err(self.misrouted());
            }
            Routed::Nowhere => return Err(self.no_route()),
            Routed::Own | Routed::Here | Routed::Away => {}
        }
        self.at.out_interface = Some(self.leaves_by());
        if let Some(verdict) = self.postrouting() {
            return Err(verdict);
        }
        if self.to == Routed::Away {
            return Err(self.looped().unwrap_or_else(|| ended(packet)));
        }
        // The kernel removes the owner with the socket when the packet passes `lo`. Connection tracking has
        // seen it.
        (self.at.process, self.at.out_interface) = (None, None);
        (self.at.in_interface, self.at.is_seen) = (Some("lo".to_owned()), true);
        // What has no connection is looked up again.
        let has_none = packet.state == ConnectionState::Invalid && self.at.is_tracked;
        if has_none && packet.tcp_flags == Some(FOLLOWING) {
            self.without_connection = Some(self.at.zone);
            (self.at.zone, self.at.is_assigned, self.at.is_seen) = (Zone::default(), false, false);
        }
        Ok((captured, self.to))
    }

    /// Whether a policy has an effect: a run gives no chain the policy to drop, so each is foreign.
    fn obeys(&self, drops: bool) -> bool {
        drops && self.order != Order::OnlyOurs
    }

    /// The policy of a base chain is the reason.
    fn dropped_by_policy(&mut self, table: &'a str, chain: &'a str) {
        self.because = Some(format!("the policy of {table} {chain} drops it"));
        self.dropped_by = Some((table, chain));
    }

    /// Connection tracking sees the packet.
    fn tracks(&mut self) {
        let is_first = !std::mem::replace(&mut self.at.is_seen, true);
        let begins = self.without_connection.is_some_and(|zone| zone != self.at.zone);
        if is_first && begins && self.at.is_tracked {
            (self.at.state, self.is_translated) = (ConnectionState::New, false);
        }
    }

    /// The interface of the last look-up, or that which is asked about.
    fn leaves_by(&self) -> String {
        let looked = self.routed.last().and_then(|looked| looked.lookup.decisive.as_ref());
        let interface = match (self.to, looked.map(|tried| tried.found)) {
            (Routed::Own | Routed::Here, _) => Some("lo".to_owned()),
            _ if self.packet.has_interface => None,
            (_, Some(Found::Route(route))) => route.interface.clone(),
            (_, Some(Found::Rejected(_) | Found::Unknown) | None) => None,
        };
        interface.unwrap_or_else(|| self.packet.interface.clone())
    }

    /// A reply gets the address back that the connection was for, in `POSTROUTING`.
    pub(super) fn untranslated(&mut self) {
        let Some(connection) = self.connection.filter(|connection| connection.is_reply) else { return };
        if connection.reply.0 == self.at.source {
            self.at.source = connection.original.1;
        }
    }

    /// Whether TPROXY finds the socket of a later packet's connection: it looks for it by the packet's own
    /// destination.
    fn finds_its_connection(&self) -> bool {
        let is_translated = |connection: Connection| connection.original.1 != connection.reply.0;
        self.packet.state == ConnectionState::Established && !self.connection.is_some_and(is_translated)
    }

    /// Whether a later packet has the mark that belongs to the proxy's connections.
    fn is_for_proxy(&self) -> bool {
        self.packet.state != ConnectionState::New && self.routing.mark() == Some(self.at.mark)
    }
}

/// What becomes of a packet that no rule takes.
const fn ended(packet: &Packet) -> Verdict {
    match packet.state {
        ConnectionState::Established => Verdict::LikeItsConnection,
        ConnectionState::New | ConnectionState::Invalid => Verdict::NotCaptured,
    }
}
