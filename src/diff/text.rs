//! The report as text.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::difference::Difference;
use super::field::{
    Class, ESTABLISHED, FORWARDED, FROM_OUTSIDE, Field, INSIDE, NEW, NO_SOCKET, TO_OUTSIDE, address_of,
    name_of,
};
use super::reason::{Reason, reasons};
use super::set::Set;
use super::witness::{is_usual_source, protocol_name};
use super::{Compared, Conclusion};
use crate::model::Family;
use crate::text::{count, first_line, one_line};

/// Most kinds of differences, and rules, that are listed.
const MOST: usize = 8;
/// Most ranges of a field that are listed.
const MOST_RANGES: usize = 4;

/// What the proof does not cover, whatever the rules are.
pub(super) const NOT_COVERED: &str = "counters, comments, the order of rules where it changes nothing; replies within translated \
     connections; connections that a helper announces (RELATED); interfaces, routes and policy rules, of which one is assumed: \
     the mark that TPROXY sets is routed to lo; whether the proxy listens";

pub(super) fn text(compared: &Compared<'_>) -> String {
    let mut text = String::new();
    let families: Vec<String> = compared.families.keys().map(ToString::to_string).collect();
    let families = if families.is_empty() { "no".to_owned() } else { families.join(" and ") };
    let all = || compared.families.values();
    let differences: Vec<_> = all().flat_map(|comparison| &comparison.differences).collect();
    // Writing to a String cannot fail.
    let _ = match (compared.conclusion(), differences.first()) {
        (Conclusion::Equal, _) => {
            let classes: usize = all().map(|comparison| comparison.classes).sum();
            writeln!(text, "equal for all {families} packets ({} compared)", count(classes, "class"))
        }
        (Conclusion::Different, Some(first)) => {
            let (line, _) = first_line(&format!("different: {}", first.witness.summary()));
            let _ = writeln!(text, "{line}\n  packet   {}", first.witness);
            details(&mut text, first, compared);
            Ok(())
        }
        (Conclusion::Different | Conclusion::NotProved, _) => {
            writeln!(
                text,
                "not proved for all {families} packets: some rules cannot be evaluated\n  \
                 no difference was found; packets that these rules match may be treated differently"
            )
        }
    };
    for difference in differences.iter().skip(1).take(MOST) {
        let [a, b] = reasons(difference, compared.sides);
        let _ = writeln!(text, "also different: {}\n  A {}\n  B {}", difference.witness, a.words, b.words);
    }
    if let Some(more @ 1..) = differences.len().checked_sub(MOST + 1) {
        let _ = writeln!(text, "and {} of differences", count(more, "more kind"));
    }
    let obstacles = obstacles(compared);
    for obstacle in obstacles.iter().take(MOST) {
        let _ = writeln!(text, "not proved: {}", one_line(obstacle));
    }
    if let Some(more @ 1..) = obstacles.len().checked_sub(MOST) {
        let _ = writeln!(text, "and {more} more");
    }
    for (family, side) in &compared.unknown {
        let name = compared.sides.get(*side).map_or("", |side| side.name.as_str());
        let _ = writeln!(
            text,
            "not compared: {family}, of which {} has no rules: {name}.v6 is not there",
            one_line(name)
        );
    }
    let _ = writeln!(text, "not covered: {NOT_COVERED}");
    text
}

/// What cannot be evaluated, and whatever else is in the way of a proof.
pub(super) fn obstacles(compared: &Compared<'_>) -> Vec<String> {
    let rules =
        compared.families.values().flat_map(|comparison| &comparison.unproved).filter_map(|unproved| {
            let side = compared.sides.get(unproved.side)?;
            let chain = side.programs.get(&unproved.family)?.chains.get(unproved.rule.0)?;
            let part = chain.rules.get(unproved.rule.1)?.parts.first()?;
            Some(format!("{}: {} {} ({})", side.name, chain.name, part.text, unproved.family))
        });
    // What is in the way of a proof for both families is one obstacle.
    let mut listed = BTreeSet::new();
    rules
        .chain(compared.obstacles.iter().cloned())
        .filter(|obstacle| listed.insert(obstacle.clone()))
        .collect()
}

fn details(text: &mut String, difference: &Difference, compared: &Compared<'_>) {
    let reasons = reasons(difference, compared.sides);
    for ((label, side), reason) in ["A", "B"].iter().zip(compared.sides).zip(&reasons) {
        let Reason { words, because, rule, explain, .. } = reason;
        let _ = writeln!(text, "{label} {}: {words}", one_line(&side.name));
        let _ = writeln!(text, "  because  {because}");
        if let Some(rule) = rule {
            let _ = writeln!(text, "  rule     {rule}");
        }
        if let Some(explain) = explain {
            let _ = writeln!(text, "  explain  {explain}");
        }
    }
    let _ = writeln!(text, "packets: {}", class(difference.family, &difference.class));
}

/// The packets of a class: the fields that are not free.
pub(super) fn class(family: Family, class: &Class) -> String {
    let every = Class::every(family);
    let path = class.get(Field::Path);
    let is_inbound = !path.contains(INSIDE) && !path.contains(TO_OUTSIDE);
    let is_free = |field: Field| {
        let values = class.get(field);
        match field {
            _ if values == every.get(field) => true,
            Field::Source | Field::Destination => is_usual_source(family, values),
            Field::Uid | Field::Gid => is_inbound,
            Field::Path
            | Field::InInterface
            | Field::OutInterface
            | Field::Protocol
            | Field::SourcePort
            | Field::DestinationPort
            | Field::Mark
            | Field::Connmark
            | Field::State
            | Field::Syn => false,
        }
    };
    let fields = Field::ALL.into_iter().filter(|field| !is_free(*field));
    let described = fields.filter_map(|field| described(family, field, class.get(field), every.get(field)));
    std::iter::once(family.to_string()).chain(described).collect::<Vec<_>>().join(", ")
}

fn described(family: Family, field: Field, values: &Set, every: &Set) -> Option<String> {
    let name = match field {
        Field::Path => {
            let ways = [
                (FROM_OUTSIDE, "from outside"),
                (FORWARDED, "forwarded"),
                (INSIDE, "within the pod"),
                (TO_OUTSIDE, "to another host"),
            ];
            let ways = ways.iter().filter(|(way, _)| values.contains(*way)).map(|(_, name)| *name);
            return Some(ways.collect::<Vec<_>>().join(" or "));
        }
        Field::InInterface | Field::OutInterface => {
            let way = if field == Field::InInterface { "in by" } else { "out by" };
            let name = values.single().and_then(name_of)?;
            return Some(format!("{way} {name}"));
        }
        Field::Uid if values.single() == Some(NO_SOCKET) => return Some("without a socket".to_owned()),
        Field::Gid if values.single() == Some(NO_SOCKET) => return None,
        Field::Syn => return None,
        Field::Protocol => "protocol",
        Field::Source => "source",
        Field::Destination => "destination",
        Field::SourcePort => "source port",
        Field::DestinationPort => "port",
        Field::Uid => "uid",
        Field::Gid => "gid",
        Field::Mark => "mark",
        Field::Connmark => "connection mark",
        Field::State => "state",
    };
    // What is shorter: the values, or those that it has not.
    let others = every.and(&values.complement());
    let (not, shown) =
        if others.ranges().len() < values.ranges().len() { ("not ", &others) } else { ("", values) };
    Some(format!("{name} {not}{}", listed(family, field, shown)))
}

/// The ranges of a set, the first ones if there are many.
fn listed(family: Family, field: Field, values: &Set) -> String {
    let value = |number: u128| match field {
        Field::Source | Field::Destination => address_of(family, number).to_string(),
        Field::Protocol => protocol_name(number),
        Field::State if number == NEW => "new".to_owned(),
        Field::State if number == ESTABLISHED => "established".to_owned(),
        Field::State => "invalid".to_owned(),
        Field::Path
        | Field::InInterface
        | Field::OutInterface
        | Field::SourcePort
        | Field::DestinationPort
        | Field::Uid
        | Field::Gid
        | Field::Mark
        | Field::Connmark
        | Field::Syn => number.to_string(),
    };
    let range = |(first, last): &(u128, u128)| match (field, prefix(family, *first, *last)) {
        _ if first == last => value(*first),
        (Field::Source | Field::Destination, Some(length)) => format!("{}/{length}", value(*first)),
        _ => format!("{}-{}", value(*first), value(*last)),
    };
    let mut list: Vec<String> = values.ranges().iter().take(MOST_RANGES).map(range).collect();
    if let Some(more @ 1..) = values.ranges().len().checked_sub(MOST_RANGES) {
        list.push(format!("and {more} more ranges"));
    }
    list.join(" ")
}

/// The length of the prefix, if a range of addresses is a network.
fn prefix(family: Family, first: u128, last: u128) -> Option<u32> {
    let bits = match family {
        Family::V4 => 32,
        Family::V6 => 128,
    };
    let hosts = (first ^ last).trailing_ones().min(bits);
    let host_bits = 1_u128.checked_shl(hosts).map_or(u128::MAX, |size| size - 1);
    ((first ^ last) == host_bits && first & host_bits == 0).then(|| bits - hosts)
}
