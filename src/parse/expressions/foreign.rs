//! Rules of other programs' nftables: sets, verdict maps, ranges, numbers of interfaces.

use nfnetlink::nftables::{CtKey, Expression, Member, Members, MetaKey, Operator, Rule, Verdict};

use super::decode::{number, quoted};
use super::values::Values;
use super::{Loaded, Reader, is_not};
use crate::live_rules::LiveRule;
use crate::model::{Family, Link};
use crate::parse::REWRITES;
use crate::parse::live_rule::live_rule;

/// What rules refer to.
#[derive(Clone, Copy, Debug)]
pub struct RuleContext<'a> {
    /// The sets and maps of their table.
    pub sets: &'a [Members],
    /// The interfaces.
    pub links: &'a [Link],
}

/// Most rules for which one rule is read, by the members of its sets.
const MOST: usize = 1000;

/// Reads a rule: a rule for each thing that it does, for each member of a verdict map, and of a set of
/// several fields; none if it is for no packet of the family.
#[must_use]
pub fn foreign_rules(family: Family, rule: &Rule, beside: RuleContext<'_>) -> Vec<LiveRule> {
    let (readers, mapped) = readers_of(family, rule, beside);
    let is_done = !mapped.is_empty();
    let rest = readers.into_iter().filter(|reader| !is_done || !reader.target.is_empty());
    // A verdict map is the last thing in a rule.
    in_words(family, rule, rest.chain(mapped)).collect()
}

/// What a rule does itself, and what the members of its verdict map do.
fn readers_of(family: Family, rule: &Rule, beside: RuleContext<'_>) -> (Vec<Reader>, Vec<Reader>) {
    let mut readers = vec![Reader { family, is_foreign: true, ..Reader::default() }];
    let mut mapped = Vec::new();
    for expression in ranges_of(&rule.expressions) {
        let of_set = if let Expression::Lookup { set, inverted, .. } = &expression {
            Some((set_of(set, beside.sets), *inverted))
        } else {
            None
        };
        let map = if let Expression::Foreign { name, data } = &expression
            && name == "lookup"
            && gives_verdict(data)
        {
            map_of(data, beside.sets)
        } else {
            None
        };
        let mut next = Vec::new();
        for mut reader in readers {
            if let Some(lines) = map.and_then(|map| reader.mapped(map)) {
                mapped.extend(lines);
            } else if let Some(among) = of_set.and_then(|(set, not)| reader.among(set?, not, beside)) {
                next.extend(among);
                continue;
            } else {
                let understood = reader.read_foreign(&expression, beside);
                reader.note(understood);
            }
            next.push(reader);
        }
        readers = next;
        if readers.len() > MOST {
            readers.truncate(1);
            readers.iter_mut().for_each(Reader::unknown);
        }
    }
    (readers, mapped)
}

/// The rules of these readers, with the comment of the rule that they read.
fn in_words(
    family: Family,
    rule: &Rule,
    readers: impl Iterator<Item = Reader>,
) -> impl Iterator<Item = LiveRule> {
    let comment =
        rule.comment.as_ref().map(|comment| format!("-m comment --comment {} ", quoted(comment.as_str())));
    let commented = move |mut reader: Reader| {
        reader.tests += comment.as_deref().unwrap_or_default();
        // Which packets it is for is known all the same.
        reader.has_unread_target = false;
        reader
    };
    let lines = readers.filter(|reader| !reader.is_other_family).map(commented);
    lines.flat_map(Reader::into_each).map(move |words| live_rule(family, words))
}

fn values_of(set: &Members) -> Vec<Values<'_>> {
    set.list.iter().map(|member| (member.first.as_slice(), member.last.as_slice())).collect()
}

fn set_of<'a>(name: &str, sets: &'a [Members]) -> Option<&'a Members> {
    sets.iter().find(|set| set.name == name)
}

/// Whether a lookup returns a verdict: its destination is register 0.
fn gives_verdict(data: &[u8]) -> bool {
    const DESTINATION: u16 = 3;
    nfnetlink::Attributes::new(data).of(DESTINATION).and_then(|register| register.be32()) == Some(0)
}

/// Whether a lookup in a map, or a reference to an object such as a counter, may end the way of a packet.
/// Others only end the rule, for what is not in the map or over a limit.
pub(super) fn takes_packets(name: &str, data: &[u8]) -> bool {
    // `NFTA_OBJREF_IMM_TYPE`, `NFT_OBJECT_SYNPROXY`.
    const OBJECT_TYPE: u16 = 1;
    const SYNPROXY: u32 = 10;
    let object = || nfnetlink::Attributes::new(data).of(OBJECT_TYPE).and_then(|kind| kind.be32());
    if name == "objref" { object() == Some(SYNPROXY) } else { gives_verdict(data) }
}

/// The set or the map that a lookup names.
fn map_of<'a>(data: &[u8], sets: &'a [Members]) -> Option<&'a Members> {
    const SET: u16 = 1;
    set_of(&nfnetlink::Attributes::new(data).of(SET)?.text(), sets)
}

impl Reader {
    const fn is_interface_number(&self) -> bool {
        matches!(self.loaded, Some(Loaded::Interface(_, true)))
    }

    /// The equivalent rules of a lookup in a verdict map, one for each member.
    fn mapped(&self, map: &Members) -> Option<Vec<Self>> {
        let with = |mut reader: Self, verdict: &Verdict| {
            reader.verdict(verdict)?;
            Some(reader)
        };
        let mut rules = Vec::new();
        let bare = Self { target: String::new(), earlier: Vec::new(), ..self.clone() };
        let goes_on = |member: &Member| member.verdict == Some(Verdict::Continue);
        let is_complete = self.is_any_of(map) && !map.list.iter().any(goes_on);
        for (at, member) in map.list.iter().enumerate().filter(|(_, member)| !goes_on(member)) {
            // What is for none of the others is for the last one.
            let is_left = is_complete && at + 1 == map.list.len();
            let member_of = |reader: &Self| reader.with_member((&member.first, &member.last));
            let reader = if is_left { bare.untested() } else { member_of(&bare)? };
            rules.push(with(reader, member.verdict.as_ref()?)?);
        }
        if let Some(verdict) = map.otherwise.as_ref().filter(|verdict| **verdict != Verdict::Continue) {
            let mut reader = bare;
            if !map.list.is_empty() {
                match reader.fields.len() {
                    1 => reader.tested(true, &values_of(map))?,
                    // Which packets are for no member is not read.
                    _ => reader.unread("lookup")?,
                }
            }
            rules.push(with(reader, verdict)?);
        }
        Some(rules)
    }

    /// Whether a map has a member for each number that may be drawn.
    fn is_any_of(&self, map: &Members) -> bool {
        let [Loaded::Random(numbers, first)] = self.fields.as_slice() else { return false };
        let ends = |member: &Member| Some((number(&member.first, 0)?, number(&member.last, 0)?));
        let ranges: Option<Vec<_>> = map.list.iter().map(ends).collect();
        let has = |number| ranges.iter().flatten().any(|(first, last)| (first..=last).contains(&&number));
        *numbers <= MOST_NUMBERS && (*first..first.saturating_add(*numbers)).all(has)
    }

    fn untested(&self) -> Self {
        Self { loaded: None, fields: Vec::new(), ..self.clone() }
    }

    /// The equivalent rules of a lookup in a set; one, if the set has one field.
    fn among(&self, set: &Members, is_negated: bool, beside: RuleContext<'_>) -> Option<Vec<Self>> {
        if self.fields.len() > 1 && !is_negated {
            return set.list.iter().map(|member| self.with_member((&member.first, &member.last))).collect();
        }
        let mut reader = self.clone();
        if set.list.is_empty() {
            // No packet is in it.
            return Some(if is_negated { vec![reader] } else { Vec::new() });
        }
        (self.fields.len() == 1).then_some(())?;
        reader.tested_by_name(is_negated, &values_of(set), beside)?;
        Some(vec![reader])
    }

    /// With a test for one member of a set of the fields that are loaded.
    fn with_member(&self, (first, last): Values<'_>) -> Option<Self> {
        let mut reader = self.clone();
        if let [_] = self.fields.as_slice() {
            reader.tested(false, &[(first, last)])?;
            return Some(reader);
        }
        let (mut first, mut last) = (first, last);
        for field in &self.fields {
            let (length, padded) = self.length_of(*field);
            let (from, behind_first) = first.split_at_checked(padded)?;
            let (to, behind_last) = last.split_at_checked(padded)?;
            reader.loaded = Some(*field);
            reader.tested(false, &[(from.get(..length)?, to.get(..length)?)])?;
            (first, last) = (behind_first, behind_last);
        }
        first.is_empty().then_some(reader)
    }

    /// Bytes of a field, and those that it takes in a set of several fields.
    const fn length_of(&self, field: Loaded) -> (usize, usize) {
        match field {
            Loaded::Protocol | Loaded::Direction => (1, 4),
            Loaded::Port(_) | Loaded::EndPort(_) => (2, 4),
            Loaded::Interface(_, false) => (16, 16),
            Loaded::Address(..) | Loaded::MaskedAddress(..) | Loaded::EndAddress(..)
                if matches!(self.family, Family::V6) =>
            {
                (16, 16)
            }
            Loaded::Interface(_, true)
            | Loaded::Mark(..)
            | Loaded::Flags(_)
            | Loaded::Family
            | Loaded::Owner(_)
            | Loaded::State(_)
            | Loaded::Address(..)
            | Loaded::MaskedAddress(..)
            | Loaded::AddressType(..)
            | Loaded::ReversePath(_)
            | Loaded::Status(_)
            | Loaded::EndAddress(..)
            | Loaded::Random(..) => (4, 4),
        }
    }

    fn read_foreign(&mut self, expression: &Expression, beside: RuleContext<'_>) -> Option<()> {
        if let Expression::Foreign { name, .. } = expression
            && name == "log"
        {
            // What is logged goes on.
            return Some(());
        }
        if let Expression::Foreign { name, data } = expression
            && name == "payload"
            && writes_header(data)
        {
            return if writes_ends(self.family, expression) { self.jump(REWRITES) } else { Some(()) };
        }
        if let Expression::Compare { operator, value, .. } = expression
            && self.is_interface_number()
        {
            return self.tested_by_name(is_not(*operator)?, &[(value, value)], beside);
        }
        let read = self.foreign_load(expression).or_else(|| self.translation(expression));
        let read = read.or_else(|| self.native(expression));
        read.or_else(|| self.read(expression)).or_else(|| self.change(expression))
    }

    /// A test of what is loaded, the number of an interface too.
    fn tested_by_name(
        &mut self,
        is_negated: bool,
        values: &[Values<'_>],
        beside: RuleContext<'_>,
    ) -> Option<()> {
        let Some(Loaded::Interface(option, true)) = self.loaded else {
            return self.tested(is_negated, values);
        };
        let name = |(first, last): &Values<'_>| {
            let index = number(first, 0).filter(|_| first == last)?;
            beside.links.iter().find(|link| link.index == index).map(|link| quoted(&link.name))
        };
        let names: Vec<String> = values.iter().map(name).collect::<Option<_>>()?;
        let not = if is_negated { "! " } else { "" };
        self.interface += &format!("{not}{option} {} ", names.join(","));
        self.fields.clear();
        Some(())
    }

    /// What no rule of ours loads.
    #[allow(clippy::wildcard_enum_match_arm, reason = "everything else is read as in a rule of ours")]
    fn foreign_load(&mut self, expression: &Expression) -> Option<()> {
        let loaded = match expression {
            Expression::Meta { key: MetaKey::InInterfaceIndex, .. } => Loaded::Interface("-i", true),
            Expression::Meta { key: MetaKey::OutInterfaceIndex, .. } => Loaded::Interface("-o", true),
            Expression::Foreign { name, data } if name == "fib" => fib(data)?,
            Expression::Ct { key: CtKey::Status, .. } => Loaded::Status(u32::MAX),
            Expression::Ct { key: CtKey::Direction, .. } => Loaded::Direction,
            Expression::Foreign { name, data } if name == "ct" => end(data, self.family)?,
            Expression::Foreign { name, data } if name == "numgen" || name == "hash" => {
                // What is hashed is tested no more.
                self.fields.clear();
                random(name, data)?
            }
            Expression::Foreign { name, .. } if name == "byteorder" && self.loaded.is_some() => {
                self.is_swapped = !self.is_swapped;
                return Some(());
            }
            _ => return None,
        };
        self.load(loaded)
    }
}

/// Whether an expression writes an address or a port into the header of packets of this family.
fn writes_ends(family: Family, expression: &Expression) -> bool {
    matches!(expression, Expression::Foreign { name, data } if name == "payload" && writes_header(data) && has_ends(family, data))
}

/// Whether a `payload` writes into the header, instead of reading from it.
fn writes_header(data: &[u8]) -> bool {
    const SOURCE_REGISTER: u16 = 5;
    nfnetlink::Attributes::new(data).of(SOURCE_REGISTER).is_some()
}

/// Whether the part of the header has an address or a port.
fn has_ends(family: Family, data: &[u8]) -> bool {
    const BASE: u16 = 2;
    const OFFSET: u16 = 3;
    const LENGTH: u16 = 4;
    const NETWORK_HEADER: u32 = 1;
    const TRANSPORT_HEADER: u32 = 2;
    let attributes = nfnetlink::Attributes::new(data);
    let value = |kind: u16| attributes.of(kind).and_then(|number| number.be32()).unwrap_or(0);
    let ends = match (value(BASE), family) {
        (NETWORK_HEADER, Family::V4) => 12..20,
        (NETWORK_HEADER, Family::V6) => 8..40,
        (TRANSPORT_HEADER, _) => 0..4,
        _ => return false,
    };
    value(OFFSET) < ends.end && value(OFFSET).saturating_add(value(LENGTH)) > ends.start
}

/// Most numbers of which a map may have a member for each.
const MOST_NUMBERS: u32 = 4096;

/// A number that is drawn, or that is made of what the packet has.
fn random(name: &str, data: &[u8]) -> Option<Loaded> {
    let (modulus, offset) = if name == "numgen" { (2, 4) } else { (4, 6) };
    let attributes = nfnetlink::Attributes::new(data);
    let value = |kind: u16| attributes.of(kind).and_then(|number| number.be32());
    Some(Loaded::Random(value(modulus)?, value(offset).unwrap_or(0)))
}

/// An end of the connection.
fn end(data: &[u8], family: Family) -> Option<Loaded> {
    const KEY: u16 = 2;
    const DIRECTION: u16 = 3;
    let attributes = nfnetlink::Attributes::new(data);
    let [is_reply] = *attributes.of(DIRECTION)?.payload else { return None };
    let option = |original, reply| if is_reply == 0 { original } else { reply };
    let bits = if family == Family::V4 { 32 } else { 128 };
    // `NFT_CT_SRC` and the like; from 19 on they are of one family.
    Some(match (attributes.of(KEY)?.be32()?, family) {
        (8, _) | (19, Family::V4) | (21, Family::V6) => {
            Loaded::EndAddress(option("--ctorigsrc", "--ctreplsrc"), bits)
        }
        (9, _) | (20, Family::V4) | (22, Family::V6) => {
            Loaded::EndAddress(option("--ctorigdst", "--ctrepldst"), bits)
        }
        (11, _) => Loaded::EndPort(option("--ctorigsrcport", "--ctreplsrcport")),
        (12, _) => Loaded::EndPort(option("--ctorigdstport", "--ctrepldstport")),
        _ => return None,
    })
}

/// The name of the extension of iptables for a header of IPv6 of which an `exthdr` loads a part: without the
/// header the rule ends.
pub(super) fn extension_header(name: &str, data: &[u8]) -> Option<&'static str> {
    const TYPE: u16 = 2;
    const FLAGS: u16 = 5;
    const KIND: u16 = 6;
    let attributes = nfnetlink::Attributes::new(data);
    let value = |kind: u16| attributes.of(kind).and_then(|number| number.be32()).unwrap_or(0);
    // Not that of TCP, and not whether the header is there.
    if name != "exthdr" || value(KIND) != 0 || value(FLAGS) != 0 {
        return None;
    }
    let [header] = *attributes.of(TYPE)?.payload else { return None };
    Some(match header {
        0 => "hbh",
        43 => "rt",
        44 => "frag",
        60 => "dst",
        135 => "mh",
        _ => return None,
    })
}

/// The type of an address, or whether a route leads back to the source, if that is what is looked up.
fn fib(data: &[u8]) -> Option<Loaded> {
    const RESULT: u16 = 2;
    const FLAGS: u16 = 3;
    const INTERFACE: u32 = 1;
    const ADDRESS_TYPE: u32 = 3;
    const IS_PRESENT: u32 = 32;
    let attributes = nfnetlink::Attributes::new(data);
    let (result, flags) = (attributes.of(RESULT)?.be32()?, attributes.of(FLAGS)?.be32()?);
    if result == INTERFACE {
        // By source and perhaps the mark, of any interface or of the one in.
        return Some(Loaded::ReversePath(match flags & !IS_PRESENT {
            1 => "--loose ",
            5 => "--loose --validmark ",
            9 => "",
            13 => "--validmark ",
            _ => return None,
        }));
    }
    (result == ADDRESS_TYPE).then_some(())?;
    // By source or destination, of the interfaces in and out.
    Some(match flags {
        1 => Loaded::AddressType("--src-type", ""),
        2 => Loaded::AddressType("--dst-type", ""),
        9 => Loaded::AddressType("--src-type", "--limit-iface-in "),
        10 => Loaded::AddressType("--dst-type", "--limit-iface-in "),
        17 => Loaded::AddressType("--src-type", "--limit-iface-out "),
        18 => Loaded::AddressType("--dst-type", "--limit-iface-out "),
        _ => return None,
    })
}

/// Comparisons of order as ranges.
fn ranges_of(expressions: &[Expression]) -> Vec<Expression> {
    let mut found: Vec<Expression> = Vec::with_capacity(expressions.len());
    for expression in expressions {
        let range = if let Expression::Compare { register, operator, value } = expression {
            let ends = match operator {
                Operator::Less => neighbour(value, u8::MAX).map(|last| (vec![0; value.len()], last)),
                Operator::LessOrEqual => Some((vec![0; value.len()], value.clone())),
                Operator::Greater => neighbour(value, 1).map(|first| (first, vec![u8::MAX; value.len()])),
                Operator::GreaterOrEqual => Some((value.clone(), vec![u8::MAX; value.len()])),
                Operator::Equal | Operator::NotEqual => None,
            };
            ends.map(|(from, to)| Expression::Range { register: *register, inverted: false, from, to })
        } else {
            None
        };
        let joined = match (found.last_mut(), &range) {
            // From one comparison and to the next one.
            (
                Some(Expression::Range { register: known, inverted: false, to, .. }),
                Some(Expression::Range { register, to: last, .. }),
            ) if known == register && to.iter().all(|byte| *byte == u8::MAX) => {
                to.clone_from(last);
                true
            }
            _ => false,
        };
        if !joined {
            found.push(range.unwrap_or_else(|| expression.clone()));
        }
    }
    found
}

/// The number before (with 255) or behind (with 1) one in network byte order; `None` if there is none.
fn neighbour(value: &[u8], step: u8) -> Option<Vec<u8>> {
    let mut next = value.to_vec();
    let end = if step == 1 { u8::MAX } else { 0 };
    for byte in next.iter_mut().rev() {
        let carries = *byte == end;
        *byte = byte.wrapping_add(step);
        if !carries {
            return Some(next);
        }
    }
    None
}
