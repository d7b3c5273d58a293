//! Which foreign rules can match captured traffic: TCP, and with DNS capture UDP of its ports.

use std::collections::BTreeSet;

use crate::live_rules::{self, Field, FieldMatch, Limit, LiveRule, Part};
use crate::model::{
    Chain, DNS_CAPTURE_PORT, DNS_PORT, Family, FamilyRules, Hook, HookRules, Rule, Statement, Table,
    TableRules, Target, Transport,
};
use crate::ordered::Ordered as _;

/// What the desired rules of a family capture.
#[derive(Clone, Debug)]
pub(super) struct CapturedTraffic {
    family: Family,
    /// DNS over UDP besides TCP.
    pub(super) dns: bool,
    /// The proxy's ports, with their protocols, and the hooks in which packets are redirected to them: they
    /// have one of them from then on.
    redirects: BTreeSet<(Hook, u128, u16)>,
    /// Whether packets keep their own port, as with TPROXY.
    pub(super) keeps_port: bool,
    /// The mark of packets that TPROXY has taken.
    mark: Option<u128>,
    /// The mark of redirected packets, if that is known: none, where no rule sets one. Those of other network
    /// namespaces lose theirs, and to set one on a socket needs `NET_ADMIN`, which apps do not have.
    redirected_mark: Option<u128>,
    /// Whether TPROXY takes all TCP packets that do not arrive on lo.
    takes_every_port: bool,
}

/// Packets that our rules have taken, or are to take: of a protocol, for a port of the proxy or for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Taken {
    protocol: u128,
    port: Option<u128>,
    /// The first packet of a connection, or a later one.
    state: u128,
    /// Whether another destination was made of its own, so that its connection has the state DNAT.
    is_redirected: bool,
    /// The destination, if that is the same for all.
    destination: Option<u128>,
    /// The interface on which it arrives, if that is the same for all.
    in_interface: Option<u128>,
    /// The mark, if that is the same for all.
    mark: Option<u128>,
}

/// The states of packets that belong to a connection.
const STATES: [u128; 2] = [live_rules::NEW, live_rules::ESTABLISHED];

impl Taken {
    const fn arriving(protocol: u128, port: Option<u128>) -> Self {
        Self {
            protocol,
            port,
            state: live_rules::NEW,
            is_redirected: false,
            destination: None,
            in_interface: None,
            mark: None,
        }
    }

    /// The packets in each state.
    fn in_each_state(self) -> impl Iterator<Item = Self> {
        STATES.into_iter().map(move |state| Self { state, ..self })
    }

    /// Whether a rule is sure to match all of them.
    pub(super) fn all_match(self, rule: &LiveRule) -> bool {
        let holds = |test: &FieldMatch| self.all_pass(test);
        rule.unread().is_empty() && !rule.lacks_words() && rule.tests().iter().all(holds)
    }

    /// The only test of a rule that may fail for some of them.
    pub(super) fn open_test(self, rule: &LiveRule) -> Option<FieldMatch> {
        let tests = rule.tests();
        let mut open = tests.iter().filter(|test| !self.all_pass(test));
        let first = open.next().filter(|_| rule.unread().is_empty() && !rule.lacks_words());
        first.filter(|_| open.next().is_none()).cloned()
    }

    /// Whether a test may hold for some of them; `first` is the first loopback address.
    fn may_pass(self, test: &FieldMatch, first: u128) -> bool {
        let may_be = |value: Option<u128>| value.is_none_or(|value| test.holds_for_any(&[value]));
        match test.field {
            Field::Protocol => test.holds_for_any(&[self.protocol]),
            // That to which packets are redirected, TPROXY takes none from.
            Field::Destination if !self.is_redirected => test.is_negated || test.values != [(first, first)],
            Field::Destination => may_be(self.destination),
            Field::DestinationPort => may_be(self.port),
            Field::InInterface => may_be(self.in_interface),
            Field::Mark => may_be(self.mark),
            // All packets of a redirected connection have the state DNAT.
            Field::State => !(self.is_redirected && test.is_negated && test.lists(live_rules::DNAT)),
            Field::Connection(Part::Status, _) => {
                !(self.is_redirected && test.is_negated && test.mask & live_rules::STATUS_DNAT != 0)
            }
            Field::Source
            | Field::SourcePort
            | Field::EitherPort
            | Field::OutInterface
            | Field::Uid
            | Field::Gid
            | Field::Socket
            | Field::Connmark
            | Field::Connection(..)
            | Field::TcpFlags
            | Field::SourceType(_)
            | Field::DestinationType(_)
            | Field::ReversePath(_)
            | Field::ExtensionHeader => true,
        }
    }

    /// Whether a test is sure to hold for all of them.
    fn all_pass(self, test: &FieldMatch) -> bool {
        let is_value = |value: Option<u128>| value.is_some_and(|value| test.holds_for_any(&[value]));
        let is_listed = test.lists(self.state) || self.is_redirected && test.lists(live_rules::DNAT);
        match test.field {
            Field::Protocol => test.holds_for_any(&[self.protocol]),
            Field::Destination => is_value(self.destination),
            Field::DestinationPort => is_value(self.port),
            Field::InInterface => is_value(self.in_interface),
            Field::Mark => is_value(self.mark),
            // Whether their source is translated is not known.
            Field::State => {
                is_listed != test.is_negated && !(test.is_negated && test.lists(live_rules::SNAT))
            }
            Field::Connection(Part::Status, _) => {
                self.is_redirected && test.lists(live_rules::STATUS_DNAT) && !test.is_negated
            }
            Field::DestinationType(Limit::None) => {
                self.destination.is_some() && test.holds_for_any(&[live_rules::LOCAL])
            }
            Field::Source
            | Field::SourcePort
            | Field::EitherPort
            | Field::OutInterface
            | Field::Uid
            | Field::Gid
            | Field::Socket
            | Field::Connmark
            | Field::Connection(..)
            | Field::TcpFlags
            | Field::SourceType(_)
            | Field::DestinationType(_)
            | Field::ReversePath(_) => false,
            Field::ExtensionHeader => test.holds_for_any(&[0]),
        }
    }
}

impl CapturedTraffic {
    /// `is_marked`: whether foreign rules set marks.
    pub(super) fn of(rules: &FamilyRules, is_marked: bool) -> Self {
        let family = rules.family;
        let takes_every_port = rules.tables.get(&Table::Mangle).is_some_and(takes_every_port);
        let nat = rules.tables.get(&Table::Nat);
        let redirecting = |hook: Hook| nat.into_iter().flat_map(move |nat| reached(nat, hook));
        let rules = || rules.tables.values().flat_map(|table| table.rules());
        // An excluded port is one of UDP, too.
        let is_dns = |rule: &Rule| {
            let protocol = rule.statement.matcher.protocol.as_ref();
            let is_udp = protocol.is_some_and(|protocol| protocol.transport == Transport::Udp);
            is_udp && rule.statement.target != Target::Return
        };
        let tproxy_mark = |target| if let Target::Tproxy { mark, .. } = target { Some(mark) } else { None };
        let mark = rules().find_map(|rule| tproxy_mark(rule.statement.target)).map(|mark| mark.0.into());
        Self {
            family,
            dns: rules().any(is_dns),
            redirects: Hook::ALL
                .into_iter()
                .flat_map(|hook| redirecting(hook).map(move |rule| (hook, rule)))
                .filter_map(|(hook, rule)| {
                    let protocol = if is_dns(rule) { UDP } else { TCP };
                    Some((hook, protocol, rule.statement.target.redirect()?.number()))
                })
                .into_set(),
            keeps_port: mark.is_some(),
            mark,
            redirected_mark: (mark.is_none() && !is_marked).then_some(0),
            takes_every_port,
        }
    }

    /// The proxy's ports, if packets are redirected to them.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        self.redirects.iter().map(|(.., port)| *port)
    }

    /// The kinds of packets that our rules have taken, as they come to chains behind ours.
    pub(super) fn taken(&self, is_output: bool) -> impl Iterator<Item = Taken> {
        let of = move |(hook, protocol, port): &(Hook, u128, u16)| {
            let is_sent = *hook == Hook::Output;
            let redirected = Taken {
                is_redirected: true,
                destination: is_sent.then(|| self.loopback().0),
                in_interface: (is_sent && !is_output).then(|| live_rules::name_number(b"lo")),
                mark: self.redirected_mark,
                ..Taken::arriving(*protocol, Some((*port).into()))
            };
            (is_sent || !is_output).then_some(redirected)
        };
        let with_any_port = (self.keeps_port && !is_output)
            .then_some(Taken { mark: self.mark, ..Taken::arriving(TCP, None) });
        self.redirects.iter().filter_map(of).chain(with_any_port).flat_map(Taken::in_each_state)
    }

    /// The first loopback address, to which what processes send is redirected, and the last one.
    const fn loopback(&self) -> (u128, u128) {
        match self.family {
            Family::V4 => (0x7f00_0001, 0x7fff_ffff),
            Family::V6 => (1, 1),
        }
    }

    /// The kinds of packets that our rules are to take, as they come to chains before ours.
    pub(super) fn arriving(&self) -> impl Iterator<Item = Taken> {
        let queries = Taken::arriving(UDP, Some(DNS_PORT.number().into()));
        let all = [Taken::arriving(TCP, None)].into_iter().chain(self.dns.then_some(queries));
        all.flat_map(Taken::in_each_state)
    }

    /// Whether a rule may match captured packets. What is not understood may.
    pub(super) fn may_match(&self, rule: &LiveRule) -> bool {
        self.may_meet(&rule.tests())
    }

    /// Whether it may match what TPROXY leaves to the rules behind ours in PREROUTING: UDP; and of TCP what
    /// arrives on lo (redirected connections, those of the proxy to the app, their replies), and replies to
    /// the proxy at a port that is not captured.
    pub(super) fn may_match_behind_tproxy(&self, rule: &LiveRule) -> bool {
        let tests = rule.tests();
        let lo = live_rules::name_number(b"lo");
        let may_arrive_on_lo = || {
            let mut interfaces = tests.iter().filter(|test| test.field == Field::InInterface);
            interfaces.all(|test| test.holds_for_any(&[lo]))
        };
        !self.takes_every_port || may_arrive_on_lo() || !may_meet(&tests, TCP, self.family)
    }

    /// [`Self::may_match`] apart from DNS over UDP, of which every packet has a conntrack zone.
    pub(super) fn may_match_without_zone(family: Family, rule: &LiveRule) -> bool {
        may_meet(&rule.tests(), TCP, family)
    }

    fn may_meet(&self, tests: &[FieldMatch]) -> bool {
        // Packets to whose source no route leads back. Which captured ones that are, a walk says; by the mark
        // of TPROXY it is each that arrives.
        let is_spoofed = |test: &FieldMatch| {
            let is_by_tproxy = |has_mark: bool| has_mark && self.keeps_port;
            matches!(test.field, Field::ReversePath(path) if test.is_negated && !is_by_tproxy(path.has_mark))
        };
        if tests.iter().any(is_spoofed) {
            return false;
        }
        let may_meet = |protocol| may_meet(tests, protocol, self.family);
        may_meet(TCP) || self.dns && may_meet(UDP) && may_be_dns(tests)
    }

    /// Whether a rule may match packets that our rules have taken: in the chains of the input hook, and
    /// behind ours in those of the output hook, where a redirected packet is for loopback.
    pub(super) fn may_match_taken(&self, rule: &LiveRule, is_output: bool) -> bool {
        let tests = rule.tests();
        if !self.may_meet(&tests) {
            return false;
        }
        let (first, last) = self.loopback();
        let may_pass = |taken: Taken| tests.iter().all(|test| taken.may_pass(test, first));
        if !self.taken(is_output).any(may_pass) {
            return false;
        }
        if is_output {
            return true;
        }
        let of = |field: Field| tests.iter().filter(move |test| test.field == field);
        // What claims to be local and comes from outside.
        let lo = live_rules::name_number(b"lo");
        let from_outside = of(Field::InInterface).any(|test| test.is_negated && test.lists(lo));
        let is_local = |test: &FieldMatch| {
            !test.is_negated && test.values.iter().all(|(from, to)| *from >= first & !1 && *to <= last)
        };
        !(from_outside && of(Field::Source).chain(of(Field::Destination)).any(is_local))
    }
}

/// The rules of a table that packets of a hook meet, in the hook and in our chains.
fn reached(table: &TableRules, hook: Hook) -> Vec<&Rule> {
    let mut met: Vec<&Rule> = table.hooks.get(&hook).into_iter().flat_map(HookRules::iter).collect();
    let mut entered: BTreeSet<Chain> = BTreeSet::new();
    let mut at = 0;
    while let Some(rule) = met.get(at) {
        let chain = rule.statement.target.jump().filter(|chain| entered.insert(*chain));
        met.extend(chain.and_then(|chain| table.chains.get(&chain)).into_iter().flatten());
        at += 1;
    }
    met
}

/// Whether TPROXY captures every port, of whatever interface.
fn takes_every_port(mangle: &TableRules) -> bool {
    let is_of_interface = |rule: &Rule| rule.statement.target == Target::Return;
    let excludes = mangle.hooks.get(&Hook::Prerouting).is_some_and(|rules| rules.iter().any(is_of_interface));
    let is_for_all = |rule: &Rule| {
        let Statement { matcher, target } = &rule.statement;
        let has_port = matcher.protocol.as_ref().is_some_and(|protocol| protocol.destination.is_some());
        *target == Target::Jump(Chain::Divert) && !has_port
    };
    !excludes && mangle.chains.get(&Chain::Inbound).is_some_and(|rules| rules.iter().any(is_for_all))
}

const TCP: u128 = 6;
const UDP: u128 = 17;

/// The flags of a SYN, without and with ECN (RFC 3168): those of the first packet of a connection.
const FIRST_FLAGS: [u128; 2] = [0x02, 0xc2];

/// Whether all tests may hold for one packet, the first of its connection or a later one.
fn may_meet(tests: &[FieldMatch], protocol: u128, family: Family) -> bool {
    use live_rules::{ESTABLISHED, NEW, RELATED};
    let is_in = |test: &FieldMatch, states: &[u128]| test.field != Field::State || may_be_in(test, states);
    let has_flags = |test: &FieldMatch| test.field != Field::TcpFlags || test.holds_for_any(&FIRST_FLAGS);
    tests.iter().all(|test| may_hold(test, protocol, family))
        && (tests.iter().all(|test| is_in(test, &[NEW]) && has_flags(test))
            || tests.iter().all(|test| is_in(test, &[ESTABLISHED, RELATED])))
}

/// Whether a test of the state may hold for a packet in one of these. One that is translated has another
/// state besides.
fn may_be_in(test: &FieldMatch, states: &[u128]) -> bool {
    let is_translated = || !test.is_negated && test.holds_for_any(&[live_rules::DNAT, live_rules::SNAT]);
    test.holds_for_any(states) || is_translated()
}

/// Whether a match may hold for a packet that is captured, of this protocol and family.
fn may_hold(test: &FieldMatch, protocol: u128, family: Family) -> bool {
    use live_rules::{LOCAL, UNICAST};
    match test.field {
        Field::Protocol => test.holds_for_any(&[protocol]),
        Field::SourceType(_) | Field::DestinationType(_) => test.holds_for_any(&[UNICAST, LOCAL]),
        Field::ExtensionHeader => test.holds_for_any(&[0]),
        Field::Source
        | Field::Destination
        | Field::SourcePort
        | Field::DestinationPort
        | Field::EitherPort
        | Field::InInterface
        | Field::OutInterface
        | Field::Uid
        | Field::Gid
        | Field::Socket
        | Field::Mark
        | Field::Connmark
        | Field::Connection(..)
        | Field::State
        | Field::TcpFlags
        | Field::ReversePath(_) => !test.is_never(family),
    }
}

/// Whether a rule for UDP may match queries, replies, or those to and from the proxy.
fn may_be_dns(tests: &[FieldMatch]) -> bool {
    let is_port = |test: &&FieldMatch| {
        [Field::SourcePort, Field::DestinationPort, Field::EitherPort].contains(&test.field)
    };
    let mut ports = tests.iter().filter(is_port).peekable();
    let dns = [DNS_PORT, DNS_CAPTURE_PORT].map(|port| port.number().into());
    // A negated list of ports is rare: it may match.
    ports.peek().is_none() || ports.any(|test| test.is_negated || dns.iter().any(|port| test.lists(*port)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn may_match(dns: bool, rule: &str) -> bool {
        CapturedTraffic {
            family: Family::V4,
            dns,
            redirects: BTreeSet::new(),
            keeps_port: false,
            mark: None,
            redirected_mark: None,
            takes_every_port: false,
        }
        .may_match(&parse::live_rule(Family::V4, rule.to_owned()))
    }

    /// Any other port of loopback is none of the proxy's.
    #[test]
    fn packets_for_loopback_have_a_port_of_the_proxy_in_each_mode() {
        for keeps_port in [false, true] {
            let redirects = BTreeSet::from([(Hook::Output, TCP, 15001)]);
            let captured = CapturedTraffic {
                family: Family::V4,
                dns: false,
                redirects,
                keeps_port,
                mark: keeps_port.then_some(1337),
                redirected_mark: (!keeps_port).then_some(0),
                takes_every_port: false,
            };
            let may_match =
                |rule: &str| captured.may_match_taken(&parse::live_rule(Family::V4, rule.to_owned()), false);
            assert!(!may_match("-d 127.0.0.1/32 -p tcp -m tcp --dport 20256 -j DROP"));
            assert!(may_match("-d 127.0.0.1/32 -p tcp -m tcp --dport 15001 -j DROP"));
            assert!(may_match("-d 127.0.0.1/32 -p tcp -j DROP"));
            assert_eq!(may_match("-p tcp -m tcp --dport 20256 -j DROP"), keeps_port);
            // What TPROXY has taken has its mark, what is redirected none.
            assert_eq!(may_match("-p tcp -m tcp --dport 15001 -m mark --mark 0x39/0xff -j DROP"), keeps_port);
            assert!(!may_match("-p tcp -m tcp --dport 20256 -m mark ! --mark 0x539 -j DROP"));
            assert!(may_match("-p tcp -m mark ! --mark 0x539 -j DROP"));
        }
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
            ("! -i + -j DROP", false, false),
            ("! -o + -p tcp -j DROP", false, false),
            ("! -i e+ -j DROP", true, true),
            ("-i + -j DROP", true, true),
            ("-p tcp -m tcp ! --dport 0:65535 -j DROP", false, false),
            ("-p tcp -m tcp ! --dport 1:65535 -j DROP", true, true),
            ("-m mark ! --mark 0x0/0x0 -j DROP", false, false),
            ("-m mark ! --mark 0x0/0x1 -j DROP", true, true),
            ("! -s 0.0.0.0/0 -j DROP", false, false),
            ("! -d 0.0.0.0/0 -p tcp -j DROP", false, false),
            ("-m iprange ! --src-range 0.0.0.0-255.255.255.255 -j DROP", false, false),
            ("! -s 0.0.0.0/1 -j DROP", true, true),
            // A connection begins with a SYN, and has another state by its next packet.
            ("-p tcp -m tcp --tcp-flags ACK ACK -m conntrack --ctstate INVALID,NEW -j DROP", false, false),
            ("-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -m state --state NEW -j DROP", false, false),
            ("-p tcp -m tcp --tcp-flags ACK ACK -m conntrack --ctstate DNAT -j DROP", true, true),
            ("-p tcp -m tcp --tcp-flags ACK ACK -j DROP", true, true),
            ("-p tcp -m tcp --tcp-flags SYN SYN -m conntrack --ctstate NEW -j DROP", true, true),
            ("-m conntrack ! --ctstate NEW -j DROP", true, true),
            ("-m conntrack ! --ctstate NEW,RELATED,ESTABLISHED -j DROP", false, false),
        ] {
            assert_eq!((may_match(false, rule), may_match(true, rule)), (without, with_dns), "{rule}");
        }
    }
}
