//! Owner groups: whose calls are captured.

use crate::lab::fixture::at;
use crate::lab::program::Program;
use crate::lab::{Fixture, Outcome, Pod, for_each_fixture_and_native};

const GROUPS: &str = "root:x:0:\njava:x:5001:\nmonitoring:x:5002:\n";

for_each_fixture_and_native!(
    excluded_groups_are_not_captured_by_name_and_number,
    only_listed_groups_are_captured_by_name_and_number,
    a_group_that_does_not_exist_is_refused,
);

fn excluded_groups_are_not_captured_by_name_and_number(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    with_groups(&pod).env("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "monitoring,202").run().succeeded();
    calls(&pod, &[(1000, true), (5001, true), (5002, false), (202, false), (1337, false)]);
}

fn only_listed_groups_are_captured_by_name_and_number(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    with_groups(&pod).env("ISTIO_OUTBOUND_OWNER_GROUPS", "java,202").run().succeeded();
    calls(&pod, &[(1000, false), (5001, true), (5002, false), (202, true), (0, false), (1337, false)]);
}

fn a_group_that_does_not_exist_is_refused(fixture: Fixture) {
    let pod = fixture.pod();
    let run = with_groups(&pod).env("ISTIO_OUTBOUND_OWNER_GROUPS", "jaba").run();
    run.ended_with(64).output_contains("jaba");
    assert!(pod.state().is_empty(), "a refused run leaves nothing behind: {:?}", pod.state());
}

fn with_groups(pod: &Pod) -> Program {
    pod.istio_iptables(&["-b", "*", "-i", "*"]).file("/etc/group", GROUPS)
}

/// Each group's call must be captured, or not.
fn calls(pod: &Pod, expected: &[(u32, bool)]) {
    for family in pod.fixture.families() {
        let target = at(family.service(), 80);
        let seen: Vec<_> = expected
            .iter()
            .map(|&(gid, _)| match pod.user(1000, gid).call(target) {
                Outcome::Responded(response) => (gid, response.port == 15001),
                other @ (Outcome::Refused | Outcome::TimedOut | Outcome::Failed(_)) => {
                    panic!("gid {gid}: {other:?}")
                }
            })
            .collect();
        assert_eq!(seen, expected, "(gid, captured), {family:?}");
    }
}
