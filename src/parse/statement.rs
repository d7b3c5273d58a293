//! Parses one printed rule into a [`Statement`].

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::words;
use crate::model::{
    Chain, CtState, Family, Interface, Mark, Match, Matcher, Owner, Port, Ports, Protocol, Statement, Syn,
    Target, Transport,
};

/// Reads the words behind `-A CHAIN`. `None` means that the rule says something for which the model has no
/// word, a comment for instance; it is then not one of ours, at least not as we write it.
#[must_use]
pub fn statement(family: Family, text: &str) -> Option<Statement> {
    read(family, &words::split(text)?)
}

/// Reads words behind `-A CHAIN` that are split already.
pub(super) fn read(family: Family, words: &[String]) -> Option<Statement> {
    Reader { family, words: words.iter(), module: "", matcher: Matcher::default() }.read()
}

struct Reader<'a> {
    family: Family,
    words: std::slice::Iter<'a, String>,
    /// The match extension whose options come next: `--mark` belongs to more than one.
    module: &'static str,
    matcher: Matcher,
}

impl Reader<'_> {
    fn read(mut self) -> Option<Statement> {
        loop {
            let mut word = self.words.next()?;
            let negated = word == "!";
            if negated {
                word = self.words.next()?;
            }
            match word.as_str() {
                "-j" if !negated => {
                    let target = self.target()?;
                    let matcher = self.matcher;
                    return self.words.as_slice().is_empty().then_some(Statement { matcher, target });
                }
                "-m" if !negated => self.module = module(self.words.next()?)?,
                "--syn" => self.syn(negated)?,
                "--tcp-flags" => self.tcp_flags(negated)?,
                option => self.option(option, negated)?,
            }
        }
    }

    fn option(&mut self, option: &str, negated: bool) -> Option<()> {
        let value = self.words.next()?;
        match (option, negated) {
            ("-s", _) => set(&mut self.matcher.source, test(negated, network(self.family, value)?)),
            ("-d", _) => set(&mut self.matcher.destination, test(negated, network(self.family, value)?)),
            ("-i", false) => set(&mut self.matcher.in_interface, value.parse::<Interface>().ok()?),
            ("-o", false) => set(&mut self.matcher.out_interface, value.parse::<Interface>().ok()?),
            ("-p", false) if protocol_number(value) == Some(0) => Some(()),
            ("-p", false) => set(&mut self.matcher.protocol, Protocol::all(transport(value)?)),
            _ => self.module_option(option, negated, value),
        }
    }

    fn module_option(&mut self, option: &str, negated: bool, value: &str) -> Option<()> {
        match (self.module, option, negated) {
            ("tcp" | "udp" | "", "--dport", _) => {
                self.destination_ports(negated, Ports::One(value.parse().ok()?))
            }
            ("multiport", "--dports", _) => self.destination_ports(negated, Ports::Any(ports(value)?)),
            ("tcp" | "udp" | "", "--sport", false) => {
                set(&mut self.matcher.protocol.as_mut()?.source, value.parse().ok()?)
            }
            ("conntrack", "--ctstate", false) | ("state", "--state", false) => {
                set(&mut self.matcher.ct_state, state(value)?)
            }
            ("mark", "--mark", _) => set(&mut self.matcher.mark, test(negated, mark(value)?)),
            ("connmark", "--mark", false) => set(&mut self.matcher.connmark, mark(value)?),
            ("owner", "--uid-owner", _) => self.owner(negated, Owner::Uid(value.parse().ok()?)),
            ("owner", "--gid-owner", _) => self.owner(negated, Owner::Gid(value.parse().ok()?)),
            _ => None,
        }
    }

    fn destination_ports(&mut self, negated: bool, ports: Ports) -> Option<()> {
        set(&mut self.matcher.protocol.as_mut()?.destination, test(negated, ports))
    }

    /// The tools print `--syn` as `--tcp-flags FIN,SYN,RST,ACK SYN`.
    fn tcp_flags(&mut self, negated: bool) -> Option<()> {
        let (mask, set) = (self.words.next()?, self.words.next()?);
        let mask: Vec<&str> = mask.split(',').collect();
        let is_of_syn =
            mask.len() == 4 && ["ACK", "FIN", "RST", "SYN"].iter().all(|flag| mask.contains(flag));
        (is_of_syn && set == "SYN").then(|| self.syn(negated))?
    }

    fn syn(&mut self, negated: bool) -> Option<()> {
        let protocol =
            self.matcher.protocol.as_mut().filter(|protocol| protocol.transport == Transport::Tcp)?;
        set(&mut protocol.syn, test(negated, Syn))
    }

    fn owner(&mut self, negated: bool, owner: Owner) -> Option<()> {
        self.matcher.owners.push(test(negated, owner));
        Some(())
    }

    fn target(&mut self) -> Option<Target> {
        let name = self.words.next()?;
        let options: Vec<&str> = self.words.by_ref().map(String::as_str).collect();
        match (name.as_str(), options.as_slice()) {
            ("ACCEPT", []) => Some(Target::Accept),
            ("DROP", []) => Some(Target::Drop),
            ("RETURN", []) => Some(Target::Return),
            ("REDIRECT", ["--to-ports", port]) => Some(Target::Redirect(port.parse().ok()?)),
            ("CT", ["--zone", zone]) => Some(Target::ConntrackZone(zone.parse().ok()?)),
            ("MARK", ["--set-xmark" | "--set-mark", value]) => Some(Target::SetMark(mark(value)?)),
            ("CONNMARK", ["--save-mark", rest @ ..]) if whole_mark(rest) => Some(Target::SaveMark),
            ("CONNMARK", ["--restore-mark", rest @ ..]) if whole_mark(rest) => Some(Target::RestoreMark),
            ("TPROXY", options) => tproxy(options),
            (chain, []) => Some(Target::Jump(Chain::from_name(chain)?)),
            _ => None,
        }
    }
}

/// The match extensions that the model has words for. Others may test something without any option:
/// `-m socket`.
fn module(name: &str) -> Option<&'static str> {
    ["tcp", "udp", "multiport", "conntrack", "state", "mark", "connmark", "owner"]
        .into_iter()
        .find(|known| *known == name)
}

/// Fills a slot; a second value for it is more than the model can say.
pub(super) fn set<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.replace(value).is_none().then_some(())
}

pub(super) const fn test<T>(negated: bool, value: T) -> Match<T> {
    if negated { Match::Not(value) } else { Match::Is(value) }
}

fn network(family: Family, text: &str) -> Option<IpNetwork> {
    let network: IpNetwork = text.parse().ok()?;
    family.holds(&network).then_some(network)
}

fn transport(name: &str) -> Option<Transport> {
    match protocol_number(name)? {
        6 => Some(Transport::Tcp),
        17 => Some(Transport::Udp),
        _ => None,
    }
}

/// The number of a protocol in any spelling of iptables; 0 means all. `None` if unknown.
#[must_use]
pub fn protocol_number(name: &str) -> Option<u8> {
    const NAMES: [(&str, u8); 13] = [
        ("all", 0),
        ("tcp", 6),
        ("udp", 17),
        ("icmp", 1),
        ("igmp", 2),
        ("gre", 47),
        ("esp", 50),
        ("ah", 51),
        ("ipv6-icmp", 58),
        ("icmpv6", 58),
        ("sctp", 132),
        ("udplite", 136),
        ("dccp", 33),
    ];
    let named = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, number)| *number);
    named.or_else(|| number(name)?.try_into().ok())
}

fn ports(list: &str) -> Option<Vec<Port>> {
    list.split(',').map(|port| port.parse().ok()).collect()
}

fn state(list: &str) -> Option<CtState> {
    match list {
        "INVALID" => Some(CtState::Invalid),
        "RELATED,ESTABLISHED" | "ESTABLISHED,RELATED" => Some(CtState::RelatedOrEstablished),
        _ => None,
    }
}

/// A mark that is compared or set as a whole: `0x539`, `1337`, `0x539/0xffffffff`.
fn mark(text: &str) -> Option<Mark> {
    let value = match text.split_once('/') {
        Some((value, mask)) => (number(mask)? == u32::MAX).then_some(value)?,
        None => text,
    };
    Some(Mark(number(value)?))
}

/// A number as the C library reads it: hexadecimal, octal or decimal.
pub(super) fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, if text.starts_with('0') { 8 } else { 10 }),
    };
    u32::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))
}

/// What `iptables-save` adds to a mark that is copied as a whole.
fn whole_mark(options: &[&str]) -> bool {
    let whole = |mask: &str| number(mask) == Some(u32::MAX);
    match options {
        [] => true,
        ["--nfmask", nf, "--ctmask", ct] | ["--ctmask", ct, "--nfmask", nf] => whole(nf) && whole(ct),
        ["--mask", mask] => whole(mask),
        _ => false,
    }
}

fn tproxy(options: &[&str]) -> Option<Target> {
    let (mut port, mut packet_mark) = (None, None);
    for pair in options.chunks(2) {
        match pair {
            ["--on-port", value] => port = Some(value.parse().ok()?),
            // A socket bound to every address: the form without the option, spelt out.
            ["--on-ip", value] => value.parse::<IpAddr>().ok()?.is_unspecified().then_some(())?,
            ["--tproxy-mark", value] => packet_mark = Some(mark(value)?),
            _ => return None,
        }
    }
    Some(Target::Tproxy { port: port?, mark: packet_mark? })
}
