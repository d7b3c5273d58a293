//! `explain`: whether a packet is captured, by which rule, and because of which option.
//!
//! The rules are those that [`crate::policy`] makes, or those that were read from the kernel, foreign ones among them;
//! this is one more interpreter of them.

mod decisive;
mod diagram;
mod foreign_rule;
mod json;
mod live;
mod matching;
mod overview;
mod packet;
mod reason;
mod rules;
mod runtime;
#[cfg(test)]
mod tests;
mod text;
mod walk;

use crate::config::{CaptureConfig, GivenOption, Mode, Output, PacketQuery};
use crate::model::{Family, Mark, Network, PerFamily};
use crate::policy;

pub(crate) use foreign_rule::{Does, does, tests as tests_of};
pub use live::live_config;
pub(crate) use overview::query;
pub use packet::{Packet, Process};
pub use reason::{Cause, Reason};
pub(crate) use rules::Chains;
pub use rules::{Entry, Listed, Rules};
pub use runtime::{Connection, Listener, Process as RunningProcess, Runtime};
pub use walk::{Match, Step, Verdict, Walk, walk};

/// What an answer is about: a pod, and how its traffic is, or would be, captured.
#[derive(Clone, Debug)]
pub struct Pod<'a> {
    /// What the options ask for.
    pub config: &'a CaptureConfig,
    /// The options that differ from their defaults.
    pub given: &'a [GivenOption],
    /// Its addresses.
    pub network: &'a Network,
    /// The live rules, if it is about them.
    pub live: Option<Live>,
}

/// The rules that were read from the kernel.
#[derive(Clone, Debug)]
pub struct Live {
    /// Of each family.
    pub rules: PerFamily<Rules>,
    /// The mark that policy routing sends to `lo`.
    pub routed_mark: Option<Mark>,
    /// What else may decide, and cannot be followed.
    pub notices: Vec<String>,
    /// The foreign rules among these that decide before ours.
    pub foreign: Vec<String>,
    /// What runs in the pod.
    pub runtime: Runtime,
}

impl Pod<'_> {
    fn routed_mark(&self) -> Option<Mark> {
        match (&self.live, self.config.traffic.mode) {
            (Some(live), _) => live.routed_mark,
            (None, Mode::Tproxy(tproxy)) => Some(tproxy.mark),
            (None, Mode::Redirect) => None,
        }
    }

    /// The rules of each family.
    fn rules(&self) -> PerFamily<Rules> {
        if let Some(live) = &self.live {
            return live.rules.clone();
        }
        let rules = policy::ruleset(self.config);
        Family::ALL.into_iter().map(|family| (family, Rules::from(&rules.resolve(family)))).collect()
    }
}

/// The answer to a question, as it is printed.
#[must_use]
pub fn answer(query: &PacketQuery, pod: &Pod<'_>) -> String {
    let (rules, none) = (pod.rules(), Rules::default());
    let explain = |packet: &Packet| {
        let rules = rules.get(&packet.family()).unwrap_or(&none);
        let walk = walk(rules, packet, pod.routed_mark());
        let reason = reason::reason(packet, &walk, pod);
        (walk, reason)
    };
    if let Some(destination) = query.destination {
        let packet = Packet::of(query, destination, pod.config, pod.network);
        let (walk, reason) = explain(&packet);
        if let Some(language) = query.diagram {
            let verdict = text::headline(&packet, &walk, &reason, pod);
            return diagram::diagram(language, &packet.to_string(), &walk, &verdict);
        }
        return match query.output {
            Output::Text => text::packet(&packet, &walk, &reason, pod),
            Output::Json => json::packet(&packet, &walk, &reason, pod),
        };
    }
    let rows = overview::packets(pod.config, pod.network).into_iter().map(|(kind, packet)| {
        let (walk, reason) = explain(&packet);
        overview::Row::of(kind, &packet, &walk, &reason)
    });
    let rows: Vec<_> = rows.collect();
    match query.output {
        Output::Text => text::overview(&rows, pod),
        Output::Json => json::overview(&rows, pod),
    }
}
