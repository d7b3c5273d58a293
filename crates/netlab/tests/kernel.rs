//! Namespaces, users and servers on the real kernel. Needs root.
#![allow(clippy::disallowed_methods, clippy::expect_used, reason = "tests read /proc, and fail by panicking")]

use std::fs;
use std::net::SocketAddr;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use netlab::{Holder, Kinds, Listen, Namespace, NoRetransmission, Outcome, User, in_new_namespace, process};

/// Two namespaces with a veth pair between them, and an address each.
fn pair() -> [Namespace; 2] {
    let pair = [(); 2].map(|()| Namespace::with_loopback());
    let [client, server] = &pair;
    client.connect("eth0", server, "eth1");
    for (namespace, last, link) in [(client, 1, "eth0"), (server, 2, "eth1")] {
        namespace.add_address([10, 0, 0, last].into(), 24, link);
        namespace.add_address([0xfd00, 0, 0, 0, 0, 0, 0, last.into()].into(), 64, link);
    }
    pair
}

fn own_namespace() -> std::path::PathBuf {
    fs::read_link("/proc/thread-self/ns/net").expect("/proc is mounted")
}

#[test]
fn server_reports_source_and_destination_in_both_families() {
    let [client, server] = pair();
    let addresses: [SocketAddr; 2] =
        [([10, 0, 0, 2], 8080).into(), ([0xfd00, 0, 0, 0, 0, 0, 0, 2], 8080).into()];
    let listen = [Listen::Tcp(8080), Listen::Udp(addresses[0]), Listen::Udp(addresses[1])];
    let _listening = User::new(&server, 1000, 1000).serve("app", &listen);
    let caller = User::new(&client, 1001, 1001);
    for (to, from) in [(addresses[0], "10.0.0.1"), (addresses[1], "fd00::1")] {
        for outcome in [caller.call(to), caller.ask(to)] {
            let from = from.parse().expect("an address");
            assert_eq!(outcome.served_by("app").coming_from(from).response().original, to);
        }
    }
    assert_eq!(caller.call(([10, 0, 0, 2], 8081).into()), Outcome::Refused);
}

#[test]
fn caller_stays_in_its_namespace_and_each_closure_runs_in_another() {
    let before = own_namespace();
    let [one, other] = [(); 2].map(|()| in_new_namespace(own_namespace));
    assert!(one != before && other != before);
    assert_eq!(own_namespace(), before);
}

#[test]
fn user_has_its_uid_on_its_thread_only() {
    let namespace = Namespace::new();
    let uid = || fs::read_to_string("/proc/thread-self/status").expect("/proc is mounted");
    let inside = User::new(&namespace, 1000, 1001).run(uid);
    assert!(inside.contains("Uid:\t1000\t1000\t1000") && inside.contains("Gid:\t1001\t1001\t1001"));
    assert!(uid().contains("Uid:\t0\t0\t0"));
}

/// As `ip` shows them, which would have made them in the same way.
#[test]
fn links_addresses_and_routes_are_those_of_ip() {
    let [here, there] = [(); 2].map(|()| Namespace::with_loopback());
    let listed = || {
        let show = [["link"], ["address"], ["route"]]
            .map(|words| ["-o", "-d"].into_iter().chain(words).collect::<Vec<_>>());
        let all = show.iter().map(|words| process::run("ip", words));
        all.chain([process::run("ip", &["-6", "route"])]).collect::<String>()
    };
    here.links(|links| {
        links.add_bridge("br0");
        links.add_veth("eth0", &there, "eth0");
        links.set_bridge("eth0", "br0");
        links.up("eth0");
        links.up("br0");
        links.add_address([10, 0, 0, 1].into(), 24, "br0");
        links.add_address("2001:db8::1".parse().unwrap(), 64, "br0");
        links.add_route(None, [10, 0, 0, 2].into(), "br0");
        links.add_route(Some(("2001:db8:1::".parse().unwrap(), 48)), "2001:db8::2".parse().unwrap(), "br0");
    });
    let listed = here.run(listed);
    for part in [
        "master br0",
        " veth ",
        "bridge_slave",
        "inet 10.0.0.1/24 scope global br0",
        "inet6 2001:db8::1/64 scope global nodad",
        "default via 10.0.0.2 dev br0 proto boot scope global onlink",
        "2001:db8:1::/48 via 2001:db8::2 dev br0 metric 1024 onlink",
    ] {
        assert!(listed.contains(part), "{part} in\n{listed}");
    }
}

#[test]
#[should_panic(expected = "address 10.0.0.1/24 of lo: File exists")]
fn refused_change_of_a_link_is_a_panic_with_its_cause() {
    let namespace = Namespace::with_loopback();
    for _ in 0..2 {
        namespace.add_address([10, 0, 0, 1].into(), 24, "lo");
    }
}

#[test]
fn namespace_is_gone_with_its_last_handle() {
    let [client, server] = pair();
    drop(server);
    // The peer of a veth pair goes with its namespace, which the kernel takes down in the background.
    let links = || client.run(|| fs::read_to_string("/proc/thread-self/net/dev").expect("/proc is mounted"));
    let end = Instant::now() + Duration::from_secs(60);
    while links().contains("eth0") {
        assert!(Instant::now() < end, "the peer is still there: {}", links());
        sleep(Duration::from_millis(5));
    }
}

#[test]
#[should_panic(expected = "does-not-exist")]
fn program_that_fails_is_a_panic_with_its_message() {
    in_new_namespace(|| process::run("ip", &["link", "show", "does-not-exist"]));
}

#[test]
fn holder_keeps_namespaces_for_programs_from_outside() {
    let kinds = Kinds { net: true, mount: true, user: false };
    let holder = Holder::new(
        kinds,
        "ip link add $LINK type veth peer name d1; mount -t tmpfs tmpfs /mnt",
        [("LINK", "d0")],
    );
    let inside = holder.enter().args(["sh", "-c", "ip -o link show d0; stat -f -c %T /mnt"]).output();
    let printed = String::from_utf8(inside.expect("nsenter can be run").stdout).expect("UTF-8");
    assert!(printed.contains("d0@d1:") && printed.ends_with("tmpfs\n"), "{printed}");
    let outside = process::run("ip", &["-o", "link"]);
    assert!(!outside.contains(" d0@"), "{outside}");
    let pid = holder.pid();
    drop(holder);
    assert!(!fs::exists(format!("/proc/{pid}/ns/net")).expect("/proc is mounted"));
}

#[test]
fn holder_of_a_user_namespace_maps_ids_and_is_entered_as_root() {
    let kinds = Kinds { user: true, net: true, mount: false };
    let holder = Holder::new(kinds, "", [("", ""); 0]);
    let inside = holder.enter().args(["sh", "-c", "id -u; cat /proc/self/uid_map"]).output();
    let printed = String::from_utf8(inside.expect("nsenter can be run").stdout).expect("UTF-8");
    assert_eq!(printed.split_whitespace().collect::<Vec<_>>(), ["0", "0", "100000", "65536"]);
}

/// The first one or two segments of a kind are dropped: the SYN, the reply to it, or data of the server.
#[test]
fn without_retransmission_a_connection_shows_that_a_packet_is_lost() {
    let target = SocketAddr::from(([10, 0, 0, 2], 8080));
    let losing = |by_client: bool, segments: &str, without: bool| {
        let [client, server] = pair();
        let _without = without.then(|| NoRetransmission::within(&[&client, &server]));
        let _listening = User::new(&server, 1000, 1000).serve("app", &[Listen::Tcp(8080)]);
        let drop_first = format!(
            "add table ip t; add chain ip t in {{ type filter hook prerouting priority 0; }}; \
             add rule ip t in {segments} quota until 120 bytes drop"
        );
        let receiver = if by_client { &client } else { &server };
        receiver.run(|| process::run("nft", &[&drop_first]));
        User::new(&client, 1001, 1001).call(target)
    };
    let kinds = [
        (false, "tcp flags syn"),
        (true, "tcp flags & (syn | ack) == (syn | ack)"),
        (true, "tcp flags & psh == psh"),
    ];
    thread::scope(|scope| {
        for (by_client, kind) in kinds {
            scope.spawn(move || {
                let outcomes = [false, true].map(|without| losing(by_client, kind, without));
                assert!(matches!(&outcomes[0], Outcome::Responded(_)), "{kind}: {outcomes:?}");
                assert_eq!(outcomes[1], Outcome::TimedOut, "{kind}");
            });
        }
    });
}

#[test]
fn table_of_tcp_sockets_is_the_namespaces_own() {
    let buckets = || fs::read_to_string("/proc/sys/net/ipv4/tcp_ehash_entries").ok();
    let Some(shared) = Namespace::new().run(buckets) else {
        eprintln!("skipped: this kernel has one table only");
        return;
    };
    let own = Namespace::with_own_tcp_table().run(buckets).expect("the same file");
    // A table of others has a negative number.
    assert!(shared.starts_with('-') && own.trim() == "16384", "{shared} {own}");
}
