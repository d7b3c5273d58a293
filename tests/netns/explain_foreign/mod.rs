//! The first line of `explain --live` beside foreign rules, marks, zones and routes: each against the kernel.

use std::net::{IpAddr, SocketAddr};
use std::panic::resume_unwind;
use std::thread;
use std::{fs, io};

use netlab::socket::{self, Binding};
use netlab::user::Conversation;
use netlab::{Listen, User};

use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{
    Backend, Family, Fixture, Outcome, Pod, for_each_backend_and_native, for_these_fixtures, verdict,
};

for_each_backend_and_native!(
    marks_are_routed_where_they_are_set,
    zones_of_others_may_keep_replies_from_their_connection,
    masks_that_are_no_prefix_are_evaluated,
    packets_that_are_untracked_by_their_flags,
    untracked_packets_with_tproxy,
    translation_behind_tproxy,
    sockets_that_others_give_packets,
    our_mark_of_others,
    sources_are_chosen_as_the_kernel_does,
    packets_for_an_address_of_lo_arrive_on_another_interface,
    policy_rules_test_what_the_kernel_asks,
    replies_to_the_proxys_calls_to_its_own_pod,
    routes_of_others_are_followed,
    redirections_to_the_proxy_by_others,
    connections_of_packets_are_known,
    alternatives_that_lead_to_one_verdict_are_certain,
    later_packets_that_are_dropped_are_named,
    postrouting_is_followed,
    later_packets_of_direct_connections_are_followed,
    order_of_chains_with_one_priority_is_not_guessed,
    causes_are_those_without_which_packets_are_captured,
    policies_of_ipsec_are_noted,
    translations_of_the_other_family_are_skipped,
    marks_of_others_leave_no_proof_of_equality,
    values_that_rules_name_are_not_those_of_every_packet,
);

for_these_fixtures!(
    iptables_nft: IptablesNft Dual;
    [tables_that_are_switched_off_have_no_effect, switched_off_tables_of_ours_are_named_everywhere]
);

for_these_fixtures!(
    nft_off: IptablesNft Dual, native_off: Native Dual;
    [switched_off_tables_are_the_first_problem]
);

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

    /// Whether the first line says that something does not arrive.
    fn is_lost(&self, said: &str) -> bool {
        ["arrive", "reach", "made"].iter().any(|word| said.contains(word))
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

fn all_hold(fixture: Fixture, text: &str) {
    let cases: Vec<Case<'_>> = text
        .split(
            "

",
        )
        .filter_map(Case::of)
        .collect();
    assert!(!cases.is_empty(), "nothing is compared");
    let is_asked = |case: &&Case<'_>| case.not_with != Some(fixture.backend);
    let asked: Vec<&Case<'_>> = cases.iter().filter(is_asked).collect();
    let wrong = all_at_once(&asked, fixture);
    assert!(
        wrong.is_empty(),
        "{}",
        wrong.join(
            "
"
        )
    );
}

fn marks_are_routed_where_they_are_set(fixture: Fixture) {
    all_hold(fixture, include_str!("marks.txt"));
}

fn later_packets_of_direct_connections_are_followed(fixture: Fixture) {
    all_hold(fixture, include_str!("direct.txt"));
}

fn values_that_rules_name_are_not_those_of_every_packet(fixture: Fixture) {
    all_hold(fixture, include_str!("defaults.txt"));
}

fn zones_of_others_may_keep_replies_from_their_connection(fixture: Fixture) {
    all_hold(fixture, include_str!("zones.txt"));
}

fn replies_to_the_proxys_calls_to_its_own_pod(fixture: Fixture) {
    all_hold(fixture, include_str!("self_calls.txt"));
}

fn masks_that_are_no_prefix_are_evaluated(fixture: Fixture) {
    all_hold(fixture, include_str!("masks.txt"));
}

fn packets_that_are_untracked_by_their_flags(fixture: Fixture) {
    all_hold(fixture, include_str!("tcp_flags.txt"));
}

fn untracked_packets_with_tproxy(fixture: Fixture) {
    all_hold(fixture, include_str!("untracked.txt"));
}

fn translation_behind_tproxy(fixture: Fixture) {
    all_hold(fixture, include_str!("translation.txt"));
}

fn sockets_that_others_give_packets(fixture: Fixture) {
    all_hold(fixture, include_str!("sockets.txt"));
}

fn our_mark_of_others(fixture: Fixture) {
    all_hold(fixture, include_str!("our_mark.txt"));
}

fn sources_are_chosen_as_the_kernel_does(fixture: Fixture) {
    all_hold(fixture, include_str!("sources.txt"));
}

fn packets_for_an_address_of_lo_arrive_on_another_interface(fixture: Fixture) {
    all_hold(fixture, include_str!("unnumbered.txt"));
}

fn policy_rules_test_what_the_kernel_asks(fixture: Fixture) {
    all_hold(fixture, include_str!("policy_rules.txt"));
}

fn routes_of_others_are_followed(fixture: Fixture) {
    all_hold(fixture, include_str!("routes.txt"));
}

fn redirections_to_the_proxy_by_others(fixture: Fixture) {
    all_hold(fixture, include_str!("redirections.txt"));
}

fn connections_of_packets_are_known(fixture: Fixture) {
    all_hold(fixture, include_str!("connections.txt"));
}

fn alternatives_that_lead_to_one_verdict_are_certain(fixture: Fixture) {
    all_hold(fixture, include_str!("alternatives.txt"));
}

fn later_packets_that_are_dropped_are_named(fixture: Fixture) {
    all_hold(fixture, include_str!("established.txt"));
}

fn postrouting_is_followed(fixture: Fixture) {
    all_hold(fixture, include_str!("postrouting.txt"));
}

fn order_of_chains_with_one_priority_is_not_guessed(fixture: Fixture) {
    all_hold(fixture, include_str!("order.txt"));
}

fn causes_are_those_without_which_packets_are_captured(fixture: Fixture) {
    all_hold(fixture, include_str!("causes.txt"));
}

/// IPsec policies are not evaluated, so nothing is said of their consequences, and `check` does not fail.
fn policies_of_ipsec_are_noted(fixture: Fixture) {
    const NOTE: &str = "IPsec policies exist, they are not evaluated";
    let policy = "xfrm policy add dir out dst 192.0.2.0/24 action allow";
    let default = "xfrm policy setdefault out block";
    for words in [policy, default] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
        pod.apply(&["-i", "*", "-b", "*"]);
        let to = at(fixture.families()[0].service(), 80).to_string();
        let reports = || {
            let check = pod.istio_iptables(&["check", "-i", "*", "-b", "*"]).run().succeeded().stdout();
            let explain = |more: &[&str]| {
                let words = [&["explain", "--live"], more].concat();
                pod.bare_istio_iptables(&words).run().succeeded().stdout()
            };
            [check, explain(&[]), explain(&["--to", &to]), explain(&["--to", &to, "--output", "json"])]
        };
        reports().iter().for_each(|report| assert!(!report.contains("IPsec"), "{report}"));
        pod.namespace.run(|| tool("ip", &words.split(' ').collect::<Vec<_>>(), ""));
        reports().iter().for_each(|report| assert!(report.contains(NOTE), "{words}: {report}"));
    }
}

fn tables_that_are_switched_off_have_no_effect(fixture: Fixture) {
    all_hold(fixture, include_str!("dormant.txt"));
}

fn switched_off_tables_of_ours_are_named_everywhere(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[7000]));
    pod.apply(&["-i", "*", "-b", "*"]);
    let first = |words: &[&str]| {
        let said = pod.bare_istio_iptables(words).run().stdout();
        verdict(&said)
    };
    let table = || pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
    let diff = ["diff", "live", "options", "-i", "*", "-b", "*", "--dual-stack"];
    assert!(!table().contains("dormant"), "{}", table());
    assert!(first(&diff).starts_with("equal"), "{}", first(&diff));
    pod.namespace.run(|| tool("nft", &["add", "table", "ip", "nat", "{ flags dormant; }"], ""));
    assert!(verdict(&table()).contains("ip nat is dormant"), "{}", table());
    assert!(first(&diff).starts_with("different"), "{}", first(&diff));
    let bundle = pod.bare_istio_iptables(&["bundle"]).run().succeeded().stdout();
    assert!(bundle.contains("ip nat is dormant"), "{bundle}");
}

/// The fix of the first problem makes the rules live again: a run refuses a dormant table of iptables.
fn switched_off_tables_are_the_first_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[7000]));
    pod.apply(&["-i", "*", "-b", "*"]);
    let tables: &[&str] = match fixture.backend {
        Backend::Native => &["inet istio-proxy-nat"],
        Backend::IptablesNft | Backend::IptablesLegacy => &["ip nat", "ip6 nat"],
    };
    let nft = |table: &str, flags: &str| {
        let commands = format!("add table {table} {flags}");
        pod.namespace.run(|| tool("nft", &["-f", "-"], &commands));
    };
    let said = |words: &[&str]| pod.bare_istio_iptables(words).run().stdout();
    let [before, _] = [said(&["check"]), said(&["explain", "--live"])];
    assert!(!before.contains("dormant"), "{before}");
    tables.iter().for_each(|table| nft(table, "{ flags dormant; }"));
    for words in [&["explain", "--live"][..], &["check"], &["check", "-i", "*", "-b", "*", "--dual-stack"]] {
        let said = said(words);
        assert!(!said.contains("no-rules"), "{words:?}: {said}");
        tables.iter().for_each(|table| assert!(said.contains(table), "{words:?}: {table}: {said}"));
    }
    let explained = said(&["explain", "--live"]);
    assert!(explained.contains(" 1. dormant-table: "), "{explained}");
    tables.iter().for_each(|table| nft(table, ""));
    assert_eq!(said(&["check"]), before, "the fix mends it");
}

fn translations_of_the_other_family_are_skipped(fixture: Fixture) {
    all_hold(fixture, include_str!("inet.txt"));
}

/// Policy rules may drop what they mark, which `diff` does not follow.
fn marks_of_others_leave_no_proof_of_equality(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-i", "*", "-b", "*"]);
    let diff = || {
        let stack = if fixture.families().len() == 2 { &["--dual-stack"][..] } else { &[] };
        pod.bare_istio_iptables(&[&["diff", "live", "options", "-i", "*", "-b", "*"], stack].concat()).run()
    };
    diff().ended_with(0).output_contains("equal");
    for &family in fixture.families() {
        pod.iptables(family, "-t mangle -A OUTPUT -p tcp --dport 9999 -j MARK --set-mark 0x20");
    }
    diff().ended_with(1);
}
