//! Shared chains with foreign expressions that iptables cannot list.

use istio_iptables::model;
use istio_iptables::parse;
use nfnetlink::nftables::{Client, Family as NftFamily, TableName};

use crate::foreign_preserved::{EVERYTHING, FAMILIES};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Pod, for_these_fixtures, verdict};

for_these_fixtures!(
    nft: IptablesNft Dual;
    [
        runs_beside_unlisted_rules_converge_change_and_clean_up,
        unlisted_rules_that_come_later_change_nothing,
        moves_to_and_from_unlisted_chains_succeed,
        chain_held_by_an_unlisted_chain_is_kept,
        rules_from_netlink_read_like_rules_of_iptables_save,
        tests_that_iptables_does_not_print_are_seen,
        foreign_jump_with_a_set_is_not_taken_for_ours,
    ]
);

/// A base chain as iptables makes it, with an expression that iptables 1.8 does not know.
const CHAINS: [(&str, &str, &str, i32); 6] = [
    ("nat", "PREROUTING", "nat", -100),
    ("nat", "OUTPUT", "nat", -100),
    ("mangle", "PREROUTING", "filter", -150),
    ("mangle", "OUTPUT", "route", -150),
    ("raw", "PREROUTING", "filter", -300),
    ("raw", "OUTPUT", "filter", -300),
];

const fn nft_family(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

fn nft(pod: &Pod, commands: &str) -> String {
    pod.namespace.run(|| tool("nft", &["-f", "-"], commands))
}

fn make_unlisted(pod: &Pod) {
    for family in FAMILIES.map(nft_family) {
        for (table, chain, kind, priority) in CHAINS {
            let hook = chain.to_lowercase();
            nft(
                pod,
                &format!(
                    "add table {family} {table}
                     add chain {family} {table} {chain} {{ type {kind} hook {hook} priority {priority}; }}
                     add rule {family} {table} {chain} fib saddr type local tcp dport 9 counter"
                ),
            );
        }
    }
}

/// The foreign rules of the shared chains, by their handles, without counters.
fn foreign(pod: &Pod) -> Vec<String> {
    let mut all = Vec::new();
    for family in FAMILIES.map(nft_family) {
        for (table, chain, ..) in CHAINS {
            let list = pod.namespace.run(|| tool("nft", &["-as", "list", "chain", family, table, chain], ""));
            let lines = list.lines().filter(|line| line.contains("fib ") || line.contains("dport 7 "));
            all.extend(lines.map(|line| format!("{family} {table} {chain} {}", line.trim())));
        }
    }
    all
}

fn no_rule_of_ours_is_left(pod: &Pod) {
    let ruleset = pod.namespace.run(|| tool("nft", &["list", "ruleset"], ""));
    for word in ["ISTIO", "net1", "net2", "mark"] {
        assert!(!ruleset.contains(word), "{word}: {ruleset}");
    }
}

fn captures(pod: &Pod) {
    for family in FAMILIES {
        let (inbound, outbound) = (at(family.pod(), 8080), at(family.service(), 80));
        pod.outside().call(inbound).captured(15006, inbound);
        pod.app().call(outbound).captured(15001, outbound);
    }
}

const MANY: [&str; 8] = ["-b", "*", "-i", "*", "-c", "net1", "-k", "net2"];

fn runs_beside_unlisted_rules_converge_change_and_clean_up(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    make_unlisted(&pod);
    let before = foreign(&pod);
    let tproxy = [&MANY[..], &["-m", "TPROXY"]].concat();
    let dns = [&EVERYTHING[..], &["--redirect-dns", "--capture-all-dns"]].concat();
    for args in [&EVERYTHING[..], &MANY, &tproxy, &dns, &MANY] {
        pod.istio_iptables(args).env("INVALID_DROP", "true").run().succeeded().output_contains("done");
        let again = [args, &["--verify"]].concat();
        let again = pod.istio_iptables(&again).env("INVALID_DROP", "true").run().succeeded();
        again.output_contains("already converged");
        captures(&pod);
        assert_eq!(foreign(&pod), before, "{args:?}");
    }
    pod.apply(&["cleanup"]).output_contains("no rules in place");
    pod.apply(&["cleanup"]).output_contains("already converged");
    assert_eq!(foreign(&pod), before);
    no_rule_of_ours_is_left(&pod);
    for family in FAMILIES {
        pod.app().call(at(family.service(), 80)).served_by("outside");
    }
}

/// Another program adds them when our rules are live, some behind ours: they stay there.
fn unlisted_rules_that_come_later_change_nothing(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    pod.apply(&MANY);
    make_unlisted(&pod);
    // A captured connection does not come here.
    nft(&pod, "add rule ip nat OUTPUT tcp dport 7 accept\nadd rule ip6 nat OUTPUT tcp dport 7 accept");
    let before = foreign(&pod);
    pod.apply(&MANY).output_contains("already converged");
    pod.apply(&[&MANY[..], &["-o", "99"]].concat());
    pod.apply(&[&EVERYTHING[..], &["-c", "net2"]].concat());
    captures(&pod);
    assert_eq!(foreign(&pod), before);
    for family in FAMILIES.map(nft_family) {
        let args = ["-s", "list", "chain", family, "nat", "OUTPUT"];
        let output = pod.namespace.run(|| tool("nft", &args, ""));
        let place = |part: &str| output.find(part).unwrap_or_else(|| panic!("{part}: {output}"));
        assert!(place("ISTIO_OUTPUT") < place("dport 7"), "{output}");
        assert_eq!(output.matches("ISTIO_OUTPUT").count(), 1, "{output}");
    }
    pod.apply(&["cleanup"]);
    assert_eq!(foreign(&pod), before);
    no_rule_of_ours_is_left(&pod);
}

fn moves_to_and_from_unlisted_chains_succeed(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    make_unlisted(&pod);
    let before = foreign(&pod);
    let tproxy = [&MANY[..], &["-m", "TPROXY", "--dual-stack", "--backend"]].concat();
    for backend in [Backend::IptablesNft, Backend::IptablesLegacy, Backend::IptablesNft, Backend::Native] {
        let args = [&tproxy[..], &[backend.flag()]].concat();
        pod.plain_istio_iptables(&args).run().succeeded().output_contains("done");
        pod.plain_istio_iptables(&args).run().succeeded().output_contains("already converged");
        captures(&pod);
        assert_eq!(foreign(&pod), before, "{backend:?}");
    }
    pod.plain_istio_iptables(&["cleanup"]).run().succeeded();
    assert_eq!(foreign(&pod), before);
    no_rule_of_ours_is_left(&pod);
}

fn chain_held_by_an_unlisted_chain_is_kept(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    for family in FAMILIES.map(nft_family) {
        nft(
            &pod,
            &format!("table {family} nat {{ chain AGENT {{ fib saddr type local jump ISTIO_REDIRECT; }}; }}"),
        );
    }
    pod.apply(&EVERYTHING).output_contains("already converged");
    for _ in 0..2 {
        let output = pod.apply(&["cleanup"]).output();
        let kept = "is kept, empty: a foreign rule in AGENT jumps to it";
        assert_eq!(output.matches(kept).count(), FAMILIES.len(), "{output}");
    }
    for family in FAMILIES.map(nft_family) {
        let list = pod.namespace.run(|| tool("nft", &["list", "table", family, "nat"], ""));
        assert!(list.contains("fib saddr type local jump ISTIO_REDIRECT"), "{list}");
        assert_eq!(list.matches("ISTIO").count(), 2, "the empty chain and the jump: {list}");
    }
}

/// What tells our rules from foreign ones must not depend on who lists them.
fn rules_from_netlink_read_like_rules_of_iptables_save(fixture: Fixture) {
    let pod = fixture.pod();
    let tproxy = [&MANY[..], &["-m", "TPROXY", "--redirect-dns", "-x", "10.0.0.0/9"]].concat();
    let mut compared = 0;
    for args in [&MANY[..], &tproxy, &["-b", "80", "-i", "10.2.0.0/15,fd00::/9,fd00:1::1/128", "-k", "net2"]]
    {
        pod.istio_iptables(args).env("INVALID_DROP", "true").run().succeeded();
        for family in FAMILIES {
            for table in model::Table::ALL {
                let saved = pod
                    .namespace
                    .run(|| tool(&Backend::IptablesNft.tool(family, "-save"), &["-t", table.name()], ""));
                let (of, nft_family) = match family {
                    Family::V4 => (model::Family::V4, NftFamily::Ip),
                    Family::V6 => (model::Family::V6, NftFamily::Ip6),
                };
                let live = pod.namespace.run(|| {
                    let name = TableName::new(nft_family, table.name());
                    Client::open().expect("nf_tables").table(&name).expect("the table")
                });
                let chains = live.into_iter().flat_map(|table| table.chains);
                for chain in chains {
                    let prefix = format!("-A {} ", chain.name);
                    let words: Vec<_> = saved.lines().filter_map(|line| line.strip_prefix(&prefix)).collect();
                    assert_eq!(words.len(), chain.rules.len());
                    for (words, rule) in words.into_iter().zip(&chain.rules) {
                        let read = parse::words_of_rule(of, rule);
                        let statement = parse::statement(of, words);
                        assert!(statement.is_some(), "{words}");
                        assert_eq!(parse::statement(of, &read), statement, "{words}, {read}");
                        compared += 1;
                    }
                }
            }
        }
    }
    assert!(compared > 40, "{compared}");
}

/// iptables-nft-save prints these rules without sets, verdict maps and ranges: as rules that accept
/// everything, or nothing at all.
fn tests_that_iptables_does_not_print_are_seen(fixture: Fixture) {
    let (outside, app) = (Family::V4.outside(), Family::V4.pod());
    let service = at(Family::V4.service(), 80);
    for (chain, rule, is_captured) in [
        ("PREROUTING", format!("ip saddr vmap {{ {outside} : accept }}"), false),
        ("PREROUTING", format!("ip saddr {{ {outside}, 192.0.2.1 }} accept"), false),
        ("PREROUTING", "ip saddr { 192.0.2.1, 192.0.2.3 } accept".to_owned(), true),
        ("PREROUTING", "ip saddr 192.0.2.1-192.0.2.9 accept".to_owned(), true),
        ("OUTPUT", format!("ip daddr . tcp dport vmap {{ {} . 80 : accept }}", service.ip()), false),
        ("OUTPUT", "ip daddr 10.0.0.0-200.0.0.0 accept".to_owned(), false),
        ("OUTPUT", "tcp dport { 81, 90-99 } accept".to_owned(), true),
    ] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        let (kind, hook) = ("nat", chain.to_lowercase());
        nft(
            &pod,
            &format!(
                "add table ip nat
                 add chain ip nat {chain} {{ type {kind} hook {hook} priority -100; }}
                 add rule ip nat {chain} {rule}"
            ),
        );
        let listed = || pod.namespace.run(|| tool("nft", &["-s", "list", "chain", "ip", "nat", chain], ""));
        let foreign = |list: &str| -> Vec<String> {
            list.lines()
                .filter(|line| line.contains("accept") && !line.contains("hook"))
                .map(str::to_owned)
                .collect()
        };
        let before = foreign(&listed());
        assert_eq!(before.len(), 1, "{before:?}");
        let ran = pod.apply(&["-b", "*", "-i", "*"]);
        if !is_captured {
            ran.output_contains("a foreign rule");
        }
        let (from, to) = if chain == "OUTPUT" { ("app", service) } else { ("outside", at(app, 8080)) };
        let user = if chain == "OUTPUT" { pod.app() } else { pod.outside() };
        let port = if chain == "OUTPUT" { 15001 } else { 15006 };
        if is_captured {
            user.call(to).captured(port, to);
        } else {
            user.call(to).served_by(if chain == "OUTPUT" { "outside" } else { "app" });
        }
        let words =
            ["explain", "--live", "--from", from, "--src", &outside.to_string(), "--to", &to.to_string()];
        let words = if chain == "OUTPUT" { [&words[..4], &words[6..]].concat() } else { words.to_vec() };
        let said = pod.bare_istio_iptables(&words).run().succeeded().stdout();
        let first = verdict(&said);
        let is_right = first.starts_with("captured") == is_captured;
        let may_decide = first.contains(&format!("; unless a foreign rule in nat {chain} decides: "));
        assert!(is_right || may_decide, "{rule}: {first}");
        pod.apply(&["-b", "*", "-i", "*"]).output_contains("already converged");
        assert_eq!(foreign(&listed()), before);
        pod.apply(&["--cleanup-only"]);
        assert_eq!(foreign(&listed()), before);
        no_rule_of_ours_is_left(&pod);
    }
}

/// iptables-nft-save prints it like ours, without the set. Our own jump is deleted: without it only the
/// members of the set are captured.
fn foreign_jump_with_a_set_is_not_taken_for_ours(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    pod.apply(&EVERYTHING);
    let jumps = |chain: &str| -> Vec<String> {
        let of = |family| {
            let list = ["-as", "list", "chain", nft_family(family), "nat", chain];
            pod.namespace.run(|| tool("nft", &list, ""))
        };
        let lists = FAMILIES.map(of).concat();
        lists.lines().filter(|line| line.contains("jump ISTIO_")).map(str::to_owned).collect()
    };
    let with_set =
        |lines: Vec<String>| lines.into_iter().filter(|line| line.contains('{')).collect::<Vec<_>>();
    for (family, members) in [("ip", "192.0.2.1, 192.0.2.3"), ("ip6", "2001:db8::1, 2001:db8::3")] {
        nft(
            &pod,
            &format!("insert rule {family} nat OUTPUT {family} daddr {{ {members} }} jump ISTIO_OUTPUT"),
        );
        let inbound = format!("meta l4proto tcp {family} saddr {{ {members} }} jump ISTIO_INBOUND");
        nft(&pod, &format!("insert rule {family} nat PREROUTING {inbound}"));
    }
    let before = ["OUTPUT", "PREROUTING"].map(|chain| with_set(jumps(chain)));
    assert_eq!(before.each_ref().map(Vec::len), [2, 2]);
    let again = [&EVERYTHING[..], &["--verify"]].concat();
    pod.apply(&again).output_contains("already converged");
    assert_eq!(["OUTPUT", "PREROUTING"].map(|chain| with_set(jumps(chain))), before);
    for chain in ["OUTPUT", "PREROUTING"] {
        for (family, line) in
            FAMILIES.into_iter().zip(jumps(chain).into_iter().filter(|line| !line.contains('{')))
        {
            let handle = line.rsplit_once("# handle ").expect("a handle").1;
            nft(&pod, &format!("delete rule {} nat {chain} handle {handle}", nft_family(family)));
        }
        for family in FAMILIES {
            let (inbound, outbound) = (at(family.pod(), 8080), at(family.service(), 80));
            match chain {
                "OUTPUT" => pod.app().call(outbound).served_by("outside"),
                _ => pod.outside().call(inbound).served_by("app"),
            };
        }
        pod.istio_iptables(&[&["check"], &EVERYTHING[..]].concat()).run().ended_with(1);
        pod.apply(&again).output_contains("done: ");
        captures(&pod);
    }
    for args in [&["-b", "80"][..], &["cleanup"]] {
        pod.apply(args);
        assert_eq!(["OUTPUT", "PREROUTING"].map(|chain| with_set(jumps(chain))), before, "{args:?}");
    }
    for family in FAMILIES {
        pod.app().call(at(family.service(), 80)).served_by("outside");
        pod.outside().call(at(family.pod(), 8080)).served_by("app");
    }
}
