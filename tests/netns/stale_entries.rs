//! Conntrack entries of captured connections after a clean-up: what tracks again, ours or foreign, gives them
//! to no later connection.

use std::net::SocketAddr;

use crate::lab::fixture::at;
use crate::lab::kill::When;
use crate::lab::socket::Binding;
use crate::lab::user::{Conversation, Ending};
use crate::lab::{Fixture, Pod, User, for_each_backend_and_native};

for_each_backend_and_native!(
    ports_are_free_beside_foreign_translation,
    ports_of_earlier_options_are_free_beside_foreign_translation,
    ports_are_free_after_a_killed_cleanup,
    direct_connection_on_ports_of_earlier_options_survives_the_next_capture,
    direct_connection_on_ports_that_the_proxy_marked_survives_the_next_capture,
);

const REDIRECT: [&str; 4] = ["-b", "*", "-i", "*"];
const TPROXY: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];
const OTHER_PORTS: [&str; 8] = ["-b", "*", "-i", "*", "-p", "16001", "-z", "16006"];
const CLEANUP: [&str; 1] = ["--cleanup-only"];

/// A user, the source and the target, and the server there.
type Call = (User, SocketAddr, SocketAddr, &'static str);

/// One outbound and one inbound call in each family.
fn calls(pod: &Pod) -> Vec<Call> {
    let of = |family: &crate::lab::Family| {
        [
            (pod.app(), at(family.pod(), 40_830), at(family.service(), 80), "outside"),
            (pod.outside(), at(family.outside(), 40_840), at(family.pod(), 8080), "app"),
        ]
    };
    pod.fixture.families().iter().flat_map(of).collect()
}

fn open((user, source, target, _): &Call) -> Conversation {
    let binding = Binding { source: Some(*source), spoofed_mark: None };
    user.run(|| Conversation::to(*target, binding)).expect("a connection")
}

/// Connections with each set of options in turn, which are captured, and cut off by a clean-up.
fn cut_off(pod: &Pod, options: &[&[&str]]) {
    let mut captured: Vec<Conversation> = Vec::new();
    for (number, options) in options.iter().enumerate() {
        pod.apply(options);
        if number == 0 {
            captured = calls(pod).iter().map(open).collect();
        }
    }
    assert!(captured.iter().all(|call| call.greeting.server == "proxy"));
    pod.apply(&CLEANUP);
    captured.into_iter().for_each(|conversation| conversation.end(Ending::Reset));
}

/// Another program translates something, so that connections are tracked and translated again.
fn translate(pod: &Pod) {
    for family in pod.fixture.families() {
        pod.iptables(*family, "-t nat -A POSTROUTING -o net9 -j MASQUERADE");
    }
}

#[track_caller]
fn are_direct(pod: &Pod) {
    for (user, source, target, server) in calls(pod) {
        user.call_from(source, target).served_by(server);
    }
}

fn ports_are_free_beside_foreign_translation(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        cut_off(&pod, &[options]);
        translate(&pod);
        are_direct(&pod);
    }
}

fn ports_of_earlier_options_are_free_beside_foreign_translation(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let _earlier = pod.proxy_also_listens(&[16001, 16006]);
    cut_off(&pod, &[&OTHER_PORTS, &REDIRECT]);
    translate(&pod);
    are_direct(&pod);
}

/// The proxy's sockets for the earlier connections live on: they do not hear of their end.
fn direct_connection_on_ports_of_earlier_options_survives_the_next_capture(fixture: Fixture) {
    const KEPT: [&str; 2] = ["--cleanup-only", "--keep-connections"];
    for between in [&REDIRECT[..], &TPROXY, &KEPT] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        let _earlier = pod.proxy_also_listens(&[16001, 16006]);
        cut_off(&pod, &[&OTHER_PORTS, between]);
        let direct: Vec<_> = calls(&pod).iter().map(open).collect();
        pod.apply(&REDIRECT);
        for (mut conversation, (.., server)) in direct.into_iter().zip(calls(&pod)) {
            assert_eq!(conversation.greeting.server, server, "{between:?}");
            conversation.echo("still there").expect("the connection lives on");
        }
    }
}

/// At each message; the next run is a clean-up, too.
fn ports_are_free_after_a_killed_cleanup(fixture: Fixture) {
    for number in (1..).step_by(2) {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        pod.apply(&REDIRECT);
        let captured: Vec<_> = calls(&pod).iter().map(open).collect();
        let killed = pod.istio_iptables(&CLEANUP).run_and_kill_at_send(number, When::Before);
        pod.apply(&CLEANUP);
        captured.into_iter().for_each(|conversation| conversation.end(Ending::Reset));
        translate(&pod);
        are_direct(&pod);
        if killed.code() == 0 {
            break;
        }
    }
}

/// The proxy called the application under the client's address, with a mark that its connection keeps.
fn direct_connection_on_ports_that_the_proxy_marked_survives_the_next_capture(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&TPROXY);
    let inbound: Vec<Call> = calls(&pod).into_iter().filter(|(.., server)| *server == "app").collect();
    let spoofed = |(_, source, target, _): &Call| {
        let binding = Binding { source: Some(*source), spoofed_mark: Some(1337) };
        let mut call = pod.user(0, 1337).connect_bound(*target, binding).expect("a call of the proxy");
        call.echo("the mark is saved").expect("a reply");
        call
    };
    let marked: Vec<_> = inbound.iter().map(spoofed).collect();
    pod.apply(&CLEANUP);
    marked.into_iter().for_each(|call| call.end(Ending::Reset));
    let direct: Vec<_> = inbound.iter().map(open).collect();
    pod.apply(&TPROXY);
    for mut conversation in direct {
        conversation.echo("still there").expect("the connection lives on");
    }
}
