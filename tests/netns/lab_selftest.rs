//! The lab must be able to tell captured from not captured; without these, a broken lab would pass every
//! test.

use crate::lab::fixture::at;
use crate::lab::segment::stray_fin_is_reset;
use crate::lab::{Fixture, Outcome, Topology, for_each_fixture, for_these_fixtures};

for_each_fixture!(
    without_rules_no_call_is_captured,
    manual_redirect_counts_as_capture,
    a_call_without_a_listener_is_refused,
    guest_reaches_outside_through_the_pod,
);

for_these_fixtures!(
    one_v4: IptablesNft V4, one_v6: IptablesLegacy V6;
    [a_dropped_packet_gets_no_reply, a_refused_packet_gets_a_reply]
);

fn without_rules_no_call_is_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    for family in fixture.families() {
        pod.outside().call(at(family.pod(), 8080)).served_by("app").coming_from(family.outside());
        pod.app().call(at(family.service(), 80)).served_by("outside").coming_from(family.pod());
        pod.app().ask(at(family.name_server(), 53)).served_by("outside");
        let (from, to) = (at(family.outside(), 40_000), at(family.pod(), 9999));
        assert!(pod.outside().run(|| stray_fin_is_reset(from, to)).expect("send a raw segment"));
    }
    assert!(pod.state().is_empty(), "an untouched pod has no state: {:?}", pod.state());
}

fn manual_redirect_counts_as_capture(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    for &family in fixture.families() {
        pod.iptables(family, "-t nat -A PREROUTING -p tcp --dport 8080 -j REDIRECT --to-ports 15006");
        pod.iptables(
            family,
            "-t nat -A OUTPUT -p tcp --dport 80 -m owner --uid-owner 1000 -j REDIRECT --to-ports 15001",
        );
        let inbound = at(family.pod(), 8080);
        pod.outside().call(inbound).captured(15006, inbound).coming_from(family.outside());
        let outbound = at(family.service(), 80);
        pod.app().call(outbound).captured(15001, outbound);
        pod.user(1001, 1000).call(outbound).served_by("outside");
    }
    assert!(!pod.state().is_empty(), "two rules are a state");
}

fn a_call_without_a_listener_is_refused(fixture: Fixture) {
    let pod = fixture.pod();
    for family in fixture.families() {
        assert_eq!(pod.app().call(at(family.service(), 81)), Outcome::Refused);
        assert_eq!(pod.outside().call(at(family.pod(), 81)), Outcome::Refused);
    }
}

fn guest_reaches_outside_through_the_pod(fixture: Fixture) {
    let pod = fixture.pod_in(Topology::Guest);
    let _servers = pod.outside_listens(&[80]);
    for family in fixture.families() {
        pod.guest().call(at(family.service(), 80)).served_by("outside").coming_from(family.guest());
    }
}

fn a_refused_packet_gets_a_reply(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.outside_listens(&[81]);
    for family in fixture.families() {
        assert!(!pod.app().gets_no_reply(at(family.service(), 82), at(family.service(), 81)));
    }
}

fn a_dropped_packet_gets_no_reply(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.outside_listens(&[80, 81]);
    for &family in fixture.families() {
        pod.iptables(family, "-t filter -A OUTPUT -p tcp --dport 80 -j DROP");
        let [dropped, marker] = [80, 81].map(|port| at(family.service(), port));
        assert!(pod.app().gets_no_reply(dropped, marker), "{dropped} is dropped");
    }
}
