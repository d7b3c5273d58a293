//! `explain`: whether a packet is captured, by which rule, and because of which option.
//!
//! The rules are those that [`crate::policy`] makes, or those that were read from the kernel, foreign ones
//! among them; this is one more interpreter of them.

mod arrival;
mod base_chains_of_others;
mod bpf_program;
mod broken_chains;
mod connection;
mod defaults;
mod devices;
mod diagram;
mod egress;
mod entry;
mod example_addresses;
mod field_match;
mod fix;
mod foreign_in_own_chains;
mod foreign_rule;
mod json;
mod listener;
mod mark_paths;
mod matching;
mod overview;
mod packet;
mod planned;
mod pod_report;
mod problems;
mod proxy;
mod reach;
mod reason;
mod reasons_by_form;
mod replies;
mod routing;
mod row;
mod rules;
mod runtime;
mod sample_packets;
mod seen;
mod sent_on;
mod stage;
#[cfg(test)]
mod tests;
mod text;
mod unless;
mod unserved;
mod walk;

use crate::model::Backend;
use std::borrow::Cow;

use crate::config::{Answer, CaptureConfig, GivenOption, Mode, Output, PacketQuery, Sender};
use crate::finding::Finding;
use crate::model::{DeviceHook, Family, Fib, Links, Mark, Network, PerFamily};
use crate::policy;

pub(crate) use base_chains_of_others::shared_table;
pub use bpf_program::{BpfProgram, Seen};
pub use broken_chains::BrokenChain;
pub use defaults::TestedFields;
pub use entry::Entry;
pub(crate) use example_addresses::{any_pod, any_server, first_host};
pub use field_match::Open;
pub use listener::{Listener, ListenerProblem};
pub use mark_paths::{Affected, MarkFacts, mark_harms};
use matching::Words;
pub use overview::query;
pub use packet::{Packet, Process, TcpFlags};
pub use planned::ForeignRule;
pub use pod_report::{ChainRule, LiveChain, PodReport, pod_report};
pub use problems::{lost_at_proxy, lost_connections, lost_live_connections, misrouted};
pub use proxy::TAKES_MPTCP;
pub use reason::{Cause, Reason};
pub use routing::{Looked, Routing};
pub use row::{Row, Side};
pub(crate) use rules::{BaseChain, Chains, Holder};
pub use rules::{Listed, Rules};
pub use runtime::{
    Connection, Process as RunningProcess, ProxyPort, Runtime, TranslatedServer, older_than_capture,
};
pub use seen::{Judgement, SeenConnection};
pub(crate) use stage::Stage;
pub use text::NEVER_CAPTURED;
use walk::Sent;
pub use walk::{Match, Step, Verdict, Walk, walk, walk_open};

/// What a report is about: a pod, and how its traffic is, or would be, captured.
#[derive(Clone, Debug)]
pub struct Pod<'a> {
    /// What the options ask for.
    pub config: &'a CaptureConfig,
    /// The options that differ from their defaults.
    pub given: &'a [GivenOption],
    /// The addresses of the pod.
    pub network: &'a Network,
    /// The live rules, if it is about them.
    pub live: Option<LiveState>,
}

/// The rules that were read from the kernel.
#[derive(Clone, Debug)]
pub struct LiveState {
    /// What holds our rules.
    pub backend: Backend,
    /// Of each family.
    pub rules: PerFamily<Rules>,
    /// What the foreign ones among them name.
    pub tested: PerFamily<TestedFields>,
    /// The mark that policy routing is to send to `lo`.
    pub routed_mark: Option<Mark>,
    /// The policy rules and routes of each family.
    pub fib: PerFamily<Fib>,
    /// The interfaces.
    pub links: Links,
    /// What sees packets at interfaces, and cannot be followed.
    pub devices: Vec<DeviceHook>,
    /// What else may decide, and cannot be followed.
    pub notices: Vec<String>,
    /// What sees packets beside the rules, and cannot be followed.
    pub unevaluated: Vec<String>,
    /// Chains of ours that are not as the configuration makes them from which the live rules come.
    pub damaged: PerFamily<Vec<BrokenChain>>,
    /// The dormant tables with rules of ours, each in a sentence.
    pub dormant: Vec<Finding>,
    /// The foreign rules among these that decide before ours.
    pub foreign: Vec<Finding>,
    /// The notices about rules before ours: of other tables, and of another variant of iptables.
    pub before: Vec<Finding>,
    /// Foreign policy rules and routes that may keep packets with our mark from the proxy.
    pub foreign_routes: PerFamily<Vec<Finding>>,
    /// The tables of nftables that running programs own: no other can change them.
    pub owned: Vec<String>,
    /// The sockets that waited for TCP connections when the rules were read, if there are foreign rules;
    /// `None` if that is not known.
    pub tcp_listeners: Option<Vec<Listener>>,
    /// What runs in the pod.
    pub runtime: Runtime,
}

impl LiveState {
    /// Whether rules of ours are live.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.rules.values().any(Rules::has_ours)
    }

    /// What is foreign and decides before our rules, or over packets that they marked.
    pub fn foreign(&self) -> impl Iterator<Item = &Finding> {
        self.foreign.iter().chain(self.foreign_routes.values().flatten())
    }

    /// Chains of ours that other programs have changed.
    fn broken_chains(&self, config: &CaptureConfig, family: Family) -> Vec<BrokenChain> {
        let mut broken = self.rules.get(&family).map(Rules::broken_chains).unwrap_or_default();
        if !broken.is_empty() {
            // Istio's rules of TPROXY mode have chains of nat that nothing jumps to, and so have ours.
            let usual = Rules::from(&policy::ruleset(config).resolve(family)).broken_chains();
            broken.retain(|chain| !usual.contains(chain));
        }
        for damaged in self.damaged.get(&family).into_iter().flatten() {
            if !broken.iter().any(|known| known.is_about_chain_of(damaged)) {
                broken.push(damaged.clone());
            }
        }
        broken
    }

    /// What routes packets of a family.
    #[must_use]
    pub fn routing(&self, family: Family) -> Routing<'_> {
        let listeners = self.runtime.listeners.as_deref();
        let (fib, links) = (self.fib.get(&family), Some(&self.links));
        Routing { mark: self.routed_mark, fib, links, listeners }
    }
}

impl Pod<'_> {
    fn routing(&self, family: Family) -> Routing<'_> {
        let mark = match (&self.live, self.config.traffic.mode) {
            (Some(live), _) => return live.routing(family),
            (None, Mode::Tproxy(tproxy)) => Some(tproxy.mark),
            (None, Mode::Redirect) => None,
        };
        Routing { mark, ..Routing::default() }
    }

    /// The rules of each family.
    fn rules(&self) -> Cow<'_, PerFamily<Rules>> {
        if let Some(live) = &self.live {
            return Cow::Borrowed(&live.rules);
        }
        let rules = policy::ruleset(self.config);
        let of = |family| (family, Rules::from(&rules.resolve(family)));
        Cow::Owned(Family::ALL.into_iter().map(of).collect())
    }

    /// What the rules have done with a connection that was seen. The kernel's word counts: where the live
    /// rules would do something else, they have changed since, or its sender is not known.
    #[must_use]
    pub fn judge(&self, seen: &SeenConnection) -> Judgement {
        seen::judge(seen, self)
    }

    /// A packet with the destination that rules see, by the interface of its route.
    fn prepared(&self, packet: Packet) -> Packet {
        let packet = packet.translated(self);
        let routing = self.routing(packet.family());
        packet.by_route(routing)
    }

    /// A packet of each kind of traffic, with the name of the kind.
    fn kinds(&self) -> Vec<(String, Packet)> {
        self.all_prepared(overview::packets(self))
    }

    /// Packets for each foreign rule.
    fn probes(&self) -> Vec<(String, Packet)> {
        let probes = self.live.as_ref().map(|live| sample_packets::packets(live, self));
        self.all_prepared(probes.unwrap_or_default())
    }

    fn all_prepared(&self, packets: Vec<(String, Packet)>) -> Vec<(String, Packet)> {
        packets.into_iter().map(|(kind, packet)| (kind, self.prepared(packet))).collect()
    }
}

/// The question about the app, for a process of it that runs as a user of the proxy: its packets take another
/// way.
fn of_running_app(query: &PacketQuery, pod: &Pod<'_>) -> PacketQuery {
    let live = pod.live.as_ref().filter(|_| query.sender == Sender::App);
    let running = live.and_then(|live| live.runtime.app_as_proxy().next());
    let sender = running.map_or(query.sender, |app| Sender::Process { uid: app.uid, gid: app.gid });
    PacketQuery { sender, ..query.clone() }
}

/// The report to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// As it is printed.
    pub text: String,
    /// Whether the answer is the expected one, if one is.
    pub is_as_expected: bool,
    /// Whether it is a text with fixes.
    pub has_fixes: bool,
}

/// The report to a question.
#[must_use]
pub fn report(query: &PacketQuery, pod: &Pod<'_>) -> Report {
    let (rules, none) = (pod.rules(), Rules::default());
    let of_family = |packet: &Packet| rules.get(&packet.family()).unwrap_or(&none);
    let is_text = query.output == Output::Text && !query.is_diagram;
    if let Some(destination) = query.destination {
        let query = &of_running_app(query, pod);
        let packet = Packet::of(query, destination, pod.config, pod.network).with_defaults(query, pod);
        let app = pod.live.as_ref().and_then(|live| live.runtime.app).filter(|_| query.sender == Sender::App);
        let packet = if app.is_some() { packet.sent_by(query.sender, app) } else { packet };
        let packet = pod.prepared(packet);
        let (walk, reason) = explained(&packet, of_family(&packet), Words::OfEachRule, pod);
        let problems = problems::of_packet(&packet, (&walk, &reason), pod);
        let is_wanted = match query.expected {
            None | Some(Answer::NoProblem) => true,
            Some(Answer::Captured) => {
                matches!(walk.verdict, Verdict::Captured(_) | Verdict::ToProxySocket)
            }
            Some(Answer::NotCaptured) => walk.verdict == Verdict::NotCaptured,
        };
        let otherwise = || unless::otherwise(of_family(&packet), (query, &packet), &walk, pod);
        let is_sure = || problems.is_empty() && is_certain(&packet, &walk, pod) && otherwise().is_empty();
        let is_as_expected = query.expected.is_none() || (is_wanted && is_sure());
        let text = match query.output {
            Output::Text if query.is_diagram => {
                let verdict = text::headline(&packet, &walk, &reason, pod);
                diagram::diagram(&packet.to_string(), &walk, &verdict)
            }
            Output::Text => text::packet(&packet, &walk, (&reason, &otherwise()), &problems, pod),
            Output::Json => json::packet(&packet, &walk, (&reason, &otherwise()), &problems, pod),
        };
        let has_fixes = is_text && !problems.is_empty();
        return Report { text, is_as_expected, has_fixes };
    }
    let Overview { rows, problems, .. } = Overview::of(pod);
    let text = match query.output {
        Output::Text => text::overview(&rows, &problems, pod),
        Output::Json => json::overview(&rows, &problems, pod),
    };
    let is_as_expected = query.expected.is_none() || problems.is_empty();
    Report { text, is_as_expected, has_fixes: is_text && !problems.is_empty() }
}

/// Whether nothing may decide that cannot be evaluated: no rule, no policy rule, and nothing beside them.
fn is_certain(packet: &Packet, walk: &Walk<'_>, pod: &Pod<'_>) -> bool {
    let is_routed = walk.routed.iter().all(|looked| looked.lookup.uncertain.is_empty());
    walk.uncertain.is_empty() && is_routed && devices::may_decide(packet, walk, pod).is_empty()
}

fn explained<'a>(packet: &Packet, rules: &'a Rules, words: Words, pod: &'a Pod<'_>) -> (Walk<'a>, Reason) {
    let routing = pod.routing(packet.family());
    let walk = Sent { words, ..Sent::of(rules, packet, routing) }.walk();
    let reason = reason::reason(packet, &walk, pod);
    (walk, reason)
}

/// What is wrong with a live pod: what the report on all kinds of traffic lists.
#[must_use]
pub fn problems(pod: &Pod<'_>) -> Vec<Finding> {
    Overview::of(pod).problems
}

/// All kinds of traffic, and what is wrong with a live pod.
struct Overview {
    rows: Vec<Row>,
    /// Packets for each foreign rule.
    probes: Vec<Row>,
    problems: Vec<Finding>,
}

impl Overview {
    fn of(pod: &Pod<'_>) -> Self {
        let rules = pod.rules();
        let mut rows = rows_of(pod.kinds(), &rules, pod);
        let Some(live) = &pod.live else { return Self { rows, probes: Vec::new(), problems: Vec::new() } };
        let probes = rows_of(pod.probes(), &rules, pod);
        let all: Vec<_> = rows.iter().chain(&probes).cloned().collect();
        let problems = problems::problems(&all, live, pod);
        row::add_probes(&mut rows, &probes);
        Self { rows, probes, problems }
    }
}

fn rows_of(packets: Vec<(String, Packet)>, rules: &PerFamily<Rules>, pod: &Pod<'_>) -> Vec<Row> {
    let none = Rules::default();
    let row = |(kind, packet): (String, Packet)| {
        let rules = rules.get(&packet.family()).unwrap_or(&none);
        let (walk, reason) = explained(&packet, rules, Words::None, pod);
        Row::of(kind, &packet, &walk, &reason, pod)
    };
    packets.into_iter().map(row).collect()
}
