//! The forms of rules: each of these recognises one, and reads from it what options say.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network};

use crate::model::{
    Chain, CtState, Family, Interface, Match, Matcher, Owner, Port, Ports, Protocol, Statement, Target,
    Transport,
};

/// The ports to which a call of the proxy is its own business.
pub(super) fn not_to(call: &Statement) -> Option<&Ports> {
    match call.matcher.protocol.as_ref()?.destination.as_ref()? {
        Match::Not(ports) => Some(ports),
        Match::Is(_) => None,
    }
}

/// The range that a call of the proxy is not for.
pub(super) fn loopback(call: &Statement) -> Option<Ipv4Network> {
    if let Some(Match::Not(IpNetwork::V4(range))) = call.matcher.destination { Some(range) } else { None }
}

/// Native nftables tests the owner in a rule before.
pub(super) fn is_app_loopback(Statement { matcher, target }: &Statement) -> bool {
    *target == Target::Return
        && matcher.out_interface.is_some()
        && matcher.source.is_none()
        && matcher.destination.is_none()
        && matches!(matcher.owners.as_slice(), [] | [Match::Not(_)])
}

/// Whether it drops what connection tracking calls invalid.
pub(super) fn is_invalid(Statement { matcher, target }: &Statement) -> Option<()> {
    (*target == Target::Jump(Chain::Drop) && matcher.ct_state == Some(CtState::Invalid)).then_some(())
}

/// The TCP port of a rule that tests nothing else.
pub(super) fn port(Statement { matcher, target }: &Statement, wanted: Target) -> Option<Port> {
    let port = destination_port(matcher).filter(|_| *target == wanted)?;
    let alone = Matcher { protocol: Some(Protocol::to(Transport::Tcp, port)), ..Matcher::default() };
    (*matcher == alone).then_some(port)
}

/// The port that the matcher tests, if it is one.
pub(super) fn destination_port(matcher: &Matcher) -> Option<Port> {
    match matcher.protocol.as_ref()?.destination.as_ref()? {
        Match::Is(Ports::One(port)) => Some(*port),
        Match::Is(Ports::Any(_)) | Match::Not(_) => None,
    }
}

/// The owners of a rule that tests nothing else, at least one.
pub(super) fn owners_alone(
    Statement { matcher, target }: &Statement,
    wanted: Target,
) -> Option<&[Match<Owner>]> {
    if *target != wanted || matcher.owners.is_empty() {
        return None;
    }
    let alone = Matcher { owners: matcher.owners.clone(), ..Matcher::default() };
    (*matcher == alone).then_some(&matcher.owners)
}

/// The destinations of a rule that tests nothing else; a rule that tests nothing at all is for every address.
pub(super) fn ranges(
    Statement { matcher, target }: &Statement,
    wanted: Target,
    family: Family,
) -> Vec<IpNetwork> {
    if *target != wanted || *matcher != (Matcher { destination: matcher.destination, ..Matcher::default() }) {
        return Vec::new();
    }
    match matcher.destination {
        None => networks(family, 0),
        // A rule for one range of all addresses has no test: native nftables merged the ranges of several.
        Some(Match::Is(range)) if range.prefix() == 0 => networks(family, 1),
        Some(Match::Is(range)) => vec![range],
        Some(Match::Not(_)) => Vec::new(),
    }
}

/// All addresses, as networks with this prefix length: 0 or 1.
fn networks(family: Family, prefix: u8) -> Vec<IpNetwork> {
    let (first, middle) = match family {
        Family::V4 => (Ipv4Addr::UNSPECIFIED.into(), IpAddr::V4(Ipv4Addr::new(128, 0, 0, 0))),
        Family::V6 => (Ipv6Addr::UNSPECIFIED.into(), IpAddr::V6(Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0))),
    };
    let halves = [first, middle].into_iter().take(1 << prefix);
    halves.filter_map(|address| IpNetwork::new(address, prefix).ok()).collect()
}

/// The interface of a rule that lets everything in, or out, by it.
pub(super) fn interface(Statement { matcher, target }: &Statement, is_in: bool) -> Option<Interface> {
    let interface = if is_in { &matcher.in_interface } else { &matcher.out_interface }.as_ref()?;
    let other = if is_in { &matcher.out_interface } else { &matcher.in_interface };
    let alone = Matcher {
        in_interface: matcher.in_interface.clone(),
        out_interface: matcher.out_interface.clone(),
        ..Matcher::default()
    };
    (*target == Target::Return && *matcher == alone && other.is_none()).then(|| interface.clone())
}
