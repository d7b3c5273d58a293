//! DNS queries over UDP beside foreign rules, and what `explain --live` says about them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use netlab::{Listen, User};

use crate::dns::{resolved_through_the_proxy, with_name_server};
use crate::explain_live::{Question, report};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    queries_that_a_foreign_rule_sends_to_the_name_server_get_no_response,
    queries_that_a_foreign_rule_sends_to_a_server_of_the_pod_get_no_response,
    stateful_firewall_drops_responses_of_unlisted_servers_to_the_proxy,
    foreign_accept_is_the_cause_only_where_queries_are_captured,
    a_dns_proxy_on_every_address_is_named_as_its_answers_are_lost,
    a_stub_resolver_whose_own_queries_are_captured_is_named,
);

/// A query to the service.
fn query(user: &User, family: Family) -> UdpSocket {
    query_to(user, family, at(family.service(), 53))
}

/// A query from a socket that, as a resolver's, receives from that address alone.
fn query_to(user: &User, family: Family, to: SocketAddr) -> UdpSocket {
    let any: IpAddr = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = user.run(|| UdpSocket::bind((any, 0)).expect("a socket"));
    socket.connect(to).expect("a receiver");
    socket.send(b"query").expect("a query");
    socket
}

/// Whether a query that a foreign rule sends to the name server gets a response before that server's response
/// to a later one.
fn gets_response(pod: &Pod, family: Family) -> bool {
    let socket = query(&pod.app(), family);
    pod.proxy().ask(at(family.name_server(), 53)).served_by("outside");
    socket.set_nonblocking(true).expect("a socket that does not wait");
    socket.recv(&mut [0; 64]).is_ok()
}

/// Whether the proxy's query gets a response, or the firewall drops it by the firewall, whichever happens.
fn is_accepted(pod: &Pod, family: Family) -> bool {
    let dropped = || {
        let listed = pod.namespace.run(|| tool("nft", &["list", "chain", "inet", "firewall", "in"], ""));
        let (_, counter) = listed.split_once("counter packets ").expect("a counter");
        counter
            .split(' ')
            .next()
            .and_then(|packets| packets.parse::<u64>().ok())
            .expect("a number of packets")
    };
    let before = dropped();
    let socket = query(&pod.proxy(), family);
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        if socket.recv(&mut [0; 64]).is_ok() {
            return true;
        }
        if dropped() > before {
            return false;
        }
    }
    panic!("the query got neither through nor dropped");
}

/// While DNS is captured, replies of the name server are looked for in another zone.
fn queries_that_a_foreign_rule_sends_to_the_name_server_get_no_response(fixture: Fixture) {
    for (options, is_lost) in [(&["-i", "*", "--redirect-dns"][..], true), (&["-i", "*"], false)] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
        with_name_server(&pod, options).run().succeeded();
        for &family in fixture.families() {
            let ip = if family == Family::V4 { "ip" } else { "ip6" };
            let (service, server) = (family.service(), family.name_server());
            let table = format!(
                "table {ip} agent {{ chain out {{ type nat hook output priority -110; {ip} daddr {service} udp dport 53 dnat to {server}; }}; }}"
            );
            pod.namespace.run(|| tool("nft", &["-f", "-"], &table));
            assert_eq!(gets_response(&pod, family), !is_lost, "{options:?} {family:?}");
            let question = Question { from: "app", to: at(service, 53), is_udp: true };
            let explained = report(&pod, &[], &question);
            assert_eq!(explained["verdict"], "taken-by-foreign-rule", "{explained:#}");
            let problem = explained["problem"].as_str().unwrap_or_default();
            let says = "its replies are looked for in another conntrack zone than their connection";
            assert_eq!(problem.starts_with(says), is_lost, "{options:?} {family:?}: {explained:#}");
            assert_eq!(problem.is_empty(), !is_lost, "{explained:#}");
        }
    }
}

/// So are those of a server in the pod, as that of Docker on 127.0.0.11.
fn queries_that_a_foreign_rule_sends_to_a_server_of_the_pod_get_no_response(fixture: Fixture) {
    for (options, is_lost) in [(&["-i", "*", "--redirect-dns"][..], true), (&["-i", "*"], false)] {
        let pod = fixture.pod();
        with_name_server(&pod, options).run().succeeded();
        for &family in fixture.families() {
            let (ip, local) = match family {
                Family::V4 => ("ip", IpAddr::from([127, 0, 0, 11])),
                Family::V6 => ("ip6", family.loopback()),
            };
            let (to, server) = (at(family.name_server(), 53), at(local, 43210));
            let _server = pod.app().serve("app", &[Listen::Udp(server)]);
            let table = format!(
                "table {ip} agent {{ chain out {{ type nat hook output priority -110; {ip} daddr {} udp dport 53 dnat to {server}; }}; }}",
                to.ip()
            );
            pod.namespace.run(|| tool("nft", &["-f", "-"], &table));
            let socket = query_to(&pod.app(), family, to);
            // The server responds to one query after the other.
            pod.app().ask(server).served_by("app");
            socket.set_nonblocking(true).expect("a socket that does not wait");
            assert_eq!(socket.recv(&mut [0; 64]).is_err(), is_lost, "{options:?} {family:?}");
            let explained = report(&pod, &[], &Question { from: "app", to, is_udp: true });
            assert_eq!(explained["verdict"], "taken-by-foreign-rule", "{explained:#}");
            let problem = explained["problem"].as_str().unwrap_or_default();
            let says = "its replies are looked for in another conntrack zone than their connection";
            assert_eq!(problem.starts_with(says), is_lost, "{options:?} {family:?}: {explained:#}");
            assert_eq!(problem.is_empty(), !is_lost, "{explained:#}");
        }
    }
}

/// Responses of servers that are not in `/etc/resolv.conf` are tracked in another zone than the proxy's
/// query, so their state is NEW.
fn stateful_firewall_drops_responses_of_unlisted_servers_to_the_proxy(fixture: Fixture) {
    const FIREWALL: &str = "table inet firewall {
        chain in { type filter hook input priority 0; ct state established,related accept; udp sport 53 counter drop; }
    }";
    let unlisted = ["-i", "*", "--redirect-dns"];
    let all = ["-i", "*", "--redirect-dns", "--capture-all-dns"];
    for (options, is_lost) in [(&["-i", "*"][..], false), (&unlisted, true), (&all, false)] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
        pod.namespace.run(|| tool("nft", &["-f", "-"], FIREWALL));
        with_name_server(&pod, options).run().succeeded();
        let is_right = |is_lost: bool, when: &str| {
            for &family in fixture.families() {
                assert_eq!(is_accepted(&pod, family), !is_lost, "{when} {options:?} {family:?}");
                let question = Question { from: "proxy", to: at(family.service(), 53), is_udp: true };
                let explained = report(&pod, &[], &question);
                assert_eq!(explained["verdict"], "not-captured", "{explained:#}");
                let problem = explained["problem"].as_str().unwrap_or_default();
                let says = if is_lost { "do not arrive: " } else { "" };
                let is_said = problem.contains(says) && problem.is_empty() == says.is_empty();
                assert!(is_said, "{when} {options:?}: {explained:#}");
            }
        };
        is_right(is_lost, "by its state");
        pod.namespace.run(|| {
            tool(
                "nft",
                &["insert", "rule", "inet", "firewall", "in", "udp", "sport", "53", "counter", "drop"],
                "",
            )
        });
        is_right(true, "by its port");
    }
}

/// Without DNS capture a query over UDP is not captured, whatever a foreign rule accepts before ours.
fn foreign_accept_is_the_cause_only_where_queries_are_captured(fixture: Fixture) {
    const AGENT: &str =
        "table inet agent { chain out { type filter hook output priority -200; udp dport 53 accept; }; }";
    for is_captured in [false, true] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
        let options = if is_captured { &["-i", "*", "--redirect-dns"][..] } else { &["-i", "*"] };
        with_name_server(&pod, options).run().succeeded();
        pod.namespace.run(|| tool("nft", &["-f", "-"], AGENT));
        // An ACCEPT in another chain of nat than ours has no effect on ours.
        let is_accepted = fixture.backend != Backend::Native;
        for &family in fixture.families() {
            let server = at(family.name_server(), 53);
            let range = if family == Family::V4 { "10.0.0.0/8" } else { "fd00::/16" };
            let reason = || {
                let explained = report(&pod, &[], &Question { from: "app", to: server, is_udp: true });
                (explained["verdict"].as_str().unwrap().to_owned(), explained["because"].to_string())
            };
            for rule in [&format!("-d {range}")[..], "-p udp --dport 53"] {
                pod.iptables(family, &format!("-t nat -I OUTPUT {rule} -j ACCEPT"));
                let asked = pod.app().ask(server);
                let (verdict, reason) = reason();
                if is_captured && !is_accepted {
                    resolved_through_the_proxy(&asked);
                    assert_eq!(verdict, "captured", "{rule}: {reason}");
                    continue;
                }
                asked.served_by("outside");
                assert_eq!(verdict, "not-captured", "{rule}: {reason}");
                let cause = if is_captured {
                    "a foreign rule in nat OUTPUT decides"
                } else {
                    "no DNS query over UDP is captured"
                };
                assert!(reason.contains(cause), "{rule}: {reason}");
            }
        }
    }
}

/// The answers of a socket on every address leave from the pod's own: conntrack does not know them, and the
/// app's socket takes answers of its server alone.
fn a_dns_proxy_on_every_address_is_named_as_its_answers_are_lost(fixture: Fixture) {
    let words = "the listener there is bound to every address";
    for is_on_every_address in [true, false] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens_without_dns(), pod.outside_listens(&[]));
        with_name_server(&pod, &["-i", "*", "--redirect-dns"]).run().succeeded();
        let _tcp = [Family::V4, Family::V6]
            .map(|family| pod.proxy().serve("proxy", &[Listen::TcpAt(at(family.loopback(), 15053))]));
        for &family in fixture.families() {
            let any: IpAddr = if family == Family::V4 {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            let address = if is_on_every_address { any } else { family.loopback() };
            let server = pod.proxy().run(|| UdpSocket::bind((address, 15053)).expect("a socket"));
            server.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
            let to = at(family.name_server(), 53);
            let client = query_to(&pod.app(), family, to);
            let (_, from) = server.recv_from(&mut [0; 64]).expect("the query is captured");
            server.send_to(b"answer", from).expect("an answer");
            // Between namespaces of one machine it is there at once.
            client.set_nonblocking(true).expect("a socket that does not wait");
            assert_eq!(client.recv(&mut [0; 64]).is_err(), is_on_every_address, "{family:?}");
            let explained = report(&pod, &[], &Question { from: "app", to, is_udp: true });
            let problem = explained["problem"].as_str().unwrap_or_default();
            assert_eq!(problem.starts_with(words), is_on_every_address, "{family:?}: {explained:#}");
            let of_pod = pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
            assert_eq!(of_pod.contains(words), is_on_every_address, "{of_pod}");
            // It may take the query's address for its answers: a note.
            let check = pod.bare_istio_iptables(&["check"]).run().output();
            let is_noted = check.lines().any(|line| line.starts_with("note: ") && line.contains(words));
            assert_eq!(is_noted, is_on_every_address, "{check}");
        }
    }
}

/// As systemd-resolved and dnsmasq: `/etc/resolv.conf` names the stub, which asks the real server.
fn a_stub_resolver_whose_own_queries_are_captured_is_named(fixture: Fixture) {
    const ALL: [&str; 6] = ["-i", "*", "-b", "*", "--redirect-dns", "--capture-all-dns"];
    let pod = fixture.pod();
    let family = fixture.families()[0];
    let server = at(family.name_server(), 53);
    let _outside = pod.outside_listens(&[80]);
    let mut listen = vec![Listen::Tcp(15001), Listen::TcpTransparent(15006), Listen::Tcp(15053)];
    listen.extend(fixture.families().iter().map(|family| Listen::Udp(at(family.loopback(), 15053))));
    let _proxy = pod.proxy().serve("proxy", &listen);
    let stub = |address: Ipv4Addr, uid| {
        let user = pod.user(uid, uid);
        let serving = user.serve("stub", &[Listen::UdpForward(at(address.into(), 53), server)]);
        (user, serving)
    };
    let [first, second] = [53, 54].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let file = |server: &dyn std::fmt::Display| format!("nameserver {server}\n");
    let named = |options: &[&str], resolv_conf: &str| {
        let run = |words: &[&str]| pod.istio_iptables(words).file("/etc/resolv.conf", resolv_conf).run();
        let explain = run(&["explain", "--live"]).succeeded().stdout();
        let check = run(&[&["check"], options].concat()).succeeded().stdout();
        let bare = run(&["check"]).succeeded().stdout();
        let of_explain = explain.contains("dns-loop: /etc/resolv.conf names 127.0.0.5");
        let notes = [check, bare].map(|text| text.lines().any(|line| line.starts_with("note: dns-loop: ")));
        assert_eq!(notes, [of_explain; 2], "{explain}");
        of_explain
    };
    pod.apply(&ALL);
    assert!(!named(&ALL, &file(&first)), "nothing listens there");
    let (user, _serving) = stub(first, 101);
    user.ask(server).served_by("proxy");
    assert!(named(&ALL, &file(&first)));
    assert!(!named(&ALL, &file(&server.ip())), "no program of the pod asks it");
    let (of_proxy, _serving) = stub(second, 1337);
    of_proxy.ask(server).served_by("outside");
    assert!(!named(&ALL, &file(&second)));
    // With the servers of the file only, queries to others are not captured.
    let listed = &ALL[..5];
    pod.istio_iptables(listed).file("/etc/resolv.conf", &file(&first)).run().succeeded();
    user.ask(server).served_by("outside");
    assert!(!named(listed, &file(&first)));
}
