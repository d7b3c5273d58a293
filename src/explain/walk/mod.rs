//! A packet's way through the rules, in the order of the kernel's hooks.
//!
//! `OUTPUT` (packets of the pod's processes), then, for what stays in the pod, once more over `lo` through `PREROUTING`;
//! packets from outside begin with `PREROUTING`. At each hook the tables follow each other: raw, connection tracking,
//! mangle, nat.

mod beside;
mod chain;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::decisive::decisive;
use super::foreign_rule::Effect;
use super::matching::AtHook;
use super::packet::Packet;
use super::routing::{Looked, Routed, Routing};
use super::rules::{Chains, Entry, INPUT, Rules};
use crate::config::ConnectionState;
use crate::model::{Hook, Port, Table};

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to this port of the proxy.
    Captured(Port),
    /// It is thrown away.
    Dropped,
    /// It goes where the first packet of its connection went.
    LikeItsConnection,
    /// Policy routing sends it to the pod, where nothing expects it, or away from the proxy.
    Misrouted,
    /// No policy rule leads to a route for it.
    NoRoute,
    /// It goes where it was sent.
    NotCaptured,
    /// A foreign rule decides where it goes.
    TakenByForeignRule,
    /// Its mark routes it to the socket of the proxy that has its connection.
    ToProxySocket,
}

/// Whether a rule is for the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// It is.
    Matches,
    /// It may be: these words of a foreign rule cannot be evaluated.
    Maybe(String),
    /// It is not, and why.
    Mismatch(String),
}

/// One rule that was tried.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    /// At this hook.
    pub hook: &'static str,
    /// In this table.
    pub table: &'a str,
    /// In this chain.
    pub chain: &'a str,
    /// The rule.
    pub rule: &'a Entry,
    /// Whether it is for the packet.
    pub matches: Match,
    /// Its effect; `None` if it is not for the packet.
    pub(super) effect: Option<Effect>,
}

/// The rules that a packet meets, and what becomes of it.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    /// Every rule that was tried, in order.
    pub steps: Vec<Step<'a>>,
    /// The outcome, if no rule matches of which that is not known.
    pub verdict: Verdict,
    /// The number of the step that decides; `None` if there is none.
    pub decided_by: Option<usize>,
    /// Steps with rules that may decide something else.
    pub uncertain: Vec<usize>,
    /// Where it was routed, each time.
    pub routed: Vec<Looked<'a>>,
    /// The reason for the verdict, if it is no rule that was tried.
    pub because: Option<String>,
}

impl<'a> Walk<'a> {
    /// The step that decides.
    #[must_use]
    pub fn decisive(&self) -> Option<&Step<'a>> {
        self.steps.get(self.decided_by?)
    }
}

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
}

/// Follows `packet` through the rules of its family.
#[must_use]
pub fn walk<'a>(rules: &'a Rules, packet: &Packet, routing: Routing<'a>) -> Walk<'a> {
    let at = AtHook {
        process: packet.process,
        transport: packet.transport,
        source: packet.source,
        destination: packet.destination,
        in_interface: packet.is_inbound.then(|| packet.interface.clone()),
        out_interface: (!packet.is_inbound).then(|| packet.interface.clone()),
        mark: packet.mark,
        connmark: packet.connmark,
        state: packet.state,
        is_tracked: true,
    };
    let is_translated = packet.state != ConnectionState::New;
    let (steps, uncertain) = (Vec::new(), Vec::new());
    let mut walker = Walker {
        rules,
        at,
        packet,
        routing,
        steps,
        uncertain,
        is_translated,
        is_early: true,
        is_seen: false,
        has_known_marks: true,
        routed: Vec::new(),
        later: None,
        because: None,
    };
    let verdict = walker.verdict(packet);
    let Walker { steps, uncertain, routed, later, because, .. } = walker;
    let is_decided = later.is_some() || because.is_some();
    let decided_by = if is_decided { later } else { decisive(&steps, packet, verdict, routing.mark()) };
    Walk { steps, verdict, decided_by, uncertain, routed, because }
}

struct Walker<'a, 'b> {
    rules: &'a Rules,
    packet: &'b Packet,
    routing: Routing<'a>,
    at: AtHook,
    steps: Vec<Step<'a>>,
    uncertain: Vec<usize>,
    /// Whether nat has decided: it sees the first packet of a connection, once.
    is_translated: bool,
    /// Whether connection tracking sees the packet behind the rules that are tried.
    is_early: bool,
    /// Whether it has seen it: it keeps its connection over `lo`.
    is_seen: bool,
    /// Whether the marks are known: a foreign rule may have set others.
    has_known_marks: bool,
    routed: Vec<Looked<'a>>,
    /// The step in a chain before or behind ours that decides.
    later: Option<usize>,
    because: Option<String>,
}

/// Where in a table the walk is.
#[derive(Clone, Copy)]
struct Place<'a> {
    hook: &'static str,
    table: &'a str,
    chains: &'a Chains,
    chain: &'a str,
    depth: usize,
}

impl<'a> Walker<'a, '_> {
    fn verdict(&mut self, packet: &Packet) -> Verdict {
        let mut captured = None;
        let mut routed = None;
        if !packet.is_inbound {
            // The first look-up is before any rule.
            match self.route(true) {
                Routed::Rejected => return Verdict::Dropped,
                Routed::Nowhere => return self.no_route(),
                Routed::Own | Routed::Here | Routed::Away => {}
            }
            match self.hook(Hook::Output) {
                Flow::Drop => return Verdict::Dropped,
                Flow::Taken => return Verdict::TakenByForeignRule,
                Flow::Redirect(port) => captured = Some(port),
                Flow::Continue | Flow::Return | Flow::Accept | Flow::Tproxy(_) => {}
            }
            if let Some(verdict) = self.later(Hook::Output.name()) {
                return verdict;
            }
            let found = self.route(false);
            match found {
                Routed::Rejected => return Verdict::Dropped,
                Routed::Away | Routed::Nowhere if captured.is_some() || self.is_for_proxy() => {
                    return self.misrouted();
                }
                Routed::Away => return ended(packet),
                Routed::Nowhere => return self.no_route(),
                Routed::Own | Routed::Here => routed = Some(found),
            }
            // The kernel removes the owner with the socket when the packet passes `lo`.
            (self.at.process, self.at.out_interface) = (None, None);
            self.at.in_interface = Some("lo".to_owned());
        }
        match self.hook(Hook::Prerouting) {
            Flow::Drop => return Verdict::Dropped,
            Flow::Taken => return Verdict::TakenByForeignRule,
            Flow::Redirect(port) => (captured, routed) = (Some(port), None),
            Flow::Tproxy(port) => captured = Some(port),
            Flow::Continue | Flow::Return | Flow::Accept => {}
        }
        if let Some(verdict) = self.later(Hook::Prerouting.name()) {
            return verdict;
        }
        // What comes over `lo` has its route already, unless its destination is another by now.
        let routed = routed.unwrap_or_else(|| self.route(false));
        let verdict = match (captured, routed) {
            (_, Routed::Rejected) => return Verdict::Dropped,
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
        self.later(INPUT).unwrap_or(verdict)
    }

    /// Whether a later packet has the mark that belongs to the proxy's connections.
    fn is_for_proxy(&self) -> bool {
        self.packet.state != ConnectionState::New && self.routing.mark() == Some(self.at.mark)
    }

    /// The proxy does not get the packet although a rule sends it there.
    fn misrouted(&mut self) -> Verdict {
        let decisive = self.routed.last().and_then(Looked::words);
        let decisive = decisive.unwrap_or_else(|| "no policy rule leads to a route for it".to_owned());
        self.because = Some(format!("policy routing does not bring it to the proxy: {decisive}"));
        Verdict::Misrouted
    }

    /// The kernel refuses to send the packet, or throws it away when it has arrived.
    fn no_route(&mut self) -> Verdict {
        let destination = self.at.destination.ip();
        let failure = if self.packet.is_inbound { "" } else { ": sending it fails (ENETUNREACH)" };
        self.because = Some(format!("no policy rule leads to a route to {destination}{failure}"));
        Verdict::NoRoute
    }

    /// Where the packet goes as it is now: before the rules, or behind them.
    fn route(&mut self, is_first: bool) -> Routed {
        let in_interface = if self.packet.is_inbound { self.at.in_interface.as_deref() } else { Some("lo") };
        let mark = self.has_known_marks.then_some(self.at.mark);
        let is_changed = (self.at.mark, self.at.destination) != (self.packet.mark, self.packet.destination);
        let is_anew = !self.packet.is_inbound && is_changed;
        let looked = self.routing.look(&self.at, mark, in_interface.unwrap_or_default(), is_anew);
        let Some(looked) = looked else { return self.routing.routed_by_options(self.packet, &self.at) };
        let routed = looked.routed();
        if routed == Routed::Rejected {
            self.because = looked.words().map(|words| format!("policy routing drops it: {words}"));
        }
        // The same question has the same answer.
        if is_first || is_changed || self.packet.is_inbound {
            self.routed.push(looked);
        }
        routed
    }

    /// All tables at one hook.
    fn hook(&mut self, hook: Hook) -> Flow {
        if let Some(flow) = self.before(hook) {
            return flow;
        }
        let mut outcome = Flow::Continue;
        for table in Table::ALL {
            if table == Table::Nat && std::mem::replace(&mut self.is_translated, true) {
                continue;
            }
            self.is_early = table == Table::Raw && !self.is_seen;
            let Some(chains) = self.rules.tables.get(&table) else { continue };
            let place =
                Place { hook: hook.name(), table: table.name(), chains, chain: hook.name(), depth: 0 };
            let rules = chains.hooks.get(&hook).map_or(&[][..], Vec::as_slice);
            let flow = self.rules(place, rules);
            let is_dropped = matches!(flow, Flow::Continue | Flow::Return) && chains.drops.contains(&hook);
            match flow {
                Flow::Drop | Flow::Taken => return flow,
                _ if is_dropped => {
                    self.because = Some(dropped_by_policy(table.name(), hook.name()));
                    return Flow::Drop;
                }
                // What has its socket by TPROXY stays there, whatever nat does.
                Flow::Redirect(_) if matches!(outcome, Flow::Tproxy(_)) => {}
                Flow::Redirect(port) => {
                    self.redirected(port);
                    outcome = flow;
                }
                Flow::Tproxy(_) => outcome = flow,
                Flow::Continue | Flow::Return | Flow::Accept => {}
            }
        }
        (self.is_early, self.is_seen) = (false, true);
        outcome
    }

    /// `REDIRECT` sends what a process sends to the loopback address.
    fn redirected(&mut self, port: Port) {
        let v4 = self.at.destination.is_ipv4();
        let loopback: IpAddr = if v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        self.at.destination = (loopback, port.number()).into();
    }
}

fn dropped_by_policy(table: &str, chain: &str) -> String {
    format!("the policy of {table} {chain} drops it")
}

/// What becomes of a packet that no rule takes.
const fn ended(packet: &Packet) -> Verdict {
    match packet.state {
        ConnectionState::Established => Verdict::LikeItsConnection,
        ConnectionState::New | ConnectionState::Invalid => Verdict::NotCaptured,
    }
}
