//! Base chains of other programs' nftables tables, which captured packets meet before or after our rules.
//!
//! Packets pass the base chains of a hook by priority. `accept` ends only one of them, so a packet does not
//! reach our rules only if it is dropped, queued, untracked, or redirected by another rule: the first
//! translation of a connection counts. After our rules, a captured packet can still be dropped on its way to
//! the proxy.

use std::collections::BTreeSet;
use std::fmt;

use super::captured_traffic::{CapturedTraffic, Taken};
use super::later_chains::Search;
use super::{
    AcceptedPorts, BaseChain, DNS_IN_ZONES, Examined, IN_A_ZONE, PUBLISHED, REPLIES_ON_LO, Stage, UNTRACKED,
};
use crate::explain::Entry;
use crate::finding::{Finding, Problem, Subject};
use crate::live_rules::{Effect, Field, LiveRule, To, Translation, Zone};
use crate::model::{Backend, CONNTRACK_PRIORITY, NAT_PRIORITY, Table, Target};
use crate::ordered::Ordered as _;
use crate::parse::REWRITES;

/// What a base chain does to packets, in the order of its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    SetsZone,
    Translates,
    Drops,
    RewritesEnds,
    Untracks,
    DropsByPolicy,
    Queues,
    Redirects,
    Rejects,
    Tproxies,
    Unread,
}

impl Action {
    /// What a rule does, if it keeps a packet from later rules.
    fn of(rule: &LiveRule) -> Option<Self> {
        match &*rule.effect() {
            Effect::Known(Target::Drop) => Some(Self::Drops),
            Effect::Rejects => Some(Self::Rejects),
            Effect::Queues { .. } => Some(Self::Queues),
            Effect::Known(Target::Redirect(_)) | Effect::Translates(Translation { address: To::Own, .. }) => {
                Some(Self::Redirects)
            }
            Effect::Translates(_) => Some(Self::Translates),
            Effect::Known(Target::Tproxy { .. }) | Effect::ToSocket { .. } | Effect::GivesSocket(..) => {
                Some(Self::Tproxies)
            }
            Effect::Untracks => Some(Self::Untracks),
            Effect::Known(Target::ConntrackZone(_)) => Some(Self::SetsZone),
            Effect::SetsZone(zone) if *zone != Some(Zone::default()) => Some(Self::SetsZone),
            Effect::RewritesEnds => Some(Self::RewritesEnds),
            Effect::Takes => Some(Self::Unread),
            Effect::Known(
                Target::Accept
                | Target::Jump(_)
                | Target::RestoreMark
                | Target::Return
                | Target::SaveMark
                | Target::SetMark(_),
            )
            | Effect::SetsZone(_)
            | Effect::TranslatesSource
            | Effect::Marks
            | Effect::ChangesMark(_)
            | Effect::Chain { .. }
            | Effect::Continues => None,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::SetsZone => "ct zone",
            Self::Translates => "dnat",
            Self::Drops => "drop",
            Self::RewritesEnds => REWRITES,
            Self::Untracks => "notrack",
            Self::DropsByPolicy => "policy drop",
            Self::Queues => "queue",
            Self::Redirects => "redirect",
            Self::Rejects => "reject",
            Self::Tproxies => "tproxy",
            Self::Unread => "a verdict that is not read",
        }
    }

    /// Whether it keeps packets from the proxy that our rules have taken.
    const fn applies_after_ours(self) -> bool {
        matches!(self, Self::DropsByPolicy | Self::Drops | Self::Rejects | Self::Queues | Self::RewritesEnds)
    }
}

/// A base chain that may keep packets from ours, or from the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictingChain {
    table: String,
    chain: String,
    hook: &'static str,
    priority: i32,
    order: HookOrder,
    does: BTreeSet<Action>,
    /// Whether it may translate DNS queries over UDP that have a conntrack zone.
    translates_dns: bool,
    /// Whether it sends what arrives to another port or address.
    publishes: bool,
    /// Whether it drops packets by the type of their source, or by the route to it.
    drops_sources: bool,
    /// Whether TPROXY captures what it exempts from connection tracking.
    is_by_tproxy: bool,
}

/// Whether packets meet a base chain before our rules.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HookOrder {
    /// Before our last rules in the hook, which have this priority, or with them.
    Before(i32),
    /// Behind them, or in the hook by which packets come to the proxy, which has these ports.
    After(String),
}

impl ConflictingChain {
    /// Whether packets meet it before our rules.
    #[must_use]
    pub const fn is_before(&self) -> bool {
        matches!(self.order, HookOrder::Before(_))
    }

    /// Adds what the chain does to packets of another family.
    fn join(&mut self, other: Self) {
        self.does.extend(other.does);
        self.translates_dns |= other.translates_dns;
        self.publishes |= other.publishes;
        self.drops_sources |= other.drops_sources;
        self.is_by_tproxy |= other.is_by_tproxy;
    }

    fn only_rewrites(&self) -> bool {
        self.does.iter().all(|action| *action == Action::RewritesEnds)
    }
}

impl From<&ConflictingChain> for Finding {
    fn from(base: &ConflictingChain) -> Self {
        let (table, chain) = (base.table.clone(), base.chain.clone());
        let (cause, advice) = base.words();
        Self::new(Problem::ForeignChain, cause).advice(advice).about([Subject::Chain { table, chain }])
    }
}

impl ConflictingChain {
    /// The cause, and the advice of the log.
    fn words(&self) -> (String, String) {
        let Self { table, chain, hook, priority, order, does, .. } = self;
        let Self { translates_dns, publishes, drops_sources, is_by_tproxy, .. } = self;
        let does = does.iter().map(|action| action.words()).collect::<Vec<_>>().join(", ");
        match order {
            HookOrder::After(ports) => {
                let lost = if self.only_rewrites() {
                    "packets that it changes may not reach the proxy"
                } else {
                    "packets that it takes do not reach the proxy"
                };
                let cause = format!(
                    "a foreign base chain applies to packets that our rules capture: {table} {chain} ({hook}, priority {priority}): \
                     {does}: {lost}"
                );
                (cause, format!("; accept {ports} in it first, if that is not intended"))
            }
            HookOrder::Before(ours) => {
                let (decides, order) = if priority == ours {
                    ("may decide before ours", ", the same as ours: the chain that was created last is first")
                } else {
                    ("decides before ours", "")
                };
                let dns = if *translates_dns { DNS_IN_ZONES } else { "" };
                let replies = if *drops_sources { REPLIES_ON_LO } else { "" };
                let loses_nothing = |action: &Action| {
                    let is_kept = *action == Action::Untracks && *is_by_tproxy;
                    is_kept || matches!(action, Action::SetsZone | Action::RewritesEnds)
                };
                let takes = !self.does.iter().all(loses_nothing);
                let taken = if takes { "packets that it takes are not captured" } else { "" };
                let zone = if self.does.contains(&Action::SetsZone) { IN_A_ZONE } else { "" };
                let untracked = if *is_by_tproxy { UNTRACKED } else { "" };
                let changed = if self.does.contains(&Action::RewritesEnds) {
                    "packets that it changes may meet other rules of ours"
                } else {
                    ""
                };
                // Behind ours it drops them, too.
                let drops = self.does.iter().any(|action| action.applies_after_ours());
                let advice = if drops {
                    "accept them in it first or delete it".to_owned()
                } else {
                    format!("give it a priority above {ours} or delete it")
                };
                let effects: Vec<&str> =
                    [taken, changed, untracked, zone].into_iter().filter(|words| !words.is_empty()).collect();
                let (colon, then) = if effects.is_empty() { ("", ": ") } else { (": ", "; ") };
                let cause = format!(
                    "a foreign base chain {decides}: {table} {chain} ({hook}, priority {priority}{order}): {does}{colon}{}",
                    effects.join("; ")
                );
                if *publishes && !drops {
                    return (cause, PUBLISHED.to_owned());
                }
                (cause, format!("{then}{advice}, if that is not intended{replies}{dns}"))
            }
        }
    }
}

impl fmt::Display for ConflictingChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cause, advice) = self.words();
        write!(f, "{cause}{advice}")
    }
}

/// The base chains of nftables that may decide over the packets of the desired rules.
#[must_use]
pub fn find_conflicting_chains(examined: &[Examined<'_>]) -> Vec<ConflictingChain> {
    let mut found: Vec<ConflictingChain> = Vec::new();
    for family in examined {
        for base in &family.chains() {
            let Some(chain) = family.conflict(base) else { continue };
            match found.iter_mut().find(|known| known.table == chain.table && known.chain == chain.chain) {
                // A table of both families.
                Some(known) => known.join(chain),
                None => found.push(chain),
            }
        }
    }
    found
}

/// Where captured packets meet a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// Before the last of ours in the hook, which has this priority.
    Before(i32),
    /// Behind ours, in PREROUTING or INPUT.
    OnArrival,
    /// Behind ours, in OUTPUT or POSTROUTING.
    WhenSent,
}

impl Examined<'_> {
    /// Where packets meet a base chain; `None` if none of ours is in its hook, or in any.
    pub(super) fn met(&self, base: &BaseChain<'_>) -> Option<Met> {
        let hook = base.stage.hook();
        let in_hook = Table::ALL.into_iter().filter(|table| {
            let hooks = self.desired.tables.get(table).into_iter().flat_map(|rules| &rules.hooks);
            hooks
                .filter(|(of, _)| hook.is_none_or(|hook| hook == **of))
                .any(|(_, rules)| rules.iter().next().is_some())
        });
        let last = in_hook.map(Table::priority).max().filter(|_| base.stage != Stage::Forward)?;
        Some(match hook {
            Some(_) if base.priority <= last => Met::Before(last),
            _ if base.stage.is_sent() => Met::WhenSent,
            _ => Met::OnArrival,
        })
    }

    /// Whether a rule may match captured packets where these are met.
    pub(super) fn may_match(&self, rule: &LiveRule, met: Met) -> bool {
        let captured = &self.captured;
        // To `ct zone set` an untracked packet has no zone yet, and one with a zone cannot be untracked.
        let is_tracked_again = || {
            self.backend == Backend::Native
                && *rule.effect() == Effect::Untracks
                && !CapturedTraffic::may_match_without_zone(self.family, rule)
        };
        let may_match = match met {
            Met::Before(_) => captured.may_match(rule),
            Met::OnArrival => captured.may_match_taken(rule, false),
            Met::WhenSent => captured.may_match_taken(rule, true),
        };
        may_match && !is_tracked_again()
    }

    /// What a base chain does to captured packets, if it does something.
    fn conflict(&self, base: &BaseChain<'_>) -> Option<ConflictingChain> {
        let table = base.of_nftables(self.family)?;
        let met = self.met(base)?;
        let kinds: Vec<Taken> = match met {
            Met::Before(_) => self.captured.arriving().collect(),
            Met::OnArrival => self.captured.taken(false).collect(),
            Met::WhenSent => self.captured.taken(true).collect(),
        };
        let may_match = |rule: &LiveRule| self.may_match(rule, met);
        let search = Search::new(&kinds, &may_match, (self, base));
        let met_rules = search.all_met();
        let mut does = met_rules.iter().filter_map(|entry| Action::of(&entry.rule)).into_set();
        // Behind the rule that accepts the last captured packets no rule matters, nor does the policy.
        if base.drops && !search.accept_all(base.rules) {
            does.insert(Action::DropsByPolicy);
        }
        let has_nat =
            || base.stage.hook().is_some_and(|hook| self.hook_rules(Table::Nat, hook).next().is_some());
        does.retain(|action| match (met, action) {
            // Only the chains of nat translate, and only they can be after ours in the same place.
            (Met::Before(_), Action::Translates | Action::Redirects) => {
                base.is_nat && base.priority <= NAT_PRIORITY && has_nat()
            }
            (Met::Before(_), Action::Untracks | Action::SetsZone) => base.priority < CONNTRACK_PRIORITY,
            (Met::Before(_), _) => true,
            (Met::OnArrival | Met::WhenSent, action) => action.applies_after_ours(),
        });
        let arrives = base.stage == Stage::Prerouting;
        let has_translation = does.contains(&Action::Translates) || does.contains(&Action::Redirects);
        let looks_up_source = |entry: &Entry| {
            let tests = entry.rule.tests();
            tests.iter().any(|test| matches!(test.field, Field::SourceType(_) | Field::ReversePath(_)))
        };
        let conflict = ConflictingChain {
            table: table.into_owned(),
            chain: base.chain.to_owned(),
            hook: base.stage.name(),
            priority: base.priority,
            order: match met {
                Met::Before(last) => HookOrder::Before(last),
                Met::OnArrival | Met::WhenSent => HookOrder::After(AcceptedPorts::of([&self.captured]).words),
            },
            translates_dns: base.stage == Stage::Output && self.captured.dns && has_translation,
            publishes: arrives && has_translation,
            drops_sources: arrives
                && does.contains(&Action::Drops)
                && met_rules.iter().any(|entry| looks_up_source(entry)),
            is_by_tproxy: arrives && does.contains(&Action::Untracks) && self.captured.keeps_port,
            does,
        };
        (!conflict.does.is_empty()).then_some(conflict)
    }
}
