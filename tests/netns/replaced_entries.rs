//! Open connections that have no conntrack entry for a moment, as while a run replaces the entry by one in
//! the right direction.

use crate::established::{REDIRECT, TPROXY, captures};
use crate::lab::program::{tool, try_tool};
use crate::lab::{Fixture, Pod, for_each_backend_and_native};
use crate::open_connections::OpenConnections;

for_each_backend_and_native!(connections_without_an_entry_survive_until_the_last_change_of_entries);

/// At each message of a first capture until its last change of entries, each entry is deleted, and each
/// connection sends data.
fn connections_without_an_entry_survive_until_the_last_change_of_entries(fixture: Fixture) {
    for options in [&[&REDIRECT[..], &["--drop-invalid"]].concat(), &TPROXY[..]] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        // What tracks before leaves a note from the first message on.
        for family in fixture.families() {
            pod.iptables(*family, "-A INPUT -m conntrack --ctstate INVALID -j ACCEPT");
        }
        let held = OpenConnections::open(&pod, fixture.families(), 1, "app", "outside");
        let mut deleted = 0;
        let capture = pod.istio_iptables(options);
        let ended = capture.run_and_act_at_sends(|number| {
            if changes_entries(&pod) {
                delete_entries(&pod);
                held.all_alive_after(&format!("{options:?}, before message {number}"));
                deleted += 1;
            }
        });
        ended.succeeded();
        assert!(deleted > 3, "{options:?}: entries are deleted {deleted} times only");
        held.all_alive();
        captures(&pod, fixture.families());
    }
}

/// Whether the run has left its note that entries have to be changed.
fn changes_entries(pod: &Pod) -> bool {
    pod.namespace.run(|| tool("conntrack", &["-L", "-p", "udp"], "")).contains("zone=65535")
}

fn delete_entries(pod: &Pod) {
    for family in ["ipv4", "ipv6"] {
        // It fails if there are none.
        let _ = pod.namespace.run(|| try_tool("conntrack", &["-D", "-p", "tcp", "-f", family], ""));
    }
}
