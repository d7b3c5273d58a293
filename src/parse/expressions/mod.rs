//! Turns rules of nf_tables into the words of `iptables-save`.
//!
//! iptables writes the same rule in forms that differ by version: all of them are read into the same words.

mod decode;
mod extension;
mod foreign;
mod native_rule;
mod translation;
mod values;

use std::net::IpAddr;

use nfnetlink::nftables::{
    CtKey, Expression, Family as TableFamily, MetaKey, Operator, PayloadBase, Register, Rule, TableName,
    Verdict,
};

use super::UNREADABLE;
use crate::model::Family;

pub(super) use decode::{address, half, interface, number, port, quoted};
pub(super) use extension::{Extension, of_match, of_target};
use extension::{XT_NAME, extension, queue};
pub use foreign::{RuleContext, foreign_rules};
pub(super) use values::prefix;

/// What every rule with something that is not understood tests: no rule of ours does.
const UNKNOWN: &str = "-m unknown ";

/// Whether a table of nftables has packets of a family.
#[must_use]
pub fn has_packets_of(table: &TableName, family: Family) -> bool {
    match table.family {
        TableFamily::Inet => true,
        TableFamily::Ip => family == Family::V4,
        TableFamily::Ip6 => family == Family::V6,
    }
}

/// The words of a rule behind `-A CHAIN`.
#[must_use]
pub fn words_of_rule(family: Family, rule: &Rule) -> String {
    read_rule(family, rule).text
}

/// The words of a rule.
pub(super) struct ReadRule {
    pub(super) text: String,
    /// Whether they are all that the rule says, but for options of matches.
    pub(super) is_complete: bool,
    /// Whether options of an extension are missing.
    pub(super) lacks_options: bool,
}

/// The words of a rule, and what they leave out.
pub(super) fn read_rule(family: Family, rule: &Rule) -> ReadRule {
    let mut reader = Reader { family, names_protocols: true, ..Reader::default() };
    for expression in &rule.expressions {
        let understood = reader.read(expression);
        reader.note(understood);
    }
    if let Some(comment) = &rule.comment {
        reader.tests += &format!("-m comment --comment {} ", quoted(comment.as_str()));
    }
    let is_complete = !reader.is_unknown && !reader.has_unread_target;
    let lacks_options = reader.has_unread_match || reader.has_unread_target;
    ReadRule { text: reader.into_words(), is_complete, lacks_options }
}

/// What the register holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loaded {
    /// The option for the interface; whether it is its number instead of its name.
    Interface(&'static str, bool),
    Protocol,
    /// The extension for the mark of the packet or of the connection, the bits of it that are kept, and those
    /// that are toggled then.
    Mark(&'static str, u32, u32),
    /// The flags of TCP that count.
    Flags(u8),
    /// The network protocol.
    Family,
    /// The option for the socket's user or group.
    Owner(&'static str),
    /// The option for it.
    Port(&'static str),
    /// The state of the connection: these bits of it; as a whole with 0.
    State(u32),
    /// The option, and the bits that count.
    Address(&'static str, u8),
    /// The option, and a mask that is no prefix.
    MaskedAddress(&'static str, IpAddr),
    /// The option for the type of an address, and its limit to an interface.
    AddressType(&'static str, &'static str),
    /// Whether a route leads back to the source, with these options of the extension.
    ReversePath(&'static str),
    /// The bits of the connection's status that count.
    Status(u32),
    /// The direction of the connection.
    Direction,
    /// The option for an address of the connection, and the bits of it that count.
    EndAddress(&'static str, u8),
    /// The option for a port of the connection.
    EndPort(&'static str),
    /// One of so many numbers from the second one on, which nothing in the packet tells.
    Random(u32, u32),
}

#[derive(Clone)]
struct Reader {
    family: Family,
    loaded: Option<Loaded>,
    /// What was loaded since the last test, each into a register of its own.
    fields: Vec<Loaded>,
    /// Whether its bytes are in network byte order, unlike those that the kernel loads.
    is_swapped: bool,
    address: String,
    interface: String,
    protocol: String,
    ports: String,
    tests: String,
    /// Destination ports that are excluded.
    other_ports: Vec<u16>,
    is_unknown: bool,
    /// Whether a match that is not read is there by its name.
    has_unread_match: bool,
    /// Whether ports are preceded by the extension of their protocol, as the save tool prints them.
    names_protocols: bool,
    /// Whether it is a rule of another program's own table, whose chains keep their names.
    is_foreign: bool,
    /// Whether the target has parameters that are not read.
    has_unread_target: bool,
    /// Whether only packets of the other family match.
    is_other_family: bool,
    /// The last constant that was loaded.
    constant: Vec<u8>,
    /// The constants that were loaded since the last load of something else, by their registers.
    constants: Vec<(Register, Vec<u8>)>,
    target: String,
    /// What the rule does before that.
    earlier: Vec<String>,
}

impl Default for Reader {
    fn default() -> Self {
        let [address, interface, protocol, ports, tests, target] = Default::default();
        Self {
            family: Family::V4,
            loaded: None,
            fields: Vec::new(),
            is_swapped: false,
            address,
            interface,
            protocol,
            ports,
            tests,
            other_ports: Vec::new(),
            is_unknown: false,
            has_unread_match: false,
            names_protocols: false,
            is_foreign: false,
            has_unread_target: false,
            is_other_family: false,
            constant: Vec::new(),
            constants: Vec::new(),
            target,
            earlier: Vec::new(),
        }
    }
}

impl Reader {
    const fn unknown(&mut self) {
        self.is_unknown = true;
    }

    fn note(&mut self, understood: Option<()>) {
        if understood.is_none() {
            self.loaded = None;
            self.fields.clear();
            self.unknown();
        }
    }

    /// The words, once for each target.
    fn into_each(mut self) -> Vec<String> {
        let mut targets = std::mem::take(&mut self.earlier);
        targets.push(std::mem::take(&mut self.target));
        let handed = targets.iter().position(|target| target.starts_with(translation::TPROXY));
        let rest = targets.split_off(handed.map_or(targets.len(), |at| at + 1));
        // Where it finds one, the packet gets its mark.
        let mark = rest.iter().find_map(|target| target.strip_prefix("-j MARK "));
        if let (Some(handed), Some(mark)) = (targets.last_mut(), mark) {
            *handed = format!("{handed} {mark}");
        }
        let tests = self.into_words();
        let words = |target: String| format!("{tests} {target}").trim().to_owned();
        targets.into_iter().map(words).collect()
    }

    /// The rule has this target, too.
    fn aim(&mut self, target: String) {
        let earlier = std::mem::replace(&mut self.target, target);
        self.earlier.extend(Some(earlier).filter(|earlier| !earlier.is_empty()));
    }

    fn into_words(self) -> String {
        let Self { address, interface, protocol, ports, tests, other_ports, target, .. } = self;
        let is_unknown = (self.is_unknown || self.has_unread_target) && !self.has_unread_match;
        let unknown = if is_unknown { UNKNOWN } else { "" };
        let listed: Vec<String> = other_ports.iter().map(u16::to_string).collect();
        let other_ports = match listed.as_slice() {
            [] => String::new(),
            [port] => format!("! --dport {port} "),
            ports => format!("-m multiport ! --dports {} ", ports.join(",")),
        };
        let of_protocol = match protocol.as_str() {
            "-p tcp " if self.names_protocols && !ports.is_empty() => "-m tcp ",
            "-p udp " if self.names_protocols && !ports.is_empty() => "-m udp ",
            _ => "",
        };
        let parts: [&str; 9] =
            [&address, &interface, &protocol, of_protocol, &ports, &other_ports, &tests, unknown, &target];
        let mut words = parts.concat();
        words.truncate(words.trim_end().len());
        words
    }

    fn read(&mut self, expression: &Expression) -> Option<()> {
        match expression {
            Expression::Counter { .. } => Some(()),
            Expression::Meta { key, .. } => self.meta(*key),
            Expression::Payload { base: PayloadBase::Network, offset, length, .. } => {
                self.network_header(*offset, *length)
            }
            Expression::Payload { base: PayloadBase::Transport, offset, length, .. } => {
                self.transport_header(*offset, *length)
            }
            Expression::Range { from, to, inverted, .. } => self.range(from, to, *inverted),
            Expression::Bitwise { mask, xor, .. } => self.bitwise(mask, xor),
            Expression::Compare { operator, value, .. } => self.compare(*operator, value),
            Expression::Verdict(verdict) => self.verdict(verdict),
            Expression::Redirect { .. } => self.jump("REDIRECT"),
            Expression::Tproxy { .. } => self.jump("TPROXY"),
            Expression::Foreign { name, data } => self.foreign(name, data),
            Expression::Ct { key: CtKey::State, .. } => self.load(Loaded::State(0)),
            Expression::SetMeta { .. }
            | Expression::Payload { .. }
            | Expression::Lookup { .. }
            | Expression::Ct { .. }
            | Expression::SetCt { .. }
            | Expression::Immediate { .. }
            | Expression::Socket { .. } => None,
        }
    }

    fn load(&mut self, loaded: Loaded) -> Option<()> {
        (self.loaded, self.is_swapped) = (Some(loaded), false);
        self.fields.push(loaded);
        self.constant.clear();
        self.constants.clear();
        Some(())
    }

    fn meta(&mut self, key: MetaKey) -> Option<()> {
        let loaded = match key {
            MetaKey::InInterface => Loaded::Interface("-i", false),
            MetaKey::OutInterface => Loaded::Interface("-o", false),
            MetaKey::TransportProtocol => Loaded::Protocol,
            MetaKey::Mark => Loaded::Mark("mark", u32::MAX, 0),
            MetaKey::InInterfaceIndex
            | MetaKey::OutInterfaceIndex
            | MetaKey::SocketUid
            | MetaKey::SocketGid
            | MetaKey::NetworkProtocol => return None,
        };
        self.load(loaded)
    }

    fn network_header(&mut self, offset: u32, length: u32) -> Option<()> {
        let bits = u8::try_from(length.checked_mul(8)?).ok()?;
        let loaded = match (self.family, offset, length) {
            (Family::V4, 9, 1) | (Family::V6, 6, 1) => Loaded::Protocol,
            (Family::V4, 12, 1..=4) | (Family::V6, 8, 1..=16) => Loaded::Address("-s", bits),
            (Family::V4, 16, 1..=4) | (Family::V6, 24, 1..=16) => Loaded::Address("-d", bits),
            _ => return None,
        };
        self.load(loaded)
    }

    fn transport_header(&mut self, offset: u32, length: u32) -> Option<()> {
        let loaded = match (offset, length) {
            (0, 2) => Loaded::Port("--sport"),
            (2, 2) => Loaded::Port("--dport"),
            _ => return None,
        };
        self.load(loaded)
    }

    fn range(&mut self, from: &[u8], to: &[u8], inverted: bool) -> Option<()> {
        self.tested(inverted, &[(from, to)])
    }

    /// The mask of what is loaded.
    fn bitwise(&mut self, mask: &[u8], xor: &[u8]) -> Option<()> {
        let is_masked = xor.iter().all(|byte| *byte == 0);
        let loaded = match self.loaded? {
            Loaded::Mark(module, u32::MAX, 0) => Loaded::Mark(module, number(mask, 0)?, number(xor, 0)?),
            _ if !is_masked => return None,
            Loaded::Address(option, _) => match prefix(mask) {
                Some(bits) => Loaded::Address(option, bits),
                None => Loaded::MaskedAddress(option, address(self.family, mask)?),
            },
            Loaded::State(_) => Loaded::State(number(mask, 0)?),
            Loaded::Flags(u8::MAX) => Loaded::Flags(*mask.first()?),
            Loaded::Status(u32::MAX) => Loaded::Status(number(mask, 0)?),
            Loaded::EndAddress(option, _) => Loaded::EndAddress(option, prefix(mask)?),
            Loaded::Interface(..)
            | Loaded::Protocol
            | Loaded::Mark(..)
            | Loaded::Flags(_)
            | Loaded::Family
            | Loaded::Owner(_)
            | Loaded::Port(_)
            | Loaded::MaskedAddress(..)
            | Loaded::AddressType(..)
            | Loaded::ReversePath(_)
            | Loaded::Status(_)
            | Loaded::Direction
            | Loaded::EndPort(_)
            | Loaded::Random(..) => return None,
        };
        self.loaded = Some(loaded);
        Some(())
    }

    fn compare(&mut self, operator: Operator, value: &[u8]) -> Option<()> {
        self.tested(is_not(operator)?, &[(value, value)])
    }

    fn verdict(&mut self, verdict: &Verdict) -> Option<()> {
        self.aim(match verdict {
            Verdict::Accept => "-j ACCEPT".to_owned(),
            Verdict::Drop => "-j DROP".to_owned(),
            Verdict::Return => "-j RETURN".to_owned(),
            Verdict::Jump(chain) => format!("-j {}", quoted(chain)),
            Verdict::Goto(chain) => format!("-g {}", quoted(chain)),
            Verdict::Continue => return Some(()),
        });
        Some(())
    }

    /// A target whose parameters are not read.
    fn jump(&mut self, target: &str) -> Option<()> {
        self.aim(format!("-j {}", quoted(target)));
        self.has_unread_target = true;
        Some(())
    }

    fn foreign(&mut self, name: &str, data: &[u8]) -> Option<()> {
        match name {
            "match" => {
                match extension(self.family, data, of_match) {
                    Some(words) => self.tests += &words,
                    None => self.unread(&nfnetlink::Attributes::new(data).of(XT_NAME)?.text())?,
                }
                Some(())
            }
            "target" => match extension(self.family, data, of_target) {
                Some(words) => {
                    self.aim(words);
                    Some(())
                }
                None => self.jump(&nfnetlink::Attributes::new(data).of(XT_NAME)?.text()),
            },
            "redir" => self.jump("REDIRECT"),
            "nat" => self.jump("DNAT"),
            "masq" => self.jump("MASQUERADE"),
            "reject" => self.jump("REJECT"),
            "queue" => {
                self.aim(queue(data));
                Some(())
            }
            "notrack" => self.jump("NOTRACK"),
            "tproxy" => self.jump("TPROXY"),
            // iptables 1.8.9 and later write its target so. What is logged goes on.
            "log" => {
                self.aim("-j NFLOG".to_owned());
                Some(())
            }
            "lookup" | "objref" if self.is_foreign && !foreign::takes_packets(name, data) => {
                self.loaded = None;
                self.fields.clear();
                self.unread(name)
            }
            "immediate" | "lookup" | "fwd" | "synproxy" | "objref" => {
                self.unknown();
                self.jump(UNREADABLE)
            }
            name => {
                self.loaded = None;
                self.fields.clear();
                self.unread(foreign::extension_header(name, data).unwrap_or(name))
            }
        }
    }

    /// A match that is not read, unless its options would be missed by its name.
    fn unread(&mut self, name: &str) -> Option<()> {
        (!super::matches::is_read(name)).then_some(())?;
        self.tests += &format!("-m {} ", quoted(name));
        self.has_unread_match = true;
        Some(())
    }
}

/// Whether a comparison for equality is negated.
pub(super) const fn is_not(operator: Operator) -> Option<bool> {
    match operator {
        Operator::Equal => Some(false),
        Operator::NotEqual => Some(true),
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => None,
    }
}
