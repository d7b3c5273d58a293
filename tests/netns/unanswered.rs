//! Connection attempts without an answer leave an entry for two minutes, which a later attempt on the same ports would follow.

use std::net::TcpStream;

use crate::closed_connections::Caller;
use crate::established::{REDIRECT, TPROXY};
use crate::lab::program::tool;
use crate::lab::socket;
use crate::lab::user::Conversation;
use crate::lab::{Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    attempts_that_were_given_up,
    attempts_that_were_given_up_before_first_capture,
    attempts_that_are_answered_after_the_change,
    attempts_that_are_answered_while_nothing_is_tracked,
);

/// As long as this is dropped, the network outside loses what comes in.
const LOSS: &str = "add table inet loss
    add chain inet loss in { type filter hook prerouting priority -300; }
    add rule inet loss in tcp dport 80 drop\n";

fn nft(pod: &Pod, commands: &str) {
    pod.outside().namespace().run(|| tool("nft", &["-f", "-"], commands));
}

/// Attempts from the application, that are tracked and not captured.
fn begin(pod: &Pod) -> Vec<(Caller, Vec<TcpStream>)> {
    nft(pod, LOSS);
    let outbound = Caller::all(pod).into_iter().filter(|caller| caller.name.starts_with("outbound"));
    let begun = outbound
        .map(|caller| {
            let attempts = caller.begin_all();
            (caller, attempts)
        })
        .collect();
    nft(pod, "delete table inet loss\n");
    begun
}

const NARROW: [&str; 4] = ["-b", "9999", "-i", "203.0.113.0/24"];

fn attempts_that_were_given_up(fixture: Fixture) {
    give_up_after(fixture, |pod| {
        pod.apply(&NARROW);
    });
}

/// A foreign rule has them tracked.
fn attempts_that_were_given_up_before_first_capture(fixture: Fixture) {
    give_up_after(fixture, |pod| {
        for family in pod.fixture.families() {
            pod.iptables(*family, "-A INPUT -m conntrack --ctstate INVALID -j ACCEPT");
        }
    });
}

fn give_up_after(fixture: Fixture, track: impl Fn(&Pod)) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
        track(&pod);
        let begun = begin(&pod);
        begun.iter().flat_map(|(_, attempts)| attempts).for_each(socket::reset);
        pod.apply(options);
        begun.iter().for_each(|(caller, _)| caller.are_captured());
    }
}

/// Their answers find their entries.
fn attempts_that_are_answered_after_the_change(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&NARROW);
    let begun = begin(&pod);
    pod.apply(&[&REDIRECT[..], &["--drop-invalid"]].concat());
    for attempt in begun.into_iter().flat_map(|(_, attempts)| attempts) {
        speaks_to_the_server(attempt);
    }
}

/// Without a change of its entry, a connection that was answered meanwhile is invalid.
fn attempts_that_are_answered_while_nothing_is_tracked(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&NARROW);
    let begun = begin(&pod);
    pod.apply(&["--cleanup-only"]);
    let attempts = begun.into_iter().flat_map(|(_, attempts)| attempts);
    let mut open: Vec<_> = attempts.map(speaks_to_the_server).collect();
    pod.apply(&[&REDIRECT[..], &["--drop-invalid"]].concat());
    for conversation in &mut open {
        conversation.echo("still there").expect("an open connection");
    }
    let entries = pod.namespace.run(|| tool("conntrack", &["-L", "-p", "tcp", "--dport", "80"], ""));
    assert!(!entries.contains("SYN_SENT") && !entries.contains("TIME_WAIT"), "{entries}");
}

fn speaks_to_the_server(attempt: TcpStream) -> Conversation {
    let conversation = Conversation::go_on(attempt).expect("an answer");
    assert_eq!(conversation.greeting.server, "outside");
    conversation
}
