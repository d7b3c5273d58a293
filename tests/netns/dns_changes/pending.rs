//! A query waits for its response while the rules change. The response arrives unless the query would take
//! another path now, and the next query from the same port follows the new rules.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use netlab::User;

use crate::lab::fixture::at;
use crate::lab::pod::DNS_CAPTURE;
use crate::lab::program::Program;
use crate::lab::{Family, Fixture, Pod, Topology, for_each_backend_and_native};

for_each_backend_and_native!(
    every_server_is_captured,
    only_servers_of_resolv_conf_are_captured,
    server_is_added,
    server_is_removed,
    server_is_replaced,
    order_of_servers_changes,
    order_of_servers_changes_and_one_is_added,
    interface_is_excluded,
    interface_is_no_longer_excluded,
    another_interface_is_excluded,
    excluded_port_53_is_included_for_one_server,
    included_group_asks_while_every_server_is_captured,
    killed_run_is_completed_by_the_next,
);

/// How long a packet may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

const A: Server = Server(Family::name_server, Family::pod);
const B: Server = Server(Family::service, Family::pod);
const C: Server = Server(Family::other_service, Family::pod);
/// The server whose address is next to that of [`A`]: the two are no range. No query goes to it.
const NEXT_TO_A: Server = Server(next_to_a, Family::pod);
/// By `eth1`.
const SECOND_NIC: Server = Server(Family::outside_second, Family::pod_second);

/// The address of a name server, and the pod's address that packets to it have.
#[derive(Clone, Copy)]
struct Server(fn(Family) -> IpAddr, fn(Family) -> IpAddr);

/// The path of queries to a server before and after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Query {
    StaysCaptured,
    StaysDirect,
    BecomesCaptured,
    BecomesDirect,
}

use Query::{BecomesCaptured, BecomesDirect, StaysCaptured, StaysDirect};

impl Query {
    fn is_captured_before(self) -> bool {
        matches!(self, StaysCaptured | BecomesDirect)
    }

    fn is_captured_after(self) -> bool {
        matches!(self, StaysCaptured | BecomesCaptured)
    }
}

/// The servers of resolv.conf, and options.
struct Setting<'a> {
    servers: &'a [Server],
    options: &'a [&'a str],
    included_groups: &'a str,
}

fn next_to_a(family: Family) -> IpAddr {
    match family.name_server() {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() + 1).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() + 1).into(),
    }
}

fn with<'a>(servers: &'a [Server], options: &'a [&'a str]) -> Setting<'a> {
    Setting { servers, options, included_groups: "*" }
}

fn every_server_is_captured(fixture: Fixture) {
    let queries = [(A, StaysCaptured), (B, StaysCaptured), (C, BecomesCaptured)];
    let servers = &[A, NEXT_TO_A, B];
    change(fixture, &with(servers, &[]), &with(servers, &["--capture-all-dns"]), &queries);
}

fn only_servers_of_resolv_conf_are_captured(fixture: Fixture) {
    let queries = [(A, StaysCaptured), (B, StaysCaptured), (C, BecomesDirect)];
    let servers = &[A, NEXT_TO_A, B];
    change(fixture, &with(servers, &["--capture-all-dns"]), &with(servers, &[]), &queries);
}

fn server_is_added(fixture: Fixture) {
    let queries = [(A, StaysCaptured), (B, BecomesCaptured), (C, StaysDirect)];
    change(fixture, &with(&[A], &[]), &with(&[A, NEXT_TO_A, B], &[]), &queries);
    let queries = [(A, StaysCaptured), (B, StaysCaptured), (C, BecomesCaptured)];
    change(fixture, &with(&[A, B], &[]), &with(&[A, B, C], &[]), &queries);
}

fn server_is_removed(fixture: Fixture) {
    let queries = [(A, StaysCaptured), (B, StaysCaptured), (C, BecomesDirect)];
    change(fixture, &with(&[A, B, C], &[]), &with(&[A, B], &[]), &queries);
}

fn server_is_replaced(fixture: Fixture) {
    let queries = [(A, StaysCaptured), (B, BecomesDirect), (C, BecomesCaptured)];
    change(fixture, &with(&[A, B], &[]), &with(&[A, C], &[]), &queries);
}

fn order_of_servers_changes(fixture: Fixture) {
    let queries = [(A, StaysCaptured), (B, StaysCaptured), (C, StaysDirect)];
    change(fixture, &with(&[A, B], &[]), &with(&[B, A], &[]), &queries);
}

fn order_of_servers_changes_and_one_is_added(fixture: Fixture) {
    let queries = [(A, StaysCaptured), (B, StaysCaptured), (C, BecomesCaptured)];
    change(fixture, &with(&[A, B], &[]), &with(&[C, B, A], &[]), &queries);
}

fn interface_is_excluded(fixture: Fixture) {
    let queries = [(A, StaysCaptured), (B, StaysCaptured), (SECOND_NIC, BecomesDirect)];
    let all = &["--capture-all-dns"];
    change(fixture, &with(&[A], all), &with(&[A], &["--capture-all-dns", "-c", "eth1"]), &queries);
}

fn interface_is_no_longer_excluded(fixture: Fixture) {
    let queries = [(A, StaysCaptured), (B, StaysCaptured), (SECOND_NIC, BecomesCaptured)];
    let all = &["--capture-all-dns"];
    change(fixture, &with(&[A], &["--capture-all-dns", "-c", "eth1"]), &with(&[A], all), &queries);
}

fn another_interface_is_excluded(fixture: Fixture) {
    let queries = [(A, BecomesDirect), (B, BecomesDirect), (SECOND_NIC, BecomesCaptured)];
    let excluding = |interface| ["--capture-all-dns", "-c", interface];
    change(fixture, &with(&[A], &excluding("eth1")), &with(&[A], &excluding("eth0")), &queries);
}

fn excluded_port_53_is_included_for_one_server(fixture: Fixture) {
    let queries = [(A, BecomesCaptured), (B, StaysDirect), (C, StaysDirect)];
    let excluded = &["--capture-all-dns", "-o", "53"];
    change(fixture, &with(&[A], excluded), &with(&[A], &[]), &queries);
}

/// Entries do not show the group.
fn included_group_asks_while_every_server_is_captured(fixture: Fixture) {
    let queries = [(A, StaysCaptured), (B, BecomesCaptured)];
    let of_group = |options| Setting { included_groups: "1000", ..with(&[A, NEXT_TO_A], options) };
    change(fixture, &of_group(&[]), &of_group(&["--capture-all-dns"]), &queries);
}

/// The rules may be complete when a run is killed: the next one completes the entries, by a note in which no
/// server is named.
fn killed_run_is_completed_by_the_next(fixture: Fixture) {
    let queries = [(A, StaysCaptured), (B, BecomesDirect), (C, BecomesCaptured)];
    let (before, after) = (with(&[A, B], &[]), with(&[A, C], &[]));
    for moment in (2..14).step_by(2).map(|step| Duration::from_millis(step * 2)) {
        change_by(fixture, "REDIRECT", &before, &after, &queries, |pod| {
            program(pod, &after, "REDIRECT").run_and_kill_after(moment);
        });
    }
}

fn change(fixture: Fixture, before: &Setting<'_>, after: &Setting<'_>, queries: &[(Server, Query)]) {
    for mode in ["REDIRECT", "TPROXY"] {
        change_by(fixture, mode, before, after, queries, |_| {});
    }
}

fn change_by(
    fixture: Fixture,
    mode: &str,
    before: &Setting<'_>,
    after: &Setting<'_>,
    queries: &[(Server, Query)],
    first: impl Fn(&Pod),
) {
    let pod = fixture.pod_in(Topology::SecondNic);
    apply(&pod, before, mode);
    let families = fixture.families().iter();
    let proxies: Vec<_> =
        families.map(|family| (*family, bind(&pod.proxy(), at(family.loopback(), DNS_CAPTURE)))).collect();
    let mut waiting: Vec<Waiting<'_>> = Vec::new();
    for (family, proxy) in &proxies {
        for (number, (server, query)) in (0..).zip(queries) {
            waiting.push(Waiting::new(&pod, *family, proxy, (41_000 + number, *server), *query));
        }
    }
    for one in &mut waiting {
        one.asks("first", one.query.is_captured_before());
    }
    first(&pod);
    apply(&pod, after, mode);
    for one in &mut waiting {
        // The entry that translates the response of the others would keep the next query captured.
        if one.query != BecomesDirect {
            one.gets("late response");
        }
        one.asks("second", one.query.is_captured_after());
        one.gets("second response");
    }
}

fn apply(pod: &Pod, setting: &Setting<'_>, mode: &str) {
    program(pod, setting, mode).run().succeeded();
}

fn program(pod: &Pod, setting: &Setting<'_>, mode: &str) -> Program {
    let Setting { servers, options, included_groups } = setting;
    let names = |family: &Family| {
        let family = *family;
        servers.iter().map(move |Server(address, _)| format!("nameserver {}\n", address(family)))
    };
    let resolv_conf: String = pod.fixture.families().iter().flat_map(names).collect();
    let args = [&["-b", "*", "-i", "*", "--redirect-dns", "-m", mode], *options].concat();
    pod.istio_iptables(&args)
        .env("ISTIO_OUTBOUND_OWNER_GROUPS", included_groups)
        .file("/etc/resolv.conf", &resolv_conf)
}

/// A socket of the application, and what it may reach.
struct Waiting<'a> {
    query: Query,
    app: UdpSocket,
    proxy: &'a UdpSocket,
    server: UdpSocket,
    /// Whether the proxy got the last query, and where it came from.
    last: Option<(bool, SocketAddr)>,
}

impl<'a> Waiting<'a> {
    fn new(
        pod: &Pod,
        family: Family,
        proxy: &'a UdpSocket,
        (port, server): (u16, Server),
        query: Query,
    ) -> Self {
        let Server(address, source) = server;
        let app = bind(&pod.app(), at(source(family), port));
        app.connect(at(address(family), 53)).expect("connect a UDP socket");
        Self { query, app, proxy, server: bind(&pod.outside(), at(address(family), 53)), last: None }
    }

    fn asked(&self, is_captured: bool) -> &UdpSocket {
        if is_captured { self.proxy } else { &self.server }
    }

    #[track_caller]
    fn asks(&mut self, text: &str, is_captured: bool) {
        self.app.send(text.as_bytes()).expect("send a query");
        let mut buffer = [0; 64];
        let asked = self.asked(is_captured);
        let (length, from) =
            asked.recv_from(&mut buffer).expect("the query takes the path of the live rules");
        assert_eq!(&buffer[..length], text.as_bytes());
        self.last = Some((is_captured, from));
    }

    /// The server of the last query responds.
    #[track_caller]
    fn gets(&self, text: &str) {
        let (is_captured, from) = self.last.expect("a query");
        self.asked(is_captured).send_to(text.as_bytes(), from).expect("send a response");
        let mut buffer = [0; 64];
        let length = self.app.recv(&mut buffer).expect("the response arrives");
        assert_eq!(&buffer[..length], text.as_bytes());
    }
}

fn bind(user: &User, address: SocketAddr) -> UdpSocket {
    let socket = user.run(|| UdpSocket::bind(address).expect("bind a UDP socket"));
    socket.set_read_timeout(Some(LIMIT)).expect("limit the wait");
    socket
}
