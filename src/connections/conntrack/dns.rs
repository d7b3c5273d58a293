//! DNS queries whose path changes when the rules change.

use super::dns_decisions::{Decision, compare};
use super::dns_flows::DnsFlows;
use super::{Native, ObservedState};
use crate::model::{
    APP_TO_PROXY_ZONE, Chain, DNS_PORT, Family, FamilyRules, Hook, Match, Matcher, Owner, PerFamily, Ports,
    Protocol, Rule, Statement, Table, Target, Transport, Variant,
};
use crate::nft::{self, NativeTable};
use crate::parse::{self, Line, Observed};
use crate::reconcile::our_rules;

/// The flows of a family that a run to the desired rules sends another way; `None` if there is none.
pub(super) fn changed_flows(desired: &FamilyRules, live: &ObservedState<'_>) -> Option<DnsFlows> {
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
        [] => compare(&[], &after.0),
        [before] => compare(&before.0, &after.0),
        // What either set captured was captured.
        several => several.iter().any(|before| *before != after).then_some(DnsFlows::All),
    }
}

/// The flows that a replacement of native tables sends another way, in each family in which it does.
#[must_use]
pub fn native_flows(live: &nft::LiveTables, desired: &[NativeTable]) -> PerFamily<DnsFlows> {
    if live.differing(desired).is_empty() {
        return PerFamily::new();
    }
    let desired: Vec<_> = desired.iter().map(nft::encode).collect();
    let changed = |family: Family| {
        let (before, after) = (Path::native(live.tables(), family), Path::native(&desired, family));
        Some((family, compare(&before.0, &after.0)?))
    };
    Family::ALL.into_iter().filter_map(changed).collect()
}

/// What a DNS query over UDP meets in the nat rules, in order: the decisions before our DNS chain, then that
/// chain. Empty if no query gets there.
#[derive(Debug, Default, PartialEq, Eq)]
struct Path(Vec<Decision>);

impl Path {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn desired(rules: &FamilyRules) -> Self {
        Self(desired_path(rules).into_iter().map(Decision::of).collect())
    }

    fn live<'a>(rules: &'a Observed) -> Self {
        let Some(nat) = rules.tables.get(&Table::Nat) else { return Self::default() };
        let of = |line: &'a Line| line.statement.as_ref();
        let chain = |chain| nat.chains.get(&chain).into_iter().flatten().map(of).collect();
        let hook = our_rules(rules, Table::Nat, Hook::Output).into_iter().map(of);
        let raw = rules.tables.get(&Table::Raw).and_then(|raw| raw.chains.get(&Chain::OutputDns));
        let raw = raw.into_iter().flatten().filter_map(of);
        let path =
            relevant(hook.collect(), chain(Chain::Output), chain(Chain::OutputDns), &proxy_owners(raw));
        Self(path.into_iter().map(Decision::of).collect())
    }

    fn native(tables: &[nfnetlink::nftables::Table], family: Family) -> Self {
        let tables = parse::native(&tables.iter(), family);
        let raw = tables.get(&Table::Raw).map(|raw| raw.of_chain(Chain::OutputDns)).unwrap_or_default();
        let Some(nat) = tables.get(&Table::Nat) else { return Self::default() };
        let [hook, output, dns] =
            [nat.of_hook(Hook::Output), nat.of_chain(Chain::Output), nat.of_chain(Chain::OutputDns)];
        let [hook, output, dns] =
            [&hook, &output, &dns].map(|rules| rules.iter().map(Option::as_ref).collect());
        let path = relevant(hook, output, dns, &proxy_owners(raw.iter().flatten()));
        Self(path.into_iter().map(Decision::of).collect())
    }
}

/// The rules of the path in a desired state.
pub(super) fn desired_path(rules: &FamilyRules) -> Vec<Option<&Statement>> {
    fn of(rule: &Rule) -> Option<&Statement> {
        Some(&rule.statement)
    }
    let Some(nat) = rules.tables.get(&Table::Nat) else { return Vec::new() };
    let chain = |chain| nat.chains.get(&chain).into_iter().flatten().map(of).collect();
    let hook = nat.hooks.get(&Hook::Output).into_iter().flat_map(|hook| hook.iter().map(of));
    let raw = rules.tables.get(&Table::Raw).and_then(|raw| raw.chains.get(&Chain::OutputDns));
    let raw = raw.into_iter().flatten().filter_map(of);
    relevant(hook.collect(), chain(Chain::Output), chain(Chain::OutputDns), &proxy_owners(raw))
}

/// The rules in these chains that a query can meet; none if no query gets to the last chain.
fn relevant<'a>(
    hook: Vec<Option<&'a Statement>>,
    output: Vec<Option<&'a Statement>>,
    dns: Vec<Option<&'a Statement>>,
    proxy: &[Owner],
) -> Vec<Option<&'a Statement>> {
    let jump = |chain: Chain| {
        move |rule: &Option<&Statement>| rule.is_some_and(|rule| rule.target == Target::Jump(chain))
    };
    let (Some(_), Some(last)) =
        (hook.iter().position(jump(Chain::Output)), output.iter().rposition(jump(Chain::OutputDns)))
    else {
        return Vec::new();
    };
    let output = output.into_iter().take(last + 1);
    let relevant = |rule: &Option<&Statement>| rule.is_none_or(|rule| decides(rule, proxy));
    hook.into_iter().chain(output).chain(dns).filter(relevant).collect()
}

/// The owners whose queries are tracked in a zone of their own, so that they have other entries than
/// everything else.
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
