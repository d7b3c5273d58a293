//! Rules that move from one backend to another, in TPROXY mode, while connections are open and new ones come.

use std::collections::HashSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::thread;
use std::time::Duration;

use istio_iptables::kernel::conntrack::{Conntrack, Entry, Filter};
use istio_iptables::model::Transport;

use crate::lab::fixture::at;
use crate::lab::program::{Ended, tool};
use crate::lab::socket::Binding;
use crate::lab::traffic::{Flow, Traffic};
use crate::lab::user::Conversation;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend, for_these_fixtures};

for_each_backend!(
    no_connection_is_lost_in_a_move_there_and_back,
    no_inbound_connection_is_lost_in_a_move_with_other_options,
    no_connection_is_lost_when_a_move_is_killed_after_any_step,
    no_connection_is_lost_when_any_step_of_a_move_fails,
    no_inbound_connection_is_lost_in_a_move_from_istios_native_nftables,
    connections_that_two_sets_with_unlimited_save_rules_stopped_are_healed,
    marks_of_two_sets_are_cleared_by_cleanup_too,
);
for_these_fixtures!(
    native: Native Dual;
    [
        no_connection_is_lost_in_a_move_there_and_back,
        no_inbound_connection_is_lost_in_a_move_with_other_options,
        no_connection_is_lost_when_a_move_is_killed_after_any_step,
        no_connection_is_lost_when_any_step_of_a_move_fails,
        no_inbound_connection_is_lost_in_a_move_from_istios_native_nftables,
    ]
);
for_these_fixtures!(
    auto: IptablesNft Dual;
    [foreign_legacy_rule_does_not_change_backend]
);

const TPROXY: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];
/// OpenConnections inbound connections of each family.
const HELD: usize = 3;
/// Restore processes of a move in both families: the old rules are prepared, the new ones come, the old ones
/// leave, the new ones take their final form. To or from native nftables, which needs no process, half of
/// them.
const fn steps(fixture: Fixture) -> usize {
    match fixture.backend {
        Backend::IptablesNft | Backend::IptablesLegacy => 8,
        Backend::Native => 4,
    }
}

/// A call from outside.
const INBOUND: &str = "inbound";
/// A call of the proxy to the app with the caller's address.
const ORIGINAL_SOURCE: &str = "original source";
const TOOLS: &str = "/usr/sbin";

const fn other(backend: Backend) -> Backend {
    match backend {
        Backend::IptablesNft | Backend::Native => Backend::IptablesLegacy,
        Backend::IptablesLegacy => Backend::IptablesNft,
    }
}

fn no_connection_is_lost_in_a_move_there_and_back(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    move_to(&pod, fixture.backend);
    let once = pod.state();
    let traffic = traffic(&pod);
    let all = [Backend::IptablesNft, Backend::IptablesLegacy, Backend::Native];
    for other in [all, all].concat().into_iter().filter(|other| *other != fixture.backend) {
        move_to(&pod, other);
        traffic.goes_on();
        assert_eq!(rules_of_ours(&pod, fixture.backend), "", "the old rules are gone");
        move_to(&pod, fixture.backend);
        traffic.goes_on();
        assert_eq!(rules_of_ours(&pod, other), "", "the old rules are gone");
        assert_eq!(pod.state(), once);
    }
}

/// To another mark, to REDIRECT, and back to TPROXY.
fn no_inbound_connection_is_lost_in_a_move_with_other_options(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    let redirect = ["-b", "*", "-i", "*"];
    let other_mark = [&TPROXY[..], &["-t", "500", "-r", "200"]].concat();
    let (here, there) = (fixture.backend, other(fixture.backend));
    let apply = |args: &[&str], backend: Backend| {
        let run = pod.plain_istio_iptables(args).arg("--dual-stack").arg("--backend").arg(backend.flag());
        run.run().succeeded();
    };
    apply(&TPROXY, here);
    let (held, new) = flows(&pod);
    let traffic = Traffic::start(only_inbound(held), only_inbound(new));
    let moves =
        [(&other_mark[..], there), (&TPROXY, here), (&redirect, there), (&TPROXY, here), (&redirect, here)];
    for (args, backend) in moves {
        apply(args, backend);
        traffic.goes_on();
        assert_eq!(rules_of_ours(&pod, other(backend)), "", "{args:?}");
    }
}

fn only_inbound(flows: Vec<Flow>) -> Vec<Flow> {
    flows.into_iter().filter(|flow| flow.name.starts_with(INBOUND)).collect()
}

fn no_connection_is_lost_when_a_move_is_killed_after_any_step(fixture: Fixture) {
    stopped(fixture, "real \"$@\"; kill -9 $PPID; exit 0", -1);
}

fn no_connection_is_lost_when_any_step_of_a_move_fails(fixture: Fixture) {
    stopped(fixture, "echo 'line 1 failed' >&2; exit 1", 70);
}

/// Stops a move at each of its steps, leaves things so under traffic, and runs again.
fn stopped(fixture: Fixture, at_step: &str, code: i32) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    move_to(&pod, fixture.backend);
    let once = pod.state();
    let traffic = traffic(&pod);
    for step in 1..=steps(fixture) {
        let tools = counting_tools(step, at_step);
        to(&pod, other(fixture.backend), Some(tools.path())).ended_with(code);
        traffic.goes_on();
        move_to(&pod, other(fixture.backend));
        traffic.goes_on();
        assert_eq!(rules_of_ours(&pod, fixture.backend), "", "stopped at step {step}");
        move_to(&pod, fixture.backend);
        traffic.goes_on();
        assert_eq!(pod.state(), once, "stopped at step {step}");
    }
    // Or straight back from where it was stopped.
    for step in 1..=steps(fixture) {
        let tools = counting_tools(step, at_step);
        to(&pod, other(fixture.backend), Some(tools.path())).ended_with(code);
        move_to(&pod, fixture.backend);
        traffic.goes_on();
        assert_eq!(pod.state(), once, "turned back at step {step}");
    }
    let tools = counting_tools(0, "");
    to(&pod, other(fixture.backend), Some(tools.path())).succeeded();
    assert_eq!(fs::read_to_string(tools.path().join("count")).unwrap().trim(), steps(fixture).to_string());
}

/// What Istio's own binary writes with native nftables, as far as inbound connections meet it.
const ISTIO_NATIVE: &str = "table inet istio-proxy-mangle {
    chain istio-divert {
        counter meta mark set 1337
        counter accept
    }
    chain istio-tproxy {
        meta l4proto tcp ip daddr != 127.0.0.1 counter tproxy ip to :15006 meta mark set 1337 accept
        meta l4proto tcp ip6 daddr != ::1 counter tproxy ip6 to :15006 meta mark set 1337 accept
    }
    chain istio-inbound {
        meta l4proto tcp meta mark 1337 counter return
        iifname lo meta l4proto tcp meta mark != 1338 counter return
        meta l4proto tcp ct state related,established counter jump istio-divert
        meta l4proto tcp counter jump istio-tproxy
    }
    chain prerouting {
        type filter hook prerouting priority mangle; policy accept;
        meta l4proto tcp counter jump istio-inbound
        meta l4proto tcp meta mark 1337 counter ct mark set meta mark
    }
    chain output {
        type filter hook output priority mangle; policy accept;
        oifname lo meta l4proto tcp meta mark 1337 counter return
        meta l4proto tcp ct mark 1337 counter meta mark set ct mark
    }
}";

fn no_inbound_connection_is_lost_in_a_move_from_istios_native_nftables(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.namespace.run(|| tool("nft", &["-f", "-"], ISTIO_NATIVE));
    pod.ip("-4 rule add fwmark 1337 lookup 133\n-4 route add local default dev lo table 133\n\
            -6 rule add fwmark 1337 lookup 133\n-6 route add local default dev lo table 133");
    let (held, new) = flows(&pod);
    let inbound =
        |flows: Vec<Flow>| flows.into_iter().filter(|flow| flow.name.starts_with(INBOUND)).collect();
    let traffic = Traffic::start(inbound(held), inbound(new));
    move_to(&pod, fixture.backend);
    traffic.goes_on();
    let marks = pod.namespace.run(|| tool("nft", &["list", "ruleset", "inet"], ""));
    assert!(!marks.contains("counter jump istio-divert\n"), "Istio's rules carry no reasons: {marks}");
    assert_eq!(marks.is_empty(), fixture.backend != Backend::Native);
    let all = self::traffic(&pod);
    move_to(&pod, other(fixture.backend));
    traffic.goes_on();
    all.goes_on();
}

/// An earlier version had both sets live with rules that save the mark of every packet.
fn connections_that_two_sets_with_unlimited_save_rules_stopped_are_healed(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    move_to(&pod, fixture.backend);
    let once = pod.state();
    let (held, _) = flows(&pod);
    let mut held: Vec<_> = held.iter().map(|flow| (flow, flow.open().expect("a first call"))).collect();
    assert_eq!(marked(&pod, &held, INBOUND), []);
    assert_eq!(marked(&pod, &held, ORIGINAL_SOURCE).len(), 2);
    stop_inbound(&pod, &mut held);
    move_to(&pod, fixture.backend);
    assert_eq!(marked(&pod, &held, INBOUND), []);
    assert_eq!(marked(&pod, &held, ORIGINAL_SOURCE).len(), 2, "the proxy's calls keep their mark");
    for (flow, conversation) in &mut held {
        match (flow.name.starts_with(INBOUND), flow.to) {
            // The kernel replied to the misrouted reply with a reset. Nothing of it is left for the next
            // connection.
            (true, SocketAddr::V6(_)) => {
                conversation.hear("first").expect_err("a reset");
                let source = conversation.greeting.source;
                pod.outside().call_from(source, flow.to).captured(15006, flow.to);
            }
            (inbound, _) => {
                let heard = if inbound { conversation.hear("first") } else { Ok(()) };
                heard
                    .and_then(|()| conversation.echo("second"))
                    .unwrap_or_else(|e| panic!("{}: {e}", flow.name));
            }
        }
    }
    assert_eq!(pod.state(), once);
    assert_eq!(rules_of_ours(&pod, other(fixture.backend)), "");
}

/// Makes a second set live, as an earlier version did, and waits until each held inbound connection carries
/// the mark.
fn stop_inbound(pod: &Pod, held: &mut [(&Flow, Conversation)]) {
    for family in [Family::V4, Family::V6] {
        let (from, to) = (pod.fixture.backend, other(pod.fixture.backend));
        pod.namespace.run(|| {
            let saved = tool(&from.tool(family, "-save"), &["-t", "mangle"], "");
            tool(&to.tool(family, "-restore"), &["--noflush"], &saved)
        });
    }
    // Packets of the caller are enough to mark its connection; then no reply arrives any more.
    for (flow, conversation) in held.iter_mut().filter(|(flow, _)| flow.name.starts_with(INBOUND)) {
        conversation.say("first").unwrap_or_else(|e| panic!("{}: {e}", flow.name));
    }
    let mut stopped = HashSet::new();
    while stopped.len() < 2 * HELD {
        stopped.extend(marked(pod, held, INBOUND));
        thread::sleep(Duration::from_millis(10));
    }
}

/// Later rules would look at the marks again.
fn marks_of_two_sets_are_cleared_by_cleanup_too(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    move_to(&pod, fixture.backend);
    let (held, _) = flows(&pod);
    let held = only_inbound(held);
    let mut held: Vec<_> = held.iter().map(|flow| (flow, flow.open().expect("a first call"))).collect();
    stop_inbound(&pod, &mut held);
    pod.apply(&["--cleanup-only"]).output_contains("clear mark 1337");
    assert_eq!(marked(&pod, &held, INBOUND), []);
    for (flow, conversation) in held.iter_mut().filter(|(flow, _)| flow.to.is_ipv4()) {
        conversation.hear("first").unwrap_or_else(|e| panic!("{}: {e}", flow.name));
    }
    assert!(pod.state().is_empty(), "{:?}", pod.state());
}

/// The sources of those connections of a kind whose entry carries the mark.
fn marked(pod: &Pod, held: &[(&Flow, Conversation)], kind: &str) -> Vec<SocketAddr> {
    let entries = entries(pod);
    let flows = held.iter().filter(|(flow, _)| flow.name.starts_with(kind));
    let carries_mark = |source: &SocketAddr| {
        entries.iter().any(|entry| entry.mark == 1337 && entry.original.source == *source)
    };
    flows.map(|(_, held)| held.greeting.source).filter(carries_mark).collect()
}

/// The tracked TCP connections of a pod.
fn entries(pod: &Pod) -> Vec<Entry> {
    pod.namespace.run(|| {
        let mut table = Conntrack::open().expect("ctnetlink");
        let mut entries = table.dump(Filter::All).expect("conntrack entries");
        entries
            .retain(|entry| (entry.transport, entry.original.destination.port()) == (Transport::Tcp, 8080));
        entries
    })
}

/// A node agent adds a rule with the other variant between two runs with the same options.
fn foreign_legacy_rule_does_not_change_backend(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    let apply = |args: &[&str]| pod.plain_istio_iptables(&[&TPROXY, args].concat()).arg("--dual-stack").run();
    apply(&[]).succeeded();
    let once = pod.state();
    let traffic = traffic(&pod);
    for name in ["iptables-legacy", "ip6tables-legacy"] {
        let masquerade = ["--wait", "-t", "nat", "-A", "POSTROUTING", "-o", "none0", "-j", "MASQUERADE"];
        pod.namespace.run(|| tool(name, &masquerade, ""));
    }
    for args in [&[][..], &["--backend", "auto"], &["--backend", "iptables"]] {
        let ended = apply(args).succeeded();
        ended
            .output_contains("backend iptables-nft: it holds the live rules")
            .output_contains("already converged");
        traffic.goes_on();
        assert_eq!(pod.state(), once);
    }
    apply(&["-d", "15020"]).succeeded().output_contains("backend iptables-nft: it holds the live rules");
    traffic.goes_on();
    assert_eq!(rules_of_ours(&pod, Backend::IptablesLegacy), "");
    apply(&["--backend", "iptables-legacy"]).succeeded();
    traffic.goes_on();
    assert_eq!(rules_of_ours(&pod, Backend::IptablesNft), "");
    apply(&[]).succeeded().output_contains("backend iptables-legacy: it holds the live rules");
}

/// Runs with the same options in another backend, which must succeed and take no rule for a foreign one.
#[track_caller]
fn move_to(pod: &Pod, backend: Backend) {
    let output = to(pod, backend, None).succeeded().output();
    assert!(!output.contains("a foreign rule"), "{output}");
}

fn to(pod: &Pod, backend: Backend, tools: Option<&Path>) -> Ended {
    let run = pod.plain_istio_iptables(&TPROXY).arg("--dual-stack").arg("--backend").arg(backend.flag());
    match tools {
        Some(folder) => run.env("PATH", &format!("{}:{TOOLS}:/usr/bin:/bin", folder.display())).run(),
        None => run.run(),
    }
}

/// The rules of a variant that are in our chains or jump to them.
fn rules_of_ours(pod: &Pod, backend: Backend) -> String {
    if backend == Backend::Native {
        return pod.namespace.run(|| tool("nft", &["list", "tables", "inet"], ""));
    }
    let save = |family| pod.namespace.run(|| tool(&backend.tool(family, "-save"), &[], ""));
    let saved = [Family::V4, Family::V6].map(save).concat();
    saved
        .lines()
        .filter(|line| line.contains("ISTIO") || line.contains("CONNMARK"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Restore tools that count how often they are run; instead of run number `step`, `script` is executed, in
/// which `real` is the tool itself.
fn counting_tools(step: usize, script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let count = folder.path().join("count");
    fs::write(&count, "0\n").unwrap();
    for backend in [Backend::IptablesNft, Backend::IptablesLegacy] {
        for family in [Family::V4, Family::V6] {
            let (name, save) = (backend.tool(family, "-restore"), backend.tool(family, "-save"));
            let text = format!(
                "#!/bin/sh\nreal() {{ {TOOLS}/{name} \"$@\"; }}\nread -r n < {count}; n=$((n + 1)); echo $n > {count}\n\
                 if [ $n = {step} ]; then {script}\n:; fi\nexec {TOOLS}/{name} \"$@\"\n",
                count = count.display(),
            );
            let path = folder.path().join(&name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            symlink(format!("{TOOLS}/{save}"), folder.path().join(save)).unwrap();
        }
    }
    folder
}

fn traffic(pod: &Pod) -> Traffic {
    let (held, new) = flows(pod);
    Traffic::start(held, new)
}

/// The proxy picks a port of its own for the caller's address, which may be that of one of the caller's
/// connections: a limit of TPROXY mode (docs/tproxy.md) that slow machines meet more often.
fn separate_ports(pod: &Pod) {
    for (namespace, range) in [(&pod.namespace, "20000 39999"), (pod.outside().namespace(), "44000 60999")] {
        namespace.run(|| fs::write("/proc/sys/net/ipv4/ip_local_port_range", range).expect("set the range"));
    }
}

/// Inbound calls, the proxy's calls to the app with the caller's address, and its calls to its own pod:
/// those to be held, and those to be made again and again.
fn flows(pod: &Pod) -> (Vec<Flow>, Vec<Flow>) {
    separate_ports(pod);
    let (mut held, mut new) = (Vec::new(), Vec::new());
    for &family in pod.fixture.families() {
        let flow = |name: &str, from, binding, server| Flow {
            name: format!("{name} {family:?}"),
            from,
            binding,
            to: at(family.pod(), 8080),
            server,
        };
        // Only root may take another's address; the proxy of a TPROXY pod is root with the proxy's group.
        let proxy = || pod.user(0, 1337);
        let caller = Binding { source: Some(at(family.outside(), 0)), spoofed_mark: Some(1337) };
        let inbound = flow(INBOUND, pod.outside(), Binding::default(), ("proxy", 15006));
        let passed_on = flow(ORIGINAL_SOURCE, proxy(), caller, ("app", 8080));
        let own = flow("own pod", proxy(), Binding::default(), ("proxy", 15006));
        held.extend(std::iter::repeat_n(inbound.clone(), HELD));
        held.extend([passed_on.clone(), own.clone()]);
        new.extend([inbound, passed_on, own]);
    }
    (held, new)
}
