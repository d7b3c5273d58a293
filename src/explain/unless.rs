//! Values of what was not asked about with which the verdict would be another: found by walks with the values
//! that the rules test.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

use super::packet::{Packet, Process};
use super::rules::Rules;
use super::walk::{Sent, Step, Verdict, Walk};
use super::{Pod, Routing};
use crate::config::{PacketQuery, ProxyOwner, Sender};
use crate::live_rules::{Field, FieldMatch, address_of};
use crate::model::{Family, Mark, Owner, PolicyRule};

/// Most walks for one report.
const MOST: usize = 64;

/// A condition that the question leaves open, and what becomes of a packet that fulfils it.
#[derive(Clone, Debug)]
pub(super) struct Otherwise {
    /// As in `its source port is 22`.
    pub(super) condition: String,
    pub(super) verdict: Verdict,
    /// The rule that decides then.
    pub(super) rule: Option<String>,
}

/// What a question leaves open.
#[derive(Clone, Copy, Debug)]
struct Open {
    source: bool,
    source_port: bool,
    uid: bool,
    gid: bool,
    mark: bool,
    /// Of what arrives: what leaves goes by its route.
    interface: bool,
}

impl Open {
    fn of(query: &PacketQuery) -> Self {
        Self {
            source: query.source.is_none(),
            source_port: query.source_port.is_none(),
            uid: matches!(query.sender, Sender::App | Sender::Gid(_)),
            gid: matches!(query.sender, Sender::App | Sender::Uid(_)),
            mark: query.mark == Mark(0),
            interface: query.in_interface.is_none() && query.sender == Sender::Outside,
        }
    }
}

/// A value, or a range of them, that a rule tests.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Source(IpAddr, IpAddr),
    SourcePort(u16, u16),
    Uid(u32, u32),
    Gid(u32, u32),
    Mark(u32),
    Interface(String),
}

/// The conditions with which the verdict of `first` would be another.
pub(super) fn otherwise(
    rules: &Rules,
    (query, packet): (&PacketQuery, &Packet),
    first: &Walk<'_>,
    pod: &Pod<'_>,
) -> Vec<Otherwise> {
    let open = Open::of(query);
    let routing = pod.routing(packet.family());
    let mut tests = Vec::new();
    collect(&first.steps, (routing, packet.family()), &mut tests);
    if open.interface {
        let links = pod.network.addresses.iter().map(|own| own.interface.clone());
        tests.extend(links.filter(|name| name != "lo").map(|name| vec![Value::Interface(name)]));
    }
    // Values that change the verdict by themselves.
    let mut alone: Vec<Value> = Vec::new();
    let mut found: Vec<Otherwise> = Vec::new();
    let (mut at, mut walks) = (0, 0);
    while let Some(test) = tests.get(at).cloned() {
        at += 1;
        let is_known = tests.iter().take(at - 1).any(|earlier| *earlier == test);
        if is_known || test.iter().any(|value| alone.contains(value)) {
            continue;
        }
        let Some((other, condition)) = all_changed(packet, &test, open, pod) else { continue };
        if walks == MOST {
            let condition = format!("a value beyond the first {MOST} is tested, which were tried");
            found.push(Otherwise { condition, verdict: first.verdict, rule: None });
            break;
        }
        walks += 1;
        let walk = Sent::of(rules, &other, routing).walk_with(&[]);
        if walk.verdict != first.verdict {
            let rule = walk.decisive().map(Step::words);
            let rule = rule.or_else(|| walk.because.clone());
            found.push(Otherwise { condition, verdict: walk.verdict, rule });
            if let [value] = test.as_slice() {
                alone.push(value.clone());
            }
        }
        collect(&walk.steps, (routing, packet.family()), &mut tests);
    }
    found
}

/// The values that rules test, each by itself, and together those that one rule tests.
fn collect(steps: &[Step<'_>], (routing, family): (Routing<'_>, Family), tests: &mut Vec<Vec<Value>>) {
    for step in steps {
        let mut values = Vec::new();
        let Some(statement) = step.rule.statement() else {
            of_tests(&step.rule.rule.tests(), family, &mut values);
            combine(&values, tests);
            continue;
        };
        let matcher = &statement.matcher;
        values.extend(matcher.source.map(|test| source_in(*test.value())));
        let port = matcher.protocol.as_ref().and_then(|protocol| protocol.source);
        values.extend(port.map(|port| Value::SourcePort(port.number(), port.number())));
        values.extend(matcher.owners.iter().map(|owner| match *owner.value() {
            Owner::Uid(uid) => Value::Uid(uid, uid),
            Owner::Gid(gid) => Value::Gid(gid, gid),
        }));
        // Marks of ours belong to packets of the proxy.
        let mark = matcher.mark.filter(|_| step.rule.is_foreign());
        values.extend(mark.map(|mark| Value::Mark(mark.value().0)));
        combine(&values, tests);
    }
    for rule in routing.fib.iter().flat_map(|fib| &fib.rules) {
        let PolicyRule { source, source_ports, uids, .. } = rule;
        let mut values = Vec::new();
        values.extend(source.map(source_in));
        values.extend(source_ports.map(|(first, last)| Value::SourcePort(first, last)));
        values.extend(uids.map(|(first, last)| Value::Uid(first, last)));
        combine(&values, tests);
    }
}

fn source_in(range: IpNetwork) -> Value {
    let (first, last) = ends(range);
    Value::Source(first, last)
}

/// Each value of a rule, each two of different fields, and one of every field.
fn combine(values: &[Value], tests: &mut Vec<Vec<Value>>) {
    let is_other = |one: &Value, other: &Value| std::mem::discriminant(one) != std::mem::discriminant(other);
    tests.extend(values.iter().map(|value| vec![value.clone()]));
    let mut every: Vec<Value> = Vec::new();
    for (at, value) in values.iter().enumerate() {
        let others = values.iter().skip(at + 1).filter(|other| is_other(value, other));
        tests.extend(others.map(|other| vec![value.clone(), other.clone()]));
        if every.iter().all(|known| is_other(known, value)) {
            every.push(value.clone());
        }
    }
    if every.len() > 2 {
        tests.push(every);
    }
}

/// The values that a rule tests for which the model lacks terms.
fn of_tests(tests: &[FieldMatch], family: Family, values: &mut Vec<Value>) {
    for test in tests {
        for &(first, last) in &test.values {
            let ids = || Some((u32::try_from(first).ok()?, u32::try_from(last).ok()?));
            let ports = || Some((u16::try_from(first).ok()?, u16::try_from(last).ok()?));
            values.extend(match test.field {
                Field::Source => {
                    let address = |number| address_of(family, number);
                    address(first).zip(address(last)).map(|(first, last)| Value::Source(first, last))
                }
                Field::SourcePort => ports().map(|(first, last)| Value::SourcePort(first, last)),
                Field::Uid => ids().map(|(first, last)| Value::Uid(first, last)),
                Field::Gid => ids().map(|(first, last)| Value::Gid(first, last)),
                Field::Mark => ids().map(|(first, _)| Value::Mark(first)),
                Field::Protocol
                | Field::Destination
                | Field::DestinationPort
                | Field::EitherPort
                | Field::InInterface
                | Field::OutInterface
                | Field::Socket
                | Field::Connmark
                | Field::State
                | Field::Connection(..)
                | Field::TcpFlags
                | Field::SourceType(_)
                | Field::DestinationType(_)
                | Field::ReversePath(_)
                | Field::ExtensionHeader => None,
            });
        }
    }
}

fn ends(range: IpNetwork) -> (IpAddr, IpAddr) {
    (range.network(), range.broadcast())
}

/// The packet with other values, and the condition in words.
fn all_changed(packet: &Packet, test: &[Value], open: Open, pod: &Pod<'_>) -> Option<(Packet, String)> {
    let mut other = packet.clone();
    let mut conditions = Vec::new();
    for value in test {
        let (next, condition) = changed(&other, value, open, pod)?;
        other = next;
        conditions.push(condition);
    }
    Some((other, conditions.join(" and ")))
}

/// The packet with another value, on the other side of the test, and the condition in words; `None` if the
/// question says what it has, or no such packet is asked about.
fn changed(packet: &Packet, value: &Value, open: Open, pod: &Pod<'_>) -> Option<(Packet, String)> {
    let mut other = packet.clone();
    let is = |what: &str, is_in: bool, range: String| {
        let not = if is_in { "not " } else { "" };
        format!("its {what} is {not}{range}")
    };
    let condition = match value {
        Value::Source(first, last) if open.source => {
            let is_in = (first..=last).contains(&&packet.source.ip());
            let address = source(packet, (*first, *last), is_in, pod)?;
            other.source.set_ip(address);
            other.has_source = true;
            is("source address", is_in, address_range(*first, *last))
        }
        Value::SourcePort(first, last) if open.source_port => {
            let is_in = (first..=last).contains(&&packet.source.port());
            other.has_port = true;
            other
                .source
                .set_port(beside(u32::from(*first), u32::from(*last), is_in, 65_535)?.try_into().ok()?);
            is("source port", is_in, range(first, last))
        }
        Value::Uid(first, last) if open.uid => {
            let Process { uid, gid } = packet.process?;
            let is_in = (first..=last).contains(&&uid);
            let uid = beside(*first, *last, is_in, u32::MAX - 1)?;
            let ProxyOwner { uids, .. } = &pod.config.traffic.proxy;
            other.process = Some(Process { uid, gid }).filter(|_| !uids.contains(&uid));
            other.process?;
            is("uid", is_in, range(first, last))
        }
        Value::Gid(first, last) if open.gid => {
            let Process { uid, gid } = packet.process?;
            let is_in = (first..=last).contains(&&gid);
            let gid = beside(*first, *last, is_in, u32::MAX - 1)?;
            let ProxyOwner { gids, .. } = &pod.config.traffic.proxy;
            other.process = Some(Process { uid, gid }).filter(|_| !gids.contains(&gid));
            other.process?;
            is("gid", is_in, range(first, last))
        }
        Value::Mark(mark) if open.mark && *mark != packet.mark.0 => {
            other.mark = Mark(*mark);
            is("mark", false, mark.to_string())
        }
        Value::Interface(name) if open.interface && *name != packet.interface => {
            other.interface.clone_from(name);
            other = other.by_route(pod.routing(packet.family()));
            format!("it arrives on {name}")
        }
        Value::Source(..)
        | Value::SourcePort(..)
        | Value::Uid(..)
        | Value::Gid(..)
        | Value::Mark(_)
        | Value::Interface(_) => return None,
    };
    Some((other, condition))
}

fn range<T: PartialEq + std::fmt::Display>(first: &T, last: &T) -> String {
    if first == last { first.to_string() } else { format!("in {first}-{last}") }
}

/// A number in a range, or one beside it.
fn beside(first: u32, last: u32, is_in: bool, most: u32) -> Option<u32> {
    if !is_in {
        return Some(first);
    }
    last.checked_add(1).filter(|next| *next <= most).or_else(|| first.checked_sub(1))
}

/// A range of addresses in words: as a network, if it is one.
fn address_range(first: IpAddr, last: IpAddr) -> String {
    if first == last {
        return first.to_string();
    }
    let networks = (0..=128).filter_map(|prefix| IpNetwork::new(first, prefix).ok());
    let same = |network: &IpNetwork| ends(*network) == (first, last);
    let network = { networks }.find(same);
    network.map_or_else(|| format!("in {first}-{last}"), |network| format!("in {network}"))
}

/// A source address in a range, or one outside, that such a packet may have.
fn source(packet: &Packet, (first, last): (IpAddr, IpAddr), is_in: bool, pod: &Pod<'_>) -> Option<IpAddr> {
    let is_own = |address: IpAddr| pod.network.addresses.iter().any(|own| own.address == address);
    let fits = |address: IpAddr| {
        let is_other =
            address.is_ipv4() == packet.source.is_ipv4() && (first..=last).contains(&address) != is_in;
        let is_possible = match packet.interface.as_str() {
            // Every address of loopback may be bound.
            "lo" => address.is_loopback() || is_own(address),
            _ if packet.is_inbound => !address.is_loopback() && !is_own(address),
            _ => is_own(address) && !address.is_loopback(),
        };
        is_other && is_possible
    };
    let next = match last {
        IpAddr::V4(last) => u32::from(last).checked_add(1).map(|next| Ipv4Addr::from(next).into()),
        IpAddr::V6(last) => u128::from(last).checked_add(1).map(|next| Ipv6Addr::from(next).into()),
    };
    let own = pod.network.addresses.iter().map(|own| own.address);
    std::iter::once(first).chain(next).chain(own).find(|address| fits(*address))
}
