//! A connection that the server reset leaves an entry that a later one on the same ports would follow.

use std::net::SocketAddr;

use crate::lab::fixture::at;
use crate::lab::socket::Binding;
use crate::lab::user::{Conversation, Ending};
use crate::lab::{Family, Fixture, Pod, User, for_each_backend};

for_each_backend!(
    from_tproxy_to_redirect,
    from_tracked_but_not_captured_to_redirect,
    from_tracked_but_not_captured_to_tproxy,
    from_a_list_of_ports_and_ranges_to_all,
    connections_that_the_server_resets_after_the_change,
    live_connections_keep_their_entries,
);

const REDIRECT: [&str; 4] = ["-b", "*", "-i", "*"];
const TPROXY: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];
/// Connections in each direction and family.
const CONNECTIONS: u16 = 100;

/// One who calls one target from a port range.
struct Caller {
    name: String,
    user: User,
    source: SocketAddr,
    target: SocketAddr,
}

impl Caller {
    /// Inbound and outbound, in each family.
    fn all(pod: &Pod) -> Vec<Self> {
        let both = |family: &Family| {
            let inbound = (pod.outside(), family.outside(), at(family.pod(), 8080), "inbound");
            let outbound = (pod.app(), family.pod(), at(family.service(), 80), "outbound");
            [inbound, outbound].map(|(user, source, target, name)| Self {
                name: format!("{name} {family:?}"),
                user,
                source: at(source, 20_000),
                target,
            })
        };
        pod.fixture.families().iter().flat_map(both).collect()
    }

    /// One connection from each port.
    fn open_all(&self) -> Vec<Conversation> {
        let to = |source| Conversation::to(self.target, Binding { source: Some(source), spoofed_mark: None });
        let open = || self.sources().map(|source| to(source).expect("a connection")).collect();
        self.user.run(open)
    }

    /// Calls from each port are captured.
    fn are_captured(&self) {
        let outcomes = self.sources().map(|source| self.user.call_from(source, self.target));
        let past: Vec<_> = outcomes.filter(|outcome| outcome.answer().who != "proxy").collect();
        assert!(
            past.is_empty(),
            "{}: {} of {CONNECTIONS} not captured: {:?}",
            self.name,
            past.len(),
            past[0]
        );
    }

    fn sources(&self) -> impl Iterator<Item = SocketAddr> {
        let port = self.source.port();
        (port..port + CONNECTIONS).map(|port| at(self.source.ip(), port))
    }
}

/// Connections are reset by the server; after the run, others from the same ports have to be captured.
fn through(pod: &Pod, change: &[&str]) {
    let _people = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let callers = Caller::all(pod);
    for caller in &callers {
        for source in caller.sources() {
            caller.user.call_reset_by_server(source, caller.target).answer();
        }
    }
    pod.apply(change);
    callers.iter().for_each(Caller::are_captured);
}

fn from_tproxy_to_redirect(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&TPROXY);
    through(&pod, &REDIRECT);
}

/// A foreign rule has connections tracked.
fn tracked(pod: &Pod) {
    for family in pod.fixture.families() {
        pod.iptables(*family, "-A INPUT -m conntrack --ctstate INVALID -j ACCEPT");
    }
}

fn from_tracked_but_not_captured_to_redirect(fixture: Fixture) {
    let pod = fixture.pod();
    tracked(&pod);
    through(&pod, &REDIRECT);
}

fn from_tracked_but_not_captured_to_tproxy(fixture: Fixture) {
    let pod = fixture.pod();
    tracked(&pod);
    through(&pod, &TPROXY);
}

fn from_a_list_of_ports_and_ranges_to_all(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-b", "9999", "-i", "203.0.113.0/24"]);
    through(&pod, &REDIRECT);
}

/// The entry of a connection that outlives the change is no way past the proxy for the next one on the same ports.
fn connections_that_the_server_resets_after_the_change(fixture: Fixture) {
    for (before, after) in
        [(&TPROXY[..], &REDIRECT[..]), (&["-b", "9999"], &REDIRECT), (&["-b", "9999"], &TPROXY)]
    {
        let pod = fixture.pod();
        let _people = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        pod.apply(before);
        let callers = Caller::all(&pod);
        let open: Vec<_> = callers.iter().map(Caller::open_all).collect();
        pod.apply(after);
        for (caller, open) in callers.iter().zip(open) {
            open.into_iter().for_each(|conversation| conversation.end(Ending::ResetByServer));
            caller.are_captured();
        }
    }
}

/// No entry is deleted: connections go on, whether captured before or not.
fn live_connections_keep_their_entries(fixture: Fixture) {
    let pod = fixture.pod();
    let _people = (pod.proxy_listens(), pod.app_listens(&[8080, 8081]), pod.outside_listens(&[80]));
    let list = ["-b", "8081", "-i", "*"];
    pod.apply(&list);
    let mut open = Vec::new();
    for family in pod.fixture.families() {
        for port in [8080, 8081] {
            open.push(pod.outside().connect(at(family.pod(), port)).expect("a connection"));
        }
        open.push(pod.app().connect(at(family.service(), 80)).expect("a connection"));
    }
    for set in [&REDIRECT[..], &TPROXY, &REDIRECT, &list] {
        pod.apply(set);
        for conversation in &mut open {
            conversation.echo("still there").unwrap_or_else(|e| panic!("{set:?}: {e}"));
        }
    }
}
