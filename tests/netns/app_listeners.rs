//! Listeners of the app that the proxy does not reach, and a proxy that no rule exempts.

use std::net::{IpAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use netlab::Listen;

use crate::broken_pods::{OPTIONS, problems};
use crate::explain_runtime::{start, stop};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Family, Fixture, Outcome, Pod, for_these_fixtures};

for_these_fixtures!(
    nft: IptablesNft Dual, legacy: IptablesLegacy Dual, native: Native Dual;
    [
        an_app_on_loopback_only_is_named,
        an_app_of_one_family_is_named_in_the_other,
        an_app_on_a_mapped_address_listens_there,
        a_proxy_of_root_without_the_group_is_named,
        a_proxy_of_the_apps_user_needs_a_group_of_its_own
    ]
);

/// A socket on `::` takes IPv4, too, as by default.
fn takes_both_families(pod: &Pod) {
    pod.namespace.run(|| tool("sysctl", &["-qw", "net.ipv6.bindv6only=0"], ""));
}

fn from_outside(to: IpAddr) -> [String; 4] {
    ["--from", "outside", "--to", &at(to, 8080).to_string()].map(str::to_owned)
}

#[track_caller]
fn is_named(pod: &Pod, question: &[String], cause: &str) {
    let words: Vec<&str> = question.iter().map(String::as_str).collect();
    let found = problems(pod, &words);
    let [[id, of_first, _]] = found.as_slice() else { panic!("{cause}: {found:?}") };
    assert_eq!(id, "app-not-listening", "{found:?}");
    assert!(of_first.contains(cause), "{cause}: {of_first}");
}

/// The proxy calls the app at the pod's address. An app may have other ports for itself.
fn an_app_on_loopback_only_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    let local = [Family::V4, Family::V6].map(|family| Listen::TcpAt(at(family.loopback(), 8080)));
    let _servers = (pod.proxy_listens_without_dns(), pod.app().serve("app", &local));
    for &family in fixture.families() {
        pod.apply(&OPTIONS);
        let call = pod.proxy().call_from(at(family.passthrough(), 0), at(family.pod(), 8080));
        assert_eq!(call, Outcome::Refused);
        assert_eq!(problems(&pod, &[]), [[""; 3]; 0]);
        let said = pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded();
        let only = "at an address of the pod (only 8080 at 127.0.0.1, 8080 at ::1): ";
        assert!(said.stdout().contains(only), "{}", said.stdout());
        let cause = format!("only: the proxy cannot connect to it at {}", family.pod());
        is_named(&pod, &from_outside(family.pod()), &cause);
        pod.apply(&["-b", "8080"]);
        is_named(&pod, &[], "TCP port 8080 of the app is open at ");
    }
}

fn an_app_of_one_family_is_named_in_the_other(fixture: Fixture) {
    let pod = fixture.pod();
    let any = Listen::TcpAt("0.0.0.0:8080".parse().expect("an address"));
    let _servers = (pod.proxy_listens_without_dns(), pod.app().serve("app", &[any]));
    pod.apply(&["-b", "8080"]);
    assert_eq!(problems(&pod, &[]), [[""; 3]; 0]);
    let question = from_outside(Family::V4.pod());
    assert_eq!(problems(&pod, &question.each_ref().map(String::as_str)), [[""; 3]; 0]);
    is_named(&pod, &from_outside(Family::V6.pod()), "is open at 0.0.0.0 only");
    let call = pod.proxy().call_from(at(Family::V6.passthrough(), 0), at(Family::V6.pod(), 8080));
    assert_eq!(call, Outcome::Refused);
}

/// As Java binds where a program names an IPv4 address.
fn an_app_on_a_mapped_address_listens_there(fixture: Fixture) {
    let pod = fixture.pod();
    takes_both_families(&pod);
    let IpAddr::V4(address) = Family::V4.pod() else { panic!("an IPv4 address") };
    let mapped = Listen::TcpAt(at(address.to_ipv6_mapped().into(), 8080));
    let _servers = (pod.proxy_listens_without_dns(), pod.app().serve("app", &[mapped]));
    pod.apply(&["-b", "8080"]);
    let question = from_outside(Family::V4.pod());
    for question in [&[][..], &question.each_ref().map(String::as_str)] {
        assert_eq!(problems(&pod, question), [[""; 3]; 0]);
    }
}

fn a_proxy_of_root_without_the_group_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _app = pod.app_listens(&[8080]);
    pod.apply(&OPTIONS);
    takes_both_families(&pod);
    let bind = |port| pod.namespace.run(|| TcpListener::bind(("::", port)).expect("a listener"));
    let (outbound, inbound) = (bind(15001), bind(15006));
    for (gid, is_captured) in [("0", true), ("1337", false)] {
        let as_root = format!("setpriv --reuid=0 --regid={gid} --clear-groups cat");
        let proxy = [&outbound, &inbound].map(|listener| start(&pod, &as_root, Some(listener)));
        // Until the processes are those of `cat`.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let found = problems(&pod, &[]);
        let question =
            ["explain", "--live", "--from", "proxy", "--to", &at(Family::V4.service(), 80).to_string()];
        let said = pod.bare_istio_iptables(&question).run().succeeded().stdout();
        assert_eq!(said.starts_with("captured: "), is_captured, "gid {gid}: {said}");
        assert_eq!(found.iter().any(|[id, ..]| id == "proxy-listener"), is_captured, "gid {gid}: {found:?}");
        assert!(is_captured || found.is_empty(), "gid {gid}: {found:?}");
        proxy.into_iter().for_each(stop);
    }
}

/// As docs/pods.md has it where the platform runs all containers as one uid.
fn a_proxy_of_the_apps_user_needs_a_group_of_its_own(fixture: Fixture) {
    const SHARED: u32 = 65532;
    let pod = fixture.pod();
    takes_both_families(&pod);
    let app = pod.user(SHARED, SHARED);
    let _app = app.serve("app", &[Listen::Tcp(8080)]);
    let options = ["-u", "65533", "-g", "1337", "--redirect-dns"];
    pod.apply(&[&OPTIONS[..], &options].concat());
    let loopback = [Family::V4, Family::V6].map(|family| at(family.loopback(), 15053));
    let tcp = |to| app.run(|| TcpListener::bind(to).expect("a listener"));
    let udp = |to| app.run(|| TcpListener::from(OwnedFd::from(UdpSocket::bind(to).expect("a socket"))));
    let any = [15001, 15006].map(|port| tcp(at("::".parse().expect("an address"), port)));
    let sockets: Vec<TcpListener> =
        [any, loopback.map(tcp), loopback.map(udp)].into_iter().flatten().collect();
    for (gid, is_captured) in [(SHARED, true), (1337, false)] {
        let words = format!("setpriv --reuid={SHARED} --regid={gid} --clear-groups cat");
        let proxy: Vec<_> = sockets.iter().map(|socket| start(&pod, &words, Some(socket))).collect();
        // Until the processes are those of `cat`.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let found = problems(&pod, &[]);
        let question =
            ["explain", "--live", "--from", "proxy", "--to", &at(Family::V4.service(), 80).to_string()];
        let said = pod.bare_istio_iptables(&question).run().succeeded().stdout();
        assert_eq!(said.starts_with("captured: "), is_captured, "gid {gid}: {said}");
        assert_eq!(found.iter().any(|[id, ..]| id == "proxy-listener"), is_captured, "gid {gid}: {found:?}");
        assert!(is_captured || found.is_empty(), "gid {gid}: {found:?}");
        let check = [&["check"][..], &OPTIONS, &options].concat();
        let check = pod.istio_iptables(&check).run().succeeded().stdout();
        assert_eq!(check.contains("proxy-listener"), is_captured, "gid {gid}: {check}");
        proxy.into_iter().for_each(stop);
    }
}
