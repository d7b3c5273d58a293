//! The init container as it really runs: few capabilities, nothing to write to.

use crate::lab::fixture::at;
use crate::lab::program::Program;
use crate::lab::{Backend, Fixture, Pod, for_each_backend_and_native};

const EVERYTHING: [&str; 4] = ["-b", "*", "-i", "*"];
const TPROXY: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];

for_each_backend_and_native!(
    few_capabilities_are_enough,
    a_read_only_file_system_is_enough,
    a_change_and_a_cleanup_need_no_more,
    without_capabilities_the_missing_one_is_named,
);

/// What the backend needs: the legacy tools open a raw socket.
fn needed(fixture: Fixture) -> &'static str {
    match fixture.backend {
        Backend::IptablesNft | Backend::Native => "+net_admin",
        Backend::IptablesLegacy => "+net_admin,+net_raw",
    }
}

fn captures(pod: &Pod) {
    for family in pod.fixture.families() {
        let inbound = at(family.pod(), 8080);
        pod.outside().call(inbound).captured(15006, inbound);
        let outbound = at(family.service(), 80);
        pod.app().call(outbound).captured(15001, outbound);
    }
}

fn few_capabilities_are_enough(fixture: Fixture) {
    for args in [&EVERYTHING[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = pod.proxy_listens();
        pod.istio_iptables(args).with_only(needed(fixture)).run().succeeded();
        captures(&pod);
    }
}

fn a_read_only_file_system_is_enough(fixture: Fixture) {
    for args in [&EVERYTHING[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = pod.proxy_listens();
        confined(&pod, args).run().succeeded();
        captures(&pod);
    }
}

fn a_change_and_a_cleanup_need_no_more(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.proxy_listens();
    for args in [&EVERYTHING[..], &TPROXY, &TPROXY, &EVERYTHING] {
        confined(&pod, args).run().succeeded();
        captures(&pod);
    }
    confined(&pod, &["--cleanup-only"]).run().succeeded();
    assert!(pod.state().is_empty(), "{:?}", pod.state());
}

fn without_capabilities_the_missing_one_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    pod.istio_iptables(&EVERYTHING).with_only("+chown").run().ended_with(77).output_contains("NET_ADMIN");
    assert!(pod.state().is_empty(), "{:?}", pod.state());
}

fn confined(pod: &Pod, args: &[&str]) -> Program {
    pod.istio_iptables(args).with_only(needed(pod.fixture)).on_read_only_files()
}
