//! Set-ups of other programs beside ours: the first line of `explain --live` against what packets do, one by
//! one.

mod cluster;
mod host;
mod rules;
mod situation;

use std::net::SocketAddr;

use netlab::socket::{self, Binding};

use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Family, Fixture, Outcome, Pod, for_these_fixtures, verdict};
use situation::Situation;

for_these_fixtures!(
    nft: IptablesNft Dual, legacy: IptablesLegacy V4, native: Native Dual;
    [
        first_line_is_what_packets_do_beside_programs_of_a_cluster,
        first_line_is_what_packets_do_beside_programs_of_a_host,
        first_line_is_what_packets_do_beside_single_rules,
    ]
);

/// Reachable in every situation, around the proxy: what is sent before its reply has got one, too.
const MARKER: u16 = 7000;
const EXCLUDED: [&str; 8] = ["-i", "*", "-b", "*", "-d", "7000", "-o", "7000"];

/// What became of the first packet of a connection.
#[derive(Debug)]
enum Kernel {
    /// To the proxy's port.
    Proxy(u16),
    /// To another server.
    Direct,
    Refused,
    Silence,
}

fn first_line_is_what_packets_do_beside_programs_of_a_cluster(fixture: Fixture) {
    first_line_is_what_packets_do(fixture, cluster::SITUATIONS);
}

fn first_line_is_what_packets_do_beside_programs_of_a_host(fixture: Fixture) {
    first_line_is_what_packets_do(fixture, host::SITUATIONS);
}

fn first_line_is_what_packets_do_beside_single_rules(fixture: Fixture) {
    first_line_is_what_packets_do(fixture, rules::SITUATIONS);
}

fn first_line_is_what_packets_do(fixture: Fixture, situations: &[Situation]) {
    let mut wrong = Vec::new();
    for situation in situations.iter().filter(|situation| situation.is_for(fixture.backend)) {
        let pod = fixture.pod();
        let _servers = (
            pod.proxy_listens(),
            pod.app_listens(&[MARKER, 8080, 8443]),
            pod.outside_listens(&[80, 443, 5432]),
            pod.proxy_also_listens(&[4140, 4143]),
        );
        pod.apply(&[&EXCLUDED[..], situation.options].concat());
        situation.install(&pod);
        for &family in fixture.families() {
            for packet in situation.packets {
                let (kernel, line) = (send(&pod, family, packet), explain(&pod, family, packet));
                if !agree(&kernel, &line) {
                    wrong.push(format!("{}, {family:?}, {packet}: {kernel:?}\n  {line}", situation.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether the line says what the packet did, or names a rule that may decide otherwise.
fn agree(kernel: &Kernel, line: &str) -> bool {
    let has_problem = line.contains(", but ") || line.contains("; and ");
    let is_direct = line.starts_with("not captured: ");
    match kernel {
        Kernel::Proxy(port) => {
            line.starts_with("captured: ") && line.contains(&format!(" {port}")) && !has_problem
        }
        Kernel::Direct => is_direct && !has_problem,
        // A foreign rule may send it where no server is.
        Kernel::Refused | Kernel::Silence => {
            let lost = ["dropped: ", "lost: ", "no route: ", "not captured: a foreign rule "];
            lost.iter().any(|word| line.starts_with(word)) || has_problem
        }
    }
}

impl Situation {
    fn install(&self, pod: &Pod) {
        pod.ip(self.ip);
        if !self.iptables.is_empty() {
            for &family in pod.fixture.families() {
                pod.restore(family, self.iptables);
            }
        }
        if !self.nft.is_empty() {
            pod.namespace.run(|| tool("nft", &["-f", "-"], self.nft));
        }
    }
}

/// `app service:80`: the sender, and the receiver by its name in the lab.
fn parse(family: Family, packet: &str) -> (&str, SocketAddr) {
    let (sender, to) = packet.split_once(' ').expect("a sender and a receiver");
    let (name, port) = to.rsplit_once(':').expect("a receiver with a port");
    let address = match name {
        "service" => family.service(),
        "other" => family.other_service(),
        "pod" => family.pod(),
        "loopback" => family.loopback(),
        "neighbour" => family.outside(),
        name => panic!("{name}: no address of the lab"),
    };
    (sender, at(address, port.parse().expect("a port")))
}

fn send(pod: &Pod, family: Family, packet: &str) -> Kernel {
    let (sender, to) = parse(family, packet);
    let user = match sender {
        "app" => pod.app(),
        "proxy" => pod.proxy(),
        "outside" => pod.outside(),
        uid => {
            let uid = uid.strip_prefix("uid:").and_then(|uid| uid.parse().ok()).expect("a user");
            pod.user(uid, uid)
        }
    };
    let attempt = match user.run(|| socket::start_connect(to, Binding::default())) {
        Ok(attempt) => attempt,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => return Kernel::Refused,
        Err(_) => return Kernel::Silence,
    };
    let marker = pod.outside().call(at(family.pod(), MARKER));
    assert!(matches!(marker, Outcome::Responded(_)), "{packet}: the marker: {marker:?}");
    if !socket::is_ready(&attempt) {
        return Kernel::Silence;
    }
    drop(attempt);
    match user.call(to) {
        Outcome::Responded(response) if [15001, 15006].contains(&response.port) => {
            Kernel::Proxy(response.port)
        }
        Outcome::Responded(_) => Kernel::Direct,
        Outcome::Refused => Kernel::Refused,
        Outcome::TimedOut | Outcome::Failed(_) => Kernel::Silence,
    }
}

fn explain(pod: &Pod, family: Family, packet: &str) -> String {
    let (sender, to) = parse(family, packet);
    let (to, source) = (to.to_string(), family.outside().to_string());
    let mut words = vec!["explain", "--live", "--from", sender, "--to", &to];
    if sender == "outside" {
        words.extend(["--src", &source]);
    }
    let output = pod.bare_istio_iptables(&words).run().succeeded().stdout();
    verdict(&output)
}
