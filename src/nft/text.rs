//! The text that `nft -f` reads, in the words in which `nft list ruleset` prints it.

use std::fmt::{self, Display};
use std::net::IpAddr;

use super::sets::{first_and_last, network_of};
use super::types::{
    Action, ChainName, Field, NativeChain, NativeRule, NativeTable, Operand, Test, Value, Values,
};
use crate::model::{CtState, Family, Hook, Interface, Mark, Match, Table};

/// Elements of a named set in one line.
const ELEMENTS_IN_A_LINE: usize = 6;

/// The definition of tables, for a namespace that has none of them.
#[must_use]
pub fn text(tables: &[NativeTable]) -> String {
    tables.iter().map(NativeTable::to_string).collect()
}

impl Display for NativeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table inet {} {{", self.name())?;
        for (name, values) in &self.sets {
            set(f, name, values)?;
            f.write_str("\n")?;
        }
        for (index, part) in self.chains.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            chain(f, self.table, part)?;
        }
        f.write_str("}\n")
    }
}

fn set(f: &mut fmt::Formatter<'_>, name: &str, values: &Values) -> fmt::Result {
    let kind = match values {
        Values::Interfaces(_) => "ifname",
        Values::Addresses(Family::V4, _) | Values::Ranges(Family::V4, _) => "ipv4_addr",
        Values::Addresses(Family::V6, _) | Values::Ranges(Family::V6, _) => "ipv6_addr",
        Values::Ports(_) => "inet_service",
        Values::Uids(_) => "uid",
        Values::Gids(_) => "gid",
    };
    writeln!(f, "\tset {name} {{\n\t\ttype {kind}")?;
    if matches!(values, Values::Ranges(..)) {
        f.write_str("\t\tflags interval\n")?;
    }
    let elements = elements(values);
    let lines: Vec<String> = elements.chunks(ELEMENTS_IN_A_LINE).map(|line| line.join(", ")).collect();
    writeln!(f, "\t\telements = {{ {} }}\n\t}}", lines.join(",\n\t\t\t     "))
}

fn elements(values: &Values) -> Vec<String> {
    match values {
        Values::Interfaces(list) => list.iter().map(interface).collect(),
        Values::Addresses(_, list) => list.iter().map(IpAddr::to_string).collect(),
        Values::Ranges(_, list) => list.iter().map(|(first, last)| range(*first, *last)).collect(),
        Values::Ports(list) => list.iter().map(ToString::to_string).collect(),
        Values::Uids(list) | Values::Gids(list) => list.iter().map(ToString::to_string).collect(),
    }
}

/// A range, as a prefix if it is one.
fn range(first: IpAddr, last: IpAddr) -> String {
    match network_of(first, last) {
        Some(_) if first == last => first.to_string(),
        Some(network) => network.to_string(),
        None => format!("{first}-{last}"),
    }
}

fn interface(name: &Interface) -> String {
    match name.as_str().strip_suffix('+') {
        Some(prefix) => format!("\"{prefix}*\""),
        None => format!("\"{name}\""),
    }
}

fn chain(f: &mut fmt::Formatter<'_>, table: Table, chain: &NativeChain) -> fmt::Result {
    writeln!(f, "\tchain {} {{", chain.name)?;
    if let ChainName::Hook(hook) = chain.name {
        let kind = table.chain_type(hook);
        let (place, priority) = match (table, hook) {
            // `dstnat` is a word for prerouting only.
            (Table::Nat, Hook::Output) => ("output", "-100"),
            (Table::Nat, Hook::Prerouting) => ("prerouting", "dstnat"),
            (Table::Mangle, Hook::Prerouting) => ("prerouting", "mangle"),
            (Table::Mangle, Hook::Output) => ("output", "mangle"),
            (Table::Raw, Hook::Prerouting) => ("prerouting", "raw"),
            (Table::Raw, Hook::Output) => ("output", "raw"),
        };
        writeln!(f, "\t\ttype {kind} hook {place} priority {priority}; policy accept;")?;
    }
    for rule in &chain.rules {
        writeln!(f, "\t\t{rule}")?;
    }
    f.write_str("\t}\n")
}

impl Display for NativeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for test in &self.tests {
            write!(f, "{test} ")?;
        }
        write!(f, "counter {} comment \"{}\"", self.action, self.comment())
    }
}

impl Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Family(Family::V4) => f.write_str("meta nfproto ipv4"),
            Self::Family(Family::V6) => f.write_str("meta nfproto ipv6"),
            Self::Field(field, operand) => write!(f, "{field} {}{}", not(operand), operand.value()),
            Self::Protocol(transport) => write!(f, "meta l4proto {}", transport.name()),
            Self::Syn(Match::Is(_)) => f.write_str("tcp flags syn / fin,syn,rst,ack"),
            Self::Syn(Match::Not(_)) => f.write_str("tcp flags != syn / fin,syn,rst,ack"),
            Self::State(CtState::Invalid) => f.write_str("ct state invalid"),
            Self::State(CtState::RelatedOrEstablished) => f.write_str("ct state established,related"),
            Self::Mark(mark) => write!(f, "meta mark {}{}", not(mark), hexadecimal(*mark.value())),
            Self::Connmark(mark) => write!(f, "ct mark {}", hexadecimal(*mark)),
        }
    }
}

const fn not<T>(test: &Match<T>) -> &'static str {
    match test {
        Match::Is(_) => "",
        Match::Not(_) => "!= ",
    }
}

fn hexadecimal(mark: Mark) -> String {
    format!("0x{:08x}", mark.0)
}

impl Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = |family: &Family| match family {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        };
        match self {
            Self::InInterface => f.write_str("iifname"),
            Self::OutInterface => f.write_str("oifname"),
            Self::Source(family) => write!(f, "{} saddr", ip(family)),
            Self::Destination(family) => write!(f, "{} daddr", ip(family)),
            Self::SourcePort(transport) => write!(f, "{} sport", transport.name()),
            Self::DestinationPort(transport) => write!(f, "{} dport", transport.name()),
            Self::Uid => f.write_str("meta skuid"),
            Self::Gid => f.write_str("meta skgid"),
        }
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(Value::Interface(name)) => f.write_str(&interface(name)),
            Self::One(Value::Network(network)) => {
                let (first, last) = first_and_last(*network);
                f.write_str(&range(first, last))
            }
            Self::One(Value::Port(port)) => port.fmt(f),
            Self::One(Value::Id(id)) => id.fmt(f),
            Self::Anonymous(values) => write!(f, "{{ {} }}", elements(values).join(", ")),
            Self::Named(name) => write!(f, "@{name}"),
        }
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::Redirect(port) => write!(f, "redirect to :{port}"),
            Self::Tproxy { family, port, mark } => {
                let family = match family {
                    Some(Family::V4) => "ip ",
                    Some(Family::V6) => "ip6 ",
                    None => "",
                };
                write!(f, "tproxy {family}to :{port} meta mark set {} accept", hexadecimal(*mark))
            }
            Self::SetMark(mark) => write!(f, "meta mark set {}", hexadecimal(*mark)),
            Self::SaveMark => f.write_str("ct mark set meta mark"),
            Self::RestoreMark => f.write_str("meta mark set ct mark"),
            Self::Zone(zone) => write!(f, "ct zone set {zone}"),
        }
    }
}
