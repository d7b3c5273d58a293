//! Options change while a socket sends DNS queries from one source port, with some always waiting for their
//! responses.

mod pending;
mod zones;

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use netlab::User;

use crate::dns::with_name_server;
use crate::lab::fixture::at;
use crate::lab::kill::When;
use crate::lab::program::Program;
use crate::lab::queries::{Queries, SlowServer, Sockets, Tally};
use crate::lab::slow::slow_down;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    dns_capture_is_switched_on,
    dns_capture_is_switched_off,
    dns_capture_ends_with_a_cleanup,
    dns_capture_ends_with_a_killed_cleanup,
    included_groups_become_all_groups,
    another_group_is_included,
    a_group_is_included_no_more,
    an_excluded_group_is_included,
    an_excluded_port_53_is_included,
    servers_outside_resolv_conf_are_included,
    a_change_that_concerns_no_query_loses_no_response,
    dns_capture_is_switched_on_together_with_tproxy,
    dns_capture_is_switched_on_in_a_move_between_backends,
    a_move_between_backends_loses_no_response,
    new_sockets_lose_no_response_in_a_first_capture,
    new_sockets_lose_no_response_when_capture_begins,
    new_sockets_lose_no_response_when_capture_gets_wider,
    slow_packets_lose_no_response_in_a_first_capture,
    slow_packets_lose_no_response_when_capture_begins,
    captured_queries_lose_no_response_when_every_server_is_captured,
    direct_queries_lose_no_response_when_every_server_is_captured,
    a_killed_change_is_completed_by_the_next_run,
);

const EVERYTHING: [&str; 4] = ["-b", "*", "-i", "*"];
const DNS: [&str; 6] = ["-b", "*", "-i", "*", "--redirect-dns", "--capture-all-dns"];
/// The servers of resolv.conf only.
const SERVERS_OF_RESOLV_CONF: [&str; 5] = ["-b", "*", "-i", "*", "--redirect-dns"];
/// How many queries are looked at before and after a change: as many as wait for their responses at a time.
const QUERIES: usize = 100;
/// A run switches everything that comes this long after its end.
const SETTLED: Duration = Duration::from_millis(50);

/// How often a run meets slow packets: about half of the time one is on its way.
const SLOW_ROUNDS: usize = 6;

/// A user whose queries no option of these tests excludes.
const OTHER: u32 = 3000;

fn name_servers(pod: &Pod) -> Vec<SlowServer> {
    let both = |family: &Family| {
        let direct = SlowServer::start(&pod.outside(), "direct", at(family.name_server(), 53));
        [direct, SlowServer::start(&pod.proxy(), "proxy", at(family.loopback(), 15053))]
    };
    pod.fixture.families().iter().flat_map(both).collect()
}

/// Servers that resolv.conf does not list.
fn other_servers(pod: &Pod) -> Vec<SlowServer> {
    let start = |family: &Family| SlowServer::start(&pod.outside(), "direct", at(family.service(), 53));
    pod.fixture.families().iter().map(start).collect()
}

/// Queries of this user from one port, in each family.
fn resolvers(pod: &Pod, user: u32, port: u16) -> Vec<Queries> {
    resolvers_of(pod, user, port, Family::name_server)
}

fn resolvers_of(pod: &Pod, user: u32, port: u16, server: impl Fn(Family) -> IpAddr) -> Vec<Queries> {
    let ask = |family: &Family| {
        let (from, to) = (at(family.pod(), port), at(server(*family), 53));
        Queries::start(&pod.user(user, user), from, to)
    };
    pod.fixture.families().iter().map(ask).collect()
}

/// What became of the queries before the run, during it, and from [`SETTLED`] after its end.
struct Outcomes {
    before: Tally,
    meanwhile: Tally,
    after: Tally,
}

/// Runs `change` while `resolvers` ask.
fn through(resolvers: Vec<Queries>, change: impl FnOnce()) -> Vec<Outcomes> {
    for resolver in &resolvers {
        resolver.wait_for(QUERIES);
    }
    let begin: Vec<_> = resolvers.iter().map(Queries::sent).collect();
    change();
    thread::sleep(SETTLED);
    // One more may have been sent and not counted yet.
    let settled: Vec<_> = resolvers.iter().map(|resolver| resolver.sent() + 1).collect();
    for resolver in &resolvers {
        resolver.wait_for(QUERIES);
    }
    // All at once, because one that lost a response waits for it for a while.
    resolvers.iter().for_each(Queries::stop);
    let outcomes = resolvers.into_iter().zip(begin.into_iter().zip(settled));
    outcomes.map(|(resolver, (begin, settled))| Outcomes::of(resolver, begin, settled)).collect()
}

impl Outcomes {
    fn of(resolver: Queries, begin: usize, settled: usize) -> Self {
        let end = resolver.sent();
        let [before, meanwhile, after] = resolver.end([0..begin, begin..settled, settled..end]);
        Self { before, meanwhile, after }
    }

    /// Not captured before, captured after, and every query got a response.
    #[track_caller]
    fn newly_captured(&self) {
        let Self { before, meanwhile, after } = self;
        assert_eq!((before.proxy, before.lost, meanwhile.lost), (0, 0, 0), "{before:?} {meanwhile:?}");
        assert!(after.direct == 0 && after.lost == 0, "queries bypass the proxy: {after:?}");
    }

    /// Not captured any more.
    #[track_caller]
    fn direct_afterwards(&self) {
        assert_eq!((self.after.proxy, self.after.lost), (0, 0), "{:?}", self.after);
    }

    /// Never captured, and every query got a response.
    #[track_caller]
    fn direct_all_the_time(&self) {
        for tally in [&self.before, &self.meanwhile, &self.after] {
            assert_eq!((tally.proxy, tally.lost), (0, 0), "{tally:?}");
        }
    }

    /// Captured all the time, and every query got a response.
    #[track_caller]
    fn captured(&self) {
        for tally in [&self.before, &self.meanwhile, &self.after] {
            assert_eq!((tally.direct, tally.lost), (0, 0), "{tally:?}");
        }
    }
}

fn dns_capture_is_switched_on(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = name_servers(&pod);
    for round in 0..4 {
        pod.apply(&EVERYTHING);
        let outcomes = through(resolvers(&pod, 1000, 21_000 + round), || drop(pod.apply(&DNS)));
        outcomes.iter().for_each(Outcomes::newly_captured);
    }
}

fn dns_capture_is_switched_off(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = name_servers(&pod);
    pod.apply(&DNS);
    for outcomes in through(resolvers(&pod, 1000, 22_000), || drop(pod.apply(&EVERYTHING))) {
        // The responses that are waited for come by the entry that has to go.
        assert_eq!(outcomes.before.direct, 0, "{:?}", outcomes.before);
        assert_eq!((outcomes.after.proxy, outcomes.after.lost), (0, 0), "{:?}", outcomes.after);
    }
}

/// Foreign rules that have packets tracked and translated when ours are gone.
fn translate(pod: &Pod) {
    for family in pod.fixture.families() {
        pod.iptables(*family, "-t nat -A POSTROUTING -o net9 -j MASQUERADE");
        pod.iptables(*family, "-A INPUT -m conntrack --ctstate INVALID -j ACCEPT");
    }
}

/// One socket sends all the time, another one only before and afterwards.
fn dns_capture_ends_with_a_cleanup(fixture: Fixture) {
    for cleanup in [&["--cleanup-only"][..], &["--cleanup-only", "--keep-connections"]] {
        for is_tracked in [false, true] {
            let pod = fixture.pod();
            let _servers = name_servers(&pod);
            if is_tracked {
                translate(&pod);
            }
            pod.apply(&DNS);
            let quiet = resolvers(&pod, 1000, 23_000);
            quiet.iter().for_each(|resolver| resolver.wait_for(QUERIES));
            for resolver in quiet {
                let sent = resolver.sent();
                let [captured] = resolver.end([0..sent; 1]);
                assert_eq!(captured.direct, 0);
            }
            for outcomes in through(resolvers(&pod, 1000, 22_000), || drop(pod.apply(cleanup))) {
                assert_eq!(outcomes.before.direct, 0, "{:?}", outcomes.before);
                outcomes.direct_afterwards();
            }
            for outcomes in through(resolvers(&pod, 1000, 23_000), || {}) {
                outcomes.direct_all_the_time();
            }
        }
    }
}

/// The clean-up is killed at some of its messages, the next one completes it.
fn dns_capture_ends_with_a_killed_cleanup(fixture: Fixture) {
    for number in (1..).step_by(9) {
        let pod = fixture.pod();
        let _servers = name_servers(&pod);
        translate(&pod);
        pod.apply(&DNS);
        let mut is_killed = false;
        for outcomes in through(resolvers(&pod, 1000, 22_000), || {
            let ended = pod.istio_iptables(&["--cleanup-only"]).run_and_kill_at_send(number, When::Before);
            is_killed = ended.code() == -1;
            pod.apply(&["--cleanup-only"]);
        }) {
            outcomes.direct_afterwards();
        }
        if !is_killed {
            break;
        }
    }
}

fn groups(value: &'static str) -> impl Fn(Program) -> Program {
    move |program| program.env("ISTIO_OUTBOUND_OWNER_GROUPS", value)
}

fn included_groups_become_all_groups(fixture: Fixture) {
    widening(fixture, groups("3000"), groups("*"));
}

fn another_group_is_included(fixture: Fixture) {
    widening(fixture, groups("3000"), groups("1000,3000"));
}

fn a_group_is_included_no_more(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = name_servers(&pod);
    groups("1000,3000")(pod.istio_iptables(&DNS)).run().succeeded();
    let narrowed = || drop(groups("3000")(pod.istio_iptables(&DNS)).run().succeeded());
    for outcomes in through(resolvers(&pod, 1000, 22_000), narrowed) {
        assert_eq!(outcomes.before.direct, 0, "{:?}", outcomes.before);
        assert_eq!((outcomes.after.proxy, outcomes.after.lost), (0, 0), "{:?}", outcomes.after);
    }
}

fn an_excluded_group_is_included(fixture: Fixture) {
    let excluded = |value: &'static str| {
        move |program: Program| program.env("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", value)
    };
    widening(fixture, excluded("5,1000"), excluded("5"));
}

/// `-o` excludes every user's queries.
fn an_excluded_port_53_is_included(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = name_servers(&pod);
    pod.istio_iptables(&DNS).arg("-o").arg("53").run().succeeded();
    let outcomes = through(resolvers(&pod, 1000, 23_000), || drop(pod.apply(&DNS)));
    outcomes.iter().for_each(Outcomes::newly_captured);
}

/// Queries to the servers of resolv.conf were captured and still are, those to another server are from now
/// on.
fn servers_outside_resolv_conf_are_included(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (name_servers(&pod), other_servers(&pod));
    with_name_server(&pod, &SERVERS_OF_RESOLV_CONF).run().succeeded();
    let mut all = resolvers(&pod, 1000, 31_000);
    all.extend(resolvers_of(&pod, 1000, 32_000, Family::service));
    let outcomes = through(all, || drop(pod.apply(&DNS)));
    let (always, newly) = outcomes.split_at(outcomes.len() / 2);
    always.iter().for_each(Outcomes::captured);
    newly.iter().for_each(Outcomes::newly_captured);
}

/// The queries of user 1000 are captured from now on, those of the other user were and are.
fn widening(fixture: Fixture, narrow: impl Fn(Program) -> Program, wide: impl Fn(Program) -> Program) {
    let pod = fixture.pod();
    let _servers = name_servers(&pod);
    narrow(pod.istio_iptables(&DNS)).run().succeeded();
    let mut all = resolvers(&pod, 1000, 24_000);
    all.extend(resolvers(&pod, OTHER, 25_000));
    let outcomes = through(all, || drop(wide(pod.istio_iptables(&DNS)).run().succeeded()));
    let (newly, always) = outcomes.split_at(outcomes.len() / 2);
    newly.iter().for_each(Outcomes::newly_captured);
    always.iter().for_each(Outcomes::captured);
}

/// The query's own way is no reason to delete an entry that captured queries wait for.
fn a_change_that_concerns_no_query_loses_no_response(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = name_servers(&pod);
    pod.apply(&DNS);
    let outcomes = through(resolvers(&pod, 1000, 26_000), || {
        pod.istio_iptables(&DNS).arg("-x").arg("198.51.100.0/24").arg("-d").arg("8080").run().succeeded();
    });
    outcomes.iter().for_each(Outcomes::captured);
}

/// mangle commits before nat then, and after it on the way back.
fn dns_capture_is_switched_on_together_with_tproxy(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = name_servers(&pod);
    pod.apply(&EVERYTHING);
    let tproxy = |pod: &Pod| drop(pod.istio_iptables(&DNS).arg("-m").arg("TPROXY").run().succeeded());
    let outcomes = through(resolvers(&pod, 1000, 28_000), || tproxy(&pod));
    outcomes.iter().for_each(Outcomes::newly_captured);
    pod.apply(&[&EVERYTHING[..], &["-m", "TPROXY"]].concat());
    let outcomes = through(resolvers(&pod, 1000, 28_001), || drop(pod.apply(&DNS)));
    outcomes.iter().for_each(Outcomes::newly_captured);
}

fn on_the_other_backend(fixture: Fixture) -> Fixture {
    let backend = match fixture.backend {
        Backend::IptablesNft | Backend::Native => Backend::IptablesLegacy,
        Backend::IptablesLegacy => Backend::IptablesNft,
    };
    Fixture { backend, ..fixture }
}

fn moved(pod: &Pod, args: &[&str]) {
    let backend = on_the_other_backend(pod.fixture).backend.flag();
    pod.plain_istio_iptables(args).arg("--dual-stack").arg("--backend").arg(backend).run().succeeded();
}

fn dns_capture_is_switched_on_in_a_move_between_backends(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = name_servers(&pod);
    pod.apply(&EVERYTHING);
    let outcomes = through(resolvers(&pod, 1000, 29_000), || moved(&pod, &DNS));
    outcomes.iter().for_each(Outcomes::newly_captured);
}

fn a_move_between_backends_loses_no_response(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = name_servers(&pod);
    pod.apply(&DNS);
    let outcomes = through(resolvers(&pod, 1000, 30_000), || moved(&pod, &DNS));
    outcomes.iter().for_each(Outcomes::captured);
}

/// Nothing is tracked in the pod yet.
fn new_sockets_lose_no_response_in_a_first_capture(fixture: Fixture) {
    for _ in 0..4 {
        let pod = fixture.pod();
        let _servers = name_servers(&pod);
        every_new_socket_gets_responses(&pod);
    }
}

fn new_sockets_lose_no_response_when_capture_begins(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = name_servers(&pod);
    pod.apply(&EVERYTHING);
    every_new_socket_gets_responses(&pod);
}

fn new_sockets_lose_no_response_when_capture_gets_wider(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = name_servers(&pod);
    pod.istio_iptables(&DNS).arg("-o").arg("53").run().succeeded();
    every_new_socket_gets_responses(&pod);
}

fn slow_packets_lose_no_response_in_a_first_capture(fixture: Fixture) {
    for _ in 0..SLOW_ROUNDS {
        let pod = fixture.pod();
        let _servers = name_servers(&pod);
        slow_down(&pod, "udp dport 53", &["output"]);
        every_new_socket_gets_responses(&pod);
    }
}

fn slow_packets_lose_no_response_when_capture_begins(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = name_servers(&pod);
    slow_down(&pod, "udp dport 53", &["output"]);
    for _ in 0..SLOW_ROUNDS {
        pod.apply(&EVERYTHING);
        every_new_socket_gets_responses(&pod);
    }
}

/// No later query of a socket replaces the entry that its response needs.
fn captured_queries_lose_no_response_when_every_server_is_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = name_servers(&pod);
    for start in [Sockets::start, Sockets::start_again] {
        with_name_server(&pod, &SERVERS_OF_RESOLV_CONF).run().succeeded();
        every_query_gets_a_response(&pod, start, Family::name_server);
    }
}

fn direct_queries_lose_no_response_when_every_server_is_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (name_servers(&pod), other_servers(&pod));
    with_name_server(&pod, &SERVERS_OF_RESOLV_CONF).run().succeeded();
    every_query_gets_a_response(&pod, Sockets::start, Family::service);
}

fn every_new_socket_gets_responses(pod: &Pod) {
    every_query_gets_a_response(pod, Sockets::start, Family::name_server);
}

/// Sockets ask once each, before, while and after everything is captured.
fn every_query_gets_a_response(
    pod: &Pod,
    start: fn(&User, SocketAddr) -> Sockets,
    server: impl Fn(Family) -> IpAddr,
) {
    let families = pod.fixture.families();
    let once: Vec<_> = families.iter().map(|f| start(&pod.app(), at(server(*f), 53))).collect();
    pod.apply(&DNS);
    thread::sleep(SETTLED);
    once.iter().for_each(Sockets::stop);
    for sockets in once {
        assert_eq!(sockets.end(), 0, "queries without a response");
    }
}

/// The rules may be complete already when a run is killed; the entries are not.
fn a_killed_change_is_completed_by_the_next_run(fixture: Fixture) {
    for moment in (2..14).map(|step| Duration::from_millis(step * 2)) {
        let pod = fixture.pod();
        let _servers = name_servers(&pod);
        pod.istio_iptables(&DNS).arg("-o").arg("53").run().succeeded();
        let outcomes = through(resolvers(&pod, 1000, 27_000), || {
            pod.istio_iptables(&DNS).run_and_kill_after(moment);
            pod.apply(&DNS);
        });
        outcomes.iter().for_each(Outcomes::newly_captured);
    }
}
