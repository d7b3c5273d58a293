//! How the live state differs from the desired one, for `check`.

use super::{Access, inspect};
use crate::config::RunOptions;
use crate::finding::{Finding, Problem, by_harm};
use crate::kernel::process::Host;
use crate::model::{Backend, Family, FamilyRules, Variant};
use crate::nft;
use crate::plan::{self, CurrentState, DesiredState, Notices, Step};
use crate::reconcile::{self, ChainDifference};
use crate::report::Failure;
use crate::routing;

/// What differs.
#[derive(Clone, Debug)]
pub struct Differences {
    /// What holds the rules, or is to hold them.
    pub backend: Backend,
    /// The nftables tables that running programs own.
    pub owned: Vec<String>,
    /// The rules that differ, with what holds them.
    pub chains: Vec<(Backend, ChainDifference)>,
    /// What else a run would change: routes, policy rules, addresses, dormant tables.
    pub others: Vec<String>,
    /// Tables with the right rules and other comments, sets or chains: packets do not meet the difference.
    pub forms: Vec<String>,
    /// Whether a run would tag addresses, policy rules or routes of Istio's own binary, which do the same
    /// without a tag.
    pub is_untagged: bool,
    /// What a run would warn of.
    pub notices: Notices,
    /// What `explain --live` finds besides: a run changes none of it.
    pub of_pod: Vec<Finding>,
    /// Whether no rule of ours is live, and no options are given to compare with.
    pub has_no_rules: bool,
    /// The native tables that hold rules of ours and are switched off.
    pub dormant: Vec<Finding>,
}

impl Differences {
    /// Whether a run would change nothing, and nothing decides before our rules.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.is_same() && self.is_undisturbed() && !self.has_no_rules
    }

    /// What a run would warn of.
    pub fn problems_of_run(&self) -> impl Iterator<Item = &Finding> {
        self.notices.deciding.iter().chain(&self.notices.others)
    }

    /// The problems to report, the most harmful first.
    #[must_use]
    pub fn problems(&self) -> Vec<Finding> {
        let none = Finding::new(Problem::NoRules, "packets of the pod meet no rule of istio-iptables");
        let none = self.dormant.iter().cloned().chain(self.dormant.is_empty().then_some(none));
        let none = none.filter(|_| self.has_no_rules);
        // What would decide before rules is of no interest without them; what an earlier run has left is.
        let is_left = |finding: &&Finding| {
            !self.has_no_rules || matches!(finding.problem, Problem::KeptRules | Problem::Lockdown)
        };
        by_harm(none.chain(self.problems_of_run().filter(is_left).cloned()), self.backend, &self.owned)
    }

    /// Whether the rules are the same and none decides before.
    #[must_use]
    pub const fn is_none_of_rules(&self) -> bool {
        self.is_same() && self.notices.deciding.is_empty()
    }

    /// Whether the live rules are those of the options, and nothing else that a run writes is missing.
    #[must_use]
    pub const fn is_same(&self) -> bool {
        self.chains.is_empty() && self.others.is_empty() && self.forms.is_empty()
    }

    /// Adds the findings of `explain --live` that are not among those of a run.
    pub fn add_of_pod(&mut self, found: Vec<Finding>) {
        let known = self.problems();
        let is_known = |finding: &Finding| {
            let is_same =
                |known: &Finding| known.cause == finding.cause || finding.is_about_any(&known.about);
            known.iter().any(is_same) || self.notices.unread.contains(&finding.cause)
        };
        self.of_pod = found.into_iter().filter(|finding| !is_known(finding)).collect();
    }

    /// What is not counted as a difference or a problem, in words.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let of_pod = self.of_pod.iter().map(|finding| {
            format!("{}: {}; fix: {}", finding.problem.spec().id, finding.cause, finding.fix())
        });
        of_pod.chain(self.notices.unread.iter().cloned())
    }

    /// Whether at most rules and their form differ: what captured packets need besides is there, and nothing
    /// decides before.
    #[must_use]
    pub const fn is_of_rules_only(&self) -> bool {
        self.others.is_empty() && self.notices.deciding.is_empty()
    }

    /// What cannot be read for lack of a privilege is not known to disturb.
    fn is_undisturbed(&self) -> bool {
        self.notices.deciding.is_empty() && self.notices.others.is_empty()
    }
}

/// Compares. Nothing is changed.
///
/// # Errors
/// The live state cannot be read.
pub fn differences(
    host: &impl Host,
    desired: &DesiredState,
    run: &RunOptions,
) -> Result<Differences, Failure> {
    let current = inspect(host, run.backend, Access::Question)?.current;
    Ok(differences_from(&current, desired, run))
}

/// Compares a state that has been read.
#[must_use]
pub fn differences_from(current: &CurrentState, desired: &DesiredState, run: &RunOptions) -> Differences {
    let desired = desired.clone().accepting_kept_translation(current);
    let mut chains = Vec::new();
    for variant in Variant::ALL {
        chains.extend(iptables(&desired, current, variant).into_iter().map(|one| (variant.into(), one)));
    }
    let wanted = if current.backend == Backend::Native { nft::tables(&desired.rules) } else { Vec::new() };
    let differing = current.native.differing(&wanted);
    let before = chains.len();
    // Tables that are the same have no rule that differs.
    let encoded = || wanted.iter().map(|table| nft::encode(table).normalized()).collect::<Vec<_>>();
    let encoded = if differing.is_empty() { Vec::new() } else { encoded() };
    for family in Family::ALL.into_iter().filter(|_| !differing.is_empty()) {
        let found = reconcile::of_native(&encoded, &current.native, family);
        chains.extend(found.into_iter().map(|one| (Backend::Native, one)));
    }
    let (mut others, is_untagged) = network(&desired, current);
    let dormant = super::preconditions::require_active_tables(&desired, current).err();
    others.extend(dormant.map(|failure| failure.what));
    let is_same = chains.len() == before;
    let (dormant, others_forms): (Vec<_>, Vec<_>) = differing
        .into_iter()
        .partition(|name| current.native.dormant().iter().any(|dormant| dormant == *name));
    others.extend(dormant.iter().map(|name| {
        format!("the nftables table inet {name} is dormant: `nft add table inet {name}` activates it")
    }));
    let forms = others_forms.iter().filter(|_| is_same).map(|name| {
        format!("the nftables table inet {name} has other comments, sets or chains than a run writes")
    });
    let forms = forms.collect();
    let mut notices = plan::notices(&desired, current);
    if let Some(own) = super::preconditions::undelivered(&desired, current, run) {
        notices.others.retain(|notice| notice.cause != own.cause);
        notices.deciding.push(own);
    }
    // Of what is found about one rule the first stays: this is the most that is known.
    notices.deciding.splice(0..0, plan::lost_queries(&desired, current));
    notices.others.extend(super::live_inspection::in_several_backends(current));
    let outside = super::unevaluated_hooks::read(&current.network.links.each);
    let programs = super::bpf_programs::of_network_namespace().into_iter().map(|program| program.words);
    let unfollowed = |words| Finding::new(Problem::NotEvaluated, words);
    notices.others.extend(outside.notices.into_iter().chain(programs).map(unfollowed));
    notices.unread.extend(outside.unread);
    Differences {
        backend: current.backend,
        owned: current.owned.clone(),
        chains,
        others,
        forms,
        is_untagged,
        notices,
        of_pod: Vec::new(),
        has_no_rules: false,
        dormant: current
            .native
            .dormant_with_rules()
            .map(|table| super::live_inspection::switched_off(&table))
            .collect(),
    }
}

fn iptables(desired: &DesiredState, current: &CurrentState, variant: Variant) -> Vec<ChainDifference> {
    let is_ours = current.backend == Backend::Iptables(variant);
    let mut found = Vec::new();
    for family in Family::ALL {
        let observed = current.rules.get(&(variant, family));
        let wanted = desired.rules.get(&family).filter(|_| is_ours);
        let none = FamilyRules::none(family);
        if observed.is_none() && wanted.is_none() {
            continue;
        }
        let empty = crate::parse::Observed::empty(family);
        found.extend(reconcile::of_iptables(wanted.unwrap_or(&none), observed.unwrap_or(&empty)));
    }
    found
}

/// The steps of a run that are about addresses, routes and policy rules; whether there are some that only tag
/// them.
fn network(desired: &DesiredState, current: &CurrentState) -> (Vec<String>, bool) {
    let steps = plan::plan(desired, current);
    let mut all: Vec<&routing::Step> = Vec::new();
    for step in &steps {
        if let Step::Network(step) = step {
            all.push(step);
        }
    }
    let (tagging, others): (Vec<&routing::Step>, Vec<_>) =
        all.iter().partition(|step| routing::is_tagging(step, &all));
    (others.iter().map(|step| format!("a run would `{step}`")).collect(), !tagging.is_empty())
}
