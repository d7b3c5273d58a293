//! DNS queries whose path changes when the rules change.

use std::fmt;

use nfnetlink::nftables::Expression;

use super::{Live, Native};
use crate::model::{
    APP_TO_PROXY_ZONE, Chain, DNS_PORT, Family, FamilyRules, Hook, Match, Matcher, Owner, PerFamily, Ports,
    Protocol, Rule, Statement, Table, Target, Transport, Variant,
};
use crate::nft::{self, DnsRule, NativeTable};
use crate::parse::{Line, Observed};
use crate::reconcile::our_rules;

/// Which DNS flows changed their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsFlows {
    /// Those that bypassed the proxy. Their answers need no entry, so none is lost.
    Direct,
    /// Those that went to the proxy. Answers to queries that are waiting are lost: they need the entry.
    Captured,
    /// Both.
    All,
}

impl DnsFlows {
    /// Whether a flow belongs to these; `captured` if its destination is translated.
    #[must_use]
    pub const fn contains(self, captured: bool) -> bool {
        match self {
            Self::Direct => !captured,
            Self::Captured => captured,
            Self::All => true,
        }
    }

    pub(super) const fn to_bits(self) -> u32 {
        match self {
            Self::Direct => 1,
            Self::Captured => 2,
            Self::All => 3,
        }
    }

    pub(super) const fn from_bits(bits: u32) -> Option<Self> {
        match bits & 3 {
            1 => Some(Self::Direct),
            2 => Some(Self::Captured),
            3 => Some(Self::All),
            _ => None,
        }
    }

    /// These flows and others.
    pub(super) fn or(self, other: Self) -> Self {
        if self == other { self } else { Self::All }
    }
}

impl fmt::Display for DnsFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "not captured before",
            Self::Captured => "captured before",
            Self::All => "captured or not",
        })
    }
}

/// The flows of a family that a run to the desired rules sends another way; `None` if there is none.
pub(super) fn changed_flows(desired: &FamilyRules, live: &Live<'_>) -> Option<DnsFlows> {
    let after = Path::desired(desired);
    let path = |variant: Variant| live.rules.get(&(variant, desired.family)).map(Path::live);
    let sets: Vec<Path> = Variant::ALL.into_iter().filter_map(path).filter(|path| !path.is_empty()).collect();
    match sets.as_slice() {
        _ if live.native == Native::Unread => Some(DnsFlows::All),
        _ if let Native::Replaced(flows) = &live.native => {
            let flows = flows.get(&desired.family).copied();
            let differ = flows.is_some() || sets.iter().any(|before| *before != after);
            if sets.is_empty() { flows } else { differ.then_some(DnsFlows::All) }
        }
        [] => difference(&Path::default(), &after),
        [before] => difference(before, &after),
        // What either set captured was captured.
        several => several.iter().any(|before| *before != after).then_some(DnsFlows::All),
    }
}

/// The flows that a replacement of native tables sends another way, in each family in which it does.
#[must_use]
pub fn native_flows(live: &nft::Live, desired: &[NativeTable]) -> PerFamily<DnsFlows> {
    let changed = |family: Family| {
        let decisions = |path: Vec<DnsRule>| path.into_iter().map(Decision::native).collect::<Vec<_>>();
        let (before, after) = (live.dns_path(family), nft::dns_path_of(desired, family));
        Some((family, compare(&decisions(before), &decisions(after))?))
    };
    Family::ALL.into_iter().filter_map(changed).collect()
}

/// What a DNS query over UDP meets in the nat rules, in order: the decisions before our DNS chain, then that chain.
/// Empty if no query gets there.
#[derive(Debug, Default, PartialEq, Eq)]
struct Path(Vec<Decision<Option<Statement>, Owner>>);

impl Path {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn desired<'a>(rules: &'a FamilyRules) -> Self {
        let Some(nat) = rules.tables.get(&Table::Nat) else { return Self::default() };
        let of = |rule: &'a Rule| Some(&rule.statement);
        let chain = |chain| nat.chains.get(&chain).into_iter().flatten().map(of).collect();
        let hook = nat.hooks.get(&Hook::Output).into_iter().flat_map(|hook| hook.iter().map(of));
        let raw = rules.tables.get(&Table::Raw).and_then(|raw| raw.chains.get(&Chain::OutputDns));
        let raw = raw.into_iter().flatten().map(|rule| &rule.statement);
        Self::of(hook.collect(), chain(Chain::Output), chain(Chain::OutputDns), &proxy_owners(raw))
    }

    fn live<'a>(rules: &'a Observed) -> Self {
        let Some(nat) = rules.tables.get(&Table::Nat) else { return Self::default() };
        let of = |line: &'a Line| line.statement.as_ref();
        let chain = |chain| nat.chains.get(&chain).into_iter().flatten().map(of).collect();
        let hook = our_rules(rules, Table::Nat, Hook::Output).into_iter().map(of);
        let raw = rules.tables.get(&Table::Raw).and_then(|raw| raw.chains.get(&Chain::OutputDns));
        let raw = raw.into_iter().flatten().filter_map(of);
        Self::of(hook.collect(), chain(Chain::Output), chain(Chain::OutputDns), &proxy_owners(raw))
    }

    fn of(
        hook: Vec<Option<&Statement>>,
        output: Vec<Option<&Statement>>,
        dns: Vec<Option<&Statement>>,
        proxy: &[Owner],
    ) -> Self {
        let jump = |chain: Chain| {
            move |rule: &Option<&Statement>| rule.is_some_and(|rule| rule.target == Target::Jump(chain))
        };
        let (Some(_), Some(last)) =
            (hook.iter().position(jump(Chain::Output)), output.iter().rposition(jump(Chain::OutputDns)))
        else {
            return Self::default();
        };
        let output = output.into_iter().take(last + 1);
        let relevant = |rule: &Option<&Statement>| rule.is_none_or(|rule| decides(rule, proxy));
        Self(hook.into_iter().chain(output).chain(dns).filter(relevant).map(Decision::of).collect())
    }
}

/// The owners whose queries are tracked in a zone of their own, so that they have other entries than everything else.
fn proxy_owners<'a>(raw: impl Iterator<Item = &'a Statement>) -> Vec<Owner> {
    let other_zone = |target| matches!(target, Target::ConntrackZone(zone) if zone != APP_TO_PROXY_ZONE);
    raw.filter(|rule| other_zone(rule.target)).filter_map(|rule| only_owner(&rule.matcher)).collect()
}

fn only_owner(matcher: &Matcher) -> Option<Owner> {
    match matcher.owners.as_slice() {
        [Match::Is(owner)] => Some(*owner),
        _ => None,
    }
}

fn fits_queries(protocol: &Protocol) -> bool {
    let Protocol { transport, source: _, destination, syn: _ } = protocol;
    let is_dns = |ports: &Ports| match ports {
        Ports::One(port) => *port == DNS_PORT,
        Ports::Any(ports) => ports.contains(&DNS_PORT),
    };
    let port = match destination {
        None => true,
        Some(Match::Is(ports)) => is_dns(ports),
        Some(Match::Not(ports)) => !is_dns(ports),
    };
    *transport == Transport::Udp && port
}

/// Whether a rule can decide about a UDP query of the pod's processes.
fn decides(rule: &Statement, proxy: &[Owner]) -> bool {
    let queries = rule.matcher.protocol.as_ref().is_none_or(fits_queries);
    queries && only_owner(&rule.matcher).is_none_or(|owner| !proxy.contains(&owner))
}

/// Compares two paths.
fn difference(before: &Path, after: &Path) -> Option<DnsFlows> {
    compare(&before.0, &after.0)
}

/// A rule of a path. The owners that it does not apply to are set apart: a longer list of them is no other rule.
#[derive(Debug, PartialEq, Eq)]
struct Decision<R, E> {
    rule: R,
    exceptions: Vec<E>,
    effect: Effect,
}

impl Decision<Option<Statement>, Owner> {
    fn of(rule: Option<&Statement>) -> Self {
        let (effect, mut rule) = (Effect::of(rule), rule.cloned());
        let owners = rule.as_mut().map(|rule| std::mem::take(&mut rule.matcher.owners)).unwrap_or_default();
        let (negated, plain) = owners.into_iter().partition(|owner| matches!(owner, Match::Not(_)));
        if let Some(rule) = &mut rule {
            rule.matcher.owners = plain;
        }
        let owner = |owner: Match<Owner>| match owner {
            Match::Is(owner) | Match::Not(owner) => owner,
        };
        let negated: Vec<Match<Owner>> = negated;
        Self { rule, exceptions: negated.into_iter().map(owner).collect(), effect }
    }
}

impl Decision<DnsRule, [Expression; 2]> {
    fn native(mut rule: DnsRule) -> Self {
        let effect = match &rule {
            rule if rule.redirects() => Effect::Captures,
            rule if rule.excludes() => Effect::Excludes,
            _ => Effect::Unknown,
        };
        Self { exceptions: std::mem::take(&mut rule.exceptions), rule, effect }
    }
}

impl<R, E: PartialEq> Decision<R, E> {
    /// The effect of each exception that the other version of this rule has not.
    fn exceptions_missing_in(&self, other: &Self) -> impl Iterator<Item = Effect> {
        let only_here = self.exceptions.iter().filter(|exception| !other.exceptions.contains(exception));
        only_here.map(|_| self.effect.of_an_exception())
    }
}

/// Compares two lists of rules: those that are in one of them only capture more queries or fewer, and so does an exception
/// that one of them only has.
fn compare<R: PartialEq, E: PartialEq>(
    before: &[Decision<R, E>],
    after: &[Decision<R, E>],
) -> Option<DnsFlows> {
    if before == after {
        return None;
    }
    if before.is_empty() {
        return Some(DnsFlows::Direct);
    }
    if after.is_empty() {
        return Some(DnsFlows::Captured);
    }
    let (kept, removed) = split(before, after);
    let (known, added) = split(after, before);
    let same_order = kept.iter().map(|old| &old.rule).eq(known.iter().map(|new| &new.rule));
    let mut removed: Vec<Effect> = removed.iter().map(|old| old.effect).collect();
    let mut added: Vec<Effect> = added.iter().map(|new| new.effect).collect();
    for (old, new) in kept.iter().zip(&known) {
        removed.extend(old.exceptions_missing_in(new));
        added.extend(new.exceptions_missing_in(old));
    }
    let all = |removes, adds| {
        removed.iter().all(|effect| *effect == removes) && added.iter().all(|effect| *effect == adds)
    };
    Some(if same_order && all(Effect::Excludes, Effect::Captures) {
        DnsFlows::Direct
    } else if same_order && all(Effect::Captures, Effect::Excludes) {
        DnsFlows::Captured
    } else {
        DnsFlows::All
    })
}

type Decisions<'a, R, E> = Vec<&'a Decision<R, E>>;

/// The rules that are in the other list too, and those that are not.
fn split<'a, R: PartialEq, E>(
    rules: &'a [Decision<R, E>],
    other: &[Decision<R, E>],
) -> (Decisions<'a, R, E>, Decisions<'a, R, E>) {
    rules.iter().partition(|rule| other.iter().any(|other| other.rule == rule.rule))
}

/// The effect of a rule on the queries that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Captures,
    Excludes,
    Unknown,
}

impl Effect {
    const fn of_an_exception(self) -> Self {
        match self {
            Self::Captures => Self::Excludes,
            Self::Excludes => Self::Captures,
            Self::Unknown => Self::Unknown,
        }
    }

    fn of(rule: Option<&Statement>) -> Self {
        match rule.map(|rule| rule.target) {
            Some(Target::Redirect(_)) => Self::Captures,
            Some(Target::Return | Target::Accept) => Self::Excludes,
            Some(
                Target::ConntrackZone(_)
                | Target::Drop
                | Target::Jump(_)
                | Target::RestoreMark
                | Target::SaveMark
                | Target::SetMark(_)
                | Target::Tproxy { .. },
            )
            | None => Self::Unknown,
        }
    }
}
