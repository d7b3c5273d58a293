//! What a walk finds: the verdict, and the rules on the way.

use super::super::entry::Entry;
use super::super::matching::PacketState;
use super::super::routing::{Looked, Routed, words};
use crate::finding::{RuleId, Subject};
use crate::live_rules::Effect;
use crate::model::{Port, Target};
use crate::nft;
use crate::routing::Found;

/// What begins the names of tables of the family `inet`.
const INET: &str = "inet ";

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet goes to this port of the proxy.
    Captured(Port),
    /// The packet is thrown away.
    Dropped,
    /// The packet goes where the first packet of its connection went.
    LikeItsConnection,
    /// Policy routing sends it to the pod, where nothing expects it, or away from the proxy.
    Misrouted,
    /// No policy rule leads to a route for it.
    NoRoute,
    /// The packet goes where it was sent.
    NotCaptured,
    /// A foreign rule decides where it goes.
    TakenByForeignRule,
    /// The mark of the packet routes it to the socket of the proxy that has its connection.
    ToProxySocket,
}

impl Verdict {
    /// In few words.
    #[must_use]
    pub fn outcome(self) -> String {
        match self {
            Self::Captured(port) => format!("captured, {port}"),
            Self::Dropped => "dropped".to_owned(),
            Self::NotCaptured | Self::LikeItsConnection | Self::TakenByForeignRule => {
                "not captured".to_owned()
            }
            Self::ToProxySocket => "captured".to_owned(),
            Self::Misrouted => "lost".to_owned(),
            Self::NoRoute => "no route".to_owned(),
        }
    }
}

/// Whether a rule is for the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// The rule is for the packet.
    Matches,
    /// The rule may be for the packet: these words of a foreign rule cannot be evaluated.
    Maybe(String),
    /// The rule is not for the packet, and why, if the walk is one in words.
    Mismatch(String),
}

/// One rule that was tried.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    /// At this hook.
    pub hook: &'static str,
    /// In this table.
    pub table: &'a str,
    /// In this chain.
    pub chain: &'a str,
    /// The rule.
    pub rule: &'a Entry,
    /// Whether it is for the packet.
    pub matches: Match,
    /// The effect of the rule; `None` if it is not for the packet.
    pub(in crate::explain) effect: Option<Effect>,
}

/// The rules that a packet meets, and what becomes of it.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    /// Every rule that was tried, in order.
    pub steps: Vec<Step<'a>>,
    /// The outcome, if no rule matches of which that is not known.
    pub verdict: Verdict,
    /// The number of the step that decides; `None` if there is none.
    pub decided_by: Option<usize>,
    /// What decides in its place: a rule of ours to which the packet comes without another one, and that has
    /// the same outcome.
    pub cause: Option<Step<'a>>,
    /// Steps with rules of which it is not known whether they decide, or what, and with which the verdict may
    /// be another.
    pub uncertain: Vec<usize>,
    /// Where it was routed, each time.
    pub routed: Vec<Looked<'a>>,
    /// The reason for the verdict, if it is not a rule that was tried.
    pub because: Option<String>,
    /// The table and the chain whose policy drops it.
    pub(in crate::explain) dropped_by: Option<(&'a str, &'a str)>,
    /// Whether its addresses are the reason, whatever port it is for.
    pub(in crate::explain) is_invalid: bool,
    /// Chains with one priority, if their order makes a difference.
    pub order: Option<String>,
    /// The step that gives a packet another destination that TPROXY has taken.
    pub(in crate::explain) translated_by: Option<usize>,
    /// Whether a rule of TPROXY has given it a socket.
    pub(in crate::explain) has_socket: bool,
    /// The packet as it is at the end.
    pub(in crate::explain) end: PacketState,
}

impl<'a> Walk<'a> {
    /// The step that decides.
    #[must_use]
    pub fn decisive(&self) -> Option<&Step<'a>> {
        self.cause.as_ref().or_else(|| self.steps.get(self.decided_by?))
    }

    /// The rule that decides, and those of the chains that lead to it, up to the base chain.
    pub(in crate::explain) fn path_to<'b>(&'b self, decisive: &'b Step<'a>) -> Vec<&'b Step<'a>> {
        let mut path = vec![decisive];
        let at = self.steps.iter().position(|step| std::ptr::eq(step, decisive)).unwrap_or(self.steps.len());
        for step in self.steps.iter().take(at).rev() {
            let Some(last) = path.last() else { break };
            let is_there = (step.hook, step.table) == (last.hook, last.table);
            if is_there && step.leads_to(last.chain) {
                path.push(step);
            }
        }
        path
    }

    /// What may decide otherwise and cannot be evaluated, in words: a foreign rule, or a policy rule.
    pub(in crate::explain) fn unsure(&self) -> Option<String> {
        self.all_unsure().next()
    }

    /// All of that.
    pub(in crate::explain) fn all_unsure(&self) -> impl Iterator<Item = String> {
        let rules = self.uncertain.iter().filter_map(|at| self.steps.get(*at)).map(Step::words);
        let policies = self.routed.iter().flat_map(|looked| &looked.lookup.uncertain).map(words);
        rules.chain(policies).chain(self.order.clone())
    }

    /// The policy rule by which the packet is lost, or the route, if the rule is one that every machine has.
    pub(in crate::explain) fn policy_rule(&self) -> Option<Subject> {
        let last = self.routed.last()?;
        let is_lost = match self.verdict {
            Verdict::Dropped => last.routed() == Routed::Rejected,
            Verdict::Misrouted => true,
            Verdict::Captured(_)
            | Verdict::LikeItsConnection
            | Verdict::NoRoute
            | Verdict::NotCaptured
            | Verdict::TakenByForeignRule
            | Verdict::ToProxySocket => false,
        };
        let tried = last.lookup.decisive.as_ref().filter(|_| is_lost)?;
        Some(match tried.found {
            Found::Route(route) if tried.rule.is_of_kernel() => Subject::Route(route.to_string()),
            Found::Route(_) | Found::Rejected(_) | Found::Unknown => Subject::PolicyRule(tried.rule.clone()),
        })
    }
}

impl Step<'_> {
    /// Whether it leads to a chain, or may.
    fn leads_to(&self, chain: &str) -> bool {
        match &self.effect {
            Some(Effect::Chain { name, .. }) => name == chain,
            Some(Effect::Known(Target::Jump(own))) => own.name() == chain,
            _ => false,
        }
    }

    /// Whether the guard wrote the rule, until the capture rules are live again.
    pub(in crate::explain) fn is_of_lockdown(&self) -> bool {
        self.table.strip_prefix(INET).is_some_and(nft::is_lockdown_table)
    }

    /// Which rule it is.
    pub(in crate::explain) fn id(&self) -> RuleId {
        RuleId::of(self.table, self.chain, &self.rule.rule)
    }

    /// The place and the words of the rule.
    pub(in crate::explain) fn words(&self) -> String {
        format!("{} {} {}", self.table, self.chain, self.rule.shown())
    }
}
