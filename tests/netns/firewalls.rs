//! Firewalls of the pod beside the capture rules: what is no problem is not reported, and a fix mends what is
//! one without harm to the firewall.

use crate::broken_pods::{OPTIONS, problems, run_fix};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, for_these_fixtures};

for_these_fixtures!(
    nft: IptablesNft Dual, legacy: IptablesLegacy Dual, native: Native Dual;
    [
        a_firewall_with_chains_of_its_own_is_mended_by_the_fix,
        filters_of_spoofed_packets_and_routing_headers_are_no_problem,
        a_chain_that_changes_marks_is_listed_by_the_fix,
        a_firewall_of_iptables_legacy_is_mended_without_a_deletion,
        a_policy_of_iptables_legacy_is_named_once_for_each_family,
        a_bridge_without_containers_is_no_problem,
        a_problem_says_which_rule_cannot_be_evaluated,
        chains_for_each_family_are_followed
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

/// The lists of FireHOL (3.1.8), which writes them with iptables-legacy, for a zone that opens port 8080.
fn a_firewall_of_iptables_legacy_is_mended_without_a_deletion(fixture: Fixture) {
    const INVALID: &str = "-A CHAIN -p tcp -m tcp --tcp-flags FIN,ACK FIN,ACK -m conntrack --ctstate INVALID,NEW -j DROP\n\
        -A CHAIN -p tcp -m tcp --tcp-flags RST,ACK RST,ACK -m conntrack --ctstate INVALID,NEW -j DROP\n\
        -A CHAIN -p tcp -m tcp --tcp-flags ACK ACK -m conntrack --ctstate INVALID,NEW -j DROP\n\
        -A CHAIN -p tcp -m tcp --tcp-flags RST RST -m conntrack --ctstate INVALID,NEW -j DROP\n\
        -A CHAIN -m conntrack --ctstate INVALID -j DROP\n";
    let of_world = INVALID.replace("CHAIN", "in_world");
    let of_input = INVALID.replace("CHAIN", "INPUT");
    let lists = format!(
        "*filter\n:INPUT DROP\n:in_world -\n-A INPUT -i lo -j ACCEPT\n-A INPUT -p ipv6-icmp -j ACCEPT\n-A INPUT -j in_world\n\
         {of_input}-A INPUT -m limit --limit 1/sec -j LOG\n-A INPUT -j DROP\n\
         -A in_world -p tcp -m tcp --sport 1024:65535 --dport 8080 -m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT\n\
         -A in_world -m conntrack --ctstate ESTABLISHED -j ACCEPT\n{of_world}-A in_world -j DROP\nCOMMIT\n"
    );
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    for tool_of_family in ["iptables-legacy-restore", "ip6tables-legacy-restore"] {
        pod.namespace.run(|| tool(tool_of_family, &["--noflush", "--wait"], &lists));
    }
    let run = pod.apply(&OPTIONS).output();
    let warned: Vec<&str> = run.lines().filter(|line| line.contains("a foreign ")).collect();
    assert!(warned.iter().all(|line| line.contains("-A INPUT -j ")), "{warned:#?}");
    for _ in 0..4 {
        let found = problems(&pod, &[]);
        assert!(found.iter().all(|[_, _, fix]| !fix.contains(" -D ")), "{found:#?}");
        let Some([_, _, fix]) = found.first() else { break };
        run_fix(&pod, fix);
    }
    assert_eq!(problems(&pod, &[]), [[""; 3]; 0]);
    for family in fixture.families() {
        let target = at(family.pod(), 8080);
        pod.outside().call(target).captured(15006, target);
    }
}

/// The rules of ferm (2.5.1) in Debian, which writes them with iptables-legacy: a policy and what it accepts.
fn a_policy_of_iptables_legacy_is_named_once_for_each_family(fixture: Fixture) {
    const FERM: &str = "*filter\n:INPUT DROP\n-A INPUT -m state --state INVALID -j DROP\n\
        -A INPUT -m state --state ESTABLISHED,RELATED -j ACCEPT\n-A INPUT -i lo -j ACCEPT\n\
        -A INPUT -p ipv6-icmp -j ACCEPT\n-A INPUT -p tcp -m tcp --dport 15008 -j ACCEPT\nCOMMIT\n";
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    for tool_of_family in ["iptables-legacy-restore", "ip6tables-legacy-restore"] {
        pod.namespace.run(|| tool(tool_of_family, &["--noflush", "--wait"], FERM));
    }
    let found = problems(&pod, &[]);
    assert_eq!(found.len(), 2, "{found:#?}");
    let check = pod.bare_istio_iptables(&["check"]).run().ended_with(1).stdout();
    assert_eq!(check.matches("fix: ").count(), 2, "{check}");
    for ([id, cause, fix], (family, command)) in
        found.iter().zip([("IPv4", "`iptables-legacy -I INPUT"), ("IPv6", "`ip6tables-legacy -I INPUT")])
    {
        assert_eq!(id, "traffic-lost", "{found:#?}");
        assert!(cause.contains(family) && fix.starts_with(command), "{found:#?}");
        assert!(check.contains(fix), "{check}");
        run_fix(&pod, fix);
    }
    assert_eq!(problems(&pod, &[]), [[""; 3]; 0]);
}

/// The bridge of lxc-net (LXC 6.0.4), as that of Docker: it has no carrier until a container is started.
fn a_bridge_without_containers_is_no_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    pod.ip("link add lxcbr0 type bridge\nlink set lxcbr0 up\naddress add 10.0.3.1/24 dev lxcbr0
        -6 address add 2001:db8:3::1/64 dev lxcbr0 nodad");
    assert_eq!(problems(&pod, &[]), [[""; 3]; 0]);
}

/// The rules of ss-nat (shadowsocks-libev 3.3.5), with another test that cannot be evaluated in the place of
/// its set of networks that it does not redirect.
fn a_problem_says_which_rule_cannot_be_evaluated(fixture: Fixture) {
    const SS_NAT: &str = "*nat\n:SS_SPEC_WAN_AC -\n:SS_SPEC_WAN_FW -\n-I OUTPUT 1 -p tcp -j SS_SPEC_WAN_AC\n\
        -A SS_SPEC_WAN_AC -m length --length 40:1500 -j RETURN\n-A SS_SPEC_WAN_AC -j SS_SPEC_WAN_FW\n\
        -A SS_SPEC_WAN_FW -p tcp -j REDIRECT --to-ports 1090\nCOMMIT\n";
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    let service = at(Family::V4.service(), 80);
    pod.restore(Family::V4, SS_NAT);
    if fixture.backend != Backend::Native {
        pod.app().call(service).captured(15001, service);
    }
    for [id, cause, _] in problems(&pod, &["--to", &service.to_string()]) {
        assert!(id != "traffic-lost" || cause.contains("-m length"), "{id}: {cause}");
    }
    let found = problems(&pod, &[]);
    for [_, cause, _] in found.iter().filter(|[id, ..]| id == "traffic-lost") {
        assert!(cause.contains("; unless ") && cause.contains("-m length"), "{cause}");
    }
}

/// The chains of foomuuri (0.27) for what leaves by `eth0`, and what arrives there on opened ports.
fn chains_for_each_family_are_followed(fixture: Fixture) {
    const FOOMUURI: &str = "table inet foomuuri {
        map input_zones { type ifname : verdict; elements = { \"lo\" : accept, \"eth0\" : jump public-localhost }; }
        map output_zones { type ifname : verdict; elements = { \"lo\" : accept, \"eth0\" : jump localhost-public }; }
        chain input { type filter hook input priority filter + 5; iifname vmap @input_zones; drop; }
        chain output { type filter hook output priority filter + 5; oifname vmap @output_zones; reject with icmpx admin-prohibited; }
        chain localhost-public { meta nfproto vmap { ipv4 : jump localhost-public_4, ipv6 : jump localhost-public_6 }; }
        chain smurfs_4 { ip saddr 0.0.0.0 return; fib saddr type { broadcast, multicast } drop; }
        chain localhost-public_4 { ct state vmap { invalid : drop, established : accept, new : jump smurfs_4 }; accept; }
        chain localhost-public_6 { accept; }
        chain public-localhost { meta nfproto vmap { ipv4 : jump public-localhost_4, ipv6 : jump public-localhost_6 }; }
        chain public-localhost_4 { ct state established,related accept; tcp dport { 15006, 15008 } accept; reject; }
        chain public-localhost_6 { icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
            ct state established,related accept; tcp dport { 15006, 15008 } accept; reject; }
    }";
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    pod.namespace.run(|| tool("nft", &["-f", "-"], FOOMUURI));
    pod.apply(&OPTIONS);
    for family in fixture.families() {
        let (app, service) = (at(family.pod(), 8080), at(family.service(), 80));
        pod.outside().call(app).captured(15006, app);
        pod.app().call(service).captured(15001, service);
    }
    assert_eq!(problems(&pod, &[]), [[""; 3]; 0]);
}
