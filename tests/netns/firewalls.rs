//! Firewalls of the pod beside the capture rules: what is no problem is not reported, and a fix mends what is
//! one without harm to the firewall.

use crate::broken_pods::{OPTIONS, problems, run_fix};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Family, Fixture, for_these_fixtures};

for_these_fixtures!(
    nft: IptablesNft Dual, legacy: IptablesLegacy Dual, native: Native Dual;
    [
        a_firewall_with_chains_of_its_own_is_mended_by_the_fix,
        filters_of_spoofed_packets_and_routing_headers_are_no_problem,
        a_chain_that_changes_marks_is_listed_by_the_fix
    ]
);

/// Chains of arno-iptables-firewall (2.1.2), in the tables of iptables with each backend: no fix deletes a
/// rule of the firewall, and each is written so that iptables reads it.
fn a_firewall_with_chains_of_its_own_is_mended_by_the_fix(fixture: Fixture) {
    const ARNO: &str = "*filter\n:INPUT DROP [0:0]\n:BASE_INPUT_CHAIN - [0:0]\n:EXT_INPUT_CHAIN - [0:0]\n\
        :POST_INPUT_CHAIN - [0:0]\n:POST_INPUT_DROP_CHAIN - [0:0]\n-A INPUT -j BASE_INPUT_CHAIN\n\
        -A INPUT -m conntrack --ctstate NEW -j EXT_INPUT_CHAIN\n-A INPUT -j POST_INPUT_CHAIN\n\
        -A BASE_INPUT_CHAIN -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
        -A BASE_INPUT_CHAIN -i lo -j ACCEPT\n-A EXT_INPUT_CHAIN -p tcp -m tcp --dport 8080 -j ACCEPT\n\
        -A EXT_INPUT_CHAIN -j POST_INPUT_DROP_CHAIN\n-A POST_INPUT_DROP_CHAIN -j DROP\nCOMMIT\n";
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080, 8443]));
    pod.apply(&["-i", "*", "-b", "*", "-d", "8443"]);
    let [restore, list] = ["-restore", ""].map(|tool| fixture.backend.tool(Family::V4, tool));
    pod.namespace.run(|| tool(&restore, &["--noflush"], ARNO));
    let chains = || pod.namespace.run(|| tool(&list, &["-S"], ""));
    let before = chains();
    for _ in 0..6 {
        let found = problems(&pod, &[]);
        let mended = |[id, ..]: &&[String; 3]| ["traffic-lost", "foreign-rule"].contains(&id.as_str());
        let Some([_, _, fix]) = found.iter().find(mended) else { break };
        run_fix(&pod, fix);
    }
    for port in [8080, 8443] {
        let target = at(Family::V4.pod(), port);
        let call = pod.outside().call(target);
        _ = if port == 8080 { call.captured(15006, target) } else { call.served_by("app") };
    }
    let after = chains();
    assert!(before.lines().all(|rule| after.lines().any(|line| line == rule)), "{before}\n{after}");
    let added = after.lines().filter(|line| before.lines().all(|rule| rule != *line));
    assert!(added.clone().all(|line| line.contains("port")), "{:?}", added.collect::<Vec<_>>());
}

/// The chains in which firewalld (2.3.1) drops packets to whose source no route leads, and ufw (0.36.2) those
/// with a routing header; all other rules accept.
fn filters_of_spoofed_packets_and_routing_headers_are_no_problem(fixture: Fixture) {
    const FIREWALLD: &str = "table inet firewalld { chain filter_PREROUTING {
        type filter hook prerouting priority filter + 10; policy accept;
        icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
        meta nfproto ipv6 fib saddr . mark . iif oif missing drop
    }; }";
    const UFW: &str = "*filter\n:ufw6-before-input -\n:ufw6-before-output -\n-6 -A INPUT -j ufw6-before-input\n\
        -6 -A OUTPUT -j ufw6-before-output\n-6 -A ufw6-before-input -m rt --rt-type 0 -j DROP\n\
        -6 -A ufw6-before-output -m rt --rt-type 0 -j DROP\nCOMMIT\n";
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.namespace.run(|| tool("nft", &["-f", "-"], FIREWALLD));
    pod.restore(Family::V6, UFW);
    let run = pod.apply(&OPTIONS);
    let warned = run.output().lines().filter(|line| line.contains("a foreign ")).count();
    assert_eq!(warned, 0, "{}", run.output());
    assert_eq!(problems(&pod, &[]), [[""; 3]; 0]);
    let check = pod.bare_istio_iptables(&["check"]).run().ended_with(0).stdout();
    assert!(check.starts_with("equal"), "{check}");
    for family in fixture.families() {
        let target = at(family.pod(), 8080);
        pod.outside().call(target).captured(15006, target);
    }
}

fn a_chain_that_changes_marks_is_listed_by_the_fix(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&[&OPTIONS[..], &["-m", "TPROXY"]].concat());
    let marks = "table inet marks { chain gives { ct mark set 0x539; }
        chain pre { type filter hook prerouting priority -160; jump gives; }; }";
    pod.namespace.run(|| tool("nft", &["-f", "-"], marks));
    let found = problems(&pod, &[]);
    let of_mark: Vec<_> = found.iter().filter(|[id, ..]| id == "tproxy-mark").collect();
    assert!(!of_mark.is_empty(), "{found:#?}");
    for [_, _, fix] in of_mark {
        assert!(fix.starts_with("`nft list chain inet marks gives` "), "{fix}");
        run_fix(&pod, fix);
    }
}
