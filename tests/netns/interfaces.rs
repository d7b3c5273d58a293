//! Excluded NICs, and virtual ones whose inbound traffic counts as outbound.

use crate::lab::fixture::at;
use crate::lab::{Family, Fixture, Topology, for_each_fixture_and_native};

for_each_fixture_and_native!(
    excluded_interface_is_not_captured_in_either_direction,
    an_interface_may_be_excluded_by_the_start_of_its_name,
    excluded_interface_is_not_captured_under_tproxy,
    a_call_of_a_guest_is_outbound,
    only_calls_of_a_guest_to_listed_ranges_are_captured,
    calls_from_outside_stay_inbound_where_there_is_a_guest,
);

fn excluded_interface_is_not_captured_in_either_direction(fixture: Fixture) {
    second_interface_is_not_captured(fixture, &["-b", "*", "-i", "*", "-c", "eth1"]);
}

fn an_interface_may_be_excluded_by_the_start_of_its_name(fixture: Fixture) {
    let pod = fixture.pod_in(Topology::SecondNic);
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    pod.apply(&["-b", "*", "-i", "*", "-c", "net1,eth+"]);
    for family in fixture.families() {
        for address in [family.pod(), family.pod_second()] {
            pod.outside().call(at(address, 8080)).served_by("app");
        }
        for address in [family.service(), family.outside_second()] {
            pod.app().call(at(address, 80)).served_by("outside");
        }
    }
}

fn excluded_interface_is_not_captured_under_tproxy(fixture: Fixture) {
    second_interface_is_not_captured(fixture, &["-b", "*", "-i", "*", "-c", "eth1", "-m", "TPROXY"]);
}

fn second_interface_is_not_captured(fixture: Fixture, args: &[&str]) {
    let pod = fixture.pod_in(Topology::SecondNic);
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    pod.apply(args);
    for family in fixture.families() {
        let own = at(family.pod_second(), 8080);
        pod.outside().call(own).served_by("app").coming_from(family.outside_second());
        pod.app().call(at(family.outside_second(), 80)).served_by("outside");
        // The first NIC is captured as ever.
        let inbound = at(family.pod(), 8080);
        pod.outside().call(inbound).captured(15006, inbound);
        let outbound = at(family.service(), 80);
        pod.app().call(outbound).captured(15001, outbound);
    }
}

fn a_call_of_a_guest_is_outbound(fixture: Fixture) {
    let pod = fixture.pod_in(Topology::Guest);
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&["-b", "*", "-i", "*", "-k", "br0"]);
    for family in fixture.families() {
        let target = at(family.service(), 80);
        pod.guest().call(target).captured(15001, target).coming_from(family.guest());
    }
}

fn only_calls_of_a_guest_to_listed_ranges_are_captured(fixture: Fixture) {
    let ranges = format!("{},{}", Family::V4.service_range(), Family::V6.service_range());
    for flag in ["-k", "--reroute-virtual-interfaces"] {
        let pod = fixture.pod_in(Topology::Guest);
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
        pod.apply(&["-b", "*", "-i", &ranges, flag, "br0"]);
        for family in fixture.families() {
            let listed = at(family.service(), 80);
            pod.guest().call(listed).captured(15001, listed);
            pod.guest().call(at(family.other_service(), 80)).served_by("outside").coming_from(family.guest());
        }
    }
}

fn calls_from_outside_stay_inbound_where_there_is_a_guest(fixture: Fixture) {
    let pod = fixture.pod_in(Topology::Guest);
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&["-b", "*", "-i", "*", "-k", "br0"]);
    for family in fixture.families() {
        let target = at(family.pod(), 8080);
        pod.outside().call(target).captured(15006, target);
    }
}
