//! Targets.

use std::net::IpAddr;

use super::{Extension, range};
use crate::model::Family;
use crate::parse::expressions::decode::{address, half, number};

pub(in crate::parse) fn of_target(name: &str, extension: Extension<'_>) -> Option<String> {
    let Extension { family, revision, info } = extension;
    const SET: u8 = 0;
    const SAVE: u8 = 1;
    const RESTORE: u8 = 2;
    match (name, revision) {
        ("MARK", 2) => Some(format!("-j MARK --set-xmark {:#x}/{:#x}", number(info, 0)?, number(info, 4)?)),
        ("CONNMARK", 1 | 2) => {
            // The later revision can shift the mark: by the byte before its mode.
            let mode = if revision == 1 { 12 } else { 14 };
            let is_shifted = revision == 2 && *info.get(13)? != 0;
            let [mark, connection, packet] = [0, 4, 8].map(|at| number(info, at));
            let (connection, packet) = (connection?, packet?);
            let option = match *info.get(mode)? {
                _ if is_shifted => return None,
                SET => return Some(format!("-j CONNMARK --set-xmark {:#x}/{connection:#x}", mark?)),
                SAVE => "--save-mark",
                RESTORE => "--restore-mark",
                _ => return None,
            };
            Some(format!("-j CONNMARK {option} --nfmask {packet:#x} --ctmask {connection:#x}"))
        }
        ("DNAT", _) => destination(extension),
        ("REDIRECT", 0) => redirection(extension),
        ("TPROXY", 1) => {
            let (mask, mark) = (number(info, 0)?, number(info, 4)?);
            let (to, port) = (extension.address(8)?, extension.be_half(24)?);
            Some(format!("-j TPROXY --on-port {port} --on-ip {to} --tproxy-mark {mark:#x}/{mask:#x}"))
        }
        ("NFQUEUE", _) => {
            let (queues, flags) = (extension.half(2).unwrap_or(1), extension.half(4).unwrap_or(0));
            Some(queue_words(extension.half(0), queues, flags))
        }
        ("REJECT", 0) => rejection(family, number(info, 0)?),
        ("NOTRACK", _) => Some("-j NOTRACK".to_owned()),
        ("CT", _) => zone_words(info),
        _ => None,
    }
}

/// The expression `queue`, in the words of the target `NFQUEUE`.
pub(in super::super) fn queue(data: &[u8]) -> String {
    const NUMBER: u16 = 1;
    const QUEUES: u16 = 2;
    const FLAGS: u16 = 3;
    let attributes = nfnetlink::Attributes::new(data);
    let value = |kind: u16| attributes.of(kind).and_then(|value| value.be16());
    queue_words(value(NUMBER), value(QUEUES).unwrap_or(1), value(FLAGS).unwrap_or(0))
}

/// A number that is missing is in a register.
fn queue_words(number: Option<u16>, queues: u16, flags: u16) -> String {
    // `NFQ_FLAG_BYPASS`, `NFT_QUEUE_FLAG_BYPASS`, and the same of the processor's number.
    const OPTIONS: [(u16, &str); 2] = [(1, " --queue-bypass"), (2, " --queue-cpu-fanout")];
    let numbers = match (number, queues) {
        (None, _) => " --queue-num map".to_owned(),
        (Some(number), 0 | 1) => format!(" --queue-num {number}"),
        (Some(number), queues) => format!(" --queue-balance {number}:{}", number.saturating_add(queues - 1)),
    };
    let options: String =
        OPTIONS.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, option)| *option).collect();
    format!("-j NFQUEUE{numbers}{options}")
}

// `XT_CT_NOTRACK`, `XT_CT_NOTRACK_ALIAS`, `XT_CT_ZONE_DIR_ORIG`, `XT_CT_ZONE_DIR_REPL`, `XT_CT_ZONE_MARK`.
const NOTRACK: u16 = 1;
const NOTRACK_ALIAS: u16 = 2;
const OF_ORIGINAL: u16 = 4;
const OF_REPLY: u16 = 8;
const OF_MARK: u16 = 16;

/// The words of the target CT, as the tool prints them.
fn zone_words(info: &[u8]) -> Option<String> {
    let (flags, zone) = (half(info, 0)?, half(info, 2)?);
    sets_no_more(info).then_some(())?;
    let value = if flags & OF_MARK == 0 { zone.to_string() } else { "mark".to_owned() };
    let options = match flags & !OF_MARK {
        _ if flags & OF_MARK != 0 && zone != 0 => return None,
        0 if value == "0" => String::new(),
        0 => format!(" --zone {value}"),
        NOTRACK if value == "0" => " --notrack".to_owned(),
        alias if alias == NOTRACK | NOTRACK_ALIAS && value == "0" => return Some("-j NOTRACK".to_owned()),
        OF_ORIGINAL => format!(" --zone-orig {value}"),
        OF_REPLY => format!(" --zone-reply {value}"),
        both if both == OF_ORIGINAL | OF_REPLY => format!(" --zone {value}"),
        _ => return None,
    };
    Some(format!("-j CT{options}"))
}

/// Whether the target CT sets neither events nor a helper or timeouts, which are between the zone and a
/// pointer of the kernel.
fn sets_no_more(info: &[u8]) -> bool {
    let end = info.len().saturating_sub(size_of::<u64>());
    info.get(4..end).is_some_and(|between| between.iter().all(|byte| *byte == 0))
}

/// `NF_NAT_RANGE_MAP_IPS`.
const MAPS_ADDRESS: u32 = 1;
/// `NF_NAT_RANGE_PROTO_SPECIFIED`.
const HAS_PORT: u32 = 2;
/// The flags of nat besides the address and the port, as options.
const FLAGS: [(u32, &str); 3] = [(4, " --random"), (8, " --persistent"), (16, " --random-fully")];

/// Where addresses and ports of nat are in a structure.
struct Translated {
    flags: u32,
    addresses: (Option<IpAddr>, Option<IpAddr>),
    ports: (u16, u16),
}

impl Translated {
    /// `struct nf_nat_ipv4_multi_range_compat`.
    fn of_ipv4(extension: Extension<'_>) -> Option<Self> {
        let of = |at: usize| address(Family::V4, extension.info.get(at..at + 4)?);
        let ports = (extension.be_half(16)?, extension.be_half(18)?);
        Some(Self { flags: extension.number(4)?, addresses: (of(8), of(12)), ports })
    }

    /// `struct nf_nat_range`, `struct nf_nat_range2`.
    fn of_both(extension: Extension<'_>) -> Option<Self> {
        let ports = (extension.be_half(36)?, extension.be_half(38)?);
        let addresses = (extension.address(4), extension.address(20));
        Some(Self { flags: extension.number(0)?, addresses, ports })
    }

    fn of(extension: Extension<'_>) -> Option<Self> {
        match (extension.family, extension.revision) {
            (Family::V4, 0) => Self::of_ipv4(extension),
            _ => Self::of_both(extension),
        }
    }

    /// The options behind the destination; `None` if it says more than these.
    fn options(&self) -> Option<String> {
        let known: u32 = FLAGS.iter().map(|(flag, _)| flag).sum();
        (self.flags & !(known | MAPS_ADDRESS | HAS_PORT) == 0).then_some(())?;
        Some(FLAGS.iter().filter(|(flag, _)| self.flags & flag != 0).map(|(_, option)| *option).collect())
    }

    fn port(&self) -> Option<String> {
        (self.flags & HAS_PORT != 0).then(|| range(self.ports.0, self.ports.1, '-'))
    }
}

fn destination(extension: Extension<'_>) -> Option<String> {
    let found = Translated::of(extension)?;
    let addresses = match found.addresses {
        (Some(first), Some(last)) if found.flags & MAPS_ADDRESS != 0 => range(first, last, '-'),
        _ => String::new(),
    };
    let to = match (found.port(), extension.family) {
        (Some(port), Family::V6) if !addresses.is_empty() => format!("[{addresses}]:{port}"),
        (Some(port), _) => format!("{addresses}:{port}"),
        (None, _) => addresses,
    };
    Some(format!("-j DNAT --to-destination {to}{}", found.options()?))
}

fn redirection(extension: Extension<'_>) -> Option<String> {
    let found = Translated::of(extension)?;
    let ports = found.port().map_or_else(String::new, |ports| format!(" --to-ports {ports}"));
    Some(format!("-j REDIRECT{ports}{}", found.options()?))
}

/// The reply in place of the receiver, by its number in `enum ipt_reject_with` or `enum ip6t_reject_with`.
fn rejection(family: Family, number: u32) -> Option<String> {
    const V4: [&str; 9] = [
        "icmp-net-unreachable",
        "icmp-host-unreachable",
        "icmp-proto-unreachable",
        "icmp-port-unreachable",
        "",
        "icmp-net-prohibited",
        "icmp-host-prohibited",
        "tcp-reset",
        "icmp-admin-prohibited",
    ];
    const V6: [&str; 9] = [
        "icmp6-no-route",
        "icmp6-adm-prohibited",
        "icmp6-not-neighbour",
        "icmp6-addr-unreachable",
        "icmp6-port-unreachable",
        "",
        "tcp-reset",
        "icmp6-policy-fail",
        "icmp6-reject-route",
    ];
    let names = if family == Family::V4 { V4 } else { V6 };
    let name = names.get(usize::try_from(number).ok()?).filter(|name| !name.is_empty())?;
    Some(format!("-j REJECT --reject-with {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes of `queue`: their numbers, and their values of 16 bits.
    fn words(attributes: &[(u8, u8)]) -> String {
        let data: Vec<u8> =
            attributes.iter().flat_map(|(kind, value)| [6, 0, *kind, 0, 0, *value, 0, 0]).collect();
        queue(&data)
    }

    #[test]
    fn queue_expression_is_read_as_nfqueue() {
        assert_eq!(words(&[(1, 7)]), "-j NFQUEUE --queue-num 7");
        assert_eq!(words(&[(1, 7), (2, 1), (3, 1)]), "-j NFQUEUE --queue-num 7 --queue-bypass");
        let fanned_out = "-j NFQUEUE --queue-balance 7:9 --queue-bypass --queue-cpu-fanout";
        assert_eq!(words(&[(1, 7), (2, 3), (3, 3)]), fanned_out);
        assert_eq!(words(&[(3, 1)]), "-j NFQUEUE --queue-num map --queue-bypass");
    }
}
