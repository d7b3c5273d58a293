//! A port that rules of the user send to another one, as behind `docker run --publish`, and a proxy that
//! shares its uid with the app: what docs/pods.md says about both.

use crate::broken_pods::problems;
use crate::lab::fixture::at;
use crate::lab::pod::PROXY;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Outcome, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    a_published_port_needs_an_exclusion_or_a_rule_for_the_proxy,
    a_published_port_behind_ours_is_named,
    a_published_port_of_an_app_that_does_not_listen_is_named,
    app_and_proxy_of_one_uid_are_told_apart_by_the_group,
    a_port_that_is_published_elsewhere_is_not_lost_in_the_first_tproxy_run,
);

/// The reports about all traffic and about a client of port 80, of each family, without colours.
fn explained(pod: &Pod) -> Vec<String> {
    let explain = |question: &[&str]| {
        pod.bare_istio_iptables(&[&["explain", "--live"], question].concat()).run().succeeded().stdout()
    };
    let of_client =
        |family: &Family| explain(&["--from", "outside", "--to", &at(family.pod(), 80).to_string()]);
    [explain(&[])].into_iter().chain(pod.fixture.families().iter().map(of_client)).collect()
}

fn a_published_port_needs_an_exclusion_or_a_rule_for_the_proxy(fixture: Fixture) {
    const RULE: &str = "PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 8080";
    const OF_PROXY: &str = "OUTPUT -o lo -p tcp --dport 80 -j REDIRECT --to-ports 8080";
    const UNSERVED: &str = "no process listens on TCP port 80";
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    let each = |command: &str| {
        for &family in fixture.families() {
            pod.iptables(family, &format!("-t nat {command}"));
        }
    };
    let options = ["-b", "*", "-i", "*", "-d", "15020"];
    each(&format!("-I {RULE}"));
    pod.apply(&options);
    each(&format!("-D {RULE}"));
    each(&format!("-I {RULE}"));
    // It is before ours: no connection gets to the proxy.
    let output = pod.apply(&options).output();
    let named = output.lines().filter(|line| line.contains(" decide") && line.contains("(-d PORT)"));
    assert_eq!(named.count(), fixture.families().len(), "{output}");
    for elsewhere in ["move it after our rule", "give it a priority above"] {
        assert!(!output.contains(elsewhere), "then the proxy would be refused: {output}");
    }
    // Native rules are in a newer chain, and so before these.
    if fixture.backend != Backend::Native {
        for &family in fixture.families() {
            pod.outside().call(at(family.pod(), 80)).served_by("app");
        }
        assert!(explained(&pod).iter().all(|said| !said.contains(UNSERVED)), "{:#?}", explained(&pod));
    }
    each(&format!("-D {RULE}"));
    each(&format!("-A {RULE}"));
    for &family in fixture.families() {
        let (published, proxy) = (at(family.pod(), 80), at(family.passthrough(), 0));
        pod.outside().call(published).captured(15006, published);
        assert_eq!(pod.proxy().call_from(proxy, published), Outcome::Refused, "nothing listens on it");
    }
    assert!(explained(&pod).iter().skip(1).all(|said| said.contains(UNSERVED)), "{:#?}", explained(&pod));
    // Ours returns what the proxy passes through to rules behind it.
    each(&format!("-A {OF_PROXY}"));
    for &family in fixture.families() {
        let (published, proxy) = (at(family.pod(), 80), at(family.passthrough(), 0));
        pod.outside().call(published).captured(15006, published);
        pod.proxy().call_from(proxy, published).served_by("app");
    }
    let none = |said: &str| !said.contains("no process listens on");
    let said = explained(&pod);
    assert!(said.iter().all(|said| none(said)), "{said:#?}");
    assert!(said.iter().all(|said| !said.contains("app-not-listening")), "{said:#?}");
    // A port that is listed is named in the table and by `check`, too.
    let listed = ["-b", "80", "-i", "*"];
    let notes = || pod.istio_iptables(&[&["check"], &listed[..]].concat()).run().stdout();
    pod.apply(&listed);
    assert!(none(&explained(&pod)[0]) && none(&notes()), "{}", notes());
    each(&format!("-D {OF_PROXY}"));
    assert!(explained(&pod).iter().all(|said| said.contains(UNSERVED)), "{:#?}", explained(&pod));
    assert!(notes().contains(UNSERVED), "{}", notes());
    pod.apply(&["-b", "*", "-i", "*", "-d", "15020,80"]);
    for family in fixture.families() {
        pod.outside().call(at(family.pod(), 80)).served_by("app");
    }
    let said = explained(&pod);
    assert!(said.iter().all(|said| !said.contains("no process listens on")), "{said:#?}");
}

/// The rule is for the inner port, and no process listens there.
fn a_published_port_of_an_app_that_does_not_listen_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _proxy = pod.proxy_listens();
    for &family in fixture.families() {
        pod.iptables(family, "-t nat -A PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 8080");
    }
    pod.apply(&["-b", "*", "-i", "*", "-d", "15020,80"]);
    for (said, family) in explained(&pod).iter().skip(1).zip(fixture.families()) {
        assert!(said.contains(&format!("nothing listens on {}", at(family.pod(), 8080))), "{said}");
        assert!(!said.contains("TCP port 80:"), "{said}");
    }
}

fn app_and_proxy_of_one_uid_are_told_apart_by_the_group(fixture: Fixture) {
    let pod = fixture.pod();
    let both = 1000;
    let [app, proxy] = [both, PROXY].map(|group| pod.user(both, group));
    let listen = [netlab::Listen::Tcp(15001), netlab::Listen::TcpTransparent(15006)];
    let _servers = (proxy.serve("proxy", &listen), app.serve("app", &[netlab::Listen::Tcp(8080)]));
    let _outside = pod.outside_listens(&[80]);
    pod.apply(&["-b", "*", "-i", "*", "-u", "65533", "-g", "1337"]);
    for &family in fixture.families() {
        let (service, own) = (at(family.service(), 80), at(family.pod(), 8080));
        app.call(service).captured(15001, service);
        proxy.call(service).served_by("outside");
        pod.outside().call(own).captured(15006, own);
        proxy.call_from(at(family.passthrough(), 0), own).served_by("app");
    }
}

/// netavark (1.14) publishes a container's port so: TPROXY has the packet by then, whose new destination the
/// policy rule leads to the proxy, which the first run is about to add.
fn a_port_that_is_published_elsewhere_is_not_lost_in_the_first_tproxy_run(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    for &family in fixture.families() {
        let container = at(family.service(), 80);
        let publish =
            format!("-t nat -A PREROUTING -p tcp --dport 9090 -j DNAT --to-destination {container}");
        pod.iptables(family, &publish);
    }
    for run in ["first", "second"] {
        let ended = pod.apply(&["-b", "*", "-i", "*", "-m", "TPROXY"]);
        let lost = ended.output().lines().filter(|line| line.contains(" is lost: ")).count();
        assert_eq!(lost, 0, "{run}: {}", ended.output());
    }
    for &family in fixture.families() {
        let response = pod.outside().call(at(family.pod(), 9090));
        assert!(matches!(&response, Outcome::Responded(by) if by.port == 15006), "{response:?}");
    }
}

/// Rules behind ours, of iptables and of nftables: the table of `explain --live` and `check` name them.
fn a_published_port_behind_ours_is_named(fixture: Fixture) {
    // As Docker's: what is sent meets the chain, too.
    const OF_IPTABLES: [&str; 3] = [
        "-N FORWARDS",
        "-A FORWARDS ! -i docker0 -p tcp --dport 80 -j REDIRECT --to-ports 8080",
        "-A PREROUTING -m addrtype --dst-type LOCAL -j FORWARDS",
    ];
    const OF_NFTABLES: &str = "table inet forwards { chain pre { type nat hook prerouting priority -50; tcp dport 80 redirect to :8080; }; }";
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    let check = || pod.istio_iptables(&["check"]).run().stdout();
    let is_none = || {
        assert_eq!(problems(&pod, &[]), [[""; 3]; 0]);
        assert!(!check().contains("forwards the port"), "{}", check());
    };
    let is_named = |family: Family, rule: &str| {
        let published = at(family.pod(), 80);
        pod.outside().call(published).captured(15006, published);
        let of_packet = ["--from", "outside", "--to", &published.to_string()];
        for question in [&[][..], &of_packet] {
            let found = problems(&pod, question);
            let [[id, cause, fix]] = found.as_slice() else { panic!("{rule}: {found:?}") };
            assert_eq!(id, "app-not-listening", "{found:?}");
            assert!(cause.contains("no process listens on TCP port 80") && cause.contains(rule), "{found:?}");
            assert!(fix.contains("`--istio-local-exclude-ports` (`-d`)"), "{found:?}");
        }
        assert!(check().contains(rule), "{rule}: {}", check());
    };
    let nft = |args: &[&str]| pod.namespace.run(|| tool("nft", args, OF_NFTABLES));
    for mode in ["REDIRECT", "TPROXY"] {
        let options = ["-b", "*", "-i", "*", "-m", mode];
        pod.apply(&options);
        is_none();
        for &family in fixture.families() {
            // Native rules of REDIRECT are in a newer chain of the same priority, and so before this one.
            if fixture.backend != Backend::Native {
                OF_IPTABLES.iter().for_each(|rule| drop(pod.iptables(family, &format!("-t nat {rule}"))));
                is_named(
                    family,
                    "nat FORWARDS ! -i docker0 -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 8080",
                );
                ["-D PREROUTING -m addrtype --dst-type LOCAL -j FORWARDS", "-F FORWARDS", "-X FORWARDS"]
                    .iter()
                    .for_each(|rule| drop(pod.iptables(family, &format!("-t nat {rule}"))));
            }
            nft(&["-f", "-"]);
            is_named(family, "inet forwards pre");
            nft(&["delete", "table", "inet", "forwards"]);
            is_none();
        }
        nft(&["-f", "-"]);
        pod.apply(&[&options[..], &["-d", "80"]].concat());
        assert_eq!(problems(&pod, &[]), [[""; 3]; 0], "excluded");
        pod.apply(&options);
        let outer = pod.app_listens(&[80]);
        is_none();
        drop(outer);
        nft(&["delete", "table", "inet", "forwards"]);
    }
}
