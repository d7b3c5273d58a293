//! Random foreign rules before ours: what `explain --live` says of a packet is what the kernel does with it,
//! every match of these rules is evaluated, `check` never says "equal" where one of them keeps a packet from
//! the proxy, and a run warns of something foreign where `check` finds something, and only there.

mod policy;
mod rules;

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use netlab::User;
use netlab::socket::{self, Binding};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use serde_json::{Value, json};

use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Outcome, Pod, Topology, for_these_fixtures};
use crate::regressions::{finding, regressions, texts};
use rules::{RuleSet, rule_set};

for_these_fixtures!(
    nft: IptablesNft Dual, legacy: IptablesLegacy Dual, native: Native Dual;
    [random_foreign_rules_are_evaluated_as_the_kernel_does, regressions_are_evaluated_as_the_kernel_does]
);

/// Sets of foreign rules per run; `EXPLAIN_CASES` gives another number.
const CASES: u32 = 16;
/// Packets beside each.
const PACKETS: usize = 12;
/// What is said of a packet that is not followed any further.
const TAKEN: &str = "taken-by-foreign-rule";
const CONNECTED: &str = "connected";
/// How long a reply may take where none is expected.
const WITHOUT_REPLY: Duration = Duration::from_millis(300);
/// Ports of servers.
const PORTS: [u16; 4] = [80, 443, 5432, 9090];
/// Every port and address.
const OPTIONS: [&str; 4] = ["-i", "*", "-b", "*"];
/// Where foreign rules redirect to.
pub(super) const FOREIGN_PORT: u16 = 9999;

/// A packet.
#[derive(Clone, Debug)]
struct Question {
    family: Family,
    sender: Sender,
    /// Of these services or, from outside, of these addresses of the pod.
    destination: usize,
    port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sender {
    /// A process of this user and group.
    Process(u32, u32),
    /// A process of root with this mark of its socket.
    Marked(u32),
    Outside,
}

fn question() -> impl Strategy<Value = Question> {
    let sender = prop_oneof![
        4 => (select(vec![1000, 1500, 2001]), select(vec![101, 1000])).prop_map(|(uid, gid)| Sender::Process(uid, gid)),
        1 => select(vec![1, 2, 5, 0x4001]).prop_map(Sender::Marked),
        3 => Just(Sender::Outside),
    ];
    let family = select(vec![Family::V4, Family::V6]);
    (family, sender, 0_usize..3, select(PORTS.to_vec()))
        .prop_map(|(family, sender, destination, port)| Question { family, sender, destination, port })
}

/// The folder of regression files.
const REGRESSIONS: &str = "foreign_matches";

impl Question {
    /// `V4 uid:1000,gid:101 0:80`, `V6 mark:5 1:443`, `V4 outside 0:80`: the receiver is one of three
    /// addresses.
    fn words(&self) -> String {
        let sender = match self.sender {
            Sender::Process(uid, gid) => format!("uid:{uid},gid:{gid}"),
            Sender::Marked(mark) => format!("mark:{mark}"),
            Sender::Outside => "outside".to_owned(),
        };
        format!("{:?} {sender} {}:{}", self.family, self.destination, self.port)
    }

    fn read(words: &str) -> Self {
        let read = || {
            let mut words = words.split(' ');
            let family = [Family::V4, Family::V6].map(|family| (format!("{family:?}"), family));
            let name = words.next()?;
            let (_, family) = family.into_iter().find(|(known, _)| known == name)?;
            let sender = words.next()?;
            let sender = if sender == "outside" {
                Sender::Outside
            } else if let Some(mark) = sender.strip_prefix("mark:") {
                Sender::Marked(mark.parse().ok()?)
            } else {
                let (uid, gid) = sender.strip_prefix("uid:")?.split_once(",gid:")?;
                Sender::Process(uid.parse().ok()?, gid.parse().ok()?)
            };
            let (destination, port) = words.next()?.split_once(':')?;
            Some(Self { family, sender, destination: destination.parse().ok()?, port: port.parse().ok()? })
        };
        read().unwrap_or_else(|| panic!("{words}: no packet"))
    }

    fn to(&self) -> SocketAddr {
        let family = self.family;
        let addresses = match self.sender {
            Sender::Outside => [family.pod(), family.pod(), family.pod_second()],
            Sender::Process(..) | Sender::Marked(_) => {
                [family.service(), family.other_service(), family.outside()]
            }
        };
        at(addresses[self.destination], self.port)
    }

    fn source(&self) -> IpAddr {
        match (self.sender, self.to().ip() == self.family.pod_second()) {
            (Sender::Outside, false) => self.family.outside(),
            (Sender::Outside, true) => self.family.outside_second(),
            (Sender::Process(..) | Sender::Marked(_), _) => self.family.pod(),
        }
    }

    /// What becomes of it. Where no reply is expected, none is waited for as long as for one.
    fn send(&self, pod: &Pod, source_port: u16, expects_reply: bool) -> Outcome {
        let (user, spoofed_mark) = match self.sender {
            Sender::Process(uid, gid) => (pod.user(uid, gid), None),
            Sender::Marked(mark) => (User::new(&pod.namespace, 0, 0), Some(mark)),
            Sender::Outside => (pod.outside(), None),
        };
        let binding = Binding { source: Some(at(self.source(), source_port)), spoofed_mark };
        if expects_reply {
            return user.call_bound(self.to(), binding);
        }
        user.run(|| match socket::connect_tcp(self.to(), binding, WITHOUT_REPLY) {
            Ok(_) => Outcome::Failed(CONNECTED.to_owned()),
            Err(error) => Outcome::of_error(&error),
        })
    }

    fn ask(&self, pod: &Pod, source_port: u16) -> Value {
        let (from, mark) = match self.sender {
            Sender::Process(uid, gid) => (format!("uid:{uid},gid:{gid}"), 0),
            Sender::Marked(mark) => ("uid:0,gid:0".to_owned(), mark),
            Sender::Outside => ("outside".to_owned(), 0),
        };
        let (to, source) = (self.to().to_string(), at(self.source(), source_port).to_string());
        let mark = mark.to_string();
        let words = ["--from", &from, "--to", &to, "--src", &source, "--mark", &mark, "--output", "json"];
        let output = pod
            .bare_istio_iptables(&[&["explain", "--live"], &words[..]].concat())
            .run()
            .succeeded()
            .stdout();
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"))
    }
}

/// What became of a packet, in the words of `explain`.
fn verdict(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Responded(response) if response.port == FOREIGN_PORT => TAKEN.to_owned(),
        Outcome::Responded(response) if response.server == "proxy" => format!("captured {}", response.port),
        Outcome::Responded(_) => "not-captured".to_owned(),
        Outcome::Refused | Outcome::TimedOut => "dropped".to_owned(),
        Outcome::Failed(words) => words.clone(),
    }
}

fn said(explained: &Value) -> String {
    match (explained["verdict"].as_str(), explained["port"].as_u64()) {
        (Some("captured"), Some(port)) => format!("captured {port}"),
        (verdict, _) => verdict.unwrap_or_default().to_owned(),
    }
}

fn compare(
    pod: &Pod,
    rules: &RuleSet,
    questions: &[Question],
    (all, captured): (&Cell<u16>, &Cell<u16>),
) -> Result<(), TestCaseError> {
    rules.add(pod);
    let (mut wrong, mut are_all_captured) = (Vec::new(), true);
    for question in questions {
        // Each has a port of its own: an earlier connection decides nothing.
        let source_port = 40000 + all.get() % 4000;
        all.set(all.get() + 1);
        let explained = question.ask(pod, source_port);
        let said = said(&explained);
        // What a foreign rule takes may be dropped by another one.
        let is_left_open = said == TAKEN && rules.has_policy();
        let outcome = question.send(pod, source_port, said != "dropped" && !is_left_open);
        let kernel = verdict(&outcome);
        let is_left_open = is_left_open && ["dropped", CONNECTED].contains(&kernel.as_str());
        let is_captured = kernel.starts_with("captured");
        captured.set(captured.get() + u16::from(is_captured));
        are_all_captured &= is_captured;
        let unknown = explained["may_decide"].as_array().is_some_and(|rules| !rules.is_empty());
        if kernel != said && !is_left_open || unknown {
            wrong.push(format!("{question:?}: {outcome:?}, {kernel}: {explained:#}"));
        }
    }
    // Without foreign rules each of these packets is captured.
    let check = pod.bare_istio_iptables(&["check"]).run();
    if check.code() == 0 && !are_all_captured {
        wrong.push(format!("not all packets are captured: {}", check.output()));
    }
    let run = pod.apply(&OPTIONS).output();
    if run.contains("a foreign ") != (check.code() != 0) {
        wrong.push(format!("a run and check differ:\n{run}\n{}", check.output()));
    }
    rules.delete(pod);
    prop_assert!(wrong.is_empty(), "{rules:?}\n{}", wrong.join("\n"));
    Ok(())
}

fn random_foreign_rules_are_evaluated_as_the_kernel_does(fixture: Fixture) {
    let number = |name: &str| {
        let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
        Some(text.parse::<u64>().unwrap_or_else(|error| panic!("{name}={text}: a number is needed: {error}")))
    };
    let cases = number("EXPLAIN_CASES").map_or(CASES, |cases| u32::try_from(cases).unwrap());
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into();
    let seed = number("EXPLAIN_SEED").unwrap_or_else(now);
    eprintln!("{:?}: EXPLAIN_SEED={seed}", fixture.backend);
    let pod = fixture.pod_in(Topology::SecondNic);
    let _servers = servers(&pod);
    pod.apply(&OPTIONS);
    // Otherwise a difference that `check` always finds would hide the others.
    pod.bare_istio_iptables(&["check"]).run().succeeded();
    let (captured, all) = (Cell::new(0), Cell::new(0));
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 30,
        max_shrink_time: 20_000,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    };
    let strategy = (rule_set(fixture.backend), proptest::collection::vec(question(), PACKETS));
    let outcome = TestRunner::new(config)
        .run(&strategy, |(rules, questions)| compare(&pod, &rules, &questions, (&all, &captured)));
    if let Err(error) = outcome {
        let file = |(rules, questions): &(RuleSet, Vec<Question>)| {
            let packets: Value = questions.iter().map(Question::words).collect();
            json!({ "rules": rules.to_json(), "packets": packets })
        };
        panic!("EXPLAIN_SEED={seed}: {}", finding(REGRESSIONS, &error, file));
    }
    let (captured, all) = (captured.get(), all.get());
    eprintln!("{:?}: {all} packets, {captured} of them captured", fixture.backend);
    assert!(captured > 0 && captured < all, "captured {captured} of {all}: nothing was compared");
}

fn servers(pod: &Pod) -> impl Sized {
    (
        pod.proxy_listens(),
        pod.app_listens(&PORTS),
        pod.outside_listens(&PORTS),
        pod.proxy_also_listens(&[FOREIGN_PORT]),
    )
}

fn regressions_are_evaluated_as_the_kernel_does(fixture: Fixture) {
    let pod = fixture.pod_in(Topology::SecondNic);
    let _servers = servers(&pod);
    pod.apply(&OPTIONS);
    let counts = (&Cell::new(0), &Cell::new(0));
    for (name, content) in regressions(REGRESSIONS) {
        let rules = RuleSet::from_json(&content["rules"]);
        let questions: Vec<_> =
            texts(&content["packets"]).iter().map(|words| Question::read(words)).collect();
        assert!(!questions.is_empty(), "{name}: no packet");
        if rules.is_for(fixture.backend) {
            compare(&pod, &rules, &questions, counts).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

/// Rules of nftables are deleted with their tables.
fn nft(pod: &Pod, text: &str) {
    drop(pod.namespace.run(|| tool("nft", &["-f", "-"], text)));
}
