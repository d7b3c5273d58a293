//! Connections that are open while a pod enters the mesh, changes its options, or leaves the mesh.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::held::{ECHO_LIMIT, Held, during_all};
use crate::lab::fixture::at;
use crate::lab::kill::When;
use crate::lab::program::{Ended, tool};
use crate::lab::server::Listen;
use crate::lab::socket::Binding;
use crate::lab::tools::WaitingTools;
use crate::lab::user::{Conversation, Ending, call_here};
use crate::lab::{
    Backend, Family, Fixture, Outcome, Pod, User, for_each_backend_and_native, for_these_fixtures,
};

for_each_backend_and_native!(
    first_capture_keeps_1000_connections,
    first_capture_with_tproxy_keeps_1000_connections,
    first_capture_of_a_second_family_keeps_its_connections,
    first_capture_has_no_gap_for_new_connections,
    first_capture_of_a_second_family_leaves_no_gap_in_the_first_one,
    first_capture_that_is_killed_is_completed_by_the_next_run,
    ipv4_connections_of_ipv6_sockets_survive_first_capture,
    half_closed_connections_survive_first_capture,
    connections_that_other_rules_track_survive_first_capture,
    entry_that_began_with_an_answer_does_not_bypass_the_proxy,
    closed_entry_of_the_other_direction_does_not_bypass_the_proxy,
    closed_entry_of_the_other_direction_goes_with_a_change_of_options,
    without_sockets_each_family_is_written_once,
    option_changes_reset_no_connection,
);
// The run is held up in its restore tools.
for_these_fixtures!(
    held_nft: IptablesNft Dual, held_legacy: IptablesLegacy Dual;
    [no_connection_reaches_the_proxy_with_the_clients_address_as_its_target]
);

pub(crate) const REDIRECT: [&str; 4] = ["-b", "*", "-i", "*"];
pub(crate) const TPROXY: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];
/// Time between two calls of one caller.
const PAUSE: Duration = Duration::from_millis(5);

fn first_capture_keeps_1000_connections(fixture: Fixture) {
    first_capture(fixture, &REDIRECT, 125);
}

fn first_capture_with_tproxy_keeps_1000_connections(fixture: Fixture) {
    first_capture(fixture, &TPROXY, 125);
}

/// As many connections in each family and direction, idle and busy.
fn first_capture(fixture: Fixture, options: &[&str], each: usize) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let held = Held::open(&pod, fixture.families(), each, "app", "outside");
    let ended = held.during(|| pod.apply(options));
    let output = ended.output();
    assert!(!output.contains("ISTIO_ESTABLISHED"), "{output}");
    captures(&pod, fixture.families());
    held.all_alive();
    let fresh = fixture.pod();
    fresh.apply(options);
    assert_eq!(pod.state(), fresh.state(), "what a fresh pod has, and nothing else");
}

fn first_capture_of_a_second_family_keeps_its_connections(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        apply_family(&pod, options, "ipv4");
        let captured = Held::open(&pod, &[Family::V4], 10, "proxy", "proxy");
        let direct = Held::open(&pod, &[Family::V6], 10, "app", "outside");
        direct.during(|| captured.during(|| apply_family(&pod, options, "dual")));
        captures(&pod, &[Family::V4, Family::V6]);
        captured.all_alive();
        direct.all_alive();
    }
}

/// Calls are direct, and from some moment on captured; none is refused, and none that begins after the run is direct.
fn first_capture_has_no_gap_for_new_connections(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        for _ in 0..5 {
            let pod = fixture.pod();
            let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
            let held = Held::open(&pod, fixture.families(), 10, "app", "outside");
            let callers: Vec<Caller> =
                fixture.families().iter().flat_map(|f| Caller::both(&pod, *f)).collect();
            let (stop, captured) = (AtomicBool::new(false), AtomicBool::new(false));
            thread::scope(|scope| {
                for caller in &callers {
                    scope.spawn(|| caller.call_until(&stop, &captured));
                }
                let run = std::panic::AssertUnwindSafe(|| {
                    wait_for_calls(&callers);
                    held.during(|| pod.apply(options));
                    captured.store(true, Ordering::SeqCst);
                    wait_for_calls(&callers);
                });
                let ended = std::panic::catch_unwind(run);
                stop.store(true, Ordering::SeqCst);
                ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            });
            for caller in &callers {
                let wrong = caller.wrong.lock().unwrap();
                let made = caller.made.load(Ordering::SeqCst);
                assert!(wrong.is_empty(), "{}, {options:?}, of {made} calls: {wrong:?}", caller.name);
            }
            held.all_alive();
        }
    }
}

/// Until the run has turned the entries round that began with an answer, the proxy would ask one of them where a new
/// connection was for.
fn no_connection_reaches_the_proxy_with_the_clients_address_as_its_target(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        let ends = |family: &Family| (at(family.outside(), 40_500), at(family.pod(), 8080));
        for family in fixture.families() {
            pod.iptables(*family, "-A INPUT -m conntrack --ctstate INVALID -j ACCEPT");
        }
        for family in fixture.families() {
            let (from, to) = ends(family);
            let binding = Binding { source: Some(from), spoofed_mark: None };
            let conversation = pod.outside().run(|| Conversation::to(to, binding)).expect("a connection");
            // The kernel's own entry has the right direction.
            pod.namespace.run(|| tool("conntrack", &["-D", "-p", "tcp", "--sport", "40500"], ""));
            let (server, client) = (to.ip().to_string(), from.ip().to_string());
            let entry =
                ["-I", "-p", "tcp", "-s", &server, "-d", &client, "--sport", "8080", "--dport", "40500"];
            let state = ["--state", "ESTABLISHED", "-t", "100", "-u", "SEEN_REPLY,ASSURED"];
            pod.namespace.run(|| tool("conntrack", &[&entry[..], &state].concat(), ""));
            conversation.end(Ending::ResetByServer);
        }
        let _open = Held::open(&pod, fixture.families(), 1, "app", "outside");
        let tools = WaitingTools::after_call(fixture.families().len());
        let run = pod.istio_iptables(options).env("PATH", &tools.path());
        thread::scope(|scope| {
            let run = scope.spawn(|| run.run().succeeded());
            tools.wait_until_called();
            let outcomes: Vec<_> = fixture
                .families()
                .iter()
                .map(ends)
                .map(|(from, to)| (pod.outside().call_from(from, to), to))
                .collect();
            tools.go_on();
            run.join().expect("the run was started");
            for (outcome, to) in outcomes {
                let Outcome::Answered(answer) = outcome else { panic!("{options:?}: {outcome:?}") };
                assert!(answer.server == "app" || answer.original == to, "{options:?}: {answer:?}");
            }
        });
        for family in fixture.families() {
            let (from, to) = ends(family);
            pod.outside().call_from(from, to).captured(15006, to);
        }
    }
}

/// As connection tracking makes it if the first packet that it sees is the server's.
fn entry_that_began_with_an_answer_does_not_bypass_the_proxy(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
        let ends = |family: &Family| (at(family.outside(), 40_500), at(family.pod(), 8080));
        let open = |(from, to): (SocketAddr, SocketAddr)| {
            let binding = Binding { source: Some(from), spoofed_mark: None };
            let conversation = pod.outside().run(|| Conversation::to(to, binding)).expect("a connection");
            make_entry(&pod, to, from, "ESTABLISHED");
            conversation
        };
        let held: Vec<_> = fixture.families().iter().map(|family| open(ends(family))).collect();
        pod.apply(options);
        for (mut conversation, family) in held.into_iter().zip(fixture.families()) {
            conversation.echo("still there").expect("the connection lives on");
            conversation.end(Ending::Reset);
            let (from, to) = ends(family);
            pod.outside().call_from(from, to).captured(15006, to);
        }
    }
}

/// Makes an entry of a connection that `source` began.
fn make_entry(pod: &Pod, source: SocketAddr, destination: SocketAddr, state: &str) {
    let [from, to] = [source, destination].map(|end| end.ip().to_string());
    let [sport, dport] = [source, destination].map(|end| end.port().to_string());
    let ends = ["-I", "-p", "tcp", "-s", &from, "-d", &to, "--sport", &sport, "--dport", &dport];
    let state = ["--state", state, "-t", "100", "-u", "SEEN_REPLY,ASSURED"];
    pod.namespace.run(|| tool("conntrack", &[&ends[..], &state].concat(), ""));
}

/// A packet of the server can make one while a run is under way.
fn closed_entry_of_the_other_direction_goes_with_a_change_of_options(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
        pod.apply(options);
        let ends = |family: Family| (at(family.outside(), 40_700), at(family.pod(), 8080));
        for &family in fixture.families() {
            let (client, server) = ends(family);
            make_entry(&pod, server, client, "CLOSE");
        }
        pod.apply(&[options, &["-d", "9999"]].concat());
        for &family in fixture.families() {
            let (client, server) = ends(family);
            pod.outside().call_from(client, server).captured(15006, server);
        }
    }
}

/// A SYN against the direction of a closed entry is invalid, and no rule redirects it.
fn closed_entry_of_the_other_direction_does_not_bypass_the_proxy(fixture: Fixture) {
    let pod = fixture.pod();
    let (there, here) =
        (|family: Family| at(family.service(), 80), |family: Family| at(family.pod(), 40_600));
    let listener = pod.app_listens(&[40_600]);
    for &family in fixture.families() {
        pod.iptables(family, "-t filter -A INPUT -m conntrack --ctstate INVALID");
        let binding = Binding { source: Some(there(family)), spoofed_mark: None };
        let called = pod.outside().run(|| Conversation::to(here(family), binding)).expect("a connection");
        called.end(Ending::Reset);
    }
    drop(listener);
    while pod.namespace.run(|| tool("ss", &["-Hlnt", "sport", "=", ":40600"], "")).contains("LISTEN") {
        thread::sleep(PAUSE);
    }
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let held = Held::open(&pod, fixture.families(), 1, "app", "outside");
    pod.apply(&REDIRECT);
    for &family in fixture.families() {
        pod.app().call_from(here(family), there(family)).captured(15001, there(family));
    }
    held.all_alive();
}

fn first_capture_that_is_killed_is_completed_by_the_next_run(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let fresh = fixture.pod();
        fresh.apply(options);
        for step in 0..30_u64 {
            let moment = Duration::from_micros(step * step * 60);
            let pod = fixture.pod();
            let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
            let held = Held::open(&pod, fixture.families(), 3, "app", "outside");
            held.during(|| {
                pod.istio_iptables(options).run_and_kill_after(moment);
                pod.apply(options);
            });
            assert_eq!(pod.state(), fresh.state(), "{options:?}, killed after {moment:?}");
            held.all_alive();
        }
    }
}

/// The family that is captured already stays so while the first capture of the other one exempts TCP: after the message
/// with which that begins, and, where the run was killed there, after each message of the run that completes it.
fn first_capture_of_a_second_family_leaves_no_gap_in_the_first_one(fixture: Fixture) {
    let dual = |pod: &Pod| pod.bare_istio_iptables(&[&REDIRECT[..], &["--ip-family", "dual"]].concat());
    // The message after which the first of two runs is killed.
    let mut exempt_after = None;
    for killed_twice in [false, true] {
        for number in 1.. {
            let pod = fixture.pod();
            let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
            apply_family(&pod, &REDIRECT, "ipv4");
            let held = Held::open(&pod, &[Family::V6], 3, "app", "outside");
            if killed_twice {
                let at = exempt_after.expect("a first capture with open connections exempts TCP");
                dual(&pod).run_and_kill_at_send(at, When::After).ended_with(-1);
            }
            let ended = dual(&pod).run_and_kill_at_send(number, When::After);
            captures(&pod, &[Family::V4]);
            if exempts(&pod) {
                exempt_after.get_or_insert(number);
            }
            apply_family(&pod, &REDIRECT, "dual");
            captures(&pod, &[Family::V4, Family::V6]);
            held.all_alive();
            if ended.code() == 0 || (exempt_after.is_some() && !killed_twice) {
                break;
            }
        }
    }
}

/// Whether TCP over IPv6 is exempt.
fn exempts(pod: &Pod) -> bool {
    let state = pod.state();
    let first = state.chain("ip6 nat ISTIO_REDIRECT").first();
    first.is_some_and(|rule| rule == "-p tcp -j RETURN") || format!("{state:?}").contains("open-connection")
}

/// Servers often listen on `::` for both families; the addresses of their IPv4 connections are mapped ones.
fn ipv4_connections_of_ipv6_sockets_survive_first_capture(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _proxy = pod.proxy_listens();
        // Sockets from now on: `::` takes IPv4 connections too.
        pod.namespace.run(|| std::fs::write("/proc/sys/net/ipv6/bindv6only", "0").unwrap());
        let _app = pod.app().serve("app", &[Listen::TcpAt("[::]:8080".parse().unwrap())]);
        let target = at(Family::V4.pod(), 8080);
        let mut open: Vec<Conversation> =
            (0..20).map(|_| pod.outside().connect(target).expect("a call")).collect();
        apply_family(&pod, options, "ipv4");
        for conversation in &mut open {
            conversation.echo_within("still there", ECHO_LIMIT).expect("an open connection");
        }
        pod.outside().call(target).captured(15006, target);
    }
}

/// The client has ended its direction and still reads.
fn half_closed_connections_survive_first_capture(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
        for &family in fixture.families() {
            let target = at(family.pod(), 8080);
            let listener = pod.app().run(|| TcpListener::bind(target).unwrap());
            let mut caller = pod.outside().run(|| TcpStream::connect(target).unwrap());
            let (mut server, _) = listener.accept().unwrap();
            caller.shutdown(Shutdown::Write).unwrap();
            assert_eq!(server.read(&mut [0]).unwrap(), 0, "the end of what the caller says");
            pod.apply(options);
            server.write_all(b"late").unwrap();
            drop(server);
            let mut answer = String::new();
            caller.set_read_timeout(Some(ECHO_LIMIT)).unwrap();
            caller.read_to_string(&mut answer).expect("the answer to a half-closed connection");
            assert_eq!(answer, "late", "{family:?} {options:?}");
            pod.apply(&["--cleanup-only"]);
        }
    }
}

/// A foreign rule has switched connection tracking on before; idle connections that it has not seen have no entry.
fn connections_that_other_rules_track_survive_first_capture(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        let unseen = Held::open(&pod, fixture.families(), 5, "app", "outside");
        let tracking = "-t filter -A INPUT -m conntrack --ctstate INVALID -j DROP";
        let foreign = "-t nat -A OUTPUT -p tcp ! --syn -j ACCEPT";
        for &family in fixture.families() {
            pod.iptables(family, tracking);
            pod.iptables(family, foreign);
        }
        let seen = Held::open(&pod, fixture.families(), 5, "app", "outside");
        seen.during(|| pod.apply(options));
        unseen.all_alive();
        seen.all_alive();
        captures(&pod, fixture.families());
        for &family in fixture.families() {
            let saved = pod.save(family);
            assert!(
                saved.contains("-A OUTPUT -p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j ACCEPT"),
                "{saved}"
            );
        }
        pod.apply(&["--cleanup-only"]);
        for &family in fixture.families() {
            let saved = pod.save(family);
            assert!(saved.contains("! --tcp-flags FIN,SYN,RST,ACK SYN -j ACCEPT"), "{saved}");
        }
    }
}

fn without_sockets_each_family_is_written_once(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let output = pod.apply(options).output();
        let written = output.matches("Writing following contents to rules file").count();
        let replaced = output.matches("nftables: replace the tables").count();
        let expected = match fixture.backend {
            Backend::Native => (0, 1),
            Backend::IptablesNft | Backend::IptablesLegacy => (fixture.families().len(), 0),
        };
        assert_eq!((written, replaced), expected, "{output}");
        assert!(!output.contains("-A ISTIO_REDIRECT -p tcp -j RETURN"), "{output}");
    }
}

/// Connections of every age live through every change: of the mode, of the families, of ports and of owners.
fn option_changes_reset_no_connection(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let mut held = vec![Held::open(&pod, fixture.families(), 10, "app", "outside")];
    let changes: [(&[&str], &str); 12] = [
        (&REDIRECT, "ipv4"),
        (&REDIRECT, "dual"),
        (&TPROXY, "dual"),
        (&REDIRECT, "ipv4"),
        (&TPROXY, "dual"),
        (&TPROXY, "ipv6"),
        (&REDIRECT, "dual"),
        (&["-b", "8080", "-i", "*", "--redirect-dns", "--capture-all-dns", "--drop-invalid"], "dual"),
        (&["-b", "8080", "-q", "80", "-m", "TPROXY"], "dual"),
        (&["-b", "9090", "-i", "10.0.0.0/8"], "ipv4"),
        (&TPROXY, "ipv4"),
        (&REDIRECT, "dual"),
    ];
    for (options, families) in changes {
        during_all(&held, &|| {
            apply_family(&pod, options, families);
        });
        for held in &held {
            held.all_alive_after(&format!("{options:?} {families}"));
        }
        held.push(Held::open_anywhere(&pod, fixture.families(), 5));
    }
}

/// Applies options for these families only.
pub(crate) fn apply_family(pod: &Pod, options: &[&str], families: &str) -> Ended {
    pod.bare_istio_iptables(&[options, &["--ip-family", families]].concat()).run().succeeded()
}

#[track_caller]
fn captures(pod: &Pod, families: &[Family]) {
    for &family in families {
        let (inbound, outbound) = (at(family.pod(), 8080), at(family.service(), 80));
        pod.outside().call(inbound).captured(15006, inbound);
        pod.app().call(outbound).captured(15001, outbound);
    }
}

/// Calls the same target again and again.
struct Caller {
    name: String,
    user: User,
    target: SocketAddr,
    /// Who serves a call that is not captured.
    direct: &'static str,
    made: AtomicUsize,
    wrong: Mutex<Vec<Outcome>>,
}

impl Caller {
    fn both(pod: &Pod, family: Family) -> [Self; 2] {
        let new = |name: &str, user, target, direct| Self {
            name: format!("{name} {family:?}"),
            user,
            target,
            direct,
            made: AtomicUsize::new(0),
            wrong: Mutex::default(),
        };
        [
            new("inbound", pod.outside(), at(family.pod(), 8080), "app"),
            new("outbound", pod.app(), at(family.service(), 80), "outside"),
        ]
    }

    fn call_until(&self, stop: &AtomicBool, must_be_captured: &AtomicBool) {
        self.user.switch_thread();
        let mut was_captured = false;
        while !stop.load(Ordering::SeqCst) {
            let must = must_be_captured.load(Ordering::SeqCst) || was_captured;
            let outcome = call_here(self.target, Binding::default());
            let captured =
                matches!(&outcome, Outcome::Answered(a) if a.server == "proxy" && a.original == self.target);
            let direct = matches!(&outcome, Outcome::Answered(a) if a.server == self.direct);
            if !(captured || direct && !must) {
                self.wrong.lock().unwrap().push(outcome);
            }
            was_captured |= captured;
            self.made.fetch_add(1, Ordering::SeqCst);
            thread::sleep(PAUSE);
        }
    }
}

fn wait_for_calls(callers: &[Caller]) {
    let made = |caller: &Caller| caller.made.load(Ordering::SeqCst);
    let goals: Vec<_> = callers.iter().map(|caller| made(caller) + 40).collect();
    while callers.iter().zip(&goals).any(|(caller, target)| made(caller) < *target) {
        thread::sleep(PAUSE);
    }
}
