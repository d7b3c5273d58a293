//! Base chains of other programs' nftables tables, which captured packets meet before or after our rules.
//!
//! Packets pass the base chains of a hook by priority. `accept` ends only one of them, so a packet does not
//! reach our rules only if it is dropped, queued, untracked, or redirected by another rule: the first
//! translation of a connection counts. After our rules, a captured packet can still be dropped on its way to
//! the proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use nfnetlink::nftables::{
    Base, Chain, ChainKind, Expression, Family as NftFamily, Hook as NftHook, Members, Rule, Table,
    TableName, Verdict,
};

use super::captured_traffic::{CapturedTraffic, Taken};
use super::chain_search::Search;
use super::expression_words::{CT_ZONE, NOTRACK, word};
use super::later_chains;
use super::shared_tables::{hook_of, is_of_backend};
use super::{AcceptedPorts, DNS_IN_ZONES, IN_A_ZONE, PUBLISHED, REPLIES_ON_LO, UNTRACKED};
use crate::finding::{Finding, Problem, Subject};
use crate::live_rules::LiveRule;
use crate::model::{Backend, CONNTRACK_PRIORITY, Family, FamilyRules, Hook, NAT_PRIORITY, PerFamily};
use crate::ordered::Ordered as _;
use crate::parse::{self, REWRITES};

/// What keeps packets from the proxy that our rules have taken. Verdict maps are left out: nearly every
/// firewall has one for the states of connections.
const AFTER_OURS: [&str; 5] = ["policy drop", "drop", "reject", "queue", REWRITES];

/// A base chain that may keep packets from ours, or from the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseChain {
    table: String,
    chain: String,
    hook: &'static str,
    priority: i32,
    order: HookOrder,
    does: Vec<String>,
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

impl BaseChain {
    /// Whether packets meet it before our rules.
    #[must_use]
    pub const fn is_before(&self) -> bool {
        matches!(self.order, HookOrder::Before(_))
    }

    fn only_rewrites(&self) -> bool {
        self.does.iter().all(|word| word == REWRITES)
    }
}

impl From<&BaseChain> for Finding {
    fn from(base: &BaseChain) -> Self {
        let (table, chain) = (base.table.clone(), base.chain.clone());
        let (cause, advice) = base.words();
        Self::new(Problem::ForeignChain, cause).advice(advice).about([Subject::Chain { table, chain }])
    }
}

impl BaseChain {
    /// The cause, and the advice of the log.
    fn words(&self) -> (String, String) {
        let Self { table, chain, hook, priority, order, does, .. } = self;
        let Self { translates_dns, publishes, drops_sources, is_by_tproxy, .. } = self;
        let does = does.join(", ");
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
                let takes = self
                    .does
                    .iter()
                    .any(|word| word != CT_ZONE && word != REWRITES && !(*is_by_tproxy && word == NOTRACK));
                let taken = if takes { "packets that it takes are not captured" } else { "" };
                let zone = if does.contains(CT_ZONE) { IN_A_ZONE } else { "" };
                let untracked = if *is_by_tproxy { UNTRACKED } else { "" };
                let changed = if self.does.iter().any(|word| word == REWRITES) {
                    "packets that it changes may meet other rules of ours"
                } else {
                    ""
                };
                // Behind ours it drops them, too.
                let drops = self.does.iter().any(|word| AFTER_OURS.contains(&word.as_str()));
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

impl fmt::Display for BaseChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cause, advice) = self.words();
        write!(f, "{cause}{advice}")
    }
}

/// The base chains that may decide over the packets of the desired rules of a backend. `tables` are those of
/// other programs, with the members of their sets.
#[must_use]
pub fn find_conflicting_base_chains(
    desired: &PerFamily<FamilyRules>,
    backend: Backend,
    tables: &[Table],
    sets: &[(TableName, Vec<Members>)],
) -> Vec<BaseChain> {
    let mut found = Vec::new();
    for table in tables {
        let sets = sets.iter().find(|(name, _)| *name == table.name).map_or(&[][..], |(_, sets)| sets);
        for chain in table.chains.iter().filter(|chain| !is_of_backend(table, chain, backend)) {
            let Some(base) = &chain.base else { continue };
            let Some((hook, name)) = hook_of(base) else { continue };
            let Some(ours) = Ours::of(desired, table, hook) else { continue };
            let met = Met::of(base, hook, ours.last);
            let is_behind = met != Met::Before;
            let mut does = BTreeSet::new();
            // To `ct zone set` an untracked packet has no zone yet, and one with a zone cannot be untracked.
            let is_tracked_again = |rule: &Rule| {
                backend == Backend::Native && untracks(rule) && !may_match_without_zone(table, rule)
            };
            let reader = RuleReader { table, sets };
            let may_match = |rule: &Rule| ours.may_match(reader, rule, met) && !is_tracked_again(rule);
            let left: Vec<_> = ours.captured.iter().map(|captured| Left::of(captured, reader, met)).collect();
            let end = |rules: &[Rule]| {
                let ends: Option<Vec<_>> = left.iter().map(|left| left.end(rules)).collect();
                ends?.into_iter().max()
            };
            let mapped = |rule: &Rule| ours.mapped(reader, rule, met).filter(|_| !is_behind);
            let mut search =
                Search { table, may_match: &may_match, mapped: &mapped, end: &end, seen: BTreeSet::new() };
            // Behind the rule that accepts the last captured packets no rule matters, nor does the policy.
            let accepts_all = search.collect(&chain.rules, &mut does);
            if base.policy == Verdict::Drop && !accepts_all {
                does.insert("policy drop".to_owned());
            }
            let decides = |word: &String| {
                if is_behind { AFTER_OURS.contains(&word.as_str()) } else { ours.is_behind(word, base) }
            };
            let does: Vec<String> = does.into_iter().filter(decides).collect();
            if !does.is_empty() {
                let order =
                    if is_behind { HookOrder::After(ours.ports()) } else { HookOrder::Before(ours.last) };
                let arrives = hook == Some(Hook::Prerouting);
                let drops_sources = arrives
                    && does.iter().any(|word| word == "drop")
                    && table.chains.iter().flat_map(|chain| &chain.rules).any(looks_up_source);
                let has_translation = does.iter().any(|word| ["dnat", "redirect"].contains(&word.as_str()));
                let has_dns = ours.captured.iter().any(|captured| captured.dns);
                let translates_dns = hook == Some(Hook::Output) && has_dns && has_translation;
                let is_by_tproxy = arrives
                    && does.iter().any(|word| word == NOTRACK)
                    && ours.captured.iter().any(|captured| captured.keeps_port);
                found.push(BaseChain {
                    table: table.name.to_string(),
                    chain: chain.name.clone(),
                    hook: name,
                    priority: base.priority,
                    order,
                    does,
                    translates_dns,
                    publishes: arrives && has_translation,
                    drops_sources,
                    is_by_tproxy,
                });
            }
        }
    }
    found
}

/// Our rules in a hook, or in any of them.
pub(super) struct Ours {
    /// The priority of the last ones.
    pub(super) last: i32,
    /// Whether connections are redirected.
    nat: bool,
    /// What they capture.
    captured: Vec<CapturedTraffic>,
}

impl Ours {
    pub(super) fn of(desired: &PerFamily<FamilyRules>, table: &Table, hook: Option<Hook>) -> Option<Self> {
        let meets = |family: &Family| parse::has_packets_of(&table.name, *family);
        let families = || desired.iter().filter(|(family, _)| meets(family)).map(|(_, rules)| rules);
        let rules = families().flat_map(|rules| &rules.tables);
        let in_hook = |of: &Hook| hook.is_none_or(|hook| hook == *of);
        let in_hook = rules.filter(|(_, rules)| {
            rules.hooks.iter().any(|(of, rules)| in_hook(of) && rules.iter().next().is_some())
        });
        let priorities: BTreeSet<i32> = in_hook.map(|(table, _)| table.priority()).into_set();
        Some(Self {
            last: *priorities.last()?,
            nat: priorities.contains(&NAT_PRIORITY),
            captured: families().map(CapturedTraffic::of).collect(),
        })
    }

    fn ports(&self) -> String {
        AcceptedPorts::of(&self.captured).words
    }

    /// Whether a rule may match what is captured.
    pub(super) fn may_match(&self, reader: RuleReader<'_>, rule: &Rule, met: Met) -> bool {
        self.captured.iter().any(|captured| {
            let may_match = may_match(captured, met);
            reader.read(captured.family(), rule).iter().any(may_match)
        })
    }

    /// What a verdict map does with what is captured: the rules of its members; `None` if these are not
    /// known.
    pub(super) fn mapped(&self, reader: RuleReader<'_>, rule: &Rule, met: Met) -> Option<Vec<LiveRule>> {
        let of = |captured: &CapturedTraffic| {
            let rules = reader.read_map(captured.family(), rule)?;
            Some(rules.into_iter().filter(may_match(captured, met)).collect::<Vec<_>>())
        };
        let each: Option<Vec<_>> = self.captured.iter().map(of).collect();
        Some(each?.concat())
    }

    /// Whether what a rule does there comes before ours.
    fn is_behind(&self, does: &str, base: &Base) -> bool {
        match does {
            // Only the chains of nat translate, and only they can be after ours in the same place.
            "dnat" | "redirect" => self.nat && base.kind == ChainKind::Nat && base.priority <= NAT_PRIORITY,
            NOTRACK | CT_ZONE => base.priority < CONNTRACK_PRIORITY,
            _ => base.priority <= self.last,
        }
    }
}

/// Where captured packets meet a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// Before ours.
    Before,
    /// Behind ours, in PREROUTING or INPUT.
    OnArrival,
    /// Behind ours, in OUTPUT or POSTROUTING.
    WhenSent,
}

impl Met {
    /// `last` is the priority of our last rules in the hook.
    fn of(base: &Base, hook: Option<Hook>, last: i32) -> Self {
        let is_sent = matches!(base.hook, NftHook::Output | NftHook::Postrouting);
        match hook.is_none() || base.priority > last {
            false => Self::Before,
            true if is_sent => Self::WhenSent,
            true => Self::OnArrival,
        }
    }
}

/// Whether a rule may match packets that are captured, before ours or behind them.
fn may_match(captured: &CapturedTraffic, met: Met) -> impl Fn(&LiveRule) -> bool {
    move |rule| match met {
        Met::Before => captured.may_match(rule),
        Met::OnArrival => captured.may_match_taken(rule, false),
        Met::WhenSent => captured.may_match_taken(rule, true),
    }
}

/// Reads the rules of a table, with the members of its sets.
#[derive(Clone, Copy)]
pub(super) struct RuleReader<'a> {
    pub(super) table: &'a Table,
    pub(super) sets: &'a [Members],
}

impl RuleReader<'_> {
    /// What a rule is for packets of a family: several rules where it looks up a verdict.
    fn read(self, family: Family, rule: &Rule) -> Vec<LiveRule> {
        parse::foreign_rules(family, rule, self.context())
    }

    /// What the members of a rule's verdict map are for, and what they do.
    fn read_map(self, family: Family, rule: &Rule) -> Option<Vec<LiveRule>> {
        parse::rules_of_map(family, rule, self.context())
    }

    const fn context(&self) -> parse::RuleContext<'_> {
        parse::RuleContext { sets: self.sets, links: &[] }
    }
}

/// The captured packets of a family that chains have left to the next rule.
struct Left<'a> {
    captured: &'a CapturedTraffic,
    kinds: Vec<Taken>,
    reader: RuleReader<'a>,
    chains: BTreeMap<String, Vec<LiveRule>>,
    met: Met,
}

impl<'a> Left<'a> {
    fn of(captured: &'a CapturedTraffic, reader: RuleReader<'a>, met: Met) -> Self {
        let kinds = match met {
            Met::Before => captured.arriving().collect(),
            Met::OnArrival => captured.taken(false).collect(),
            Met::WhenSent => captured.taken(true).collect(),
        };
        let read = |chain: &Chain| -> Vec<LiveRule> {
            chain.rules.iter().flat_map(|rule| reader.read(captured.family(), rule)).collect()
        };
        let named = reader.table.chains.iter().filter(|chain| chain.base.is_none());
        let chains = named.map(|chain| (chain.name.clone(), read(chain))).into_map();
        Self { captured, kinds, reader, chains, met }
    }

    /// The place of the first rule behind which none is left.
    fn end(&self, rules: &[Rule]) -> Option<usize> {
        let Self { captured, kinds, reader, chains, met } = self;
        let may_match = may_match(captured, *met);
        let search = later_chains::Search::new(kinds, &may_match, chains);
        let read: Vec<_> = rules.iter().map(|rule| reader.read(captured.family(), rule)).collect();
        let accepts = |taken: &Taken| {
            read.iter().position(|rules| rules.iter().any(|rule| search.accepts(rule, *taken, 0)))
        };
        kinds.iter().map(accepts).collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}

/// The family for which a table is read where both are alike.
fn family_of(table: &Table) -> Family {
    if table.name.family == NftFamily::Ip6 { Family::V6 } else { Family::V4 }
}

/// A rule with its tests.
fn read(table: &Table, rule: &Rule) -> LiveRule {
    parse::rule_of(family_of(table), rule)
}

/// Whether a rule may match captured packets that our rules give no conntrack zone.
fn may_match_without_zone(table: &Table, rule: &Rule) -> bool {
    CapturedTraffic::may_match_without_zone(family_of(table), &read(table, rule))
}

fn untracks(rule: &Rule) -> bool {
    rule.expressions.iter().filter_map(word).any(|word| word == NOTRACK)
}

/// Whether a rule matches the type of an address, mostly the source, or the route to it.
fn looks_up_source(rule: &Rule) -> bool {
    const NAME: u16 = 1;
    let looks_up = |expression: &Expression| {
        let Expression::Foreign { name, data } = expression else { return false };
        let of_iptables =
            || nfnetlink::Attributes::new(data).of(NAME).is_some_and(|name| name.text() == "addrtype");
        name == "fib" || (name == "match" && of_iptables())
    };
    rule.expressions.iter().any(looks_up)
}
