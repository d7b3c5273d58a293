//! Whether rules of other programs change what becomes of captured connections.
//!
//! A packet that is treated differently matters if it may belong to a captured connection: the first packet of its connection, with the
//! same server, would be captured. The connection that the proxy makes for a captured one has the same server, too.

use super::difference::differing_classes;
use std::net::IpAddr;

use super::field::{
    Class, FORWARDED, FROM_OUTSIDE, Field, INSIDE, NEW, TO_OUTSIDE, address_number, addresses,
    loopback_addresses, packets,
};
use super::program::{Action, Program};
use super::run::{Verdict, run};
use super::set::Set;
use super::walker::{TooManyClasses, Walker, joined};
use crate::model::Family;

/// Whether the second rule set treats, or may treat, a packet of a captured connection otherwise than the first one, which captures it.
/// `own` are the addresses of the pod; none if they are not known.
pub(super) fn changes_capture(
    family: Family,
    [without, with]: [&Program; 2],
    own: &[IpAddr],
) -> Result<bool, TooManyClasses> {
    let own = own.iter().filter(|own| own.is_ipv4() == (family == Family::V4));
    let own: Vec<_> = own.map(|own| (address_number(*own), address_number(*own))).collect();
    let own = if own.is_empty() { addresses(family) } else { Set::of(own).or(&loopback_addresses(family)) };
    if without.unwalked != with.unwalked || without.has_open_order {
        return Ok(true);
    }
    let proxy = proxy_ports(without);
    let (differing, _) = differing_classes(family, [without, with])?;
    let routed = without.routed();
    let every = packets(family, [&routed, &routed]);
    let mut first = Vec::new();
    for class in differing.into_iter().flat_map(|(class, _)| by_place(&class, &own)) {
        let is_of_proxy = |server: Field, client: Field| {
            !class.get(server).and(&proxy).is_empty() && !class.get(client).and(&client_ports()).is_empty()
        };
        if is_of_proxy(Field::SourcePort, Field::DestinationPort)
            || is_of_proxy(Field::DestinationPort, Field::SourcePort)
        {
            return Ok(true);
        }
        first.extend(first_packets(&class, &every, &own));
    }
    // Classes that differ in the state or the owner of their packets have the same first packets.
    first.sort_unstable();
    first.dedup();
    let walkers = joined(first.into_iter().map(|class| Walker::new(class, 0)).collect())?;
    let is_captured = |verdict: &Verdict| match verdict {
        Verdict::ToPort(_) | Verdict::ToProxySocket => true,
        Verdict::Dropped | Verdict::TakenByForeignRule(_) | Verdict::Unchanged => false,
    };
    Ok(run(family, without, walkers)?.iter().any(|(_, outcome)| is_captured(&outcome.verdict)))
}

/// The ports to which rules hand packets.
fn proxy_ports(program: &Program) -> Set {
    let actions = program.chains.iter().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.actions);
    let port = |action: &Action| match action {
        Action::Redirect(port) | Action::Tproxy(port) => Some(u128::from(*port)),
        Action::Accept
        | Action::Copy(..)
        | Action::Drop
        | Action::Goto(_)
        | Action::Jump(_)
        | Action::Obscure(_)
        | Action::Return
        | Action::Set(..)
        | Action::Take(_)
        | Action::Untrack
        | Action::Zone(_) => None,
    };
    Set::of(actions.filter_map(port).map(|port| (port, port)).collect())
}

/// The first packets, of `every` one that there can be, of connections to which packets of the class may belong.
fn first_packets(class: &Class, every: &[Class], own: &Set) -> Vec<Class> {
    let fields = [
        Field::Path,
        Field::Protocol,
        Field::Destination,
        Field::SourcePort,
        Field::DestinationPort,
        Field::State,
    ];
    let openings = openings(class).into_iter().flat_map(|opening| by_place(&opening, own));
    let first = openings.flat_map(|opening| {
        let within = |packets: &Class| {
            fields.iter().fold(packets.clone(), |packets, field| packets.with(*field, opening.get(*field)))
        };
        every.iter().map(within).collect::<Vec<_>>()
    });
    first.filter(|class| !class.is_empty()).collect()
}

/// The packets for addresses of the pod, and those for others, each if there are some.
fn by_place(class: &Class, own: &Set) -> Vec<Class> {
    let here = Set::one(FROM_OUTSIDE).or(&Set::one(INSIDE));
    let parts = [
        class.clone().with(Field::Path, &here).with(Field::Destination, own),
        class.clone().with(Field::Path, &here.complement()),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

/// First packets of connections to which a packet of the class may belong: it goes to the server, or comes from it.
fn openings(class: &Class) -> [Class; 2] {
    let paths = |of: fn(u128) -> &'static [u128]| {
        let all = [FROM_OUTSIDE, FORWARDED, INSIDE, TO_OUTSIDE].into_iter();
        let some = all.filter(|path| class.get(Field::Path).contains(*path)).flat_map(of);
        Set::of(some.map(|path| (*path, *path)).collect())
    };
    // What stays in the pod may be the proxy's, to the app.
    let to_server = paths(|path| match path {
        FROM_OUTSIDE => &[FROM_OUTSIDE],
        FORWARDED => &[FORWARDED],
        INSIDE => &[INSIDE, FROM_OUTSIDE],
        _ => &[TO_OUTSIDE],
    });
    let from_server = paths(|path| match path {
        FROM_OUTSIDE => &[TO_OUTSIDE],
        FORWARDED => &[FORWARDED],
        INSIDE => &[INSIDE, FROM_OUTSIDE, TO_OUTSIDE],
        _ => &[FROM_OUTSIDE],
    });
    let opening = |paths: Set, server: Field, [port, client]: [Field; 2]| {
        let mut opening = class.clone();
        *opening.get_mut(Field::Path) = paths;
        *opening.get_mut(Field::State) = Set::one(NEW);
        *opening.get_mut(Field::Destination) = class.get(server).clone();
        *opening.get_mut(Field::DestinationPort) = class.get(port).clone();
        // Without a client's port, no packet is one of such a connection.
        *opening.get_mut(Field::SourcePort) = class.get(client).and(&client_ports());
        opening
    };
    let (source, destination) = (Field::SourcePort, Field::DestinationPort);
    [
        opening(to_server, Field::Destination, [destination, source]),
        opening(from_server, Field::Source, [source, destination]),
    ]
}

/// The ports that Linux gives clients by default (`net.ipv4.ip_local_port_range`), and those that others give: a server has a lower one.
fn client_ports() -> Set {
    Set::range(32768, 65535)
}
