//! Which address families are captured, from where, and in which network namespace.

use std::fs;

use crate::lab::fixture::at;
use crate::lab::namespace::Namespace;
use crate::lab::program::Program;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend_and_native, for_each_fixture};

for_each_backend_and_native!(
    uncaptured_ipv6_address_of_ipv4_pod_is_logged,
    dual_stack_captures_both_families,
    a_family_can_be_chosen,
    a_pod_without_an_address_gets_rules_of_both_families,
    pod_with_disabled_ipv6_gets_ipv4_rules,
    dns_is_captured_in_the_family_of_the_name_server,
);

for_each_fixture!(
    a_pod_can_be_captured_from_outside,
    a_namespace_that_is_not_there_is_an_error,
    rules_come_in_the_families_that_the_pod_has,
);

const EVERYTHING: [&str; 4] = ["-b", "*", "-i", "*"];

fn uncaptured_ipv6_address_of_ipv4_pod_is_logged(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let run = pod.bare_istio_iptables(&EVERYTHING).run().succeeded();
    run.output_contains("warn").output_contains("fd00:1::2").output_contains("--dual-stack");
    captured(&pod, Family::V4, true);
    captured(&pod, Family::V6, false);
}

fn dual_stack_captures_both_families(fixture: Fixture) {
    for name in ["ISTIO_DUAL_STACK", "DUAL_STACK"] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        pod.bare_istio_iptables(&EVERYTHING).env(name, "true").run().succeeded();
        captured(&pod, Family::V4, true);
        captured(&pod, Family::V6, true);
    }
}

fn a_family_can_be_chosen(fixture: Fixture) {
    for (family, v4, v6) in [("ipv4", true, false), ("ipv6", false, true), ("dual", true, true)] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        pod.bare_istio_iptables(&[&EVERYTHING[..], &["--ip-family", family]].concat()).run().succeeded();
        captured(&pod, Family::V4, v4);
        captured(&pod, Family::V6, v6);
    }
}

fn a_pod_without_an_address_gets_rules_of_both_families(fixture: Fixture) {
    let pod = fixture.pod();
    pod.ip("address flush dev eth0 scope global");
    pod.bare_istio_iptables(&EVERYTHING).run().succeeded();
    let state = pod.state();
    let chains: &[&str] = match fixture.backend {
        Backend::Native => &["inet istio-proxy-nat istio-output"],
        Backend::IptablesNft | Backend::IptablesLegacy => &["ip4 nat ISTIO_OUTPUT", "ip6 nat ISTIO_OUTPUT"],
    };
    for chain in chains {
        assert!(!state.chain(chain).is_empty(), "{chain} must have rules in {state:?}");
    }
}

fn pod_with_disabled_ipv6_gets_ipv4_rules(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    pod.namespace
        .run(|| fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").expect("switch IPv6 off"));
    pod.apply(&EVERYTHING);
    captured(&pod, Family::V4, true);
}

fn dns_is_captured_in_the_family_of_the_name_server(fixture: Fixture) {
    for (has, lacks) in [(Family::V4, Family::V6), (Family::V6, Family::V4)] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
        let resolver = format!("nameserver {}\n", has.name_server());
        let run = pod.istio_iptables(&["-b", "*", "--redirect-dns"]).file("/etc/resolv.conf", &resolver);
        run.run().succeeded();
        pod.app().ask(at(has.name_server(), 53)).served_by("proxy+outside");
        pod.app().call(at(has.name_server(), 53)).served_by("proxy");
        pod.app().ask(at(lacks.name_server(), 53)).served_by("outside");
        pod.app().call(at(lacks.name_server(), 53)).served_by("outside");
    }
}

fn a_pod_can_be_captured_from_outside(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let elsewhere = Namespace::new();
    let path = pod.namespace.path();
    let mut program = Program::new(&elsewhere, &EVERYTHING)
        .arg(&format!("--network-namespace={path}"))
        .arg("--cni-mode")
        .arg(&format!("--backend={}", fixture.backend.flag()));
    if fixture.families().len() == 2 {
        program = program.arg("--dual-stack");
    }
    program.run().succeeded();
    for &family in fixture.families() {
        captured(&pod, family, true);
    }
    let save = fixture.backend.tool(Family::V4, "-save");
    let around = elsewhere.run(|| crate::lab::program::tool(&save, &[], ""));
    assert!(!around.contains("ISTIO"), "the caller's namespace must stay as it is:\n{around}");
}

fn a_namespace_that_is_not_there_is_an_error(fixture: Fixture) {
    let pod = fixture.pod();
    let ended = pod.istio_iptables(&["-b", "*", "--network-namespace", "/nope"]).run();
    assert_ne!(ended.code(), 0, "said:\n{}", ended.output());
    ended.output_contains("/nope");
    // Above the highest number that the kernel gives to a process (PID_MAX_LIMIT).
    let ended = pod.istio_iptables(&["-b", "*", "--pid", "4194305"]).run();
    ended.ended_with(64).output_contains("--pid: network namespace /proc/4194305/ns/net: no such file");
    assert!(pod.state().is_empty(), "the caller's namespace must stay as it is: {:?}", pod.state());
}

/// IPv4 rules are there in any case; IPv6 rules, and `::6` on `lo`, only where IPv6 is.
fn rules_come_in_the_families_that_the_pod_has(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let state = pod.state();
    let has_v6 = fixture.families().contains(&Family::V6);
    assert!(!state.chain("ip4 nat ISTIO_OUTPUT").is_empty(), "IPv4 rules in {state:?}");
    assert_eq!(!state.chain("ip6 nat ISTIO_OUTPUT").is_empty(), has_v6, "IPv6 rules in {state:?}");
    assert_eq!(format!("{state:?}").contains("-6 lo ::6/128"), has_v6, "::6 on lo in {state:?}");
}

/// Calls in and out must be captured, or not.
#[track_caller]
fn captured(pod: &Pod, family: Family, expected: bool) {
    let (inbound, outbound) = (at(family.pod(), 8080), at(family.service(), 80));
    let (came_in, went_out) = (pod.outside().call(inbound), pod.app().call(outbound));
    if expected {
        came_in.captured(15006, inbound);
        went_out.captured(15001, outbound);
    } else {
        came_in.served_by("app");
        went_out.served_by("outside");
    }
}
