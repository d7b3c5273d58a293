//! Reads the words of the tests of a rule for which the model lacks terms.

mod values;

use crate::live_rules::{Field, FieldMatch, Limit, ReversePath};

/// The matches of a rule: all of them have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Matches {
    /// The matches that are understood.
    pub(super) known: Vec<FieldMatch>,
    /// The words of the others.
    pub(super) unknown: Vec<String>,
}

/// The extensions that test nothing but by their options. Others may, as `-m socket` does.
const MODULES: [&str; 11] = [
    "addrtype",
    "comment",
    "connmark",
    "conntrack",
    "iprange",
    "mark",
    "multiport",
    "owner",
    "state",
    "tcp",
    "udp",
];

/// The extensions that test an extension header of IPv6: without it they do not hold, whatever their options.
const HEADERS: [&str; 5] = ["dst", "frag", "hbh", "mh", "rt"];

/// Whether an extension tests nothing but by options that are read.
pub(super) fn is_read(name: &str) -> bool {
    MODULES.contains(&name)
}

/// Reads the words behind `-A CHAIN`.
pub(super) fn of_words(words: &[String]) -> Matches {
    let mut found = Matches::default();
    let mut module = "";
    // The first match of the extension whose options are read.
    let mut first = 0;
    for words in options(words) {
        let (is_negated, option) = match words.as_slice() {
            ["!", option @ ..] => (true, option),
            option => (false, option),
        };
        match option {
            ["--comment", ..] => {}
            ["-m", "rpfilter"] => {
                (module, first) = ("rpfilter", found.known.len());
                found.known.push(is_one(Field::ReversePath(ReversePath::default()), &words));
            }
            ["-m", name] if HEADERS.contains(name) => {
                (module, first) = ("header", found.known.len());
                found.known.push(is_one(Field::ExtensionHeader, &words));
            }
            [option] if module == "rpfilter" && reverse_path(&mut found.known, option).is_some() => {}
            [option, ..] if module == "header" && option.starts_with("--") => {}
            ["-m", name] => {
                (module, first) =
                    (MODULES.into_iter().find(|known| known == name).unwrap_or("?"), found.known.len());
                if module == "?" {
                    found.unknown.push(words.join(" "));
                }
            }
            ["--limit-iface-in"] if module == "addrtype" => limit(&mut found.known, first, Limit::In),
            ["--limit-iface-out"] if module == "addrtype" => limit(&mut found.known, first, Limit::Out),
            // The users' groups besides the first are not known.
            ["--suppl-groups"] if module == "owner" => {
                let groups = found.known.iter().skip(first).position(|test| test.field == Field::Gid);
                if let Some(at) = groups {
                    let group = found.known.remove(first + at);
                    found.unknown.push(format!("{} --suppl-groups", group.words));
                }
            }
            ["-p", value] if !is_negated && super::protocol_number(value) == Some(0) => {}
            option => match values::read(module, option) {
                Some((field, mask, values)) => {
                    let words = words.join(" ");
                    found.known.push(FieldMatch { field, values, mask, is_negated, words });
                    beside_state(&mut found.known, first);
                }
                None => found.unknown.push(words.join(" ")),
            },
        }
    }
    found
}

/// The test that something holds.
fn is_one(field: Field, words: &[&str]) -> FieldMatch {
    FieldMatch { field, values: vec![(1, 1)], mask: u128::MAX, is_negated: false, words: words.join(" ") }
}

/// An option of the reverse path filter.
fn reverse_path(known: &mut [FieldMatch], option: &str) -> Option<()> {
    let test = known.last_mut()?;
    let Field::ReversePath(path) = &mut test.field else { return None };
    match option {
        "--loose" => path.is_loose = true,
        "--validmark" => path.has_mark = true,
        "--invert" => test.is_negated = true,
        _ => return None,
    }
    test.words = format!("{} {option}", test.words);
    Some(())
}

/// The addresses that count are those of one interface.
fn limit(known: &mut [FieldMatch], first: usize, limit: Limit) {
    for test in known.iter_mut().skip(first) {
        if let Field::SourceType(of) | Field::DestinationType(of) = &mut test.field {
            *of = limit;
        }
    }
}

/// The tests of an extension that tests the state, too.
fn beside_state(known: &mut [FieldMatch], first: usize) {
    let tests = || known.iter().skip(first);
    if tests().any(|test| test.field == Field::State) {
        for test in known.iter_mut().skip(first) {
            if let Field::Connection(_, is_beside) = &mut test.field {
                *is_beside = true;
            }
        }
    }
}

/// The options before the target, each with its values.
fn options(words: &[String]) -> Vec<Vec<&str>> {
    let mut options: Vec<Vec<&str>> = Vec::new();
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        if word == "-j" || word == "-g" {
            break;
        }
        let mut option = vec![word];
        if word == "!" {
            option.extend(words.next());
        }
        // What is in a comment may look like an option.
        if word == "--comment" {
            option.extend(words.next());
        }
        while let Some(value) = words.next_if(|next| !next.starts_with('-') && *next != "!") {
            option.push(value);
        }
        options.push(option);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::super::words;
    use super::*;
    use crate::live_rules::*;

    fn all(text: &str) -> Matches {
        of_words(&words::split(text).expect("words"))
    }

    fn is_read_as(text: &str, field: Field, mask: u128, values: &[Range]) {
        let Matches { known, unknown } = all(text);
        let [found] = known.as_slice() else { panic!("{text}: {known:?}") };
        assert_eq!(
            (found.field, found.mask, found.values.as_slice(), unknown.len()),
            (field, mask, values, 0),
            "{text}"
        );
    }

    #[test]
    fn values_are_read_by_extension_and_option() {
        let every = u128::MAX;
        for (text, field, mask, values) in [
            ("-p tcp -j X", Field::Protocol, every, vec![(6, 6)]),
            ("-p tcp,udp -j X", Field::Protocol, every, vec![(6, 6), (17, 17)]),
            (
                "-m iprange --src-range 10.0.0.3-10.0.0.9 -j X",
                Field::Source,
                every,
                vec![(0x0a00_0003, 0x0a00_0009)],
            ),
            ("-d 10.0.0.0/30 -j X", Field::Destination, every, vec![(0x0a00_0000, 0x0a00_0003)]),
            (
                "-d 10.0.0.0/31,10.0.1.1-10.0.1.2 -j X",
                Field::Destination,
                every,
                vec![(0x0a00_0000, 0x0a00_0001), (0x0a00_0101, 0x0a00_0102)],
            ),
            (
                "-d 10.9.9.5/255.0.0.255 -j X",
                Field::Destination,
                0xff00_00ff,
                vec![(0x0a00_0005, 0x0a00_0005)],
            ),
            (
                "-s ffff::5/f::f -j X",
                Field::Source,
                (0xf << 112) | 0xf,
                vec![((0xf << 112) | 5, (0xf << 112) | 5)],
            ),
            ("-m owner --uid-owner 1000-2000 -j X", Field::Uid, every, vec![(1000, 2000)]),
            ("-m owner --socket-exists -j X", Field::Socket, every, vec![(1, 1)]),
            ("-m mark --mark 0x1/0xff -j X", Field::Mark, 0xff, vec![(1, 1)]),
            ("-m connmark --mark 5 -j X", Field::Connmark, 0xffff_ffff, vec![(5, 5)]),
            ("-m multiport --ports 1,5:7 -j X", Field::EitherPort, every, vec![(1, 1), (5, 7)]),
            ("-m tcp --tcp-flags SYN,ACK SYN -j X", Field::TcpFlags, 0x12, vec![(2, 2)]),
            ("-m tcp --tcp-flags ALL NONE -j X", Field::TcpFlags, 0x3f, vec![(0, 0)]),
            ("-m conntrack --ctstate NEW,DNAT -j X", Field::State, every, vec![(NEW, NEW), (DNAT, DNAT)]),
            (
                "-m addrtype --dst-type LOCAL,BROADCAST -j X",
                Field::DestinationType(Limit::None),
                every,
                vec![(LOCAL, LOCAL), (BROADCAST, BROADCAST)],
            ),
            (
                "-m addrtype --src-type LOCAL --limit-iface-in -j X",
                Field::SourceType(Limit::In),
                every,
                vec![(LOCAL, LOCAL)],
            ),
        ] {
            is_read_as(text, field, mask, &values);
        }
    }

    #[test]
    fn tests_of_connections_are_read() {
        let every = u128::MAX;
        for (text, field, mask, values) in [
            (
                "-m conntrack --ctstatus SEEN_REPLY,DNAT -j X",
                Field::Connection(Part::Status, false),
                0x22,
                vec![(1, u128::MAX)],
            ),
            (
                "-m conntrack --ctorigdst 10.0.0.0/30 -j X",
                Field::Connection(Part::End(Direction::Original, End::Destination), false),
                every,
                vec![(0x0a00_0000, 0x0a00_0003)],
            ),
            (
                "-m conntrack --ctreplsrcport 80:81 -j X",
                Field::Connection(Part::End(Direction::Reply, End::SourcePort), false),
                every,
                vec![(80, 81)],
            ),
            (
                "-m conntrack --ctdir REPLY -j X",
                Field::Connection(Part::Direction, false),
                every,
                vec![(1, 1)],
            ),
        ] {
            is_read_as(text, field, mask, &values);
        }
    }

    #[test]
    fn state_beside_other_tests_of_one_extension_is_noted() {
        for (text, is_beside) in [
            ("-m conntrack --ctstate NEW --ctproto tcp -j X", true),
            ("-m conntrack --ctproto 6 --ctstate NEW -j X", true),
            ("-m conntrack --ctproto 6 -m conntrack --ctstate NEW -j X", false),
        ] {
            let protocol = Field::Connection(Part::Protocol, is_beside);
            assert!(all(text).known.iter().any(|test| test.field == protocol), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, unknown) in [
            ("-m socket -j X", "-m socket"),
            ("-m sctp --dport 5 -j X", "-m sctp --dport 5"),
            ("-m set ! --match-set allowed src -j X", "-m set ! --match-set allowed src"),
            ("-m owner --gid-owner 5 --suppl-groups -j X", "--gid-owner 5 --suppl-groups"),
            ("-m comment --comment \"-m x\" -j X", ""),
            ("-m mark --mark 0x1 -m length --length 5 -j X", "-m length --length 5"),
            ("-f -j X", "-f"),
        ] {
            assert_eq!(all(text).unknown.join(" "), unknown, "{text}");
        }
    }

    #[test]
    fn masked_values_are_compared_as_far_as_they_are_known() {
        let Matches { known, .. } = all("-m tcp --tcp-flags SYN,ACK,FIN SYN -j X");
        let [flags] = known.as_slice() else { panic!("{known:?}") };
        assert_eq!(flags.holds(2, u128::MAX), Some(true));
        assert_eq!(flags.holds(0x10, 0x12), Some(false));
        assert_eq!(flags.holds(2, 2), None);
    }
}
