//! Whether rules of other programs change what becomes of captured connections.
//!
//! The rules that differ are those of nat, which sees the first packet of a connection only. One of the proxy
//! always matters: its endpoints have other addresses and ports than the services that the app calls. One of
//! an app or a client matters if it would be captured; so may a packet of UDP that comes from a server, which
//! has no state where the query went through another zone.

use std::net::IpAddr;

use super::difference::differing_classes;
use super::field::{
    Class, FORWARDED, FROM_OUTSIDE, Field, INSIDE, MAX_U32, NEW, TO_OUTSIDE, UDP, address_number, addresses,
    loopback_addresses, packets,
};
use super::program::{Action, Program, Test};
use super::run::{Verdict, run};
use super::set::Set;
use super::walker::{TooManyClasses, Walker, joined};
use crate::model::Family;

/// Whether the second rule set treats, or may treat, a packet of a captured connection otherwise than the
/// first one, which captures it; only packets that pass the tests `met` are treated otherwise. `own` are the
/// addresses of the pod; none if they are not known.
pub(super) fn changes_capture(
    family: Family,
    [without, with]: [&Program; 2],
    met: &[Test],
    own: &[IpAddr],
) -> Result<bool, TooManyClasses> {
    let own = own.iter().filter(|own| own.is_ipv4() == (family == Family::V4));
    let own: Vec<_> = own.map(|own| (address_number(*own), address_number(*own))).collect();
    let own = if own.is_empty() { addresses(family) } else { Set::of(own).or(&loopback_addresses(family)) };
    if without.unwalked != with.unwalked || without.has_open_order {
        return Ok(true);
    }
    let proxy = proxy_ports(without);
    let [uids, gids] = [Field::Uid, Field::Gid].map(|field| tested_owners(without, field));
    let met: Vec<Test> = met.iter().cloned().chain([Test::new(Field::State, Set::one(NEW), false)]).collect();
    let (differing, _) = differing_classes(family, [without, with], &met)?;
    let routed = without.routed();
    let every = packets(family, [&routed, &routed]);
    let mut first = Vec::new();
    for class in differing.into_iter().flat_map(|(class, _)| by_place(&class, &own)) {
        let has = |field: Field, values: &Set| !class.get(field).and(values).is_empty();
        let is_sent = has(Field::Path, &Set::range(INSIDE, TO_OUTSIDE));
        let may_be_of_proxy = is_sent && (has(Field::Uid, &uids) || has(Field::Gid, &gids));
        if may_be_of_proxy || has(Field::DestinationPort, &proxy) {
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

/// The users or groups that rules of ours test: those of the proxy, and others that are not captured.
fn tested_owners(program: &Program, field: Field) -> Set {
    let ours = program.chains.iter().flat_map(|chain| &chain.rules);
    let ours = ours.filter(|rule| rule.parts.iter().any(|part| part.why.is_some()));
    let tests = ours.flat_map(|rule| &rule.tests).filter(|test| test.field == field);
    // Negated or not, the one of the two sets is small.
    let few =
        |test: &Test| if test.values.ranges().len() <= 1 { test.values.clone() } else { test.others.clone() };
    let all = tests.map(few).fold(Set::none(), |all, some| all.or(&some));
    all.and(&Set::range(0, MAX_U32))
}

/// The first packets, of `every` one that there can be, of connections to which packets of the class may
/// belong.
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

/// First packets of connections to which a packet of the class may belong: it goes to the server, or comes
/// from it.
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
    let opening = |paths: Set, server: Field, port: Field, class: &Class| {
        let mut opening = class.clone();
        *opening.get_mut(Field::Path) = paths;
        *opening.get_mut(Field::State) = Set::one(NEW);
        *opening.get_mut(Field::Destination) = class.get(server).clone();
        *opening.get_mut(Field::DestinationPort) = class.get(port).clone();
        opening
    };
    let responses = class.clone().with(Field::Protocol, &Set::one(UDP));
    [
        opening(to_server, Field::Destination, Field::DestinationPort, class),
        opening(from_server, Field::Source, Field::SourcePort, &responses),
    ]
}
