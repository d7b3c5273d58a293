//! DNS capture, over UDP and TCP, and the conntrack zones that keep the app's and the proxy's questions
//! apart.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::lab::fixture::at;
use crate::lab::program::Program;
use crate::lab::{Family, Fixture, Outcome, Pod, for_each_fixture_and_native};
use netlab::Namespace;

for_each_fixture_and_native!(
    queries_to_the_name_server_are_captured,
    queries_to_other_servers_are_not_captured,
    all_dns_means_any_server,
    proxy_queries_reach_the_name_server,
    proxy_may_use_the_source_port_of_a_waiting_app,
    proxy_may_reuse_the_app_source_port,
    app_may_reuse_the_proxy_source_port,
    a_firewall_that_lets_only_responses_in_lets_dns_responses_in,
    other_udp_is_not_captured,
    without_name_servers_dns_is_not_captured_with_a_warning,
    a_missing_resolver_file_is_an_error,
    name_servers_of_a_process_are_those_of_its_pod,
    dns_capture_ends_when_it_is_switched_off,
    the_unspecified_address_as_name_server_is_this_pod,
);

/// Asks the name server over UDP; the proxy asks the real one in turn, from the same port.
#[track_caller]
pub(crate) fn resolved_through_the_proxy(outcome: &Outcome) {
    outcome.served_by("proxy+outside");
}

fn queries_to_the_name_server_are_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    with_name_server(&pod, &["-b", "*", "-i", "*", "--redirect-dns"]).run().succeeded();
    for family in fixture.families() {
        let server = at(family.name_server(), 53);
        resolved_through_the_proxy(&pod.app().ask(server));
        pod.app().call(server).captured(15053, server);
    }
}

fn queries_to_other_servers_are_not_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    with_name_server(&pod, &["-b", "*", "--redirect-dns"]).run().succeeded();
    for family in fixture.families() {
        pod.app().ask(at(family.service(), 53)).served_by("outside");
        pod.app().call(at(family.service(), 53)).served_by("outside");
    }
}

/// The agent of a node runs with the node's files.
fn name_servers_of_a_process_are_those_of_its_pod(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    let servers: Vec<_> = fixture.families().iter().map(|family| family.name_server()).collect();
    let text: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(&file, text).expect("write it");
    let mut process = pod.namespace.run(|| {
        Command::new("unshare")
            .args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/resolv.conf && echo mounted && exec cat"])
            .arg(file.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start unshare")
    });
    let mut mounted = String::new();
    let output = process.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut mounted).expect("read its output");
    assert_eq!(mounted, "mounted\n");
    let run = |option: &str, value: &str| {
        let backend = format!("--backend={}", fixture.backend.flag());
        let args = ["-b", "*", "-i", "*", "--redirect-dns", "--dual-stack", &backend, option, value];
        let elsewhere = Program::new(&Namespace::new(), &args);
        elsewhere.file("/etc/resolv.conf", "nameserver 203.0.113.53\n").run().succeeded()
    };
    let by_path = run("--network-namespace", &pod.namespace.path());
    by_path.output_contains("takes the name servers from /etc/resolv.conf of the caller, not of the pod");
    let by_pid = run("--pid", &process.id().to_string()).output();
    assert!(!by_pid.contains("of the caller"), "{by_pid}");
    drop(process.stdin.take());
    process.wait().expect("cat ends");
    for server in servers {
        resolved_through_the_proxy(&pod.app().ask(at(server, 53)));
    }
}

fn all_dns_means_any_server(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    // The resolver file is of no interest then.
    let args = ["-b", "*", "-i", "*", "--redirect-dns", "--capture-all-dns"];
    pod.istio_iptables(&args).file("/etc/resolv.conf", "").run().succeeded();
    for family in fixture.families() {
        for server in [at(family.name_server(), 53), at(family.service(), 53)] {
            resolved_through_the_proxy(&pod.app().ask(server));
            pod.app().call(server).captured(15053, server);
            pod.proxy().ask(server).served_by("outside").coming_from(family.pod());
        }
    }
}

fn proxy_queries_reach_the_name_server(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    with_name_server(&pod, &["-b", "*", "-i", "*", "--redirect-dns"]).run().succeeded();
    for family in fixture.families() {
        let server = at(family.name_server(), 53);
        pod.proxy().ask(server).served_by("outside").coming_from(family.pod());
        pod.proxy().call(server).served_by("outside");
        // A proxy known by its group alone is the proxy too.
        pod.user(1000, 1337).ask(server).served_by("outside");
    }
}

/// The app's question is open while the proxy asks the same server from the same address and port: two flows
/// that look the same, kept apart by zones.
fn proxy_may_use_the_source_port_of_a_waiting_app(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    with_name_server(&pod, &["-b", "*", "-i", "*", "--redirect-dns"]).run().succeeded();
    for family in fixture.families() {
        let from = at(family.pod(), 42_053);
        let outcome = pod.app().ask_from(from, at(family.name_server(), 53));
        resolved_through_the_proxy(&outcome);
        assert_eq!(
            outcome.response().source,
            from,
            "the real server must have been asked from the app's port"
        );
    }
}

fn proxy_may_reuse_the_app_source_port(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    with_name_server(&pod, &["-b", "*", "-i", "*", "--redirect-dns"]).run().succeeded();
    for family in fixture.families() {
        let (from, server) = (at(family.pod(), 43_053), at(family.name_server(), 53));
        resolved_through_the_proxy(&pod.app().ask_from(from, server));
        pod.proxy().ask_from(from, server).served_by("outside");
        resolved_through_the_proxy(&pod.app().ask_from(from, server));
    }
}

fn app_may_reuse_the_proxy_source_port(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    with_name_server(&pod, &["-b", "*", "-i", "*", "--redirect-dns"]).run().succeeded();
    for family in fixture.families() {
        let (from, server) = (at(family.pod(), 44_053), at(family.name_server(), 53));
        pod.proxy().ask_from(from, server).served_by("outside");
        resolved_through_the_proxy(&pod.app().ask_from(from, server));
        pod.proxy().ask_from(from, server).served_by("outside");
    }
}

/// Connection tracking must find the question that a response belongs to, in whatever zone.
fn a_firewall_that_lets_only_responses_in_lets_dns_responses_in(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    with_name_server(&pod, &["-b", "*", "-i", "*", "--redirect-dns"]).run().succeeded();
    for &family in fixture.families() {
        pod.iptables(family, "-A INPUT -i eth0 -p udp -m conntrack ! --ctstate ESTABLISHED -j DROP");
        let server = at(family.name_server(), 53);
        resolved_through_the_proxy(&pod.app().ask(server));
        pod.proxy().ask(server).served_by("outside");
        pod.app().ask(at(family.service(), 53)).served_by("outside");
    }
}

fn other_udp_is_not_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    with_name_server(&pod, &["-b", "*", "-i", "*", "--redirect-dns", "--capture-all-dns"]).run().succeeded();
    for family in fixture.families() {
        pod.app().ask(at(family.service(), 5353)).served_by("outside").coming_from(family.pod());
    }
}

fn without_name_servers_dns_is_not_captured_with_a_warning(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    let program =
        pod.istio_iptables(&["-b", "*", "--redirect-dns"]).file("/etc/resolv.conf", "# none\nsearch x\n");
    program.run().succeeded().output_contains("warn");
    for family in fixture.families() {
        pod.app().ask(at(family.name_server(), 53)).served_by("outside");
    }
}

fn a_missing_resolver_file_is_an_error(fixture: Fixture) {
    let pod = fixture.pod();
    let ended = pod.istio_iptables(&["-b", "*", "--redirect-dns"]).empty_directory("/etc").run();
    assert_ne!(ended.code(), 0, "said:\n{}", ended.output());
    ended.output_contains("/etc/resolv.conf");
    assert!(pod.state().is_empty(), "a refused run leaves nothing behind: {:?}", pod.state());
}

fn dns_capture_ends_when_it_is_switched_off(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    with_name_server(&pod, &["-b", "*", "--redirect-dns"]).run().succeeded();
    with_name_server(&pod, &["-b", "*"]).run().succeeded();
    for family in fixture.families() {
        let server = at(family.name_server(), 53);
        pod.app().ask(server).served_by("outside");
        pod.app().call(server).served_by("outside");
    }
}

/// A packet to `0.0.0.0` or `::` leaves with the loopback address as its destination.
fn the_unspecified_address_as_name_server_is_this_pod(fixture: Fixture) {
    let pod = fixture.pod();
    let _proxy = pod.proxy_listens();
    let args = ["-b", "*", "-i", "*", "--redirect-dns"];
    let resolv_conf = "nameserver 0.0.0.0\nnameserver ::\n";
    pod.istio_iptables(&args).file("/etc/resolv.conf", resolv_conf).run().succeeded();
    for family in fixture.families() {
        pod.app().call(at(family.unspecified(), 53)).captured(15053, at(family.loopback(), 53));
    }
}

/// The resolver file names the lab's server of each family the pod has.
pub(crate) fn with_name_server(pod: &Pod, args: &[&str]) -> Program {
    let name = |family: &Family| format!("nameserver {}\n", family.name_server());
    let contents: String = pod.fixture.families().iter().map(name).collect();
    pod.istio_iptables(args).file("/etc/resolv.conf", &contents)
}
