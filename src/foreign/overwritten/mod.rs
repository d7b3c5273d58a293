//! Foreign rules that change marks on which TPROXY depends.

pub(super) mod chains;
pub(super) mod mark_paths;
mod packet;

use std::collections::{BTreeMap, BTreeSet};

use nfnetlink::nftables::Table;

use super::{DEEPEST, IptablesRules};
use crate::finding::Subject;
use crate::live_rules::{Effect, LiveRule, MarkChange};
use crate::model::{Backend, FamilyRules, Fib, Link, Mark, PerFamily, Target};
use chains::{BaseChain, Place, base_chains};
use mark_paths::{Affected, MarkPath, Position, mark_paths};
use packet::{Holds, Pod, holds};

/// Facts of the pod besides its rules.
#[derive(Clone, Copy, Debug)]
pub struct Network<'a> {
    /// The addresses of the pod.
    pub fib: &'a PerFamily<Fib>,
    /// The interfaces of the pod.
    pub links: &'a [Link],
}

/// Rules, as shown in messages, with what they are, and the traffic that each breaks.
type Found = BTreeMap<String, (Option<Subject>, BTreeSet<Affected>)>;

/// Foreign rules that change marks on which these rules depend, with the consequences of each.
pub(super) fn in_family(
    rules: &FamilyRules,
    mark: Mark,
    backend: Backend,
    (live, network): (IptablesRules<'_>, Network<'_>),
    tables: &[Table],
) -> Vec<(Place, String)> {
    let pod = Pod::of(rules, network.fib.get(&rules.family));
    let mark_paths = mark_paths(mark);
    let mut found = Found::new();
    for base in base_chains(rules, backend, live, (tables, network.links)) {
        for path in &mark_paths {
            let mut walk = Walk { base: &base, path, pod: &pod, seen: BTreeSet::new(), found: &mut found };
            for part in &base.parts {
                walk.chain(&base.chain, &part.rules, part.position, 0);
            }
        }
    }
    let consequences = |(words, (about, affected)): (String, (_, BTreeSet<Affected>))| {
        (Place { words, about }, consequences(&affected, mark))
    };
    found.into_iter().map(consequences).collect()
}

/// The consequences of one rule.
fn consequences(affected: &BTreeSet<Affected>, mark: Mark) -> String {
    let of = |affected: &Affected| match affected {
        Affected::OwnCalls => {
            "connections from a proxy that runs as root to its own pod are not captured".to_owned()
        }
        Affected::ClientAddress => {
            "the app's replies to connections that the proxy opens from the client's address do not arrive"
                .to_owned()
        }
        Affected::OtherCalls => "connections of other programs to the pod itself are captured".to_owned(),
        Affected::Clients => format!(
            "captured connections get the mark {mark}, with which the proxy's replies are routed to lo"
        ),
    };
    affected.iter().map(of).collect::<Vec<_>>().join("; ")
}

/// How a chain ends for a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Returns,
    Leaves,
}

/// One packet in one base chain. Each rule is examined alone, with the marks of a packet that no other rule
/// has changed.
struct Walk<'a, 'b> {
    base: &'a BaseChain,
    path: &'a MarkPath,
    pod: &'a Pod,
    seen: BTreeSet<&'a str>,
    found: &'b mut Found,
}

impl<'a> Walk<'a, '_> {
    fn chain(&mut self, chain: &str, rules: &'a [LiveRule], position: Position, depth: usize) -> End {
        if !self.path.traverses(position, self.base.kind) {
            return End::Returns;
        }
        for rule in rules {
            let holds = holds(rule, self.path, position, self.pod);
            if holds == Holds::No {
                continue;
            }
            let effect = rule.effect();
            if let Some((name, rules)) = self.base.chains.get_key_value(rule.target()) {
                let is_new = depth < DEEPEST && self.seen.insert(name);
                let end = if is_new { self.chain(name, rules, position, depth + 1) } else { End::Returns };
                if holds == Holds::Yes && (end == End::Leaves || effect.is_goto()) {
                    return end;
                }
                continue;
            }
            let leaves = || matches!(*effect, Effect::Known(Target::Accept | Target::Drop) | Effect::Rejects);
            if holds == Holds::Yes && *effect == Effect::Known(Target::Return) {
                return End::Returns;
            }
            if holds == Holds::Yes && leaves() {
                return End::Leaves;
            }
            self.change(chain, rule, position);
        }
        End::Returns
    }

    fn change(&mut self, chain: &str, rule: &LiveRule, position: Position) {
        let Some(change) = rule.effect().mark_change() else { return };
        let is_without_connection =
            position.is_before_tracking() && change.is_some_and(MarkChange::needs_connection);
        if is_without_connection {
            return;
        }
        let MarkPath { mark, connmark, affected, .. } = *self.path;
        let changed = change.map(|change| change.apply(mark, connmark));
        if self.path.is_broken_by(changed) {
            let Place { words, about } = self.base.place(chain, rule);
            self.found.entry(words).or_insert((about, BTreeSet::new())).1.insert(affected);
        }
    }
}
