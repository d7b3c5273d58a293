//! Link-local IPv6 addresses: what `explain --live` and a run say about them, against connections.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use netlab::socket::{self, Binding};
use netlab::user::Conversation;

use crate::check::check;
use crate::lab::program::tool;
use crate::lab::{Fixture, Pod, for_each_backend_and_native, verdict};

for_each_backend_and_native!(
    link_local_addresses_are_reached_only_if_they_are_excluded,
    captured_queries_to_a_link_local_name_server_are_lost,
);

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// Ports of the router, by the interface of the pod.
fn router(pod: &Pod) -> impl Fn(u16) -> SocketAddr + use<> {
    let listed = pod.namespace.run(|| tool("ip", &["-o", "link", "show", "eth0"], ""));
    let index: u32 = listed.split(':').next().and_then(|index| index.parse().ok()).expect("an index");
    move |port| SocketAddrV6::new(ROUTER, port, 0, index).into()
}

/// A socket for such an address is bound to its interface, by which the kernel then sends the redirected
/// packet.
fn link_local_addresses_are_reached_only_if_they_are_excluded(fixture: Fixture) {
    for is_excluded in [false, true] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 9000]));
        let excluded: &[&str] = if is_excluded { &["-x", "fe80::/10"] } else { &[] };
        pod.apply(&[&["-i", "*", "-b", "*", "-o", "9000"], excluded].concat());
        let to = router(&pod);
        let attempt = pod.app().run(|| socket::start_connect(to(80), Binding::default())).expect("a route");
        // A later connection is made.
        pod.app().call(to(9000)).served_by("outside");
        let said = pod.bare_istio_iptables(&["explain", "--live", "--to", &format!("[{ROUTER}]:80")]);
        let said = said.run().succeeded().stdout();
        let first = verdict(&said);
        if is_excluded {
            let conversation = pod.app().run(|| Conversation::go_on(attempt)).expect("a reply");
            assert_eq!(conversation.greeting.server, "outside");
            assert!(first.starts_with("not captured: this outbound range"), "{first}");
        } else {
            attempt.peer_addr().expect_err("it is connected");
            assert!(
                first.starts_with("captured: ")
                    && first.contains(", but it fails: a socket for the link-local"),
                "{first}"
            );
        }
    }
}

/// A socket for DNS to a link-local address: excluded ranges do not apply to it.
fn captured_queries_to_a_link_local_name_server_are_lost(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[9000]));
    let options = ["-i", "*", "-b", "*", "-o", "9000", "-x", "fe80::/10", "--redirect-dns"];
    let run =
        pod.istio_iptables(&options).file("/etc/resolv.conf", "nameserver fe80::1%eth0\n").run().succeeded();
    let lost = "captured DNS queries to the link-local server fe80::1 are lost";
    run.output_contains(lost);
    let (exit, found) = check(&pod, &[]);
    assert!(exit == 1 && found["notices"].to_string().contains(lost), "{exit}: {found}");
    let to = router(&pod);
    let attempt = pod.app().run(|| socket::start_connect(to(53), Binding::default())).expect("a route");
    // A later connection is made.
    pod.app().call(to(9000)).served_by("outside");
    attempt.peer_addr().expect_err("it is connected");
    let said =
        pod.bare_istio_iptables(&["explain", "--live", "--to", &format!("[{ROUTER}]:53")]).run().succeeded();
    let said = said.stdout();
    let first = verdict(&said);
    assert!(first.contains("name a server with another address") && !first.contains("-x "), "{first}");
}
