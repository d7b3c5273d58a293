//! `guard --action lockdown`: what the rules would capture is dropped until they are live again.

use std::net::SocketAddr;
use std::time::Duration;

use netlab::User;
use netlab::socket::{Binding, connect_tcp};
use netlab::user::Conversation;

use crate::guard::Guard;
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    new_connections_are_dropped_until_the_rules_are_live,
    connections_to_tproxy_are_dropped_until_the_rules_are_live,
    what_a_killed_guard_leaves_is_named_and_removed,
);

const OPTIONS: [&str; 6] = ["-i", "*", "-b", "*", "-o", "9090"];
/// Longer than a connection takes, shorter than the pause that the guard makes.
const LIMIT: Duration = Duration::from_millis(400);
/// A pause of the guard that is long enough to look, in seconds.
const PAUSE: u64 = 4;

fn connects(user: &User, to: SocketAddr) -> bool {
    user.run(|| connect_tcp(to, Binding::default(), LIMIT).is_ok())
}

/// Removes the rules, as another program does, so often that the guard waits before it repairs them again.
fn fight(pod: &Pod, guard: &Guard) {
    let mut is_locked = false;
    loop {
        pod.namespace.run(|| remove(pod.fixture));
        loop {
            let event = guard.event();
            match event["event"].as_str().expect("a kind") {
                "lockdown" => is_locked = true,
                "waiting" if event["seconds"].as_u64() >= Some(PAUSE) => {
                    assert!(is_locked, "rules that are not repaired at once");
                    return;
                }
                "repaired" => break,
                _ => {}
            }
        }
    }
}

/// Connection tracking stays.
fn remove(fixture: Fixture) {
    let of = |tools: [&str; 2], tables: &[&str]| {
        for tool_of_family in tools {
            tables.iter().for_each(|table| drop(tool(tool_of_family, &["-t", table, "-F", "OUTPUT"], "")));
            tables
                .iter()
                .for_each(|table| drop(tool(tool_of_family, &["-t", table, "-F", "PREROUTING"], "")));
        }
    };
    match fixture.backend {
        Backend::Native => drop(tool("nft", &["flush", "ruleset"], "")),
        Backend::IptablesNft => of(["iptables-nft", "ip6tables-nft"], &["nat", "mangle"]),
        Backend::IptablesLegacy => of(["iptables-legacy", "ip6tables-legacy"], &["nat", "mangle"]),
    }
}

fn new_connections_are_dropped_until_the_rules_are_live(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 9090]), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    let guard = Guard::start(&pod, &[&["--action", "lockdown", "--audit", "1"], &OPTIONS[..]].concat());
    fight(&pod, &guard);
    for family in fixture.families() {
        let (service, excluded) = (at(family.service(), 80), at(family.service(), 9090));
        assert!(!connects(&pod.app(), service), "{service}: the app");
        assert!(!connects(&pod.outside(), at(family.pod(), 8080)), "{family:?}: a client");
        assert!(connects(&pod.proxy(), service), "{service}: the proxy");
        assert!(connects(&pod.proxy(), at(family.loopback(), 8080)), "{family:?}: the proxy to the app");
        assert!(connects(&pod.app(), at(family.loopback(), 15001)), "{family:?}: the app to the proxy");
        assert!(connects(&pod.app(), excluded), "{excluded}: an excluded port");
    }
    guard.until("lockdown-ended");
    for family in fixture.families() {
        let service = at(family.service(), 80);
        pod.app().call(service).captured(15001, service);
        let inbound = at(family.pod(), 8080);
        pod.outside().call(inbound).captured(15006, inbound);
    }
    let tables = pod.namespace.run(|| tool("nft", &["list", "tables"], ""));
    assert!(!tables.contains("lockdown"), "{tables}");
    guard.end();
}

fn connections_to_tproxy_are_dropped_until_the_rules_are_live(fixture: Fixture) {
    let options = ["-i", "*", "-b", "8080", "-m", "TPROXY"];
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080, 9090]));
    pod.apply(&options);
    let guard = Guard::start(&pod, &[&["--action", "lockdown", "--audit", "1"], &options[..]].concat());
    fight(&pod, &guard);
    for family in fixture.families() {
        assert!(!connects(&pod.outside(), at(family.pod(), 8080)), "{family:?}: captured port");
        assert!(connects(&pod.outside(), at(family.pod(), 9090)), "{family:?}: another port");
    }
    guard.until("lockdown-ended");
    for family in fixture.families() {
        let inbound = at(family.pod(), 8080);
        pod.outside().call(inbound).captured(15006, inbound);
    }
    guard.end();
}

fn what_a_killed_guard_leaves_is_named_and_removed(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    let names = |pod: &Pod| pod.namespace.run(|| tool("nft", &["list", "tables"], "")).contains("lockdown");
    let locked = || {
        pod.apply(&OPTIONS);
        let guard = Guard::start(&pod, &[&["--action", "lockdown", "--audit", "1"], &OPTIONS[..]].concat());
        fight(&pod, &guard);
        guard.kill();
        assert!(names(&pod));
    };
    locked();
    let check = pod.istio_iptables(&[&["check"], &OPTIONS[..]].concat()).run().output();
    assert!(check.contains("lockdown"), "{check}");
    let to = at(fixture.families()[0].service(), 80).to_string();
    let explain = pod.bare_istio_iptables(&["explain", "--live", "--to", &to]).run().output();
    assert!(explain.contains("dropped: the lockdown of guard drops it"), "{explain}");
    assert!(!explain.contains("foreign"), "{explain}");
    let overview = pod.bare_istio_iptables(&["explain", "--live"]).run().output();
    assert!(overview.contains("guard drops new connections"), "{overview}");
    let without_options = pod.bare_istio_iptables(&["check"]).run().output();
    assert!(without_options.contains("lockdown"), "{without_options}");
    // A run ends it, a clean-up does, and a guard with another action once the rules are live.
    pod.apply(&OPTIONS);
    assert!(!names(&pod));
    locked();
    let dry = pod.istio_iptables(&["cleanup", "--dry-run"]).run().succeeded().stdout();
    let tables = pod.namespace.run(|| tool("nft", &["list", "tables"], ""));
    for table in tables.lines().filter(|line| line.contains("lockdown")) {
        let name = table.trim_start_matches("table ");
        let step = dry.lines().rfind(|line| line.starts_with("# step ")).unwrap_or_default();
        assert!(step.contains("end the lockdown of guard: ") && step.contains(name), "{name}: {dry}");
    }
    pod.istio_iptables(&["cleanup"]).run().succeeded();
    assert!(!names(&pod));
    locked();
    let guard = Guard::start(&pod, &[&["--action", "report"], &OPTIONS[..]].concat());
    guard.until("drift");
    guard.end();
    assert!(names(&pod), "the rules are not live");
    let server = at(fixture.families()[0].service(), 80);
    let guard = Guard::start(&pod, &[&["--action", "repair"], &OPTIONS[..]].concat());
    // What gets through meanwhile does so by rules that are live again.
    while names(&pod) {
        let open = || connect_tcp(server, Binding::default(), LIMIT).and_then(Conversation::go_on);
        if let Ok(conversation) = pod.app().run(open) {
            assert_eq!(conversation.greeting.server, "proxy", "before the rules were live");
        }
    }
    pod.app().call(server).captured(15001, server);
    guard.end();
}
