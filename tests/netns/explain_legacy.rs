//! `explain --live` and rules of iptables-legacy beside ours, which another backend holds: each verdict
//! against the kernel.

use std::net::SocketAddr;

use netlab::socket::{self, Binding};

use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Family, Fixture, Outcome, Pod, for_these_fixtures, verdict};

for_these_fixtures!(
    nft: IptablesNft Dual, native: Native Dual;
    [legacy_rules_beside_ours_are_walked, filter_of_both_variants_is_walked]
);

/// Where markers go: no option captures it.
const MARKER: u16 = 7000;
const OPTIONS: [&str; 8] = ["-i", "*", "-b", "*", "-d", "7000", "-o", "443"];

fn pod_with(fixture: Fixture) -> (Pod, impl Sized) {
    let pod = fixture.pod();
    let servers =
        (pod.proxy_listens(), pod.app_listens(&[MARKER, 8080, 8443]), pod.outside_listens(&[80, 443]));
    pod.apply(&OPTIONS);
    (pod, servers)
}

fn legacy(pod: &Pod, family: Family, rule: &str) {
    let program = if family == Family::V4 { "iptables-legacy" } else { "ip6tables-legacy" };
    let words: Vec<&str> = ["--wait", "-t"].into_iter().chain(rule.split(' ')).collect();
    pod.namespace.run(|| tool(program, &words, ""));
}

/// The port that replies to the first packet of a connection, if one does.
fn replying_port(pod: &Pod, from: &str, to: SocketAddr) -> Option<u16> {
    let user = if from == "outside" { pod.outside() } else { pod.app() };
    let attempt = user.run(|| socket::start_connect(to, Binding::default())).ok()?;
    // Later packets have come through.
    pod.outside().call(at(if to.is_ipv4() { Family::V4 } else { Family::V6 }.pod(), MARKER)).response();
    attempt.peer_addr().ok()?;
    match user.call(to) {
        Outcome::Responded(response) => Some(response.port),
        Outcome::Refused | Outcome::TimedOut | Outcome::Failed(_) => None,
    }
}

fn first_line(pod: &Pod, from: &str, to: SocketAddr) -> String {
    let words = ["explain", "--live", "--from", from, "--to", &to.to_string()];
    let said = pod.bare_istio_iptables(&words).run().succeeded().stdout();
    verdict(&said)
}

/// The kernel takes the chain of nat first that was made last: both verdicts are in the line then.
fn legacy_rules_beside_ours_are_walked(fixture: Fixture) {
    let taken = "not captured: a foreign rule in iptables-legacy nat OUTPUT decides: ";
    for (rule, (from, port), says) in [
        (
            "nat -A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 8443",
            ("app", 80),
            "; unless a foreign rule in iptables-legacy nat OUTPUT",
        ),
        ("nat -A OUTPUT -p tcp --dport 443 -j REDIRECT --to-ports 8443", ("app", 443), taken),
        (
            "nat -A OUTPUT -p tcp --dport 80 -j ACCEPT",
            ("app", 80),
            "captured: goes to the proxy's outbound port 15001",
        ),
        (
            "nat -A OUTPUT -p tcp --dport 443 -j REDIRECT --to-ports 8443",
            ("app", 80),
            "captured: goes to the proxy's outbound port 15001",
        ),
        (
            "raw -A OUTPUT -p tcp --dport 80 -j DROP",
            ("app", 80),
            "dropped: a foreign rule in iptables-legacy raw OUTPUT decides: ",
        ),
        (
            "mangle -A PREROUTING -p tcp --dport 8080 -j DROP",
            ("outside", 8080),
            "dropped: a foreign rule in iptables-legacy mangle PREROUTING decides: ",
        ),
        (
            "raw -A PREROUTING -p tcp --dport 8080 -j CT --notrack",
            ("outside", 8080),
            "not captured, and it fails: a foreign rule in iptables-legacy raw PREROUTING decides: ",
        ),
    ] {
        let (pod, _servers) = pod_with(fixture);
        for &family in fixture.families() {
            legacy(&pod, family, rule);
            let to = at(if from == "outside" { family.pod() } else { family.service() }, port);
            let (kernel, line) = (replying_port(&pod, from, to), first_line(&pod, from, to));
            assert!(line.contains(says), "{rule}, {from} to {to}: {kernel:?}: {line}");
            let is_true = match kernel {
                Some(15001 | 15006) => line.starts_with("captured: "),
                Some(_) => line.starts_with("not captured: ") || line.contains("; unless "),
                None => line.starts_with("dropped: ") || line.starts_with("not captured, and it fails: "),
            };
            assert!(is_true, "{rule}, {from} to {to}: {kernel:?}: {line}");
        }
    }
}

fn filter_of_both_variants_is_walked(fixture: Fixture) {
    let (pod, _servers) = pod_with(fixture);
    for &family in fixture.families() {
        legacy(&pod, family, "filter -A INPUT -p tcp --dport 9 -j DROP");
        pod.iptables(family, "-t filter -A INPUT -p tcp --dport 15006 -j DROP");
        let to = at(family.pod(), 8080);
        let (kernel, line) = (replying_port(&pod, "outside", to), first_line(&pod, "outside", to));
        assert_eq!(kernel, None, "{line}");
        assert!(line.starts_with("dropped: "), "{line}");
    }
}
