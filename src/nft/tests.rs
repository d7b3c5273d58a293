//! The form of rules that show each of its properties.

use nfnetlink::nftables::Comment;

use super::*;
use crate::model::Family;
use crate::model::{
    Chain, Hook, HookRules, Interface, Match, Matcher, Owner, Port, Protocol, Rule, Statement, Table,
    TableRules, Target, Transport, Why,
};

fn rule(matcher: Matcher, target: Target) -> Rule {
    Rule { statement: Statement { matcher, target }, only: None, why: Why::AppLoopback }
}

fn by(owner: Match<Owner>) -> Matcher {
    Matcher { owners: vec![owner], ..Matcher::default() }
}

fn over_lo(matcher: Matcher) -> Matcher {
    Matcher { out_interface: Some(Interface::loopback()), ..matcher }
}

fn tcp_to(port: u16) -> Matcher {
    let port = Port::new(port).unwrap();
    Matcher { protocol: Some(Protocol::to(Transport::Tcp, port)), ..Matcher::default() }
}

fn to(network: &str) -> Matcher {
    Matcher { destination: Some(Match::Is(network.parse().unwrap())), ..Matcher::default() }
}

/// The lines of the rules that IPv4 and IPv6 have in nat OUTPUT and ISTIO_OUTPUT, without counter and
/// comment.
fn lines(v4: &[Rule], v6: &[Rule]) -> Vec<String> {
    let mut families = PerFamily::new();
    for (family, rules) in [(Family::V4, v4), (Family::V6, v6)] {
        let jump = rule(Matcher::default(), Target::Jump(Chain::Output));
        let hooks = HookRules { head: Vec::new(), tail: vec![jump] };
        let table = TableRules {
            hooks: [(Hook::Output, hooks)].into(),
            chains: [(Chain::Output, rules.to_vec())].into(),
        };
        let mut of_family = FamilyRules::none(family);
        if !rules.is_empty() {
            of_family.tables.insert(Table::Nat, table);
        }
        families.insert(family, of_family);
    }
    let text = text(&tables(&families));
    let shown =
        text.lines().map(str::trim).filter(|line| line.contains("counter") || line.starts_with("chain"));
    shown.map(|line| line.split(" comment").next().unwrap().replace("counter ", "")).collect()
}

#[test]
fn every_comment_fits_what_nft_reads() {
    for why in Why::ALL {
        for action in [Action::Drop, Action::Return] {
            let comment = NativeRule { tests: Vec::new(), action, why: *why }.comment();
            assert!(Comment::new(&comment).is_some(), "{} bytes: {comment}", comment.len());
        }
    }
}

#[test]
fn rules_of_one_family_are_guarded_where_the_other_comes_by() {
    let leaves = [rule(tcp_to(25), Target::Return)];
    // Nothing of IPv6: its packets do not get beyond the base chain.
    assert_eq!(
        lines(&leaves, &[]),
        [
            "chain output {",
            "meta nfproto ipv4 jump istio-output",
            "chain istio-output {",
            "tcp dport 25 return"
        ]
    );
    let all = [rule(Matcher::default(), Target::Return)];
    assert_eq!(
        lines(&leaves, &all),
        [
            "chain output {",
            "jump istio-output",
            "chain istio-output {",
            "meta nfproto ipv4 tcp dport 25 return",
            "meta nfproto ipv6 return"
        ]
    );
}

#[test]
fn rules_of_both_families_keep_the_order_of_each() {
    let (shared, a) = (rule(tcp_to(25), Target::Return), rule(to("10.0.0.0/8"), Target::Return));
    let b = rule(to("fd00::/8"), Target::Return);
    let chain = Target::Jump(Chain::Redirect);
    let last = rule(Matcher::default(), chain);
    let shown = lines(&[a, shared.clone(), last.clone()], &[b, shared, last]);
    assert_eq!(
        shown[3..7],
        [
            "ip daddr 10.0.0.0/8 return",
            "ip6 daddr fd00::/8 return",
            "tcp dport 25 return",
            "jump istio-redirect"
        ]
    );
    // Two rules in another order: each family has its own.
    let (x, y) = (rule(tcp_to(1), Target::Return), rule(tcp_to(2), chain));
    let shown = lines(&[x.clone(), y.clone()], &[y, x]);
    let of = |family: &str| -> Vec<_> {
        let guarded = |line: &&String| !line.contains("nfproto") || line.contains(family);
        let of_chain = shown[3..].iter().filter(|line| line.contains("dport"));
        of_chain.filter(guarded).map(|line| line.replace(&format!("meta nfproto {family} "), "")).collect()
    };
    assert_eq!(of("ipv4"), ["tcp dport 1 return", "tcp dport 2 jump istio-redirect"]);
    assert_eq!(of("ipv6"), ["tcp dport 2 jump istio-redirect", "tcp dport 1 return"]);
}

#[test]
fn a_negated_owner_is_never_a_test() {
    let (proxy, chain) = (Owner::Uid(1337), Target::Jump(Chain::Redirect));
    // The owner leaves by the next rule: the two swap.
    let pair =
        [rule(over_lo(by(Match::Not(proxy))), Target::Return), rule(by(Match::Is(proxy)), Target::Return)];
    assert_eq!(lines(&pair, &[])[3..], ["meta skuid 1337 return", "oifname \"lo\" return"]);
    // Otherwise it skips the rule: goto a chain that holds the rules after it.
    let last = rule(tcp_to(80), chain);
    let alone = [rule(over_lo(by(Match::Not(proxy))), Target::Return), last.clone()];
    let shown = lines(&alone, &[]);
    assert_eq!(
        shown[3..8],
        [
            "oifname \"lo\" meta skuid 1337 goto istio-output-rest",
            "oifname \"lo\" return",
            "goto istio-output-rest",
            "chain istio-output-rest {",
            "tcp dport 80 jump istio-redirect"
        ]
    );
    let groups = [Owner::Gid(1), Owner::Gid(2)].map(Match::Not).to_vec();
    let others = rule(Matcher { owners: groups, ..Matcher::default() }, Target::Return);
    let shown = lines(&[others.clone(), others, last], &[]);
    assert_eq!(
        shown[3..10],
        [
            "meta skgid { 1, 2 } goto istio-output-rest",
            "return",
            "chain istio-output-rest {",
            "meta skgid { 1, 2 } goto istio-output-rest-2",
            "return",
            "chain istio-output-rest-2 {",
            "tcp dport 80 jump istio-redirect"
        ]
    );
}

#[test]
fn lists_are_sets_and_nothing_is_moved_past_a_rule_that_decides_otherwise() {
    let (leave, chain) = (Target::Return, Target::Jump(Chain::Redirect));
    let ports = [80, 443, 80].map(|port| rule(tcp_to(port), leave));
    assert_eq!(lines(&ports, &[])[3..], ["tcp dport { 80, 443 } return"]);
    let interleaved =
        [(1, leave), (1, chain), (2, leave), (2, chain)].map(|(port, target)| rule(tcp_to(port), target));
    let shown = lines(&interleaved, &[]);
    assert_eq!(shown[3..5], ["tcp dport { 1, 2 } return", "tcp dport { 1, 2 } jump istio-redirect"]);
    let overlapping =
        [("10.0.0.0/8", leave), ("10.1.0.0/16", chain), ("11.0.0.0/8", leave)].map(|(n, t)| rule(to(n), t));
    let shown = lines(&overlapping, &[]);
    assert_eq!(
        shown[3..6],
        [
            "ip daddr 10.0.0.0/8 return",
            "ip daddr 10.1.0.0/16 jump istio-redirect",
            "ip daddr 11.0.0.0/8 return"
        ]
    );
    let ranges = ["10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16", "192.0.2.1/32"].map(|n| rule(to(n), leave));
    assert_eq!(lines(&ranges, &[])[3..], ["ip daddr @app-loopback-ipv4 return"]);
    let hosts = ["192.0.2.3/32", "192.0.2.2/32", "192.0.2.3/32"].map(|n| rule(to(n), leave));
    assert_eq!(lines(&hosts, &[])[3..], ["ip daddr { 192.0.2.2, 192.0.2.3 } return"]);
    let one = ["10.0.0.0/8", "10.1.0.0/16"].map(|n| rule(to(n), leave));
    assert_eq!(lines(&one, &[])[3..], ["ip daddr 10.0.0.0/8 return"]);
}

#[test]
fn long_lists_have_names_and_are_there_once() {
    let leave: Vec<Rule> = (0..20).map(|n| rule(to(&format!("10.{n}.0.0/32")), Target::Return)).collect();
    assert_eq!(lines(&leave, &[])[3..], ["ip daddr @app-loopback-ipv4 return"]);
}

#[test]
fn every_reason_fits_into_a_comment() {
    for why in Why::ALL {
        let rule = NativeRule { tests: Vec::new(), action: Action::Return, why: *why };
        let comment = rule.comment();
        assert!(Comment::new(&comment).is_some(), "{} bytes: {comment}", comment.len());
        assert!(comment.starts_with(&format!("{}: ", why.slug())), "{comment}");
    }
}
