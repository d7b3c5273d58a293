//! Pods whose routes or policy rules keep packets from where they go, as problems with a fix.

use serde_json::Value;

use crate::broken_pods::{OPTIONS, fixes_of, fixes_of_lost_traffic, is_the_only_problem, problems, run_fix};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Family, Fixture, for_these_fixtures};

for_these_fixtures!(
    nft: IptablesNft Dual, legacy: IptablesLegacy Dual, native: Native Dual;
    [
        a_route_that_drops_is_named_and_not_the_rule_of_the_main_table,
        missing_default_route_is_the_first_problem,
        a_policy_rule_that_rejects_is_mended_by_the_fix,
        replies_that_a_route_drops_count_as_a_difference,
        routes_to_some_networks_only_are_no_problem
    ]
);

fn a_route_that_drops_is_named_and_not_the_rule_of_the_main_table(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    for ip in ["ip", "ip -6"] {
        pod.namespace.run(|| {
            for command in
                [format!("{ip} route del default || true"), format!("{ip} route add unreachable default")]
            {
                tool("sh", &["-c", &command], "");
            }
        });
    }
    let check = pod.bare_istio_iptables(&["check"]).run().ended_with(1).stdout();
    assert!(check.contains("unreachable default"), "{check}");
    assert!(check.contains("`ip route show table all` lists the routes: correct the one"), "{check}");
    assert!(check.contains("`ip -6 route show table all`"), "{check}");
    assert!(!check.contains("rule del"), "{check}");
}

fn missing_default_route_is_the_first_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    pod.namespace.run(|| tool("ip", &["route", "flush", "default"], ""));
    let cause = "app to a server (IPv4): no policy rule leads to a route to ";
    is_the_only_problem(&pod, &[], "no-route", cause, "`ip route`");
    pod.bare_istio_iptables(&["check"]).run().ended_with(0).output_contains("note: no-route: ");
    pod.namespace.run(|| tool("ip", &["-6", "route", "flush", "default"], ""));
    is_the_only_problem(
        &pod,
        &[],
        "no-route",
        "; app to a server (IPv6): no policy rule leads",
        "`ip route`",
    );
}

fn a_policy_rule_that_rejects_is_mended_by_the_fix(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    for (ip, family) in [("ip", Family::V4), ("ip -6", Family::V6)] {
        let service = family.service();
        let range = ipnetwork::IpNetwork::from(service);
        let add = format!("{ip} rule add to {range} prohibit pref 77");
        pod.namespace.run(|| tool("sh", &["-ec", &add], ""));
        let to = at(service, 80).to_string();
        for words in [&[][..], &["--to", &to]] {
            let fixes = fixes_of(&pod, "policy-routing", words);
            let deletion = format!("`{ip} rule del pref 77 from all to {range} prohibit`");
            assert_eq!(fixes[0], deletion, "{words:?}: {fixes:#?}");
        }
        // `check` names the rule once, by the same name and with the same fix.
        let check = pod.bare_istio_iptables(&["check", "--output", "json"]).run().ended_with(1).stdout();
        let check: Value = serde_json::from_str(&check).expect("JSON");
        let named = check["problems"].as_array().expect("problems");
        assert_eq!(named.len(), 1, "{check:#}");
        assert_eq!(named[0]["id"], "policy-routing", "{check:#}");
        assert!(
            named[0]["fix"].as_str().expect("a fix").contains(&format!("`{ip} rule del pref 77 ")),
            "{check:#}"
        );
        // The only notice is the warning of a run, with the cause of the problem.
        assert_eq!(check["notices"], serde_json::json!([named[0]["cause"]]), "{check:#}");
        run_fix(&pod, &fixes_of(&pod, "policy-routing", &[])[0]);
        assert_eq!(problems(&pod, &[]), [[""; 3]; 0], "the fix mends it");
    }
}

/// A foreign mark of connections from outside leads the proxy's replies to a route that drops them.
fn replies_that_a_route_drops_count_as_a_difference(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    let marks = "table inet marks {
        chain o { type route hook output priority -150; meta mark set ct mark; };
        chain p { type filter hook prerouting priority -150; iifname != lo ct mark set 0x99; };
    }";
    pod.namespace.run(|| tool("nft", &["-f", "-"], marks));
    pod.bare_istio_iptables(&["check"]).run().ended_with(0);
    let routes = "ip rule add fwmark 0x99 lookup 77 pref 77; ip route add blackhole default table 77";
    pod.namespace.run(|| tool("sh", &["-ec", routes], ""));
    let check = pod.bare_istio_iptables(&["check"]).run().ended_with(1).stdout();
    assert!(check.contains(" 1. traffic-lost: client to the app"), "{check}");
    assert!(check.contains("blackhole default"), "{check}");
    let fixes = fixes_of_lost_traffic(&pod, &[]);
    run_fix(&pod, &fixes[0]);
    pod.bare_istio_iptables(&["check"]).run().ended_with(0);
    let target = at(Family::V4.pod(), 8080);
    pod.outside().call(target).captured(15006, target);
}

/// A pod that reaches the networks of its cluster and nothing else, as in an isolated environment.
fn routes_to_some_networks_only_are_no_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    for (ip, cluster) in [("ip", Family::V4.service_range()), ("ip -6", Family::V6.service_range())] {
        let limit = format!(
            "way=$({ip} route show default | cut -d ' ' -f 2-5); {ip} route flush default; {ip} route add {cluster} $way"
        );
        pod.namespace.run(|| tool("sh", &["-ec", &limit], ""));
    }
    assert_eq!(problems(&pod, &[]), [[""; 3]; 0]);
    let check = pod.bare_istio_iptables(&["check"]).run().ended_with(0).stdout();
    assert!(!check.contains("no-route"), "{check}");
    let [elsewhere, reason] = ["198.51.100.7:80", "no policy rule leads to a route to 198.51.100.7"];
    let asked = pod.bare_istio_iptables(&["explain", "--live", "--to", elsewhere]).run().stdout();
    assert!(asked.contains(reason), "{asked}");
}
