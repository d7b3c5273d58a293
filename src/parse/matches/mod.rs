//! The matches of a rule as sets of values of a packet's fields: of foreign rules, for which the model has no words.
//!
//! Everything that decides about foreign rules reads them here: the walk of a packet, the comparison of rule sets, the warnings.

mod values;

use super::words;

pub use values::{address_number, interface_numbers, interface_prefix, name_number};

/// The first and the last of some numbers.
pub type Range = (u128, u128);

/// The field of a match. Each value is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// Its number.
    Protocol,
    /// The address, as a number.
    Source,
    /// Likewise.
    Destination,
    /// Of TCP and UDP.
    SourcePort,
    /// Likewise.
    DestinationPort,
    /// The source port or the destination port.
    EitherPort,
    /// By [`name_number`]; 0 for none.
    InInterface,
    /// Likewise.
    OutInterface,
    /// The socket's user; [`NO_SOCKET`] without one.
    Uid,
    /// Its group, likewise.
    Gid,
    /// 1 if it has a socket.
    Socket,
    /// The packet's.
    Mark,
    /// The connection's.
    Connmark,
    /// One of the constants [`NEW`] to [`SNAT`]. A connection has several of them if its addresses are translated.
    State,
    /// A property of the connection; whether the same extension tests the state, too: without a connection that alone decides.
    Connection(Part, bool),
    /// The flags of TCP.
    TcpFlags,
    /// One of the constants [`UNICAST`] to [`MULTICAST`].
    SourceType(Limit),
    /// Likewise.
    DestinationType(Limit),
}

/// The interface whose addresses count as those of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Any of them.
    None,
    /// The one that the packet arrives on.
    In,
    /// The one that it leaves by.
    Out,
}

/// A property of a connection, which no packet without one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Its status: the test holds if one of the bits of its mask is set.
    Status,
    /// 1 for replies.
    Direction,
    /// Its protocol's number.
    Protocol,
    /// One of its ends.
    End(Direction, End),
}

/// The packets of a connection in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// As the first one was sent.
    Original,
    /// As replies arrive.
    Reply,
}

/// Where packets come from or go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The address.
    Source,
    /// Likewise.
    Destination,
    /// Of TCP and UDP.
    SourcePort,
    /// Likewise.
    DestinationPort,
}

/// The bits of a connection's status, `IPS_*` of linux/netfilter/nf_conntrack_common.h, by their names in rules.
pub const STATUS: [(&str, u128); 7] = [
    ("EXPECTED", EXPECTED),
    ("SEEN_REPLY", SEEN_REPLY),
    ("ASSURED", ASSURED),
    ("CONFIRMED", CONFIRMED),
    ("SNAT", STATUS_SNAT),
    ("DNAT", STATUS_DNAT),
    ("DYING", DYING),
];
/// `EXPECTED`: another connection announced it (conntrack helper).
pub const EXPECTED: u128 = 1;
/// `SEEN_REPLY`: packets were seen in both directions.
pub const SEEN_REPLY: u128 = 2;
/// `ASSURED`: not evicted early when the table is full.
pub const ASSURED: u128 = 4;
/// `CONFIRMED`: its first packet has left or was delivered.
pub const CONFIRMED: u128 = 8;
/// `SRC_NAT`: its source is translated.
pub const STATUS_SNAT: u128 = 16;
/// `DST_NAT`: its destination is translated.
pub const STATUS_DNAT: u128 = 32;
/// `DYING`: it is being deleted.
pub const DYING: u128 = 512;

/// The first packet of a connection.
pub const NEW: u128 = 0;
/// A later packet.
pub const ESTABLISHED: u128 = 1;
/// A packet in conntrack state INVALID.
pub const INVALID: u128 = 2;
/// A packet that is exempt from tracking.
pub const UNTRACKED: u128 = 3;
/// The first packet of a connection that belongs to another one.
pub const RELATED: u128 = 4;
/// Its destination is translated.
pub const DNAT: u128 = 5;
/// Its source is.
pub const SNAT: u128 = 6;

/// `RTN_UNICAST` and the others, from linux/rtnetlink.h.
pub const UNICAST: u128 = 1;
/// An address of the machine.
pub const LOCAL: u128 = 2;
/// A broadcast address.
pub const BROADCAST: u128 = 3;
/// A multicast address.
pub const MULTICAST: u128 = 5;

/// The uid and gid of a packet without a socket: no user has this number.
pub const NO_SOCKET: u128 = 1 << 32;

/// One match that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldMatch {
    /// Its field.
    pub field: Field,
    /// The values with which it holds.
    pub values: Vec<Range>,
    /// The bits that are compared.
    pub mask: u128,
    /// Whether it holds with all other values instead.
    pub is_negated: bool,
    /// Its words.
    pub words: String,
}

impl FieldMatch {
    /// Whether the match holds for a field with this value, of which these bits are known; `None` if the others decide.
    #[must_use]
    pub fn holds(&self, value: u128, known: u128) -> Option<bool> {
        if self.mask & !known == 0 {
            return Some(self.lists(value) != self.is_negated);
        }
        // A bit that is known may differ from all of them.
        let differs = |(first, last): &Range| first == last && (first ^ value) & self.mask & known != 0;
        self.values.iter().all(differs).then_some(self.is_negated)
    }

    /// Whether a value is one of those, whatever the negation.
    #[must_use]
    pub fn lists(&self, value: u128) -> bool {
        let value = value & self.mask;
        self.values.iter().any(|(first, last)| (*first..=*last).contains(&value))
    }

    /// The values as they are written.
    #[must_use]
    pub fn listed(&self) -> &str {
        self.words.trim_start_matches("! ").split_once(' ').map_or("", |(_, listed)| listed)
    }

    /// Whether it holds for one of these values.
    #[must_use]
    pub fn holds_for_any(&self, values: &[u128]) -> bool {
        values.iter().any(|value| self.lists(*value) != self.is_negated)
    }
}

/// The matches of a rule: all of them have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// Those that are understood.
    pub known: Vec<FieldMatch>,
    /// The words of the others.
    pub unknown: Vec<String>,
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

/// Whether an extension tests nothing but by options that are read.
pub(super) fn is_read(name: &str) -> bool {
    MODULES.contains(&name)
}

/// Parses the words after `-A CHAIN`; `None` if they are not matches.
#[must_use]
pub fn read(text: &str) -> Option<Matches> {
    Some(of_words(&words::split(text)?))
}

/// The same of words that are split already.
#[must_use]
pub fn of_words(words: &[String]) -> Matches {
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
    use super::*;

    fn all(text: &str) -> Matches {
        read(text).expect("words")
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
