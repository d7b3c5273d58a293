//! Sockets of the proxy by which captured connections end: what `explain --live`, `check` and the validation
//! say of them.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use netlab::socket::{self, Binding, original_destination};
use netlab::{Listen, User};

use crate::lab::fixture::at;
use crate::lab::pod::PROXY;
use crate::lab::program::tool;
use crate::lab::{Family, Fixture, Pod, for_each_backend_and_native, for_each_fixture_and_native, verdict};

for_each_fixture_and_native!(
    tproxy_as_another_user_than_root,
    mptcp_listener_loses_destinations,
    mptcp_listener_of_tproxy_keeps_destinations
);
for_each_backend_and_native!(
    validation_names_a_listener_of_mptcp,
    name_server_without_tcp_is_named_as_such,
    proxy_that_accepts_no_connection_is_named,
    further_mptcp_subflows_of_the_proxy_are_captured_and_explained,
);

const TPROXY: [&str; 6] = ["-i", "*", "-b", "*", "-m", "TPROXY"];
const REDIRECT: [&str; 4] = ["-i", "*", "-b", "*"];

fn any(family: Family) -> IpAddr {
    if family == Family::V4 { "0.0.0.0" } else { "::" }.parse().expect("an address")
}

/// The first line of `explain --live`, and whether `check` finds the rules equal and nothing else, with its
/// report.
fn reports(pod: &Pod, options: &[&str]) -> (String, Option<String>) {
    let explain = pod.istio_iptables(&[&["explain", "--live"], options].concat()).run().succeeded().stdout();
    let check = pod.istio_iptables(&[&["check"], options].concat()).run();
    let is_equal = check.code() == 0;
    (verdict(&explain), (!is_equal).then(|| check.stdout()))
}

/// A transparent listener in each family, of this user: the privilege is that of the one who sets the option.
fn transparent(pod: &Pod, user: &User) -> Vec<TcpListener> {
    let listen = |family: &Family| {
        let listener = user.run(|| socket::listen(at(any(*family), 15006)).expect("a listener"));
        socket::allow_transparent(&listener);
        listener
    };
    pod.fixture.families().iter().map(listen).collect()
}

fn tproxy_as_another_user_than_root(fixture: Fixture) {
    let pod = fixture.pod();
    let _outbound = pod.proxy().serve("proxy", &[Listen::Tcp(15001)]);
    pod.apply(&TPROXY);
    for (uid, is_captured) in [(0, false), (PROXY, true)] {
        let _inbound = transparent(&pod, &pod.user(uid, PROXY));
        let (line, differs) = reports(&pod, &TPROXY);
        let named = "the proxy's connection to the app is captured again and never reaches it: the proxy listens as uid 1337";
        assert_eq!(line.contains(named), is_captured, "{uid}: {line}");
        assert_eq!(line.contains("must run as uid 0 and gid 1337"), is_captured, "{uid}: {line}");
        let is_named = differs.as_ref().is_some_and(|text| text.contains(named));
        assert_eq!((differs.is_some(), is_named), (is_captured, is_captured), "{uid}: {differs:?}");
        for family in pod.fixture.families() {
            let own = at(family.pod(), 8080).to_string();
            // A call of the proxy to the pod's own service is one to its address.
            for from in ["outside", "proxy"] {
                let packet = ["explain", "--live", "--from", from, "--to", &own];
                let said = pod.bare_istio_iptables(&packet).run().succeeded().stdout();
                let is_named = verdict(&said).contains("the proxy's connection to the app is captured again");
                assert_eq!(is_named, is_captured, "{uid}, {from}: {said}");
                let is_mended =
                    said.contains("`runAsUser: 0` and `runAsGroup: 1337` for the proxy's container");
                assert_eq!(is_mended, is_captured, "{uid}, {from}: {said}");
            }
        }
    }
}

/// By the address of the connection: TPROXY translates none.
fn mptcp_listener_of_tproxy_keeps_destinations(fixture: Fixture) {
    let pod = fixture.pod();
    let root = pod.user(0, PROXY);
    let _outbound = root.serve("proxy", &[Listen::Tcp(15001)]);
    pod.apply(&TPROXY);
    let listen = |family: &Family| {
        let listener = root.run(|| socket::listen_mptcp(at(any(*family), 15006)).expect("a listener"));
        socket::allow_transparent(&listener);
        listener
    };
    let listeners: Vec<TcpListener> = fixture.families().iter().map(listen).collect();
    for (family, listener) in fixture.families().iter().zip(&listeners) {
        let to = at(family.pod(), 8080);
        let _client = pod.outside().run(|| socket::connect_mptcp(to).expect("a connection"));
        let (accepted, _) = listener.accept().expect("a connection");
        assert_eq!(accepted.local_addr().expect("an address"), to);
        let (line, differs) = reports(&pod, &TPROXY);
        assert!(!line.contains("MPTCP"), "{line}");
        assert_eq!(differs, None);
        let check = pod.istio_iptables(&[&["check"][..], &TPROXY].concat()).run().stdout();
        assert!(!check.contains("MPTCP") && !check.contains("multipathtcp"), "{check}");
        let packet = ["explain", "--live", "--from", "outside", "--to", &to.to_string()];
        let said = pod.bare_istio_iptables(&packet).run().succeeded().stdout();
        assert!(said.starts_with("captured: ") && !said.contains("MPTCP"), "{said}");
    }
}

/// The kernel makes further subflows of a connection without its owner.
fn further_mptcp_subflows_of_the_proxy_are_captured_and_explained(fixture: Fixture) {
    const NOTE: &str = "of an MPTCP connection, only the first subflow has an owner";
    const SECOND: &str = "10.1.0.77";
    let pod = fixture.pod();
    pod.ip(&format!("address add {SECOND}/24 dev eth0"));
    let mptcp = |words: &str| {
        let words: Vec<&str> = ["mptcp"].into_iter().chain(words.split(' ')).collect();
        tool("ip", &words, "");
    };
    pod.namespace.run(|| {
        mptcp("limits set subflow 2");
        mptcp(&format!("endpoint add {SECOND} subflow"));
    });
    pod.outside().run(|| mptcp("limits set subflow 2 add_addr_accepted 2"));
    pod.apply(&REDIRECT);
    let to = at(Family::V4.service(), 80);
    let server = pod.outside().run(|| socket::listen_mptcp(to).expect("a listener"));
    // The listener there makes no connection of it: the kernel resets what is no subflow any more.
    let seen = format!(
        "add table ip seen\nadd chain ip seen input {{ type filter hook input priority 0; }}\n\
         add rule ip seen input ip saddr {SECOND} tcp dport 15001 tcp flags syn counter"
    );
    pod.namespace.run(|| tool("nft", &["-f", "-"], &seen));
    let is_captured = || {
        let listed = pod.namespace.run(|| tool("nft", &["list", "chain", "ip", "seen", "input"], ""));
        assert!(listed.contains("counter packets"), "{listed}");
        !listed.contains("counter packets 0 ")
    };
    let mut client = pod.proxy().run(|| socket::connect_mptcp(to).expect("a connection"));
    let (mut accepted, _) = server.accept().expect("the first subflow is not captured");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_captured() {
        assert!(Instant::now() < deadline, "the kernel makes a second subflow");
        client.write_all(b"x").expect("a byte");
        accepted.read_exact(&mut [0]).expect("a byte");
        accepted.write_all(b"x").expect("a byte");
        client.read_exact(&mut [0]).expect("a byte");
    }
    let destination = to.to_string();
    for (from, is_named) in [("uid:1337", true), ("gid:1337", true), ("app", false), ("uid:1000", false)] {
        for live in [&["--live"][..], &[]] {
            let question = [&["explain"], live, &["--from", from, "--to", &destination]].concat();
            let options: &[&str] = if live.is_empty() { &REDIRECT } else { &[] };
            let said = pod.bare_istio_iptables(&[&question, options].concat()).run().succeeded().stdout();
            assert_eq!(said.contains(NOTE), is_named, "{from}: {said}");
        }
    }
}

fn mptcp_listener_loses_destinations(fixture: Fixture) {
    let pod = fixture.pod();
    let _inbound = pod.proxy().serve("proxy", &[Listen::Tcp(15006)]);
    pod.apply(&REDIRECT);
    for &family in fixture.families() {
        let address = at(any(family), 15001);
        for is_mptcp in [true, false] {
            let listen = if is_mptcp { socket::listen_mptcp } else { socket::listen };
            let listener = pod.proxy().run(|| listen(address).expect("a listener"));
            let to = at(family.service(), 80);
            let _client = pod.app().run(|| socket::connect_mptcp(to).expect("a connection"));
            let (accepted, _) = listener.accept().expect("a connection");
            // Without the destination, the address of the socket stands in for it.
            assert_eq!(original_destination(&accepted).expect("an address") == to, !is_mptcp);
            let (line, differs) = reports(&pod, &REDIRECT);
            assert_eq!(line.contains("takes MPTCP"), is_mptcp, "{line}");
            // TCP clients keep their destination: a note, as about a port without a listener.
            assert_eq!(differs, None);
            let check = pod.istio_iptables(&[&["check"][..], &REDIRECT].concat()).run().stdout();
            let notes = check.lines().filter(|line| line.starts_with("note: "));
            let is_named = notes.filter(|note| note.contains("GODEBUG=multipathtcp=0")).count() > 0;
            assert_eq!(is_named, is_mptcp, "{check}");
        }
    }
}

/// As a proxy that hangs, or is stopped.
fn proxy_that_accepts_no_connection_is_named(fixture: Fixture) {
    const FULL: &str = "outbound port 15001 (IPv4): the listener's queue is full";
    let pod = fixture.pod();
    let _inbound = pod.proxy().serve("proxy", &[Listen::Tcp(15006)]);
    let listen = |family| pod.proxy().run(|| socket::listen(at(any(family), 15001)).expect("a listener"));
    let [listener, _v6] = [Family::V4, Family::V6].map(listen);
    socket::shorten_queue(&listener);
    pod.apply(&REDIRECT);
    let to = at(Family::V4.service(), 80);
    let connect = || pod.app().run(|| socket::start_connect(to, Binding::default()).expect("an attempt"));
    let waiting = [connect(), connect()];
    let explain = |question: &[&str]| {
        let arguments = [&["explain", "--live", "--color", "never"], question].concat();
        pod.bare_istio_iptables(&arguments).run().stdout()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !waiting.iter().all(socket::is_ready) {
        assert!(Instant::now() < deadline, "the kernel accepts as many as the queue holds");
        thread::sleep(Duration::from_millis(1));
    }
    let line = verdict(&explain(&[]));
    assert!(line.contains(FULL), "{line}");
    assert!(!socket::is_ready(&connect()), "another one gets no reply");
    let one = explain(&["--to", &to.to_string()]);
    assert!(one.contains("the listener's queue is full"), "{one}");
    for _ in &waiting {
        listener.accept().expect("a connection");
    }
    let line = verdict(&explain(&[]));
    assert!(!line.contains("queue"), "{line}");
}

fn validation_names_a_listener_of_mptcp(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&REDIRECT);
    let validation = [&REDIRECT[..], &["--run-validation", "--skip-rule-apply"]].concat();
    let _listener = pod.proxy().run(|| socket::listen_mptcp(at(any(Family::V4), 15001)).expect("a listener"));
    pod.istio_iptables(&validation)
        .run()
        .ended_with(126)
        .output_contains("cannot listen on port 15001")
        .output_contains("port 15001: the listener there takes mptcp");
}

/// As Envoy's DNS filter, which answers over UDP.
fn name_server_without_tcp_is_named_as_such(fixture: Fixture) {
    let pod = fixture.pod();
    let options = [&REDIRECT[..], &["--redirect-dns", "--capture-all-dns"]].concat();
    pod.apply(&options);
    let mut listen = vec![Listen::Tcp(15001), Listen::Tcp(15006)];
    let (line, _) = reports(&pod, &options);
    assert!(line.contains("DNS port 15053: nothing listens there"), "{line}");
    listen.extend(fixture.families().iter().map(|family| Listen::Udp(at(family.loopback(), 15053))));
    let _proxy = pod.proxy().serve("proxy", &listen);
    let (line, _) = reports(&pod, &options);
    assert!(line.contains("DNS port 15053 (TCP): nothing listens there"), "{line}");
}
