//! Rules of native tables in terms of the model: straight from what the kernel runs.

use ipnetwork::IpNetwork;
use nfnetlink::nftables::{CtKey, Elements, Expression, MetaKey, PayloadBase, Register, Set, Verdict};

use super::expressions::{address, half, interface, is_not, number, port, prefix, quoted};
use super::statement::{set, test};
use super::words::chain_name;
use crate::live_rules::{Effect, LiveRule, Meaning, Reading};
use crate::model::{
    Chain, CtState, Family, Mark, Match, Matcher, Owner, Port, Ports, Protocol, Statement, Syn, Target,
    Transport,
};

/// `--syn`: of these flags, that one alone.
const FIN_SYN_RST_ACK: u8 = 0x17;
const SYN: u8 = 0x02;

/// The equivalent rules of a rule in terms of the model, one for each element of its sets; none if it is for
/// packets of the other family. `None` if the model lacks terms for it.
pub(super) fn rules_of(family: Family, expressions: &[Expression], sets: &[Set]) -> Option<Vec<LiveRule>> {
    let mut reader = Reader { family, sets, matchers: vec![Matcher::default()], field: None, constant: None };
    let mut actions = Vec::new();
    for expression in expressions {
        actions.extend(reader.read(expression)?);
        if reader.matchers.is_empty() {
            return Some(Vec::new());
        }
    }
    let action = match actions.as_slice() {
        [action] => action.clone(),
        // What is handed to a socket is marked and accepted.
        [Action::ToSocket(port), Action::Target(Target::SetMark(mark)), Action::Target(Target::Accept)] => {
            Action::Target(Target::Tproxy { port: *port, mark: *mark })
        }
        _ => return None,
    };
    reader.matchers.into_iter().map(|matcher| action.of(matcher)).collect()
}

/// What a rule does.
#[derive(Clone)]
enum Action {
    Target(Target),
    /// Goes on in another chain than those of the model, or does not come back.
    Chain {
        name: String,
        is_goto: bool,
    },
    /// Hands the packet to a socket on this port.
    ToSocket(Port),
}

impl Action {
    fn of(&self, matcher: Matcher) -> Option<LiveRule> {
        let (name, is_goto) = match self {
            Self::Target(target) => return Some(Statement { matcher, target: *target }.into()),
            Self::Chain { name, is_goto } => (name.clone(), *is_goto),
            Self::ToSocket(_) => return None,
        };
        let option = if is_goto { "-g" } else { "-j" };
        let words = format!("{matcher}{option} {}", quoted(&name));
        let target = vec![option.to_owned(), name.clone()];
        let reading = Reading {
            tests: (&matcher).into(),
            unread: Vec::new(),
            effect: Effect::Chain { name, is_goto },
            lacks_words: false,
            is_incomplete: false,
        };
        Some(LiveRule::read(Meaning::Read(reading), words, target))
    }
}

/// What the register holds.
#[derive(Clone, Copy)]
enum Field {
    InInterface,
    OutInterface,
    Family,
    Protocol,
    /// So many bits of it.
    Source(u8),
    /// So many bits of it.
    Destination(u8),
    SourcePort,
    DestinationPort,
    /// The flags of TCP out of these.
    Flags(u8),
    /// The user or the group.
    Owner(fn(u32) -> Owner),
    /// The state of the connection out of these bits.
    State(u32),
    Mark,
    Connmark,
}

struct Reader<'a> {
    family: Family,
    sets: &'a [Set],
    /// What the tests are so far: one for each element, if one is of a set.
    matchers: Vec<Matcher>,
    field: Option<Field>,
    constant: Option<&'a [u8]>,
}

impl<'a> Reader<'a> {
    /// Reads an expression: the action, if it is one.
    #[allow(clippy::wildcard_enum_match_arm, reason = "what else loads something is read there")]
    fn read(&mut self, expression: &'a Expression) -> Option<Option<Action>> {
        let target = match expression {
            Expression::Counter { .. } => return Some(None),
            Expression::Verdict(verdict) => return of_verdict(verdict).map(Some),
            Expression::Tproxy { port: Register::ONE, .. } => {
                return Some(Some(Action::ToSocket(self.port()?)));
            }
            Expression::Redirect { port: Some(Register::ONE) } => Target::Redirect(self.port()?),
            Expression::SetMeta { key: MetaKey::Mark, register: Register::ONE } => {
                match (self.field, self.constant) {
                    (Some(Field::Connmark), None) => Target::RestoreMark,
                    (None, Some(mark)) => Target::SetMark(Mark(whole(mark)?)),
                    _ => return None,
                }
            }
            Expression::SetCt { key: CtKey::Mark, register: Register::ONE } => {
                matches!(self.field, Some(Field::Mark)).then_some(Target::SaveMark)?
            }
            Expression::SetCt { key: CtKey::Zone, register: Register::ONE } => {
                Target::ConntrackZone(half(self.constant?, 0)?)
            }
            Expression::Compare { register: Register::ONE, operator, value } => {
                return self.tested(is_not(*operator)?, value).map(|()| None);
            }
            Expression::Lookup { set, register: Register::ONE, inverted } => {
                return self.looked_up(set, *inverted).map(|()| None);
            }
            Expression::Bitwise { source: Register::ONE, destination: Register::ONE, mask, xor } => {
                return self.masked(mask, xor).map(|()| None);
            }
            Expression::Immediate { register: Register::ONE, value } => {
                (self.field, self.constant) = (None, Some(value.as_slice()));
                return Some(None);
            }
            other => {
                (self.field, self.constant) = (Some(self.loaded(other)?), None);
                return Some(None);
            }
        };
        Some(Some(Action::Target(target)))
    }

    fn port(&self) -> Option<Port> {
        Port::new(port(self.constant?)?)
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "nothing else is loaded by rules of ours")]
    fn loaded(&self, expression: &Expression) -> Option<Field> {
        Some(match expression {
            Expression::Meta { key, register: Register::ONE } => match key {
                MetaKey::InInterface => Field::InInterface,
                MetaKey::OutInterface => Field::OutInterface,
                MetaKey::NetworkProtocol => Field::Family,
                MetaKey::TransportProtocol => Field::Protocol,
                MetaKey::Mark => Field::Mark,
                MetaKey::SocketUid => Field::Owner(Owner::Uid),
                MetaKey::SocketGid => Field::Owner(Owner::Gid),
                MetaKey::InInterfaceIndex | MetaKey::OutInterfaceIndex => return None,
            },
            Expression::Ct { key: CtKey::Mark, register: Register::ONE } => Field::Connmark,
            Expression::Ct { key: CtKey::State, register: Register::ONE } => Field::State(0),
            Expression::Payload { base: PayloadBase::Transport, offset, length, register: Register::ONE } => {
                match (offset, length) {
                    (0, 2) => Field::SourcePort,
                    (2, 2) => Field::DestinationPort,
                    (13, 1) => Field::Flags(u8::MAX),
                    _ => return None,
                }
            }
            Expression::Payload { base: PayloadBase::Network, offset, length, register: Register::ONE } => {
                let bits = u8::try_from(length.checked_mul(8)?).ok()?;
                match (self.family, offset, length) {
                    (Family::V4, 12, 1..=4) | (Family::V6, 8, 1..=16) => Field::Source(bits),
                    (Family::V4, 16, 1..=4) | (Family::V6, 24, 1..=16) => Field::Destination(bits),
                    _ => return None,
                }
            }
            _ => return None,
        })
    }

    /// Says which bits count.
    fn masked(&mut self, mask: &[u8], xor: &[u8]) -> Option<()> {
        xor.iter().all(|byte| *byte == 0).then_some(())?;
        match (self.field.as_mut()?, mask) {
            (Field::Source(bits) | Field::Destination(bits), mask) => *bits = prefix(mask)?,
            (Field::Flags(bits), [mask]) => *bits = *mask,
            (Field::State(bits), mask) => *bits = number(mask, 0)?,
            _ => return None,
        }
        Some(())
    }

    fn tested(&mut self, is_negated: bool, value: &[u8]) -> Option<()> {
        let field = self.field?;
        if let Field::Family = field {
            let own = match self.family {
                Family::V4 => libc::NFPROTO_IPV4,
                Family::V6 => libc::NFPROTO_IPV6,
            };
            if (value == u8::try_from(own).ok()?.to_ne_bytes()) == is_negated {
                self.matchers.clear();
            }
            return Some(());
        }
        let test = Test { family: self.family, field, is_negated, value };
        self.matchers.iter_mut().try_for_each(|matcher| test.add_to(matcher))
    }

    fn looked_up(&mut self, name: &str, is_negated: bool) -> Option<()> {
        let (field, family) = (self.field?, self.family);
        let set = self.sets.iter().find(|set| set.name == name)?;
        let test = |field, value| Test { family, field, is_negated, value };
        let networks;
        let tests: Vec<Test<'_>> = match (&set.elements, field) {
            (Elements::Values(values), _) => values.iter().map(|value| test(field, value)).collect(),
            (Elements::Ranges(ranges), Field::Source(_) | Field::Destination(_)) => {
                networks =
                    ranges.iter().flat_map(|(first, last)| networks_of(first, last)).collect::<Vec<_>>();
                let of = |bits| {
                    if matches!(field, Field::Source(_)) {
                        Field::Source(bits)
                    } else {
                        Field::Destination(bits)
                    }
                };
                networks.iter().map(|(address, bits)| test(of(*bits), address)).collect()
            }
            (Elements::Ranges(_) | Elements::Foreign(_), _) => return None,
        };
        if is_negated {
            return self.matchers.iter_mut().try_for_each(|matcher| none_of(&tests, matcher));
        }
        let mut matchers = Vec::with_capacity(self.matchers.len() * tests.len());
        for matcher in &self.matchers {
            for test in &tests {
                let mut matcher = matcher.clone();
                test.add_to(&mut matcher)?;
                matchers.push(matcher);
            }
        }
        self.matchers = matchers;
        Some(())
    }
}

/// A comparison of a field with a value.
#[derive(Clone, Copy)]
struct Test<'a> {
    family: Family,
    field: Field,
    is_negated: bool,
    value: &'a [u8],
}

impl Test<'_> {
    fn add_to(&self, matcher: &mut Matcher) -> Option<()> {
        let Self { family, field, is_negated, value } = *self;
        let network = |bits| Some(test(is_negated, IpNetwork::new(address(family, value)?, bits).ok()?));
        match (field, is_negated) {
            (Field::InInterface, false) => set(&mut matcher.in_interface, interface(value)?.parse().ok()?),
            (Field::OutInterface, false) => set(&mut matcher.out_interface, interface(value)?.parse().ok()?),
            (Field::Protocol, false) => {
                let transport = match value {
                    [6] => Transport::Tcp,
                    [17] => Transport::Udp,
                    _ => return None,
                };
                set(&mut matcher.protocol, Protocol::all(transport))
            }
            (Field::Source(bits), _) => set(&mut matcher.source, network(bits)?),
            (Field::Destination(bits), _) => set(&mut matcher.destination, network(bits)?),
            (Field::SourcePort, false) => {
                set(&mut matcher.protocol.as_mut()?.source, Port::new(port(value)?)?)
            }
            (Field::DestinationPort, _) => {
                let ports = Ports::One(Port::new(port(value)?)?);
                set(&mut matcher.protocol.as_mut()?.destination, test(is_negated, ports))
            }
            (Field::Flags(FIN_SYN_RST_ACK), _) if value == [SYN] => {
                let protocol = matcher.protocol.as_mut().filter(|it| it.transport == Transport::Tcp)?;
                set(&mut protocol.syn, test(is_negated, Syn))
            }
            (Field::State(bits), true) if value == [0; 4] => {
                let state = match bits {
                    1 => CtState::Invalid,
                    6 => CtState::RelatedOrEstablished,
                    _ => return None,
                };
                set(&mut matcher.ct_state, state)
            }
            (Field::Mark, _) => set(&mut matcher.mark, test(is_negated, Mark(whole(value)?))),
            (Field::Connmark, false) => set(&mut matcher.connmark, Mark(whole(value)?)),
            (Field::Owner(owner), _) => {
                matcher.owners.push(test(is_negated, owner(whole(value)?)));
                Some(())
            }
            _ => None,
        }
    }
}

/// Adds that none of some tests of one field fails.
fn none_of(tests: &[Test<'_>], matcher: &mut Matcher) -> Option<()> {
    match tests {
        [Test { field: Field::DestinationPort, .. }, _, ..] => {
            let ports: Option<Vec<Port>> = tests.iter().map(|test| Port::new(port(test.value)?)).collect();
            set(&mut matcher.protocol.as_mut()?.destination, Match::Not(Ports::Any(ports?)))
        }
        tests => tests.iter().try_for_each(|test| test.add_to(matcher)),
    }
}

/// `None` for one that no rule of ours has.
fn of_verdict(verdict: &Verdict) -> Option<Action> {
    let (name, is_goto) = match verdict {
        Verdict::Accept => return Some(Action::Target(Target::Accept)),
        Verdict::Drop => return Some(Action::Target(Target::Drop)),
        Verdict::Return => return Some(Action::Target(Target::Return)),
        Verdict::Continue => return None,
        Verdict::Jump(chain) => (chain_name(chain), false),
        Verdict::Goto(chain) => (chain_name(chain), true),
    };
    Some(match Chain::from_name(&name).filter(|_| !is_goto) {
        Some(chain) => Action::Target(Target::Jump(chain)),
        None => Action::Chain { name, is_goto },
    })
}

/// A mark, or a user or a group.
fn whole(value: &[u8]) -> Option<u32> {
    number(value, 0).filter(|_| value.len() == 4)
}

/// The networks, as address and length of the prefix, that a range of addresses consists of.
fn networks_of(first: &[u8], last: &[u8]) -> Vec<(Vec<u8>, u8)> {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| (number << 8) | u128::from(*byte));
    let length = first.len().min(16);
    let bits = u32::try_from(8 * length).unwrap_or(128);
    let (mut next, last) = (number(first), number(last));
    let mut networks = Vec::new();
    while next <= last {
        // The largest network that begins here and does not end behind the range.
        let mut hosts = next.trailing_zeros().min(bits);
        while hosts > 0 && end(next, hosts) > last {
            hosts -= 1;
        }
        let address = next.to_be_bytes().into_iter().skip(16 - length).collect();
        networks.push((address, u8::try_from(bits - hosts).unwrap_or(128)));
        let Some(behind) = end(next, hosts).checked_add(1) else { break };
        next = behind;
    }
    networks
}

/// The last address of a network with so many host bits.
const fn end(first: u128, hosts: u32) -> u128 {
    match 1_u128.checked_shl(hosts) {
        Some(size) => first | (size - 1),
        None => u128::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_apart_into_networks() {
        let of = |first: [u8; 4], last: [u8; 4]| -> Vec<String> {
            let text = |bytes: &[u8]| bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(".");
            let networks = networks_of(&first, &last);
            networks.iter().map(|(address, bits)| format!("{}/{bits}", text(address))).collect()
        };
        assert_eq!(of([10, 0, 0, 0], [10, 255, 255, 255]), ["10.0.0.0/8"]);
        assert_eq!(of([10, 0, 0, 1], [10, 0, 0, 4]), ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/32"]);
        assert_eq!(of([0, 0, 0, 0], [255, 255, 255, 255]), ["0.0.0.0/0"]);
        assert_eq!(of([255, 255, 255, 255], [255, 255, 255, 255]), ["255.255.255.255/32"]);
        assert_eq!(networks_of(&[0; 16], &[255; 16]), [(vec![0; 16], 0)]);
    }
}
