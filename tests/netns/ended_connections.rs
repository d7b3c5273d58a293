//! Conntrack entries of captured connections that have ended, after capture has ended too: the direct
//! connections that then use their ports outlive the next capture.

use std::net::SocketAddr;

use crate::established::{REDIRECT, TPROXY, apply_family};
use crate::lab::fixture::at;
use crate::lab::kill::When;
use crate::lab::program::tool;
use crate::lab::socket::Binding;
use crate::lab::user::{Conversation, Ending};
use crate::lab::{Backend, Family, Fixture, Pod, User, for_each_backend_and_native};
use crate::open_connections::ECHO_LIMIT;

for_each_backend_and_native!(
    ports_of_closed_connections,
    ports_of_connections_that_the_server_reset,
    ports_of_a_family_that_lost_its_rules,
    ports_of_connections_whose_rules_were_flushed,
    ports_of_connections_that_ended_after_their_rules_were_flushed,
    ports_of_connections_that_closed_half_way,
    a_next_capture_that_is_killed,
);

/// Before the clean-up, and after it.
const CAPTURES: [(&[&str], &[&str]); 4] =
    [(&REDIRECT, &REDIRECT), (&TPROXY, &TPROXY), (&REDIRECT, &TPROXY), (&TPROXY, &REDIRECT)];
const CLEANUP: [&str; 1] = ["--cleanup-only"];

/// A user, the source and the target, and the server there.
type Call = (User, SocketAddr, SocketAddr, &'static str);

/// One outbound and one inbound call in each of these families.
fn calls(pod: &Pod, families: &[Family]) -> Vec<Call> {
    let of = |family: &Family| {
        [
            (pod.app(), at(family.pod(), 40_850), at(family.service(), 80), "outside"),
            (pod.outside(), at(family.outside(), 40_860), at(family.pod(), 8080), "app"),
        ]
    };
    families.iter().flat_map(of).collect()
}

fn open((user, source, target, _): &Call) -> Conversation {
    let binding = Binding { source: Some(*source), spoofed_mark: None };
    user.run(|| Conversation::to(*target, binding)).expect("a connection")
}

/// Connections that are captured.
fn captured(calls: &[Call]) -> Vec<Conversation> {
    let captured: Vec<_> = calls.iter().map(open).collect();
    assert!(captured.iter().all(|call| call.greeting.server == "proxy"), "{captured:?}");
    captured
}

/// Connections on the same ports that are not.
fn direct(calls: &[Call]) -> Vec<Conversation> {
    let direct: Vec<_> = calls.iter().map(open).collect();
    for (conversation, (.., server)) in direct.iter().zip(calls) {
        assert_eq!(conversation.greeting.server, *server);
    }
    direct
}

#[track_caller]
fn all_alive(direct: Vec<Conversation>) {
    for mut conversation in direct {
        let server = conversation.greeting.server.clone();
        if let Err(error) = conversation.echo_within("still there", ECHO_LIMIT) {
            panic!("the direct connection to {server} died: {error}");
        }
    }
}

fn after_a_cleanup(fixture: Fixture, ending: Ending) {
    for (before, after) in CAPTURES {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        let calls = calls(&pod, fixture.families());
        pod.apply(before);
        captured(&calls).into_iter().for_each(|call| call.end(ending));
        pod.apply(&CLEANUP);
        let direct = direct(&calls);
        pod.apply(after);
        all_alive(direct);
    }
}

fn ports_of_closed_connections(fixture: Fixture) {
    after_a_cleanup(fixture, Ending::CloseByServer);
}

fn ports_of_connections_that_the_server_reset(fixture: Fixture) {
    after_a_cleanup(fixture, Ending::ResetByServer);
}

/// A family other than the one that loses its rules keeps its own: no clean-up.
fn ports_of_a_family_that_lost_its_rules(fixture: Fixture) {
    for (before, after) in CAPTURES {
        for (stays, leaves) in [("ipv4", Family::V6), ("ipv6", Family::V4)] {
            let pod = fixture.pod();
            let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
            let calls = calls(&pod, &[leaves]);
            apply_family(&pod, before, "dual");
            captured(&calls).into_iter().for_each(|call| call.end(Ending::CloseByServer));
            apply_family(&pod, before, stays);
            let direct = direct(&calls);
            apply_family(&pod, after, "dual");
            all_alive(direct);
        }
    }
}

/// As another program would: no run of ours sees the end of capture.
fn flush(pod: &Pod) {
    pod.namespace.run(|| match pod.fixture.backend {
        Backend::Native => {
            tool("nft", &["flush", "ruleset"], "");
        }
        Backend::IptablesNft | Backend::IptablesLegacy => {
            for family in pod.fixture.families() {
                for table in ["nat", "mangle", "raw"] {
                    pod.iptables(*family, &format!("-t {table} -F"));
                    pod.iptables(*family, &format!("-t {table} -X"));
                }
            }
        }
    });
}

fn ports_of_connections_whose_rules_were_flushed(fixture: Fixture) {
    for (before, after) in CAPTURES {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        let calls = calls(&pod, fixture.families());
        pod.apply(before);
        captured(&calls).into_iter().for_each(|call| call.end(Ending::CloseByServer));
        flush(&pod);
        let direct = direct(&calls);
        pod.apply(after);
        all_alive(direct);
    }
}

/// The entries of these connections are those of open ones for days.
fn ports_of_connections_that_ended_after_their_rules_were_flushed(fixture: Fixture) {
    for (before, after) in CAPTURES {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        let calls = calls(&pod, fixture.families());
        pod.apply(before);
        let captured = captured(&calls);
        flush(&pod);
        captured.into_iter().for_each(|call| call.end(Ending::Reset));
        // As the proxy ends them by its own timeout: the reset does not reach it.
        for port in [":15001", ":15006"] {
            pod.namespace.run(|| tool("ss", &["-K", "state", "established", "sport", "=", port], ""));
        }
        let direct = direct(&calls);
        pod.apply(after);
        all_alive(direct);
    }
}

/// One side had closed when capture ended: the entry is in a state between.
fn ports_of_connections_that_closed_half_way(fixture: Fixture) {
    for (before, after) in CAPTURES {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        let calls = calls(&pod, fixture.families());
        pod.apply(before);
        let half_closed = captured(&calls);
        let half_closed: Vec<_> = half_closed.into_iter().map(Conversation::closed_by_server).collect();
        flush(&pod);
        drop(half_closed);
        pod.outside().run(|| tool("ss", &["-K", "sport", "=", ":40860"], ""));
        pod.namespace.run(|| {
            for end in [":40850", ":40860"] {
                tool("ss", &["-K", "sport", "=", end], "");
                tool("ss", &["-K", "dport", "=", end], "");
            }
        });
        let direct = direct(&calls);
        pod.apply(after);
        all_alive(direct);
    }
}

/// At each message.
fn a_next_capture_that_is_killed(fixture: Fixture) {
    for number in (1..).step_by(3) {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        let calls = calls(&pod, fixture.families());
        pod.apply(&REDIRECT);
        captured(&calls).into_iter().for_each(|call| call.end(Ending::CloseByServer));
        flush(&pod);
        let direct = direct(&calls);
        let killed = pod.istio_iptables(&REDIRECT).run_and_kill_at_send(number, When::Before);
        pod.apply(&REDIRECT);
        all_alive(direct);
        if killed.code() == 0 {
            break;
        }
    }
}
