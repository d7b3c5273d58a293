//! A port that rules of the user send to another one, as behind `docker run --publish`, and a proxy that
//! shares its uid with the app: what docs/pods.md says about both.

use crate::lab::fixture::at;
use crate::lab::pod::PROXY;
use crate::lab::{Fixture, Outcome, for_each_backend_and_native};

for_each_backend_and_native!(
    a_published_port_needs_an_exclusion_or_a_rule_for_the_proxy,
    app_and_proxy_of_one_uid_are_told_apart_by_the_group,
    a_port_that_is_published_elsewhere_is_not_lost_in_the_first_tproxy_run,
);

fn a_published_port_needs_an_exclusion_or_a_rule_for_the_proxy(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    for &family in fixture.families() {
        pod.iptables(family, "-t nat -A PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 8080");
    }
    pod.apply(&["-b", "*", "-i", "*", "-d", "15020"]);
    for &family in fixture.families() {
        // Ours is before or behind: the proxy gets what a rule before ours has not taken.
        pod.iptables(family, "-t nat -D PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 8080");
        pod.iptables(family, "-t nat -A PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 8080");
        let (published, proxy) = (at(family.pod(), 80), at(family.passthrough(), 0));
        pod.outside().call(published).captured(15006, published);
        assert_eq!(pod.proxy().call_from(proxy, published), Outcome::Refused, "nothing listens on it");
        // Ours returns what the proxy passes through to rules behind it.
        pod.iptables(family, "-t nat -A OUTPUT -o lo -p tcp --dport 80 -j REDIRECT --to-ports 8080");
        pod.outside().call(published).captured(15006, published);
        pod.proxy().call_from(proxy, published).served_by("app");
        pod.iptables(family, "-t nat -D OUTPUT -o lo -p tcp --dport 80 -j REDIRECT --to-ports 8080");
    }
    pod.apply(&["-b", "*", "-i", "*", "-d", "15020,80"]);
    for family in fixture.families() {
        pod.outside().call(at(family.pod(), 80)).served_by("app");
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
