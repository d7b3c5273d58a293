//! Listeners of the proxy on one address or interface: what `explain --live` says, against connections.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use netlab::socket::{self, Binding};
use netlab::{Listen, User};

use crate::explain_foreign::later_packets_come_through;
use crate::explain_runtime::{start, stop};
use crate::lab::fixture::at;
use crate::lab::pod::PROXY;
use crate::lab::{Family, Fixture, Outcome, Pod, for_each_backend_and_native, verdict};

for_each_backend_and_native!(
    listeners_on_one_address_take_what_is_redirected_there,
    listeners_on_one_interface_take_what_arrives_there,
    an_app_that_listens_on_one_interface_is_named_while_it_is_captured,
    listeners_for_ipv6_only_take_no_ipv4_packet,
    tproxy_looks_for_a_listener_at_the_first_address_of_the_interface,
    proxy_has_the_user_of_its_listener,
    first_reply_has_the_user_of_a_listener_that_root_has_made,
    replies_with_tproxy_have_the_user_of_the_listener
);

const REDIRECT: [&str; 8] = ["-i", "*", "-b", "*", "-d", "7000", "-o", "9000"];
/// The kernel replies at once, whether it connects or refuses.
const LIMIT: Duration = Duration::from_secs(30);

fn second_address(family: Family) -> IpAddr {
    match family {
        Family::V4 => "10.1.0.77".parse().expect("an address"),
        Family::V6 => "fd00:1::77".parse().expect("an address"),
    }
}

fn with_second_address(fixture: Fixture, options: &[&str]) -> Pod {
    let pod = fixture.pod();
    for &family in fixture.families() {
        let length = if family == Family::V4 { "24" } else { "64 nodad" };
        pod.ip(&format!("address add {}/{length} dev eth0", second_address(family)));
    }
    pod.apply(options);
    pod
}

fn listens(user: &User, address: IpAddr, port: u16) -> TcpListener {
    user.run(|| socket::listen(at(address, port)).expect("a listener"))
}

fn first_line(pod: &Pod, from: &str, to: SocketAddr) -> String {
    let words = ["explain", "--live", "--from", from, "--to", &to.to_string()];
    let said = pod.bare_istio_iptables(&words).run().succeeded().stdout();
    verdict(&said)
}

/// Whether the kernel connects; `explain` says the same.
fn is_connected(pod: &Pod, from: &str, to: SocketAddr) -> bool {
    let user = if from == "app" { pod.app() } else { pod.outside() };
    let connected = user.run(|| socket::connect_tcp(to, Binding::default(), LIMIT));
    let refused = |error: &io::Error| error.kind() == ErrorKind::ConnectionRefused;
    assert!(connected.as_ref().err().is_none_or(refused), "{connected:?}");
    let line = first_line(pod, from, to);
    assert!(line.starts_with("captured: "), "{line}");
    assert_eq!(connected.is_err(), line.contains("the listener there takes packets for"), "{line}");
    connected.is_ok()
}

fn listeners_on_one_address_take_what_is_redirected_there(fixture: Fixture) {
    let pod = with_second_address(fixture, &REDIRECT);
    for &family in fixture.families() {
        let own = [family.pod(), second_address(family)];
        // What arrives gets the first address of the interface, whichever it is for.
        let inbound = own.map(|address| {
            let _listener = listens(&pod.proxy(), address, 15006);
            own.map(|to| is_connected(&pod, "outside", at(to, 8080)))
        });
        assert!(
            inbound == [[true, true], [false, false]] || inbound == [[false, false], [true, true]],
            "{inbound:?}"
        );
        let outbound = [family.loopback(), family.pod()].map(|address| {
            let _listener = listens(&pod.proxy(), address, 15001);
            is_connected(&pod, "app", at(family.service(), 80))
        });
        assert_eq!(outbound, [true, false]);
    }
}

fn listeners_on_one_interface_take_what_arrives_there(fixture: Fixture) {
    let pod = with_second_address(fixture, &REDIRECT);
    for &family in fixture.families() {
        let any = if family == Family::V4 { "0.0.0.0" } else { "::" };
        let any: IpAddr = any.parse().expect("an address");
        // In IPv6 the reply of a listener on lo has no route to an address of another interface.
        let connected = ["eth0", "lo"].map(|interface| {
            let listeners = [15001, 15006].map(|port| listens(&pod.proxy(), any, port));
            for listener in &listeners {
                socket::bind_to_interface(listener, interface);
            }
            let has_reply = (family, interface) != (Family::V6, "lo");
            let outbound = !has_reply || is_connected(&pod, "app", at(family.service(), 80));
            (outbound, is_connected(&pod, "outside", at(family.pod(), 8080)))
        });
        assert_eq!(connected, [(false, true), (true, false)]);
    }
}

/// The proxy hands captured connections to the app over lo, from an address of lo: replies by another
/// interface do not reach it.
fn an_app_that_listens_on_one_interface_is_named_while_it_is_captured(fixture: Fixture) {
    let words = "the listener on TCP port 8080 is bound to eth0";
    for (mode, excluded) in [("REDIRECT", "7000"), ("TPROXY", "7000"), ("REDIRECT", "7000,8080")] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[7000]));
        pod.apply(&["-i", "*", "-b", "*", "-d", excluded, "-m", mode]);
        let any = ["0.0.0.0", "::"].map(|any| any.parse().expect("an address"));
        let listeners = any.map(|any| listens(&pod.app(), any, 8080));
        listeners.iter().for_each(|listener| socket::bind_to_interface(listener, "eth0"));
        let is_captured = !excluded.contains("8080");
        for &family in fixture.families() {
            let (app, other) = (at(family.pod(), 8080), at(family.pod(), 7000));
            let proxy = at(family.passthrough(), 0);
            let to_app = Binding { source: Some(proxy), ..Binding::default() };
            let attempt = pod.proxy().run(|| socket::start_connect(app, to_app)).expect("it begins");
            pod.proxy().call_from(proxy, other).served_by("app");
            assert!(!socket::is_ready(&attempt), "{mode} {family:?}");
            let direct = pod.outside().run(|| socket::connect_tcp(app, Binding::default(), LIMIT));
            assert!(direct.is_ok(), "by the proxy, or the app itself: {direct:?}");
            let packet = ["explain", "--live", "--from", "outside", "--to", &app.to_string()];
            let report = pod.bare_istio_iptables(&packet).run().succeeded().stdout();
            assert_eq!(report.contains(words), is_captured, "{mode} {excluded}: {report}");
        }
        let said = pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
        assert_eq!(verdict(&said).contains(words), is_captured, "{mode} {excluded}: {said}");
        let check = ["check", "-i", "*", "-b", "*", "-d", excluded, "-m", mode];
        let check = pod.istio_iptables(&check).run().succeeded().stdout();
        let is_note = |line: &str| line.starts_with("note: app-listener: ") && line.contains(words);
        assert_eq!(check.lines().any(is_note), is_captured, "{mode} {excluded}: {check}");
    }
}

/// The listeners of the lab on `::` are for IPv6 only.
fn listeners_for_ipv6_only_take_no_ipv4_packet(fixture: Fixture) {
    let pod = with_second_address(fixture, &REDIRECT);
    let any: IpAddr = "::".parse().expect("an address");
    let _listeners = [15001, 15006].map(|port| listens(&pod.proxy(), any, port));
    let overview = pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
    for &family in fixture.families() {
        let is_served = family == Family::V6;
        for (from, to) in [("app", at(family.service(), 80)), ("outside", at(family.pod(), 8080))] {
            let user = if from == "app" { pod.app() } else { pod.outside() };
            let connected = user.run(|| socket::connect_tcp(to, Binding::default(), LIMIT));
            assert_eq!(connected.is_ok(), is_served, "{from}, {family:?}: {connected:?}");
            let line = first_line(&pod, from, to);
            assert!(line.starts_with("captured: "), "{line}");
            assert_eq!(line.contains("nothing listens there"), !is_served, "{from}, {family:?}: {line}");
        }
    }
    let first = verdict(&overview);
    assert!(
        first.contains("outbound port 15001 (IPv4), inbound port 15006 (IPv4): nothing listens there"),
        "{first}"
    );
}

fn tproxy_looks_for_a_listener_at_the_first_address_of_the_interface(fixture: Fixture) {
    let pod = with_second_address(fixture, &[&REDIRECT[..], &["-m", "TPROXY"]].concat());
    let _servers = (pod.app_listens(&[7000]), pod.outside_listens(&[9000]));
    let root = pod.user(0, 1337);
    for &family in fixture.families() {
        let to = at(family.pod(), 8080);
        let taken = [family.pod(), second_address(family)].map(|address| {
            let listener = listens(&root, address, 15006);
            root.run(|| socket::allow_transparent(&listener));
            let attempt = pod.outside().run(|| socket::start_connect(to, Binding::default()));
            let attempt = attempt.expect("a connection begins");
            later_packets_come_through(&pod, family);
            let line = first_line(&pod, "outside", to);
            let is_taken = attempt.peer_addr().is_ok();
            assert_eq!(is_taken, !line.contains("the listener there takes packets for"), "{line}");
            is_taken
        });
        assert_ne!(taken[0], taken[1]);
    }
}

fn replies_with_tproxy_have_the_user_of_the_listener(fixture: Fixture) {
    let pod = with_second_address(fixture, &[&REDIRECT[..], &["-m", "TPROXY"]].concat());
    let _servers = (pod.app_listens(&[7000]), pod.outside_listens(&[9000]));
    let root = pod.user(0, 1337);
    for &family in fixture.families() {
        let any = if family == Family::V4 { "0.0.0.0" } else { "::" };
        let listener = listens(&pod.proxy(), any.parse().expect("an address"), 15006);
        root.run(|| socket::allow_transparent(&listener));
        let to = at(family.pod(), 8080);
        for (uid, arrives) in [(0, true), (1337, false)] {
            let rule = format!("OUTPUT -o eth0 -p tcp --sport 8080 -m owner --uid-owner {uid} -j DROP");
            pod.iptables(family, &format!("-t filter -A {rule}"));
            let attempt = pod.outside().run(|| socket::start_connect(to, Binding::default()));
            let attempt = attempt.expect("a connection begins");
            later_packets_come_through(&pod, family);
            assert_eq!(attempt.peer_addr().is_ok(), arrives, "{rule}");
            let line = first_line(&pod, "outside", to);
            assert_eq!(!line.contains("replies do not arrive"), arrives, "{rule}: {line}");
            pod.iptables(family, &format!("-t filter -D {rule}"));
        }
    }
}

/// As docs/tproxy.md wants it for TPROXY: the proxy is root, in the group that is not captured.
fn proxy_has_the_user_of_its_listener(fixture: Fixture) {
    for mode in ["TPROXY", "REDIRECT"] {
        let pod = fixture.pod();
        let proxy = pod.user(0, PROXY);
        let _servers = (
            proxy.serve("proxy", &[Listen::Tcp(15001), Listen::TcpTransparent(15006)]),
            pod.outside_listens(&[80]),
        );
        pod.apply(&["-i", "*", "-b", "*", "-m", mode]);
        for &family in fixture.families() {
            let to = at(family.service(), 80);
            for (uid, is_refused) in [(0, true), (PROXY, false)] {
                let rule = format!("OUTPUT -p tcp --dport 80 -m owner --uid-owner {uid} -j REJECT");
                pod.iptables(family, &format!("-t filter -A {rule}"));
                let outcome = proxy.call(to);
                assert_eq!(matches!(outcome, Outcome::Refused), is_refused, "{mode}, {rule}: {outcome:?}");
                let line = first_line(&pod, "proxy", to);
                assert_eq!(line.contains(" REJECT"), is_refused, "{mode}, {rule}: {line}");
                let table = pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
                let line = verdict(&table);
                let is_named = line.contains("proxy to ") && line.contains(" REJECT");
                assert_eq!(is_named, is_refused, "{mode}, {rule}: {line}");
                pod.iptables(family, &format!("-t filter -D {rule}"));
            }
        }
    }
}

/// Until the connection is accepted, the kernel replies with the listening socket, whatever user the proxy
/// has become.
fn first_reply_has_the_user_of_a_listener_that_root_has_made(fixture: Fixture) {
    const AS_PROXY: &str = "setpriv --reuid=1337 --regid=1337 --clear-groups cat";
    let pod = with_second_address(fixture, &REDIRECT);
    let _servers = (pod.app_listens(&[7000]), pod.outside_listens(&[9000]));
    let root = pod.user(0, PROXY);
    for &family in fixture.families() {
        let any = if family == Family::V4 { "0.0.0.0" } else { "::" };
        let listener = listens(&root, any.parse().expect("an address"), 15001);
        let proxy = start(&pod, AS_PROXY, Some(&listener));
        while !fs::read_to_string(format!("/proc/{}/status", proxy.id()))
            .expect("its status")
            .contains("Uid:\t1337")
        {
            std::thread::yield_now();
        }
        let to = at(family.service(), 80);
        for (uid, arrives) in [(0, false), (PROXY, true)] {
            let rule = format!(
                "OUTPUT -o lo -p tcp --sport 15001 --tcp-flags SYN,ACK SYN,ACK -m owner --uid-owner {uid} -j DROP"
            );
            pod.iptables(family, &format!("-t filter -A {rule}"));
            let attempt = pod.app().run(|| socket::start_connect(to, Binding::default()));
            let attempt = attempt.expect("a connection begins");
            later_packets_come_through(&pod, family);
            assert_eq!(attempt.peer_addr().is_ok(), arrives, "{rule}");
            let line = first_line(&pod, "app", to);
            assert_eq!(!line.contains("replies do not arrive"), arrives, "{rule}: {line}");
            pod.iptables(family, &format!("-t filter -D {rule}"));
        }
        stop(proxy);
    }
}
