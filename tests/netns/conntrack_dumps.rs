//! How often a run walks the connection tracking table: a walk costs as much as the table of the whole node
//! is large.

use crate::established::{REDIRECT, TPROXY};
use crate::lab::{Backend, Fixture, Pod, for_each_backend_and_native};
use crate::open_connections::OpenConnections;

for_each_backend_and_native!(
    one_walk_serves_both_families_and_every_purpose,
    runs_without_connections_walk_nothing
);

/// How often a run walks the table that finds these options in a pod with others, and connections in both
/// families.
fn walks(pod: &Pod, args: &[&str]) -> usize {
    let debug = [args, &["--log_output_level", "default:debug"]].concat();
    pod.apply(&debug).output().matches("conntrack table walked").count()
}

fn one_walk_serves_both_families_and_every_purpose(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let direct = OpenConnections::open(&pod, fixture.families(), 2, "app", "outside");
    // Entries are made, flagged and cleared of ended connections; those are flagged that begin until the last
    // commit.
    assert_eq!(walks(&pod, &REDIRECT), 2, "first capture");
    direct.all_alive();
    let proxied = OpenConnections::open(&pod, fixture.families(), 2, "proxy", "proxy");
    assert_eq!(walks(&pod, &REDIRECT), 0, "converged");
    // The mark is cleared and the flag set in one walk.
    assert_eq!(walks(&pod, &[&TPROXY[..], &["--redirect-dns"]].concat()), 1, "another mode, with DNS");
    proxied.all_alive();
    // Connections with the mark are counted before; with iptables-legacy again when its lock is held.
    let looks = if fixture.backend == Backend::IptablesLegacy { 2 } else { 1 };
    assert_eq!(walks(&pod, &REDIRECT), looks + 1, "back");
    proxied.all_alive();
    // Flagged when capture has ended, counted when none can begin any more, deleted when the rules are gone.
    assert_eq!(walks(&pod, &["--cleanup-only"]), 3, "clean-up");
    proxied.all_lost();
    direct.all_alive();
}

fn runs_without_connections_walk_nothing(fixture: Fixture) {
    let pod = fixture.pod();
    for options in [&REDIRECT[..], &REDIRECT, &TPROXY, &["--cleanup-only"]] {
        assert_eq!(walks(&pod, options), 0, "{options:?}");
    }
}
