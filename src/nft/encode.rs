//! The netlink form of the tables.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use nfnetlink::nftables::{
    Base, Chain, ChainKind, Comment, CtKey, Elements, Expression, Hook as NftHook, KeyType, MetaKey,
    Operator, PayloadBase, Register, Rule, Set, Table, TableName, Verdict,
};

use super::sets::bytes;
use super::types::{Action, ChainName, Field, NativeRule, NativeTable, Operand, Test, Value, Values};
use crate::model::{CtState, Family, Hook, Interface, Match, Table as ModelTable, Transport};

/// Length of an interface's name in the kernel.
const IFNAMSIZ: usize = 16;

/// A table as it is written by netlink; its normalized form equals that of what is read back.
#[must_use]
pub fn encode(native: &NativeTable) -> Table {
    let mut sets: Vec<Set> =
        native.sets.iter().map(|(name, values)| set(name.clone(), values, false)).collect();
    let mut chains = Vec::with_capacity(native.chains.len());
    let mut anonymous = Vec::new();
    for chain in &native.chains {
        let rules = chain.rules.iter().map(|rule| Encoder { anonymous: &mut anonymous }.rule(rule)).collect();
        let base = match chain.name {
            ChainName::Hook(hook) => Some(base(native.table, hook)),
            ChainName::Own(_) | ChainName::RestOfHook(..) | ChainName::RestOfOwn(..) => None,
        };
        chains.push(Chain { name: chain.name.to_string(), base, rules });
    }
    sets.extend(anonymous);
    let name = TableName::new(nfnetlink::nftables::Family::Inet, native.name());
    Table { sets, chains, ..Table::new(name) }.numbered()
}

fn base(table: ModelTable, hook: Hook) -> Base {
    let place = match hook {
        Hook::Prerouting => NftHook::Prerouting,
        Hook::Output => NftHook::Output,
    };
    Base {
        kind: ChainKind::of(table.chain_type(hook)),
        hook: place,
        priority: table.priority(),
        policy: Verdict::Accept,
    }
}

fn set(name: String, values: &Values, anonymous: bool) -> Set {
    let numbers = |list: &[u32]| Elements::Values(list.iter().map(|id| id.to_ne_bytes().to_vec()).collect());
    let of = |family: &Family| match family {
        Family::V4 => KeyType::Ipv4Address,
        Family::V6 => KeyType::Ipv6Address,
    };
    let (key, elements) = match values {
        Values::Interfaces(list) => {
            (KeyType::InterfaceName, Elements::Values(list.iter().map(interface).collect()))
        }
        Values::Addresses(family, list) => {
            (of(family), Elements::Values(list.iter().copied().map(bytes).collect()))
        }
        Values::Ranges(family, list) => {
            let range = |(first, last): &(IpAddr, IpAddr)| (bytes(*first), bytes(*last));
            (of(family), Elements::Ranges(list.iter().map(range).collect()))
        }
        Values::Ports(list) => {
            let ports = list.iter().map(|port| port.number().to_be_bytes().to_vec());
            (KeyType::Port, Elements::Values(ports.collect()))
        }
        Values::Uids(list) => (KeyType::Uid, numbers(list)),
        Values::Gids(list) => (KeyType::Gid, numbers(list)),
    };
    Set { name, key, anonymous, elements }
}

/// A whole name, padded; or the bytes of a prefix of names.
fn interface(name: &Interface) -> Vec<u8> {
    match name.as_str().strip_suffix('+') {
        Some(prefix) => prefix.as_bytes().to_vec(),
        None => {
            let mut bytes = name.as_str().as_bytes().to_vec();
            bytes.resize(IFNAMSIZ, 0);
            bytes
        }
    }
}

struct Encoder<'a> {
    anonymous: &'a mut Vec<Set>,
}

impl Encoder<'_> {
    fn rule(&mut self, rule: &NativeRule) -> Rule {
        let mut tested = TestedFields::default();
        let mut expressions = Vec::new();
        for test in &rule.tests {
            self.test(&mut expressions, test, &mut tested);
        }
        expressions.push(Expression::counter());
        action(&mut expressions, &rule.action);
        Rule { comment: Comment::new(&rule.comment()), ..Rule::new(expressions) }
    }

    fn test(&mut self, to: &mut Vec<Expression>, test: &Test, tested: &mut TestedFields) {
        match test {
            Test::Family(family) => tested.family(to, *family),
            Test::Field(field, operand) => self.field(to, *field, operand, tested),
            Test::Protocol(transport) => tested.transport(to, *transport),
            Test::Syn(syn) => {
                const FLAGS: u32 = 13;
                const FIN_SYN_RST_ACK: u8 = 0x17;
                const SYN: u8 = 0x02;
                tested.transport(to, Transport::Tcp);
                to.push(Expression::payload(PayloadBase::Transport, FLAGS, 1));
                to.push(masked(vec![FIN_SYN_RST_ACK]));
                to.push(compare(operator(syn), vec![SYN]));
            }
            Test::State(state) => {
                let bits: u32 = match state {
                    CtState::Invalid => 1,
                    CtState::RelatedOrEstablished => 2 | 4,
                };
                to.push(Expression::ct(CtKey::State));
                to.push(masked(bits.to_ne_bytes().to_vec()));
                to.push(compare(Operator::NotEqual, vec![0; 4]));
            }
            Test::Mark(mark) => {
                to.push(Expression::meta(MetaKey::Mark));
                to.push(compare(operator(mark), mark.value().0.to_ne_bytes().to_vec()));
            }
            Test::Connmark(mark) => {
                to.push(Expression::ct(CtKey::Mark));
                to.push(Expression::equal(mark.0.to_ne_bytes()));
            }
        }
    }

    fn field(
        &mut self,
        to: &mut Vec<Expression>,
        field: Field,
        operand: &Match<Operand>,
        tested: &mut TestedFields,
    ) {
        let inverted = matches!(operand, Match::Not(_));
        let set = match operand.value() {
            Operand::One(value) => return one(to, field, value, operator(operand), tested),
            Operand::Named(name) => name.clone(),
            Operand::Anonymous(values) => {
                // The kernel chooses the name; this one is for reference.
                let name = format!("__set{}", self.anonymous.len());
                self.anonymous.push(set(name.clone(), values, true));
                name
            }
        };
        tested.implied_by(to, field);
        to.push(load(field, None));
        to.push(Expression::Lookup { set, register: Register::ONE, inverted });
    }
}

/// What the expressions of a rule have tested already.
#[derive(Default)]
struct TestedFields {
    family: Option<Family>,
    transport: Option<Transport>,
}

impl TestedFields {
    fn family(&mut self, to: &mut Vec<Expression>, family: Family) {
        if self.family.replace(family) != Some(family) {
            let number = match family {
                Family::V4 => libc::NFPROTO_IPV4,
                Family::V6 => libc::NFPROTO_IPV6,
            };
            to.push(Expression::meta(MetaKey::NetworkProtocol));
            to.push(Expression::equal([u8::try_from(number).unwrap_or(0)]));
        }
    }

    fn transport(&mut self, to: &mut Vec<Expression>, transport: Transport) {
        if self.transport.replace(transport) != Some(transport) {
            let number = match transport {
                Transport::Tcp => libc::IPPROTO_TCP,
                Transport::Udp => libc::IPPROTO_UDP,
            };
            to.push(Expression::meta(MetaKey::TransportProtocol));
            to.push(Expression::equal([u8::try_from(number).unwrap_or(0)]));
        }
    }

    /// The tests without which the bytes at the field's place are something else.
    fn implied_by(&mut self, to: &mut Vec<Expression>, field: Field) {
        match field {
            Field::Source(family) | Field::Destination(family) => self.family(to, family),
            Field::SourcePort(transport) | Field::DestinationPort(transport) => self.transport(to, transport),
            Field::InInterface | Field::OutInterface | Field::Uid | Field::Gid => {}
        }
    }
}

/// Loads a field, or the first bytes of an address.
fn load(field: Field, length: Option<u32>) -> Expression {
    let address = |v4, v6, family| {
        let (offset, whole) = match family {
            Family::V4 => (v4, 4),
            Family::V6 => (v6, 16),
        };
        Expression::payload(PayloadBase::Network, offset, length.unwrap_or(whole))
    };
    match field {
        Field::InInterface => Expression::meta(MetaKey::InInterface),
        Field::OutInterface => Expression::meta(MetaKey::OutInterface),
        Field::Source(family) => address(12, 8, family),
        Field::Destination(family) => address(16, 24, family),
        Field::SourcePort(_) => Expression::payload(PayloadBase::Transport, 0, 2),
        Field::DestinationPort(_) => Expression::payload(PayloadBase::Transport, 2, 2),
        Field::Uid => Expression::meta(MetaKey::SocketUid),
        Field::Gid => Expression::meta(MetaKey::SocketGid),
    }
}

/// Compares a field with one value.
fn one(to: &mut Vec<Expression>, field: Field, value: &Value, operator: Operator, tested: &mut TestedFields) {
    tested.implied_by(to, field);
    let constant = match value {
        Value::Interface(name) => interface(name),
        Value::Port(port) => port.number().to_be_bytes().to_vec(),
        Value::Id(id) => id.to_ne_bytes().to_vec(),
        Value::Network(network) => return one_network(to, field, *network, operator),
    };
    to.push(load(field, None));
    to.push(compare(operator, constant));
}

/// As nft does it: a prefix of whole bytes is a shorter load, another one is masked.
fn one_network(to: &mut Vec<Expression>, field: Field, network: IpNetwork, operator: Operator) {
    let (address, mask) = (bytes(network.network()), bytes(network.mask()));
    let prefix = usize::from(network.prefix());
    if prefix > 0 && prefix % 8 == 0 {
        let length = prefix / 8;
        to.push(load(field, u32::try_from(length).ok()));
        to.push(compare(operator, address.into_iter().take(length).collect()));
    } else {
        to.push(load(field, None));
        to.push(masked(mask));
        to.push(compare(operator, address));
    }
}

const fn operator<T>(test: &Match<T>) -> Operator {
    match test {
        Match::Is(_) => Operator::Equal,
        Match::Not(_) => Operator::NotEqual,
    }
}

const fn compare(operator: Operator, value: Vec<u8>) -> Expression {
    Expression::Compare { register: Register::ONE, operator, value }
}

/// Keeps these bits of register 1.
fn masked(mask: Vec<u8>) -> Expression {
    let xor = vec![0; mask.len()];
    Expression::Bitwise { source: Register::ONE, destination: Register::ONE, mask, xor }
}

fn action(to: &mut Vec<Expression>, action: &Action) {
    let verdict = |verdict| Expression::Verdict(verdict);
    let port = |port: crate::model::Port| Expression::immediate(port.number().to_be_bytes());
    let set_mark = Expression::SetMeta { key: MetaKey::Mark, register: Register::ONE };
    match action {
        Action::Accept => to.push(verdict(Verdict::Accept)),
        Action::Drop => to.push(verdict(Verdict::Drop)),
        Action::Return => to.push(verdict(Verdict::Return)),
        Action::Jump(chain) => to.push(verdict(Verdict::Jump(chain.to_string()))),
        Action::Goto(chain) => to.push(verdict(Verdict::Goto(chain.to_string()))),
        Action::Redirect(number) => {
            to.extend([port(*number), Expression::Redirect { port: Some(Register::ONE) }]);
        }
        Action::Tproxy { family, port: number, mark } => {
            let family = match family {
                None => nfnetlink::nftables::Family::Inet,
                Some(Family::V4) => nfnetlink::nftables::Family::Ip,
                Some(Family::V6) => nfnetlink::nftables::Family::Ip6,
            };
            to.extend([port(*number), Expression::Tproxy { family, port: Register::ONE }]);
            to.extend([Expression::immediate(mark.0.to_ne_bytes()), set_mark, verdict(Verdict::Accept)]);
        }
        Action::SetMark(mark) => to.extend([Expression::immediate(mark.0.to_ne_bytes()), set_mark]),
        Action::SaveMark => {
            let save = Expression::SetCt { key: CtKey::Mark, register: Register::ONE };
            to.extend([Expression::meta(MetaKey::Mark), save]);
        }
        Action::RestoreMark => to.extend([Expression::ct(CtKey::Mark), set_mark]),
        Action::Zone(zone) => {
            let zone = Expression::immediate(zone.to_ne_bytes());
            to.extend([zone, Expression::SetCt { key: CtKey::Zone, register: Register::ONE }]);
        }
    }
}
