//! Foreign rules that change marks which TPROXY needs: which of them do harm is decided by packets, and just
//! these are named.

use netlab::socket::{self, Binding};

use crate::foreign_preserved::{FAMILIES, insert};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Outcome, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    rules_of_iptables_that_change_marks_are_named_where_they_do_harm,
    chains_of_nftables_that_change_marks_are_named_where_they_do_harm,
);

const TPROXY: [&str; 8] = ["-b", "*", "-d", "15020", "-i", "*", "-m", "TPROXY"];

/// What may be harmed, and the words of the warning about it.
const HARMS: [(char, &str); 4] = [
    ('o', "connections from a proxy that runs as root to its own pod are not captured"),
    ('a', "the app's replies to connections that the proxy opens from the client's address do not arrive"),
    ('x', "connections of other programs to the pod itself are captured"),
    ('k', "captured connections get the mark 1337"),
];

/// The harms that are named of each rule or chain: the same ones, if several are.
fn named(output: &str) -> String {
    let is_about = |line: &&str| {
        line.contains("a foreign rule changes marks of TPROXY") && !line.starts_with("equal, but")
    };
    let lines = || output.lines().filter(is_about);
    let of =
        |line: &str| HARMS.iter().filter(|(_, words)| line.contains(words)).map(|(harm, _)| *harm).collect();
    let all: Vec<String> = lines().map(of).collect();
    assert!(all.iter().all(|harms| *harms == all[0]), "{output}");
    all.first().cloned().unwrap_or_default()
}

/// Sends a packet for each harm.
fn decided_by_packets(pod: &Pod, harms: &str, what: &str) {
    for family in FAMILIES {
        let (app, marker) = (at(family.pod(), 8080), at(family.pod(), 15020));
        let server = |outcome: Outcome| outcome.response().server.clone();
        let is_harmed = |harm: char| harms.contains(harm);
        let expected =
            |harm, without: &str, with: &str| if is_harmed(harm) { with } else { without }.to_owned();
        // The proxy of a pod with TPROXY is root, in its own group: nat does not capture its calls.
        let proxy = pod.user(0, 1337);
        assert_eq!(server(proxy.call(app)), expected('o', "proxy", "app"), "{family:?} {what}: {harms}");
        assert_eq!(server(pod.app().call(app)), expected('x', "app", "proxy"), "{family:?} {what}: {harms}");
        let of_client = Binding { source: Some(at(family.outside(), 0)), spoofed_mark: Some(1337) };
        if is_harmed('a') {
            let begun = proxy.run(|| socket::start_connect(app, of_client).expect("start to connect"));
            pod.outside().call(marker).served_by("app");
            assert!(!socket::is_ready(&begun), "{family:?} {what}: {harms}: a client's address gets a reply");
        } else {
            proxy.call_bound(app, of_client).served_by("app").coming_from(family.outside());
        }
        assert_eq!(pod.outside().gets_no_reply(app, marker), is_harmed('k'), "{family:?} {what}: {harms}");
    }
}

fn are_named(pod: &Pod, harms: &str, what: &str) {
    let dry = [&TPROXY[..], &["--dry-run"]].concat();
    for args in [&dry[..], &TPROXY] {
        assert_eq!(named(&pod.apply(args).output()), harms, "{args:?} {what}");
    }
    let check = pod.istio_iptables(&["check"]).run();
    assert_eq!(
        (named(&check.output()), check.code()),
        (harms.to_owned(), i32::from(!harms.is_empty())),
        "{what}"
    );
    let overview = pod.istio_iptables(&["explain", "--live"]).run().succeeded().output();
    assert_eq!(overview.contains("a foreign rule changes marks of TPROXY"), !harms.is_empty(), "{overview}");
}

/// All of the harms of either place.
fn both(one: &str, other: &str) -> String {
    HARMS.iter().map(|(harm, _)| *harm).filter(|harm| one.contains(*harm) || other.contains(*harm)).collect()
}

fn servers(pod: &Pod) -> (netlab::Server, netlab::Server) {
    (pod.proxy_listens(), pod.app_listens(&[8080, 15020]))
}

/// The harms of a rule that is before ours, of one that is behind in the same chain, and in another one, of
/// the same priority.
fn rules_of_iptables_that_change_marks_are_named_where_they_do_harm(fixture: Fixture) {
    for (rules, before, behind, beside) in [
        ("-t mangle -A PREROUTING -p tcp -j MARK --set-mark 0x100", "oa", "", ""),
        ("-t mangle -A PREROUTING -i eth0 -p tcp -j MARK --set-mark 0x100", "", "", ""),
        ("-t mangle -A OUTPUT -p tcp -j MARK --set-mark 0x100", "a", "oa", "oa"),
        ("-t mangle -A OUTPUT -o eth0 -p tcp -j MARK --set-mark 0x100", "", "a", "a"),
        ("-t mangle -A PREROUTING -j CONNMARK --restore-mark", "oa", "", ""),
        ("-t mangle -A OUTPUT -j CONNMARK --restore-mark", "a", "o", "oa"),
        ("-t nat -A OUTPUT -p tcp -j MARK --or-mark 0x4000", "oa", "oa", "oa"),
        ("-t mangle -A INPUT -p tcp -j CONNMARK --save-mark", "k", "k", "k"),
        ("-t mangle -A INPUT -p tcp -j CONNMARK --set-mark 7", "a", "a", "a"),
        ("-t mangle -A OUTPUT -p tcp -j CONNMARK --set-mark 7", "a", "", ""),
        ("-t mangle -A OUTPUT -p tcp -j CONNMARK --save-mark", "a", "", ""),
        ("-t mangle -A OUTPUT -o lo -p tcp -j MARK --set-mark 1338", "ax", "x", "ax"),
        ("-t mangle -A OUTPUT -o lo -p tcp -m owner --uid-owner 1000 -j MARK --set-mark 1338", "x", "x", "x"),
        ("-t filter -A OUTPUT -o lo -p tcp -j MARK --set-mark 0x100", "oa", "oa", "oa"),
        ("-t mangle -A POSTROUTING -o lo -p tcp -j MARK --set-mark 0x100", "oa", "oa", "oa"),
        ("-t nat -A POSTROUTING -o lo -p tcp -j MARK --set-mark 0x100", "oa", "oa", "oa"),
        ("-t raw -A PREROUTING -p tcp -j MARK --set-xmark 0x0/0xff0000", "", "", ""),
        (
            "-t mangle -A PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j CONNMARK --restore-mark --nfmask 0xff0000 --ctmask 0xff0000",
            "",
            "",
            "",
        ),
        (
            "-t mangle -A OUTPUT -m conntrack --ctstate NEW -m mark ! --mark 0x0/0xff0000 -j CONNMARK --save-mark --nfmask 0xff0000 --ctmask 0xff0000",
            "",
            "",
            "",
        ),
        // As kube-proxy does.
        (
            "-t nat -A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN;-t nat -A POSTROUTING -j MARK --xor-mark 0x4000",
            "",
            "",
            "",
        ),
    ] {
        // Of two chains with one priority the one that was made last is first.
        let is_beside = fixture.backend == Backend::Native;
        let named = if is_beside {
            [both(before, beside), both(before, beside)]
        } else {
            [before, behind].map(str::to_owned)
        };
        let met = if is_beside { [beside, before] } else { [before, behind] };
        let pod = fixture.pod();
        let _servers = servers(&pod);
        rules.split(';').for_each(|rule| insert(&pod, rule));
        are_named(&pod, &named[0], rules);
        decided_by_packets(&pod, met[0], rules);
        let pod = fixture.pod();
        let _servers = servers(&pod);
        pod.apply(&TPROXY);
        rules.split(';').for_each(|rule| insert(&pod, rule));
        are_named(&pod, &named[1], rules);
        decided_by_packets(&pod, met[1], rules);
        // Without TPROXY no rule tests a mark.
        assert_eq!(self::named(&pod.apply(&["-b", "*", "-i", "*"]).output()), "", "{rules}");
        pod.outside().call(at(Family::V4.pod(), 8080)).captured(15006, at(Family::V4.pod(), 8080));
    }
}

fn chains_of_nftables_that_change_marks_are_named_where_they_do_harm(fixture: Fixture) {
    for (chain, harms) in [
        ("type filter hook prerouting priority -160; meta mark set 0x100;", "oa"),
        ("type filter hook prerouting priority -160; iifname eth0 meta mark set 0x100;", ""),
        ("type filter hook prerouting priority -140; meta l4proto tcp meta mark set 0x100;", ""),
        ("type filter hook prerouting priority -140; ct mark set mark;", "k"),
        ("type route hook output priority -160; meta mark set mark or 0x100000;", "a"),
        ("type route hook output priority -140; meta mark set 0x100;", "oa"),
        ("type filter hook output priority -140; oifname eth0 meta mark set 0x100;", ""),
        ("type filter hook output priority -160; meta l4proto udp meta mark set ct mark;", ""),
        ("type filter hook postrouting priority -150; oifname lo meta mark set 0;", "oa"),
        ("type filter hook input priority 0; ct mark set 5;", "a"),
        // Values that are not known: any that no rule of ours tests.
        (
            "type filter hook output priority -140; meta mark set tcp dport map { 80 : 7, 8080 : 9, 10000-65535 : 11 };",
            "oa",
        ),
        ("type filter hook output priority -140; meta mark set ct mark and 0xf or 0x100;", "oa"),
    ] {
        let pod = fixture.pod();
        let _servers = servers(&pod);
        let table = format!("table inet agent {{ chain here {{ {chain} }}; }}");
        pod.namespace.run(|| tool("nft", &["-f", "-"], &table));
        are_named(&pod, harms, chain);
        decided_by_packets(&pod, harms, chain);
    }
}
