//! Calls to the pod: what goes to the proxy's inbound port and what goes straight to the app.

use crate::lab::fixture::at;
use crate::lab::segment::stray_fin_is_reset;
use crate::lab::server::Listen;
use crate::lab::socket::Binding;
use crate::lab::{Fixture, for_each_fixture_and_native};

for_each_fixture_and_native!(
    an_inbound_call_reaches_the_proxy_with_its_destination,
    excluded_inbound_port_is_not_captured,
    only_listed_inbound_ports_are_captured,
    without_inbound_ports_nothing_inbound_is_captured,
    connections_to_two_ports_from_one_client_port_are_captured,
    the_tunnel_port_is_not_redirected,
    other_inbound_and_tunnel_ports_can_be_chosen,
    invalid_packets_are_reset_unless_they_are_to_be_dropped,
);

fn an_inbound_call_reaches_the_proxy_with_its_destination(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&["-b", "*", "-i", "*"]);
    for family in fixture.families() {
        let target = at(family.pod(), 8080);
        pod.outside().call(target).captured(15006, target).coming_from(family.outside());
    }
}

fn excluded_inbound_port_is_not_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080, 15020, 15090]));
    pod.apply(&["-b", "*", "-d", "15090,15020"]);
    for family in fixture.families() {
        for port in [15090, 15020] {
            pod.outside().call(at(family.pod(), port)).served_by("app");
        }
        let target = at(family.pod(), 8080);
        pod.outside().call(target).captured(15006, target);
    }
}

fn only_listed_inbound_ports_are_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080, 8081, 9090]));
    pod.apply(&["-b", "8080,8081"]);
    for family in fixture.families() {
        for port in [8080, 8081] {
            let target = at(family.pod(), port);
            pod.outside().call(target).captured(15006, target);
        }
        pod.outside().call(at(family.pod(), 9090)).served_by("app");
    }
}

/// Connections to two ports are redirected to the same port of the proxy, so connection tracking gives the
/// second one another source port. The kernel takes that into account for listeners that are not transparent,
/// as Envoy's are in REDIRECT mode.
fn connections_to_two_ports_from_one_client_port_are_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy().serve("proxy", &[Listen::Tcp(15006)]), pod.app_listens(&[8080, 9090]));
    pod.apply(&["-b", "*"]);
    for family in fixture.families() {
        let (source, first, second) =
            (at(family.outside(), 40_100), at(family.pod(), 8080), at(family.pod(), 9090));
        let binding = Binding { source: Some(source), spoofed_mark: None };
        let mut held = pod.outside().connect_bound(first, binding).expect("connect");
        pod.outside().call_from(source, second).captured(15006, second);
        held.echo("still there").expect("the first connection stays");
    }
}

fn without_inbound_ports_nothing_inbound_is_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&["-i", "*"]);
    for family in fixture.families() {
        pod.outside().call(at(family.pod(), 8080)).served_by("app");
    }
}

fn the_tunnel_port_is_not_redirected(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.proxy_listens();
    pod.apply(&["-b", "*", "-i", "*"]);
    for family in fixture.families() {
        let response = pod.outside().call(at(family.pod(), 15008));
        response.captured(15008, at(family.pod(), 15008));
    }
}

fn other_inbound_and_tunnel_ports_can_be_chosen(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_on(16001, 16006, 16008), pod.app_listens(&[8080]));
    pod.apply(&["-b", "*", "-i", "*", "-p", "16001", "-z", "16006", "-e", "16008"]);
    for family in fixture.families() {
        let target = at(family.pod(), 8080);
        pod.outside().call(target).captured(16006, target);
        let tunnel = at(family.pod(), 16008);
        pod.outside().call(tunnel).captured(16008, tunnel);
        let former_tunnel = at(family.pod(), 15008);
        pod.outside().call(former_tunnel).captured(16006, former_tunnel);
    }
}

/// A FIN out of nowhere is INVALID to conntrack; the host replies with a reset, unless it never gets there.
fn invalid_packets_are_reset_unless_they_are_to_be_dropped(fixture: Fixture) {
    for (args, expected) in [(&["-b", "*"][..], true), (&["-b", "*", "--drop-invalid"], false)] {
        let pod = fixture.pod();
        let _servers = pod.proxy_listens();
        pod.apply(args);
        for family in fixture.families() {
            let (from, to) = (at(family.outside(), 40_000), at(family.pod(), 8080));
            let is_reset = pod.outside().run(|| stray_fin_is_reset(from, to)).expect("send a raw segment");
            assert_eq!(is_reset, expected, "a stray FIN was reset, with {args:?}, {family:?}");
            // What is not invalid still gets through.
            pod.outside().call(to).captured(15006, to);
        }
    }
}
