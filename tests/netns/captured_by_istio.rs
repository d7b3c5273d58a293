//! Commands that ask, on pods that Istio's own binary captured: `guard` and `observe` in REDIRECT mode, and
//! each of them in TPROXY mode. `check_changed.rs` has the others in REDIRECT mode.

use crate::bundle::reports_are_equal;
use crate::guard::Guard;
use crate::istio_leftovers::{ISTIO_TODAY, ISTIO_TPROXY, istio_leftovers};
use crate::lab::fixture::at;
use crate::lab::{Family, Fixture, Pod, for_each_backend};
use crate::observe::Observer;

for_each_backend!(
    guard_reports_changes_of_istios_rules,
    guard_repairs_istios_rules,
    observe_reports_connections_of_istios_rules,
    questions_about_istios_tproxy_mode_have_answers,
    observe_and_guard_work_in_istios_tproxy_mode
);

/// The options with which Istio's binary was run.
const REDIRECT: [&str; 6] = ["-i", "*", "-b", "*", "-d", "15090,15021,15020"];
const TPROXY: [&str; 6] = ["-i", "*", "-b", "*", "-m", "TPROXY"];

/// Istio's TPROXY rules, with its policy rule and its route.
fn istio_tproxy(pod: &Pod) {
    istio_leftovers(pod, ISTIO_TPROXY);
    for family in ["-4", "-6"] {
        pod.ip(&format!("{family} rule add fwmark 1337 lookup 133"));
        pod.ip(&format!("{family} route add local default dev lo table 133"));
    }
}

fn is_captured(pod: &Pod) {
    for family in pod.fixture.families() {
        let (outbound, inbound) = (at(family.service(), 80), at(family.pod(), 8080));
        pod.app().call(outbound).captured(15001, outbound);
        pod.outside().call(inbound).captured(15006, inbound);
    }
}

/// A rule of Istio's is deleted, and `guard` without an action reports that; the rules stay as they are.
fn reports_a_deleted_jump(pod: &Pod, options: &[&str]) {
    let before = pod.state();
    let guard = Guard::start(pod, &[options, &["--audit", "1"]].concat());
    assert_eq!(pod.state(), before, "guard changes nothing");
    pod.iptables(Family::V4, "-t nat -D OUTPUT -j ISTIO_OUTPUT");
    let drift = guard.until("drift");
    assert!(drift["differences"].to_string().contains("nat OUTPUT (IPv4, "), "{drift}");
    let changed = pod.state();
    pod.iptables(Family::V4, "-t nat -A OUTPUT -j ISTIO_OUTPUT");
    guard.until("restored");
    assert_ne!(changed, before);
    assert_eq!(pod.state(), before);
    guard.end();
}

fn guard_reports_changes_of_istios_rules(fixture: Fixture) {
    let pod = fixture.pod();
    istio_leftovers(&pod, ISTIO_TODAY);
    reports_a_deleted_jump(&pod, &REDIRECT);
}

fn guard_repairs_istios_rules(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]), pod.app_listens(&[8080]));
    istio_leftovers(&pod, ISTIO_TODAY);
    let guard = Guard::start(&pod, &[&REDIRECT[..], &["--audit", "1", "--action", "repair"]].concat());
    pod.iptables(Family::V4, "-t nat -F");
    guard.until("repaired");
    is_captured(&pod);
    guard.end();
    let check = pod.istio_iptables(&[&["check", "--dual-stack"], &REDIRECT[..]].concat()).run().ended_with(0);
    assert!(check.stdout().starts_with("equal"), "{}", check.stdout());
}

/// Each kind of connection has the verdict that the kernel gives it.
fn observes(pod: &Pod) {
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]), pod.app_listens(&[8080]));
    let observer = Observer::start(pod, &[]);
    for family in pod.fixture.families() {
        let (service, inbound) = (at(family.service(), 80), at(family.pod(), 8080));
        for (user, captured) in [(pod.app(), true), (pod.proxy(), false)] {
            // Open until it is reported: of a connection that has ended no owner is known.
            let open = user.connect(service).expect("a connection");
            let line = observer.to(service);
            drop(open);
            let verdict = if captured { "captured" } else { "not-captured" };
            assert_eq!((&line["verdict"], &line["explained"]), (&verdict.into(), &true.into()), "{line}");
            assert_eq!(line["of_proxy"], !captured, "{line}");
            assert!(line["option"]["name"].is_string() && line["rule"]["why"].is_string(), "{line}");
        }
        pod.outside().call(inbound).captured(15006, inbound);
        let line = observer.to(inbound);
        assert_eq!((&line["verdict"], &line["port"]), (&"captured".into(), &15006.into()), "{line}");
        assert_eq!(line["explained"], true, "{line}");
    }
    assert_eq!(observer.end()["lost"], 0);
}

fn observe_reports_connections_of_istios_rules(fixture: Fixture) {
    let pod = fixture.pod();
    istio_leftovers(&pod, ISTIO_TODAY);
    let before = pod.state();
    observes(&pod);
    assert_eq!(pod.state(), before, "observe changes nothing");
}

fn questions_about_istios_tproxy_mode_have_answers(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    istio_tproxy(&pod);
    let before = pod.state();
    let ask = |words: &[&str]| pod.bare_istio_iptables(words).run().succeeded().stdout();
    let overview = ask(&["explain", "--live"]);
    let check = ask(&["check"]);
    assert!(check.starts_with("equal") && check.contains("-m TPROXY"), "{check}");
    for family in fixture.families() {
        let [service, inbound] = [at(family.service(), 80), at(family.pod(), 8080)].map(|to| to.to_string());
        let outbound = ask(&["explain", "--live", &service]);
        assert!(outbound.starts_with("captured: ") && outbound.contains("15001"), "{outbound}");
        let arriving = ask(&["explain", "--live", "--from", "outside", &inbound]);
        assert!(arriving.starts_with("captured: ") && arriving.contains("15006"), "{arriving}");
    }
    for line in ["client to the app, port 8080 ", "app to a server "] {
        let rows: Vec<&str> =
            overview.lines().filter(|row| row.get(2..).is_some_and(|row| row.starts_with(line))).collect();
        assert!(rows.len() == 2 && rows.iter().all(|row| row.contains(" captured, 150")), "{overview}");
    }
    let shown = ask(&["show"]);
    for chain in ["mangle ISTIO_TPROXY (IPv4, ", "mangle ISTIO_DIVERT (IPv6, ", "nat ISTIO_OUTPUT (IPv6, "] {
        assert!(shown.contains(chain), "{chain}: {shown}");
    }
    let diff = [&["diff", "options", "live", "--dual-stack"], &TPROXY[..]].concat();
    assert!(ask(&diff).starts_with("equal"), "{}", ask(&diff));
    reports_are_equal(&pod, &[&["--dual-stack"], &TPROXY[..]].concat());
    assert_eq!(pod.state(), before, "questions change nothing");
}

fn observe_and_guard_work_in_istios_tproxy_mode(fixture: Fixture) {
    let pod = fixture.pod();
    istio_tproxy(&pod);
    observes(&pod);
    reports_a_deleted_jump(&pod, &TPROXY);
}
