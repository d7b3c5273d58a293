//! Rules of ours that another program deleted or moved while others of ours stay: the first command names the
//! damage first, and a question about a packet says that no live rule captures it.

use crate::broken_pods::{OPTIONS, problems};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Pod, for_these_fixtures};

for_these_fixtures!(
    nft: IptablesNft Dual, legacy: IptablesLegacy Dual, native: Native Dual;
    [
        a_flushed_table_is_the_first_problem,
        a_flushed_table_of_the_zones_of_dns_is_the_only_problem,
        a_deleted_rule_of_a_chain_is_the_first_problem,
        rules_in_another_order_are_a_problem,
        foreign_rules_are_no_damage,
        rules_as_written_are_no_damage
    ]
);

const DNS: [&str; 2] = ["--redirect-dns", "--capture-all-dns"];

fn applied(pod: &Pod, mode: &str) {
    pod.apply(&[&OPTIONS[..], &DNS, &["-d", "15020", "-m", mode]].concat());
}

#[track_caller]
fn is_first(pod: &Pod, table: &str, chain: &str) {
    let found = problems(pod, &[]);
    let Some([id, cause, _]) = found.first() else { panic!("no problem, not even with {table} {chain}") };
    assert_eq!(id, "broken-chain", "{found:?}");
    assert!(cause.contains(&format!(" {table} ISTIO_")) && cause.contains(chain), "{table} {chain}: {cause}");
}

/// Rules of other tables stay: those of the zones of DNS, or those of the other direction.
fn a_flushed_table_is_the_first_problem(fixture: Fixture) {
    for (mode, table, chain) in [
        ("REDIRECT", "nat", "ISTIO_OUTPUT"),
        ("TPROXY", "nat", "ISTIO_OUTPUT"),
        ("TPROXY", "mangle", "ISTIO_INBOUND"),
    ] {
        for deletes_chains in [false, true] {
            let pod = fixture.pod();
            let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
            applied(&pod, mode);
            flush(&pod, table, deletes_chains);
            is_first(&pod, table, chain);
            if table == "nat" {
                let to = at(Family::V4.service(), 80);
                pod.app().call(to).served_by("outside");
                let said = pod.bare_istio_iptables(&["explain", "--live", "--to", &to.to_string()]).run();
                let said = said.succeeded().stdout();
                assert!(said.starts_with("not captured: no live rule captures it (IPv4): "), "{said}");
            }
            applied(&pod, mode);
            assert_eq!(problems(&pod, &[]), [[""; 3]; 0]);
        }
    }
}

/// Queries go to the proxy still.
fn a_flushed_table_of_the_zones_of_dns_is_the_only_problem(fixture: Fixture) {
    for dns in [&DNS[..1], &DNS] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
        pod.apply(&[&OPTIONS[..], dns].concat());
        flush(&pod, "raw", true);
        is_first(&pod, "raw", "ISTIO_OUTPUT_DNS");
        let found = problems(&pod, &[]);
        assert!(found.iter().all(|[id, ..]| id == "broken-chain"), "{found:?}");
    }
}

fn flush(pod: &Pod, table: &str, deletes_chains: bool) {
    if pod.fixture.backend == Backend::Native {
        let what = if deletes_chains { "delete" } else { "flush" };
        pod.namespace.run(|| tool("nft", &[what, "table", "inet", &format!("istio-proxy-{table}")], ""));
        return;
    }
    for family in [Family::V4, Family::V6] {
        pod.iptables(family, &format!("-t {table} -F"));
        if deletes_chains {
            pod.iptables(family, &format!("-t {table} -X"));
        }
    }
}

/// An exclusion in front of it shows that every other port was captured.
fn a_deleted_rule_of_a_chain_is_the_first_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    applied(&pod, "REDIRECT");
    if fixture.backend == Backend::Native {
        let script = "nft -a list chain inet istio-proxy-nat istio-inbound | sed -n 's/.*every-inbound-port.*# handle //p' |
            xargs nft delete rule inet istio-proxy-nat istio-inbound handle";
        pod.namespace.run(|| tool("sh", &["-ec", script], ""));
    } else {
        for family in [Family::V4, Family::V6] {
            pod.iptables(family, "-t nat -D ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT");
        }
    }
    let to = at(Family::V4.pod(), 8080);
    pod.outside().call(to).served_by("app");
    is_first(&pod, "nat", "ISTIO_INBOUND");
    let question = ["explain", "--live", "--from", "outside", "--to", &to.to_string()];
    let said = pod.bare_istio_iptables(&question).run().succeeded().stdout();
    assert!(said.starts_with("not captured: no live rule captures it (IPv4): rules are missing"), "{said}");
}

fn rules_in_another_order_are_a_problem(fixture: Fixture) {
    if fixture.backend == Backend::Native {
        // Whether tables of our own are as written is known by their content.
        return;
    }
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    applied(&pod, "REDIRECT");
    pod.iptables(Family::V4, "-t nat -D ISTIO_INBOUND -p tcp --dport 15020 -j RETURN");
    pod.iptables(Family::V4, "-t nat -A ISTIO_INBOUND -p tcp --dport 15020 -j RETURN");
    is_first(&pod, "nat", "ISTIO_INBOUND");
}

fn foreign_rules_are_no_damage(fixture: Fixture) {
    if fixture.backend == Backend::Native {
        return;
    }
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    applied(&pod, "REDIRECT");
    pod.iptables(Family::V4, "-t nat -I ISTIO_OUTPUT -d 203.0.113.7/32 -j RETURN");
    let found = problems(&pod, &[]);
    assert!(found.iter().all(|[id, ..]| id == "foreign-rule") && !found.is_empty(), "{found:?}");
}

/// The name server of the lab is one of IPv4: chains for those of IPv6 are empty in native tables.
fn rules_as_written_are_no_damage(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080, 90]));
    for options in
        [&[][..], &["-b", "8080"], &["-i", "192.0.2.0/24", "-q", "90"], &["-x", "192.0.2.0/24", "-o", "90"]]
    {
        for mode in ["REDIRECT", "TPROXY"] {
            pod.apply(&[options, &DNS[..1], &["-m", mode]].concat());
            assert_eq!(problems(&pod, &[]), [[""; 3]; 0], "{options:?} {mode}");
        }
    }
}
