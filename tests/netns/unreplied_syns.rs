//! Connection attempts without a reply leave an entry for two minutes, which a later attempt on the same
//! ports would follow.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::closed_connections::Caller;
use crate::established::{REDIRECT, TPROXY};
use crate::lab::program::tool;
use crate::lab::socket;
use crate::lab::user::Conversation;
use crate::lab::{Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    attempts_that_were_given_up,
    attempts_that_were_given_up_before_first_capture,
    handshakes_that_a_client_never_completes,
    handshakes_that_neither_side_completes,
    attempts_that_get_a_reply_after_the_change,
    attempts_that_get_a_reply_while_nothing_is_tracked,
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

/// As long as this is dropped, the network outside loses the replies of the application.
const LOSS_OF_REPLIES: &str = "add table inet loss
    add chain inet loss in { type filter hook prerouting priority -300; }
    add rule inet loss in tcp sport 8080 drop\n";

/// The application still waits for the client.
fn handshakes_that_a_client_never_completes(fixture: Fixture) {
    handshakes(fixture, false);
}

/// The application has been restarted since.
fn handshakes_that_neither_side_completes(fixture: Fixture) {
    handshakes(fixture, true);
}

fn handshakes(fixture: Fixture, restarted: bool) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _proxy = pod.proxy_listens();
        let mut app = Some(pod.app_listens(&[8080]));
        pod.apply(&NARROW);
        nft(&pod, LOSS_OF_REPLIES);
        let inbound: Vec<_> =
            Caller::all(&pod).into_iter().filter(|caller| caller.name.starts_with("inbound")).collect();
        let begun: Vec<_> = inbound.iter().flat_map(Caller::begin_all).collect();
        begun.iter().for_each(socket::reset);
        let entries =
            pod.namespace.run(|| tool("conntrack", &["-L", "-p", "tcp", "--state", "SYN_RECV"], ""));
        assert_eq!(entries.lines().count(), begun.len(), "{entries}");
        if restarted {
            drop(app.take());
            // The kernel's timer ends handshakes whose listener is closed.
            let pending = || pod.namespace.run(|| tool("ss", &["-Hnt", "state", "syn-recv"], ""));
            while !pending().is_empty() {
                thread::sleep(Duration::from_millis(50));
            }
            app = Some(pod.app_listens(&[8080]));
        }
        pod.apply(options);
        nft(&pod, "delete table inet loss\n");
        inbound.iter().for_each(Caller::are_captured);
        drop(app);
    }
}

/// Replies to these attempts find their entries.
fn attempts_that_get_a_reply_after_the_change(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&NARROW);
    let begun = begin(&pod);
    pod.apply(&[&REDIRECT[..], &["--drop-invalid"]].concat());
    for attempt in begun.into_iter().flat_map(|(_, attempts)| attempts) {
        speaks_to_the_server(attempt);
    }
}

/// Without a change of its entry, a connection that got a reply meanwhile is invalid.
fn attempts_that_get_a_reply_while_nothing_is_tracked(fixture: Fixture) {
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
    let conversation = Conversation::go_on(attempt).expect("a reply");
    assert_eq!(conversation.greeting.server, "outside");
    conversation
}
