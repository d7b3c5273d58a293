//! From any options to any others: the state is as if the new ones had been the first.

use crate::lab::rules::State;
use crate::lab::{Fixture, Topology, for_each_backend_and_native};

for_each_backend_and_native!(
    from_nothing_captured,
    from_the_sidecar_defaults,
    from_lists,
    from_excluded_ports,
    from_other_ports_and_users,
    from_tproxy,
    from_tproxy_with_a_list,
    from_dns,
    from_all_dns,
    from_interfaces,
    from_dropped_packets,
    from_owner_groups,
);

type Set = (&'static [&'static str], &'static [(&'static str, &'static str)]);

/// One of every kind of option.
const SETS: [Set; 12] = [
    (&[], &[]),
    (
        &[
            "-p",
            "15001",
            "-z",
            "15006",
            "-u",
            "1337",
            "-m",
            "REDIRECT",
            "-i",
            "*",
            "-b",
            "*",
            "-d",
            "15090,15021,15020",
        ],
        &[],
    ),
    (&["-b", "80,8080", "-i", "10.0.0.0/8,fd00::/8", "-x", "10.9.0.0/16,fd00:9::/32", "-q", "443"], &[]),
    (&["-b", "*", "-d", "22,15020", "-i", "*", "-o", "25,5432", "-x", "172.16.0.0/12"], &[]),
    (
        &["-b", "*", "-i", "*", "-p", "16001", "-z", "16006", "-e", "16008", "-u", "1337,1500", "-g", "2000"],
        &[],
    ),
    (&["-b", "*", "-i", "*", "-m", "TPROXY", "-d", "15020"], &[]),
    (&["-b", "80,443", "-m", "TPROXY", "-t", "500", "-r", "200", "-c", "eth1"], &[]),
    (&["-b", "*", "-i", "*", "--redirect-dns"], &[]),
    (
        &["-b", "8080", "-i", "*", "--redirect-dns", "--capture-all-dns"],
        &[("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.0/8")],
    ),
    (&["-b", "*", "-i", "*", "-c", "eth1,net+", "-k", "br0,vnet0"], &[]),
    (&["-b", "*", "-i", "127.0.0.0/8,10.0.0.0/8", "-k", "br0", "--drop-invalid"], &[]),
    (&["-b", "*", "-i", "*"], &[("ISTIO_OUTBOUND_OWNER_GROUPS", "101,202"), ("ISTIO_DUAL_STACK", "false")]),
];

fn from_nothing_captured(fixture: Fixture) {
    from(fixture, 0);
}

fn from_the_sidecar_defaults(fixture: Fixture) {
    from(fixture, 1);
}

fn from_lists(fixture: Fixture) {
    from(fixture, 2);
}

fn from_excluded_ports(fixture: Fixture) {
    from(fixture, 3);
}

fn from_other_ports_and_users(fixture: Fixture) {
    from(fixture, 4);
}

fn from_tproxy(fixture: Fixture) {
    from(fixture, 5);
}

fn from_tproxy_with_a_list(fixture: Fixture) {
    from(fixture, 6);
}

fn from_dns(fixture: Fixture) {
    from(fixture, 7);
}

fn from_all_dns(fixture: Fixture) {
    from(fixture, 8);
}

fn from_interfaces(fixture: Fixture) {
    from(fixture, 9);
}

fn from_dropped_packets(fixture: Fixture) {
    from(fixture, 10);
}

fn from_owner_groups(fixture: Fixture) {
    from(fixture, 11);
}

/// Goes from one set to every other, each time in a new pod, and compares with a pod that knew only the
/// other.
fn from(fixture: Fixture, first: usize) {
    let wrong: Vec<_> = (0..SETS.len())
        .filter(|&second| second != first)
        .filter_map(|second| {
            let (changed, fresh) = (after(fixture, &[first, second]), after(fixture, &[second]));
            (changed != fresh)
                .then(|| format!("{:?}\n--- should be {fresh:?}--- is {changed:?}", SETS[second]))
        })
        .collect();
    assert!(wrong.is_empty(), "from {:?} to\n{}", SETS[first], wrong.join("\nand to\n"));
}

fn after(fixture: Fixture, sets: &[usize]) -> State {
    let pod = fixture.pod_in(Topology::Plain);
    for &set in sets {
        let (args, variables) = SETS[set];
        let mut run = pod.bare_istio_iptables(args);
        if !variables.contains(&("ISTIO_DUAL_STACK", "false")) {
            run = run.arg("--dual-stack");
        }
        run = variables.iter().fold(run, |run, (name, value)| run.env(name, value));
        run.file("/etc/resolv.conf", "nameserver 10.96.0.10\nnameserver fd00:96::10\n").run().succeeded();
    }
    pod.state()
}
