//! The rules in the kernel, for `explain --live`.

use std::borrow::Cow;

use super::unevaluated_hooks::UnevaluatedHooks;
use super::{Access, inspect};
use crate::config::{BackendChoice, CaptureConfig};
use crate::explain::{self, LiveState, Runtime, TestedFields};
use crate::finding::{Finding, Problem};
use crate::foreign;
use crate::kernel::process::Host;
use crate::model::{
    Backend, Family, FamilyRules, Fib, Mark, PerFamily, PolicyAction, PolicyRule, ROUTE_PROTOCOL, Rule,
    TableRules, Target, Variant, Why,
};
use crate::nft::LiveTables;
use crate::parse::Observed;
use crate::plan::{CurrentState, Walked};
use crate::policy;
use crate::report::Failure;
use crate::routing;

/// The live rules, and those among them that are ours.
#[derive(Debug)]
pub struct LiveInspection {
    /// The live rules, and what else may decide.
    pub live: LiveState,
    /// The rules of ours, in each family that has some.
    pub rules: PerFamily<FamilyRules>,
    /// The native tables, if they are native ones.
    pub(super) native: LiveTables,
}

impl LiveInspection {
    /// The configuration that the live rules come from; what no rule shows is as in `otherwise`.
    #[must_use]
    pub fn config(&self, otherwise: &CaptureConfig) -> CaptureConfig {
        self.config_by(Family::V4, otherwise)
    }

    /// The configuration that the live rules come from. What families have in common is read from `first`, if
    /// it has rules.
    pub(super) fn config_by(&self, first: Family, otherwise: &CaptureConfig) -> CaptureConfig {
        policy::config_from(&self.rules, first, |mark| table_of(&self.live.fib, mark), otherwise)
    }
}

/// The routing table of packets with our mark, by the policy rule that is ours, or else the last.
fn table_of(fib: &PerFamily<Fib>, mark: Mark) -> Option<u32> {
    let is_by_mark = |rule: &&PolicyRule| rule.mark == Some((mark.0, u32::MAX)) && !rule.is_negated;
    let rules = || fib.values().flat_map(|fib| &fib.rules).filter(is_by_mark);
    let ours = rules().find(|rule| rule.origin == ROUTE_PROTOCOL).or_else(|| rules().last());
    ours.and_then(|rule| if let PolicyAction::Table(table) = rule.action { Some(table) } else { None })
}

/// Reads the live rules, of iptables or of native nftables.
///
/// # Errors
/// The live state cannot be read.
pub fn rules(host: &impl Host, choice: BackendChoice) -> Result<LiveInspection, Failure> {
    Ok(rules_of(&inspect(host, choice, Access::Question)?.current))
}

/// The live rules in a state that has been read.
#[must_use]
pub fn rules_of(current: &CurrentState) -> LiveInspection {
    // The options are those of all rules of ours.
    let read = Family::ALL.map(|family| (family, explain_rules(current, family)));
    let own = read.iter().map(|(family, rules)| (*family, rules.own(*family)));
    let own: PerFamily<_> = own.filter(|(_, rules)| captures(rules)).collect();
    let mut dormant = current.dormant_with(&own);
    dormant.extend(current.native.dormant_with_rules());
    let has_dormant = !current.dormant.is_empty();
    let mut current = Cow::Borrowed(current);
    if has_dormant {
        current.to_mut().leave_out_dormant();
    }
    let of = |(family, rules)| {
        let mut rules = if has_dormant { explain_rules(&current, family) } else { rules };
        current.add_beside(&mut rules, family);
        (family, rules)
    };
    let rules: PerFamily<_> = read.into_iter().map(of).collect();
    let routed_mark = own.values().find_map(tproxy_mark);
    let Foreign { walked: mut foreign, mut before, mut notices } = foreign_rules(&own, &current, &rules);
    let mut foreign_routes = PerFamily::new();
    for (family, rules) in &own {
        let fib = current.network.fib.get(family);
        if let Some((mark, fib)) = tproxy_mark(rules).zip(fib) {
            foreign_routes.insert(*family, routing::find_preceding_policy_rules(*family, fib, mark));
        }
        let dropping = routing::find_dropping_interfaces(rules, &current.network.links, fib);
        foreign.extend(dropping);
        foreign.extend(routing::captured_as_inbound(rules, &current.network.links, fib));
    }
    before.extend(in_several_backends(&current));
    let UnevaluatedHooks { devices, notices: others, unread } =
        super::unevaluated_hooks::read(&current.network.links.each);
    before.extend(others.iter().map(|words| Finding::new(Problem::NotEvaluated, words.as_str())));
    before.extend(current.lockdown());
    let mut unevaluated: Vec<_> = others.into_iter().chain(unread).collect();
    notices.extend(unevaluated.iter().cloned());
    let dormant: Vec<_> = dormant.iter().map(|name| switched_off(name)).collect();
    unevaluated.extend(dormant.iter().map(ToString::to_string));
    notices.extend(dormant.iter().map(ToString::to_string));
    let live = LiveState {
        backend: current.backend,
        tested: rules.iter().map(|(family, rules)| (*family, TestedFields::by(rules))).collect(),
        rules,
        routed_mark,
        fib: current.network.fib.clone(),
        links: current.network.links.clone(),
        devices,
        notices,
        unevaluated,
        damaged: PerFamily::new(),
        dormant,
        foreign,
        before,
        foreign_routes,
        owned: current.owned.clone(),
        tcp_listeners: current.tcp_listeners.clone(),
        runtime: Runtime::default(),
    };
    let native = if is_native(&current) { current.native.clone() } else { LiveTables::default() };
    LiveInspection { live, rules: own, native }
}

/// The finding that several backends hold rules that capture, such as after a run of another program. Open
/// connections may need the translation that another backend keeps.
pub(super) fn in_several_backends(current: &CurrentState) -> Option<Finding> {
    let has_ours = |variant: Variant| {
        let of_variant = current.rules.iter().filter(|((of, _), _)| *of == variant);
        of_variant.map(|(_, observed)| observed).any(Observed::has_ours)
    };
    let mut holders: Vec<Backend> =
        Variant::ALL.into_iter().filter(|variant| has_ours(*variant)).map(Backend::Iptables).collect();
    holders.extend((!current.native.is_empty()).then_some(Backend::Native));
    if holders.len() < 2 {
        return None;
    }
    let rules = |backend: Backend, family: Family| match backend {
        Backend::Iptables(variant) => current.rules.get(&(variant, family)).map(explain::Rules::live),
        Backend::Native => Some(explain::Rules::native(&current.native, family)),
    };
    let is_capturing = |backend: &Backend, family: Family| {
        rules(*backend, family).is_some_and(|rules| captures(&rules.own(family)))
    };
    holders.retain(|backend| Family::ALL.into_iter().any(|family| is_capturing(backend, family)));
    let names: Vec<String> = holders.iter().map(ToString::to_string).collect();
    let cause = format!(
        "{} hold capture rules; those of {} are taken for the ones to keep",
        names.join(" and "),
        current.backend
    );
    (holders.len() > 1).then(|| Finding::new(Problem::TwoBackends, cause))
}

pub(super) fn switched_off(table: &str) -> Finding {
    let cause = format!("the nftables table {table} is dormant: its rules see no packet");
    Finding::new(Problem::Dormant, cause)
        .advice(format!("; `nft add table {table}` activates it"))
        .subject(table)
}

/// The live rules of a family without those beside ours.
fn explain_rules(current: &CurrentState, family: Family) -> explain::Rules {
    match observed(current, family) {
        _ if is_native(current) => explain::Rules::native(&current.native, family),
        Some(observed) => explain::Rules::live(observed),
        None => explain::Rules::default(),
    }
}

/// Whether native tables hold the rules: what is empty or dormant hides no rules of iptables.
fn is_native(current: &CurrentState) -> bool {
    !current.native.is_empty() && (current.backend == Backend::Native || current.native.have_active_rules())
}

fn observed(current: &CurrentState, family: Family) -> Option<&Observed> {
    current.rules.get(&(current.variant_of(family)?, family))
}

/// Rules of other programs, as text.
struct Foreign {
    /// The rules of the walk that decide before ours.
    walked: Vec<Finding>,
    /// Rules that are before ours in tables of other programs, or of another variant of iptables, and those
    /// that give the mark of TPROXY.
    before: Vec<Finding>,
    /// The rules of `before`, and what is behind ours or changes packets.
    notices: Vec<String>,
}

fn foreign_rules(
    own: &PerFamily<FamilyRules>,
    current: &CurrentState,
    rules: &PerFamily<explain::Rules>,
) -> Foreign {
    let walked = || Walked { rules: Cow::Borrowed(rules), fib: &current.network.fib };
    let examined = current.examined(own, rules);
    let chains = foreign::find_conflicting_chains(&examined);
    let first = Walked::deciding(&walked, foreign::find_preceding_rules(&examined));
    let (beside_ours, others): (Vec<_>, Vec<_>) = first.iter().partition(|rule| rule.is_beside_ours());
    let (chains, behind): (Vec<_>, Vec<_>) = chains.iter().partition(|chain| chain.is_before());
    let changing = foreign::find_mark_changes(&examined);
    let marks = foreign::find_tproxy_marks(&examined);
    let before: Vec<_> = others
        .into_iter()
        .map(Finding::from)
        .chain(chains.into_iter().map(Finding::from))
        .chain(marks)
        .collect();
    let notices = before.iter().map(ToString::to_string);
    let notices = notices.chain(behind.into_iter().map(ToString::to_string)).chain(changing).collect();
    Foreign { walked: beside_ours.into_iter().map(Finding::from).collect(), before, notices }
}

/// Whether there are rules, and not only the one that keeps the translation of open connections.
fn captures(own: &FamilyRules) -> bool {
    own.tables.values().flat_map(TableRules::rules).any(|rule| rule.why != Why::KeepsTranslation)
}

/// The mark that policy routing sends to `lo`.
fn tproxy_mark(rules: &FamilyRules) -> Option<Mark> {
    let mark = |rule: &Rule| {
        if let Target::Tproxy { mark, .. } = rule.statement.target { Some(mark) } else { None }
    };
    rules.tables.values().flat_map(TableRules::rules).find_map(mark)
}
