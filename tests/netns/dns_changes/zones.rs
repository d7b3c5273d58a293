//! Queries in pods where another program sets the conntrack zone of every packet before our rules.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use netlab::User;

use super::{DNS, EVERYTHING, Outcomes, name_servers, resolvers, through};
use crate::lab::fixture::at;
use crate::lab::pod::PROXY;
use crate::lab::program::tool;
use crate::lab::queries::SlowServer;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    sockets_in_a_foreign_zone_follow_each_change,
    responses_that_are_under_way_make_no_entry,
    sockets_in_a_foreign_zone_follow_a_cleanup,
    responses_in_a_foreign_zone_arrive_after_the_change,
    a_foreign_zone_is_named_with_what_it_means,
);

/// How long a packet may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The ways in which the zone is set.
const FOREIGN: [fn(&Pod); 3] = [by_iptables, by_nftables, in_one_direction];

fn by_iptables(pod: &Pod) {
    raw(pod, "CT --zone 7");
}

/// The responses have the zone of an earlier packet of theirs.
fn in_one_direction(pod: &Pod) {
    raw(pod, "CT --zone-orig 7");
}

fn raw(pod: &Pod, target: &str) {
    for family in pod.fixture.families() {
        for chain in ["PREROUTING", "OUTPUT"] {
            pod.iptables(*family, &format!("-t raw -A {chain} -j {target}"));
        }
    }
}

fn by_nftables(pod: &Pod) {
    const RULES: &str = "table inet agent {
        chain in { type filter hook prerouting priority -301; ct zone set 7; }
        chain out { type filter hook output priority -301; ct zone set 7; }
    }";
    pod.namespace.run(|| tool("nft", &["-f", "-"], RULES));
}

/// Queries of the application, and of the proxy, while something changes.
fn of_app_and_proxy(pod: &Pod, port: u16, change: &[&str]) -> [Vec<Outcomes>; 2] {
    let mut all = resolvers(pod, 1000, port);
    let count = all.len();
    all.extend(resolvers(pod, PROXY, port + 1000));
    let mut of_app = through(all, || drop(pod.apply(change)));
    let of_proxy = of_app.split_off(count);
    [of_app, of_proxy]
}

fn sockets_in_a_foreign_zone_follow_each_change(fixture: Fixture) {
    for set_zones in FOREIGN {
        let pod = fixture.pod();
        let _servers = name_servers(&pod);
        set_zones(&pod);
        pod.apply(&EVERYTHING);
        let [of_app, of_proxy] = of_app_and_proxy(&pod, 21_000, &DNS);
        of_app.iter().for_each(Outcomes::newly_captured);
        of_proxy.iter().for_each(Outcomes::direct_all_the_time);
        let [of_app, of_proxy] = of_app_and_proxy(&pod, 21_000, &EVERYTHING);
        of_app.iter().for_each(Outcomes::direct_afterwards);
        of_proxy.iter().for_each(Outcomes::direct_all_the_time);
    }
}

/// Responses take long from the hook that looks up their entry to the one that makes a new one known: of one
/// whose entry is deleted meanwhile, the kernel makes an entry against the direction of its flow, which
/// queries follow for a second.
fn responses_that_are_under_way_make_no_entry(fixture: Fixture) {
    const RULES: usize = 1000;
    const PORTS: u16 = 4;
    let rules = "udp sport 1 counter\n".repeat(RULES);
    let chain = "type filter hook input priority 0;";
    let slow = format!("table inet slow {{\nchain in {{\n{chain}\nudp sport != 53 return\n{rules}}}\n}}\n");
    let pod = fixture.pod();
    let _servers = name_servers(&pod);
    by_iptables(&pod);
    pod.namespace.run(|| tool("nft", &["-f", "-"], &slow));
    for _ in 0..4 {
        pod.apply(&EVERYTHING);
        let all = (0..PORTS).flat_map(|number| resolvers(&pod, 1000, 21_000 + number)).collect();
        for Outcomes { before, meanwhile: _, after } in through(all, || drop(pod.apply(&DNS))) {
            // A busy machine drops packets at this rate.
            assert_eq!((before.proxy, after.direct), (0, 0), "queries bypass the proxy: {after:?}");
        }
    }
}

fn sockets_in_a_foreign_zone_follow_a_cleanup(fixture: Fixture) {
    const PLAIN: [&str; 1] = ["--cleanup-only"];
    const KEEPING: [&str; 2] = ["--cleanup-only", "--keep-connections"];
    for (set_zones, cleanup) in FOREIGN.into_iter().zip([&PLAIN[..], &KEEPING, &PLAIN]) {
        let pod = fixture.pod();
        let _servers = name_servers(&pod);
        set_zones(&pod);
        pod.apply(&DNS);
        let [of_app, of_proxy] = of_app_and_proxy(&pod, 21_000, cleanup);
        for outcomes in &of_app {
            assert_eq!(outcomes.before.direct, 0, "{:?}", outcomes.before);
            outcomes.direct_afterwards();
        }
        of_proxy.iter().for_each(Outcomes::direct_all_the_time);
    }
}

/// The server that responds to a query from this port.
fn responder(pod: &Pod, user: u32, family: Family, port: u16) -> String {
    let mut buffer = [0; 64];
    let socket = bind(&pod.user(user, user), at(family.pod(), port));
    socket.connect(at(family.name_server(), 53)).expect("connect a UDP socket");
    socket.send(b"query").expect("send a query");
    let length = socket.recv(&mut buffer).expect("a response");
    String::from_utf8_lossy(&buffer[..length]).replace(" query", "")
}

/// TCP reaches the proxy, which does not learn its destination but in TPROXY mode. DNS of the application
/// does too, and the proxy's own query from the same port follows the same entry.
fn a_foreign_zone_is_named_with_what_it_means(fixture: Fixture) {
    let is_named = |pod: &Pod, args: &[&str]| {
        let output = pod.apply(args).output();
        let lines: Vec<_> = output.lines().filter(|line| line.contains("a foreign ")).collect();
        let is_true = |line: &&str| {
            line.contains("without their original destination")
                && line.contains("not told apart")
                && !line.contains("are not captured")
        };
        assert!(lines.len() >= 2 && lines.iter().all(is_true), "{args:?}: {lines:#?}");
    };
    for (set_zones, priority) in [(by_iptables as fn(&Pod), -300), (by_nftables, -301)] {
        let pod = fixture.pod();
        set_zones(&pod);
        let dry = [&DNS[..], &["--dry-run"]].concat();
        let verify = [&DNS[..], &["--verify"]].concat();
        for args in [&dry[..], &DNS, &verify] {
            is_named(&pod, args);
        }
        let _servers =
            (name_servers(&pod), pod.proxy_also_listens(&[15001, 15006]), pod.app_listens(&[8080]));
        for family in fixture.families() {
            let (inbound, outbound) = (at(family.pod(), 8080), at(family.service(), 80));
            pod.outside().call(inbound).captured(15006, at(family.pod(), 15006));
            pod.app().call(outbound).captured(15001, at(family.loopback(), 15001));
            assert_eq!(responder(&pod, 1000, *family, 24_000), "proxy");
            assert_eq!(responder(&pod, PROXY, *family, 24_001), "direct");
            // Of two base chains with the same priority, the one that was made last is first: ours of native
            // nftables.
            let is_ours = priority == -300 && fixture.backend == Backend::Native;
            assert_eq!(responder(&pod, PROXY, *family, 24_000), if is_ours { "direct" } else { "proxy" });
        }
        pod.apply(&[&EVERYTHING[..], &["-m", "TPROXY"]].concat());
        for family in fixture.families() {
            let inbound = at(family.pod(), 8080);
            pod.outside().call(inbound).captured(15006, inbound);
        }
    }
    let pod = fixture.pod();
    pod.apply(&DNS);
    let _servers = name_servers(&pod);
    for family in fixture.families() {
        assert_eq!(responder(&pod, 1000, *family, 24_000), "proxy");
        assert_eq!(responder(&pod, PROXY, *family, 24_000), "direct");
    }
}

fn bind(user: &User, address: SocketAddr) -> UdpSocket {
    let socket = user.run(|| UdpSocket::bind(address).expect("bind a UDP socket"));
    socket.set_read_timeout(Some(LIMIT)).expect("limit the wait");
    socket
}

/// The only packet of the flow after the change is a response: it must not become the first packet of a flow
/// that the next query belongs to.
fn responses_in_a_foreign_zone_arrive_after_the_change(fixture: Fixture) {
    for set_zones in FOREIGN {
        let pod = fixture.pod();
        set_zones(&pod);
        pod.apply(&EVERYTHING);
        let mut buffer = [0; 64];
        let sockets: Vec<_> = fixture
            .families()
            .iter()
            .map(|family| {
                let server = bind(&pod.outside(), at(family.name_server(), 53));
                let app = bind(&pod.app(), at(family.pod(), 23_000));
                app.connect(at(family.name_server(), 53)).expect("connect a UDP socket");
                app.send(b"first").expect("send a query");
                let (_, from) = server.recv_from(&mut buffer).expect("a query");
                (server, app, from, SlowServer::start(&pod.proxy(), "proxy", at(family.loopback(), 15053)))
            })
            .collect();
        pod.apply(&DNS);
        for (server, app, from, _proxy) in &sockets {
            server.send_to(b"late", *from).expect("send a response");
            let length = app.recv(&mut buffer).expect("the response arrives");
            assert_eq!(&buffer[..length], b"late");
            app.send(b"second").expect("send a query");
            let length = app.recv(&mut buffer).expect("a response to the next query");
            assert_eq!(&buffer[..length], b"proxy second");
        }
    }
}
