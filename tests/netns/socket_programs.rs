//! Name servers whose address a BPF program at the pod's sockets replaces before any rule sees a packet: load
//! balancing of Cilium or Calico.

use std::io::Write as _;
use std::process::{Command, Stdio};

use netlab::{Cgroup, SocketProgram};

use crate::dns::with_name_server;
use crate::lab::fixture::at;
use crate::lab::program::Program;
use crate::lab::{Family, Fixture, Pod, for_each_backend_and_native, verdict};

for_each_backend_and_native!(
    queries_that_do_not_reach_the_rules_are_named,
    capture_of_all_dns_takes_translated_queries,
    an_address_that_is_not_translated_is_not_named,
    programs_of_another_cgroup_are_named,
);

const DNS: [&str; 5] = ["-b", "*", "-i", "*", "--redirect-dns"];

fn translating(pod: &Pod, families: &[Family]) -> Vec<SocketProgram> {
    let of =
        |family: &Family| SocketProgram::translating(&pod.namespace, family.name_server(), family.service());
    families.iter().map(of).collect()
}

/// The rules test the address of the name server, which no query has any more.
fn queries_that_do_not_reach_the_rules_are_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    let _programs = translating(&pod, fixture.families());
    let dry = [DNS.as_slice(), &["--dry-run"]].concat();
    let outputs = [&dry[..], &DNS].map(|args| with_name_server(&pod, args).run().succeeded().output());
    let overview = pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
    let check = pod.bare_istio_iptables(&["check"]).run().succeeded().output();
    let bundle = pod.bare_istio_iptables(&["bundle"]).run().succeeded().stdout();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), bundle).expect("write it");
    let bundled = |query: &[&str]| {
        let question: Vec<_> = query.iter().copied().filter(|word| *word != "--live").collect();
        let path = file.path().to_string_lossy();
        Program::anywhere(&[&question[..], &["--bundle", &path]].concat()).run().succeeded().stdout()
    };
    for family in fixture.families() {
        let (server, backend) = (at(family.name_server(), 53), at(family.service(), 53));
        pod.app().ask(server).served_by("outside");
        let named = format!("DNS queries over UDP to {} are NOT captured: a BPF program", server.ip());
        for output in outputs.iter().chain([&check]) {
            assert!(output.contains(&named) && output.contains(&format!("to {backend}, before")), "{output}");
        }
        assert!(verdict(&overview).contains(&named), "{overview}");
        let query = ["explain", "--live", "--proto", "udp", "--to", &server.to_string()];
        let report = pod.bare_istio_iptables(&query).run().succeeded().stdout();
        let first =
            format!("not captured: a BPF program at its socket sends it to {backend} before the rules");
        assert!(report.starts_with(&first), "{report}");
        assert!(report.contains("--capture-all-dns"), "{report}");
        assert!(bundled(&query) == report, "{report}\n{}", bundled(&query));
        // Without a socket there is no translation.
        let kernel = [&query[..], &["--from", "kernel"]].concat();
        pod.bare_istio_iptables(&kernel)
            .run()
            .succeeded()
            .output_contains("captured: goes to the proxy's DNS port");
    }
}

fn capture_of_all_dns_takes_translated_queries(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    let _programs = translating(&pod, fixture.families());
    let output =
        with_name_server(&pod, &[&DNS[..], &["--capture-all-dns"]].concat()).run().succeeded().output();
    assert!(!output.contains("BPF"), "{output}");
    for family in fixture.families() {
        pod.app().ask(at(family.name_server(), 53)).served_by("proxy+outside");
    }
}

fn an_address_that_is_not_translated_is_not_named(fixture: Fixture) {
    let (pod, other) = (fixture.pod(), fixture.pod());
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
    // That of another pod, such as the programs of Cilium with socketLB.hostNamespaceOnly.
    let _programs = translating(&other, fixture.families());
    let output = with_name_server(&pod, &DNS).run().succeeded().output();
    assert!(!output.contains("BPF"), "{output}");
    for family in fixture.families() {
        pod.app().ask(at(family.name_server(), 53)).served_by("proxy+outside");
    }
}

/// The sockets of `explain` are in another cgroup than those of the app: that of a pod, to which a program is
/// attached.
fn programs_of_another_cgroup_are_named(fixture: Fixture) {
    const CALL: &str = "setpriv --reuid=1000 --regid=1000 --clear-groups bash -c";
    for &family in fixture.families() {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
        pod.apply(&["-b", "*", "-i", "*"]);
        let cgroup = Cgroup::new();
        let (service, other) = (family.service(), family.other_service());
        let script = format!("read; exec 3<>/dev/tcp/{service}/80; head -n1 <&3; read");
        let mut app = pod.namespace.run(|| {
            let words: Vec<&str> = CALL.split(' ').collect();
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().expect("start an app")
        });
        cgroup.take(app.id());
        let explain = || {
            let question = ["explain", "--live", "--to", &at(service, 80).to_string()];
            pod.bare_istio_iptables(&question).run().succeeded().stdout()
        };
        assert!(!explain().contains("BPF"), "{}", explain());
        let program = SocketProgram::translating_in(&cgroup, &pod.namespace, service, other);
        let said = explain();
        let first = verdict(&said);
        let named = format!("at the sockets of process {} (", app.id());
        assert!(first.contains("unless a BPF program (connect") && first.contains(&named), "{said}");
        let overview = pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
        assert!(verdict(&overview).contains(&named), "{overview}");
        // The other family has no such program.
        if fixture.families().len() > 1 {
            let rest = if family == Family::V4 { Family::V6 } else { Family::V4 };
            let question = ["explain", "--live", "--to", &at(rest.service(), 80).to_string()];
            let said = pod.bare_istio_iptables(&question).run().succeeded().stdout();
            assert!(!verdict(&said).contains("BPF"), "{said}");
        }
        app.stdin.as_mut().expect("its input").write_all(b"\n\n").expect("let it go on");
        let output = app.wait_with_output().expect("it ends");
        let arrived = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(arrived.starts_with("proxy ") && arrived.contains(&at(other, 80).to_string()), "{arrived}");
        drop(program);
    }
}
