//! Which foreign rules can match captured traffic: TCP, and with DNS capture UDP of its ports.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnetwork::IpNetwork;

use crate::model::{DNS_CAPTURE_PORT, DNS_PORT, FamilyRules, Port, Target, Transport};
use crate::ordered::Ordered as _;
use crate::parse;

/// What the desired rules of a family capture.
#[derive(Clone, Debug)]
pub(super) struct Captured {
    /// DNS over UDP besides TCP.
    pub(super) dns: bool,
    /// The proxy's ports: redirected packets have one of them from then on.
    ports: BTreeSet<u16>,
    /// Whether packets keep their own port, as with TPROXY.
    keeps_port: bool,
}

impl Captured {
    pub(super) fn of(rules: &FamilyRules) -> Self {
        let rules = || rules.tables.values().flat_map(|table| table.rules());
        let mut protocols = rules().filter_map(|rule| rule.statement.matcher.protocol.as_ref());
        let redirect = |target: Target| match target {
            Target::Redirect(port) => Some(port.number()),
            Target::Accept
            | Target::ConntrackZone(_)
            | Target::Drop
            | Target::Jump(_)
            | Target::RestoreMark
            | Target::Return
            | Target::SaveMark
            | Target::SetMark(_)
            | Target::Tproxy { .. } => None,
        };
        Self {
            dns: protocols.any(|protocol| protocol.transport == Transport::Udp),
            ports: rules().filter_map(|rule| redirect(rule.statement.target)).into_set(),
            keeps_port: rules().any(|rule| matches!(rule.statement.target, Target::Tproxy { .. })),
        }
    }

    /// The proxy's ports, if packets are redirected to them.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        self.ports.iter().copied()
    }

    /// Whether a rule with these words may match captured packets. What is not understood may.
    pub(super) fn may_match(&self, words: &[String]) -> bool {
        // Behind these there may be any word: in a comment, for instance.
        let ends = |word: &String| ["-m", "-j", "-g"].contains(&word.as_str());
        let protocol = words.iter().take_while(|word| !ends(word)).position(|word| word == "-p");
        let negated = |at: usize| {
            at.checked_sub(1).and_then(|before| words.get(before)).is_some_and(|word| word == "!")
        };
        if is_for_invalid(words) {
            return false;
        }
        let Some((at, name)) = protocol.and_then(|at| Some((at, words.get(at + 1)?.as_str()))) else {
            return true;
        };
        let [tcp, udp] = [["tcp", "6"], ["udp", "17"]].map(|names| names.contains(&name));
        match (negated(at), tcp || name == "all", udp) {
            (false, true, _) | (true, false, _) => true,
            (true, true, _) => self.dns,
            (false, false, true) => self.dns && may_be_dns(words),
            (false, false, false) => false,
        }
    }

    /// Whether a rule with these words may match packets that our rules have taken: in the chains of the input hook, and behind
    /// ours in those of the output hook, where a redirected packet is for loopback.
    pub(super) fn may_match_taken(&self, words: &[String], is_output: bool) -> bool {
        // All packets of a redirected connection have the state DNAT.
        let skips_redirected =
            option(words, &["--ctstate"]).is_some_and(|(not, states)| not && states.contains("DNAT"));
        if !self.may_match(words) || (skips_redirected && !self.keeps_port) {
            return false;
        }
        let ports = option(words, &["--dport", "--dports"]).filter(|(not, _)| !not);
        let is_ours = |ports: &Vec<RangeInclusive<u16>>| {
            self.ports.iter().any(|port| ports.iter().any(|range| range.contains(port)))
        };
        let of_other_ports =
            || ports.and_then(|(_, text)| parse::port_ranges(text)).is_some_and(|ports| !is_ours(&ports));
        if (is_output || !self.keeps_port) && of_other_ports() {
            return false;
        }
        let destination = option(words, &["-d"]);
        let is_loopback = |text: &str| text.parse().is_ok_and(|range: IpNetwork| range.ip().is_loopback());
        if is_output {
            let is_other = |range: &str| {
                let range: Option<IpNetwork> = range.parse().ok();
                let loopback = |range: &IpNetwork| match range {
                    IpNetwork::V4(_) => IpAddr::from([127, 0, 0, 1]),
                    IpNetwork::V6(_) => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
                };
                range.is_some_and(|range| !range.contains(loopback(&range)))
            };
            return !destination
                .is_some_and(|(not, range)| if not { is_loopback(range) } else { is_other(range) });
        }
        // What claims to be local and comes from outside.
        let from_outside = option(words, &["-i"]) == Some((true, "lo"));
        let local =
            |names: &[&str]| option(words, names).is_some_and(|(not, range)| !not && is_loopback(range));
        !(from_outside && (local(&["-d"]) || local(&["-s"])))
    }
}

/// The value of the first of these options, and whether it is negated. What is in a comment does not count.
fn option<'a>(words: &'a [String], names: &[&str]) -> Option<(bool, &'a str)> {
    let is_text = |at: usize| {
        at.checked_sub(1).and_then(|before| words.get(before)).is_some_and(|word| word == "--comment")
    };
    let at = words
        .iter()
        .take_while(|word| !["-j", "-g"].contains(&word.as_str()))
        .enumerate()
        .position(|(at, word)| names.contains(&word.as_str()) && !is_text(at))?;
    let not = at.checked_sub(1).and_then(|before| words.get(before)).is_some_and(|word| word == "!");
    Some((not, words.get(at + 1)?))
}

/// Whether a rule looks only at packets that are of no connection.
fn is_for_invalid(words: &[String]) -> bool {
    let Some((not, states)) = option(words, &["--ctstate", "--state"]) else { return false };
    let has = |wanted: &str| states.split(',').any(|state| state == wanted);
    if not {
        has("NEW") && has("ESTABLISHED")
    } else {
        states.split(',').all(|state| ["INVALID", "UNTRACKED"].contains(&state))
    }
}

/// Whether a rule for UDP may match queries, answers, or those to and from the proxy.
fn may_be_dns(words: &[String]) -> bool {
    let excludes = |pair: &[String]| matches!(pair, [not, option] if not == "!" && option.starts_with("--"));
    // A negated list of ports is rare: it may match.
    if words.windows(2).any(excludes) {
        return true;
    }
    let value = |names: &[&str]| {
        let at = words.iter().position(|word| names.contains(&word.as_str()))?;
        words.get(at + 1).and_then(|ports| parse::port_ranges(ports))
    };
    let source = value(&["--sport", "--sports"]);
    let destination = value(&["--dport", "--dports", "--ports"]);
    let has_dns = |ranges: &Vec<RangeInclusive<u16>>| {
        [DNS_PORT, DNS_CAPTURE_PORT]
            .map(Port::number)
            .iter()
            .any(|port| ranges.iter().any(|range| range.contains(port)))
    };
    match (source, destination) {
        (None, None) => true,
        (source, destination) => source.iter().chain(&destination).any(has_dns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_match(dns: bool, rule: &str) -> bool {
        let words: Vec<String> = rule.split(' ').map(str::to_owned).collect();
        Captured { dns, ports: BTreeSet::new(), keeps_port: false }.may_match(&words)
    }

    #[test]
    fn udp_matters_where_it_may_be_captured_dns() {
        for (rule, without, with_dns) in [
            ("-j DROP", true, true),
            ("-p tcp -m tcp --dport 4789 -j NOTRACK", true, true),
            ("-p all -j DROP", true, true),
            ("! -p udp -j DROP", true, true),
            ("! -p tcp -j DROP", false, true),
            ("-p icmp -j DROP", false, false),
            ("-p udp -j DROP", false, true),
            ("-p udp -m udp --dport 4789 -j NOTRACK", false, false),
            ("-p udp -m udp --dport 53 -j RETURN", false, true),
            ("-p udp -m udp --dport 50:60 -j RETURN", false, true),
            ("-p udp -m udp --sport 15053 -j RETURN", false, true),
            ("-p udp -m udp --sport 4789 --dport 53 -j RETURN", false, true),
            ("-p udp -m udp ! --dport 53 -j RETURN", false, true),
            ("-p udp -m multiport --dports 4789,8472 -j NOTRACK", false, false),
            ("-p udp -m multiport --dports 53,5353:5360 -j NOTRACK", false, true),
            ("-p udp -m udp --dport domain -j NOTRACK", false, true),
            ("-m comment --comment -p -j ACCEPT", true, true),
        ] {
            assert_eq!((may_match(false, rule), may_match(true, rule)), (without, with_dns), "{rule}");
        }
    }
}
