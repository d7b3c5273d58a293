//! Rules that the model lacks terms for: what can be evaluated is, the rest is named.

use super::field_match::{Facts, Holds, holds};
use super::matching::PacketState;
use crate::live_rules::FieldMatch;

/// Whether a rule is for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Applies {
    /// The rule is for the packet.
    Yes,
    /// The rule is not for the packet, and why.
    No(String),
    /// The rule may be for the packet: these words cannot be evaluated.
    Maybe(String),
}

/// Whether a rule with these tests, and others that cannot be evaluated, is for the packet.
pub(super) fn applies(
    (tests, unread): (&[FieldMatch], &[String]),
    packet: &PacketState,
    facts: Facts<'_>,
) -> Applies {
    let mut unknown = unread.to_vec();
    for test in tests {
        match holds(test, packet, facts) {
            Holds::Yes => {}
            Holds::No(mismatch) => return Applies::No(mismatch),
            Holds::Unknown => unknown.push(test.words.clone()),
        }
    }
    if unknown.is_empty() { Applies::Yes } else { Applies::Maybe(unknown.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConnectionState;
    use crate::explain::connection::Connection;
    use crate::explain::matching::Words;
    use crate::explain::packet::OPENING;
    use crate::live_rules::Zone;
    use crate::model::{Family, Mark, Transport};
    use crate::parse;

    /// `yes`, `no` or what is not known.
    fn evaluated(rule: &str) -> String {
        let packet = PacketState {
            process: None,
            transport: Transport::Tcp,
            source: "10.0.0.9:50000".parse().expect("an address"),
            destination: "10.1.0.5:80".parse().expect("an address"),
            in_interface: Some("eth0".to_owned()),
            out_interface: None,
            mark: Mark(0),
            connmark: Mark(0),
            has_known_marks: true,
            state: ConnectionState::New,
            tcp_flags: OPENING,
            is_tracked: true,
            zone: Zone::default(),
            is_assigned: false,
            is_seen: true,
            words: Words::None,
        };
        let connection = Connection::begun((packet.source, packet.destination), &packet);
        let rule = parse::live_rule(Family::V4, rule.to_owned());
        match applies(
            (&rule.tests(), rule.unread()),
            &packet,
            Facts { fib: None, connection: Some(connection), open: &[] },
        ) {
            Applies::Yes => "yes".to_owned(),
            Applies::No(_) => "no".to_owned(),
            Applies::Maybe(unknown) => unknown,
        }
    }

    #[test]
    fn tests_of_foreign_rules_are_evaluated_or_named() {
        for (rule, expected) in [
            ("-j ACCEPT", "yes"),
            ("-p tcp -m tcp --dport 80 -m comment --comment \"-p udp\" -j ACCEPT", "yes"),
            ("-p tcp -m multiport --dports 22,70:90 -j ACCEPT", "yes"),
            ("-p tcp -m multiport ! --dports 22,70:90 -j ACCEPT", "no"),
            ("-p tcp -m tcp --dport 81:65535 -j ACCEPT", "no"),
            ("-p tcp -m tcp ! --sport 50000 -j ACCEPT", "no"),
            ("-p icmp -j ACCEPT", "no"),
            ("-p udp -m udp --dport 80 -j ACCEPT", "no"),
            ("! -i eth0 -j DROP", "no"),
            ("! -i eth1 -j cali-IN", "yes"),
            ("-s 10.0.0.0/8 ! -d 10.1.0.0/16 -j ACCEPT", "no"),
            ("-m mark --mark 0x1 -j ACCEPT", "no"),
            ("-m mark --mark 0x1/0x1 -j ACCEPT", "no"),
            ("-m mark ! --mark 0x1/0x1 -j ACCEPT", "yes"),
            ("-m addrtype --dst-type LOCAL -j DOCKER", "--dst-type LOCAL"),
            ("-m addrtype --src-type MULTICAST -j DROP", "--src-type MULTICAST"),
            ("-m iprange --src-range 10.0.0.1-10.0.0.9 -j ACCEPT", "yes"),
            ("-m iprange ! --dst-range 10.1.0.5-10.1.0.6 -j ACCEPT", "no"),
            ("-m owner --uid-owner 1000-2000 -j ACCEPT", "no"),
            ("-m owner ! --socket-exists -j ACCEPT", "yes"),
            ("-p tcp -m tcp --tcp-flags SYN,ACK SYN -j ACCEPT", "yes"),
            ("-p tcp -m multiport --ports 443,50000 -j ACCEPT", "yes"),
            ("-m mark --mark 0x0/0x1 -j ACCEPT", "yes"),
            ("-m mark ! --mark 0x0/0x1 -j ACCEPT", "no"),
            ("-m connmark ! --mark 0x1/0x1 -j ACCEPT", "yes"),
            ("-m set --match-set allowed src -j ACCEPT", "-m set --match-set allowed src"),
            ("-m set ! --match-set allowed src -p udp -j ACCEPT", "no"),
            ("-m rpfilter --validmark --invert -j DROP", "-m rpfilter --validmark --invert"),
            ("-m rpfilter --accept-local -j ACCEPT", "--accept-local -m rpfilter"),
            ("-m rt --rt-type 0 ! --rt-segsleft 0 -j DROP", "no"),
            ("-m rt -m comment --comment x -p udp -j DROP", "no"),
            ("-m socket --transparent -j DIVERT", "-m socket --transparent"),
            ("-m socket -j ACCEPT", "-m socket"),
            ("! -i eth+ -j ACCEPT", "no"),
            ("! -s 0.0.0.0/0 -j ACCEPT", "no"),
            ("! -i lo+ -j ACCEPT", "yes"),
            ("-i + -j ACCEPT", "yes"),
            ("! -i + -j ACCEPT", "no"),
            ("! -o + -j ACCEPT", "no"),
            ("-i INVAL/D -j ACCEPT", "no"),
            ("-m conntrack --ctstate NEW -j ACCEPT", "yes"),
            ("-m conntrack ! --ctstate RELATED,ESTABLISHED -j ACCEPT", "yes"),
            ("-m state --state INVALID -j ACCEPT", "no"),
            ("-m conntrack --ctstate NEW,DNAT -j ACCEPT", "yes"),
            ("-m conntrack --ctstate DNAT -j ACCEPT", "no"),
            ("-m conntrack ! --ctstate SNAT -j ACCEPT", "yes"),
            ("-m conntrack --ctstatus DNAT -j ACCEPT", "no"),
            ("-m conntrack ! --ctstatus SEEN_REPLY,ASSURED -j ACCEPT", "yes"),
            ("-m conntrack --ctstatus NONE -j ACCEPT", "no"),
            ("-m conntrack ! --ctstatus NONE -j ACCEPT", "yes"),
            ("-m conntrack --ctdir ORIGINAL -j ACCEPT", "yes"),
            ("-m conntrack --ctorigdst 10.1.0.0/16 --ctorigdstport 80 -j ACCEPT", "yes"),
            ("-m conntrack ! --ctorigsrc 10.0.0.0/24 -j ACCEPT", "no"),
            ("-m conntrack --ctrepldst 10.0.0.9 --ctreplsrcport 81 -j ACCEPT", "no"),
            ("-m conntrack --ctproto udp -j ACCEPT", "no"),
            ("-m conntrack --ctexpire 5 -j ACCEPT", "--ctexpire 5"),
        ] {
            assert_eq!(evaluated(rule), expected, "{rule}");
        }
    }
}
