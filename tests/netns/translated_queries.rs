//! Name servers whose queries another program's rules send elsewhere, beside DNS capture.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::foreign_preserved::EVERYTHING;
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::rules::everything;
use crate::lab::{Backend, Family, Fixture, Pod, User, for_each_backend_and_native};

for_each_backend_and_native!(
    beside_dockers_name_server_dns_capture_is_refused,
    a_translated_name_server_is_refused_if_that_is_certain,
    a_translated_name_server_outside_is_refused_with_all_dns,
    a_name_server_outside_that_is_translated_beside_live_capture_is_named,
    servers_that_no_rule_excludes_are_named,
    destinations_of_a_map_are_named_as_possible,
);

/// What dockerd puts into a container.
const DOCKER: &str = include_str!("other_programs/docker_dns.rules");
const RESOLVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 11);
/// The port of the rules above.
const RESOLVER_PORT: u16 = 41563;
const WOULD_GET_NONE: &str = "would get no response while DNS is captured";

fn with(options: &[&'static str]) -> Vec<&'static str> {
    [&EVERYTHING[..], options].concat()
}

/// Whether a query of the app to the server gets a response of `responder`.
fn gets_response(pod: &Pod, responder: &UdpSocket, server: SocketAddr) -> bool {
    pod.app().run(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        socket.connect(server).unwrap();
        socket.send(b"query").unwrap();
        let mut query = [0; 16];
        let Ok((length, client)) = responder.recv_from(&mut query) else { return false };
        responder.send_to(&query[..length], client).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        socket.recv(&mut query).is_ok()
    })
}

fn beside_dockers_name_server_dns_capture_is_refused(fixture: Fixture) {
    let pod = fixture.pod();
    let rules = DOCKER.replace("\n-4 ", "\n");
    // Docker's rules are iptables' own, beside any backend.
    let restore = if fixture.backend == Backend::IptablesLegacy {
        "iptables-legacy-restore"
    } else {
        "iptables-nft-restore"
    };
    pod.namespace.run(|| tool(restore, &["--noflush"], &rules));
    let responder = pod.namespace.run(|| UdpSocket::bind((RESOLVER, RESOLVER_PORT)).unwrap());
    responder.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let server = SocketAddr::new(RESOLVER.into(), 53);
    assert!(gets_response(&pod, &responder, server), "before any run");
    let run = |options: &[&'static str]| {
        let resolv_conf = format!("nameserver {RESOLVER}\n");
        pod.istio_iptables(&with(options)).file("/etc/resolv.conf", &resolv_conf).run()
    };
    for options in [&["--redirect-dns"][..], &["--redirect-dns", "--capture-all-dns"]] {
        for dry in [&[][..], &["--dry-run"]] {
            let output = run(&[options, dry].concat()).ended_with(70).output();
            let named = format!("DNS queries over UDP to {RESOLVER} {WOULD_GET_NONE}");
            assert!(output.contains(&named) && output.contains("DOCKER_OUTPUT"), "{options:?}: {output}");
            assert!(gets_response(&pod, &responder, server), "{options:?}: nothing is written");
        }
    }
    run(&[]).succeeded();
    assert!(gets_response(&pod, &responder, server), "without DNS capture");
    // Capture stays as it is, and DNS with it.
    run(&["--redirect-dns"]).ended_with(70);
    assert!(gets_response(&pod, &responder, server), "beside live capture");
}

/// A rule that may be for other queries only is warned of.
fn a_translated_name_server_is_refused_if_that_is_certain(fixture: Fixture) {
    let pod = fixture.pod();
    let servers: Vec<IpAddr> = fixture.families().iter().map(|family| family.name_server()).collect();
    let resolv_conf: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    let rule = |command: &str, tests: &str, target: &str| {
        for family in fixture.families() {
            let (server, other) = (family.name_server(), at(family.service(), 53));
            let target = target.replace("OTHER", &other.to_string());
            pod.iptables(*family, &format!("-t nat {command} OUTPUT -d {server} -p udp {tests} -j {target}"));
        }
    };
    let run = |command: &[&'static str]| {
        let args = [command, &with(&["--redirect-dns"])].concat();
        pod.istio_iptables(&args).file("/etc/resolv.conf", &resolv_conf).run()
    };
    for tests in ["--dport 53", "-m multiport --dports 53,5353", ""] {
        rule("-A", tests, "DNAT --to-destination OTHER");
        let output = run(&[]).ended_with(70).output();
        assert!(output.contains(WOULD_GET_NONE), "{tests}: {output}");
        rule("-D", tests, "DNAT --to-destination OTHER");
    }
    for (tests, target) in [
        ("--dport 5353", "DNAT --to-destination OTHER"),
        ("--dport 53 -m owner --uid-owner 4242", "DNAT --to-destination OTHER"),
        ("--dport 53 -m statistic --mode nth --every 2 --packet 0", "DNAT --to-destination OTHER"),
        ("--dport 53", "RETURN"),
    ] {
        rule("-A", tests, target);
        let output = run(&[]).succeeded().output();
        assert!(!output.contains(WOULD_GET_NONE), "{tests}: {output}");
        rule("-D", tests, target);
    }
    // A service with two endpoints, as kube-proxy has it: either translates.
    for family in fixture.families() {
        let (server, other) = (family.name_server(), at(family.service(), 53));
        let endpoint = format!("-p udp -j DNAT --to-destination {other}");
        pod.restore(
            *family,
            &format!(
                "*nat\n:SVC -\n:EP1 -\n:EP2 -\n-A OUTPUT -d {server} -p udp --dport 53 -j SVC\n\
                 -A SVC -m statistic --mode random --probability 0.5 -j EP1\n-A SVC -j EP2\n-A EP1 {endpoint}\n-A EP2 {endpoint}\nCOMMIT\n"
            ),
        );
    }
    let output = run(&[]).ended_with(70).output();
    assert!(output.contains(WOULD_GET_NONE), "{output}");
    rule("-D", "--dport 53", "SVC");
    // Capture is live, then the rule comes: `check` names it.
    rule("-A", "--dport 53", "DNAT --to-destination OTHER");
    let output = run(&["check"]).ended_with(1).output();
    assert!(output.contains(WOULD_GET_NONE), "{output}");
    // Another run with the same options would change nothing, and is not one that ends well.
    let again = run(&[]).ended_with(70).output();
    assert!(again.contains(WOULD_GET_NONE) && !again.contains("nothing written"), "{again}");
}

/// Foreign rules that translate queries to the fixture's name server, or to any: to this port of a server
/// outside, or, without one, to a port of the pod.
fn translate(pod: &Pod, command: &str, to: Option<u16>, is_named: bool) {
    for &family in pod.fixture.families() {
        let server = if is_named { format!("-d {} ", family.name_server()) } else { String::new() };
        let target = to.map_or_else(
            || "REDIRECT --to-ports 5353".to_owned(),
            |port| format!("DNAT --to-destination {}", at(family.service(), port)),
        );
        pod.iptables(family, &format!("-t nat {command} OUTPUT {server}-p udp --dport 53 -j {target}"));
    }
}

/// Whether all queries to the fixture's name server get a response: those of the proxy, and those of the app.
fn get_response(pod: &Pod) -> (bool, bool) {
    let gets = |user: &User, family: Family| {
        let to = at(family.name_server(), 53);
        let got = user.run(|| {
            let socket = UdpSocket::bind(at(family.unspecified(), 0)).unwrap();
            socket.connect(to).unwrap();
            socket.send(b"query").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            socket.recv(&mut [0; 512])
        });
        got.is_ok()
    };
    let of = |user: &User| pod.fixture.families().iter().all(|family| gets(user, *family));
    (of(&pod.proxy()), of(&pod.app()))
}

const ALL_DNS: [&str; 2] = ["--redirect-dns", "--capture-all-dns"];

/// Responses from port 53 have the zone of the proxy's queries then, whatever their address; the app gets
/// none if the rule is before ours.
fn a_translated_name_server_outside_is_refused_with_all_dns(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    let is_native = fixture.backend == Backend::Native;
    for (to, is_named, is_refused) in [
        (Some(5353), true, true),
        (Some(53), true, !is_native),
        (Some(5353), false, true),
        (None, false, true),
    ] {
        translate(&pod, "-A", to, is_named);
        let code = if is_refused { 70 } else { 0 };
        for command in [&["--dry-run"][..], &[]] {
            let run = pod.istio_iptables(&[command, &with(&ALL_DNS)].concat()).run();
            let output = run.ended_with(code).output();
            assert_eq!(output.contains(WOULD_GET_NONE), is_refused, "{to:?}: {output}");
        }
        if is_refused {
            assert!(!everything(&pod).contains("ISTIO_OUTPUT"), "nothing is written: {}", everything(&pod));
        } else {
            assert_eq!(get_response(&pod), (true, true), "ours are in a newer chain");
            pod.istio_iptables(&["cleanup"]).run().succeeded();
        }
        translate(&pod, "-D", to, is_named);
    }
}

fn a_name_server_outside_that_is_translated_beside_live_capture_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    let is_native = fixture.backend == Backend::Native;
    // Ours are in a newer chain than these.
    ["-A", "-D"].iter().for_each(|command| translate(&pod, command, Some(53), true));
    pod.apply(&with(&ALL_DNS));
    assert_eq!(get_response(&pod), (true, true));
    for (command, to, expected) in [
        ("-A", 53, (true, true)),
        ("-I", 53, (true, is_native)),
        ("-A", 5353, (false, false)),
        ("-I", 5353, (false, false)),
    ] {
        translate(&pod, command, Some(to), true);
        assert_eq!(get_response(&pod), expected, "{command} {to}");
        let is_certain = expected != (true, true);
        // Which of two chains of one priority is first is not known.
        let code = i32::from(is_certain || is_native);
        let check = pod.istio_iptables(&[&["check"], &with(&ALL_DNS)[..]].concat()).run();
        let output = check.ended_with(code).output();
        assert_eq!(output.contains(WOULD_GET_NONE), is_certain, "{command} {to}: {output}");
        pod.istio_iptables(&with(&ALL_DNS)).run().ended_with(if is_certain { 70 } else { 0 });
        translate(&pod, "-D", Some(to), true);
    }
}

/// A chain of another program behind ours, which translates queries.
fn nft_chain(pod: &Pod, rule: &dyn Fn(Family) -> String) {
    let rules: String = pod.fixture.families().iter().map(|family| rule(*family) + "\n").collect();
    let chain = format!("chain out {{ type nat hook output priority -90;\n{rules}}}");
    let table = format!("table inet others\ndelete table inet others\ntable inet others {{\n{chain}\n}}\n");
    pod.namespace.run(|| tool("nft", &["-f", "-"], &table));
}

const fn family_word(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

const MAY_GET_NONE: &str = "may get no response while DNS is captured";

/// All servers but those of a range: the fixture's name server is one of them.
fn servers_that_no_rule_excludes_are_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    let outside_of = |range: &dyn Fn(Family) -> &'static str, port| {
        nft_chain(&pod, &|family| {
            let word = family_word(family);
            let to = at(family.service(), port);
            format!("{word} daddr != {} udp dport 53 dnat {word} to {to}", range(family))
        });
    };
    let other = |family| match family {
        Family::V4 => "198.51.100.0/24",
        Family::V6 => "2001:db8:77::/64",
    };
    let of_server = |family| match family {
        Family::V4 => "10.96.0.0/16",
        Family::V6 => "fd00:96::/64",
    };
    // Responses from port 53 of any server are known by it.
    for (range, port, expected, is_named) in [
        (&other as &dyn Fn(_) -> _, 5353, false, true),
        (&of_server, 5353, true, true),
        (&other, 53, true, false),
    ] {
        outside_of(range, port);
        let output = pod.istio_iptables(&with(&ALL_DNS)).run().succeeded().output();
        assert_eq!(get_response(&pod).0, expected, "{port}: {output}");
        assert_eq!(output.contains(MAY_GET_NONE), is_named, "{port}: {output}");
        let check = pod.istio_iptables(&[&["check"], &with(&ALL_DNS)[..]].concat()).run().output();
        assert_eq!(check.contains(MAY_GET_NONE), is_named, "{port}: {check}");
        pod.istio_iptables(&["cleanup"]).run().succeeded();
    }
}

fn destinations_of_a_map_are_named_as_possible(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    let servers =
        pod.fixture.families().iter().map(|family| format!("nameserver {}\n", family.name_server()));
    let resolv_conf: String = servers.collect();
    nft_chain(&pod, &|family| {
        let word = family_word(family);
        let (server, other) = (family.name_server(), family.service());
        format!("udp dport 53 dnat {word} to {word} daddr map {{ {server} : {other} }}")
    });
    let run = |command: &[&'static str], options: &[&'static str]| {
        pod.istio_iptables(&[command, &with(options)].concat()).file("/etc/resolv.conf", &resolv_conf).run()
    };
    // Responses from port 53 of any server are known by it.
    let output = run(&[], &ALL_DNS).succeeded().output();
    assert_eq!(get_response(&pod), (true, true), "{output}");
    assert!(!output.contains(MAY_GET_NONE), "{output}");
    let output = run(&[], &["--redirect-dns"]).succeeded().output();
    assert!(!get_response(&pod).0, "{output}");
    assert!(output.contains(MAY_GET_NONE), "{output}");
    let check = run(&["check"], &["--redirect-dns"]).output();
    assert!(check.contains(MAY_GET_NONE), "{check}");
}
