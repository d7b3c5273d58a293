//! Foreign rules that exempt packets from connection tracking, with TPROXY.

use std::time::Duration;

use crate::foreign_preserved::{FAMILIES, insert};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    open_connections_without_tracking_end_with_tproxy_which_is_named,
    every_form_of_such_rules_is_named,
);

const TPROXY: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];
const NAMED: &str = "TPROXY captures new connections of them, and open ones end";

/// A dry run says so before.
fn are_named(pod: &Pod) {
    let [dry, verify] = ["--dry-run", "--verify"].map(|flag| [&TPROXY[..], &[flag]].concat());
    for args in [&dry[..], &TPROXY, &verify] {
        let output = pod.apply(args).output();
        assert!(output.contains(NAMED), "{args:?}: {output}");
    }
}

fn open_connections_without_tracking_end_with_tproxy_which_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080, 8081]));
    insert(&pod, "-t raw -A PREROUTING -p tcp --dport 8080 -j NOTRACK");
    insert(&pod, "-t raw -A OUTPUT -p tcp --sport 8080 -j NOTRACK");
    let open = FAMILIES.map(|family| {
        let mut open = pod.outside().connect(at(family.pod(), 8080)).expect("connect to the app");
        open.echo("before").expect("a reply");
        open
    });
    are_named(&pod);
    for (family, mut open) in FAMILIES.into_iter().zip(open) {
        let [untracked, tracked] = [8080, 8081].map(|port| at(family.pod(), port));
        pod.outside().call(untracked).captured(15006, untracked);
        pod.outside().call(tracked).captured(15006, tracked);
        let reply = open.echo_within("after", Duration::from_secs(10));
        reply.expect_err("it goes on: then the warning is untrue");
    }
}

fn every_form_of_such_rules_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    insert(&pod, "-t raw -A PREROUTING -p tcp --dport 8080 -j CT --notrack");
    are_named(&pod);
    let pod = fixture.pod();
    let chain = "chain in { type filter hook prerouting priority -301; tcp dport 8080 notrack; };";
    pod.namespace.run(|| tool("nft", &["-f", "-"], &format!("table inet agent {{ {chain} }}")));
    are_named(&pod);
    // Without TPROXY it is the other way round.
    let output = pod.apply(&["-b", "*", "-i", "*"]).output();
    assert!(output.contains("notrack: packets that it takes are not captured"), "{output}");
}
