//! `explain --live` and what packets meet beside and after our rules: `filter`, `security`, other tables,
//! devices.

use netlab::socket::{self, Binding};
use netlab::{DeviceHookKind, DeviceProgram};

use crate::explain_live::{Question, report};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{
    Backend, Family, Fixture, Outcome, Pod, for_each_backend_and_native, for_these_fixtures, verdict,
};

for_each_backend_and_native!(
    what_drops_packets_behind_our_rules_is_the_verdict,
    chains_at_devices_are_named,
    filters_and_programs_at_interfaces_are_named,
    other_values_of_what_was_not_asked_about_are_named
);
for_these_fixtures!(
    legacy_table: IptablesLegacy Dual, beside: IptablesNft Dual, native_beside: Native Dual;
    [table_security_of_legacy_is_read]
);
for_these_fixtures!(native_owner: Native Dual; [negated_owner_does_not_match_without_a_socket]);

fn nft(pod: &Pod, commands: &str) -> String {
    pod.namespace.run(|| tool("nft", &["-f", "-"], commands))
}

/// Whether the first packet of a connection gets a reply.
fn gets_reply(pod: &Pod, from: &str, to: std::net::SocketAddr) -> bool {
    let user = if from == "outside" { pod.outside() } else { pod.app() };
    let Ok(attempt) = user.run(|| socket::start_connect(to, Binding::default())) else { return false };
    // Later packets have come through.
    pod.outside().call(at(if to.is_ipv4() { Family::V4 } else { Family::V6 }.pod(), 7000)).response();
    attempt.peer_addr().is_ok()
}

/// Rules, as those of a table of nftables or a command for both programs of iptables; flows that they drop,
/// and that they do not.
fn what_drops_packets_behind_our_rules_is_the_verdict(fixture: Fixture) {
    let excluded = ["-i", "*", "-o", "443,80", "-b", "*", "-d", "7000,15020"];
    for (rules, named, drops_out, drops_in) in [
        ("-t filter -A OUTPUT -p tcp --dport 443 -j DROP", "-j DROP", true, false),
        ("-t filter -A OUTPUT -p tcp --dport 443 -j REJECT", "REJECT", true, false),
        ("-t filter -A INPUT -p tcp --dport 15020 -j DROP", "-j DROP", false, true),
        ("-t mangle -A INPUT -p tcp --dport 15020 -j DROP", "-j DROP", false, true),
        ("-t filter -A INPUT -p tcp --dport 15006 -j DROP", "-j DROP", false, false),
        (
            "table inet agent { chain out { type filter hook output priority 0; tcp dport 443 drop; }; \
             chain in { type filter hook input priority 10; policy drop; iifname lo accept; tcp dport 7000 accept; meta l4proto ipv6-icmp accept; \
             ct state established accept; tcp dport 15006 accept; }; }",
            "drop",
            true,
            true,
        ),
    ] {
        let pod = fixture.pod();
        let _servers =
            (pod.proxy_listens(), pod.app_listens(&[7000, 8080, 15020]), pod.outside_listens(&[80, 443]));
        pod.apply(&excluded);
        if rules.starts_with("table") {
            nft(&pod, rules);
        } else {
            for &family in fixture.families() {
                pod.iptables(family, rules);
            }
        }
        for &family in fixture.families() {
            for (from, to, is_dropped) in [
                ("app", at(family.service(), 443), drops_out),
                ("app", at(family.service(), 80), false),
                ("outside", at(family.pod(), 15020), drops_in),
                ("outside", at(family.pod(), 8080), rules.contains("--dport 15006")),
            ] {
                assert_eq!(gets_reply(&pod, from, to), !is_dropped, "{rules}: {from} to {to}");
                let explained = report(&pod, &[], &Question { from, to, is_udp: false });
                let is_said = explained["verdict"] == "dropped";
                assert_eq!(is_said, is_dropped, "{rules}: {from} to {to}: {explained:#}");
                let because = explained["because"].as_str().unwrap_or_default().to_lowercase();
                let names = because.contains(&named.to_lowercase());
                assert!(!is_dropped || names, "{rules}: {explained:#}");
            }
        }
    }
}

fn table_security_of_legacy_is_read(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[7000, 8080]));
    let options = ["-i", "*", "-b", "*", "-d", "7000"];
    pod.apply(&options);
    for program in ["iptables-legacy", "ip6tables-legacy"] {
        let words = "--wait -t security -A INPUT -p tcp --dport 15006 -j DROP";
        pod.namespace.run(|| tool(program, &words.split(' ').collect::<Vec<_>>(), ""));
    }
    for family in fixture.families() {
        let to = at(family.pod(), 8080);
        assert!(!gets_reply(&pod, "outside", to));
        let explained = report(&pod, &[], &Question { from: "outside", to, is_udp: false });
        assert_eq!(explained["verdict"], "dropped", "{explained:#}");
        assert!(explained["notices"].to_string().contains("security"), "{explained:#}");
    }
    let check = pod.istio_iptables(&[&["check"], &options[..]].concat()).run().ended_with(1);
    check.output_contains("security");
}

fn chains_at_devices_are_named(fixture: Fixture) {
    let options = ["-i", "*", "-b", "*", "-d", "7000"];
    for family in ["netdev", "inet"] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[7000, 8080]));
        pod.apply(&options);
        let base = "type filter hook ingress device eth0 priority 0;";
        nft(
            &pod,
            &format!(
                "table {family} agent {{ chain early {{ {base} }}; chain other {{ tcp dport 8080 drop; }}; }}"
            ),
        );
        let to = at(Family::V4.pod(), 8080);
        let question = Question { from: "outside", to, is_udp: false };
        assert!(gets_reply(&pod, "outside", to));
        let explained = report(&pod, &[], &question);
        assert!(!explained["notices"].to_string().contains("agent"), "an empty chain: {explained:#}");
        nft(&pod, &format!("add rule {family} agent early jump other"));
        assert!(!gets_reply(&pod, "outside", to));
        let explained = report(&pod, &[], &question);
        let note = format!("may decide before ours: {family} agent early (ingress of eth0, priority 0)");
        assert!(explained["notices"].to_string().contains(&note), "{explained:#}");
        let outside = explained["may_decide_outside_of_rules"].to_string();
        assert!(
            outside.contains("the base chain agent early of nftables at eth0 (ingress)"),
            "{explained:#}"
        );
        pod.istio_iptables(&[&["check"], &options[..]].concat()).run().ended_with(1).output_contains(&note);
    }
}

/// What the first line of a report names, the first line about all traffic and `check` name, too.
fn filters_and_programs_at_interfaces_are_named(fixture: Fixture) {
    let options = ["-i", "*", "-b", "*", "-d", "7000"];
    for (kind, named) in [
        (None, "a filter of tc (u32) at eth0 (ingress)"),
        (Some(DeviceHookKind::Xdp), "an XDP program (number "),
        (Some(DeviceHookKind::Tcx), "a BPF program of tcx (number "),
    ] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[7000, 8080]), pod.outside_listens(&[80]));
        pod.apply(&options);
        let tc = |words: &str| pod.namespace.run(|| tool("tc", &words.split(' ').collect::<Vec<_>>(), ""));
        // What only sorts packets decides nothing.
        tc("qdisc add dev eth0 clsact");
        tc("filter add dev eth0 egress protocol ip pref 9 u32 match ip dport 9 0xffff flowid 1:1");
        let to = at(Family::V4.pod(), 8080);
        let first_line = |words: &[&str]| {
            let said = pod.bare_istio_iptables(&[&["explain", "--live"], words].concat()).run().succeeded();
            verdict(&said.stdout())
        };
        let from_outside = ["--from", "outside", "--to", &to.to_string()];
        assert!(gets_reply(&pod, "outside", to));
        for words in [&from_outside[..], &[]] {
            assert!(!first_line(words).contains(" at eth0"), "{}", first_line(words));
        }
        pod.istio_iptables(&[&["check"], &options[..]].concat()).run().ended_with(0);
        let _program = match kind {
            Some(kind) => Some(DeviceProgram::dropping(&pod.namespace, "eth0", (kind, 8080, false))),
            None => {
                let to_itself = "action mirred egress redirect dev eth0";
                tc(&format!(
                    "filter add dev eth0 ingress protocol ip u32 match ip dport 8080 0xffff {to_itself}"
                ));
                None
            }
        };
        assert!(!gets_reply(&pod, "outside", to));
        let said = first_line(&from_outside);
        assert!(said.contains(&format!("; unless {named}")) && said.contains("at eth0 (ingress)"), "{said}");
        let said = first_line(&[]);
        assert!(said.contains(named) && said.contains("may decide before our rules"), "{said}");
        let check = pod.istio_iptables(&[&["check"], &options[..]].concat()).run().ended_with(1);
        check.output_contains(named);
        // It goes to the proxy over lo.
        let to_a_server = ["--to", &at(Family::V4.service(), 80).to_string()];
        assert!(gets_reply(&pod, "app", at(Family::V4.service(), 80)));
        assert!(!first_line(&to_a_server).contains("unless"), "{}", first_line(&to_a_server));
    }
}

/// A reset that the kernel sends for a port on which nothing listens has no socket.
fn negated_owner_does_not_match_without_a_socket(fixture: Fixture) {
    assert_eq!(fixture.backend, Backend::Native);
    let pod = fixture.pod();
    pod.apply(&["-i", "*", "-b", "8080", "-m", "TPROXY"]);
    nft(&pod, "insert rule inet istio-proxy-mangle output meta skuid != 4242 tcp sport 9 drop");
    for family in fixture.families() {
        let (closed, client) = (at(family.pod(), 9), at(family.outside(), 40_000));
        let outcome = pod.outside().call(closed);
        assert!(matches!(outcome, Outcome::Refused), "the reset comes through: {outcome:?}");
        let question = Question { from: "kernel", to: client, is_udp: false };
        let source = closed.to_string();
        let explained = report(&pod, &["--src", &source, "--state", "established"], &question);
        assert_ne!(explained["verdict"], "dropped", "{explained:#}");
        let question = Question { from: "uid:1000,gid:1000", ..question };
        let explained = report(&pod, &["--src", &source, "--state", "established"], &question);
        assert_eq!(explained["verdict"], "dropped", "{explained:#}");
    }
}

/// Chain, test of a rule, the flag and its value by which a question says what decides, and the condition in
/// words.
const OPEN_FIELDS: [(&str, &str, &str, &str, &str); 6] = [
    ("PREROUTING", "--sport 40022", "--src", "port", "its source port is 40022"),
    ("PREROUTING", "-s {outside}", "--src", "address", "its source address is {outside}"),
    ("OUTPUT", "-m owner --uid-owner 77", "--from", "uid:77", "its uid is 77"),
    ("OUTPUT", "-m owner --gid-owner 1000", "--from", "uid:1000,gid:5", "its gid is not 1000"),
    (
        "PREROUTING",
        "-s {outside} --sport 40022",
        "--src",
        "both",
        "its source address is {outside} and its source port is 40022",
    ),
    (
        "OUTPUT",
        "-m owner --uid-owner 77 --gid-owner 78",
        "--from",
        "uid:77,gid:78",
        "its uid is 77 and its gid is 78",
    ),
];

/// A value that the question leaves open decides: the line names it, and the kernel does what it says.
fn other_values_of_what_was_not_asked_about_are_named(fixture: Fixture) {
    for (chain, test, flag, value, condition) in OPEN_FIELDS {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        pod.apply(&["-i", "*", "-b", "*"]);
        for &family in fixture.families() {
            let outside = family.outside();
            let (test, condition) = (
                test.replace("{outside}", &outside.to_string()),
                condition.replace("{outside}", &outside.to_string()),
            );
            pod.iptables(family, &format!("-t nat -I {chain} -p tcp {test} -j ACCEPT"));
            let is_inbound = chain == "PREROUTING";
            let to = if is_inbound { at(family.pod(), 8080) } else { at(family.service(), 80) };
            let from = if is_inbound { "outside" } else { "app" };
            let open = report(&pod, &[], &Question { from, to, is_udp: false });
            let lines = open["unless"].as_array().unwrap_or_else(|| panic!("{open:#}"));
            let line = lines.iter().find(|line| line["if"] == condition.as_str());
            let Some(line) = line else {
                // Beside native rules of ours those of iptables are not walked, but named.
                assert_eq!(fixture.backend, Backend::Native, "{condition}: {open:#}");
                continue;
            };
            let outcome = match (is_inbound, value) {
                (true, _) => pod.outside().call_from(at(outside, 40_022), to),
                (false, "uid:77") => pod.user(77, 77).call(to),
                (false, "uid:77,gid:78") => pod.user(77, 78).call(to),
                (false, _) => pod.user(1000, 5).call(to),
            };
            let by_proxy = outcome.response().server == "proxy";
            assert_eq!(line["verdict"] == "captured", by_proxy, "{condition}: {open:#}");
            let source = at(outside, 40_022).to_string();
            let given = if is_inbound { source.as_str() } else { value };
            let (args, from) = if flag == "--src" { (vec![flag, given], from) } else { (Vec::new(), given) };
            let asked = report(&pod, &args, &Question { from, to, is_udp: false });
            assert_eq!(asked["verdict"] == "captured", by_proxy, "{condition}: {asked:#}");
            let text = pod.bare_istio_iptables(&[
                "explain",
                "--live",
                "--from",
                if is_inbound { "outside" } else { "app" },
                "--to",
                &to.to_string(),
            ]);
            text.run().succeeded().output_contains(&format!("  unless   {condition}: "));
            pod.iptables(family, &format!("-t nat -D {chain} -p tcp {test} -j ACCEPT"));
        }
    }
}
