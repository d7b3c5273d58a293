//! The fields of a packet, and classes of packets: a set of values for each field.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::set::Set;
use crate::live_rules as matches;
use crate::model::Family;

/// A field of a packet, as rules test it. Each value is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Field {
    /// One of the constants `FROM_OUTSIDE` to `TO_OUTSIDE`.
    Path,
    /// The name of the interface as 16 bytes; 0 for none.
    InInterface,
    OutInterface,
    Protocol,
    Source,
    Destination,
    SourcePort,
    DestinationPort,
    /// `NO_SOCKET` without a socket, then of `Gid` too.
    Uid,
    Gid,
    Mark,
    Connmark,
    /// One of the constants `NEW` to `UNTRACKED`.
    State,
    /// 1 for a TCP segment that opens a connection.
    Syn,
}

impl Field {
    pub(super) const ALL: [Self; 14] = [
        Self::Path,
        Self::InInterface,
        Self::OutInterface,
        Self::Protocol,
        Self::Source,
        Self::Destination,
        Self::SourcePort,
        Self::DestinationPort,
        Self::Uid,
        Self::Gid,
        Self::Mark,
        Self::Connmark,
        Self::State,
        Self::Syn,
    ];
}

/// From another host to an address of the pod.
pub(super) const FROM_OUTSIDE: u128 = 0;
/// From another host to a third one: forwarded.
pub(super) const FORWARDED: u128 = 1;
/// From the pod to an address of the pod.
pub(super) const INSIDE: u128 = 2;
/// From the pod to another host.
pub(super) const TO_OUTSIDE: u128 = 3;

/// `UNTRACKED` is never the initial state of a packet: `NOTRACK` sets it.
pub(super) use matches::{ESTABLISHED, INVALID, NEW, NO_SOCKET, UNTRACKED, address_number, name_number};

pub(super) const TCP: u128 = 6;
pub(super) const UDP: u128 = 17;

/// The largest value of a mark, and beyond that of any uid or gid.
pub(super) const MAX_U32: u128 = 0xffff_ffff;

/// The interface `lo`.
pub(super) fn loopback_interface() -> u128 {
    name_number(b"lo")
}

/// The interface's name, if the number is one that an interface may have.
pub(super) fn name_of(number: u128) -> Option<String> {
    let bytes = number.to_be_bytes();
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let (name, rest) = bytes.split_at(end);
    let is_valid = !name.is_empty()
        && rest.iter().all(|byte| *byte == 0)
        && name.iter().all(|byte| byte.is_ascii_graphic() && !b"/:".contains(byte));
    is_valid.then(|| String::from_utf8_lossy(name).into_owned())
}

pub(super) fn address_of(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
        Family::V6 => Ipv6Addr::from(number).into(),
    }
}

/// Every address of a family.
pub(super) fn addresses(family: Family) -> Set {
    match family {
        Family::V4 => Set::range(0, MAX_U32),
        Family::V6 => Set::all(),
    }
}

/// The addresses that are the machine's own, whatever its interfaces have.
pub(super) fn loopback_addresses(family: Family) -> Set {
    match family {
        Family::V4 => Set::range(0x7f00_0000, 0x7fff_ffff),
        Family::V6 => Set::one(1),
    }
}

/// A set for each field: the packets whose fields have values in these sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class([Set; Field::ALL.len()]);

impl Class {
    /// Every value of every field.
    pub(super) fn every(family: Family) -> Self {
        Self(Field::ALL.map(|field| match field {
            Field::Path => Set::range(FROM_OUTSIDE, TO_OUTSIDE),
            Field::InInterface | Field::OutInterface => Set::all(),
            Field::Protocol => Set::range(0, 255),
            Field::Source | Field::Destination => addresses(family),
            Field::SourcePort | Field::DestinationPort => Set::range(0, 0xffff),
            // The last 32-bit number is not an id.
            Field::Uid | Field::Gid => Set::range(0, MAX_U32 - 1),
            Field::Mark | Field::Connmark => Set::range(0, MAX_U32),
            Field::State => Set::range(NEW, INVALID),
            Field::Syn => Set::range(0, 1),
        }))
    }

    #[allow(clippy::indexing_slicing, reason = "one place for each field")]
    pub(super) fn get(&self, field: Field) -> &Set {
        &self.0[field as usize]
    }

    #[allow(clippy::indexing_slicing, reason = "one place for each field")]
    pub(super) fn get_mut(&mut self, field: Field) -> &mut Set {
        &mut self.0[field as usize]
    }

    /// The packets of which a field has one of these values.
    #[must_use]
    pub(super) fn with(mut self, field: Field, values: &Set) -> Self {
        let some = self.get(field).and(values);
        *self.get_mut(field) = some;
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().any(Set::is_empty)
    }
}

/// Every packet of a family that can be, in a few classes. `routed_marks` are those that policy routing of
/// each side sends to `lo`.
pub(super) fn packets(family: Family, routed_marks: [&Set; 2]) -> Vec<Class> {
    let [first, second] = routed_marks;
    let (routed, otherwise) = (first.or(second), first.and(second).complement());
    // A socket that connects to the unspecified address gets a loopback one.
    let every = Class::every(family).with(Field::Destination, &Set::one(0).complement());
    let (nowhere, lo) = (Set::one(0), Set::one(loopback_interface()));
    let others = nowhere.or(&lo).complement();
    let (own, no_socket) = (loopback_addresses(family), Set::one(NO_SOCKET));
    let mut without_socket = every.clone();
    for field in [Field::Uid, Field::Gid] {
        *without_socket.get_mut(field) = no_socket.clone();
    }
    // The kernel discards packets from outside whose source is a loopback address.
    let inbound = without_socket
        .clone()
        .with(Field::Path, &Set::range(FROM_OUTSIDE, FORWARDED))
        .with(Field::InInterface, &others)
        .with(Field::OutInterface, &nowhere)
        .with(Field::Source, &own.complement());
    let mut all = vec![inbound];
    for sent in [every, without_socket] {
        let sent = sent.with(Field::InInterface, &nowhere);
        let inside = sent.clone().with(Field::Path, &Set::one(INSIDE)).with(Field::OutInterface, &lo);
        let away = sent.with(Field::Path, &Set::one(TO_OUTSIDE)).with(Field::Destination, &own.complement());
        let by_mark = away.clone().with(Field::OutInterface, &lo).with(Field::Mark, &routed);
        let by_route = away.with(Field::OutInterface, &others).with(Field::Mark, &otherwise);
        all.extend([inside, by_route, by_mark]);
    }
    let by_state = all.into_iter().flat_map(|class| {
        let tracked = class.clone().with(Field::State, &Set::range(NEW, ESTABLISHED));
        // A packet without a connection has no mark of one.
        let invalid = class.with(Field::State, &Set::one(INVALID)).with(Field::Connmark, &Set::one(0));
        [tracked, invalid]
    });
    by_state.filter(|class| !class.is_empty()).collect()
}
