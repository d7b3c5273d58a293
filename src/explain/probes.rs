//! One packet for each foreign rule: to the address and the port that it names, from whom it names.

use std::net::{IpAddr, SocketAddr};

use super::defaults::default_server;
use super::entry::Entry;
use super::overview::{ANY_PORT, pod_address, query};
use super::packet::Packet;
use super::unless::addresses;
use super::{Live, Pod};
use crate::config::{PacketQuery, Sender};
use crate::model::{Family, Hook, Transport};
use crate::parse::matches::{self, Field, FieldMatch};

/// Most packets of a family.
const MOST: usize = 64;

/// For each family that has rules of ours: a packet for each foreign rule, with the name of the kind of traffic.
pub(super) fn packets(live: &Live, pod: &Pod<'_>) -> Vec<(String, Packet)> {
    let mut packets: Vec<(String, Packet)> = Vec::new();
    for (family, rules) in live.rules.iter().filter(|(_, rules)| rules.has_ours()) {
        let mut questions: Vec<Question> = Vec::new();
        for (hook, entry) in rules.foreign() {
            let senders = [Sender::App, Sender::Outside].into_iter().filter(|sender| meets(*sender, hook));
            for found in senders.filter_map(|sender| Question::of(entry, sender, *family, pod)) {
                if !questions.contains(&found) {
                    questions.push(found);
                }
            }
        }
        packets.extend(questions.iter().take(MOST).map(|question| question.packet(pod)));
    }
    packets
}

/// Whether a packet of this sender is at a hook first. All that is captured arrives in `INPUT`.
fn meets(sender: Sender, hook: Option<&str>) -> bool {
    hook.is_none_or(|hook| (sender == Sender::Outside) == (hook == Hook::Prerouting.name()))
}

/// What is asked about a rule.
#[derive(Clone, Debug, PartialEq)]
struct Question {
    query: PacketQuery,
    to: SocketAddr,
}

impl Question {
    /// `None` if no packet of this sender is one for the rule, as far as its words are read.
    fn of(entry: &Entry, sender: Sender, family: Family, pod: &Pod<'_>) -> Option<Self> {
        let is_inbound = sender == Sender::Outside;
        let to = if is_inbound {
            pod_address(pod.config, pod.network, family)
        } else {
            default_server(pod, family)
        };
        let mut question = Self { query: query(sender), to: SocketAddr::new(to, ANY_PORT) };
        let tests = matches::read(&entry.text())?.known;
        tests.iter().filter(|test| !test.is_negated).try_for_each(|test| question.take(test, pod))?;
        Some(question)
    }

    /// Takes the first value that a rule tests.
    fn take(&mut self, test: &FieldMatch, pod: &Pod<'_>) -> Option<()> {
        let is_inbound = self.query.sender == Sender::Outside;
        let value = test.values.first()?.0;
        let is_own = |address: IpAddr| pod.network.addresses.iter().any(|own| own.address == address);
        match test.field {
            Field::Protocol => self.query.transport = transport(value)?,
            Field::Destination => {
                let address = first_address(test)?;
                // What the pod forwards is not followed.
                if is_inbound && !is_own(address) {
                    return None;
                }
                self.to.set_ip(address);
            }
            Field::DestinationPort | Field::EitherPort => self.to.set_port(value.try_into().ok()?),
            Field::Source if is_inbound => self.query.source = first_address(test),
            Field::SourcePort => self.query.source_port = Some(value.try_into().ok()?),
            Field::Uid | Field::Gid if is_inbound => return None,
            Field::Uid => self.query.sender = Sender::Uid(value.try_into().ok()?),
            Field::Gid => self.query.sender = Sender::Gid(value.try_into().ok()?),
            Field::Source
            | Field::InInterface
            | Field::OutInterface
            | Field::Socket
            | Field::Mark
            | Field::Connmark
            | Field::State
            | Field::Connection(..)
            | Field::TcpFlags
            | Field::SourceType(_)
            | Field::DestinationType(_) => {}
        }
        Some(())
    }

    fn packet(&self, pod: &Pod<'_>) -> (String, Packet) {
        let Self { query, to } = self;
        let sender = match query.sender {
            Sender::Outside => client(query),
            Sender::Uid(uid) => format!("uid {uid}"),
            Sender::Gid(gid) => format!("gid {gid}"),
            Sender::App | Sender::Kernel | Sender::Process { .. } | Sender::Proxy => "app".to_owned(),
        };
        let transport = if query.transport == Transport::Udp { ", UDP" } else { "" };
        let packet = Packet::of(query, *to, pod.config, pod.network).with_defaults(query, pod);
        (format!("{sender} to {to}{transport}"), packet)
    }
}

/// Whom a rule names, in words.
fn client(query: &PacketQuery) -> String {
    let address = query.source.map(|address| format!(" {address}"));
    let port = query.source_port.map(|port| format!(" (source port {port})"));
    format!("client{}{}", address.unwrap_or_default(), port.unwrap_or_default())
}

const fn transport(number: u128) -> Option<Transport> {
    match number {
        6 => Some(Transport::Tcp),
        17 => Some(Transport::Udp),
        _ => None,
    }
}

/// An address of a test: that of a network itself no host has.
fn first_address(test: &FieldMatch) -> Option<IpAddr> {
    let listed = test.listed().split(',').next()?;
    if test.mask != u128::MAX {
        return listed.split('/').next()?.parse().ok();
    }
    let (first, last) = addresses(listed)?;
    let next = match first {
        IpAddr::V4(address) => IpAddr::from(std::net::Ipv4Addr::from(u32::from(address).checked_add(1)?)),
        IpAddr::V6(address) => IpAddr::from(std::net::Ipv6Addr::from(u128::from(address).checked_add(1)?)),
    };
    Some(if first == last { first } else { next })
}
