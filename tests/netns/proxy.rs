//! Calls of the proxy itself: they must neither loop nor get lost.

use crate::lab::fixture::at;
use crate::lab::{Fixture, for_each_fixture_and_native};

for_each_fixture_and_native!(
    a_call_of_the_proxy_leaves_the_pod,
    each_proxy_uid_and_gid_is_not_captured,
    default_proxy_uid_is_1337,
    proxy_call_to_own_pod_is_captured_inbound,
    second_proxy_uid_call_to_own_pod_is_not_captured,
    proxy_call_to_own_tunnel_port_is_not_captured,
    a_passed_through_call_reaches_the_app_and_does_not_loop,
    the_proxy_reaches_the_app_on_loopback,
    one_port_for_both_directions_sends_the_proxys_calls_back_to_it,
);

fn a_call_of_the_proxy_leaves_the_pod(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&["-b", "*", "-i", "*"]);
    for family in fixture.families() {
        pod.proxy().call(at(family.service(), 80)).served_by("outside").coming_from(family.pod());
        // By user alone, and by group alone.
        pod.user(1337, 1000).call(at(family.service(), 80)).served_by("outside");
        pod.user(1000, 1337).call(at(family.service(), 80)).served_by("outside");
    }
}

fn each_proxy_uid_and_gid_is_not_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&["-b", "*", "-i", "*", "-u", "1337,1500", "-g", "2000"]);
    for family in fixture.families() {
        let target = at(family.service(), 80);
        for (uid, gid) in [(1337, 1000), (1500, 1000), (1000, 2000)] {
            pod.user(uid, gid).call(target).served_by("outside");
        }
        for (uid, gid) in [(1000, 1000), (1501, 1337), (0, 0), (2000, 1500)] {
            pod.user(uid, gid).call(target).captured(15001, target);
        }
    }
}

fn default_proxy_uid_is_1337(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&["-b", "*", "-i", "*", "-u", "1500"]);
    for family in fixture.families() {
        let target = at(family.service(), 80);
        pod.user(1500, 1000).call(target).served_by("outside");
        // The groups follow the users.
        pod.user(1000, 1500).call(target).served_by("outside");
        pod.user(1337, 1337).call(target).captured(15001, target);
    }
}

/// A pod that calls its own service: the proxy picks itself, and the call is inbound like any other.
fn proxy_call_to_own_pod_is_captured_inbound(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&["-b", "*", "-i", "*"]);
    for family in fixture.families() {
        let own = at(family.pod(), 8080);
        pod.proxy().call(own).captured(15006, own);
        // The rule for the uid exempts all other users' loopback calls before the rule for the gid is
        // reached.
        pod.user(1000, 1337).call(own).served_by("app");
    }
}

/// Istio's behaviour, kept: the first uid's rules exempt all other users' loopback calls, the second uid's
/// too.
fn second_proxy_uid_call_to_own_pod_is_not_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&["-b", "*", "-i", "*", "-u", "1337,1500"]);
    for family in fixture.families() {
        let own = at(family.pod(), 8080);
        pod.user(1337, 1000).call(own).captured(15006, own);
        pod.user(1500, 1000).call(own).served_by("app");
    }
}

fn proxy_call_to_own_tunnel_port_is_not_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.proxy_listens();
    pod.apply(&["-b", "*", "-i", "*"]);
    for family in fixture.families() {
        let tunnel = at(family.pod(), 15008);
        pod.proxy().call(tunnel).captured(15008, tunnel);
    }
}

/// The proxy passes inbound calls on from 127.0.0.6 (or ::6, which is put on `lo` for this).
fn a_passed_through_call_reaches_the_app_and_does_not_loop(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&["-b", "*", "-i", "*"]);
    for family in fixture.families() {
        let from = at(family.passthrough(), 0);
        let call = pod.proxy().call_from(from, at(family.pod(), 8080));
        call.served_by("app").coming_from(family.passthrough());
    }
}

fn the_proxy_reaches_the_app_on_loopback(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&["-b", "*", "-i", "*"]);
    for family in fixture.families() {
        pod.proxy().call(at(family.loopback(), 8080)).served_by("app");
    }
}

/// Istio accepts `-z` equal to `-p`, too, and makes the same rules.
fn one_port_for_both_directions_sends_the_proxys_calls_back_to_it(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_also_listens(&[15001]), pod.app_listens(&[8080]));
    let words = "what the proxy forwards to the pod's own address returns to the same listener, in a loop";
    pod.apply(&["-b", "*", "-i", "*", "-z", "15001"]).output_contains(words);
    for family in fixture.families() {
        let (own, service) = (at(family.pod(), 8080), at(family.service(), 80));
        pod.outside().call(own).captured(15001, own);
        pod.app().call(service).captured(15001, service);
        pod.proxy().call(own).captured(15001, own);
    }
}
