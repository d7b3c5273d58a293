//! Foreign rules that the model has no words for: what can be evaluated is, the rest is named.

use super::field_match::{Facts, Holds, holds};
use super::matching::AtHook;
use super::translation::Translation;
use super::zone::Zone;
use crate::model::{Family, Port, Target};
use crate::parse::{self, MarkChange, matches::Matches};

/// Whether a rule is for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Applies {
    /// It is.
    Yes,
    /// It is not, and why.
    No(String),
    /// It may be: these words cannot be evaluated.
    Maybe(String),
}

/// The effect of a rule on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Something that the model knows.
    Known(Target),
    /// It goes on in this chain, and does not come back if the rule is a `goto`.
    Chain { name: String, is_goto: bool },
    /// It takes the packet away from the rules behind it.
    Takes,
    /// It hands the packet to a transparent socket on this port, if there is one.
    ToSocket(Option<Port>, Option<MarkChange>),
    /// It does so, and may change the mark of the packet.
    GivesSocket(Port, Option<MarkChange>),
    /// It gives the packet another destination, or source in `INPUT` and `POSTROUTING`.
    Translates(Translation),
    /// The same, if a program is there that takes it, or if other rules are for what it makes of the packet.
    MayTake,
    /// It gives the packet or its connection a mark that is not known.
    Marks,
    /// It changes a mark.
    ChangesMark(MarkChange),
    /// The packet is not tracked: nat does not see it.
    Untracks,
    /// Its connection is looked for in this zone; `None` if that is not known.
    SetsZone(Option<Zone>),
    /// Nothing that ends the chain.
    Continues,
}

/// Targets that take a packet away from the rules behind them.
const TAKING: [&str; 4] = ["NFQUEUE", "QUEUE", "REJECT", "SYNPROXY"];
/// Targets that give it another destination or source.
const TRANSLATING: [&str; 5] = ["DNAT", "MASQUERADE", "NETMAP", "REDIRECT", "SNAT"];
/// Targets that change marks.
const MARKING: [&str; 3] = ["CONNMARK", "HMARK", "MARK"];

/// Whether the rule with these words is for the packet.
pub(super) fn applies(text: &str, packet: &AtHook, facts: Facts<'_>) -> Applies {
    let Some(Matches { known, mut unknown }) = parse::matches::read(text) else {
        return Applies::Maybe(text.to_owned());
    };
    for test in &known {
        match holds(test, packet, facts) {
            Holds::Yes => {}
            Holds::No(mismatch) => return Applies::No(mismatch),
            Holds::Unknown => unknown.push(test.words.clone()),
        }
    }
    if unknown.is_empty() { Applies::Yes } else { Applies::Maybe(unknown.join(" ")) }
}

/// Whether a rule tests or does something for which iptables has no words, or whose options are not known.
pub(super) fn lacks_words(text: &str) -> bool {
    let words = parse::words_of(text).unwrap_or_default();
    let is_unread = |name: &str, next: &str| match name {
        "unknown" => true,
        "tcp" | "udp" => false,
        _ => ["-m", "-j", "-g"].contains(&next),
    };
    let mut matches = words.windows(3);
    matches.any(|words| matches!(words, [option, name, next] if option == "-m" && is_unread(name, next)))
        || words.iter().any(|word| word == parse::UNREADABLE)
}

/// The effect of the rule with these words.
pub(crate) fn effect(family: Family, text: &str, is_chain: impl Fn(&str) -> bool) -> Effect {
    let target = parse::target_words(text).unwrap_or_default();
    let (option, name) = match target.as_slice() {
        [option, name, ..] => (option.as_str(), name.as_str()),
        _ => return Effect::Continues,
    };
    if let Some(known) = parse::statement(family, &target.join(" ")) {
        return Effect::Known(known.target);
    }
    let words: Vec<&str> = target.iter().skip(1).map(String::as_str).collect();
    let has = |word: &str| words.contains(&word);
    // No bit is changed.
    if name == "MARK" && has("0x0/0x0") {
        return Effect::Continues;
    }
    if let Some(change) = MarkChange::of(&words) {
        return Effect::ChangesMark(change);
    }
    match name {
        // An empty chain has no rules that could be seen.
        name if option == "-g" || is_chain(name) => {
            Effect::Chain { name: name.to_owned(), is_goto: option == "-g" }
        }
        "NFQUEUE" if has("--queue-bypass") => Effect::MayTake,
        parse::REWRITES => Effect::MayTake,
        "TPROXY" => {
            let value = |option: &str| {
                let at = words.iter().position(|word| *word == option)?;
                words.get(at + 1).copied()
            };
            let port = value("--on-port").and_then(|port| Port::new(port.parse().ok()?));
            let bits = value("--tproxy-mark").or_else(|| value("--set-xmark"));
            Effect::ToSocket(port, bits.and_then(|bits| MarkChange::of(&["MARK", "--set-xmark", bits])))
        }
        name if TAKING.contains(&name) || name == parse::UNREADABLE => Effect::Takes,
        name if TRANSLATING.contains(&name) => Effect::Translates(Translation::of(&words)),
        name if MARKING.contains(&name) => Effect::Marks,
        "NOTRACK" => Effect::Untracks,
        "CT" if has("--notrack") => Effect::Untracks,
        "CT" => Effect::SetsZone(Zone::of(&words)),
        _ => Effect::Continues,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConnectionState;
    use crate::explain::connection::Connection;
    use crate::explain::packet::OPENING;
    use crate::model::{Mark, Transport};

    /// `yes`, `no` or what is not known.
    fn evaluated(rule: &str) -> String {
        let packet = AtHook {
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
        };
        let connection = Connection::begun((packet.source, packet.destination), &packet);
        match applies(rule, &packet, Facts { fib: None, connection: Some(connection) }) {
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
            ("-m socket --transparent -j DIVERT", "-m socket --transparent"),
            ("-m socket -j ACCEPT", "-m socket"),
            ("! -i eth+ -j ACCEPT", "no"),
            ("! -i lo+ -j ACCEPT", "yes"),
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

    #[test]
    fn rules_that_lack_words_are_recognised() {
        for (rule, expected) in [
            ("-m unknown -j DROP", true),
            ("-m unknown -p tcp -j DROP", true),
            ("-p tcp -m set -j DROP", true),
            ("-m fib -m comment --comment x -j DROP", true),
            ("-j \"rules that iptables cannot read\"", true),
            ("-m set --match-set allowed src -j DROP", false),
            ("-p tcp -m tcp -j DROP", false),
            ("-m comment --comment \"-m unknown -j DROP\" -j DROP", false),
        ] {
            assert_eq!(lacks_words(rule), expected, "{rule}");
        }
    }

    #[test]
    fn targets_of_foreign_rules_take_jump_or_continue() {
        let effect = |rule: &str| effect(Family::V4, rule, |name| name == "cali-IN");
        assert_eq!(effect("-p tcp -j ACCEPT"), Effect::Known(Target::Accept));
        assert_eq!(effect("-g cali-IN"), Effect::Chain { name: "cali-IN".to_owned(), is_goto: true });
        assert!(matches!(effect("-j DNAT --to-destination 10.0.0.1:80"), Effect::Translates(_)));
        assert!(matches!(effect("-j REDIRECT --to-ports 80 --random"), Effect::Translates(_)));
        assert_eq!(effect("-j REJECT --reject-with tcp-reset"), Effect::Takes);
        assert_eq!(effect("-j LOG --log-prefix x"), Effect::Continues);
        assert!(matches!(effect("-j MARK --set-xmark 0x4000/0x4000"), Effect::ChangesMark(_)));
        assert_eq!(effect("-j HMARK --hmark-mod 2"), Effect::Marks);
        assert_eq!(effect("-j CT --zone-orig 5"), Effect::SetsZone(Some(Zone { original: 5, reply: 0 })));
        assert_eq!(effect("-j CT --zone mark"), Effect::SetsZone(None));
        assert_eq!(effect("-g empty"), Effect::Chain { name: "empty".to_owned(), is_goto: true });
        assert_eq!(effect("-j NFQUEUE --queue-num 5 --queue-bypass"), Effect::MayTake);
        assert_eq!(effect("-j NFQUEUE --queue-num 5"), Effect::Takes);
        assert_eq!(effect("-j CT --notrack"), Effect::Untracks);
    }
}
