//! Where the kernel sends a packet: policy rules, and the routes of the tables that they name.

use std::cmp::Reverse;
use std::net::IpAddr;

use crate::model::{Fib, FibRoute, IdRange, LOCAL_TABLE, PolicyAction, PolicyRule, RouteKind};

/// A packet as policy rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// From.
    pub source: IpAddr,
    /// To.
    pub destination: IpAddr,
    /// The mark of the packet, if that is known.
    pub mark: Option<u32>,
    /// The uid of its socket; 0 for a packet that the kernel sends. `None` for an inbound packet and for a
    /// re-routed one, where the kernel's value depends on the family.
    pub uid: Option<u32>,
    /// The interface that it arrives on; `lo` for what a local process sends.
    pub in_interface: &'a str,
    /// Protocol number.
    pub protocol: u8,
    /// Source and destination port; `None` if this lookup ignores them, as some kernels do for re-routed
    /// packets.
    pub ports: Option<(u16, u16)>,
}

/// Whether a rule is for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applies {
    /// The rule is for the packet.
    Yes,
    /// The rule is not for the packet.
    No,
    /// The rule has a test that cannot be evaluated, and the others hold.
    Maybe,
}

/// What a rule leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// To this route.
    Route(&'a FibRoute),
    /// To nothing: the packet is thrown away.
    Rejected(RouteKind),
    /// To something that is not known.
    Unknown,
}

impl Found<'_> {
    /// What happens to the packet.
    #[must_use]
    pub const fn kind(&self) -> Option<RouteKind> {
        match self {
            Self::Route(route) => Some(route.kind),
            Self::Rejected(kind) => Some(*kind),
            Self::Unknown => None,
        }
    }
}

/// A rule that was tried and would end the lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried<'a> {
    /// The rule.
    pub rule: &'a PolicyRule,
    /// What it leads to.
    pub found: Found<'a>,
}

/// The outcome of a lookup.
#[derive(Clone, Debug, Default)]
pub struct Lookup<'a> {
    /// The rule that decides; `None` if there is no route.
    pub decisive: Option<Tried<'a>>,
    /// Rules before it that may decide otherwise.
    pub uncertain: Vec<Tried<'a>>,
}

impl Lookup<'_> {
    /// What happens to the packet; `None` if it has no route, or that is not known.
    #[must_use]
    pub fn kind(&self) -> Option<RouteKind> {
        self.decisive.as_ref()?.found.kind()
    }

    /// Whether the packet is for this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.kind() == Some(RouteKind::Local)
    }

    /// Whether it is, as packets to the machine's own addresses are: by the table that the kernel fills
    /// itself.
    #[must_use]
    pub fn is_own_address(&self) -> bool {
        let Some(Tried { found: Found::Route(route), .. }) = self.decisive else { return false };
        route.kind == RouteKind::Local && route.table == LOCAL_TABLE
    }
}

/// Looks up a packet.
#[must_use]
pub fn lookup<'a>(fib: &'a Fib, flow: &Flow<'_>) -> Lookup<'a> {
    let mut outcome = Lookup::default();
    let mut at = 0;
    while let Some(rule) = fib.rules.get(at) {
        at += 1;
        let applies = applies(rule, flow);
        if applies == Applies::No {
            continue;
        }
        let is_certain = applies == Applies::Yes;
        let found = match rule.action {
            PolicyAction::Nop => None,
            PolicyAction::Goto(priority) => {
                // Without such a rule it is none, and behind it only: the kernel takes no others.
                let target = fib.rules.iter().position(|rule| rule.priority == priority);
                match target.filter(|target| *target >= at) {
                    Some(target) if is_certain => {
                        at = target;
                        None
                    }
                    target => target.map(|_| Found::Unknown),
                }
            }
            PolicyAction::Reject(kind) => Some(Found::Rejected(kind)),
            // Which interfaces belong to one is not known.
            PolicyAction::Vrf | PolicyAction::Unknown(_) => Some(Found::Unknown),
            PolicyAction::Table(table) => {
                let count = |route: &&FibRoute| is_counted(rule, route);
                // One for some packets only may be the best.
                let special = best(fib, table, flow.destination, true).filter(count);
                outcome.uncertain.extend(special.map(|route| Tried { rule, found: Found::Route(route) }));
                best(fib, table, flow.destination, false).filter(count).map(Found::Route)
            }
        };
        let Some(found) = found else { continue };
        if is_certain && found != Found::Unknown {
            outcome.decisive = Some(Tried { rule, found });
            break;
        }
        outcome.uncertain.push(Tried { rule, found });
    }
    let kind = outcome.kind();
    outcome.uncertain.retain(|tried| tried.found.kind().is_none_or(|found| Some(found) != kind));
    outcome
}

/// The route of a table for a destination: among those for all packets, or with those for some packets only
/// if one of these would be taken.
fn best(fib: &Fib, table: u32, destination: IpAddr, is_special: bool) -> Option<&FibRoute> {
    let leads = |route: &&FibRoute| {
        route.table == table
            && !route.is_dead
            && route.destination.is_none_or(|range| range.contains(destination))
            && (is_special || !route.has_other_tests)
    };
    // Of equal ones the last is taken: they are in reverse.
    let routes = fib.routes.iter().rev().filter(leads);
    let best = routes.max_by_key(|route| (route.prefix(), Reverse(route.metric)));
    best.filter(|route| route.has_other_tests == is_special)
}

/// Whether a route that a rule leads to ends the lookup.
fn is_counted(rule: &PolicyRule, route: &FibRoute) -> bool {
    let is_suppressed = rule.suppress_prefix.is_some_and(|length| u32::from(route.prefix()) <= length);
    route.kind != RouteKind::Throw && (!is_suppressed || route.kind.is_rejecting())
}

/// Whether a rule is for a packet.
fn applies(rule: &PolicyRule, flow: &Flow<'_>) -> Applies {
    let PolicyRule {
        priority: _,
        is_negated,
        source,
        destination,
        in_interface,
        out_interface,
        mark,
        uids,
        protocol,
        source_ports,
        destination_ports,
        has_other_tests,
        suppress_prefix: _,
        action: _,
        origin: _,
    } = rule;
    let is_of_ports = protocol.is_some() || source_ports.is_some() || destination_ports.is_some();
    let (mut holds, mut is_unknown) = (true, *has_other_tests);
    holds &= source.is_none_or(|range| range.contains(flow.source));
    holds &= destination.is_none_or(|range| range.contains(flow.destination));
    holds &= in_interface.as_ref().is_none_or(|name| name == flow.in_interface);
    // Sockets that are bound to an interface are not modelled.
    holds &= out_interface.is_none();
    match (mark, flow.mark) {
        (Some((expected, mask)), Some(mark)) => holds &= (expected ^ mark) & mask == 0,
        (Some(_), None) => is_unknown = true,
        (None, _) => {}
    }
    holds &= protocol.is_none_or(|expected| expected == flow.protocol);
    match (uids, flow.uid) {
        (Some(range), Some(uid)) => holds &= covers(*range, uid),
        (Some(_), None) => is_unknown = true,
        (None, _) => {}
    }
    match flow.ports {
        Some((from, to)) => {
            holds &= source_ports.is_none_or(|range| covers(range, from));
            holds &= destination_ports.is_none_or(|range| covers(range, to));
        }
        None => is_unknown |= is_of_ports,
    }
    match (holds, is_unknown) {
        (true, true) => Applies::Maybe,
        (holds, _) if holds != *is_negated => Applies::Yes,
        _ => Applies::No,
    }
}

fn covers<T: PartialOrd + Copy>((first, last): IdRange<T>, found: T) -> bool {
    (first..=last).contains(&found)
}

#[cfg(test)]
mod tests;
