//! Calls of the app: what goes to the proxy's outbound port and what leaves the pod as it is.

use crate::lab::fixture::at;
use crate::lab::{Family, Fixture, for_each_backend_and_native, for_each_fixture_and_native};

for_each_fixture_and_native!(
    a_call_of_the_app_is_captured_with_its_destination,
    without_outbound_ranges_no_call_is_captured,
    excluded_range_is_not_captured,
    excluded_outbound_port_is_not_captured,
    only_listed_ranges_are_captured,
    a_listed_port_is_captured_whatever_its_range,
    an_excluded_range_wins_over_a_listed_port,
    app_call_to_itself_is_not_captured,
    an_app_that_calls_its_pod_over_loopback_is_captured_if_loopback_is_included,
    another_outbound_port_of_the_proxy_can_be_chosen,
    udp_is_not_captured_by_outbound_ranges,
);

for_each_backend_and_native!(the_loopback_range_of_the_app_can_be_widened);

fn a_call_of_the_app_is_captured_with_its_destination(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&["-b", "*", "-i", "*"]);
    for family in fixture.families() {
        for target in [at(family.service(), 80), at(family.other_service(), 4321), at(family.outside(), 80)] {
            pod.app().call(target).captured(15001, target);
        }
    }
}

fn without_outbound_ranges_no_call_is_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&["-b", "*"]);
    for family in fixture.families() {
        pod.app().call(at(family.service(), 80)).served_by("outside");
    }
}

fn excluded_range_is_not_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&["-i", "*", "-x", &service_ranges()]);
    for family in fixture.families() {
        pod.app().call(at(family.service(), 80)).served_by("outside").coming_from(family.pod());
        let other = at(family.other_service(), 80);
        pod.app().call(other).captured(15001, other);
    }
}

/// The option is for TCP and UDP; for UDP it shows where DNS would be captured.
fn excluded_outbound_port_is_not_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 5432]));
    pod.apply(&["-i", "*", "-o", "5432,53", "--redirect-dns", "--capture-all-dns"]);
    for family in fixture.families() {
        pod.app().call(at(family.service(), 5432)).served_by("outside");
        pod.app().call(at(family.name_server(), 53)).served_by("outside");
        pod.app().ask(at(family.name_server(), 53)).served_by("outside");
        let other = at(family.service(), 80);
        pod.app().call(other).captured(15001, other);
    }
}

fn only_listed_ranges_are_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&["-i", &service_ranges()]);
    for family in fixture.families() {
        let listed = at(family.service(), 80);
        pod.app().call(listed).captured(15001, listed);
        pod.app().call(at(family.other_service(), 80)).served_by("outside");
    }
}

fn a_listed_port_is_captured_whatever_its_range(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 443, 9090]));
    pod.apply(&["-i", &service_ranges(), "-q", "443,8443"]);
    for family in fixture.families() {
        for target in
            [at(family.other_service(), 443), at(family.other_service(), 8443), at(family.service(), 80)]
        {
            pod.app().call(target).captured(15001, target);
        }
        pod.app().call(at(family.other_service(), 9090)).served_by("outside");
    }
}

fn an_excluded_range_wins_over_a_listed_port(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[443]));
    pod.apply(&["-x", &service_ranges(), "-q", "443"]);
    for family in fixture.families() {
        pod.app().call(at(family.service(), 443)).served_by("outside");
        let other = at(family.other_service(), 443);
        pod.app().call(other).captured(15001, other);
    }
}

/// Over `lo`, whether it calls 127.0.0.1 or the pod's own address.
fn app_call_to_itself_is_not_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&["-b", "*", "-i", "*"]);
    for family in fixture.families() {
        pod.app().call(at(family.loopback(), 8080)).served_by("app");
        pod.app().call(at(family.pod(), 8080)).served_by("app");
    }
}

/// An included loopback range removes the rule that exempts calls over `lo`.
fn an_app_that_calls_its_pod_over_loopback_is_captured_if_loopback_is_included(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&["-b", "*", "-i", "127.0.0.0/8,::1/128,10.1.0.0/24,fd00:1::/64"]);
    for &family in fixture.families() {
        let by_address = at(family.pod(), 8080);
        pod.app().call(by_address).captured(15001, by_address);
        // The app's own loopback address returns before any range is matched.
        pod.app().call(at(family.loopback(), 8080)).served_by("app");
        if family == Family::V4 {
            let elsewhere = "127.0.0.2:8080".parse().unwrap();
            pod.app().call(elsewhere).captured(15001, elsewhere);
        }
    }
}

fn another_outbound_port_of_the_proxy_can_be_chosen(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.proxy_listens_on(16001, 15006, 15008);
    pod.apply(&["-i", "*", "-p", "16001"]);
    for family in fixture.families() {
        let target = at(family.service(), 80);
        pod.app().call(target).captured(16001, target);
    }
}

fn udp_is_not_captured_by_outbound_ranges(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    pod.apply(&["-b", "*", "-i", "*"]);
    for family in fixture.families() {
        pod.app().ask(at(family.name_server(), 53)).served_by("outside").coming_from(family.pod());
    }
}

/// `ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR`: with 127.0.0.0/8 the proxy may call the app on any loopback address.
fn the_loopback_range_of_the_app_can_be_widened(fixture: Fixture) {
    let elsewhere = "127.0.0.2:8080".parse().unwrap();
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&["-b", "*", "-i", "*"]);
    pod.proxy().call(elsewhere).captured(15006, elsewhere);
    let widened =
        pod.istio_iptables(&["-b", "*", "-i", "*"]).env("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.0/8");
    widened.run().succeeded();
    pod.proxy().call(elsewhere).served_by("app");
    let by_address = at(Family::V4.pod(), 8080);
    pod.proxy().call(by_address).captured(15006, by_address);
}

fn service_ranges() -> String {
    format!("{},{}", Family::V4.service_range(), Family::V6.service_range())
}
