//! Proxied connections when a family loses its rules, or a pod leaves the mesh.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::established::{REDIRECT, TPROXY, apply_family};
use crate::lab::fixture::at;
use crate::lab::program::{Ended, tool};
use crate::lab::socket::Binding;
use crate::lab::tools::WaitingTools;
use crate::lab::user::{Conversation, Ending};
use crate::lab::{
    Backend, Family, Fixture, Pod, User, for_each_backend_and_native, for_these_fixtures, verdict,
};
use crate::open_connections::{ECHO_LIMIT, OpenConnections};

for_each_backend_and_native!(
    a_family_that_loses_its_rules_keeps_its_connections,
    cleanup_logs_number_of_reset_connections,
    cleanup_keeps_connections_on_request,
    reports_say_nothing_against_the_chain_that_keeps_translation,
    plain_cleanup_takes_the_chain_whatever_is_open,
    validation_accepts_what_keeps_connections,
    without_connections_nothing_is_kept,
    connections_of_earlier_ports_are_kept_too,
    cleanup_of_tproxy_resets_outbound_connections_only,
    the_passthrough_address_stays_while_sockets_use_it,
    connections_that_end_with_tproxy_are_counted,
    a_port_of_a_connection_that_was_cut_off_is_free_for_the_proxy,
    a_connection_on_ports_of_one_that_was_cut_off_survives_the_next_capture,
    cleanup_leaves_connections_that_foreign_rules_redirect,
);
// The run is held up in its restore tools.
for_these_fixtures!(
    held_nft: IptablesNft Dual, held_legacy: IptablesLegacy Dual;
    [a_connection_that_begins_before_the_rules_go_is_kept, connection_that_begins_before_cleanup_is_counted]
);

const CHAIN: &str = "ISTIO_ESTABLISHED";
/// How long closed connections may take to leave the open states.
const CLOSING: Duration = Duration::from_secs(30);

fn a_family_that_loses_its_rules_keeps_its_connections(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        for (stays, leaves, name) in [(Family::V4, Family::V6, "ipv4"), (Family::V6, Family::V4, "ipv6")] {
            let pod = fixture.pod();
            let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
            apply_family(&pod, options, "dual");
            let held = OpenConnections::open(&pod, &[Family::V4, Family::V6], 6, "proxy", "proxy");
            held.during(|| apply_family(&pod, options, name)).output_contains(CHAIN);
            held.all_alive();
            pod.app().call(at(leaves.service(), 80)).served_by("outside");
            pod.outside().call(at(leaves.pod(), 8080)).served_by("app");
            pod.app().call(at(stays.service(), 80)).served_by("proxy");
            only_translation_is_kept(&pod, leaves);
            // It stays as long as it is needed, and no longer.
            held.during(|| apply_family(&pod, &[options, &["--verify"]].concat(), name))
                .output_contains("converged");
            held.all_alive();
            drop(held);
            gone_once_closed(&pod, leaves, || {
                apply_family(&pod, options, name);
            });
        }
    }
}

fn cleanup_logs_number_of_reset_connections(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    pod.apply(&REDIRECT);
    let four = OpenConnections::open(&pod, &[Family::V4], 3, "proxy", "proxy");
    let six = OpenConnections::open(&pod, &[Family::V6], 2, "proxy", "proxy");
    let excluded = pod.proxy().connect(at(Family::V4.service(), 80)).expect("a call of the proxy");
    let before = pod.state();
    let resets = |ended: Ended| {
        ended
            .output_contains(&format!("resets {} proxied ipv4", four.count()))
            .output_contains(&format!("resets {} proxied ipv6", six.count()))
    };
    resets(pod.apply(&["--cleanup-only", "--dry-run"]));
    assert_eq!(pod.state(), before, "a dry run changes nothing");
    four.all_alive();
    six.all_alive();
    let ended = resets(pod.apply(&["--cleanup-only"]));
    ended
        .output_contains("12 proxied ipv4 connections are reset")
        .output_contains("8 proxied ipv6 connections are reset");
    assert!(pod.state().is_empty(), "{:?}", pod.state());
    four.all_lost();
    six.all_lost();
    let mut excluded = excluded;
    excluded
        .echo_within("not captured, so not reset", ECHO_LIMIT)
        .expect("a connection that was not captured");
}

fn cleanup_keeps_connections_on_request(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        pod.apply(options);
        let held = OpenConnections::open(&pod, fixture.families(), 4, "proxy", "proxy");
        let cleanup = ["--cleanup-only", "--keep-connections"];
        pod.apply(&[&cleanup[..], &["--dry-run"]].concat()).output_contains(CHAIN);
        held.during(|| pod.apply(&cleanup)).output_contains("done: no rules in place but ISTIO_ESTABLISHED");
        held.all_alive();
        for &family in fixture.families() {
            only_translation_is_kept(&pod, family);
            pod.app().call(at(family.service(), 80)).served_by("outside");
        }
        // Again, and into the mesh and out again.
        pod.apply(&cleanup).output_contains("nothing written: no rules in place but ISTIO_ESTABLISHED");
        held.during(|| pod.apply(options));
        held.all_alive();
        let fresh = fixture.pod();
        fresh.apply(options);
        assert_eq!(pod.state(), fresh.state());
        pod.apply(&cleanup);
        held.all_alive();
        drop(held);
        for &family in fixture.families() {
            gone_once_closed(&pod, family, || {
                pod.apply(&cleanup);
            });
        }
        assert!(pod.state().is_empty(), "{:?}", pod.state());
    }
}

/// The chain that keeps translation captures nothing, nothing jumps to it, and a run leaves it while
/// connections are open.
fn reports_say_nothing_against_the_chain_that_keeps_translation(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let report = |words: &[&str]| pod.bare_istio_iptables(words).run();
    for (leaves, stays) in [(Family::V6, "ipv4"), (Family::V4, "ipv6")] {
        apply_family(&pod, &REDIRECT, "dual");
        let held = OpenConnections::open(&pod, &[leaves], 2, "proxy", "proxy");
        held.during(|| apply_family(&pod, &REDIRECT, stays)).output_contains(CHAIN);
        let checked = report(&["check", "--ip-family", stays]).succeeded().stdout();
        assert!(checked.starts_with("equal:"), "{checked}");
        let table = report(&["explain", "--live", "--ip-family", stays]).succeeded().stdout();
        let first = verdict(&table);
        assert!(!first.contains("no rule jumps to") && !first.contains(CHAIN), "{first}");
        report(&["show"]).succeeded().output_contains(CHAIN);
        pod.apply(&["--cleanup-only", "--keep-connections"]);
        report(&["show"]).succeeded().output_contains(CHAIN);
        // Rules that capture need it no more.
        let checked = report(&["check"]).ended_with(1).stdout();
        assert!(checked.starts_with("no capture rule is live\n"), "{checked}");
        let checked = report(&[&["check"], &REDIRECT[..]].concat()).ended_with(1).stdout();
        assert!(checked.contains("+   1  -j ISTIO_OUTPUT"), "{checked}");
        assert!(!checked.contains("+   1  -m conntrack --ctstate RELATED,ESTABLISHED"), "{checked}");
        let table = report(&["explain", "--live"]).succeeded().stdout();
        assert!(table.contains("no capture rule is live"), "{table}");
        held.all_alive();
        pod.apply(&["--cleanup-only"]);
    }
}

fn plain_cleanup_takes_the_chain_whatever_is_open(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    pod.apply(&REDIRECT);
    let held = OpenConnections::open(&pod, fixture.families(), 1, "proxy", "proxy");
    pod.apply(&["--cleanup-only", "--keep-connections"]);
    pod.apply(&["--cleanup-only"])
        .output_contains("resets 4 proxied ipv4")
        .output_contains("resets 4 proxied ipv6");
    assert!(pod.state().is_empty(), "{:?}", pod.state());
    held.all_lost();
}

/// A run that only validates knows the chain, too.
fn validation_accepts_what_keeps_connections(fixture: Fixture) {
    let pod = fixture.pod();
    // The ports of the last run are free: the probe listens there.
    let _servers = (pod.proxy_also_listens(&[16001, 16006]), pod.outside_listens(&[80]));
    apply_family(&pod, &["-b", "*", "-i", "*", "-p", "16001", "-z", "16006"], "dual");
    let held = OpenConnections::open(&pod, &[Family::V6], 2, "proxy", "proxy");
    apply_family(&pod, &REDIRECT, "ipv4").output_contains(CHAIN);
    let validation = [&REDIRECT[..], &["--run-validation", "--skip-rule-apply"]].concat();
    apply_family(&pod, &validation, "ipv4").output_contains("validation passed");
    drop(held);
}

/// The rules capture until the first restore begins, however many connections there were when the run counted
/// them.
fn a_connection_that_begins_before_the_rules_go_is_kept(fixture: Fixture) {
    let reduction = [&REDIRECT[..], &["--ip-family", "ipv6"]].concat();
    for change in [&["--cleanup-only", "--keep-connections"][..], &reduction] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        apply_family(&pod, &REDIRECT, "dual");
        let (held, ended) = opened_before_the_first_restore(&pod, change);
        held.all_alive();
        ended.output_contains("12 proxied IPv4 connections are open");
        only_translation_is_kept(&pod, Family::V4);
        pod.app().call(at(Family::V4.service(), 80)).served_by("outside");
        drop(held);
        gone_once_closed(&pod, Family::V4, || {
            pod.bare_istio_iptables(change).run().succeeded();
        });
    }
}

/// A clean-up says of every connection that it resets it, also of one that began after the first look.
fn connection_that_begins_before_cleanup_is_counted(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    apply_family(&pod, &REDIRECT, "dual");
    let (held, ended) = opened_before_the_first_restore(&pod, &["--cleanup-only"]);
    ended.output_contains("clean-up resets 12 proxied IPv4 connections");
    held.all_lost();
    assert!(pod.state().is_empty(), "{:?}", pod.state());
}

/// Connections that are opened while a run waits at its first restore, and the run after it has ended.
fn opened_before_the_first_restore(pod: &Pod, change: &[&str]) -> (OpenConnections, Ended) {
    let tools = WaitingTools::before_call(1);
    let run = pod.bare_istio_iptables(change).env("PATH", &tools.path());
    thread::scope(|scope| {
        let run = scope.spawn(|| run.run().succeeded());
        tools.wait_until_called();
        let held = OpenConnections::open(pod, &[Family::V4], 3, "proxy", "proxy");
        tools.go_on();
        (held, run.join().expect("the run was started"))
    })
}

fn without_connections_nothing_is_kept(fixture: Fixture) {
    let pod = fixture.pod();
    apply_family(&pod, &REDIRECT, "dual");
    let output = apply_family(&pod, &REDIRECT, "ipv4").output();
    assert!(!output.contains(CHAIN) && !pod.save(Family::V6).contains("ISTIO"), "{output}");
    let output = pod.apply(&["--cleanup-only", "--keep-connections"]).output();
    assert!(!output.contains(CHAIN) && pod.state().is_empty(), "{output} {:?}", pod.state());
}

/// The live rules name the ports of the last run; connections to those of an earlier one are open as well.
fn connections_of_earlier_ports_are_kept_too(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.proxy_also_listens(&[16001, 16006]), pod.outside_listens(&[80]));
    apply_family(&pod, &["-b", "*", "-i", "*", "-p", "16001", "-z", "16006"], "dual");
    let held = OpenConnections::open(&pod, &[Family::V6], 3, "proxy", "proxy");
    apply_family(&pod, &REDIRECT, "dual");
    held.during(|| apply_family(&pod, &REDIRECT, "ipv4")).output_contains(CHAIN);
    held.all_alive();
}

/// Inbound connections keep their addresses in TPROXY mode: the proxy's socket has the addresses of the
/// packets, and needs no rule.
fn cleanup_of_tproxy_resets_outbound_connections_only(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    pod.apply(&TPROXY);
    for &family in fixture.families() {
        let open = |_| pod.outside().connect(at(family.pod(), 8080)).expect("an inbound call");
        let mut inbound: Vec<Conversation> = (0..4).map(open).collect();
        let mut outbound = pod.app().connect(at(family.service(), 80)).expect("an outbound call");
        pod.apply(&["--cleanup-only"]).output_contains(&format!("resets 1 proxied ip{}", name_of(family)));
        for conversation in &mut inbound {
            conversation.echo_within("still there", ECHO_LIMIT).expect("an inbound connection");
        }
        outbound.echo_within("still there", ECHO_LIMIT).expect_err("an outbound connection");
        pod.apply(&TPROXY);
    }
}

/// The proxy hands IPv6 connections to the application from `::6`, which goes with the IPv6 rules.
fn the_passthrough_address_stays_while_sockets_use_it(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        apply_family(&pod, options, "dual");
        let from = Binding { source: Some(at(Family::V6.passthrough(), 0)), spoofed_mark: None };
        let target = at(Family::V6.pod(), 8080);
        let mut passed_on = pod.proxy().connect_bound(target, from).expect("a call of the proxy");
        assert_eq!(passed_on.greeting.server, "app");
        apply_family(&pod, options, "ipv4");
        passed_on.echo_within("still there", ECHO_LIMIT).expect("a connection from ::6");
        apply_family(&pod, options, "ipv4").output_contains("converged");
        passed_on.echo_within("still there", ECHO_LIMIT).expect("a connection from ::6");
        drop(passed_on);
        let deadline = Instant::now() + CLOSING;
        while format!("{:?}", pod.state()).contains("::6/128") {
            assert!(Instant::now() < deadline, "::6 must go once no socket uses it: {:?}", pod.state());
            thread::sleep(Duration::from_millis(100));
            apply_family(&pod, options, "ipv4");
        }
    }
}

/// The proxy of a TPROXY pod calls the application under the client's address; the replies find back by a
/// mark.
fn connections_that_end_with_tproxy_are_counted(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    for leave in [&["-b", "*", "-i", "*", "--dry-run"][..], &["--cleanup-only", "--dry-run"], &REDIRECT] {
        pod.apply(&TPROXY);
        let open = |family: &Family| {
            let client = Binding { source: Some(at(family.outside(), 0)), spoofed_mark: Some(1337) };
            pod.user(0, 1337).connect_bound(at(family.pod(), 8080), client).expect("a call of the proxy")
        };
        let mut open: Vec<Conversation> = fixture.families().iter().map(open).collect();
        for conversation in &mut open {
            conversation
                .echo_within("the mark is saved", ECHO_LIMIT)
                .expect("a call under the client's address");
        }
        let ended = pod.apply(leave);
        ended
            .output_contains("1 ipv4 connection from the proxy")
            .output_contains("1 ipv6 connection from the proxy");
    }
}

const fn name_of(family: Family) -> &'static str {
    match family {
        Family::V4 => "v4",
        Family::V6 => "v6",
    }
}

/// Nothing of ours is left in this family but the chain that keeps translation up.
#[track_caller]
fn only_translation_is_kept(pod: &Pod, family: Family) {
    if pod.fixture.backend == Backend::Native {
        let kept = pod.state();
        assert_eq!(kept.chain("inet istio-proxy-nat istio-established").len(), 1, "{kept:?}");
        return;
    }
    let saved = pod.save(family);
    let ours: Vec<&str> = saved.lines().filter(|line| line.contains("ISTIO_")).collect();
    let rule = format!("-A {CHAIN} -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN");
    assert_eq!(ours, [&format!(":{CHAIN} -"), &rule], "{saved}");
}

/// Runs again until the connections have left the open states, which takes a moment after they were closed.
fn gone_once_closed(pod: &Pod, family: Family, run: impl Fn()) {
    let deadline = Instant::now() + CLOSING;
    loop {
        run();
        let saved = match pod.fixture.backend {
            Backend::Native => format!("{:?}", pod.state()).replace("istio-established", CHAIN),
            Backend::IptablesNft | Backend::IptablesLegacy => pod.save(family),
        };
        if !saved.contains(CHAIN) {
            return;
        }
        assert!(Instant::now() < deadline, "{CHAIN} must go once nothing needs it:\n{saved}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Connection tracking stops with the rules, and does not see how a translated connection ends.
fn a_port_of_a_connection_that_was_cut_off_is_free_for_the_proxy(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let ends = |family: Family| (at(family.pod(), 40_800), at(family.service(), 80));
    for &family in fixture.families() {
        let (source, target) = ends(family);
        pod.apply(&REDIRECT);
        let binding = Binding { source: Some(source), spoofed_mark: None };
        let captured = pod.app().run(|| Conversation::to(target, binding)).expect("a connection");
        pod.apply(&["--cleanup-only"]);
        captured.end(Ending::Reset);
        // As the proxy ends it by its own timeout: the application's reset does not reach it.
        pod.namespace.run(|| tool("ss", &["-K", "state", "established", "sport", "=", ":15001"], ""));
        let held = OpenConnections::open(&pod, &[family], 1, "app", "outside");
        pod.apply(&REDIRECT);
        pod.proxy().call_from(source, target).served_by("outside");
        held.all_alive();
    }
}

/// The connection begins while nothing is captured.
fn a_connection_on_ports_of_one_that_was_cut_off_survives_the_next_capture(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    for &family in fixture.families() {
        let outbound = (pod.app(), at(family.pod(), 40_810), at(family.service(), 80));
        let inbound = (pod.outside(), at(family.outside(), 40_820), at(family.pod(), 8080));
        let open = |(user, source, target): &(User, SocketAddr, SocketAddr)| {
            let binding = Binding { source: Some(*source), spoofed_mark: None };
            user.run(|| Conversation::to(*target, binding)).expect("a connection")
        };
        pod.apply(&REDIRECT);
        let captured = [&outbound, &inbound].map(open);
        pod.apply(&["--cleanup-only"]);
        captured.into_iter().for_each(|conversation| conversation.end(Ending::Reset));
        let direct = [&outbound, &inbound].map(open);
        pod.apply(&REDIRECT);
        for mut conversation in direct {
            conversation.echo("still there").expect("the connection lives on");
        }
    }
}

fn cleanup_leaves_connections_that_foreign_rules_redirect(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080, 8081]), pod.outside_listens(&[80]));
    for &family in fixture.families() {
        pod.iptables(family, "-t nat -A PREROUTING -p tcp --dport 7070 -j REDIRECT --to-ports 8081");
        pod.iptables(family, "-t nat -A PREROUTING -p tcp --dport 7071 -j REDIRECT --to-ports 8081");
    }
    pod.apply(&["-b", "8080", "-i", "*"]);
    let open = |&family: &Family| {
        let to = |port| pod.outside().run(|| Conversation::to(at(family.pod(), port), Binding::default()));
        [7070, 8080].map(|port| to(port).expect("a connection"))
    };
    let held: Vec<_> = fixture.families().iter().map(open).collect();
    // What is open depends on its entry alone now; the other rule keeps connection tracking on.
    for &family in fixture.families() {
        pod.iptables(family, "-t nat -D PREROUTING -p tcp --dport 7070 -j REDIRECT --to-ports 8081");
    }
    pod.apply(&["--cleanup-only"]);
    for [mut foreign, _captured] in held {
        foreign.echo("still there").expect("the connection lives on");
    }
}
