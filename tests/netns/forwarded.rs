//! Connections that the pod forwards, as for containers or virtual machines inside it.

use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Family, Fixture, Topology, for_each_backend_and_native};

for_each_backend_and_native!(
    translated_connections_of_a_guest_survive_first_capture,
    connections_to_a_published_port_survive_first_capture,
    cleanup_counts_captured_connections_of_a_guest,
    connections_to_other_hosts_that_tproxy_takes_are_counted,
);

/// Another program translates the guest's addresses, so that its connections are tracked before ours are.
fn translated_connections_of_a_guest_survive_first_capture(fixture: Fixture) {
    let pod = fixture.pod_in(Topology::Guest);
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    for &family in fixture.families() {
        foreign_nat(&pod, family, &["POSTROUTING", "-o", "eth0", "-j", "MASQUERADE"]);
    }
    let open = |user: &crate::lab::User| -> Vec<_> {
        let targets = fixture.families().iter().map(|family| at(family.service(), 80));
        targets.map(|target| user.connect(target).expect("connect")).collect()
    };
    let (mut forwarded, mut own) = (open(&pod.guest()), open(&pod.app()));
    for (conversation, family) in forwarded.iter().zip(fixture.families()) {
        assert_eq!(conversation.greeting.source.ip(), family.pod(), "not translated");
    }
    pod.apply(&["-b", "*", "-i", "*"]);
    for conversation in forwarded.iter_mut().chain(&mut own) {
        conversation.echo("still there").expect("the connection survives");
    }
}

/// Another program sends connections for a port of the pod to the guest, as `docker run --publish` does.
fn connections_to_a_published_port_survive_first_capture(fixture: Fixture) {
    let pod = fixture.pod_in(Topology::Guest);
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    let _guest = pod.guest().serve("guest", &[crate::lab::server::Listen::Tcp(8080)]);
    let mut held = Vec::new();
    for &family in fixture.families() {
        let to = at(family.guest(), 8080).to_string();
        let dnat = ["PREROUTING", "-p", "tcp", "--dport", "7070", "-j", "DNAT", "--to-destination", &to];
        foreign_nat(&pod, family, &dnat);
        held.push(pod.outside().connect(at(family.pod(), 7070)).expect("connect"));
        held.push(pod.app().connect(at(family.service(), 80)).expect("connect"));
    }
    assert_eq!(held[0].greeting.server, "guest");
    pod.apply(&["-b", "*", "-i", "*"]);
    for conversation in &mut held {
        conversation.echo("still there").expect("the connection survives");
    }
}

/// A connection of a guest is captured as an inbound one: REDIRECT sends it to the address of the bridge.
fn cleanup_counts_captured_connections_of_a_guest(fixture: Fixture) {
    // With TPROXY the lab's guest reaches no proxy.
    for (mode, words) in [("REDIRECT", "4 proxied IPFAMILY connections are reset")] {
        let pod = fixture.pod_in(Topology::Guest);
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
        pod.apply(&["-b", "*", "-i", "*", "-m", mode]);
        let mut held = Vec::new();
        for &family in fixture.families() {
            for user in [pod.guest(), pod.guest(), pod.guest(), pod.app()] {
                held.push(user.connect(at(family.service(), 80)).expect("connect"));
            }
        }
        assert!(held.iter().all(|conversation| conversation.greeting.server == "proxy"));
        let ended = pod.apply(&["cleanup"]);
        for family in ["IPv4", "IPv6"] {
            let expected = words.replace("IPFAMILY", family);
            assert!(ended.output().contains(&expected), "{expected}: {}", ended.output());
        }
        for mut conversation in held {
            assert!(conversation.echo("after clean-up").is_err(), "{mode}: it was announced");
        }
    }
}

/// TPROXY hands the proxy what the pod was to forward. Without its rules those packets go on to a host that
/// knows no such connection.
fn connections_to_other_hosts_that_tproxy_takes_are_counted(fixture: Fixture) {
    let everything = ["-b", "*", "-i", "*"];
    for leave in [
        &[&everything[..], &["--dry-run"]].concat()[..],
        &["cleanup", "--dry-run"],
        &["cleanup"],
        &everything,
    ] {
        // What was cut off never ends in its pod.
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
        pod.apply(&[&everything[..], &["-m", "TPROXY"]].concat());
        let mut open = Vec::new();
        for &family in fixture.families() {
            for target in [family.routed_to_pod(), family.routed_to_pod(), family.pod()] {
                let target = at(target, 8080);
                let conversation = pod.outside().connect(target).expect("connect");
                let greeting = &conversation.greeting;
                assert_eq!((greeting.server.as_str(), greeting.original), ("proxy", target));
                open.push(conversation);
            }
        }
        let output = pod.apply(leave).output();
        for family in ["IPv4", "IPv6"] {
            let expected = format!("2 {family} connections through the pod are reset");
            assert_eq!(output.matches(&expected).count(), 1, "{leave:?}: {expected}: {output}");
        }
    }
}

fn foreign_nat(pod: &crate::lab::Pod, family: Family, rule: &[&str]) {
    let program = match family {
        Family::V4 => "iptables-nft",
        Family::V6 => "ip6tables-nft",
    };
    pod.namespace.run(|| tool(program, &[&["-t", "nat", "-A"], rule].concat(), ""));
}
