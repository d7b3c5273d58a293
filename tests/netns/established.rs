//! Connections that are open while a pod enters the mesh, changes its options, or leaves the mesh.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};

use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;

use crate::lab::fixture::at;
use crate::lab::program::{Ended, tool};
use crate::lab::server::Listen;
use crate::lab::user::Conversation;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend_and_native};
use crate::open_connections::{ECHO_LIMIT, OpenConnections, during_all};

for_each_backend_and_native!(
    first_capture_keeps_1000_connections,
    first_capture_with_tproxy_keeps_1000_connections,
    first_capture_of_a_second_family_keeps_its_connections,
    first_capture_that_is_killed_is_completed_by_the_next_run,
    ipv4_connections_of_ipv6_sockets_survive_first_capture,
    half_closed_connections_survive_first_capture,
    connections_of_which_only_acknowledgements_were_seen_survive_first_capture,
    connections_of_a_deferred_accept_survive_first_capture,
    connections_that_other_rules_track_survive_first_capture,
    without_sockets_each_family_is_written_once,
    option_changes_reset_no_connection,
);
nix::setsockopt_impl!(DeferAccept, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, i32, sockopt::SetStruct<i32>);

pub(crate) const REDIRECT: [&str; 4] = ["-b", "*", "-i", "*"];
pub(crate) const TPROXY: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];
fn first_capture_keeps_1000_connections(fixture: Fixture) {
    first_capture(fixture, &REDIRECT, 125);
}

fn first_capture_with_tproxy_keeps_1000_connections(fixture: Fixture) {
    first_capture(fixture, &TPROXY, 125);
}

/// As many connections in each family and direction, idle and busy.
fn first_capture(fixture: Fixture, options: &[&str], each: usize) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let held = OpenConnections::open(&pod, fixture.families(), each, "app", "outside");
    let ended = held.during(|| pod.apply(options));
    let output = ended.output();
    assert!(!output.contains("ISTIO_ESTABLISHED"), "{output}");
    captures(&pod, fixture.families());
    held.all_alive();
    let fresh = fixture.pod();
    fresh.apply(options);
    assert_eq!(pod.state(), fresh.state(), "what a fresh pod has, and nothing else");
}

fn first_capture_of_a_second_family_keeps_its_connections(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        apply_family(&pod, options, "ipv4");
        let captured = OpenConnections::open(&pod, &[Family::V4], 10, "proxy", "proxy");
        let direct = OpenConnections::open(&pod, &[Family::V6], 10, "app", "outside");
        direct.during(|| captured.during(|| apply_family(&pod, options, "dual")));
        captures(&pod, &[Family::V4, Family::V6]);
        captured.all_alive();
        direct.all_alive();
    }
}

fn first_capture_that_is_killed_is_completed_by_the_next_run(fixture: Fixture) {
    let kept = |pod: &Pod| OpenConnections::open(pod, fixture.families(), 3, "app", "outside");
    let listening = |pod: &Pod| (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    for options in [&REDIRECT[..], &TPROXY] {
        let fresh = fixture.pod();
        fresh.apply(options);
        let whole = fixture.pod();
        let (_servers, _held) = (listening(&whole), kept(&whole));
        for (number, when) in whole.istio_iptables(options).points() {
            let pod = fixture.pod();
            let _servers = listening(&pod);
            let held = kept(&pod);
            held.during(|| {
                pod.istio_iptables(options).run_and_kill_at_send(number, when).ended_with(-1);
                pod.apply(options);
            });
            assert_eq!(pod.state(), fresh.state(), "{options:?}, killed {when:?} message {number}");
            held.all_alive();
        }
    }
}

/// Servers often listen on `::` for both families; the addresses of their IPv4 connections are mapped ones.
fn ipv4_connections_of_ipv6_sockets_survive_first_capture(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _proxy = pod.proxy_listens();
        // Sockets from now on: `::` takes IPv4 connections too.
        pod.namespace.run(|| std::fs::write("/proc/sys/net/ipv6/bindv6only", "0").unwrap());
        let _app = pod.app().serve("app", &[Listen::TcpAt("[::]:8080".parse().unwrap())]);
        let target = at(Family::V4.pod(), 8080);
        let mut open: Vec<Conversation> =
            (0..20).map(|_| pod.outside().connect(target).expect("a call")).collect();
        apply_family(&pod, options, "ipv4");
        for conversation in &mut open {
            conversation.echo_within("still there", ECHO_LIMIT).expect("an open connection");
        }
        pod.outside().call(target).captured(15006, target);
    }
}

/// The client has ended its direction and still reads.
fn half_closed_connections_survive_first_capture(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
        for &family in fixture.families() {
            let target = at(family.pod(), 8080);
            let listener = pod.app().run(|| TcpListener::bind(target).unwrap());
            let mut caller = pod.outside().run(|| TcpStream::connect(target).unwrap());
            let (mut server, _) = listener.accept().unwrap();
            caller.shutdown(Shutdown::Write).unwrap();
            assert_eq!(server.read(&mut [0]).unwrap(), 0, "the end of what the caller says");
            pod.apply(options);
            server.write_all(b"late").unwrap();
            drop(server);
            let mut reply = String::new();
            caller.set_read_timeout(Some(ECHO_LIMIT)).unwrap();
            caller.read_to_string(&mut reply).expect("the reply to a half-closed connection");
            assert_eq!(reply, "late", "{family:?} {options:?}");
            pod.apply(&["--cleanup-only"]);
        }
    }
}

/// A client acknowledged what the application had sent before connection tracking began: an entry without a
/// reply, whose next packet would be that of a new connection.
fn connections_of_which_only_acknowledgements_were_seen_survive_first_capture(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _proxy = pod.proxy_listens();
        for &family in fixture.families() {
            let target = at(family.pod(), 8080);
            let listener = pod.app().run(|| TcpListener::bind(target).unwrap());
            let caller = pod.outside().run(|| TcpStream::connect(target).unwrap());
            let (server, _) = listener.accept().unwrap();
            let source = caller.local_addr().unwrap();
            let ends =
                format!("-s {} -d {} --sport {} --dport 8080", source.ip(), target.ip(), source.port());
            let state = "-I -p tcp --state ESTABLISHED --timeout 300";
            let words: Vec<_> = state.split(' ').chain(ends.split(' ')).collect();
            let made = || (tool("conntrack", &words, ""), tool("conntrack", &["-L", "-p", "tcp"], ""));
            let (_, entries) = pod.namespace.run(made);
            assert!(entries.contains("[UNREPLIED]"), "{entries}");
            pod.apply(options);
            let mut ends = [server, caller];
            for _ in 0..ends.len() {
                let [to, from] = &mut ends;
                from.write_all(b"later").unwrap();
                to.set_read_timeout(Some(ECHO_LIMIT)).unwrap();
                let mut received = [0; 5];
                to.read_exact(&mut received).expect("data of an open connection");
                assert_eq!(&received, b"later", "{family:?} {options:?}");
                ends.reverse();
            }
            pod.apply(&["--cleanup-only"]);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct DeferAccept;

/// A listener with `TCP_DEFER_ACCEPT`, as web servers have it: the client is connected, and the socket is
/// made with the first data.
fn connections_of_a_deferred_accept_survive_first_capture(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY, &[&TPROXY[..], &["--drop-invalid"]].concat()] {
        let pod = fixture.pod();
        let _proxy = pod.proxy_listens();
        for &family in fixture.families() {
            let target = at(family.pod(), 8080);
            let listener = pod.app().run(|| TcpListener::bind(target).unwrap());
            // In seconds: longer than this test.
            setsockopt(&listener, DeferAccept, &300).unwrap();
            let limit = TimeVal::new(ECHO_LIMIT.as_secs().cast_signed(), 0);
            setsockopt(&listener, sockopt::ReceiveTimeout, &limit).unwrap();
            let mut caller = pod.outside().run(|| TcpStream::connect(target).unwrap());
            pod.apply(options);
            caller.write_all(b"first").unwrap();
            let (mut server, _) = listener.accept().expect("a connection of the application");
            server.write_all(b"reply").unwrap();
            caller.set_read_timeout(Some(ECHO_LIMIT)).unwrap();
            let mut received = [0; 5];
            caller.read_exact(&mut received).expect("the application's reply");
            assert_eq!(&received, b"reply", "{family:?} {options:?}");
            captures(&pod, &[family]);
            pod.apply(&["--cleanup-only"]);
        }
    }
}

/// A foreign rule has switched connection tracking on before; idle connections that it has not seen have no
/// entry.
fn connections_that_other_rules_track_survive_first_capture(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        let unseen = OpenConnections::open(&pod, fixture.families(), 5, "app", "outside");
        let tracking = "-t filter -A INPUT -m conntrack --ctstate INVALID -j DROP";
        let foreign = "-t nat -A OUTPUT -p tcp ! --syn -j ACCEPT";
        for &family in fixture.families() {
            pod.iptables(family, tracking);
            pod.iptables(family, foreign);
        }
        let seen = OpenConnections::open(&pod, fixture.families(), 5, "app", "outside");
        seen.during(|| pod.apply(options));
        unseen.all_alive();
        seen.all_alive();
        captures(&pod, fixture.families());
        for &family in fixture.families() {
            let saved = pod.save(family);
            assert!(
                saved.contains("-A OUTPUT -p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j ACCEPT"),
                "{saved}"
            );
        }
        pod.apply(&["--cleanup-only"]);
        for &family in fixture.families() {
            let saved = pod.save(family);
            assert!(saved.contains("! --tcp-flags FIN,SYN,RST,ACK SYN -j ACCEPT"), "{saved}");
        }
    }
}

fn without_sockets_each_family_is_written_once(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let output = pod.apply(options).output();
        let written = output.matches("Writing following contents to rules file").count();
        let replaced = output.matches("nftables: replace the tables").count();
        let expected = match fixture.backend {
            Backend::Native => (0, 1),
            Backend::IptablesNft | Backend::IptablesLegacy => (fixture.families().len(), 0),
        };
        assert_eq!((written, replaced), expected, "{output}");
        assert!(!output.contains("-A ISTIO_REDIRECT -p tcp -j RETURN"), "{output}");
    }
}

/// Connections of every age live through every change: of the mode, of the families, of ports and of owners.
fn option_changes_reset_no_connection(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let mut held = vec![OpenConnections::open(&pod, fixture.families(), 10, "app", "outside")];
    let changes: [(&[&str], &str); 12] = [
        (&REDIRECT, "ipv4"),
        (&REDIRECT, "dual"),
        (&TPROXY, "dual"),
        (&REDIRECT, "ipv4"),
        (&TPROXY, "dual"),
        (&TPROXY, "ipv6"),
        (&REDIRECT, "dual"),
        (&["-b", "8080", "-i", "*", "--redirect-dns", "--capture-all-dns", "--drop-invalid"], "dual"),
        (&["-b", "8080", "-q", "80", "-m", "TPROXY"], "dual"),
        (&["-b", "9090", "-i", "10.0.0.0/8"], "ipv4"),
        (&TPROXY, "ipv4"),
        (&REDIRECT, "dual"),
    ];
    for (options, families) in changes {
        during_all(&held, &|| {
            apply_family(&pod, options, families);
        });
        for held in &held {
            held.all_alive_after(&format!("{options:?} {families}"));
        }
        held.push(OpenConnections::open_anywhere(&pod, fixture.families(), 5));
    }
}

/// Applies options for these families only.
pub(crate) fn apply_family(pod: &Pod, options: &[&str], families: &str) -> Ended {
    pod.bare_istio_iptables(&[options, &["--ip-family", families]].concat()).run().succeeded()
}

/// Whether connections of both directions are captured in these families.
#[track_caller]
pub(crate) fn captures(pod: &Pod, families: &[Family]) {
    for &family in families {
        let (inbound, outbound) = (at(family.pod(), 8080), at(family.service(), 80));
        pod.outside().call(inbound).captured(15006, inbound);
        pod.app().call(outbound).captured(15001, outbound);
    }
}
