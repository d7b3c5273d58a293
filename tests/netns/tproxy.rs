//! TPROXY: inbound calls reach the proxy with source and destination untouched.

use crate::lab::fixture::at;
use crate::lab::socket::Binding;
use crate::lab::{Fixture, for_each_fixture_and_native};

const TPROXY: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];

for_each_fixture_and_native!(
    an_inbound_call_keeps_source_and_destination,
    a_second_run_changes_nothing_for_callers,
    only_listed_ports_are_captured_under_tproxy,
    excluded_port_is_not_captured_under_tproxy,
    another_mark_table_and_port_can_be_chosen,
    an_open_connection_survives_a_second_run,
    the_app_sees_the_real_caller_through_the_proxy,
    a_call_to_an_address_that_is_only_routed_to_the_pod_is_captured,
    root_proxy_call_to_own_pod_is_captured_inbound,
    outbound_calls_are_captured_under_tproxy,
    a_passed_through_call_does_not_loop_under_tproxy,
    app_call_to_itself_is_not_captured_under_tproxy,
);

fn an_inbound_call_keeps_source_and_destination(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&TPROXY);
    for family in fixture.families() {
        let target = at(family.pod(), 8080);
        pod.outside().call(target).captured(15006, target).coming_from(family.outside());
        let from = at(family.outside(), 41_234);
        assert_eq!(pod.outside().call_from(from, target).response().source, from, "the caller's own port");
    }
}

fn a_second_run_changes_nothing_for_callers(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&TPROXY);
    let once = pod.state();
    pod.apply(&TPROXY);
    assert_eq!(pod.state(), once, "one rule, one route, once");
    for family in fixture.families() {
        let target = at(family.pod(), 8080);
        pod.outside().call(target).captured(15006, target);
    }
}

fn only_listed_ports_are_captured_under_tproxy(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080, 8081, 9090]));
    pod.apply(&["-b", "8080,8081", "-m", "TPROXY"]);
    for family in fixture.families() {
        for port in [8080, 8081] {
            let target = at(family.pod(), port);
            pod.outside().call(target).captured(15006, target).coming_from(family.outside());
        }
        pod.outside().call(at(family.pod(), 9090)).served_by("app");
    }
}

fn excluded_port_is_not_captured_under_tproxy(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080, 15020]));
    pod.apply(&["-b", "*", "-d", "15020", "-m", "TPROXY"]);
    for family in fixture.families() {
        pod.outside().call(at(family.pod(), 15020)).served_by("app");
        let target = at(family.pod(), 8080);
        pod.outside().call(target).captured(15006, target);
    }
}

fn another_mark_table_and_port_can_be_chosen(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_on(15001, 16006, 15008), pod.app_listens(&[8080]));
    pod.apply(&["-b", "*", "-m", "TPROXY", "-t", "500", "-r", "200", "-z", "16006"]);
    for family in fixture.families() {
        let target = at(family.pod(), 8080);
        pod.outside().call(target).captured(16006, target).coming_from(family.outside());
    }
    let state = format!("{:?}", pod.state());
    assert!(state.contains("fwmark 0x1f4 lookup 200"), "a rule for mark 500 and table 200 in {state}");
}

fn an_open_connection_survives_a_second_run(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&TPROXY);
    let targets = fixture.families().iter().map(|family| at(family.pod(), 8080));
    let mut open: Vec<_> =
        targets.map(|target| pod.outside().connect(target).expect("a first call")).collect();
    for args in
        [&TPROXY[..], &["-b", "8080", "-i", "*", "-m", "TPROXY"], &[&TPROXY[..], &["--force-apply"]].concat()]
    {
        pod.apply(args);
        for conversation in &mut open {
            conversation.echo("still there").unwrap_or_else(|e| panic!("after {args:?}: {e}"));
        }
    }
}

/// The way through: outside → proxy by TPROXY, proxy → app from the caller's own address under the mark. The
/// app's replies find back to the proxy, although they are addressed to the caller.
fn the_app_sees_the_real_caller_through_the_proxy(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&TPROXY);
    // Only root may take another's address; the proxy of a TPROXY pod runs as root with the proxy's group.
    let proxy = pod.user(0, 1337);
    for family in fixture.families() {
        let caller = Binding { source: Some(at(family.outside(), 0)), spoofed_mark: Some(1337) };
        let passed_on = proxy.call_bound(at(family.pod(), 8080), caller);
        passed_on.served_by("app").coming_from(family.outside());
    }
}

/// Not only the first packet must find its way to a socket with an address that is not the host's.
fn a_call_to_an_address_that_is_only_routed_to_the_pod_is_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.proxy_listens();
    pod.apply(&TPROXY);
    for family in fixture.families() {
        let target = at(family.routed_to_pod(), 8080);
        pod.outside().call(target).captured(15006, target).coming_from(family.outside());
    }
}

/// The proxy of a TPROXY pod is root with the proxy's group: nat lets its loopback calls go, the mark brings
/// them back.
fn root_proxy_call_to_own_pod_is_captured_inbound(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&TPROXY);
    for family in fixture.families() {
        let own = at(family.pod(), 8080);
        pod.user(0, 1337).call(own).captured(15006, own).coming_from(family.pod());
    }
}

fn outbound_calls_are_captured_under_tproxy(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&TPROXY);
    for family in fixture.families() {
        let target = at(family.service(), 80);
        pod.app().call(target).captured(15001, target);
        pod.proxy().call(target).served_by("outside");
    }
}

fn a_passed_through_call_does_not_loop_under_tproxy(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&TPROXY);
    for family in fixture.families() {
        let call = pod.proxy().call_from(at(family.passthrough(), 0), at(family.pod(), 8080));
        call.served_by("app").coming_from(family.passthrough());
        pod.proxy().call(at(family.loopback(), 8080)).served_by("app");
    }
}

fn app_call_to_itself_is_not_captured_under_tproxy(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&TPROXY);
    for family in fixture.families() {
        pod.app().call(at(family.loopback(), 8080)).served_by("app");
        pod.app().call(at(family.pod(), 8080)).served_by("app");
        // The proxy that calls its own pod comes in again, as in the other mode.
        let own = at(family.pod(), 8080);
        pod.proxy().call(own).captured(15006, own);
    }
}
