//! `guard --action lockdown`: what the rules would capture is dropped until they are live again.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
    no_connection_bypasses_a_lockdown_while_rules_are_removed_again_and_again,
    guard_without_options_names_the_lockdown_of_an_earlier_one,
);

const OPTIONS: [&str; 6] = ["-i", "*", "-b", "*", "-o", "9090"];
/// Longer than a connection takes, shorter than the pause that the guard makes.
const LIMIT: Duration = Duration::from_millis(400);
/// Longer than a connection takes that nothing drops, so short that many follow each other.
const SHORT: Duration = Duration::from_millis(3);
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

/// Every tenth of a second, so that repairs at once and repairs after a pause are among them.
fn no_connection_bypasses_a_lockdown_while_rules_are_removed_again_and_again(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&OPTIONS);
    let guard = Guard::start(&pod, &[&["--action", "lockdown", "--audit", "1"], &OPTIONS[..]].concat());
    let service = at(fixture.families()[0].service(), 80);
    let is_over = AtomicBool::new(false);
    let removes = || {
        while !is_over.load(Ordering::Relaxed) {
            match fixture.backend {
                Backend::Native => drop(tool("nft", &["flush", "table", "inet", "istio-proxy-nat"], "")),
                Backend::IptablesNft => drop(tool("iptables-nft", &["-t", "nat", "-F"], "")),
                Backend::IptablesLegacy => drop(tool("iptables-legacy", &["-t", "nat", "-F"], "")),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let mut bypassed = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| pod.namespace.run(removes));
        guard.until("lockdown");
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(6) {
            let open = || connect_tcp(service, Binding::default(), SHORT).and_then(Conversation::go_on);
            match pod.app().run(open) {
                Ok(conversation) if conversation.greeting.server == "proxy" => {}
                Ok(_) => bypassed.push(begin.elapsed()),
                // Dropped.
                Err(_) => {}
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(bypassed.is_empty(), "after {bypassed:?}");
    let kind = |event: serde_json::Value| event["event"].as_str().map(str::to_owned);
    let events: Vec<_> =
        std::iter::from_fn(|| kind(guard.event()).filter(|one| one != "lockdown-ended")).collect();
    assert!(events.iter().any(|one| one == "repaired"), "rules that were never live: {events:?}");
    pod.app().call(service).captured(15001, service);
    guard.end();
}

fn guard_without_options_names_the_lockdown_of_an_earlier_one(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&OPTIONS);
    let guard = Guard::start(&pod, &[&["--action", "lockdown", "--audit", "1"], &OPTIONS[..]].concat());
    let start = |action: &str| pod.istio_iptables(&["guard", "--dual-stack", "--action", action]).run();
    fight(&pod, &guard);
    guard.kill();
    pod.namespace.run(|| remove_all(fixture, 2));
    for action in ["report", "repair", "lockdown"] {
        let guard = start(action).ended_with(1);
        let guard = guard.output_contains("the lockdown of guard drops new connections");
        guard.output_contains("no capture rule is live").output_contains("istio-iptables cleanup");
    }
    pod.apply(&OPTIONS);
    let guard = Guard::start(&pod, &[&["--action", "lockdown", "--audit", "1"], &OPTIONS[..]].concat());
    fight(&pod, &guard);
    guard.until("repaired");
    guard.kill();
    assert!(is_locked(&pod), "rules may be removed again");
    if fixture.backend != Backend::Native {
        // What is left of one family says what the other one is to be, too.
        pod.namespace.run(|| remove_all(fixture, 1));
        let guard = Guard::start(&pod, &["--action", "report"]);
        guard.until("drift");
        guard.kill();
        assert!(is_locked(&pod), "rules of one family");
        // Without the excluded port, the rules are not those of the lockdown.
        pod.namespace.run(|| remove_excluded_port(fixture));
        let guard = pod.bare_istio_iptables(&["guard", "--backend", fixture.backend.flag()]).run();
        guard.ended_with(1).output_contains("the live rules are not those of the lockdown");
        assert!(is_locked(&pod), "other rules");
        return;
    }
    let guard = Guard::start(&pod, &["--action", "report"]);
    guard.until("lockdown-ended");
    guard.end();
    assert!(!is_locked(&pod));
}

fn is_locked(pod: &Pod) -> bool {
    pod.namespace.run(|| tool("nft", &["list", "tables"], "")).contains("lockdown")
}

/// With the chains, in so many families.
fn remove_all(fixture: Fixture, families: usize) {
    let tools = match fixture.backend {
        Backend::Native => return,
        Backend::IptablesNft => ["iptables-nft", "ip6tables-nft"],
        Backend::IptablesLegacy => ["iptables-legacy", "ip6tables-legacy"],
    };
    for (tool_of_family, what) in
        tools.into_iter().take(families).flat_map(|tool| [(tool, "-F"), (tool, "-X")])
    {
        tool(tool_of_family, &["-t", "nat", what], "");
    }
}

fn remove_excluded_port(fixture: Fixture) {
    let tool_of_v6 =
        if fixture.backend == Backend::IptablesNft { "ip6tables-nft" } else { "ip6tables-legacy" };
    tool(
        tool_of_v6,
        &["-t", "nat", "-D", "ISTIO_OUTPUT", "-p", "tcp", "--dport", "9090", "-j", "RETURN"],
        "",
    );
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
    let locked = || {
        pod.apply(&OPTIONS);
        let guard = Guard::start(&pod, &[&["--action", "lockdown", "--audit", "1"], &OPTIONS[..]].concat());
        fight(&pod, &guard);
        guard.kill();
        assert!(is_locked(&pod));
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
    assert!(!is_locked(&pod));
    locked();
    let dry = pod.istio_iptables(&["cleanup", "--dry-run"]).run().succeeded().stdout();
    let tables = pod.namespace.run(|| tool("nft", &["list", "tables"], ""));
    for table in tables.lines().filter(|line| line.contains("lockdown")) {
        let name = table.trim_start_matches("table ");
        let step = dry.lines().rfind(|line| line.starts_with("# step ")).unwrap_or_default();
        assert!(step.contains("end the lockdown of guard: ") && step.contains(name), "{name}: {dry}");
    }
    pod.istio_iptables(&["cleanup"]).run().succeeded();
    assert!(!is_locked(&pod));
    locked();
    let guard = Guard::start(&pod, &[&["--action", "report"], &OPTIONS[..]].concat());
    guard.until("drift");
    guard.end();
    assert!(is_locked(&pod), "the rules are not live");
    let server = at(fixture.families()[0].service(), 80);
    let guard = Guard::start(&pod, &[&["--action", "repair"], &OPTIONS[..]].concat());
    // What gets through meanwhile does so by rules that are live again.
    while is_locked(&pod) {
        let open = || connect_tcp(server, Binding::default(), LIMIT).and_then(Conversation::go_on);
        if let Ok(conversation) = pod.app().run(open) {
            assert_eq!(conversation.greeting.server, "proxy", "before the rules were live");
        }
    }
    pod.app().call(server).captured(15001, server);
    guard.end();
}
