//! Connections that the pod forwards for containers and virtual machines are captured as inbound ones unless
//! an option excludes their interface: each such interface is named, and no other.

use std::fs;

use crate::lab::fixture::at;
use crate::lab::{
    Family, Fixture, Outcome, Pod, Topology, for_each_backend_and_native, for_each_fixture_and_native,
};

for_each_fixture_and_native!(
    an_interface_is_named_while_its_connections_are_captured_as_inbound,
    tproxy_takes_forwarded_connections_or_their_replies,
    a_container_behind_a_pair_of_interfaces_is_named,
);
for_each_backend_and_native!(
    interfaces_without_others_behind_them_are_not_named,
    interfaces_are_named_as_options_take_them,
);

const EVERYTHING: [&str; 4] = ["-b", "*", "-i", "*"];

/// What a call of the container comes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Inbound,
    Outbound,
    Excluded,
    /// The replies of the call get lost.
    Silent,
}

/// The reports of a run, a check, `explain --live` of the pod and of the container's packets name the
/// interface for just these families.
#[track_caller]
fn reports_name(pod: &Pod, options: &[&str], interface: &str, port: u16, families: &[Family]) {
    let run = pod.apply(options).output();
    let check = pod.istio_iptables(&[&["check"], options].concat()).run();
    assert_eq!(check.code(), i32::from(!families.is_empty()), "{options:?}: {}", check.output());
    let of_pod = pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
    for family in [Family::V4, Family::V6] {
        let is_named = families.contains(&family);
        let is_tproxy = options.contains(&"TPROXY");
        let words = |line: &&str| {
            let is_of_guests = line.contains(&format!(
                "connections of the guests behind {interface} reach the proxy's inbound port with the pod's own port 15001 as their destination"
            ));
            let is_of_others = line.contains(&format!(
                "connections of containers or virtual machines behind {interface} to other hosts"
            ));
            assert!(!is_of_guests || is_tproxy && options.contains(&"-k"), "{options:?}: {line}");
            (is_of_guests || is_of_others) && line.contains(&format!("(IP{family:?}").replace("IPV", "IPv"))
        };
        for text in [&run, &check.output(), &of_pod] {
            assert_eq!(
                text.lines().filter(words).count(),
                usize::from(is_named),
                "{options:?} {family:?}: {text}"
            );
        }
        // Those of an excluded interface are not captured.
        if is_named && !options.contains(&"-c") {
            let (from, to) = (at(family.guest(), 40000).to_string(), at(family.service(), port).to_string());
            let packet =
                ["explain", "--live", "--from", "outside", "--in", interface, "--src", &from, "--to", &to];
            let report = pod.bare_istio_iptables(&packet).run().succeeded().stdout();
            let said = if options.contains(&"-k") { "connections of the guests" } else { "to other hosts" };
            assert!(report.contains(said), "{report}");
        }
    }
}

fn calls_end(pod: &Pod, port: u16, call: Call) {
    for &family in pod.fixture.families() {
        let target = at(family.service(), port);
        let ended = pod.guest().call(target);
        match call {
            Call::Inbound => ended.captured(15006, target),
            Call::Outbound => ended.captured(15001, target).coming_from(family.guest()),
            Call::Silent => {
                assert_eq!(ended, Outcome::TimedOut);
                continue;
            }
            Call::Excluded => ended.served_by("outside").coming_from(family.guest()),
        };
    }
}

fn an_interface_is_named_while_its_connections_are_captured_as_inbound(fixture: Fixture) {
    let pod = fixture.pod_in(Topology::Guest);
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 8080]));
    for (options, port, call) in [
        (&["-b", "*", "-i", "*"][..], 80, Call::Inbound),
        (&["-b", "8080", "-i", "*"], 8080, Call::Inbound),
        (&["-b", "*", "-i", "*", "-c", "br0"], 80, Call::Excluded),
        (&["-b", "*", "-i", "*", "-c", "docker0,br+"], 80, Call::Excluded),
        (&["-b", "*", "-i", "*", "-k", "br0"], 80, Call::Outbound),
        (&["-b", "*", "-i", "*", "-k", "b+"], 80, Call::Outbound),
        (&["-i", "*"], 80, Call::Excluded),
    ] {
        let named = if call == Call::Inbound { fixture.families() } else { &[] };
        reports_name(&pod, options, "br0", port, named);
        calls_end(&pod, port, call);
    }
    // Only what arrives for listed ports.
    let run = pod.apply(&["-b", "8080", "-i", "*"]).output();
    assert!(run.contains("to other hosts on the inbound ports are captured"), "{run}");
    calls_end(&pod, 80, Call::Excluded);
    // The pod forwards nothing: what is behind the bridge reaches the pod only.
    for (setting, family) in [("ipv4/ip_forward", Family::V4), ("ipv6/conf/all/forwarding", Family::V6)] {
        set(&pod, setting, "0");
        let left: Vec<_> = fixture
            .families()
            .iter()
            .copied()
            .filter(|left| family == Family::V4 && *left == Family::V6)
            .collect();
        reports_name(&pod, &EVERYTHING, "br0", 80, &left);
    }
}

fn set(pod: &Pod, setting: &str, value: &str) {
    let path = format!("/proc/sys/net/{setting}");
    pod.namespace.run(|| fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}")));
}

fn tproxy_takes_forwarded_connections_or_their_replies(fixture: Fixture) {
    let pod = fixture.pod_in(Topology::Guest);
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 8080]));
    for name in ["iptables", "ip6tables"] {
        set(&pod, &format!("bridge/bridge-nf-call-{name}"), "0");
    }
    for (options, port, call) in [
        (&["-b", "*", "-i", "*"][..], 80, Call::Inbound),
        (&["-b", "*", "-i", "*", "-k", "br0"], 80, Call::Inbound),
        (&["-b", "*", "-i", "*", "-c", "br0"], 80, Call::Silent),
        (&["-b", "8080", "-i", "*"], 8080, Call::Inbound),
        (&["-b", "8080", "-i", "*", "-c", "br0"], 8080, Call::Excluded),
    ] {
        let options = [options, &["-m", "TPROXY"]].concat();
        let named = if call == Call::Excluded { &[] } else { fixture.families() };
        reports_name(&pod, &options, "br0", port, named);
        calls_end(&pod, port, call);
    }
}

/// As of a network plugin that routes to each container.
fn a_container_behind_a_pair_of_interfaces_is_named(fixture: Fixture) {
    let pod = routed(fixture, "vnet0");
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    for (options, call) in
        [(&EVERYTHING[..], Call::Inbound), (&["-b", "*", "-i", "*", "-k", "vnet0"], Call::Outbound)]
    {
        let named = if call == Call::Inbound { fixture.families() } else { &[] };
        reports_name(&pod, options, "vnet0", 80, named);
        calls_end(&pod, 80, call);
    }
}

/// A pod whose guest is behind one end of a pair of interfaces, without a bridge.
fn routed(fixture: Fixture, name: &str) -> Pod {
    let pod = fixture.pod_in(Topology::Guest);
    pod.ip("link del br0");
    pod.ip("link set vnet0 down");
    pod.ip(&format!("link set vnet0 name {name}"));
    pod.ip(&format!("link set {name} up"));
    for family in fixture.families() {
        pod.namespace.links(|links| links.add_address(family.bridge(), family.link_prefix(), name));
    }
    pod
}

/// An ordinary pod, with a second interface to the node, the interfaces of VPNs, and a bridge to the outside:
/// all of them in a network namespace that forwards, as those of IPv4 do on a node.
fn interfaces_without_others_behind_them_are_not_named(fixture: Fixture) {
    for topology in [Topology::Plain, Topology::SecondNic] {
        let pod = fixture.pod_in(topology);
        set(&pod, "ipv4/ip_forward", "1");
        set(&pod, "ipv6/conf/all/forwarding", "1");
        pod.ip("tuntap add tun0 mode tun");
        pod.ip("tuntap add tap0 mode tap");
        pod.ip("link add internal0 type veth peer name internal1");
        for (index, link) in ["internal0", "internal1", "tap0", "tun0"].iter().enumerate() {
            pod.ip(&format!("link set {link} up"));
            pod.ip(&format!("address add 10.9.{index}.1/24 dev {link}"));
            pod.ip(&format!("-6 address add fd00:9:{index}::1/64 dev {link} nodad"));
        }
        // That of a VPN leads to a router.
        pod.ip("route add 10.10.0.0/16 via 10.9.2.2 dev tap0");
        pod.ip("-6 route add fd00:10::/32 via fd00:9:2::2 dev tap0");
        let run = pod.apply(&EVERYTHING).output();
        assert!(!run.contains("virtual machines"), "{topology:?}: {run}");
        let report = pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
        assert!(!report.contains("forwarded-traffic"), "{topology:?}: {report}");
    }
}

fn interfaces_are_named_as_options_take_them(fixture: Fixture) {
    let pod = routed(fixture, "cali12ab34cd56e");
    for (name, number) in [("docker0", 30), ("br-0123456789a", 31), ("br-b123456789a", 32)] {
        pod.ip(&format!("link add {name} type bridge"));
        pod.ip(&format!("link set {name} up"));
        pod.ip(&format!("address add 172.{number}.0.1/16 dev {name}"));
    }
    pod.ip("tuntap add tap0 mode tap");
    pod.ip("link set tap0 up");
    pod.ip("address add 172.33.0.1/16 dev tap0");
    let run = pod.apply(&EVERYTHING).output();
    let options = "br-+,cali+,docker0,tap0";
    for words in [
        &format!("--istio-exclude-interfaces {options} (-c)"),
        &format!("--kube-virt-interfaces {options} (-k)"),
    ] {
        assert!(run.contains(words.as_str()), "{words}: {run}");
    }
    let run = pod.apply(&[&EVERYTHING[..], &["-c", options]].concat()).output();
    assert!(!run.contains("virtual machines"), "{run}");
}
