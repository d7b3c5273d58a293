//! Reads the words of a rule into tests and an effect.

use std::net::SocketAddr;

use super::matches::{self, Matches};
use super::refused::is_target;
use super::statement::{self, number};
use super::{REWRITES, UNREADABLE, words};
use crate::live_rules::{Bits, Effect, LiveRule, MarkChange, Meaning, Reading, To, Translation, Zone};
use crate::model::{Family, Port};

/// Reads the words behind `-A CHAIN`.
#[must_use]
pub fn live_rule(family: Family, text: String) -> LiveRule {
    let words = words::split(&text);
    if let Some(statement) = words.as_deref().and_then(|words| statement::read(family, words)) {
        return LiveRule::modelled(statement, text);
    }
    let target = words::target_of(words.as_deref().unwrap_or_default()).to_vec();
    let meaning = match words {
        Some(words) => of_words(&words, effect(family, &target)),
        // A quote that is not closed.
        None => Meaning::Read(Reading {
            tests: Vec::new(),
            unread: vec![text.clone()],
            effect: Effect::Continues,
            lacks_words: false,
            is_incomplete: false,
        }),
    };
    LiveRule::read(meaning, text, target)
}

fn of_words(words: &[String], effect: Effect) -> Meaning {
    let Matches { known, unknown } = matches::of_words(words);
    let is_incomplete = words.windows(2).any(|pair| pair == ["-m", "unknown"]);
    let lacks_words = is_incomplete || lacks_words(words);
    Meaning::Read(Reading { tests: known, unread: unknown, effect, lacks_words, is_incomplete })
}

/// The effect of a target with its options.
fn effect(family: Family, target: &[String]) -> Effect {
    let (option, name) = match target {
        [option, name, ..] => (option.as_str(), name.as_str()),
        _ => return Effect::Continues,
    };
    if let Some(known) = statement::read(family, target) {
        return Effect::Known(known.target);
    }
    if option == "-g" {
        return Effect::Chain { name: name.to_owned(), is_goto: true };
    }
    let words: Vec<&str> = target.iter().skip(1).map(String::as_str).collect();
    let has = |word: &str| words.contains(&word);
    if let Some(change) = mark_change(&words) {
        let is_none = change == MarkChange::Packet(Bits { value: 0, mask: 0 });
        return if is_none { Effect::Continues } else { Effect::ChangesMark(change) };
    }
    match name {
        "NFQUEUE" => Effect::Queues { bypass: has("--queue-bypass") },
        "QUEUE" => Effect::Queues { bypass: false },
        "REJECT" => Effect::Rejects,
        "SYNPROXY" => Effect::Takes,
        "TPROXY" => {
            let port = value_of(&words, "--on-port").and_then(|port| Port::new(port.parse().ok()?));
            let set = value_of(&words, "--tproxy-mark");
            let bits = set.or_else(|| value_of(&words, "--set-xmark"));
            let mark = bits.and_then(|bits| mark_change(&["MARK", "--set-xmark", bits]));
            // Rules of iptables have a mark in any case.
            Effect::ToSocket { port, mark, drops: set.is_some() }
        }
        "DNAT" | "REDIRECT" | "NETMAP" => Effect::Translates(translation(&words)),
        "MASQUERADE" | "SNAT" => Effect::TranslatesSource,
        "CONNMARK" | "HMARK" | "MARK" => Effect::Marks,
        "NOTRACK" => Effect::Untracks,
        "CT" if has("--notrack") => Effect::Untracks,
        "CT" => Effect::SetsZone(zone(&words)),
        REWRITES => Effect::RewritesEnds,
        UNREADABLE => Effect::Takes,
        name if is_target(name) => Effect::Continues,
        name => Effect::Chain { name: name.to_owned(), is_goto: false },
    }
}

fn value_of<'a>(words: &[&'a str], option: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| *word == option)?;
    words.get(at + 1).copied()
}

/// The change of a mark by a target and its options; `None` if that is not one, or not understood.
fn mark_change(target: &[&str]) -> Option<MarkChange> {
    let whole = u32::MAX;
    Some(match target {
        ["MARK", "--set-xmark", bits] => MarkChange::Packet(xmark(bits)?),
        // Clears the bits of the value, too.
        ["MARK", "--set-mark", bits] => {
            let Bits { value, mask } = xmark(bits)?;
            MarkChange::Packet(Bits { value, mask: value | mask })
        }
        ["CONNMARK", "--set-xmark", bits] => MarkChange::Connection(xmark(bits)?),
        ["CONNMARK", "--save-mark"] => MarkChange::Save { from: whole, to: whole },
        ["CONNMARK", "--restore-mark"] => MarkChange::Restore { from: whole, to: whole },
        ["CONNMARK", kind @ ("--save-mark" | "--restore-mark"), "--mask", mask] => {
            let mask = number(mask)?;
            copied(kind, mask, mask)
        }
        [
            "CONNMARK",
            kind @ ("--save-mark" | "--restore-mark"),
            "--nfmask",
            packet,
            "--ctmask",
            connection,
        ] => copied(kind, number(packet)?, number(connection)?),
        _ => return None,
    })
}

fn copied(kind: &str, packet: u32, connection: u32) -> MarkChange {
    if kind == "--save-mark" {
        MarkChange::Save { from: packet, to: connection }
    } else {
        MarkChange::Restore { from: connection, to: packet }
    }
}

/// A mark, and the bits of it that count.
fn xmark(text: &str) -> Option<Bits> {
    let (value, mask) = match text.split_once('/') {
        Some((value, mask)) => (number(value)?, number(mask)?),
        None => (number(text)?, u32::MAX),
    };
    Some(Bits { value, mask })
}

/// The new destination of a target and its options.
fn translation(words: &[&str]) -> Translation {
    let port = |text: &str| text.parse().map_or(To::Unknown, To::This);
    let unknown = Translation { address: To::Unknown, port: To::Unknown };
    match (words.first().copied(), value_of(words, "--to-ports"), value_of(words, "--to-destination")) {
        (Some("REDIRECT"), ports, _) => Translation { address: To::Own, port: ports.map_or(To::Same, port) },
        (Some("DNAT"), _, Some(to)) => {
            let this = |address, port| Translation { address: To::This(address), port };
            let socket = to.parse().map(|to: SocketAddr| this(to.ip(), To::This(to.port())));
            let address = || to.trim_matches(['[', ']']).parse().map(|address| this(address, To::Same));
            let same =
                || to.strip_prefix(':').map(|number| Translation { address: To::Same, port: port(number) });
            // One of several addresses.
            let several =
                || if to.contains(':') { unknown } else { Translation { port: To::Same, ..unknown } };
            socket.or_else(|_| address()).unwrap_or_else(|_| same().unwrap_or_else(several))
        }
        _ => unknown,
    }
}

/// The zone of the options of `CT`, apart from `--notrack`; `None` if it depends on the packet.
fn zone(options: &[&str]) -> Option<Zone> {
    if let Some(zone) = value_of(options, "--zone") {
        return zone.parse().ok().map(Zone::both);
    }
    let side = |name: &str| value_of(options, name).map_or(Some(0), |zone| zone.parse().ok());
    Some(Zone { original: side("--zone-orig")?, reply: side("--zone-reply")? })
}

/// Whether a rule tests or does something for which iptables has no words, or whose options are not known.
fn lacks_words(words: &[String]) -> bool {
    let is_unread = |name: &str, next: &str| match name {
        "tcp" | "udp" => false,
        _ => ["-m", "-j", "-g"].contains(&next),
    };
    let mut matches = words.windows(3);
    matches.any(|words| matches!(words, [option, name, next] if option == "-m" && is_unread(name, next)))
        || words.iter().any(|word| word == UNREADABLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Mark, Target};

    fn effect_of(text: &str) -> Effect {
        live_rule(Family::V4, text.to_owned()).effect().into_owned()
    }

    fn translation_of(words: &str) -> (To<std::net::IpAddr>, To<u16>) {
        let effect = effect_of(&format!("-j {words}"));
        let Effect::Translates(Translation { address, port }) = effect else { panic!("{words}: {effect:?}") };
        (address, port)
    }

    #[test]
    fn targets_take_jump_or_continue() {
        assert_eq!(effect_of("-p tcp -j ACCEPT"), Effect::Known(Target::Accept));
        assert_eq!(effect_of("-g cali-IN"), Effect::Chain { name: "cali-IN".to_owned(), is_goto: true });
        assert_eq!(effect_of("-j cali-IN"), Effect::Chain { name: "cali-IN".to_owned(), is_goto: false });
        assert!(matches!(effect_of("-j DNAT --to-destination 10.0.0.1:80"), Effect::Translates(_)));
        assert!(matches!(effect_of("-j REDIRECT --to-ports 80 --random"), Effect::Translates(_)));
        assert_eq!(effect_of("-j MASQUERADE --random"), Effect::TranslatesSource);
        assert_eq!(effect_of("-j REJECT --reject-with tcp-reset"), Effect::Rejects);
        assert_eq!(effect_of("-j LOG --log-prefix x"), Effect::Continues);
        assert_eq!(effect_of("-j MARK --set-xmark 0x0/0x0"), Effect::Continues);
        assert!(matches!(effect_of("-j MARK --set-xmark 0x4000/0x4000"), Effect::ChangesMark(_)));
        assert_eq!(effect_of("-j HMARK --hmark-mod 2"), Effect::Marks);
        for marks in [
            "-j HMARK --hmark-mod 2",
            "-j NFQUEUE --queue-num 1",
            "-p tcp -j TPROXY --on-port 1",
            "-j SYNPROXY",
        ] {
            assert!(effect_of(marks).may_mark(), "{marks}");
        }
        assert!(!effect_of("-j DROP").may_mark() && !effect_of("-j LOG").may_mark());
        assert_eq!(effect_of("-j CT --zone-orig 5"), Effect::SetsZone(Some(Zone { original: 5, reply: 0 })));
        assert_eq!(effect_of("-j CT --zone mark"), Effect::SetsZone(None));
        assert_eq!(effect_of("-g empty"), Effect::Chain { name: "empty".to_owned(), is_goto: true });
        assert_eq!(effect_of("-j NFQUEUE --queue-num 5 --queue-bypass"), Effect::Queues { bypass: true });
        assert_eq!(effect_of("-j NFQUEUE --queue-num 5"), Effect::Queues { bypass: false });
        assert_eq!(effect_of("-j CT --notrack"), Effect::Untracks);
    }

    #[test]
    fn words_of_a_comment_are_no_target() {
        for comment in ["-j", "-g", "\"-j ACCEPT\"", "\"may not\"", "\"-owner net\""] {
            let rule = live_rule(Family::V4, format!("-p tcp -m comment --comment {comment} -j DROP"));
            assert_eq!((rule.target(), rule.tests_owner()), ("DROP", false), "{comment}");
            assert_eq!(*rule.effect(), Effect::Known(Target::Drop), "{comment}");
        }
        let native = live_rule(Family::V4, "-j DROP -m comment --comment \"-j ACCEPT\"".to_owned());
        assert_eq!(native.target(), "DROP");
    }

    #[test]
    fn destinations_are_read_as_far_as_they_are_one() {
        let of = translation_of;
        let this = |address: &str| To::This(address.parse().expect("an address"));
        assert_eq!(of("DNAT --to-destination 10.0.0.1:80"), (this("10.0.0.1"), To::This(80)));
        assert_eq!(of("DNAT --to-destination [::1]:80"), (this("::1"), To::This(80)));
        assert_eq!(of("DNAT --to-destination ::1"), (this("::1"), To::Same));
        assert_eq!(of("DNAT --to-destination [::1]"), (this("::1"), To::Same));
        assert_eq!(of("DNAT --to-destination :80"), (To::Same, To::This(80)));
        assert_eq!(of("DNAT --to-destination 10.0.0.1"), (this("10.0.0.1"), To::Same));
        assert_eq!(of("DNAT --to-destination 10.0.0.1-10.0.0.5:80"), (To::Unknown, To::Unknown));
        assert_eq!(of("DNAT --to-destination 10.0.0.1-10.0.0.5"), (To::Unknown, To::Same));
        assert_eq!(of("DNAT --to-destination 10.0.0.1:80-90"), (To::Unknown, To::Unknown));
        assert_eq!(of("DNAT"), (To::Unknown, To::Unknown));
        assert_eq!(of("REDIRECT --to-ports 80 --random"), (To::Own, To::This(80)));
        assert_eq!(of("REDIRECT --to-ports 80-90"), (To::Own, To::Unknown));
        assert_eq!(of("REDIRECT"), (To::Own, To::Same));
        assert_eq!(of("NETMAP --to 10.0.0.0/8"), (To::Unknown, To::Unknown));
    }

    #[test]
    fn zones_have_directions() {
        let of = |words: &str| {
            let effect = effect_of(&format!("-j CT {words}"));
            let Effect::SetsZone(zone) = effect else { panic!("{words}: {effect:?}") };
            zone
        };
        assert_eq!(of("--zone-orig 5"), Some(Zone { original: 5, reply: 0 }));
        assert_eq!(of("--zone-reply 5"), Some(Zone { original: 0, reply: 5 }));
        assert_eq!(of("--helper ftp"), Some(Zone::default()));
        assert_eq!(of("--zone mark"), None);
    }

    #[test]
    fn bits_of_marks_are_changed_as_the_kernel_does() {
        let of = |words: &str| mark_change(&words.split(' ').collect::<Vec<_>>());
        let set = |words: &str, mark: u32| match of(words) {
            Some(change @ MarkChange::Packet(_)) => change.apply(Mark(mark), Mark(0)).0.0,
            other => panic!("{words}: {other:?}"),
        };
        assert_eq!(set("MARK --set-xmark 0x539/0xffffffff", 7), 0x539);
        assert_eq!(set("MARK --set-xmark 0x4000/0x4000", 0x8001), 0xc001);
        assert_eq!(set("MARK --set-xmark 0x0/0x1", 3), 2);
        assert_eq!(set("MARK --set-mark 0x5/0x1", 2), 7);
        assert_eq!(
            of("CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff00"),
            Some(MarkChange::Restore { from: 0xff00, to: 0xff })
        );
        assert_eq!(of("HMARK --hmark-tuple src"), None);
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
            assert_eq!(live_rule(Family::V4, rule.to_owned()).lacks_words(), expected, "{rule}");
        }
    }
}
