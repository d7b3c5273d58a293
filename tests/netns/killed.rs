//! A run may be killed anywhere; the next one puts everything right.

use std::time::Duration;

use crate::lab::{Fixture, for_each_backend};

for_each_backend!(
    killed_first_run_is_completed_by_next_run,
    killed_change_is_completed_by_next_run,
    killed_cleanup_is_completed_by_next_run,
);

const TPROXY: [&str; 10] =
    ["-b", "*", "-i", "*", "-m", "TPROXY", "-c", "eth1", "--redirect-dns", "--capture-all-dns"];
const LISTS: [&str; 8] = ["-b", "80,8080", "-i", "10.0.0.0/8,fd00::/8", "-o", "25", "-k", "br0"];

/// Moments at which a run is killed: close together, from before the first write until after the last.
fn moments() -> impl Iterator<Item = Duration> {
    (0..40).map(|step| Duration::from_micros(step * step * 25))
}

fn killed_first_run_is_completed_by_next_run(fixture: Fixture) {
    let fresh = fixture.pod();
    fresh.apply(&TPROXY);
    for moment in moments() {
        let pod = fixture.pod();
        pod.istio_iptables(&TPROXY).run_and_kill_after(moment);
        pod.apply(&TPROXY);
        assert_eq!(pod.state(), fresh.state(), "killed after {moment:?}");
    }
}

fn killed_change_is_completed_by_next_run(fixture: Fixture) {
    for (old, new) in [(TPROXY.as_slice(), LISTS.as_slice()), (&LISTS, &TPROXY)] {
        let fresh = fixture.pod();
        fresh.apply(new);
        for moment in moments() {
            let pod = fixture.pod();
            pod.apply(old);
            pod.istio_iptables(new).run_and_kill_after(moment);
            pod.apply(new);
            assert_eq!(pod.state(), fresh.state(), "killed after {moment:?}");
        }
    }
}

fn killed_cleanup_is_completed_by_next_run(fixture: Fixture) {
    for moment in moments() {
        let pod = fixture.pod();
        pod.apply(&TPROXY);
        pod.istio_iptables(&["--cleanup-only"]).run_and_kill_after(moment);
        pod.apply(&["--cleanup-only"]);
        assert!(pod.state().is_empty(), "killed after {moment:?}: {:?}", pod.state());
    }
}
