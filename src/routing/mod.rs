//! Policy routing for capture (`ip rule`, route table 133): the passthrough address, and TPROXY's policy rule
//! and route.
//!
//! The kernel accepts duplicate policy rules, so existing ones are read first. Ours have their own protocol
//! number. Istio's have none: without a record, they are recognised by the mark of the live TPROXY rules and
//! by a table with nothing but `local default dev lo`. A run adopts them: it adds a tagged copy before it
//! deletes the original, so that the next run recognises whatever a killed run leaves. A foreign route or
//! address with the same effect as ours is used as it is.

mod first;
mod forwarded;
mod links;
mod lookup;
mod source;
mod tags;

use std::collections::BTreeSet;
use std::fmt;

use crate::config::{CaptureConfig, InboundPorts, Mode, Tproxy};
use crate::model::{Family, Fib, Links, Mark, PASSTHROUGH_V6, PerFamily, ROUTE_PROTOCOL, RULE_PRIORITY};
use crate::ordered::Ordered as _;

pub use first::{find_preceding_policy_rules, with_tproxy};
pub use forwarded::captured_as_inbound;
pub use links::{drops, drops_marked, find_dropping_interfaces, is_local, loopback_down, loopback_unrouted};
pub use lookup::{Flow, Found, Lookup, Tried, lookup};
pub use source::source;
pub use tags::is_tagging;

/// The desired routes, policy rules and addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Whether `::6/128` is to be on `lo`.
    pub passthrough: bool,
    /// Per family: which marked packets are sent to `lo` by which table.
    pub tproxy: PerFamily<Tproxy>,
}

impl Desired {
    /// The desired state for `config`.
    #[must_use]
    pub fn of(config: &CaptureConfig) -> Self {
        let tproxy = match config.traffic.mode {
            // Without captured ports nothing carries the mark; Istio makes no route then either.
            Mode::Tproxy(tproxy) if config.traffic.inbound != InboundPorts::None => Some(tproxy),
            Mode::Tproxy(_) | Mode::Redirect => None,
        };
        Self {
            passthrough: config.families.contains(Family::V6),
            tproxy: tproxy
                .iter()
                .flat_map(|tproxy| config.families.iter().map(|family| (family, *tproxy)))
                .collect(),
        }
    }
}

/// A policy rule that looks up a table by mark, and does nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkRule {
    /// IPv4 or IPv6.
    pub family: Family,
    /// Mark of the packets; the whole mark is compared.
    pub mark: u32,
    /// Table that is looked up.
    pub table: u32,
    /// Priority: rules are tried from low to high.
    pub priority: u32,
    /// Who made it.
    pub protocol: u8,
}

/// A route in a table other than the standard ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// IPv4 or IPv6.
    pub family: Family,
    /// The table of the route.
    pub table: u32,
    /// Who made it.
    pub protocol: u8,
    /// Whether it is `local default dev lo`.
    pub local_default: bool,
}

/// The live routes, policy rules and addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Rules that match only the mark.
    pub rules: Vec<MarkRule>,
    /// Routes outside the standard tables.
    pub routes: Vec<Route>,
    /// The protocol number of `::6/128` on `lo`, if it is there; 0 if it has none.
    pub passthrough: Option<u8>,
    /// References of Istio's native nftables tables.
    pub native: Native,
    /// All policy rules and routes.
    pub fib: PerFamily<Fib>,
    /// The interfaces.
    pub links: Links,
}

/// What the tables of Istio's native nftables mode refer to. They hold both families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Native {
    /// The marks that they put on packets.
    pub marks: BTreeSet<Mark>,
    /// Whether they look for `::6`: then Istio put it on `lo`.
    pub passthrough: bool,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Puts `::6/128` on `lo`.
    AddAddress,
    /// Tags the `::6/128` that Istio put on `lo`.
    AdoptAddress,
    /// Adds a tagged policy rule.
    AddRule(Family, Tproxy),
    /// Adds the route of a table.
    AddRoute(Family, u32),
    /// Tags the route that Istio put into a table.
    AdoptRoute(Family, u32),
    /// Takes `::6/128` off `lo`.
    RemoveAddress,
    /// Removes just this policy rule.
    RemoveRule(MarkRule),
    /// Removes `local default dev lo` from a table.
    RemoveRoute(Family, u32),
}

const fn option(family: Family) -> &'static str {
    match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    }
}

impl fmt::Display for Step {
    /// The command of iproute2 that would do the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddAddress => {
                write!(f, "ip -6 addr add {PASSTHROUGH_V6}/128 dev lo proto {ROUTE_PROTOCOL}")
            }
            Self::AdoptAddress => {
                write!(f, "ip -6 addr replace {PASSTHROUGH_V6}/128 dev lo proto {ROUTE_PROTOCOL}")
            }
            Self::RemoveAddress => write!(f, "ip -6 addr del {PASSTHROUGH_V6}/128 dev lo"),
            Self::AddRule(family, Tproxy { mark, table }) => {
                let ip = option(*family);
                write!(
                    f,
                    "ip {ip} rule add fwmark {mark} lookup {table} priority {RULE_PRIORITY} protocol {ROUTE_PROTOCOL}"
                )
            }
            Self::RemoveRule(MarkRule { family, mark, table, priority, protocol }) => {
                let ip = option(*family);
                write!(
                    f,
                    "ip {ip} rule del fwmark {mark} lookup {table} priority {priority} protocol {protocol}"
                )
            }
            Self::AddRoute(family, table) => {
                let ip = option(*family);
                write!(f, "ip {ip} route add local default dev lo table {table} proto {ROUTE_PROTOCOL}")
            }
            Self::AdoptRoute(family, table) => {
                write!(
                    f,
                    "ip {} route replace local default dev lo table {table} proto {ROUTE_PROTOCOL}",
                    option(*family)
                )
            }
            Self::RemoveRoute(family, table) => {
                write!(f, "ip {} route del local default dev lo table {table}", option(*family))
            }
        }
    }
}

/// The changes and their order: packets must find their route before the rules that mark them are live, and
/// keep it until those are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Before the rules change.
    pub before: Vec<Step>,
    /// After the rules have changed.
    pub after: Vec<Step>,
}

/// What is there besides the rules of this module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The marks that live rules of Istio's own binary use, per family; a family is in it as soon as such
    /// rules are.
    pub istio: PerFamily<BTreeSet<Mark>>,
    /// Whether our record says that `::6` on `lo` is ours.
    pub passthrough: bool,
}

/// What makes `observed` into `desired`.
#[must_use]
pub fn plan(desired: &Desired, observed: &Observed, evidence: &Evidence) -> Steps {
    let mut steps = Steps::default();
    let evidence = &Evidence {
        istio: with_native(&evidence.istio, &observed.native),
        passthrough: evidence.passthrough,
    };
    let marks = &evidence.istio;
    passthrough(desired, observed, evidence, &mut steps);
    let wanted: Vec<(Family, Tproxy)> =
        desired.tproxy.iter().map(|(family, tproxy)| (*family, *tproxy)).collect();
    let adopted = adopt(observed, marks, &mut steps);
    let ours = || observed.rules.iter().filter(|rule| is_our_rule(rule, observed)).map(tproxy_of);
    let routed = |family, table| {
        let same = |route: &&Route| (route.family, route.table) == (family, table);
        observed.routes.iter().filter(same).any(|route| route.local_default)
    };
    for (family, tproxy) in &wanted {
        if !routed(*family, tproxy.table) {
            steps.before.push(Step::AddRoute(*family, tproxy.table));
        }
        let adopted = adopted.iter().map(|adopted| (adopted.family, adopted.tproxy));
        if !ours().chain(adopted).any(|rule| rule == (*family, *tproxy)) {
            steps.before.push(Step::AddRule(*family, *tproxy));
        }
    }
    remove_stale(&wanted, observed, &adopted, &mut steps);
    steps
}

/// `marks` with those of Istio's native tables.
fn with_native(marks: &PerFamily<BTreeSet<Mark>>, native: &Native) -> PerFamily<BTreeSet<Mark>> {
    let mut marks = marks.clone();
    let families = Family::ALL.into_iter().filter(|_| !native.marks.is_empty());
    for family in families.chain(native.passthrough.then_some(Family::V6)) {
        marks.or_default(family).extend(&native.marks);
    }
    marks
}

/// Whether `::6` on `lo` is ours once `desired` is reached.
#[must_use]
pub fn passthrough_is_ours(desired: &Desired, observed: &Observed, evidence: &Evidence) -> bool {
    let ours = matches!(observed.passthrough, None | Some(ROUTE_PROTOCOL));
    desired.passthrough
        && (ours
            || evidence.passthrough
            || evidence.istio.contains_key(&Family::V6)
            || observed.native.passthrough)
}

/// A rule of Istio's that is taken over.
#[derive(Clone, Copy, Debug)]
struct Adopted {
    family: Family,
    tproxy: Tproxy,
    /// The protocol number of the rule that stays.
    protocol: u8,
}

/// Adds a tagged copy of each rule of Istio's, and removes the untagged one. One with the copy's own priority
/// stays as it is: on kernels before 4.17, which keep no tag of rules, it is that copy. Its route identifies
/// it as ours.
fn adopt(observed: &Observed, marks: &PerFamily<BTreeSet<Mark>>, steps: &mut Steps) -> Vec<Adopted> {
    let mut adopted: Vec<Adopted> = Vec::new();
    let untagged: Vec<_> = observed
        .rules
        .iter()
        .filter(|rule| !is_our_rule(rule, observed) && is_istios(rule, observed, marks))
        .collect();
    let has = |family, tproxy, one: &dyn Fn(&MarkRule) -> bool| {
        observed.rules.iter().any(|rule| tproxy_of(rule) == (family, tproxy) && one(rule))
    };
    for rule in untagged {
        let (family, tproxy) = tproxy_of(rule);
        let is_copy = |rule: &MarkRule| rule.protocol == 0 && rule.priority == RULE_PRIORITY;
        if !adopted.iter().any(|other| (other.family, other.tproxy) == (family, tproxy)) {
            steps.before.push(Step::AdoptRoute(family, tproxy.table));
            let tagged = has(family, tproxy, &|rule| rule.protocol == ROUTE_PROTOCOL);
            let copy = has(family, tproxy, &is_copy);
            if !tagged && !copy {
                steps.before.push(Step::AddRule(family, tproxy));
            }
            let protocol = if copy && !tagged { 0 } else { ROUTE_PROTOCOL };
            adopted.push(Adopted { family, tproxy, protocol });
        }
        if !is_copy(rule) {
            steps.before.push(Step::RemoveRule(*rule));
        }
    }
    adopted
}

fn remove_stale(wanted: &[(Family, Tproxy)], observed: &Observed, adopted: &[Adopted], steps: &mut Steps) {
    let mut kept = BTreeSet::new();
    for rule in observed.rules.iter().filter(|rule| is_our_rule(rule, observed)) {
        let first = kept.insert((rule.family, rule.mark, rule.table));
        if !(first && wanted.contains(&tproxy_of(rule))) {
            steps.after.push(Step::RemoveRule(*rule));
        }
    }
    for Adopted { family, tproxy, protocol } in adopted {
        let stays = wanted.contains(&(*family, *tproxy));
        if !stays && kept.insert((*family, tproxy.mark.0, tproxy.table)) {
            steps.after.push(Step::RemoveRule(MarkRule {
                family: *family,
                mark: tproxy.mark.0,
                table: tproxy.table,
                priority: RULE_PRIORITY,
                protocol: *protocol,
            }));
        }
    }
    let tables =
        observed.routes.iter().filter(|route| is_ours(route)).map(|route| (route.family, route.table));
    let tables: BTreeSet<_> =
        tables.chain(adopted.iter().map(|adopted| (adopted.family, adopted.tproxy.table))).into_set();
    for (family, table) in tables {
        if !wanted.iter().any(|(f, tproxy)| (*f, tproxy.table) == (family, table)) {
            steps.after.push(Step::RemoveRoute(family, table));
        }
    }
}

fn passthrough(desired: &Desired, observed: &Observed, evidence: &Evidence, steps: &mut Steps) {
    match (desired.passthrough, observed.passthrough) {
        (true, None) => steps.before.push(Step::AddAddress),
        (false, Some(ROUTE_PROTOCOL)) => steps.after.push(Step::RemoveAddress),
        // The kernel does not keep the tag.
        (false, Some(_)) if evidence.passthrough => steps.after.push(Step::RemoveAddress),
        // Untagged, beside Istio's rules, which need it.
        (false, Some(_)) if evidence.istio.contains_key(&Family::V6) => {
            steps.before.push(Step::AdoptAddress);
            steps.after.push(Step::RemoveAddress);
        }
        (true, Some(_)) | (false, _) => {}
    }
}

/// Tagged; or, on kernels before 4.17, which keep no tag of rules, with our priority and to a table with our
/// route.
fn is_our_rule(rule: &MarkRule, observed: &Observed) -> bool {
    let to_our_route = || {
        let same = |route: &&Route| (route.family, route.table) == (rule.family, rule.table);
        observed.routes.iter().filter(same).any(is_ours)
    };
    rule.protocol == ROUTE_PROTOCOL
        || (rule.protocol == 0 && rule.priority == RULE_PRIORITY && to_our_route())
}

const fn is_ours(route: &Route) -> bool {
    route.protocol == ROUTE_PROTOCOL && route.local_default
}

fn is_istios(rule: &MarkRule, observed: &Observed, marks: &PerFamily<BTreeSet<Mark>>) -> bool {
    let in_use = marks.get(&rule.family).is_some_and(|marks| marks.contains(&Mark(rule.mark)));
    let mut routes = observed
        .routes
        .iter()
        .filter(|route| (route.family, route.table) == (rule.family, rule.table))
        .peekable();
    in_use && routes.peek().is_some() && routes.all(|route| route.local_default)
}

const fn tproxy_of(rule: &MarkRule) -> (Family, Tproxy) {
    (rule.family, Tproxy { mark: Mark(rule.mark), table: rule.table })
}

#[cfg(test)]
mod tests;
