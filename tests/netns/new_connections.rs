//! New connections while a pod enters the mesh or changes its options: none bypasses the proxy, none is
//! refused.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::established::{REDIRECT, TPROXY, apply_family, captures};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::slow::slow_down;
use crate::lab::socket::Binding;
use crate::lab::tools::WaitingTools;
use crate::lab::user::{Conversation, Ending, call_here};
use crate::lab::{Family, Fixture, Outcome, Pod, User, for_each_backend_and_native, for_these_fixtures};
use crate::open_connections::OpenConnections;

for_each_backend_and_native!(
    first_capture_has_no_gap_for_new_connections,
    first_capture_of_a_second_family_leaves_no_gap_in_the_first_one,
    entry_that_began_with_a_reply_does_not_bypass_the_proxy,
    closed_entry_of_the_other_direction_does_not_bypass_the_proxy,
    closed_entry_of_the_other_direction_is_deleted_by_a_change_of_options,
    slow_packets_do_not_bypass_the_proxy_while_the_mode_changes,
);
// The run is held up in its restore tools.
for_these_fixtures!(
    held_nft: IptablesNft Dual, held_legacy: IptablesLegacy Dual;
    [no_connection_reaches_the_proxy_with_the_clients_address_as_its_target]
);

/// Time between two calls of one caller.
const PAUSE: Duration = Duration::from_millis(5);

/// Calls are direct, and from some moment on captured; none is refused, and none that begins after the run is
/// direct.
fn first_capture_has_no_gap_for_new_connections(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        for _ in 0..5 {
            let pod = fixture.pod();
            let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
            let held = OpenConnections::open(&pod, fixture.families(), 10, "app", "outside");
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

/// A SYN passes mangle before the change and nat after it, or the other way round.
fn slow_packets_do_not_bypass_the_proxy_while_the_mode_changes(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    slow_down(&pod, "tcp flags & (syn | ack) == syn", &["prerouting"]);
    pod.apply(&REDIRECT);
    // Several clients: a packet is there at any moment.
    let clients = |family: &Family| (0..4).flat_map(|_| Caller::both(&pod, *family)).collect::<Vec<_>>();
    let callers: Vec<Caller> = fixture.families().iter().flat_map(clients).collect();
    let (stop, captured) = (AtomicBool::new(false), AtomicBool::new(true));
    thread::scope(|scope| {
        for caller in &callers {
            scope.spawn(|| caller.call_until(&stop, &captured));
        }
        let changes = std::panic::AssertUnwindSafe(|| {
            for options in [&TPROXY[..], &REDIRECT].repeat(6) {
                pod.apply(options);
                wait_for_calls(&callers);
            }
        });
        let ended = std::panic::catch_unwind(changes);
        stop.store(true, Ordering::SeqCst);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    for caller in &callers {
        let wrong = caller.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{}: {wrong:?}", caller.name);
    }
}

/// Until the run has turned the entries round that began with a reply, the proxy would ask one of them where
/// a new connection was for.
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
        let _open = OpenConnections::open(&pod, fixture.families(), 1, "app", "outside");
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
                let Outcome::Responded(response) = outcome else { panic!("{options:?}: {outcome:?}") };
                assert!(response.server == "app" || response.original == to, "{options:?}: {response:?}");
            }
        });
        for family in fixture.families() {
            let (from, to) = ends(family);
            pod.outside().call_from(from, to).captured(15006, to);
        }
    }
}

/// As connection tracking makes it if the first packet that it sees is the server's.
fn entry_that_began_with_a_reply_does_not_bypass_the_proxy(fixture: Fixture) {
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
fn closed_entry_of_the_other_direction_is_deleted_by_a_change_of_options(fixture: Fixture) {
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
    let held = OpenConnections::open(&pod, fixture.families(), 1, "app", "outside");
    pod.apply(&REDIRECT);
    for &family in fixture.families() {
        pod.app().call_from(here(family), there(family)).captured(15001, there(family));
    }
    held.all_alive();
}

/// The family that is captured already stays so while the first capture of the other one exempts TCP: at each
/// point of the run up to the one where that begins, and, where the run was killed there, at each point of
/// the run that completes it.
fn first_capture_of_a_second_family_leaves_no_gap_in_the_first_one(fixture: Fixture) {
    let dual = |pod: &Pod| pod.bare_istio_iptables(&[&REDIRECT[..], &["--ip-family", "dual"]].concat());
    // Where the first of two runs is killed.
    let mut exempt_at = None;
    for killed_twice in [false, true] {
        let in_new_pod = |work: &mut dyn FnMut(&Pod)| {
            let pod = fixture.pod();
            let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
            apply_family(&pod, &REDIRECT, "ipv4");
            let held = OpenConnections::open(&pod, &[Family::V6], 3, "app", "outside");
            if killed_twice {
                let (number, when) = exempt_at.expect("a first capture with open connections exempts TCP");
                dual(&pod).run_and_kill_at_send(number, when).ended_with(-1);
            }
            work(&pod);
            captures(&pod, &[Family::V4]);
            let exempts = exempts(&pod);
            apply_family(&pod, &REDIRECT, "dual");
            captures(&pod, &[Family::V4, Family::V6]);
            held.all_alive();
            exempts
        };
        let mut points = Vec::new();
        in_new_pod(&mut |pod| points = dual(pod).points());
        for (number, when) in points {
            let exempts = in_new_pod(&mut |pod| {
                dual(pod).run_and_kill_at_send(number, when).ended_with(-1);
            });
            if exempts && !killed_twice {
                exempt_at = Some((number, when));
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
                matches!(&outcome, Outcome::Responded(a) if a.server == "proxy" && a.original == self.target);
            let direct = matches!(&outcome, Outcome::Responded(a) if a.server == self.direct);
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
