//! Which foreign rules can match captured traffic: TCP, and with DNS capture UDP of its ports.

use std::ops::RangeInclusive;

use crate::model::{DNS_CAPTURE_PORT, DNS_PORT, FamilyRules, Port, Transport};

/// What the desired rules of a family capture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Captured {
    /// DNS over UDP besides TCP.
    pub(super) dns: bool,
}

impl Captured {
    pub(super) fn of(rules: &FamilyRules) -> Self {
        let rules = rules.tables.values().flat_map(|table| table.rules());
        let mut protocols = rules.filter_map(|rule| rule.statement.matcher.protocol.as_ref());
        Self { dns: protocols.any(|protocol| protocol.transport == Transport::Udp) }
    }

    /// Whether a rule with these words may match captured packets. What is not understood may.
    pub(super) fn may_match(self, words: &[String]) -> bool {
        // Behind these there may be any word: in a comment, for instance.
        let ends = |word: &String| ["-m", "-j", "-g"].contains(&word.as_str());
        let protocol = words.iter().take_while(|word| !ends(word)).position(|word| word == "-p");
        let negated = |at: usize| {
            at.checked_sub(1).and_then(|before| words.get(before)).is_some_and(|word| word == "!")
        };
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
        words.get(at + 1).and_then(|ports| ranges(ports))
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

/// `53`, `1024:65535` or `53,5353:5360`; `None` if it is none of these.
fn ranges(text: &str) -> Option<Vec<RangeInclusive<u16>>> {
    let range = |text: &str| -> Option<RangeInclusive<u16>> {
        let (first, last) = text.split_once(':').unwrap_or((text, text));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.split(',').map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_match(dns: bool, rule: &str) -> bool {
        let words: Vec<String> = rule.split(' ').map(str::to_owned).collect();
        Captured { dns }.may_match(&words)
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
