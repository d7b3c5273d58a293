//! Name servers whose address a BPF program at the pod's sockets replaces before any rule sees a packet: load balancing of Cilium or
//! Calico.

use netlab::SocketProgram;

use crate::dns::with_name_server;
use crate::lab::fixture::at;
use crate::lab::program::Program;
use crate::lab::{Family, Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    queries_that_do_not_reach_the_rules_are_named,
    capture_of_all_dns_takes_translated_queries,
    an_address_that_is_not_translated_is_not_named,
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
        assert!(overview.lines().next().is_some_and(|first| first.contains(&named)), "{overview}");
        let query = ["explain", "--live", "--proto", "udp", "--to", &server.to_string()];
        let answer = pod.bare_istio_iptables(&query).run().succeeded().stdout();
        let first =
            format!("not captured: a BPF program at its socket sends it to {backend} before the rules");
        assert!(answer.starts_with(&first), "{answer}");
        assert!(answer.contains("--capture-all-dns"), "{answer}");
        assert!(bundled(&query) == answer, "{answer}\n{}", bundled(&query));
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
