//! Foreign rules that `explain --live` cannot evaluate: which one is named first, and where it is.

use std::net::SocketAddr;

use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Family, Fixture, Outcome, Pod, for_each_backend_and_native, verdict};

for_each_backend_and_native!(rule_that_is_meant_for_the_packet_is_named_first_with_its_handle);

/// As in `handle 5`.
fn handle(listed: &str, rule: &str) -> String {
    let line = listed.lines().find(|line| line.contains(rule)).expect("the rule is listed");
    line.rsplit_once("# ").expect("a handle").1.to_owned()
}

fn first_line(pod: &Pod, to: SocketAddr) -> String {
    let said = pod.bare_istio_iptables(&["explain", "--live", "--to", &to.to_string()]).run().succeeded();
    verdict(&said.stdout())
}

fn rule_that_is_meant_for_the_packet_is_named_first_with_its_handle(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 443]));
    pod.apply(&["-i", "*", "-b", "*"]);
    for &family in fixture.families() {
        let ip = if family == Family::V4 { "ip" } else { "ip6" };
        let service = family.service();
        let table = format!(
            "table inet corp {{\n chain c {{\n  type filter hook output priority -160;\n  meta length > 9000 drop\n  \
             {ip} daddr {service} tcp dport 80 meta length < 9000 reject with tcp reset\n }}\n}}\n"
        );
        pod.namespace.run(|| tool("nft", &["-f", "-"], &table));
        let listed = pod.namespace.run(|| tool("nft", &["-a", "list", "table", "inet", "corp"], ""));
        let (of_all, of_port) = (handle(&listed, "> 9000"), handle(&listed, "< 9000"));
        for (port, expected) in [
            (80, format!(" -j REJECT ({of_port}) (or one of 1 more)")),
            (443, format!(" -j DROP ({of_all})")),
        ] {
            let to = at(service, port);
            let outcome = pod.app().call(to);
            let line = first_line(&pod, to);
            assert_eq!(matches!(outcome, Outcome::Refused), port == 80, "{outcome:?}: {line}");
            assert!(line.ends_with(&expected), "not {expected}: {line}");
            assert!(line.contains("15001; unless a foreign rule in inet corp c decides: "), "{line}");
        }
        pod.namespace.run(|| tool("nft", &["delete", "table", "inet", "corp"], ""));
    }
}
