//! A connection beside foreign rules: what the kernel does with it, and what `explain --live` says.

use std::net::{IpAddr, SocketAddr};
use std::panic::resume_unwind;
use std::thread;
use std::{fs, io};

use netlab::socket::{self, Binding};
use netlab::user::Conversation;
use netlab::{Listen, User};

use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Outcome, Pod, verdict};

use Kernel::{Nothing, Proxy, ProxyAlone, Server};

/// What the kernel does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// This port of the proxy responds, and with TPROXY its calls to the app arrive.
    Proxy(u16),
    /// Only the proxy responds.
    ProxyAlone(u16),
    /// What it was for responds.
    Server,
    /// No data arrives.
    Nothing,
}

/// A connection beside foreign rules, as a paragraph of text: `FROM to HOST:PORT: KERNEL | WORDS`, then lines
/// with options and commands.
struct Case<'a> {
    /// Options besides those of every case.
    options: &'a str,
    /// What another program has set up: `-t` begins a command of iptables, `legacy` one of iptables-legacy,
    /// `ip` one of that, `sysctl` is a setting, anything else is for nft.
    foreign: Vec<&'a str>,
    /// What another program has set up before our rules, as in `foreign`.
    earlier: Vec<&'a str>,
    /// Who calls, and whom.
    flow: (&'a str, &'a str),
    kernel: Kernel,
    /// What is in the first line.
    says: &'a str,
    /// Where the families differ.
    only: Option<Family>,
    /// A backend that it is not for: where it depends on the place of rules of iptables before or behind
    /// ours, or beside those of the other variant.
    not_with: Option<Backend>,
}

/// Ports that no option captures: markers go there.
const OPTIONS: &str = "-i * -b * -d 7000,9090 -o 9000";

/// A caller in [`Case::flow`]: the proxy as Istio's injection has it with TPROXY.
const ROOT_PROXY: &str = "root-proxy";

const ROOT_PROXY_LISTENS: [Listen; 2] = [Listen::Tcp(15001), Listen::TcpTransparent(15006)];

fn root_proxy(pod: &Pod) -> User {
    pod.user(0, 1337)
}

pub(crate) fn address(name: &str, family: Family) -> IpAddr {
    match name {
        "service" => family.service(),
        "other" => family.other_service(),
        "pod" => family.pod(),
        "outside" => family.outside(),
        "loopback" => family.loopback(),
        "passthrough" => family.passthrough(),
        "dns" => family.name_server(),
        "routed" => family.routed_to_pod(),
        _ => panic!("{name}"),
    }
}

const NAMES: [&str; 8] = ["service", "other", "pod", "outside", "loopback", "passthrough", "dns", "routed"];

fn with_addresses(text: &str, family: Family) -> String {
    let loopback = if family == Family::V4 { "127.0.0.1" } else { "[::1]" };
    NAMES.iter().fold(text.replace("{loopbackp}", loopback), |text, name| {
        text.replace(&format!("{{{name}}}"), &address(name, family).to_string())
    })
}

pub(crate) fn set_up(pod: &Pod, only: Option<Family>, command: &str) {
    let families =
        || pod.fixture.families().iter().filter(move |family| only.is_none_or(|only| only == **family));
    if command.starts_with("-t ") {
        for &family in families() {
            pod.iptables(family, &with_addresses(command, family));
        }
    } else if let Some(words) = command.strip_prefix("legacy ") {
        for &family in families() {
            let words = with_addresses(words, family);
            let words: Vec<&str> = ["--wait"].into_iter().chain(words.split(' ')).collect();
            pod.namespace.run(|| tool(&Backend::IptablesLegacy.tool(family, ""), &words, ""));
        }
    } else if let Some(setting) = command.strip_prefix("sysctl ") {
        let (name, value) = setting.split_once('=').expect("a value");
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        pod.namespace.run(|| fs::write(&path, value)).expect("a setting is written");
    } else if let Some(words) = command.strip_prefix("ip ") {
        for &family in families() {
            let flag = if family == Family::V4 { "-4" } else { "-6" };
            pod.ip(&format!("{flag} {}", with_addresses(words, family)));
            if words.starts_with("addr add ") {
                pod.namespace.await_ipv6_addresses();
            }
        }
    } else {
        let command = with_addresses(command, only.unwrap_or(Family::V4));
        pod.namespace.run(|| tool("nft", &["-f", "-"], &command));
    }
}

impl<'a> Case<'a> {
    fn of(paragraph: &'a str) -> Option<Self> {
        let mut lines = paragraph.lines().filter(|line| !line.starts_with('#'));
        let (flow, outcome) = lines.next()?.split_once(": ").expect("an outcome");
        let (kernel, says) = outcome.split_once(" | ").unwrap_or((outcome, ""));
        let kernel = match kernel.split_once(' ') {
            Some(("proxy", port)) => Proxy(port.parse().expect("a port")),
            Some(("proxy-alone", port)) => ProxyAlone(port.parse().expect("a port")),
            None if kernel == "server" => Server,
            None if kernel == "nothing" => Nothing,
            _ => panic!("{kernel}"),
        };
        let flow = flow.split_once(" to ").expect("from and to");
        let mut case = Self {
            options: "",
            foreign: Vec::new(),
            earlier: Vec::new(),
            flow,
            kernel,
            says,
            only: None,
            not_with: None,
        };
        for line in lines {
            match line.split_once(' ').expect("words") {
                ("options", options) => case.options = options,
                ("before", command) => case.earlier.push(command),
                ("only", "iptables") => case.not_with = Some(Backend::Native),
                ("only", "nft") => case.not_with = Some(Backend::IptablesLegacy),
                ("only", "ipv4") => case.only = Some(Family::V4),
                ("only", "ipv6") => case.only = Some(Family::V6),
                _ => case.foreign.push(line),
            }
        }
        Some(case)
    }

    fn to(&self, family: Family) -> SocketAddr {
        let (name, port) = self.flow.1.split_once(':').expect("a port");
        at(address(name, family), port.parse().expect("a port"))
    }

    fn from(&self, pod: &Pod) -> User {
        match self.flow.0 {
            "app" => pod.app(),
            "proxy" => pod.proxy(),
            ROOT_PROXY => root_proxy(pod),
            "outside" => pod.outside(),
            other => panic!("{other}"),
        }
    }

    fn holds(&self, fixture: Fixture) -> Vec<String> {
        let pod = fixture.pod();
        let _servers = (
            match self.flow.0 {
                ROOT_PROXY => root_proxy(&pod).serve("proxy", &ROOT_PROXY_LISTENS),
                _ => pod.proxy_listens(),
            },
            pod.app_listens(&[7000, 8080, 9090]),
            pod.outside_listens(&[80, 443, 9000]),
            pod.user(0, 1000).serve("agent", &[Listen::TcpTransparent(3129)]),
        );
        let other = format!("{}/32,{}/128", Family::V4.other_service(), Family::V6.other_service());
        for command in &self.earlier {
            set_up(&pod, self.only, command);
        }
        let options = OPTIONS.split(' ').chain(["-x", &other]).chain(self.options.split_whitespace());
        pod.apply(&options.collect::<Vec<_>>());
        // Neighbours know each other.
        fixture.families().iter().for_each(|family| later_packets_come_through(&pod, *family));
        for command in &self.foreign {
            set_up(&pod, self.only, command);
        }
        let mut wrong = Vec::new();
        let of_case = |family: &&Family| self.only.is_none_or(|only| only == **family);
        for &family in fixture.families().iter().filter(of_case) {
            let by_kernel = self.by_kernel(&pod, family);
            let said = self.first_line(&pod, family);
            let verdict = said.starts_with("captured: ");
            let has_problem = said.contains(", but ") || said.contains("; and ");
            // A rule that is not followed may decide, or an order that is not known.
            let is_open = self.says.starts_with("unless the order")
                || self.says.starts_with("unless a foreign rule in iptables-legacy")
                || (self.kernel == Nothing && self.says.starts_with("unless "));
            let agrees = match self.kernel {
                _ if is_open => true,
                Proxy(port) => verdict && said.contains(&format!(" port {port}")) && !self.is_lost(&said),
                ProxyAlone(port) => verdict && said.contains(&format!(" port {port}")) && has_problem,
                Server => said.starts_with("not captured: ") && !has_problem,
                // No program reads the queues.
                Nothing if said.contains("NFQUEUE") => true,
                Nothing => has_problem || !verdict && !said.starts_with("not captured: "),
            };
            let is_sure = !said.contains("; unless ") || self.says.contains("unless ");
            if by_kernel != self.kernel || !agrees || !is_sure || !said.contains(self.says) {
                let Self { options, foreign, earlier, flow, kernel, says, only: _, not_with: _ } = self;
                wrong.push(format!(
                    "{:?} {family:?} {options} {earlier:?} {foreign:?} {flow:?}\n  kernel: {by_kernel:?}, expected: {kernel:?}, {says:?}\n  {said}",
                    fixture.backend
                ));
            }
        }
        wrong
    }

    /// Whether the first line says that something does not arrive that this connection sends.
    fn is_lost(&self, said: &str) -> bool {
        let own = said.split("what the proxy sends on").next().unwrap_or_default();
        ["arrive", "reach", "made"].iter().any(|word| own.contains(word))
    }

    fn first_line(&self, pod: &Pod, family: Family) -> String {
        let to = self.to(family).to_string();
        let from = if self.flow.0 == ROOT_PROXY { "proxy" } else { self.flow.0 };
        let words = ["explain", "--live", "--from", from, "--to", &to];
        let said = pod.bare_istio_iptables(&words).run().succeeded().stdout();
        verdict(&said)
    }

    fn by_kernel(&self, pod: &Pod, family: Family) -> Kernel {
        let (user, to) = (self.from(pod), self.to(family));
        let outcome = if self.kernel == Nothing {
            let Ok(attempt) = user.run(|| socket::start_connect(to, Binding::default())) else {
                return Nothing;
            };
            later_packets_come_through(pod, family);
            if attempt.peer_addr().is_err() {
                return Nothing;
            }
            let reply: io::Result<_> = user.run(|| Conversation::go_on(attempt));
            reply.map_or(Outcome::TimedOut, |conversation| Outcome::Responded(conversation.greeting))
        } else {
            user.call(to)
        };
        match outcome {
            Outcome::Responded(response) if response.server == "proxy" => {
                self.by_proxy(pod, family, response.port)
            }
            Outcome::Responded(_) => Server,
            unexpected if self.kernel != Nothing => {
                panic!("{:?} {family:?} {:?}: {unexpected:?}", pod.fixture.backend, self.flow)
            }
            Outcome::Refused | Outcome::TimedOut | Outcome::Failed(_) => Nothing,
        }
    }

    /// With TPROXY the proxy calls the app, from the caller's address.
    fn by_proxy(&self, pod: &Pod, family: Family, port: u16) -> Kernel {
        if !self.options.contains("TPROXY") || self.flow.0 != "outside" {
            return Proxy(port);
        }
        let (to, caller) = (self.to(family), Some(at(family.outside(), 0)));
        let binding = Binding { source: caller, spoofed_mark: Some(1337) };
        let proxy = pod.user(0, 1337);
        if matches!(self.kernel, ProxyAlone(_)) {
            let attempt = proxy.run(|| socket::start_connect(to, binding)).expect("a connection begins");
            later_packets_come_through(pod, family);
            pod.app().call(at(family.loopback(), 7000)).response();
            return if attempt.peer_addr().is_ok() { Proxy(port) } else { ProxyAlone(port) };
        }
        match proxy.call_bound(to, binding) {
            Outcome::Responded(response) if response.server == "app" => Proxy(port),
            Outcome::Responded(_) | Outcome::Refused | Outcome::TimedOut | Outcome::Failed(_) => {
                ProxyAlone(port)
            }
        }
    }
}

pub(crate) fn later_packets_come_through(pod: &Pod, family: Family) {
    pod.outside().call(at(family.pod(), 7000)).response();
    pod.app().call(at(family.service(), 9000)).response();
}

/// Each in a pod of its own: many wait for data that does not arrive.
fn all_at_once(cases: &[&Case<'_>], fixture: Fixture) -> Vec<String> {
    thread::scope(|scope| {
        let begun: Vec<_> = cases.iter().map(|case| scope.spawn(|| case.holds(fixture))).collect();
        begun.into_iter().flat_map(|case| case.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

pub(super) fn all_hold(fixture: Fixture, text: &str) {
    let cases: Vec<Case<'_>> = text.split("\n\n").filter_map(Case::of).collect();
    assert!(!cases.is_empty(), "nothing is compared");
    let is_asked = |case: &&Case<'_>| case.not_with != Some(fixture.backend);
    let asked: Vec<&Case<'_>> = cases.iter().filter(is_asked).collect();
    let wrong = all_at_once(&asked, fixture);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
