//! Pods that are broken in one way each, and pods that are fine: the first command, `explain --live` without
//! a question, has the cause as its only problem, or none.

use std::net::TcpListener;
use std::process::Child;

use netlab::{Listen, Server};

use crate::broken_pods::{OPTIONS, problems};
use crate::explain_runtime::{start, stop};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Pod, for_these_fixtures};

for_these_fixtures!(
    nft: IptablesNft Dual, legacy: IptablesLegacy Dual, native: Native Dual;
    [
        eight_broken_pods_have_their_cause_as_the_only_problem,
        declared_ports_without_a_listener_are_named,
        pods_without_inbound_ports_have_a_note_at_most,
        rules_that_capture_nothing_are_a_problem
    ]
);

const AS_PROXY: &str = "setpriv --reuid=1337 --regid=1337 --clear-groups cat";

/// Ports as the injector writes them.
fn declared(ports: &[u16]) -> String {
    let port = |port: &u16| format!(r#"{{"name":"p{port}","containerPort":{port},"protocol":"TCP"}}"#);
    format!("[{}]", ports.iter().map(port).collect::<Vec<_>>().join(","))
}

/// What runs in a pod until its end.
#[derive(Default)]
struct Running {
    servers: Vec<Server>,
    listeners: Vec<TcpListener>,
    processes: Vec<Child>,
}

impl Running {
    fn ends(self) {
        let Self { servers, listeners, processes } = self;
        processes.into_iter().for_each(stop);
        drop((servers, listeners));
    }
}

/// Waits until the processes have their program and their user.
fn have_begun(processes: &[Child]) {
    let has_begun = |process: &Child| {
        let file = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", process.id()));
        file("comm").is_ok_and(|name| name == "cat\n")
    };
    while !processes.iter().all(has_begun) {
        std::thread::yield_now();
    }
}

/// A proxy with the variables that the injector gives it: the ports that the containers of its pod declare.
fn proxy_of_pod_with(pod: &Pod, ports: &str) -> Running {
    let both = [15001, 15006].into_iter().flat_map(|port| [("0.0.0.0", port), ("::", port)]);
    let bind = |at: (&str, u16)| pod.proxy().run(|| TcpListener::bind(at).expect("a listener"));
    let listeners: Vec<_> = both.map(bind).collect();
    let program = format!("env ISTIO_META_POD_PORTS={ports} {AS_PROXY}");
    let processes = vec![start(pod, &program, listeners.first())];
    have_begun(&processes);
    Running { listeners, processes, ..Running::default() }
}

fn fine(pod: &Pod) -> Running {
    Running { servers: vec![pod.proxy_listens_without_dns(), pod.app_listens(&[8080])], ..Running::default() }
}

fn foreign_accept(pod: &Pod) -> Running {
    let running = fine(pod);
    pod.apply(&OPTIONS);
    if pod.fixture.backend == Backend::Native {
        let rule = "insert rule inet istio-proxy-nat output ip daddr 10.0.0.0/8 accept\n";
        pod.namespace.run(|| tool("nft", &["-f", "-"], rule));
    } else {
        pod.iptables(Family::V4, "-t nat -I OUTPUT -d 10.0.0.0/8 -j ACCEPT");
    }
    running
}

fn proxy_is_not_listening(pod: &Pod) -> Running {
    let running = Running { servers: vec![pod.app_listens(&[8080])], ..Running::default() };
    pod.apply(&OPTIONS);
    running
}

fn app_as_1337(pod: &Pod) -> Running {
    pod.apply(&OPTIONS);
    let mut running = proxy_of_pod_with(pod, "[]");
    running.servers.push(pod.app_listens(&[8080]));
    // Another container: its own mounts.
    running.processes.push(start(pod, &format!("unshare -m {AS_PROXY}"), None));
    have_begun(&running.processes);
    running
}

fn too_wide(pod: &Pod) -> Running {
    let running = fine(pod);
    pod.apply(&[&OPTIONS[..], &["-x", "0.0.0.0/1"]].concat());
    running
}

fn flushed(pod: &Pod) -> Running {
    let running = fine(pod);
    pod.apply(&OPTIONS);
    if pod.fixture.backend == Backend::Native {
        pod.namespace.run(|| tool("nft", &["flush", "ruleset"], ""));
    } else {
        for family in [Family::V4, Family::V6] {
            pod.iptables(family, "-t nat -F");
        }
    }
    running
}

fn without_ipv6(pod: &Pod) -> Running {
    let running = fine(pod);
    pod.bare_istio_iptables(&OPTIONS).run().succeeded();
    running
}

fn without_dns(pod: &Pod) -> Running {
    let servers = vec![pod.proxy_listens(), pod.app_listens(&[8080])];
    pod.apply(&OPTIONS);
    Running { servers, ..Running::default() }
}

/// The app's process has ended.
fn app_is_not_listening(pod: &Pod) -> Running {
    pod.apply(&OPTIONS);
    proxy_of_pod_with(pod, &declared(&[8080]))
}

fn eight_broken_pods_have_their_cause_as_the_only_problem(fixture: Fixture) {
    type Broken = (fn(&Pod) -> Running, &'static str, &'static str);
    let broken: [Broken; 8] = [
        (foreign_accept, "foreign-rule", "-d 10.0.0.0/8 -j ACCEPT"),
        (proxy_is_not_listening, "proxy-not-listening", "outbound port 15001, inbound port 15006"),
        (app_as_1337, "app-as-proxy", "(cat) is not captured: it runs as uid 1337"),
        (too_wide, "wide-exclusion", "50 % of IPv4"),
        (flushed, "no-rules", "no rule of istio-iptables"),
        (without_ipv6, "ipv6-not-captured", "no rule is for IPv6"),
        (without_dns, "dns-not-captured", "15053"),
        (app_is_not_listening, "app-not-listening", "no process listens on TCP port 8080"),
    ];
    for (breaks, id, cause) in broken {
        let pod = fixture.pod();
        let running = breaks(&pod);
        let found = problems(&pod, &[]);
        let [[first, of_first, _]] = found.as_slice() else { panic!("{id}: {found:?}") };
        assert_eq!(first, id, "{found:?}");
        assert!(of_first.contains(cause), "{of_first}");
        running.ends();
    }
}

/// A port that the options exclude is none of capture.
fn declared_ports_without_a_listener_are_named(fixture: Fixture) {
    let found = |declared: &str| {
        let pod = fixture.pod();
        let _app = pod.app_listens(&[8080]);
        pod.apply(&[&OPTIONS[..], &["-d", "9999"]].concat());
        let proxy = proxy_of_pod_with(&pod, declared);
        let found = problems(&pod, &[]);
        proxy.ends();
        found
    };
    let unserved = found(&declared(&[8080, 9090, 9999]));
    let [[id, cause, _]] = unserved.as_slice() else { panic!("{unserved:?}") };
    assert_eq!(id, "app-not-listening");
    assert!(cause.contains("TCP port 9090") && cause.contains("the pod declares"), "{cause}");
    for nothing in ["[]", "[{}]", "{", &declared(&[0])] {
        assert_eq!(found(nothing), [[""; 3]; 0], "{nothing}");
    }
}

pub(crate) const NOTE: &str = "note: no process of the app listens on a captured TCP port";

/// A job, for instance, whose pod declares no port.
fn pods_without_inbound_ports_have_a_note_at_most(fixture: Fixture) {
    let pod = fixture.pod();
    let _proxy = pod.proxy_listens_without_dns();
    let explain = ["explain", "--live", "--expect", "no-problem"];
    for (inbound, has_note) in [("*", true), ("", false)] {
        pod.apply(&["-i", "*", "-b", inbound]);
        assert_eq!(problems(&pod, &[]), [[""; 3]; 0]);
        let said = pod.bare_istio_iptables(&explain).run().ended_with(0).stdout();
        assert_eq!(said.contains(NOTE), has_note, "{said}");
    }
    pod.apply(&OPTIONS);
    let said = || pod.bare_istio_iptables(&explain).run().ended_with(0).stdout();
    let local = pod.app().serve("app", &[Listen::TcpAt(at(Family::V4.loopback(), 8080))]);
    assert!(said().contains(NOTE), "{}", said());
    drop(local);
    // As whichever user.
    for processes in [pod.app(), pod.proxy()] {
        let _app = processes.serve("app", &[Listen::Tcp(9090)]);
        assert!(!said().contains(NOTE), "{}", said());
    }
}

/// Chains without a range or a port have no effect.
fn rules_that_capture_nothing_are_a_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&["-u", "1337"]);
    let found = problems(&pod, &[]);
    let [[id, cause, fix]] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(id, "captures-nothing", "{found:?}");
    assert!(cause.contains("no inbound port and no outbound range"), "{cause}");
    assert!(fix.contains("-i '*'") && fix.contains("-b '*'"), "{fix}");
    pod.bare_istio_iptables(&["check"]).run().ended_with(0).output_contains("note: captures-nothing: ");
    for some in [["-i", "10.0.0.0/8"], ["-b", "8080"], ["-q", "80"]] {
        pod.apply(&some);
        assert_eq!(problems(&pod, &[]), [[""; 3]; 0], "{some:?}");
    }
}
