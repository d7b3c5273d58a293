//! BPF programs that drop packets and cannot be read: `explain --live` and `check` name them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::{Command, Stdio};

use netlab::socket::Binding;
use netlab::user::ask_here;
use netlab::{Cgroup, PacketProgram};
use serde_json::Value;

use crate::lab::fixture::at;
use crate::lab::program::Program;
use crate::lab::{Family, Fixture, Pod, for_each_backend_and_native, verdict};

for_each_backend_and_native!(
    programs_that_choose_sockets_are_named,
    programs_that_drop_what_a_process_sends_are_named,
    netfilter_programs_of_a_bundle_are_named
);

fn first_line(pod: &Pod, question: &[&str]) -> String {
    let said = pod.bare_istio_iptables(question).run().succeeded().stdout();
    verdict(&said)
}

fn programs_that_choose_sockets_are_named(fixture: Fixture) {
    let (pod, other) = (fixture.pod(), fixture.pod());
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    pod.apply(&["-b", "*", "-i", "*"]);
    other.apply(&["-b", "*", "-i", "*"]);
    let program = PacketProgram::hiding_listeners(&pod.namespace);
    for &family in fixture.families() {
        let (service, own) = (at(family.service(), 80), at(family.pod(), 8080));
        assert!(pod.app().connect(service).is_err() && pod.outside().connect(own).is_err());
        pod.proxy().call(service).served_by("outside");
        let out = ["explain", "--live", "--to", &service.to_string()];
        let inbound = ["explain", "--live", "--from", "outside", "--to", &own.to_string()];
        for question in [&out[..], &inbound] {
            let line = first_line(&pod, question);
            assert!(
                line.starts_with("captured") && line.contains("unless a BPF program (sk_lookup"),
                "{line}"
            );
            let line = first_line(&other, question);
            assert!(!line.contains("BPF"), "{line}");
        }
        let of_proxy = ["explain", "--live", "--from", "proxy", "--to", &service.to_string()];
        let line = first_line(&pod, &of_proxy);
        assert!(!line.contains("BPF"), "{line}");
        // The response to a query finds its socket by itself only if that is connected.
        let server = at(family.name_server(), 53);
        let is_lost = pod.proxy().run(|| {
            let any: IpAddr =
                if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let socket = UdpSocket::bind((any, 0)).expect("a socket");
            socket.set_nonblocking(true).expect("no waiting");
            socket.send_to(b"?", server).expect("send a query");
            ask_here(server, Binding::default()).response();
            socket.recv(&mut [0; 512]).is_err()
        });
        assert!(is_lost, "{server}");
        let server = server.to_string();
        let query = [&of_proxy[..4], &["--proto", "udp", "--to", &server]].concat();
        let line = first_line(&pod, &query);
        assert!(
            line.starts_with("not captured") && line.contains("unless a BPF program (sk_lookup"),
            "{line}"
        );
    }
    let line = first_line(&pod, &["explain", "--live"]);
    assert!(line.contains("a BPF program (sk_lookup"), "{line}");
    let check = pod.istio_iptables(&["check", "-b", "*", "-i", "*"]).run().ended_with(1).output();
    assert!(check.contains("a BPF program (sk_lookup"), "{check}");
    drop(program);
    let line = first_line(&pod, &["explain", "--live"]);
    assert!(!line.contains("BPF"), "{line}");
}

/// As those of systemd for `IPAddressDeny=`.
fn programs_that_drop_what_a_process_sends_are_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&["-b", "*", "-i", "*"]);
    let cgroup = Cgroup::new();
    let mut app = pod.namespace.run(|| {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).spawn().expect("start an app")
    });
    cgroup.take(app.id());
    let question = |fixture: Fixture| {
        let to = at(fixture.families()[0].service(), 80).to_string();
        first_line(&pod, &["explain", "--live", "--to", &to])
    };
    assert!(!question(fixture).contains("BPF"), "{}", question(fixture));
    let _program = PacketProgram::dropping_sent(&cgroup);
    let named = format!(
        "a BPF program (cgroup_skb/egress) at the sockets of process {} (cat) may drop its packets",
        app.id()
    );
    let line = question(fixture);
    assert!(line.starts_with("captured") && line.contains(&named), "{line}");
    let line = first_line(&pod, &["explain", "--live"]);
    assert!(line.contains(&named), "{line}");
    drop(app.stdin.take());
    app.wait().expect("it ends");
}

/// A program of type netfilter would be seen by other tests, too: the kernel does not say in which network
/// namespace one is.
fn netfilter_programs_of_a_bundle_are_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.proxy_listens();
    pod.apply(&["-b", "*", "-i", "*"]);
    let made = pod.bare_istio_iptables(&["bundle"]).run().succeeded().stdout();
    let mut bundle: Value = serde_json::from_str(&made).expect("JSON");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = file.path().to_string_lossy().into_owned();
    let mut explain = |links: &str, question: &[&str]| {
        let facts = bundle["facts"].as_object_mut().expect("facts");
        let fact = facts.get_mut("BPF programs of type netfilter").expect("the links");
        *fact = links.lines().chain([""]).collect();
        std::fs::write(file.path(), bundle.to_string()).expect("write it");
        let args = [&["explain", "--bundle", &path][..], question].concat();
        let said = Program::anywhere(&args).run().succeeded().stdout();
        verdict(&said)
    };
    let family = fixture.families()[0];
    let (own, other) = if family == Family::V4 { (2, 10) } else { (10, 2) };
    let to = ["--to", &at(family.service(), 80).to_string()];
    let line = explain(&format!("7 {own} 3 -120\n"), &to);
    let named = "a BPF program (netfilter, number 7) at ";
    assert!(line.starts_with("captured") && line.contains(named), "{line}");
    assert!(line.contains(" OUTPUT, priority -120, may drop packets"), "{line}");
    let line = explain(&format!("7 {own} 3 -120\n"), &[]);
    assert!(line.contains(named), "{line}");
    // What is forwarded, and the other family.
    for links in [format!("7 {own} 2 -120\n"), format!("7 {other} 3 -120\n"), String::new()] {
        let line = explain(&links, &to);
        assert!(line.starts_with("captured") && !line.contains("BPF"), "{line}");
    }
}
